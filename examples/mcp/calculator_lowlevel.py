"""The calculator on the low-level server of the MCP SDK, version 2: schemas and results are written by hand.

xmlcall chat --mcp examples/mcp/calculator_lowlevel.py
"""

import asyncio
import operator
from typing import Any

from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
NUMBER = {"type": "number"}
CALCULATE = types.Tool(
    name="calculate",
    description="Do arithmetic with two numbers.",
    input_schema={
        "type": "object",
        "properties": {"operation": {"type": "string", "enum": list(OPERATIONS)}, "a": NUMBER, "b": NUMBER},
        "required": ["operation", "a", "b"],
    },
)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[CALCULATE])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    try:
        told, is_error = str(OPERATIONS[given["operation"]](given["a"], given["b"])), False
    except ZeroDivisionError:
        told, is_error = "cannot divide by zero", True
    return types.CallToolResult(content=[types.TextContent(type="text", text=told)], is_error=is_error)


async def main() -> None:
    server = Server("calculator", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
