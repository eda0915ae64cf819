"""What the model learns about its calls, also if the turn was stopped from outside or cut off.

A program may end at any moment. All that is known then is the conversation up to the last step, perhaps a reply after it, and the
outcomes of some of that reply's calls. Servers and templates require a result for each call, and alternating roles. The model
also has to learn what it cannot find out otherwise: that a call had started, and may or may not have run.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..binding.bind import as_written
from ..prompting.feedback import Answered, native_results, results
from ..prompting.format import PromptFormat
from ..prompting.results import not_run, stopped
from ..tools.catalog import Catalog, Tools
from ..types.calls import InvalidCall, Issue, Message, Speaker, ToolCall, ToolResult, Written, WrittenCall
from .events import CallDenied, CallFinished, CallRejected
from .generate import Generated


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
    """Return whose words say why a call did not run, from `CallDenied.by`."""
    return "person" if decided == "person" else "program"


def when_stopped(
    calls: Iterable[ToolCall | InvalidCall], ended: Mapping[str, ToolResult | None], format: PromptFormat
) -> Answered:
    """Return the results for the model if a turn is stopped from outside.

    `ended` has the results by the calls' ids; None for a call that had started but has none.
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
    has_tool_role: bool,
) -> list[Message]:
    """Complete a conversation that was cut off inside a turn, so that it can continue: the model's message comes last.

    `calls` are those of that reply, in order; those that could not be read have no arguments.
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


# -- the calls of a reply as the conversation keeps them ---------------------------------------------------------------


def written_calls(generated: Generated, calls: Sequence[ToolCall | InvalidCall]) -> Written | None:
    """Return the calls that a reply's text contains; None if there are none."""
    written = (WrittenCall(name=call.name, arguments=call.arguments if isinstance(call, ToolCall) else None) for call in calls)
    return Written(text=generated.text, calls=tuple(written)) if calls and generated.calls_in_text else None


def not_offered(call: ToolCall) -> InvalidCall:
    message = f"There is no tool {call.name!r}: no tools are offered."
    issue = Issue(code="unknown-tool", got=call.name, message=message)
    return InvalidCall(id=call.id, name=call.name, issues=(issue,), raw=call.raw)


def as_separate_call(call: ToolCall | InvalidCall, catalog: Catalog) -> ToolCall:
    """Return a call for the separate field of a message; also an invalid one, because its feedback has to refer to a call."""
    if isinstance(call, ToolCall):
        return call
    return as_written(call, catalog) or ToolCall(id=call.id, name=call.name, arguments={}, raw=call.raw)


def is_echo(call: ToolCall | InvalidCall) -> bool:
    return has_issue(call, "echo")


def has_issue(call: ToolCall | InvalidCall, code: str) -> bool:
    return isinstance(call, InvalidCall) and any(issue.code == code for issue in call.issues)
