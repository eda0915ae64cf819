"""The tools of the demo server once more, on the SDK's low-level server: schemas and results written by hand, over stdio."""

import asyncio
import json
from typing import Any

from mcp import types
from mcp.server import Server
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server

from xmlcall.hosts import demo_server as demo

NUMBER = {"type": "number"}
TEXT = {"type": "string"}


def schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


OPERATION = {"type": "string", "enum": ["add", "subtract", "multiply", "divide"]}
WEATHER = schema(location=TEXT, temperature=NUMBER, condition=TEXT, humidity={"type": "integer"})
TOOLS = [
    types.Tool(name="calculator", input_schema=schema(operation=OPERATION, a=NUMBER, b=NUMBER)),
    types.Tool(name="text_analyzer", input_schema=schema(text=TEXT)),
    types.Tool(name="get_weather", input_schema=schema(location=TEXT), output_schema=WEATHER),
]


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    try:
        if params.name == "get_weather":
            report = demo.get_weather(**arguments).model_dump()
            return types.CallToolResult(content=[text(json.dumps(report))], structured_content=report)
        return types.CallToolResult(content=[text(getattr(demo, params.name)(**arguments))])
    except ToolError as error:
        return types.CallToolResult(content=[text(str(error))], is_error=True)


def text(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


async def main() -> None:
    server = Server("lowlevel-demo", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
