"""Our own tools for reading the resources of servers.

| tool | what it does | the policy is asked about |
|---|---|---|
| `list_resources` | lists the resources of a server | `server.list_resources` |
| `read_resource` | reads one of these | `server.read_resource` |

They are offered if a server actually has resources; declaring the capability is not enough. The built-in tools that need no
server are in `turn.builtin_tools`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ToolHostError
from ..hosts.base import Served
from ..hosts.router import Router
from ..prompting.format import PromptFormat
from ..prompting.grades import free_name
from ..prompting.results import resource_list
from ..tools.catalog import Catalog
from ..turn.builtin_tools import said, words_for
from ..types.calls import Tool, ToolResult

PATIENCE: Final = 3.0  # seconds within which a server has to say whether it has resources
SHOWN: Final = 500  # the most resources that are listed for a model; if the list is still too long, it is sent in part

Answer = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]  # answers a call from its arguments; fails with a `ToolHostError`


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A tool of our own."""

    tool: Tool
    answer: Answer
    acts_as: str  # the tool name for the policy, even if the tool is offered under another name
    server_of: Callable[[Mapping[str, Any]], str]  # returns the server for the policy, from the arguments of a call


async def resource_tools(router: Router, catalog: Catalog, format: PromptFormat) -> dict[str, OwnTool]:
    """Return the tools that list and read resources, by offered name; none if no server has resources."""
    servers = router.having("resources")
    has = await asyncio.gather(*map(_has_resources, servers.values()))
    names = [name for name, has_any in zip(servers, has, strict=True) if has_any]
    if not names:
        return {}

    def server_of(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("server", names[0]))

    def served(arguments: Mapping[str, Any]) -> Served:
        found = router.having("resources").get(name := server_of(arguments))
        if found is None:
            raise ToolHostError(f"{name}: the server is gone", host=name)
        return found

    async def listed(arguments: Mapping[str, Any]) -> ToolResult:
        server = served(arguments)
        resources, templates = await asyncio.gather(server.resources(), server.resource_templates())
        notices = (*resources.notices, *templates.notices)
        return said(resource_list(resources.items, templates.items, notices, format, limit=SHOWN))

    async def read(arguments: Mapping[str, Any]) -> ToolResult:
        return await served(arguments).read_resource(arguments["uri"])

    server: dict[str, Any] = {"server": {"type": "string", "enum": names}} if len(names) > 1 else {}
    uri = {"uri": {"type": "string", "description": words_for("uri", format)}}
    tools = (("list_resources", server, listed), ("read_resource", server | uri, read))
    found: dict[str, OwnTool] = {}
    for acts_as, properties, answer in tools:
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        name, description = free_name(acts_as, catalog), words_for(acts_as, format)
        tool = Tool(name=name, description=description, input_schema=schema, annotations={"readOnlyHint": True})
        found[name] = OwnTool(tool=tool, answer=answer, acts_as=acts_as, server_of=server_of)
    return found


async def _has_resources(served: Served) -> bool:
    """Say whether a server has resources; one that does not answer in time counts as having none for now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return bool((await served.resources()).items or (await served.resource_templates()).items)
    except (ToolHostError, TimeoutError):
        return False
