"""What the model is told of its calls."""

from collections.abc import Iterable

from ..prompting.format import PromptFormat
from ..prompting.results import not_run, stopped
from ..types.calls import InvalidCall, ToolCall, ToolResult
from .events import CallDenied, CallFinished, CallRejected

__all__ = ["outcome", "when_stopped"]


def outcome(
    event: CallRejected | CallDenied | CallFinished, format: PromptFormat
) -> tuple[ToolCall | InvalidCall, ToolResult | None]:
    """Return a call and what the model is told of it; None where that is what is wrong with the call.

    Args:
        event: with which the call ended.
        format: of the prompt.
    """
    if isinstance(event, CallRejected):
        return event.call, None
    if isinstance(event, CallDenied):
        return event.call, ToolResult.error(not_run(event.reason, format))
    return event.call, event.result


def when_stopped(
    calls: Iterable[ToolCall | InvalidCall], started: str, format: PromptFormat
) -> list[tuple[ToolCall | InvalidCall, ToolResult | None]]:
    """Return what the model is told of calls without a result, when their turn is ended from outside.

    Args:
        calls: of the reply.
        started: id of the one that had started, if one had.
        format: of the prompt.
    """

    def told(call: ToolCall | InvalidCall) -> ToolResult | None:
        text = stopped("running" if call.id == started else "not_begun", format)
        return None if isinstance(call, InvalidCall) else ToolResult.error(text)

    return [(call, told(call)) for call in calls]
