"""The calculator on the low-level server of the MCP SDK, version 1, which most servers in the world still use.

It needs an environment of its own, because version 1 and version 2 cannot be in one:

    xmlcall chat --mcp 'uv run --with "mcp<2" examples/mcp/calculator_lowlevel_1x.py'
"""
# mypy: ignore-errors
# The types that are installed beside this file are those of version 2.

import asyncio
import operator

from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
NUMBER = {"type": "number"}
SCHEMA = {
    "type": "object",
    "properties": {"operation": {"type": "string", "enum": list(OPERATIONS)}, "a": NUMBER, "b": NUMBER},
    "required": ["operation", "a", "b"],
}
server = Server("calculator")


@server.list_tools()
async def list_tools():
    return [types.Tool(name="calculate", description="Do arithmetic with two numbers.", inputSchema=SCHEMA)]


@server.call_tool()
async def call_tool(name, arguments):
    return [types.TextContent(type="text", text=str(OPERATIONS[arguments["operation"]](arguments["a"], arguments["b"])))]


async def main():
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
