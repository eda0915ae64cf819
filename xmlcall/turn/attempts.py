"""Counts how often a model may try again, and removes its failed attempts from the conversation.

There are two separate budgets: consecutive replies whose calls cannot run as written, and consecutive results that are errors. A
good call refills them. If the model wrote the same broken call twice, its last retry is constrained to a call of that tool, if
the server can do that. The same call with the same arguments may run only a few times in a row with the same result, because a
model that repeats itself does not read its results. No repeated call is dropped silently: either the user is asked, or the run
ends and says why. If each result differs, the model is waiting for something, and only the limits of the run end that. A caller
that runs the calls itself makes a turn of each reply, so its conversation says which calls were made before (`calls_made`).

Failed attempts are removed from the conversation once a correct one follows, because a model that sees its own broken calls in
its history writes more of them. A reply in which some calls ran stays, because its results are needed.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..binding.bind import as_written
from ..errors import UsageError
from ..prompting.format import PromptFormat
from ..prompting.results import Answered, native_results, not_run, results, stopped
from ..tools.catalog import Catalog, Tools
from ..types.calls import InvalidCall, Issue, Message, Speaker, ToolCall, ToolResult, Written, WrittenCall
from .events import CallDenied, CallFinished, CallRejected
from .generate import Generated


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPolicy:
    """Limits of a run.

    Args:
        max_replies: the most replies in one run.
        max_format_retries: how many consecutive replies may be answered with feedback, because their calls cannot run or because
            they are no answer (see `leaks`); also how often a reply that was cut inside a call is continued.
        max_tool_errors: how many consecutive results may be errors.
        max_repeats: how often the same call with the same arguments may run in a row, unless its results differ.
        on_repeat: the policy that `ToolLoop` asks about a call that repeats more often than that; None ends the run.
        asks_for_unsaid: whether a call is held back the first time if some of its values appear nowhere in the conversation
            (`binding.grounds`): the model is asked to look them up or to ask the user. Likewise, whether an answer that states
            what no result says is asked for again, once (`turn_setup`).

    Raises:
        UsageError: a limit is negative, or no reply or no call may be made.
    """

    max_replies: int = 10
    max_format_retries: int = 2
    max_tool_errors: int = 5
    max_repeats: int = 2
    on_repeat: Callable[[Any], Awaitable[Any]] | None = None
    asks_for_unsaid: bool = False

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could run."""
        for name, least in (("max_replies", 1), ("max_format_retries", 0), ("max_tool_errors", 0), ("max_repeats", 1)):
            if (value := getattr(self, name)) < least:
                raise UsageError(f"{name} must be at least {least}, got {value}")


@dataclass(slots=True)
class Attempts:
    """What a run has tried so far."""

    limits: RepairPolicy
    retries: int = 0  # replies in a row that were no answer, or whose calls could not run
    stuck: InvalidCall | None = None  # a call that the model wrote twice although it could not run, if one retry is left
    stop_reason: str = ""  # why the run has to end after this reply; "" if it need not
    _errors: int = 0
    _repeats: int = 0
    _last_key: str = ""
    _last_result: str | None = None
    _failed_from: int | None = None
    _failed_texts: set[str] = field(default_factory=set)

    def count(self, call: ToolCall) -> int:
        """Count a call that is about to run; return how often it was made in a row, including this time."""
        key = _key(call)
        if key != self._last_key:
            self._repeats, self._last_key, self._last_result = 0, key, None
        self._repeats += 1
        return self._repeats

    def is_repeated(self, call: ToolCall) -> bool:
        """Say whether a call was made as often in a row, with the same result, as it may be."""
        return _key(call) == self._last_key and self._repeats >= self.limits.max_repeats

    def note_result(self, call: ToolCall, text: str) -> None:
        """Note a call's result; if it differs from the last one, repeating the call was not in vain."""
        if _key(call) != self._last_key:
            return
        if self._last_result not in (None, text):
            self._repeats = 1
        self._last_result = text

    def came_before(self, call: InvalidCall) -> bool:
        """Say whether the model wrote this same invalid call before."""
        return call.raw.text in self._failed_texts

    def refuse(self) -> bool:
        """Count a reply that is no answer and has no calls; say whether the model may try again."""
        self.retries, self.stuck = self.retries + 1, None
        return self.retries <= self.limits.max_format_retries

    def after(self, answered: Answered) -> str:
        """Count the outcome of a reply's calls; return why the run has to end, or ""."""
        invalid = [call for call, _ in answered if isinstance(call, InvalidCall)]
        again = next((call for call in invalid if self.came_before(call)), None)
        self._failed_texts |= {call.raw.text for call in invalid}
        for _, result in answered:
            if result is not None:
                self._errors = self._errors + 1 if result.is_error else 0
        self.retries = self.retries + 1 if invalid else 0
        self.stuck = again if self.retries == self.limits.max_format_retries else None
        if self.stop_reason:
            return self.stop_reason
        if self.retries > self.limits.max_format_retries:
            return "invalid_calls"
        return "tool_errors" if self._errors > self.limits.max_tool_errors else ""

    def begin_again(self) -> None:
        """Forget where failed attempts begin, because the whole turn was removed from the conversation."""
        self._failed_from = None

    def forget(self, messages: list[Message], calls: Sequence[ToolCall | InvalidCall]) -> None:
        """Remove failed attempts from the conversation once a reply succeeds."""
        if none_can_run(calls):
            self._failed_from = len(messages) - 1 if self._failed_from is None else self._failed_from
            return
        if self._failed_from is not None:
            del messages[self._failed_from : -1]
        self._failed_from = None


def calls_made(conversation: Sequence[Message]) -> list[tuple[ToolCall, str]]:
    """Return the calls that a caller has run for the person's last request, in order, with their results.

    Words after a result, such as those that Claude Code adds to it, are not a new request.
    """
    speaks = [
        place
        for place, message in enumerate(conversation)
        if message.role == "user" and (not place or conversation[place - 1].role != "tool")
    ]
    made: list[tuple[ToolCall, str]] = []
    waiting: list[ToolCall] = []
    for message in conversation[speaks[-1] :] if speaks else conversation:
        if message.role == "assistant":
            waiting = list(message.tool_calls)
        elif message.role == "tool" and (call := _answered_by(message, waiting)):
            waiting.remove(call)
            made.append((call, message.content))
    return made


def _answered_by(result: Message, waiting: Sequence[ToolCall]) -> ToolCall | None:
    """Return the call to which a result belongs: by its id, else by its name or place, which clients of Ollama go by."""
    if result.tool_call_id:
        return next((call for call in waiting if call.id == result.tool_call_id), None)
    return next((call for call in waiting if result.name in (None, call.name)), None)


def _key(call: ToolCall) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True, default=str)


def none_can_run(calls: Sequence[ToolCall | InvalidCall]) -> bool:
    """Say whether there are calls but none can run, in which case the model is asked to write them again."""
    return bool(calls) and all(isinstance(call, InvalidCall) for call in calls)


# -- outcomes of calls -------------------------------------------------------------------------------------------------
# What the model learns about its calls, also if the turn was stopped from outside or cut off.
#
# A program may end at any moment. All that is known then is the conversation up to the last step, perhaps a reply after it, and
# the outcomes of some of that reply's calls. Servers and templates require a result for each call, and alternating roles. The
# model also has to learn what it cannot find out otherwise: that a call had started, and may or may not have run.


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
