"""`xmlcall logout`: forget the tokens of an MCP server."""

import argparse

from ..hosts.server import HttpServer
from .exits import OK, complain, run_async
from .login import chosen_server, configure
from .plain import visible

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Delete the tokens of an MCP server, and the client that was registered for it."
EPILOG = """examples:
  xmlcall logout github --mcp servers.json

The server is not told. Its own page can end what you allowed.
"""


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_logout(chosen_server(options)))


async def _logout(server: HttpServer) -> int:
    from ..hosts.mcp.oauth import SignIn, forget

    was_kept = await forget(server, SignIn().tokens)
    complain(
        f"the tokens of {visible(server.name)} are forgotten" if was_kept else f"there are no tokens of {visible(server.name)}"
    )
    return OK
