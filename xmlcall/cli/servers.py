"""The MCP servers of a command: those of `--mcp`, else the built-in demo server."""

import argparse
import shlex
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Literal

from ..errors import UsageError
from ..hosts.base import Host, Served
from ..hosts.mcp.requests import NO_FEATURES, ClientFeatures
from ..hosts.router import Router
from ..hosts.server import ServerConfig, StdioServer
from .exits import complain
from .mcp_option import servers_given
from .plain import visible
from .sign_in import sign_in_where_wanted

__all__ = ["chosen_server", "described", "hosts_of", "open_router", "servers_of"]

_CONNECT_SECONDS = 30.0


def servers_of(options: argparse.Namespace) -> tuple[ServerConfig, ...]:
    """Return the configured servers, or the demo server where none are configured."""
    if getattr(options, "no_tools", False):
        if options.mcp:
            raise UsageError("--no-tools leaves out every server: it does not go with --mcp")
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
    """Say what starting a server runs; values of its environment and of ours are hidden, since secrets belong there."""
    if not isinstance(server, StdioServer):
        return f"connecting to {visible(server.name)}: {visible(server.address)}"
    environment = "".join(f"{shlex.quote(name)}=*** " for name in server.env)
    return f"starting {visible(server.name)}: {visible(environment + shlex.join(server.command_line))}"


@asynccontextmanager
async def open_router(options: argparse.Namespace) -> AsyncIterator[Router]:
    """Open the servers for a command that only looks at them, and say what they left out."""
    servers = servers_of(options)
    await sign_in_where_wanted(servers)
    async with Router(hosts_of(servers, options), patience=None) as router:
        for notice in router.news():
            complain(notice)
        yield router


def chosen_server(router: Router, kind: Literal["resources", "prompts"], name: str | None) -> Served:
    """Return the server that a person means."""
    servers = router.having(kind)
    if name is None and len(servers) == 1:
        return next(iter(servers.values()))
    if name in servers:
        return servers[name]
    known = ", ".join(map(visible, servers)) or "none"
    raise UsageError(f"expected --server with the name of a server that has {kind}: {known}")
