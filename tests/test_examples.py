"""The programs of examples/ do what they say, with models that say what they were told to."""

import importlib.util
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli_harness import call, environment, model_server
from proxy_harness import block, body, function
from servers.fake_openai import chunk
from servers.run_server import free_port, run_server

import xmlcall
import xmlcall.clients
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy import create_app
from xmlcall.types.completion import Chunk, Usage

EXAMPLES = Path(__file__).parents[1] / "examples"
MULTIPLY = block(("calculator", {"operation": "multiply", "a": 1234, "b": 5678}))

# program -> what the model says, what the program prints
PROGRAMS: dict[str, tuple[list[str], list[str]]] = {
    "parse_stream.py": ([], ["a call of get_weather begins", "{'city': 'Zürich', 'days': 3}"]),
    "bind_and_render.py": ([], ["['comma-list', 'enum-spelling']", "does not run", "reads back as:"]),
    "own_backend.py": ([], ["GOOD MORNING"]),
    "loop_with_function.py": (
        [block(("days_between", {"first": "2026-11-22", "last": "2026-12-24"})), "It is 32 days."],
        ["It is 32 days."],
    ),
    "own_client_async.py": (
        [block(("word_count", {"text": "all good things come in threes"})), "It has 6 words."],
        ["word_count({'text': 'all good things come in threes'})", "It has 6 words.", "(end, 4 messages)"],
    ),
    "replay.py": ([], ["get_weather does not run: ", "get_weather {'city': 'Oslo', 'days': 3}", "end It will snow"]),
    "loop_over_mcp.py": ([MULTIPLY, "It is 7006652."], ["-> 7006652", "It is 7006652."]),
    "openai_without_server.py": (
        [block(("get_weather", {"city": "Oslo"})), "It is 4 degrees in Oslo."],
        ["get_weather: Oslo", "It is 4 degrees in Oslo."],
    ),
}


OWN_CLIENT = "own_client_sync.py"
SERVER = "my_server.py"
METRICS = "read_metrics.py"
ON_RAY = "ray_serve.py"


def test_every_example_is_run_and_in_the_documents() -> None:
    programs = {*PROGRAMS, OWN_CLIENT, SERVER, METRICS, ON_RAY}
    assert {path.name for path in EXAMPLES.glob("*.py")} == programs
    pages = [EXAMPLES.parent / "README.md", *(EXAMPLES.parent / "docs").glob("*.md")]
    said = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name in programs if f"examples/{name}" not in said] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said, printed = PROGRAMS[name]
    backend = ScriptedBackend(said)
    client = xmlcall.clients.httpx2_client

    def scripted_client(model: Any) -> Any:
        return client(backend, mode="xml")

    monkeypatch.setattr(xmlcall, "connect", lambda model: backend)
    monkeypatch.setattr(xmlcall.clients, "httpx2_client", scripted_client)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    out = capsys.readouterr().out
    assert [words for words in printed if words not in out] == []
    assert len(backend.requests) == len(said)


def test_the_example_of_metrics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    usage = Usage(prompt_tokens=200, completion_tokens=20, cached_tokens=150)
    repaired = block(("calculator", {"operation": "add", "a": "1,000", "b": 2}))
    parameters: dict[str, Any] = {"operation": {"type": "string"}, "a": {"type": "integer"}, "b": {"type": "integer"}}
    said = ScriptedBackend([[repaired, Chunk(finish_reason="stop", usage=usage)]])
    with run_server(create_app(said, mode="xml"), lifespan="on") as url:
        httpx2.post(f"{url}/v1/chat/completions", json=body(tools=[function("calculator", **parameters)])).raise_for_status()
        monkeypatch.setattr(sys, "argv", [METRICS, url])
        runpy.run_path(str(EXAMPLES / METRICS), run_name="__main__")
    printed = ["scripted: 75% of 200 prompt tokens came from the cache", "calls repaired: 1", "  repaired number-format: 1"]
    assert capsys.readouterr().out.splitlines() == printed


def test_the_example_with_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = [call("days_between", first="2026-11-22", last="2026-12-24"), "It is 32 days."]
    with model_server(*said) as (url, _):
        monkeypatch.setattr(sys, "argv", [OWN_CLIENT, url])
        runpy.run_path(str(EXAMPLES / OWN_CLIENT), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "It is 32 days."


def test_a_client_of_its_own_does_not_take_a_cut_reply_for_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with model_server([chunk({"content": call("days_between", first="2026-11-22", last="2026-12-24")})]) as (url, _):
        monkeypatch.setattr(sys, "argv", [OWN_CLIENT, url])
        runpy.run_path(str(EXAMPLES / OWN_CLIENT), run_name="__main__")
    assert capsys.readouterr().out == "the server ended the reply without a finish reason\n"


def test_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [OWN_CLIENT])
    with pytest.raises(SystemExit, match=r"own_client_sync\.py URL \[MODEL\]"):
        runpy.run_path(str(EXAMPLES / OWN_CLIENT), run_name="__main__")


async def test_the_example_of_a_server() -> None:
    server = xmlcall.StdioServer(name="notes", command=sys.executable, args=(str(EXAMPLES / SERVER),))
    async with xmlcall.McpHost(server) as host:
        assert [tool.name for tool in await host.tools()] == ["add_note", "list_notes"]
        await host.call("add_note", {"text": "Buy milk"})
        assert "Buy milk" in str((await host.call("list_notes", {})).content)


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'xmlcall[ray]'")
@pytest.mark.timeout(180)
def test_the_example_on_ray(tmp_path: Path) -> None:
    on_loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "PORT": str(free_port())}
    with model_server("I see.", call("get_weather", city="Oslo")) as (url, _):
        command = [sys.executable, "-W", "ignore", str(EXAMPLES / ON_RAY), url]
        process = subprocess.Popen(
            command, env=environment(tmp_path, on_loopback), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            out, _ = process.communicate(timeout=150)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    assert out.splitlines()[0] == "calls get_weather {'city': 'Oslo'}"  # below it Ray tells of its own end
