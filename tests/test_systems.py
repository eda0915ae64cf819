"""What runs on each system: the commands as this system has them, and as they are on Windows, where much of POSIX is missing.

Nothing here needs POSIX itself, so that the file runs on Windows, too.
"""

import ast
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.message import SessionMessage
from servers.fake_openai import FakeOpenAI, reply
from servers.run_server import run_server

from xmlcall.cli.lines import LineReader
from xmlcall.hosts.mcp.transport import _message
from xmlcall.systems import assignment, split_words

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(300)  # programs that import everything, on a busy machine

AS_IT_IS = [sys.executable, "-m", "xmlcall"]
AS_ON_WINDOWS = [sys.executable, str(HERE / "like_windows.py")]
SECONDS = 100.0

PROGRAM = AS_IT_IS if sys.platform == "win32" else AS_ON_WINDOWS

CALL = """<function_calls>
<invoke name="calculator">
<parameter name="operation">add</parameter>
<parameter name="a">1</parameter>
<parameter name="b">2</parameter>
</invoke>
</function_calls>"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Ours, with a home of its own, and output in the code page of a Western Windows."""
    folders = {name: str(home) for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XMLCALL_MODELS")}
    found = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    ours = {"XMLCALL_RECORDS": str(home / "records"), "OLLAMA_HOST": "127.0.0.1:9", "PYTHONPATH": path}
    return found | folders | ours | {"PYTHONIOENCODING": "cp1252:strict"} | more


def run(*arguments: str, home: Path, typed: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; its output is in UTF-8 on Windows, whatever the code page."""
    done = subprocess.run(
        [*PROGRAM, *arguments], input=typed.encode(), capture_output=True, cwd=home, env=environment(home), timeout=SECONDS
    )
    said, told = (data.decode().replace("\r\n", "\n") for data in (done.stdout, done.stderr))
    told = told.removeprefix("Loading the model ...\n")  # on a machine that is slow just now
    return subprocess.CompletedProcess(done.args, done.returncode, said, told)


def configured(home: Path) -> str:
    """Write a configuration of the demo server, as this checkout has it."""
    server = {"command": sys.executable, "args": ["-m", "xmlcall.hosts.demo_server"], "env": {"PYTHONPATH": str(HERE.parent)}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": server}}), encoding="utf-8")
    return "mcp.json"


@contextlib.contextmanager
def model(*replies: str) -> Iterator[tuple[str, FakeOpenAI]]:
    """Serve a model that says these replies, one a request."""
    fake = FakeOpenAI(steps=_Replies(replies), first_token=reply("I"))  # type: ignore[arg-type]
    with run_server(fake.app) as url:
        yield f"{url}/v1", fake


class _Replies:
    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = iter(replies)

    def __iter__(self) -> Iterator[Any]:
        return iter(reply(next(self._replies)))


def test_the_commands_and_a_model_text_are_read(tmp_path: Path) -> None:
    helped = run("--help", home=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "answer one question, with tools" in helped.stdout
    parsed = run("parse", home=tmp_path, typed=f"东京: {CALL}")
    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert "calculator" in parsed.stdout
    assert "东京" in parsed.stdout


def test_the_tools_of_a_server_are_listed_and_one_is_called(tmp_path: Path) -> None:
    servers = configured(tmp_path)
    listed = run("tools", "--mcp", servers, home=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "calculator" in listed.stdout
    with model(CALL, "It is 3.") as (url, _):
        done = run(
            "run", "--mcp", servers, "--allow", "*", "--model", url, "--audit", "calls.jsonl", "What is 1 + 2?", home=tmp_path
        )
    assert (done.returncode, done.stdout) == (0, "It is 3.\n"), done.stderr
    assert done.stderr == 'call     demo.calculator(operation="add", a=1, b=2)\nresult   3\n'
    audited = [json.loads(line)["event"] for line in (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert audited == ["starts", "ended"]


@pytest.mark.full  # several programs
def test_a_chat_is_kept_and_goes_on(tmp_path: Path) -> None:
    servers = configured(tmp_path)
    with model(CALL, "It is 3.", "Yes.") as (url, fake):
        done = run(
            "chat", "--mcp", servers, "--allow", "*", "--model", url, home=tmp_path, typed="What is 1 + 2?\nReally?\n/quit\n"
        )
        assert (done.returncode, done.stdout) == (0, "It is 3.\nYes.\n"), done.stderr
        listed = run("log", "list", "--json", home=tmp_path)
        assert listed.returncode == 0, listed.stderr
        (kept,) = json.loads(listed.stdout)
        shown = run("log", "show", kept["id"], home=tmp_path)
        assert "calculator" in shown.stdout
        assert "Really?" in shown.stdout
    with model("Still.") as (url, fake):
        done = run("chat", "--mcp", servers, "--resume", kept["id"], "--model", url, home=tmp_path, typed="And now?")
        assert (done.returncode, "Still." in done.stdout) == (0, True), done.stderr
    assert "Really?" in json.dumps(fake.bodies)
    deleted = run("log", "delete", kept["id"], home=tmp_path)
    assert deleted.returncode == 0, deleted.stderr


@pytest.mark.full  # several programs
def test_the_proxy_answers_and_ends(tmp_path: Path) -> None:
    """On Windows itself a program cannot send another one Ctrl-C alone: there it is ended."""
    tools = [{"type": "function", "function": {"name": "calculator"}}]
    body = {"model": "any", "tools": tools, "messages": [{"role": "user", "content": "1 + 2?"}]}
    with model(CALL) as (url, _), (tmp_path / "errors").open("w") as errors:
        command = [*PROGRAM, "serve", "--port", "0", "--ask", "mode=xml", "--model", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment(tmp_path), cwd=tmp_path) as proxy:
            assert proxy.stdout is not None
            killing = threading.Timer(SECONDS, proxy.kill)
            killing.start()
            try:
                address = proxy.stdout.readline().decode().strip()
                assert address, (tmp_path / "errors").read_text()
                answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=SECONDS).json()
                (called,) = answer["choices"][0]["message"]["tool_calls"]
                assert json.loads(called["function"]["arguments"])["operation"] == "add"
                proxy.terminate() if sys.platform == "win32" else proxy.send_signal(signal.SIGINT)
                code = proxy.wait(SECONDS)
            finally:
                killing.cancel()
                proxy.kill()
    assert code == 0 or sys.platform == "win32", (tmp_path / "errors").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="it is Windows")
@pytest.mark.parametrize("name", ["fcntl", "termios", "resource", "pwd"])
def test_what_is_hidden_is_hidden(name: str) -> None:
    code = "import like_windows; like_windows.hide(); exec('import os, sys, {}', {{'__name__': 'xmlcall.x'}})"
    done = subprocess.run([sys.executable, "-c", code.format(name)], cwd=HERE, capture_output=True, text=True)
    assert f"No module named '{name}' on Windows" in done.stderr


# -- one place for what a system lacks ------------------------------------------------------------------------------------

LACKED = re.compile(r"(curses|fcntl|grp|msvcrt|posix|pty|pwd|readline|resource|syslog|termios|tty|winreg)\b")


def test_modules_that_a_system_lacks_are_imported_in_one_place() -> None:
    package = HERE.parent / "xmlcall"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import) and any(LACKED.fullmatch(each.name) for each in node.names)
    }
    assert found == {"systems.py"}


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_command_lines_of_posix() -> None:
    assert split_words(r"""uvx 'a b' c\ d "e" """) == ["uvx", "a b", "c d", "e"]
    assert (assignment("A", "it's"), assignment("A", None)) == ("""export A='it'"'"'s'""", "unset A")


WINDOWS = r"""
import like_windows
like_windows.hide()
from xmlcall.systems import assignment, free_byte, hold_byte, is_closed, open_files, split_words, user_id
assert split_words(r'uvx "C:\Program Files\x.exe" C:\Users\a.py --name="a b" # 1') == [
    "uvx", r"C:\Program Files\x.exe", r"C:\Users\a.py", "--name=a b", "#", "1"]
assert assignment("A", "it's") == "$env:A = 'it''s'" and assignment("A", None) == "Remove-Item Env:A"
assert (user_id(), open_files(), is_closed(0o100666)) == (0, None, True)
import os, subprocess, sys, tempfile
with tempfile.NamedTemporaryFile() as file:
    hold_byte(file.fileno(), 0xFFFF_FFFF)
    other = "import like_windows; like_windows.hide(); from xmlcall.systems import hold_byte; import sys\n"
    other += "file = open(sys.argv[1], 'r+b'); hold_byte(file.fileno(), int(sys.argv[2], 16))"
    tried = [sys.executable, "-c", other, file.name]
    assert b"BlockingIOError" in subprocess.run([*tried, "FFFFFFFF"], capture_output=True).stderr
    assert subprocess.run([*tried, "FFFFFFF0"]).returncode == 0
    free_byte(file.fileno(), 0xFFFF_FFFF)
    assert subprocess.run([*tried, "FFFFFFFF"]).returncode == 0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="on another system")
def test_the_twins_of_windows(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WINDOWS], cwd=HERE, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_lines_are_read_by_a_thread_where_nothing_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    reading, writing = os.pipe()
    try:
        lines = LineReader(reading)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lines.line(), 0.05)
        os.write(writing, "später\r\nund".encode())  # by the thread that was left
        assert await lines.line() == "später"
        os.close(writing)
        assert [await lines.line(), await lines.line()] == ["und", None]
    finally:
        os.close(reading)


def test_a_line_of_a_server_may_end_as_lines_of_windows_do() -> None:
    assert isinstance(_message(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\r'), SessionMessage)
