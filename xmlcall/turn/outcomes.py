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
    match event:
        case CallRejected(call=call):
            return call, None
        case CallDenied(call=denied, reason=reason):
            return denied, ToolResult.error(not_run(reason, format))
        case CallFinished(call=finished, result=result):
            return finished, result


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
