"""What stands behind `--mcp`: a configuration file, a URL, a Python script or a command line.

Typing a command here allows its start, as in a shell. No shell reads it, so nothing in it is expanded. The person is asked about
calls of its tools as with any other server.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from ..errors import UsageError
from ..hosts.config import load_servers
from ..hosts.config_file import SUFFIXES
from ..hosts.server import HttpServer, ServerConfig, StdioServer
from .exits import complain

__all__ = ["FORMS", "servers_given"]

FORMS = 'a "mcpServers" JSON file, a URL, a Python script or a command line in quotes'
"""What can be given, for help texts."""

# Words before the one that tells which server it is.
_STARTERS = frozenset(
    {"python", "python3", "node", "npx", "bun", "bunx", "deno", "uv", "uvx", "pipx", "docker", "podman"}
    | {"run", "exec", "sh", "bash", "env"}
)
_SUFFIXES = frozenset({".py", ".js", ".mjs", ".ts", ".sh"})
_UNSPELLABLE = re.compile(r"[^A-Za-z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


def servers_given(arguments: Iterable[str]) -> tuple[ServerConfig, ...]:
    """Return the servers that the arguments of `--mcp` mean, in their order.

    Raises:
        UsageError: one of them means no server, or a file cannot be used.
    """
    groups = [_read(argument) for argument in arguments]
    taken = {server.name for servers, is_named in groups if is_named for server in servers}
    found: list[ServerConfig] = []
    for servers, is_named in groups:
        found += servers if is_named else [_under_free_name(server, taken) for server in servers]
    return tuple(found)


def _read(argument: str) -> tuple[list[ServerConfig], bool]:
    """Return the servers of one argument, and whether a file gives them their names."""
    if re.match("https?://", argument):
        return [_at_url(argument)], False
    if _is_configuration(argument):
        servers = list(load_servers(argument, tell=_tell).values())
        if not servers:
            raise UsageError(f"{argument}: expected at least one server that is not disabled, got none")
        return servers, True
    return [_of_command(argument)], False


@cache
def _tell(note: str) -> None:
    """Say once what of a file is not used, however often it is read."""
    complain(note)


def _is_configuration(argument: str) -> bool:
    """Tell a file from a command line that ends in the name of one."""
    path = Path(argument)
    if argument.lower().endswith(SUFFIXES):
        return path.is_file() or " " not in argument or shutil.which(argument.split()[0]) is None
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"/")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def _at_url(url: str) -> HttpServer:
    try:
        host = urlsplit(url).hostname if not _CONTROL.search(url) else None
    except ValueError:
        host = None
    if not host:
        raise UsageError("--mcp: expected a URL that starts with http:// or https:// and names a host, without white space")
    return HttpServer(name=_spelled(host), url=url)


def _of_command(argument: str) -> StdioServer:
    words = [argument] if Path(argument).is_file() else _words(argument)
    if words and words[0].endswith(".py") and Path(words[0]).is_file():
        words = [sys.executable, *words]
    if not words or shutil.which(words[0]) is None:
        got = f"{words[0][:80]!r} is {_what(words[0])}" if words else "got an empty text"
        raise UsageError(f"--mcp: expected {FORMS}; {got}: check the spelling, or install it")
    return StdioServer(name=_name_of(words), command=words[0], args=tuple(words[1:]))


def _what(word: str) -> str:
    if Path(word).is_file():
        return f"a file that cannot be run, and no configuration, which ends in {', '.join(SUFFIXES)}"
    return "neither a file nor a program that is found"


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise UsageError(f"--mcp: expected {FORMS}; cannot split {argument[:80]!r} into words: {error}") from error


def _name_of(words: list[str]) -> str:
    """Name a server after its script or program: the first word that is no starter and no option."""
    names = [PurePath(word).name for word in words if not word.startswith("-")]
    tells = [name for name in names if name not in _STARTERS and name != PurePath(sys.executable).name]
    name = PurePath((tells or names)[0].partition("@")[0])
    return _spelled(name.stem if name.suffix in _SUFFIXES else name.name)


def _spelled(name: str) -> str:
    return _UNSPELLABLE.sub("-", name).strip("-") or "server"


def _under_free_name(server: ServerConfig, taken: set[str]) -> ServerConfig:
    name, number = server.name, 2
    while name in taken:
        name, number = f"{server.name}-{number}", number + 1
    taken.add(name)
    return replace(server, name=name)
