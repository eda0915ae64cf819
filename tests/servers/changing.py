"""An MCP server of 2026-07-28 whose list of tools grows: `python changing.py [--http]`, the address is printed."""

import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("changing", log_level="WARNING")


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool."""
    server.add_tool(grown)
    await context.notify_tools_changed()
    return "grown"


def grown() -> str:
    """Exist."""
    return "here"


if __name__ == "__main__":
    if "--http" in sys.argv:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
            uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
    else:
        server.run("stdio")
