"""What was said before a question, as a way of calling writes it: calls and results in its own form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..dialects.write import write
from ..prompting.feedback import results
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from ..types.calls import Message, RawCall, TextContent, ToolCall, ToolResult

__all__ = ["as_native", "as_text"]


def as_text(messages: Sequence[Mapping[str, Any]], catalog: Catalog, format: PromptFormat) -> Iterator[Message]:
    """Yield messages for a model that writes calls as text.

    Args:
        messages: of a case: `role` and `content`; the model's with a `call` (name and arguments), and its result with role `tool`
            and a `name` behind it.
        catalog: what is offered.
        format: in which calls and results are written.
    """
    for number, message in enumerate(messages):
        if "call" in message:
            yield Message(role="assistant", content=write([tuple(message["call"])], catalog, format.row))
        elif message["role"] == "tool":
            result = ToolResult(content=(TextContent(text=message["content"]),))
            yield Message(role="user", content=results([(_call(messages[number - 1], number), result)], catalog, format))
        else:
            yield Message(role=message["role"], content=message["content"])


def as_native(messages: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield messages for a server with function calling.

    Args:
        messages: as for `as_text`.
    """
    for number, message in enumerate(messages):
        calls = (_call(message, number + 1),) if "call" in message else ()
        told = {"tool_call_id": f"call_{number}", "name": message["name"]} if message["role"] == "tool" else {}
        yield Message(role=message["role"], content=message["content"], tool_calls=calls, **told)


def _call(message: Mapping[str, Any], number: int) -> ToolCall:
    """Make the call of a message, whose result has the number."""
    name, arguments = message["call"]
    raw = RawCall(index=0, name=name, dialect="native")
    return ToolCall(id=f"call_{number}", name=name, arguments=dict(arguments), raw=raw)
