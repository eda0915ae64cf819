"""What the model learns about its calls, also if the turn was stopped from outside or cut off.

A program may end at any moment. All that is known then is the conversation up to the last step, perhaps a reply after it, and the
outcomes of some of that reply's calls. Servers and templates require a result for each call, and alternating roles. The model
also has to learn what it cannot find out otherwise: that a call had started, and may or may not have run.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..prompting.feedback import Answered, native_results, results
from ..prompting.format import PromptFormat
from ..prompting.results import not_run, stopped
from ..tools.catalog import Tools
from ..types.calls import InvalidCall, Message, Speaker, ToolCall, ToolResult
from .events import CallDenied, CallFinished, CallRejected


def outcome(
    event: CallRejected | CallDenied | CallFinished, format: PromptFormat
) -> tuple[ToolCall | InvalidCall, ToolResult | None]:
    """Return a call and the result for the model; None for an invalid call, whose issues the model gets instead."""
    if isinstance(event, CallRejected):
        return event.call, None
    if isinstance(event, CallDenied):
        return event.call, ToolResult.error(not_run(event.reason, format), by=refused_by(event.by))
    return event.call, event.result


def refused_by(decided: str) -> Speaker:
    """Return who says why a call did not run, from `CallDenied.by`."""
    return "person" if decided == "person" else "program"


def when_stopped(
    calls: Iterable[ToolCall | InvalidCall], ended: Mapping[str, ToolResult | None], format: PromptFormat
) -> Answered:
    """Return the results for the model if a turn is stopped from outside.

    Args:
        ended: maps the id of a call to its result, or to None if it had started but has none; a call that had not started is
            missing.
    """

    def result_of(call: ToolCall) -> ToolResult:
        kind = "running" if call.id in ended else "not_begun"
        return ended.get(call.id) or ToolResult.error(stopped(kind, format), by="program")

    return [(call, None if isinstance(call, InvalidCall) else result_of(call)) for call in calls]


def closed(
    messages: Sequence[Message],
    reply: Message | None,
    calls: Sequence[ToolCall],
    ended: Mapping[str, ToolResult | None],
    tools: Tools,
    format: PromptFormat,
    *,
    has_tool_role: bool = True,
) -> list[Message]:
    """Complete a conversation that was cut off inside a turn, so that it can continue: the model's message comes last.

    Args:
        calls: the calls of that reply, in order; those that could not be read have no arguments.
    """
    conversation = list(messages)
    if reply is not None and (calls or reply.content.strip()):
        conversation.append(reply)
    if reply is not None and calls:
        answered = when_stopped(calls, ended, format)
        is_native = reply.tool_calls and has_tool_role
        conversation += native_results(answered, tools, format) if is_native else [results(answered, tools, format)]
    if conversation and conversation[-1].role in ("user", "tool"):
        conversation.append(Message(role="assistant", content=stopped("answer", format)))
    return conversation
