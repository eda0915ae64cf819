"""The command line as a process: with pipes (`run_cli`), and on a terminal of its own (`Terminal`)."""

import atexit
import codecs
import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte
from cli_process import begin
from servers.fake_openai import FakeOpenAI, Step, reply
from servers.run_server import Stage, run_server
from servers.started import ProcessFiles

from xmlcall.cli import main

__all__ = [
    "HOSTILE",
    "Terminal",
    "call",
    "configured",
    "environment",
    "lent_server",
    "model_server",
    "run_cli",
    "run_here",
]

HOSTILE = str(Path(__file__).parent / "servers" / "hostile.py")
SECONDS = 20.0

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[ -/]*[0-~]")


def configured(folder: Path, mode: str = "good", *, name: str = "files", **fields: Any) -> str:
    """Write a configuration of one server that behaves in this mode, and notes in the folder what it does."""
    server = {"command": sys.executable, "args": [HOSTILE, mode], "env": ProcessFiles(folder).env, **fields}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {name: server}}))
    return str(folder / "mcp.json")


def environment(home: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with no home, no models and no Ollama of this machine in it."""
    nobody = {"OLLAMA_HOST": "127.0.0.1:9", "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    nobody["XMLCALL_RECORDS"] = str(home / "records")
    folders = {name: str(home) for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XMLCALL_MODELS")}
    return {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | nobody | folders | dict(env or {})


def run_cli(
    *arguments: str, home: Path, stdin: str | bytes = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, without a terminal."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, _typed(data) as reading:
        streams = (reading, out.fileno(), errors.fileno())
        process = begin(arguments, streams, home=home, env=environment(home, env))
        try:
            code = process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
        said, told = (file.read().decode() for file in (out, errors) if not file.seek(0))
    told = told.removeprefix("Loading the model ...\n")  # on a machine that is slow just now
    return subprocess.CompletedProcess(list(arguments), code, said, told)


@contextlib.contextmanager
def _typed(data: bytes) -> Iterator[int]:
    """Give the reading side of a pipe into which data goes."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=_write, args=(writing, data))
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)  # who still writes gets an error
        thread.join()


def _write(writing: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(writing, "wb") as pipe:  # not every command reads all
        pipe.write(data)


def run_here(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process: for what needs none of its own, whose start takes longer than most commands."""
    given = list(map(str, arguments))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(given)
    return subprocess.CompletedProcess(given, code, out.getvalue(), errors.getvalue())


class _Screen(pyte.Screen):
    """A screen that answers where the cursor is, as prompt_toolkit asks; without that it shows no line below the prompt."""

    def __init__(self, rows: int, columns: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, rows)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        """Type for the terminal."""
        self._answer(data)


class Terminal:
    """A command on a terminal; `with` kills it at the end if it still runs."""

    def __init__(
        self, *arguments: str, home: Path, env: Mapping[str, str] | None = None, size: tuple[int, int] = (40, 120)
    ) -> None:
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, size)
        self._shown = _Screen(*size, self.send)
        self._emulator = pyte.Stream(self._shown)
        env = {"PROMPT_TOOLKIT_NO_CPR": "0", "LINES": str(size[0]), "COLUMNS": str(size[1])} | dict(env or {})
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = ""
        self.process = begin(arguments, (slave, slave, slave), home=home, env=environment(home, env), own_terminal=True)
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def expect(self, text: str) -> str:
        """Read until a text is on the screen; gives what came before it."""
        deadline = time.monotonic() + SECONDS
        while text not in self._unread:
            if time.monotonic() > deadline or not self._more(deadline):
                raise AssertionError(f"expected {text!r}, got {self._unread!r} ")
        before, _, self._unread = self._unread.partition(text)
        return before

    def screen(self) -> list[str]:
        """Give what stands on the screen, from the top to the last line with something in it."""
        return "\n".join(line.rstrip() for line in self._shown.display).rstrip("\n").split("\n")

    def until(self, *texts: str) -> list[str]:
        """Read until texts stand on the screen; gives all of it."""
        deadline = time.monotonic() + SECONDS
        while not all(any(text in line for line in self.screen()) for text in texts):
            if time.monotonic() > deadline or not self._more(deadline):
                raise AssertionError("\n".join([f"expected {texts!r} on this screen:", *self.screen()]))
        return self.screen()

    def typed(self, text: str, *texts: str) -> list[str]:
        """Type, and read until texts stand on the screen; gives all of it."""
        self.send(text)
        return self.until(*texts)

    def send(self, text: str, *expected: str) -> None:
        """Type, and read until the texts that are expected, one after the other."""
        os.write(self._master, text.encode())
        for each in expected:
            self.expect(each)

    def end(self) -> int:
        """Read to the end; gives the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._more(deadline):
            pass
        return self.process.wait(SECONDS)

    def rest(self) -> str:
        """Give what was not expected yet."""
        return self._unread

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self.process.send_signal(number)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        data = b""
        if ready:
            with contextlib.suppress(OSError):  # EIO: nobody has the other side open any more
                data = os.read(self._master, 1 << 16)
        text = self._decoder.decode(data)
        self._emulator.feed(text)
        self._unread += text
        self._unread = _ESCAPE.sub("", self._unread).replace("\r", "")
        return bool(data)


class _Replies:
    """Steps that are another reply each time they are played."""

    def __init__(self, replies: Sequence[Sequence[Step]]) -> None:
        self._replies = iter(replies)

    def __iter__(self) -> Iterator[Step]:
        return iter(next(self._replies))


@contextlib.contextmanager
def model_server(*replies: str | Sequence[Step]) -> Iterator[tuple[str, FakeOpenAI]]:
    """Serve a model that says these replies, one a request; gives its URL and the server's state.

    It tells no probabilities, so `call_threshold=auto` decides nothing.
    """
    steps: Any = _Replies([reply(said) if isinstance(said, str) else said for said in replies])
    fake = FakeOpenAI(steps=steps, first_token=reply("I"))
    with lent_server(fake.app) as url:
        yield f"{url}/v1", fake


_idle: list[tuple[str, Stage]] = []
_servers = contextlib.ExitStack()
atexit.register(_servers.close)


@contextlib.contextmanager
def lent_server(app: Any) -> Iterator[str]:
    """Serve an app on a server that others had before and have after; gives its URL."""
    if not _idle:
        stage = Stage()
        _idle.append((_servers.enter_context(run_server(stage)), stage))
    url, stage = _idle.pop()
    stage.app = app
    try:
        yield url
    finally:
        _idle.append((url, stage))


def call(name: str, **arguments: str) -> str:
    """Write a call as a model should."""
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
    return f'<function_calls>\n<invoke name="{name}">\n{parameters}</invoke>\n</function_calls>'
