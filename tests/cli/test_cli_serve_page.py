"""`xmlcall serve --ui` and `--record` from the outside: a process, a scripted model server, real callers."""

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from cli_harness import SECONDS, call, environment, model_server, run_cli
from cli_process import Running, begin
from turn_harness import turn_from_json

from xmlcall.turn_records.record import TurnRecord

CHAT = "/v1/chat/completions"
TEXT = {"type": "string"}
LOGIN = {"name": "login", "parameters": {"type": "object", "properties": {"user": TEXT, "password": TEXT}}}
TOOLS = [{"type": "function", "function": LOGIN}]
KEY = "key-of-this-server-7f3a"


@contextlib.contextmanager
def serving(home: Path, *arguments: str, **env: str) -> Iterator[tuple[Running, str]]:
    """Run a proxy; give its process and its address."""
    command = ["serve", "--port", "0", "--ask", "mode=xml", *arguments]
    with (home / "stderr").open("w") as errors:
        streams = (subprocess.DEVNULL, subprocess.PIPE, errors.fileno())
        process = begin(command, streams, home=home, env=environment(home, env))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, (home / "stderr").read_text()
        yield process, url
    finally:
        process.kill()
        process.communicate()


def ask(url: str, text: str = "Hi", **fields: Any) -> httpx.Response:
    body = {"model": "any", "messages": [{"role": "user", "content": text}], **fields}
    headers = {"authorization": f"Bearer {KEY}", "user-agent": "demo/1.0"}
    return httpx.post(url + CHAT, json=body, headers=headers, timeout=SECONDS)


def end(process: Running) -> float:
    """End a server; give the seconds that it took."""
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    return time.monotonic() - begun


def turns_in(folder: Path) -> list[TurnRecord]:
    (path,) = folder.glob("turns-*.jsonl")
    assert path.stat().st_mode & 0o077 == 0
    return [turn_from_json(json.loads(line)) for line in path.read_text().splitlines()]


def test_requests_are_written_to_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "records"
    secret = "hunter2-correct-horse"
    replies = (call("login", user="ann", password=secret), "Hello.")
    with model_server(*replies) as (model, _), serving(tmp_path, "--model", model, "--record", str(folder)) as (process, url):
        assert ask(url, "Log in.", tools=TOOLS).status_code == 200
        assert ask(url, "Hi").status_code == 200
        assert ask(url, "Hi", tools=5).status_code == 400
        end(process)
    first, second, third = turns_in(folder)
    assert (first.way, first.client, first.outcome) == ("xml", "demo/1.0", "tool_calls")
    assert first.replies[0].calls[0].arguments == {"user": "ann", "password": "***"}
    assert (second.way, second.answer) == ("relayed", "Hello.")
    assert (third.outcome, "tools" in third.error) == ("error", True)
    written = "".join(path.read_text() for path in folder.iterdir())
    assert secret not in written
    assert KEY not in written
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_cli("serve", "--model", "http://127.0.0.1:9/v1", "--record", str(tmp_path / "file"), home=tmp_path)
    assert done.returncode == 2
    assert f"--record {tmp_path / 'file'}" in done.stderr


def page_of(home: Path) -> str:
    """Return the address of the page, as a person reads it."""
    found = re.findall(r"http://\S+/ui/\?token=\S+", (home / "stderr").read_text())
    assert len(found) == 1
    return str(found[0])


def test_the_page_shows_the_requests_to_whoever_has_its_address(tmp_path: Path) -> None:
    with model_server("Hello.") as (model, _), serving(tmp_path, "--model", model, "--ui", XMLCALL_API_KEY=KEY) as (process, url):
        assert ask(url, "Hi", tools=TOOLS).status_code == 200
        page = page_of(tmp_path)
        assert page.startswith(f"{url}/ui/?token=")
        assert httpx.get(f"{url}/ui/api/turns").status_code in (401, 403)
        assert httpx.get(f"{url}/ui/api/turns", headers={"authorization": f"Bearer {KEY}"}).status_code in (401, 403)
        with httpx.Client(follow_redirects=True, timeout=SECONDS) as client:
            assert client.get(page).status_code == 200
            answer = client.get(f"{url}/ui/api/turns")
            (row,) = answer.json()["turns"]
            turn = turn_from_json(client.get(f"{url}/ui/api/turns/{row['id']}").json())
        assert (row["client"], row["way"], turn.answer, turn.question) == ("demo/1.0", "xml", "Hello.", "Hi")
        assert KEY not in answer.text
        assert process.poll() is None


def test_an_open_page_does_not_hold_the_end_of_the_server(tmp_path: Path) -> None:
    with model_server("Hello.") as (model, _), serving(tmp_path, "--model", model, "--ui") as (process, url):
        with httpx.Client(follow_redirects=True, timeout=SECONDS) as client:
            client.get(page_of(tmp_path))
            with client.stream("GET", f"{url}/ui/api/events") as events:
                lines = events.iter_lines()
                assert any(line == "event: hello" for line in lines)
                assert ask(url).status_code == 200
                assert any(line == "event: turn" for line in lines)
                assert end(process) < 4


def test_without_the_option_there_is_no_page(tmp_path: Path) -> None:
    with model_server() as (model, _), serving(tmp_path, "--model", model) as (_, url):
        for path in ("/ui", "/ui/", "/ui/api/turns", "/ui/app.js"):
            assert httpx.get(url + path).status_code == 404, path
        assert "token=" not in (tmp_path / "stderr").read_text()
