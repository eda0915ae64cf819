"""A call that a server runs as a task, in a chat that is killed and gone on with."""

import json
import sys
import time
from pathlib import Path

import pytest
from cli_harness import Terminal, call, model_server, run_cli
from servers.fake_openai import llama_props

from xmlcall.records.store import Store

SERVERS = Path(__file__).parents[1] / "servers"
UNKNOWN = "It is not known whether it did its work"


def tasking(mode: str, folder: Path) -> str:
    """Write a configuration with the server in a mode; gives its path."""
    env = {"RECORD": str(folder / "record"), "PYTHONPATH": str(SERVERS.parent)}
    server = {"command": sys.executable, "args": [str(SERVERS / "tasking.py"), mode], "env": env}
    path = folder / f"{mode}.json"
    path.write_text(json.dumps({"mcpServers": {"tasking": server}}))
    return str(path)


def killed_while_it_runs(home: Path) -> None:
    """Begin a conversation whose call becomes a task, and kill the program."""
    with model_server(call("slow", text="bread")) as (url, fake):
        fake.props = llama_props()
        with Terminal("chat", "--model", url, "--yes", "--mcp", tasking("endless", home), home=home) as terminal:
            terminal.until("| servers ")
            terminal.send("Bake bread.\r")
            record, deadline = home / "record", time.monotonic() + 20
            while not (record.exists() and "tasks/get" in record.read_text()):
                assert time.monotonic() < deadline
                time.sleep(0.05)


@pytest.mark.parametrize(
    ("mode", "model", "person", "outcome"),
    [
        ("steps", "the result", "tasking.slow has ended in the meantime: the result", "ok"),
        ("fails", "the oven is cold", "tasking.slow has ended in the meantime: tasking: error -32603", "failed"),
        ("cancelled", "The server cancelled this call", "tasking.slow has ended in the meantime: The server cancelled", "error"),
        ("forgetful", UNKNOWN, "tasking.slow had started when the program ended: unknown whether it ran", None),
    ],
)
def test_a_task_is_taken_up_after_a_restart(mode: str, model: str, person: str, outcome: str | None, tmp_path: Path) -> None:
    killed_while_it_runs(tmp_path)
    with model_server("Good.") as (url, fake):
        more = ("--mcp", tasking(mode, tmp_path), "--continue")
        done = run_cli("chat", "--model", url, *more, home=tmp_path, stdin="And?\n")
        said = [message for message in fake.bodies[-1]["messages"] if message["role"] != "system"]
    assert "tasking.slow was running as a task of its server" in done.stderr
    assert person in done.stderr
    assert [model in message["content"] for message in said] == [False, False, True, False, False]  # in the result
    assert (UNKNOWN in said[2]["content"]) == (outcome is None)
    with Store(tmp_path / "records" / "conversations.db") as store:
        events = {event.kind: event.body for event in store.events(store.listed(1)[0].id)}
    assert events["task"]["task"] == "t1"
    assert (events["ended"]["outcome"] if "ended" in events else None) == outcome
    audited = [json.loads(line) for line in (tmp_path / "records" / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in audited] == ["starts", *(["ended"] if outcome else [])]
