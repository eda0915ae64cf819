"""`xmlcall login` and `xmlcall logout`: sign in to an MCP server, and forget its tokens."""

import argparse
import importlib.util
from pathlib import Path

from ..errors import UsageError
from ..hosts.server import HttpServer
from ..installed import missing_extra
from .exits import OK, complain, run_async
from .options import Command, add_mcp_option
from .plain import visible
from .servers import servers_given, sign_in

_SIGN_IN = (
    "Sign in to an MCP server that requires OAuth. The tokens are kept in the system's keyring, else in a file of your own."
)
_SIGN_IN_MORE = """examples:
  xmlcall login github --mcp servers.json
  xmlcall login --mcp https://mcp.example.com/mcp

If you already have settings such as a client id, put them into the file under "oauth" of the server (docs/configuration.md).
"""
_FORGET = "Delete the tokens of an MCP server, and the client that was registered for it."
_FORGET_MORE = """examples:
  xmlcall logout github --mcp servers.json

xmlcall does not notify the server. To withdraw your consent, use the server's own page.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "server", metavar="SERVER", nargs="?", help="the server's name in the file; optional if there is only one"
    )
    add_mcp_option(parser, "where the server is configured")


def _chosen_server(options: argparse.Namespace) -> HttpServer:
    if not options.mcp:
        raise UsageError("expected --mcp SERVERS, where the server is configured")
    servers = {server.name: server for server in servers_given(options.mcp) if isinstance(server, HttpServer)}
    if options.server is None and len(servers) == 1:
        return next(iter(servers.values()))
    if options.server not in servers:
        names = ", ".join(map(repr, servers)) or "none"
        raise UsageError(f'expected the name of a server with a "url" (there are: {names}), got {options.server!r:.80}')
    return servers[options.server]


async def _login(server: HttpServer) -> int:
    from ..hosts.mcp.oauth import kept_in_file

    was_asked = await sign_in(server)
    name = visible(server.name)
    complain(f"signed in to {name}" if was_asked else f"{name} can be used; no sign-in was needed")
    if was_asked and (path := await kept_in_file(server)):
        complain(_where(path))
    return OK


def _where(path: Path) -> str:
    place = f"the tokens are in {path}, which only you can read"
    if importlib.util.find_spec("keyring") is not None:
        return f"no keyring was found: {place}"
    advice = missing_extra("the system's keyring needs the package keyring", "login")
    return f"{advice} ({place})"


async def _logout(server: HttpServer) -> int:
    from ..hosts.mcp.oauth import SignIn, forget

    name = visible(server.name)
    was_kept = await forget(server, SignIn().tokens)
    complain(f"deleted the tokens of {name}" if was_kept else f"there are no tokens of {name}")
    return OK


COMMANDS = {
    "login": Command(_SIGN_IN, _SIGN_IN_MORE, _configure, lambda options: run_async(_login(_chosen_server(options)))),
    "logout": Command(_FORGET, _FORGET_MORE, _configure, lambda options: run_async(_logout(_chosen_server(options)))),
}
