"""The entry points of the core: text -> Reply, calls -> text.

`parse` runs the parser and the binding, nothing more. `render` is its inverse: it parses its own output again and raises if names
or arguments differ.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..binding.bind import bind
from ..dialects import Dialect, select
from ..dialects.write import write
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..types.calls import Repair, Reply, ToolCall
from ..types.events import Event, ReasoningDelta, Repaired, TextDelta, ToolCallEnd
from .parser import Parser


def parse(
    text: str,
    tools: Tools = (),
    *,
    dialect: str | Dialect = "auto",
    finish_reason: str = "stop",
    reasoning_open: bool = False,
) -> Reply:
    """Read a model's whole reply.

    Args:
        text: what the model wrote.
        tools: the tools that were offered; without any, arguments stay the strings that the model wrote.
        dialect: a wire format, or `auto` for all.
        finish_reason: the server's; any other than `stop` and `tool_calls` means that the reply was cut.
        reasoning_open: whether the prompt ended in an open `<think>`.

    Returns:
        Visible text, reasoning, calls and repairs.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools; never because of the text.
    """
    catalog = Catalog.of(tools)
    parser = Parser(catalog, dialect=dialect, reasoning_open=reasoning_open)
    return reply_of([*parser.feed(text), *parser.close(finish_reason)], catalog, finish_reason=finish_reason)


def reply_of(events: Iterable[Event], tools: Tools = (), *, finish_reason: str = "stop") -> Reply:
    """Gather a parser's events into a Reply, and bind the calls that are not bound yet."""
    catalog = Catalog.of(tools)
    events = list(events)
    calls = tuple(event.call or bind(event.raw, catalog) for event in events if isinstance(event, ToolCallEnd))
    conversions = [repair for call in calls if isinstance(call, ToolCall) for repair in call.repairs[len(call.raw.repairs) :]]
    return Reply(
        text="".join(event.text for event in events if isinstance(event, TextDelta)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        calls=calls,
        repairs=(*(Repair(code=event.code, span=event.span) for event in events if isinstance(event, Repaired)), *conversions),
        finish_reason=finish_reason,
    )


def render(calls: Iterable[ToolCall | Mapping[str, Any]], tools: Tools = (), *, dialect: str | Dialect = "function_calls") -> str:
    """Write calls as a model should.

    Args:
        calls: ToolCalls, or `{"name": ..., "arguments": {...}}` as in MCP's `call`.
        tools: the tools that are called; their schemas decide which values need `type="json"`.
        dialect: the wire format.

    Returns:
        Text for which `parse(text, tools)` gives equal names and arguments.

    Raises:
        UsageError: the dialect cannot carry a call, for example a name with `<` in it.
    """
    chosen = select(dialect)[0]
    catalog = Catalog.of(tools)
    wanted = [
        (call.name, call.arguments) if isinstance(call, ToolCall) else (call["name"], dict(call.get("arguments") or {}))
        for call in calls
    ]
    text = write(wanted, catalog, chosen)
    reply = parse(text, catalog, dialect=dialect)
    got = [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)]
    if got != wanted or len(got) != len(reply.calls):
        reason = next((issue.message for call in reply.calls if not isinstance(call, ToolCall) for issue in call.issues), "")
        raise UsageError(f"these calls cannot be written so that they read back the same: {wanted!r:.200} {reason}".rstrip())
    return text
