"""`xmlcall tools`: what the servers offer."""

import argparse
from collections.abc import Iterable
from typing import Any

from ..hosts.mcp.wire import tool_to_mcp
from ..hosts.router import Router
from ..tools.outline import ShownParameter, parameters_of
from ..types.calls import Tool
from .exits import FAILED, OK, run_async
from .options import add_server_options
from .plain import json_text, plain, shortened, title_of, visible
from .servers import open_router
from .words import Say

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute", "found", "parameter_lines", "tool_lines"]

DESCRIPTION = "List the tools that the servers offer, with their parameters. Starts the servers but runs no tool."
EPILOG = """examples:
  xmlcall tools
  xmlcall tools --mcp servers.json --json > tools.json
  xmlcall tools --mcp http://127.0.0.1:8000/mcp
  xmlcall tools --mcp 'uvx mcp-server-time'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_server_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON in the shape of MCP's tools/list, for --tools FILE")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_tools(options))


async def _tools(options: argparse.Namespace) -> int:
    async with open_router(options) as router:
        tools = await router.tools()
        if options.json:
            print(json_text({"tools": [_described(tool, router) for tool in tools]}))
        else:
            for line in tool_lines(tools, router):
                print(line)
        return FAILED if router.failures else OK


def _described(tool: Tool, router: Router) -> dict[str, Any]:
    return tool_to_mcp(tool) | {"_meta": {"xmlcall/server": router.origin(tool.name)[0].name}}


def tool_lines(tools: Iterable[Tool], router: Router) -> list[str]:
    """Describe tools for people, two lines each."""
    return [line for tool in tools for line in _lines(tool, router)]


def _lines(tool: Tool, router: Router) -> list[str]:
    host, own_name = router.origin(tool.name)
    parameters = ", ".join(_summary(parameter) for parameter in parameters_of(tool))
    offered = f"  (for the model: {tool.name})" if tool.name != own_name else ""
    first = tool.description.strip().partition("\n")[0]
    head = f"{visible(host.name)}.{visible(own_name)}({parameters}){offered}"
    if (title := title_of(tool)) and title != own_name:
        head += f"  {title}"
    return [head, f"    {shortened(first, lines=1, width=200)}"] if first else [head]


def found(name: str, tools: Iterable[Tool], router: Router) -> Tool | None:
    """Find a tool by the name that the model gets, by its own, or by `server.tool`."""
    for tool in tools:
        host, own_name = router.origin(tool.name)
        if name in (tool.name, own_name, f"{host.name}.{own_name}"):
            return tool
    return None


def parameter_lines(tool: Tool, router: Router, say: Say) -> list[str]:
    """Describe one tool for people: its whole description, and each parameter."""
    description = [f"    {line}".rstrip() for line in plain(tool.description).strip().splitlines()]
    return [_lines(tool, router)[0], *description, *_rows(parameters_of(tool), say, "    ")]


def _rows(parameters: Iterable[ShownParameter], say: Say, indent: str) -> list[str]:
    rows = []
    for each in parameters:
        kind = shortened(visible(each.kind), lines=1, width=200)
        rows.append(f"{indent}{visible(each.name)}: {kind}, {say('required' if each.required else 'optional')}")
        rows += [f"{indent}    {visible(each.description)}"] * bool(each.description)
        rows += _rows(each.children, say, f"{indent}    ")
    return rows


def _summary(parameter: ShownParameter) -> str:
    mark = "" if parameter.required else "?"
    return f"{visible(parameter.name)}{mark}: {shortened(visible(parameter.kind), lines=1, width=60)}"
