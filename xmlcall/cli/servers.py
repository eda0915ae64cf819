"""The MCP servers of a command: those of `--mcp`, else the built-in demo server.

`--mcp` takes a configuration file, a URL, a Python script or a command line. Typing a command there allows its start, as in a
shell. No shell reads it, so nothing in it is expanded. The person is asked about calls of its tools as with any other server.

Signing in to a server over HTTP: the whole address is shown, and opened only once the person agrees. A session asks before it
opens its servers, and later only while a call waits for it: a question must not appear while the person is typing a line.
"""

import argparse
import asyncio
import re
import shlex
import shutil
import sys
import webbrowser
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath
from typing import Literal
from urllib.parse import urlsplit

from ..errors import ToolHostError, UsageError
from ..hosts.base import Host, Served
from ..hosts.config import load_servers
from ..hosts.config_file import SUFFIXES
from ..hosts.mcp.server_requests import NO_FEATURES, ClientFeatures
from ..hosts.router import Router
from ..hosts.server import HttpServer, ServerConfig, StdioServer
from ..systems import split_words
from .exits import complain
from .inputs import read_bytes
from .lines import NO, YES, answered, is_interactive
from .plain import visible

_CONNECT_SECONDS = 30.0
_FORMS = 'a "mcpServers" JSON file, a URL, a Python script or a command line in quotes'
# Words before the one that identifies the server.
_STARTERS = frozenset(
    {"python", "python3", "node", "npx", "bun", "bunx", "deno", "uv", "uvx", "pipx", "docker", "podman"}
    | {"run", "exec", "sh", "bash", "env"}
)
_SUFFIXES = frozenset({".py", ".js", ".mjs", ".ts", ".sh"})
_UNSPELLABLE = re.compile(r"[^A-Za-z0-9_]+")
# FastMCP, or a low-level server; code for both versions has such an import further inside.
_FOR_SDK_1 = re.compile(rb"^(?:from|import) mcp\.server\.fastmcp\b|^@\w+\.(?:list_tools|call_tool)\(", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_SIGN_IN_SECONDS = 600.0  # including the time that the person takes
_tell_once = cache(complain)  # which parts of a file are not used is said once, however often the file is read


def servers_of(options: argparse.Namespace) -> tuple[ServerConfig, ...]:
    """Return the configured servers, or the demo server where none are configured."""
    if getattr(options, "no_tools", False):
        if options.mcp:
            raise UsageError("--no-tools leaves out every server, so it cannot be combined with --mcp")
        return ()
    if not options.mcp:
        # -P: no file of the current folder takes the place of a module.
        return (StdioServer(name="demo", command=sys.executable, args=("-P", "-m", "xmlcall.hosts.demo_server")),)
    return servers_given(options.mcp)


def hosts_of(servers: Iterable[ServerConfig], options: argparse.Namespace, features: ClientFeatures = NO_FEATURES) -> list[Host]:
    """Make the hosts; opening them starts the servers, which may ask for `features`."""
    from ..hosts.mcp.host import McpHost  # half a second of imports

    return [McpHost(server, connect_timeout=options.timeout or _CONNECT_SECONDS, features=features) for server in servers]


def described(server: ServerConfig) -> str:
    """Describe what starting a server runs, without the values of its environment, which may be secrets."""
    if not isinstance(server, StdioServer):
        return f"connecting to {visible(server.name)}: {visible(server.address)}"
    environment = "".join(f"{shlex.quote(name)}=*** " for name in server.env)
    return f"starting {visible(server.name)}: {visible(environment + shlex.join(server.command_line))}"


@asynccontextmanager
async def open_router(options: argparse.Namespace) -> AsyncIterator[Router]:
    """Open the servers for a command that only lists what they offer, and say what they left out."""
    servers = servers_of(options)
    if options.mcp and is_interactive():
        for server in servers:
            complain(described(server))
    await sign_in_where_wanted(servers)
    async with Router(hosts_of(servers, options), patience=None) as router:
        for notice in router.news():
            complain(notice)
        yield router


def chosen_server(router: Router, kind: Literal["resources", "prompts"], name: str | None) -> Served:
    servers = router.having(kind)
    if name is None and len(servers) == 1:
        return next(iter(servers.values()))
    if name in servers:
        return servers[name]
    known = ", ".join(map(visible, servers)) or "none"
    raise UsageError(f"expected --server with the name of a server that has {kind}: {known}")


def servers_given(arguments: Iterable[str]) -> tuple[ServerConfig, ...]:
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
        servers = list(load_servers(argument, tell=_tell_once).values())
        if not servers:
            raise UsageError(f"{argument}: expected at least one server that is not disabled, got none")
        return servers, True
    return [_of_command(argument)], False


def _is_configuration(argument: str) -> bool:
    """Return whether an argument is a configuration file, and not a command line that ends in the name of one."""
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
        words = [_python_for(words), *words]
    if not words or shutil.which(words[0]) is None:
        got = f"{words[0][:80]!r} is {_what(words[0])}" if words else "got an empty text"
        raise UsageError(f"--mcp: expected {_FORMS}; {got}: check the spelling, or install it")
    return StdioServer(name=_name_of(words), command=words[0], args=tuple(words[1:]))


def _python_for(words: list[str]) -> str:
    """Return the Python for a script: ours, or for version 1 of the MCP SDK the one in the script's virtual environment."""
    if not _FOR_SDK_1.search(read_bytes(words[0], "a Python script")):
        return sys.executable
    folder = Path(words[0]).absolute().parent
    for venv in (each / name for each in (folder, *folder.parents) for name in (".venv", "venv")):
        if any(venv.glob("[Ll]ib/**/site-packages/mcp/server/fastmcp/__init__.py")):
            return str(venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    command = shlex.quote(f'uv run --with "mcp<2" {shlex.join(words)}')
    raise UsageError(f"{words[0]} needs version 1 of the MCP SDK, and xmlcall has version 2: run it with --mcp {command}")


def _what(word: str) -> str:
    if Path(word).is_file():
        return f"a file that cannot be run, and no configuration, which ends in {', '.join(SUFFIXES)}"
    return "neither a file nor a program that is found"


def _words(argument: str) -> list[str]:
    try:
        return split_words(argument)
    except ValueError as error:
        raise UsageError(f"--mcp: expected {_FORMS}; cannot split {argument[:80]!r} into words: {error}") from error


def _name_of(words: list[str]) -> str:
    """Name a server after its script or program: the first word that is neither a starter nor an option."""
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


async def sign_in_where_wanted(servers: Iterable[ServerConfig]) -> None:
    """Let the person sign in to those servers that want it; does nothing without a terminal."""
    over_http = [server for server in servers if isinstance(server, HttpServer)]
    if not over_http or not is_interactive():
        return
    from ..hosts.mcp.oauth import wants_sign_in  # half a second of imports

    wanted = await asyncio.gather(*(wants_sign_in(server) for server in over_http))
    for server in (server for server, wants in zip(over_http, wanted, strict=True) if wants):
        try:
            await sign_in(server)
        except ToolHostError as error:
            complain(str(error))  # the session continues with the other servers


async def sign_in(server: HttpServer) -> bool:
    if not is_interactive():
        raise UsageError("signing in needs a terminal, because a person has to agree")
    from ..hosts.mcp.host import McpHost
    from ..hosts.mcp.oauth import SignIn

    asked: list[str] = []

    async def ask(name: str, url: str) -> bool:
        asked.append(name)
        return await ask_to_sign_in(name, url)

    async with McpHost(
        replace(server, timeout=_SIGN_IN_SECONDS), sign_in=SignIn(ask=ask), connect_timeout=_SIGN_IN_SECONDS
    ) as host:
        await host.tools()
    return bool(asked)


async def ask_to_sign_in(name: str, url: str) -> bool:
    """Show an address and open it if the person agrees; they may open it themselves as well, in any browser on this machine."""
    print(f"\n{visible(name)} wants you to sign in, at this address:\n\n  {visible(url)}\n", file=sys.stderr)
    question = "Open it in your browser? [y]es / [n]o, stop / Enter: I open it myself: "
    answer = await answered(
        lambda: print(question, end="", file=sys.stderr, flush=True),
        {**dict.fromkeys(YES, "open"), **dict.fromkeys(NO, "stop"), "": "wait"},
    )
    if answer not in ("open", "wait"):
        return False
    if answer == "open" and not await asyncio.to_thread(webbrowser.open, url):
        print("No browser was found; open the address yourself.", file=sys.stderr)
    print("Waiting until you have signed in there ...", file=sys.stderr)
    return True
