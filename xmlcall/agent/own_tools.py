"""Tools of our own: they are offered beside those of servers, and answered here.

| tool | what it does | who decides |
|---|---|---|
| `describe_tools` | describes tools that are shown in part (`grades`) | nobody: it only tells what was offered |
| `read_more` | gives the rest of a result that was sent in part (`more`) | nobody: it only tells what a tool has told |
| `list_resources` | lists what the servers have to read | the policy, as `server.list_resources` |
| `read_resource` | reads one of these | the policy, as `server.read_resource` |

The first two are not described in the prompt until they are of use. The other two are offered where a server has resources: one
that only says that it could have some has none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ToolHostError
from ..hosts.router import Router
from ..hosts.served import Served
from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt, free_name
from ..prompting.more import piece, result_with
from ..prompting.results import resource_list
from ..tools.catalog import Catalog
from ..types.calls import Message, TextContent, Tool, ToolResult

__all__ = ["OwnTool", "by_name", "describing_tool", "more_tool", "resource_tools"]

PATIENCE: Final = 3.0
"""Seconds in which a server has to say whether it has resources."""

SHOWN: Final = 500
"""Resources that are listed for a model; what is listed may still be too long, and is then sent in part."""

Answer = Callable[[Mapping[str, Any], Sequence[Message]], Awaitable[ToolResult]]
"""Answers a call, by its arguments and the conversation before it; fails with a `ToolHostError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A tool of our own.

    Args:
        tool: as it is offered.
        answer: answers a call.
        acts_as: what the policy is asked about, whatever the tool had to be called; "" if nobody is asked.
        server_of: the server whose tool it then is, by the arguments of a call.
    """

    tool: Tool
    answer: Answer
    acts_as: str = ""
    server_of: Callable[[Mapping[str, Any]], str] = lambda arguments: ""


def describing_tool(offered: ToolPrompt) -> OwnTool | None:
    """Return the tool that describes tools; None if all are shown whole.

    Args:
        offered: how they are shown.
    """

    async def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        return _said(offered.describe(arguments))

    return next((OwnTool(tool=tool, answer=answer) for tool in offered.describing), None)


def more_tool(catalog: Catalog, format: PromptFormat, tokens: Callable[[], int]) -> OwnTool:
    """Return the tool that gives the rest of a result.

    Args:
        catalog: the other tools.
        format: how the model is spoken to.
        tokens: returns how long a piece may be.
    """

    async def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        text = result_with(arguments["handle"], conversation)
        if text is None:
            return ToolResult.error(_words("unknown_handle", format))
        start = min(arguments["start"], len(text))
        found = piece(text, start, tokens())
        rest = len(text) - start - len(found)
        note = _words("rest", format, name=name, handle=arguments["handle"], start=start + len(found), count=rest)
        return _said(f"{found}\n{note}" if rest else found or _words("at_end", format))

    name = free_name("read_more", catalog)
    properties = {"handle": {"type": "string"}, "start": {"type": "integer", "minimum": 0}}
    return OwnTool(tool=_tool(name, _words("more", format), properties), answer=answer)


async def resource_tools(router: Router, catalog: Catalog, format: PromptFormat) -> list[OwnTool]:
    """Return the tools that list and read resources; none where no server has any.

    Args:
        router: of the servers; open.
        catalog: the tools of the servers.
        format: how the model is spoken to.
    """
    servers = router.having("resources")
    has = await asyncio.gather(*map(_has_resources, servers.values()))
    names = [name for name, has_any in zip(servers, has, strict=True) if has_any]
    if not names:
        return []

    def server_of(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("server", names[0]))

    def served(arguments: Mapping[str, Any]) -> Served:
        found = router.having("resources").get(name := server_of(arguments))
        if found is None:
            raise ToolHostError(f"{name}: the server is gone", host=name)
        return found

    async def listed(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        server = served(arguments)
        resources, templates = await asyncio.gather(server.resources(), server.resource_templates())
        notices = (*resources.notices, *templates.notices)
        return _said(resource_list(resources.items, templates.items, notices, format, limit=SHOWN))

    async def read(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        return await served(arguments).read_resource(arguments["uri"])

    server: dict[str, Any] = {"server": {"type": "string", "enum": names}} if len(names) > 1 else {}
    uri = {"uri": {"type": "string", "description": _words("uri", format)}}
    tools = (("list_resources", server, listed), ("read_resource", server | uri, read))
    return [
        OwnTool(
            tool=_tool(free_name(name, catalog), _words(name, format), properties, {"readOnlyHint": True}),
            answer=answer,
            acts_as=name,
            server_of=server_of,
        )
        for name, properties, answer in tools
    ]


async def _has_resources(served: Served) -> bool:
    """Say whether a server has any; one that does not say so in time has none for now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return bool((await served.resources()).items or (await served.resource_templates()).items)
    except (ToolHostError, TimeoutError):
        return False


def _tool(name: str, description: str, properties: Mapping[str, Any], annotations: Mapping[str, Any] | None = None) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name=name, description=description, input_schema=schema, annotations=annotations)


def _words(part: str, format: PromptFormat, **values: Any) -> str:
    return format.render("own_tools", part=part, **values).strip()


def _said(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


def by_name(tools: Iterable[OwnTool]) -> dict[str, OwnTool]:
    """Return tools by the names under which they are offered.

    Args:
        tools: with different names.
    """
    return {each.tool.name: each for each in tools}
