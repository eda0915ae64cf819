"""What a ToolLoop says while it runs: the parser's events, these, and at the end one Answer."""

from dataclasses import dataclass

from ..prompting.fit_context import Cut
from ..prompting.leaks import Refusal
from ..types.calls import InvalidCall, Message, Reply, ToolCall, ToolResult
from ..types.completion import PromptProgress, Usage
from ..types.events import Event
from .generate import Continued
from .tool_need import ToolNeed

__all__ = [
    "Answer",
    "AskedAgain",
    "CallDenied",
    "CallFinished",
    "CallHeld",
    "CallProgress",
    "CallRejected",
    "CallStarted",
    "CallTask",
    "LoopEvent",
    "RetryAsked",
    "Shortened",
    "StepEnded",
    "TurnEnded",
    "TurnStarted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A reply is being generated.

    Args:
        turn: its number in this run, from 1.
    """

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A reply is complete; its calls come next, if it has any.

    Args:
        turn: its number.
        reply: read and bound.
        usage: its tokens.
        raw: all that the model wrote as text, also what nobody is shown.
        message: how it stands in the conversation; None if it is not kept, and asked for again.
    """

    turn: int
    reply: Reply
    usage: Usage
    raw: str = ""
    message: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """A reply and what came of its calls are in the conversation.

    Args:
        turn: number of the reply.
        messages: the conversation so far, as `Answer.messages` would have it; the model's words or results last.
    """

    turn: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call was allowed and runs now.

    Args:
        call: with its arguments.
        host: the server's name.
        host_tool: the tool's own name there.
        by: who or what allowed it, as in `Decision`.
        reason: of that, if one was given.
    """

    call: ToolCall
    host: str
    host_tool: str
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress:
    """A running call told how far it is; only the latest word is passed on.

    Args:
        call: the call.
        done: how much.
        total: of how much, if that is known.
        message: what the tool says; hostile input.
    """

    call: ToolCall
    done: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTask:
    """The server has made a task of a running call: its result can be asked for after this program has ended."""

    call: ToolCall
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A call has its result.

    Args:
        call: the call.
        result: what the model is told.
        failure: set if not the tool but its server failed: what happened, for a person.
    """

    call: ToolCall
    result: ToolResult
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRejected:
    """A call cannot run as the model wrote it; the model is told why."""

    call: InvalidCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDenied:
    """The policy did not allow a call; the model is told.

    Args:
        call: with its arguments.
        reason: that the model is told.
        by: who or what decided, as in `Decision`.
    """

    call: ToolCall
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHeld:
    """A call waits for the results of those before it in its reply; the model is asked to write it again behind them.

    Args:
        call: as the model wrote it; it does not run.
        paths: JSON paths of the values that were found neither in the conversation nor in the schema.
    """

    call: ToolCall
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAsked:
    """The model was told what is wrong with its calls, or that its reply is no answer, and is asked again.

    Args:
        retry: which one in a row, from 1.
        limit: how many are asked for.
        constrained: the tool whose call the server will force, if the backend can and the model is stuck; else "".
        refusal: why the reply was no answer: `invented_results`, `own_words`, `unfounded` (values after nothing but failures),
            `undone` (a deed of no tool) or `repeated_answer` (an earlier one); "" if its calls could not run.
    """

    retry: int
    limit: int
    constrained: str = ""
    refusal: Refusal = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """The model is not sent all of the conversation, because its context is smaller; `Answer.messages` has all of it.

    It is told once for each cut: until the next one, the requests of the turns that follow are cut at the same places.

    Args:
        results: that are sent in part.
        messages: how many, the oldest, are not sent themselves, but in a line for their turn.
    """

    results: tuple[Cut, ...]
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAgain:
    """A reply had neither text nor a call; the model is asked once more for one, and this does not stay in the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a run.

    Args:
        text: the last reply's visible text.
        stop_reason: `end` (a reply without calls), `max_turns`, `invalid_calls` (none could run, however often asked for),
            `tool_errors`, `repeated_call`, `invented_results` or `own_words` (no answer, however often asked for),
            `repetition` (the reply repeated itself), or the server's word for a cut reply, such as `length`.
        messages: the conversation to go on with, without the tool prompt.
        turns: how many replies were generated.
        usage: the tokens of all of them; `cached_tokens` as far as the server told.
    """

    text: str
    stop_reason: str
    messages: tuple[Message, ...]
    turns: int
    usage: Usage


LoopEvent = (
    Event
    | ToolNeed
    | TurnStarted
    | PromptProgress
    | Continued
    | TurnEnded
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
