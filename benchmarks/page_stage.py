"""What it takes to look at the page of xmlcall: a model that says what a script says, the program, and a browser.

The model server is a thread of this process, so that a script can stop it in the middle of a reply until a test lets it go on
(`Gate`); `xmlcall` is a process of its own with its own folder of records; the browser is the system's Chromium. Nothing needs
a network, and nothing of this machine's user is read: not the home, not the records, not the rules.
"""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # run as a program, this folder alone is on the path

from servers.fake_openai import DONE, FakeOpenAI, Step, chunk, final, reply
from servers.run_server import run_server

__all__ = [
    "DEMO",
    "Gate",
    "Program",
    "ScriptedModel",
    "call",
    "calls",
    "chromium",
    "launched",
    "parameter",
    "program",
    "scripted_model",
    "why_no_browser",
]

ROOT: Final = Path(__file__).resolve().parents[1]
SECONDS: Final = 30.0  # for whatever is waited for
START_SECONDS: Final = 120.0  # for a program and its servers to start, where several tests share a core
PIECE: Final = 7  # characters of a token
DEMO: Final = {"demo": {"command": sys.executable, "args": ["-m", "xmlcall.hosts.demo_server"]}}
_ADDRESS = re.compile(r"http://[^\s]+/ui/\?token=[^\s]+")


# -- the model ---------------------------------------------------------------------------------------------------------


def parameter(name: str, value: str) -> str:
    """Write a parameter as a model should."""
    return f'<parameter name="{name}">{value}</parameter>\n'


def calls(*written: tuple[str, Mapping[str, str]]) -> str:
    """Write a block of calls as a model should."""
    invokes = "".join(
        f'<invoke name="{name}">\n{"".join(parameter(*each) for each in arguments.items())}</invoke>\n'
        for name, arguments in written
    )
    return f"<function_calls>\n{invokes}</function_calls>"


def call(name: str, **arguments: str) -> str:
    """Write one call as a model should."""
    return calls((name, arguments))


class Gate:
    """A place in a reply where the model stops until it is opened."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def open(self) -> None:
        """Let the model go on."""
        self._opened.set()

    def wait_reached(self) -> None:
        """Wait until the model stands here."""
        assert self._reached.wait(SECONDS), "the model did not come to this place of its reply"

    def steps(self) -> Iterator[Step]:
        """Wait, in small pauses of the model server's loop."""
        self._reached.set()
        end = time.monotonic() + SECONDS
        while not self._opened.is_set() and time.monotonic() < end:
            yield 0.01


Part = str | float | Gate | tuple[int, int]
"""Of a reply: text, a pause in seconds before each piece of the texts after it, a place to stop at, or how many tokens of the
prompt are read, and of how many."""


class ScriptedModel:
    """The script of a running model server, and what it was asked."""

    def __init__(self, name: str = "tiny") -> None:
        self._replies: queue.SimpleQueue[Sequence[Part]] = queue.SimpleQueue()
        self.fake = FakeOpenAI(steps=_Said(self), first_token=reply("I"), models=(name,))
        self.url = ""

    def says(self, *replies: str | Sequence[Part]) -> None:
        """Put replies after those that are still to come; each is given once, to whoever asks next."""
        for each in replies:
            self._replies.put([each] if isinstance(each, str) else each)

    def asked(self, number: int = -1) -> str:
        """Give all that the model was sent in a request, as one text."""
        return "\n".join(str(message["content"]) for message in self.fake.bodies[number]["messages"])

    @property
    def left(self) -> int:
        """How many replies nobody has asked for yet."""
        return self._replies.qsize()

    def forget(self) -> None:
        """Take back the replies that nobody asked for."""
        while self.left:
            self._replies.get_nowait()

    def next_steps(self) -> Iterator[Step]:
        """Play the next reply."""
        try:
            parts = self._replies.get_nowait()
        except queue.Empty:
            parts = ["The script is over."]
        sent, pause = 0, 0.0
        yield chunk({"role": "assistant", "content": None})
        for part in parts:
            if isinstance(part, float):
                pause = part
            elif isinstance(part, Gate):
                yield from part.steps()
            elif isinstance(part, tuple):
                yield chunk({}, prompt_progress={"processed": part[0], "total": part[1]})
            else:
                size = max(PIECE, len(part) // 200)  # a megabyte comes in pieces of a server that is fast
                for start in range(0, len(part), size):
                    yield chunk({"content": part[start : start + size]})
                    sent += 1
                    if pause:
                        yield pause
        yield chunk({}, "stop")
        told = {"prompt_tokens": 412, "completion_tokens": sent, "prompt_tokens_details": {"cached_tokens": 380}}
        yield final(**told, total_tokens=412 + sent)
        yield DONE


class _Said(Sequence[Step]):
    """Steps that are another reply each time they are played."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    def __iter__(self) -> Iterator[Step]:
        return self._model.next_steps()

    def __len__(self) -> int:
        return self._model.left

    def __getitem__(self, place: Any) -> Any:
        raise IndexError(place)


@contextlib.contextmanager
def scripted_model(name: str = "tiny") -> Iterator[ScriptedModel]:
    """Serve a model that has a script."""
    model = ScriptedModel(name)
    with run_server(model.fake.app) as url:
        model.url = f"{url}/v1"
        yield model


# -- the program -------------------------------------------------------------------------------------------------------


class Program:
    """A running `xmlcall ui` or `xmlcall serve --ui`.

    Args:
        arguments: of the command line, from the command's name on.
        home: its home, working directory and records.
        address: of the page, with the token.
    """

    def __init__(self, arguments: Sequence[str], home: Path) -> None:
        self._arguments, self.home = arguments, home
        self.process: subprocess.Popen[bytes]
        self.page = ""
        self._log = home / "program.log"
        self._start()

    def _start(self) -> None:
        with self._log.open("w") as log:
            argv = [sys.executable, "-m", "xmlcall", *self._arguments]
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            self.process = subprocess.Popen(argv, **pipes, env=environment(self.home), cwd=self.home)
        end = time.monotonic() + START_SECONDS
        while not (found := _ADDRESS.search(self.log)):
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise RuntimeError(f"no address of the page:\n{self.log}")
            time.sleep(0.02)
        self.page = found[0]

    @property
    def log(self) -> str:
        """All that it wrote to its two outputs."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def origin(self) -> str:
        """Scheme, address and port."""
        parts = urlsplit(self.page)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def token(self) -> str:
        """What the page's address carries."""
        return parse_qs(urlsplit(self.page).query)["token"][0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, at once if it does not go."""
        self.process.send_signal(number)
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Start it again on the port that it had, as a person would from the shell's history."""
        port = str(urlsplit(self.page).port)
        place = list(self._arguments).index("--port") + 1
        self._arguments = [*self._arguments[:place], port, *self._arguments[place + 1 :]]
        self._start()


@contextlib.contextmanager
def program(command: str, *arguments: str, home: Path, servers: Mapping[str, Any] | None = None) -> Iterator[Program]:
    """Run a command that serves the page, on a free port.

    Args:
        command: `ui` or `serve`.
        arguments: the further ones.
        home: a folder of its own.
        servers: entries of `mcpServers`; None for no --mcp.
    """
    home.mkdir(parents=True, exist_ok=True)
    told = [command, "--port", "0", *(["--no-browser"] if command == "ui" else ["--ui"]), *arguments]
    if servers is not None:
        file = home / "servers.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        told += ["--mcp", str(file)]
    running = Program(told, home)
    try:
        yield running
    finally:
        running.end(signal.SIGKILL)


def environment(home: Path) -> dict[str, str]:
    folders = ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XMLCALL_MODELS", "XMLCALL_PROFILES")
    ours = {
        "XMLCALL_RECORDS": str(home / "records"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "PYTHONUNBUFFERED": "1",
    }
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    return dict(os.environ) | dict.fromkeys(folders, str(home)) | {"OLLAMA_HOST": "127.0.0.1:9", "TERM": "dumb"} | ours | paths


# -- the browser -------------------------------------------------------------------------------------------------------


def chromium() -> str | None:
    """Find the system's Chromium."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def why_no_browser() -> str:
    """Say what is missing for a browser; "" for nothing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if chromium() else "there is no chromium on the path"


@contextlib.contextmanager
def launched(*options: str) -> Iterator[Any]:
    """Start Chromium; gives Playwright's browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # No sandbox: containers that tests run in do not let programs make one. What is shown is scripted here.
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox", *options])
        try:
            yield browser
        finally:
            browser.close()
