"""Signing in to servers over HTTP from a terminal: the whole address is shown, and opened only once the person agrees.

A session asks before it opens its servers, and later only while a call waits for it: a question must not come up under a line
that is being typed.
"""

import asyncio
import sys
import webbrowser
from collections.abc import Iterable
from dataclasses import replace

from ..errors import ToolHostError, UsageError
from ..hosts.server import HttpServer, ServerConfig
from .exits import complain
from .lines import LineReader, is_interactive
from .plain import visible

__all__ = ["ask_to_sign_in", "sign_in", "sign_in_where_wanted"]

_SECONDS = 600.0
"""For all of a sign-in, with the time that the person takes."""

_OPEN, _BY_HAND, _STOP = ("y", "yes", "是"), ("",), ("n", "no", "否")


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
            complain(str(error))  # the session goes on with the other servers


async def sign_in(server: HttpServer) -> bool:
    """Sign in to a server; gives whether a person was asked."""
    if not is_interactive():
        raise UsageError("signing in needs a terminal: a person has to agree")
    from ..hosts.mcp.host import McpHost
    from ..hosts.mcp.oauth import SignIn

    asked: list[str] = []

    async def ask(name: str, url: str) -> bool:
        asked.append(name)
        return await ask_to_sign_in(name, url)

    async with McpHost(replace(server, timeout=_SECONDS), sign_in=SignIn(ask=ask), connect_timeout=_SECONDS) as host:
        await host.tools()
    return bool(asked)


async def ask_to_sign_in(name: str, url: str) -> bool:
    """Show an address and open it if the person agrees; they may open it themselves as well, in any browser on this machine."""
    print(f"\n{visible(name)} wants you to sign in, at this address:\n\n  {visible(url)}\n", file=sys.stderr)
    lines = LineReader(sys.stdin.fileno())
    for _ in range(5):
        print("Open it in your browser? [y]es / [n]o, stop / Enter: I open it myself: ", end="", file=sys.stderr, flush=True)
        answer = await lines.line()
        word = None if answer is None else answer.strip().lower()
        if word in _OPEN and not await asyncio.to_thread(webbrowser.open, url):
            print("No browser was found; open the address yourself.", file=sys.stderr)
        if word in _OPEN or word in _BY_HAND:
            print("Waiting until you have signed in there ...", file=sys.stderr)
            return True
        if word is None or word in _STOP:
            return False
    return False
