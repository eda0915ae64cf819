"""The client that MCP's conformance suite tests: python tests/conformance/client.py URL

A scripted model writes one call a reply, as XML; `ToolLoop` reads, binds, approves and runs it over `McpHost`. So each scenario
passes through all that a real model's call passes through. The suite names the scenario and gives its data in the environment.

The model calls every tool that the server offers, once. The arguments are those that the suite gives; where it gives none, they
are made of the tool's schema.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from xmlcall import HttpServer, McpHost, Message, Tool, ToolLoop, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ToolHostError

EXAMPLES: dict[str, Any] = {
    "string": "text",
    "number": 2.5,
    "integer": 3,
    "boolean": True,
    "object": {},
    "array": [],
    "null": None,
}
ECHO, ECHOED = "json_schema_echo", "json_schema_2020_12_tool"
"""The tool that is sent the schema of the other, as it was listed."""

Call = dict[str, Any]


def calls_of(tools: Mapping[str, Tool], context: Mapping[str, Any]) -> list[Call]:
    """Say what the model calls: what the suite asks for, else each tool."""
    if "toolCalls" in context:
        # A null stands for an argument that is not given: the tools of this scenario do not admit null.
        return [call | {"arguments": without_null(call["arguments"])} for call in context["toolCalls"]]
    if ECHO in tools:
        return [{"name": ECHO, "arguments": {"schema": dict(tools[ECHOED].input_schema)}}]
    return [{"name": name, "arguments": arguments_of(tool)} for name, tool in tools.items()]


def without_null(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def arguments_of(tool: Tool) -> dict[str, Any]:
    """Make valid arguments of the required parameters."""
    parameters = tool.input_schema.get("properties", {})
    return {name: EXAMPLES[parameters[name].get("type", "string")] for name in tool.input_schema.get("required", ())}


async def main(url: str, context: Mapping[str, Any]) -> None:
    async with ToolLoop(ScriptedBackend(()), [McpHost(HttpServer(name="suite", url=url))], policy=["*"], max_turns=100) as loop:
        tools = {tool.name: tool for tool in await loop.catalog()}
        calls = calls_of(tools, context)
        replies = [render([call], list(tools.values())) for call in calls]
        loop.backend = ScriptedBackend([*replies, "Done."])  # now that its lines are known
        # The question names the values: a call with values that nobody said is held back.
        async for event in loop.run([Message(role="user", content=f"Make these calls: {json.dumps(calls, ensure_ascii=False)}")]):
            print(event)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[-1], json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))))
    except ToolHostError as error:
        sys.exit(f"{type(error).__name__}: {error}")
