"""The events of a turn: besides the parser's events these; a `ToolLoop` adds one Answer at the end."""

import warnings
from dataclasses import dataclass
from typing import Literal

from ..prompting.fit_context import Cut
from ..prompting.leaks import Refusal
from ..types.calls import InvalidCall, Message, Reply, ToolCall, ToolResult
from ..types.completion import PromptProgress, Usage
from ..types.events import Event
from .generate import Continued
from .tool_need import ToolNeed


class _Numbered:
    """An event of a reply; in 0.2.0 its number was called `turn`."""

    __slots__ = ()
    number: int

    @property
    def turn(self) -> int:
        """The old name of `number`."""
        warnings.warn("`turn` of an event is now `number`, because it counts replies", DeprecationWarning, stacklevel=2)
        return self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStarted(_Numbered):
    """A reply is being generated.

    Args:
        number: its number in this run, from 1.
    """

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnded(_Numbered):
    """A reply is complete; its calls come next, if it has any.

    Args:
        number: its number.
        reply: the reply, parsed and bound.
        usage: its tokens.
        raw: full output of the model, including filtered text.
        message: the reply as the conversation keeps it; None if it was discarded and the model is asked again.
    """

    number: int
    reply: Reply
    usage: Usage
    raw: str = ""
    message: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(_Numbered):
    """A reply and the results of its calls have been added to the conversation.

    Args:
        number: number of the reply.
        messages: of `ToolLoop` the conversation so far, in the form of `Answer.messages`; of a `Turn` what it has added. They
            end with the reply or with results.
    """

    number: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call was allowed and runs now.

    Args:
        call: the call.
        host: the server's name.
        host_tool: the tool's own name there.
        by: who or what allowed it, as in `Decision`.
        reason: why it was allowed, if a reason was given.
    """

    call: ToolCall
    host: str
    host_tool: str
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """A running call reported its progress; only the latest report is passed on.

    Args:
        call: the call.
        done: how much is done.
        total: how much there is to do, if known.
        message: the tool's own words; untrusted input.
    """

    call: ToolCall
    done: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTask:
    """The server runs a call as a task: its result can be fetched even after this program has ended."""

    call: ToolCall
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A call has its result.

    Args:
        call: the call.
        result: what the model receives.
        failure: what happened, in words for the user, if the server failed rather than the tool.
    """

    call: ToolCall
    result: ToolResult
    failure: str = ""

    @property
    def outcome(self) -> Literal["ok", "error", "failed"]:
        """Whether the tool succeeded, reported an error, or its server failed."""
        return "failed" if self.failure else "error" if self.result.is_error else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRejected:
    """A call cannot run as the model wrote it; the model receives the reason.

    Args:
        call: the call.
        host: the server's name; "" if no server has a tool of this name, or if the call was not made in a `ToolLoop`.
        host_tool: the tool's own name there.
    """

    call: InvalidCall
    host: str = ""
    host_tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDenied:
    """The policy did not allow a call; the model receives the reason.

    Args:
        call: the call.
        reason: why, in words for the model.
        by: who or what decided, as in `Decision`.
        host: the server's name; "" as of `CallRejected`.
        host_tool: the tool's own name there.
    """

    call: ToolCall
    reason: str
    by: str = ""
    host: str = ""
    host_tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHeld:
    """A call needs the results of earlier calls in its reply; the model is asked to write it again after them.

    Args:
        call: as the model wrote it; it does not run.
        paths: JSON paths of the values that appear neither in the conversation nor in the schema.
        host: the server's name; "" as of `CallRejected`.
        host_tool: the tool's own name there.
    """

    call: ToolCall
    paths: tuple[str, ...]
    host: str = ""
    host_tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAsked:
    """The model received feedback on invalid calls, or on a reply that is no answer, and is asked again.

    Args:
        retry: number of the consecutive retry, from 1.
        limit: how many retries there are at most.
        constrained: the tool that the server will force the model to call, if the backend can and the model is stuck; else "".
        refusal: why the reply was no answer: `invented_results`, `own_words`, `unfounded` (states values although every call
            failed), `undone` (claims an action that no tool did), `repeated_answer` (an earlier answer) or `no_access` (says that
            the model has no access to what a tool may tell); "" if its calls could not run.
    """

    retry: int
    limit: int
    constrained: str = ""
    refusal: Refusal = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """The model is sent only part of the conversation, because its context is too small; `Answer.messages` has all of it.

    The event comes once for each cut: until the next cut, later requests are cut at the same places.

    Args:
        results: the results that are sent in part.
        messages: how many of the oldest messages are replaced by one line for each turn.
    """

    results: tuple[Cut, ...]
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAgain:
    """A reply came to nothing; the model is asked once more. The conversation keeps no trace of this.

    Args:
        why: `empty` (neither text nor a call); with the server's own function calling also `unread` (the server could not read
            what its model wrote) or `failed` (the server failed, or refused the tools).
        in_text: whether the tools are now offered in the prompt, for the rest of the turn.
    """

    why: Literal["empty", "unread", "failed"] = "empty"
    in_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a run.

    Args:
        text: the last reply's visible text.
        stop_reason: `end` (a reply without calls), `max_turns`, `invalid_calls` (no valid call after all retries), `tool_errors`,
            `repeated_call`, `invented_results` or `own_words` (no answer after all retries), `repetition` (the reply repeated
            itself), or the server's word for a cut reply, such as `length`.
        messages: the conversation to continue with, without the tool prompt.
        replies: how many replies were generated.
        usage: the tokens of all replies; `cached_tokens` as far as the server reported them.
    """

    text: str
    stop_reason: str
    messages: tuple[Message, ...]
    replies: int
    usage: Usage

    @property
    def turns(self) -> int:
        """The old name of `replies`."""
        warnings.warn("`Answer.turns` is now `Answer.replies`, because it counts replies", DeprecationWarning, stacklevel=2)
        return self.replies


LoopEvent = (
    Event
    | ToolNeed
    | ReplyStarted
    | PromptProgress
    | Continued
    | ReplyEnded
    | StepEnded
    | CallStarted
    | CallProgress
    | CallTask
    | CallFinished
    | CallRejected
    | CallDenied
    | CallHeld
    | RetryAsked
    | Shortened
    | AskedAgain
    | Answer
)
"""What `ToolLoop.run` reports; an `Answer` comes last."""
