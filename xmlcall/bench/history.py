"""What was said before a case's question, as a model gets it in a way of calling.

A row of a case may hold more than words: `calls` that the model made (`[[name, arguments], ...]`), and behind them, in rows of
role `tool`, what came of each. A model with its tools in the prompt gets both as text, as in a conversation with it; another
gets the messages that the server's own function calling has for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..dialects.write import write
from ..prompting.feedback import results
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from ..types.calls import Message, RawCall, TextContent, ToolCall, ToolResult

__all__ = ["follows_result", "said"]

Rows = Sequence[Mapping[str, Any]]


def follows_result(rows: Rows) -> bool:
    """Say whether the model is to go on behind the result of a call.

    Args:
        rows: of a case.
    """
    return bool(rows) and rows[-1]["role"] == "tool"


def said(rows: Rows, catalog: Catalog, format: PromptFormat | None) -> list[Message]:
    """Return the messages of a case.

    Args:
        rows: of the case.
        catalog: its tools.
        format: of the prompt that offers them; None where the server does.
    """
    messages: list[Message] = []
    calls: list[ToolCall] = []
    for is_result, group in groupby(rows, key=lambda row: row["role"] == "tool"):
        if is_result:
            messages += _results(list(group), calls, catalog, format)
            continue
        for row in group:
            calls = _calls(row.get("calls", ()), len(messages))
            messages.append(_words(row, calls, catalog, format))
    return messages


def _calls(written: Iterable[tuple[str, dict[str, Any]]], place: int) -> list[ToolCall]:
    return [
        ToolCall(id=f"call_{place}_{index}", name=name, arguments=arguments, raw=RawCall(index=index, name=name))
        for index, (name, arguments) in enumerate(written)
    ]


def _words(row: Mapping[str, Any], calls: Sequence[ToolCall], catalog: Catalog, format: PromptFormat | None) -> Message:
    if format is None or not calls:
        return Message(role=row["role"], content=row["content"], tool_calls=tuple(calls))
    text = write([(call.name, call.arguments) for call in calls], catalog, format.row)
    return Message(role=row["role"], content=f"{row['content']}\n{text}".lstrip("\n"))


def _results(rows: Rows, calls: Sequence[ToolCall], catalog: Catalog, format: PromptFormat | None) -> list[Message]:
    answered = list(zip(calls, rows, strict=True))
    if format is None:
        return [Message(role="tool", content=row["content"], tool_call_id=call.id, name=call.name) for call, row in answered]
    told = [(call, ToolResult(content=(TextContent(text=row["content"]),))) for call, row in answered]
    return [results(told, catalog, format)]
