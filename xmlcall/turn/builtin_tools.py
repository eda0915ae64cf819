"""Built-in tools that only return information we already have: the turn answers them itself, without asking the policy.

| tool | what it does |
|---|---|
| `describe_tools` | describes tools that the prompt shows only in part (`grades`) |
| `read_more` | returns the rest of a result that was sent only in part (`results`) |

The prompt describes each only once it is useful.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt, free_name
from ..prompting.results import piece, result_with
from ..tools.catalog import Catalog
from ..types.calls import Message, TextContent, Tool, ToolResult

OURS: Final = "xmlcall"
"""The server name that is given for a built-in tool."""

Answering = Callable[[Mapping[str, Any], Sequence[Message]], ToolResult]
"""Answers a call from its arguments and the conversation before it."""


def describing(offered: ToolPrompt) -> dict[str, Answering]:
    """Return the tool that describes others, by its name; empty if the prompt shows all tools in full."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        return text_result(offered.describe(arguments))

    return {tool.name: answer for tool in offered.describing}


def with_reading_on(catalog: Catalog, format: PromptFormat) -> tuple[Catalog, str]:
    """Return a catalog with the tool that reads the rest of a result, and that tool's name."""
    name = free_name("read_more", catalog)
    properties = {"handle": {"type": "string"}, "start": {"type": "integer", "minimum": 0}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Catalog([*catalog, Tool(name=name, description=words_for("more", format), input_schema=schema)]), name


def reading_on(name: str, format: PromptFormat, tokens: Callable[[], int]) -> Answering:
    """Return what answers that tool, in pieces of so many tokens."""

    def answer(arguments: Mapping[str, Any], conversation: Sequence[Message]) -> ToolResult:
        text = result_with(arguments["handle"], conversation)
        if text is None:
            return ToolResult.error(words_for("unknown_handle", format))
        start = min(arguments["start"], len(text))
        found = piece(text, start, tokens())
        rest = len(text) - start - len(found)
        note = words_for("rest", format, name=name, handle=arguments["handle"], start=start + len(found), count=rest)
        return text_result(f"{found}\n{note}" if rest else found or words_for("at_end", format))

    return answer


def words_for(part: str, format: PromptFormat, **values: Any) -> str:
    """Render a part of the template of the built-in tools: text that the model reads."""
    return format.render("own_tools", part=part, **values).strip()


def text_result(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))
