"""What goes wrong is one message that says what to do, an exit code, no traceback and no process left behind."""

import os
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_harness import call, configured, model_server, run_cli
from servers.run_server import free_port
from servers.started import ProcessFiles, is_alive


def check(home: Path, arguments: list[str], code: int, message: str, *, stdin: str = "", **env: str) -> None:
    """Run a command that has to fail in this way."""
    done = run_cli(*arguments, home=home, stdin=stdin, env=env)
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if "still starting" not in line]  # on a busy machine a server may be
    assert len(told) == 1, done.stderr
    assert re.fullmatch(f"xmlcall: {message}", told[0]), told[0]
    assert done.returncode == code
    assert not any(map(is_alive, ProcessFiles(home).pids()))


ROWS = tomllib.loads(Path(__file__).with_name("used_wrongly.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"), ROWS["usage"], ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_used_wrongly(arguments: list[str], message: str, tmp_path: Path) -> None:
    check(tmp_path, arguments, 2, message)


TOOL_LISTS = [
    *ROWS["tools"],
    *((text, "expected a JSON list of tools in '-', cannot read it: .*") for text in ("[" * 100_000, "[" + "9" * 5000 + "]")),
]


@pytest.mark.parametrize(("text", "message"), TOOL_LISTS, ids=lambda value: value[:30])
def test_tool_lists_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    check(tmp_path, ["prompt", "--tools", "-"], 2, message, stdin=text)


def test_arguments_that_are_not_utf_8(tmp_path: Path) -> None:
    check(tmp_path, ["run", os.fsdecode(b"caf\xe9")], 2, "expected a question in UTF-8, got bytes that are not")


# -- model servers -----------------------------------------------------------------------------------------------------


def test_nobody_listens(tmp_path: Path) -> None:
    server = ["--mcp", configured(tmp_path, "good")]
    check(
        tmp_path,
        ["run", *server, "--model", "http://127.0.0.1:9/v1", "Hi"],
        1,
        "cannot connect to http://127.0.0.1:9 .*: start one, .*",
    )


def test_ollama_does_not_run(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    server = ["--mcp", configured(tmp_path, "good")]
    message = f"cannot connect to Ollama at {address} \\(.*\\): start it with `ollama serve`, .*"
    check(tmp_path, ["run", *server, "--model", "ollama:gemma3", "Hi"], 1, message, OLLAMA_HOST=address)


MISSING = (404, {"error": {"message": "The model `other` does not exist."}})
TOO_LONG = "request (5031 tokens) exceeds the available context size (2048 tokens)"
OVERFLOW = (
    400,
    {"error": {"code": 400, "message": TOO_LONG, "type": "exceed_context_size_error", "n_prompt_tokens": 5031, "n_ctx": 2048}},
)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (MISSING, ".*asked for the model 'other', the server has: tiny"),
        (
            OVERFLOW,
            r"the prompt is too long for the model, .* about 5,031 tokens, .* context holds 2,048, .*includeTools.* -c N.*",
        ),
    ],
    ids=["no such model", "context too small"],
)
def test_the_model_server_refuses(refusal: tuple[int, Any], message: str, tmp_path: Path) -> None:
    with model_server() as (url, fake):
        fake.refusal = refusal
        check(tmp_path, ["run", "--mcp", configured(tmp_path, "good"), "--model", f"{url}#other", "Hi"], 1, message)


# -- MCP servers and their configuration -------------------------------------------------------------------------------


def written(home: Path, text: str) -> str:
    (home / "mcp.json").write_text(text)
    return "mcp.json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {', "mcp.json: not JSON: .* at line 1, column .*"),
        ("[]", "mcp.json: expected an object .*, got a list"),
        ('{"mcpServers": {}}', "mcp.json: expected at least one server that is not disabled, got none"),
        ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', "mcp.json: expected at least one server .*"),
        (
            '{"mcpServers": {"a": {"command": "${NOT_SET_ANYWHERE}"}}}',
            "mcp.json: a.command: the variable 'NOT_SET_ANYWHERE' is not set; .*",
        ),
    ],
)
def test_configurations_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    check(tmp_path, ["tools", "--mcp", written(tmp_path, text)], 2, message)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    path = written(tmp_path, '{"mcpServers": {"files": {"command": "no-such-command-\\u001b[31m"}}}')
    check(
        tmp_path,
        ["tools", "--mcp", path],
        1,
        "files: the command 'no-such-command-.*' was not found; install it or correct .*",
    )


@pytest.mark.parametrize(
    ("mode", "timeout", "message"),
    [
        pytest.param(
            "garbage",
            "1",
            "files: no MCP handshake with .* within 1 s; start it by hand to see why."
            " It printed text that is not MCP on its standard output: 'Starting up'.*",
            marks=pytest.mark.full,  # seconds pass until it is ended
        ),
        ("exit", "30", r"files: .* ended before the MCP handshake was complete\. .* Traceback: no API key \| set API_KEY"),
        ("hang", "1", "files: no MCP handshake with .* within 1 s.*"),
        (
            "many",
            "30",
            'files: it lists more than the 1000 tools that are allowed; choose some by "includeTools" in its configuration',
        ),
    ],
)
def test_servers_that_do_not_serve(mode: str, timeout: str, message: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    check(tmp_path, ["tools", "--timeout", timeout, "--mcp", configured(tmp_path, mode)], 1, message)
    assert ProcessFiles(tmp_path).pids()
    assert time.monotonic() - begun < 25  # not the usual 30 s


def test_one_broken_tool_does_not_stop_a_run(tmp_path: Path) -> None:
    with model_server(call("echo", text="hi"), "Done.") as (url, _):
        done = run_cli("run", "--yes", "--mcp", configured(tmp_path, "broken_schema"), "--model", url, "Hi", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    notices = [line for line in done.stderr.splitlines() if line.startswith("xmlcall: files: The tool ")]
    assert len(notices) == 3
    assert 'result   {"text": "hi"}' in done.stderr
