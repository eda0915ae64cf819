"""Tools of our own that only tell what is known: the turn answers them itself, and nobody is asked.

| tool | what it does |
|---|---|
| `describe_tools` | describes tools that are shown in part (`grades`) |
| `read_more` | gives the rest of a result that was sent in part (`results`) |

They are not described in the prompt until they are of use.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt, free_name
from ..prompting.results import piece, result_with
from ..tools.catalog import Catalog
from ..types.calls import Message, TextContent, Tool, ToolResult

__all__ = ["OURS", "Answering", "describing", "more_tool", "said", "words_for"]

OURS: Final = "xmlcall"
"""Stands for a server's name where a tool is our own."""

Answering = Callable[[Mapping[str, Any], Sequence[Message]], ToolResult]
"""Answers a call, by its arguments and the conversation before it."""


def describing(offered: ToolPrompt | None) -> dict[str, Answering]:
    """Return what describes tools, by its name; empty if all are shown whole."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        assert offered is not None
        return said(offered.describe(arguments))

    return {tool.name: answer for tool in offered.describing} if offered is not None else {}


def more_tool(catalog: Catalog, format: PromptFormat, tokens: Callable[[], int]) -> tuple[Tool, Answering]:
    """Return the tool that gives the rest of a result."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        text = result_with(arguments["handle"], conversation)
        if text is None:
            return ToolResult.error(words_for("unknown_handle", format))
        start = min(arguments["start"], len(text))
        found = piece(text, start, tokens())
        rest = len(text) - start - len(found)
        note = words_for("rest", format, name=name, handle=arguments["handle"], start=start + len(found), count=rest)
        return said(f"{found}\n{note}" if rest else found or words_for("at_end", format))

    name = free_name("read_more", catalog)
    properties = {"handle": {"type": "string"}, "start": {"type": "integer", "minimum": 0}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name=name, description=words_for("more", format), input_schema=schema), answer


def words_for(part: str, format: PromptFormat, **values: Any) -> str:
    """Return what a model reads of a tool of ours, by the part of the template."""
    return format.render("own_tools", part=part, **values).strip()


def said(text: str) -> ToolResult:
    """Return a result that is a text."""
    return ToolResult(content=(TextContent(text=text),))
