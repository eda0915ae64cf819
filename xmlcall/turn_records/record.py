"""The records of a turn: what the model was sent, what it wrote, how that was parsed, and the outcome of each call.

A turn leads from a user's message to an answer, reply by reply, as in `turn.turn`. The terminal, the page and JSON output show
only these records, so they cannot disagree. All records are plain data: `record_to_json` writes them under the names of their
fields. Offsets count characters of the reply (Unicode code points), and the end is exclusive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

TurnSource = Literal["proxy", "chat", "conversation", "run", "file"]

CallOutcome = Literal[
    "writing",  # its end has not come
    "waiting",  # for a person's decision
    "running",
    "ok",
    "error",  # of the tool
    "failed",  # of its server
    "denied",
    "rejected",  # it cannot run as written; the issues say why
    "held",  # it waits for the results of those before it, and the model writes it again
    "handed over",  # to the caller, who runs it
    "unknown",  # it had started when the program ended
    "not started",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """A piece of a reply; the spans of a reply tile it."""

    start: int
    end: int
    kind: str  # `text`, `reasoning`, `markup`, `name` (the opening of a call), `value`, `end` (of a call)
    about: str = ""  # kind of markup, name of the tool or of the parameter; "" if there is nothing to say
    call: int | None = None  # index of the call in the reply, from 0; None outside of calls


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRecord:
    """A repair, a conversion, or an issue of a call."""

    code: str
    why: str  # its meaning in a sentence; for an issue, the message to the model
    start: int | None = None  # None if it has no place in the reply
    end: int | None = None
    path: str = ""
    expected: str = ""
    got: str = ""
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Where a value came from."""

    kind: str
    call: int | None = None  # number of the call whose result contains it, from 1
    tool: str = ""
    message: int | None = None  # index of the message in the prompt that contains it
    start: int | None = None  # place in that message; None if the message spells it otherwise
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    """A value of a bound call."""

    path: str
    value: Any  # as bound, JSON; an object or list only if it is empty
    start: int | None = None  # place in the reply; None if unknown
    end: int | None = None
    source: SourceRecord | None = None
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A call and its outcome."""

    id: str
    index: int
    name: str  # of the tool, as bound; as written if the call is invalid
    dialect: str = ""  # its wire format; `native` if the model server found the call
    start: int | None = None
    end: int | None = None
    text: str = ""
    arguments: dict[str, Any] | None = None
    ran_with: dict[str, Any] | None = None  # the arguments that a person replaced them with
    values: tuple[ValueRecord, ...] = ()
    issues: tuple[MarkRecord, ...] = ()
    repairs: tuple[MarkRecord, ...] = ()
    outcome: CallOutcome = "not started"
    server: str = ""
    tool: str = ""
    by: str = ""
    reason: str = ""
    result: str | None = None
    result_size: int = 0  # characters of the whole result; `result` may be its beginning
    failure: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """A message of a prompt."""

    role: str
    content: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
    """A reply of the model."""

    number: int
    prompt: tuple[MessageRecord, ...] = ()  # the messages that it answers; empty if not kept
    raw: str = ""  # full output of the model, including a beginning given to it
    spans: tuple[SpanRecord, ...] = ()
    repairs: tuple[MarkRecord, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    reasoning: str = ""
    finish_reason: str = ""
    is_kept: bool = True  # whether it stays in the conversation; else the model was asked again
    refusal: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of these, from the server's cache; None if not reported
    completion_tokens: int | None = None
    first_token_seconds: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn: a question or request, the replies to it, and how it ended."""

    id: str
    source: TurnSource
    began: str = ""
    client: str = ""
    model: str = ""
    way: str = ""  # `xml`, `native`, `plain` (no tools) or `relayed` (its bytes were passed on)
    dialect: str = ""  # in which the model was asked to write calls
    lang: str = "en"
    family: str = ""
    question: str = ""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    replies: tuple[ReplyRecord, ...] = ()
    outcome: str = ""  # why it ended, as `Answer.stop_reason`, or `tool_calls`, `error`, `left`; "" while it runs
    answer: str = ""
    error: str = ""
    first_token_seconds: float | None = None
    seconds: float | None = None
    verdict: str = ""  # what was wrong, in a measured run; "" if right or not judged


def record_to_json(record: TurnRecord | ReplyRecord | SpanRecord) -> dict[str, Any]:
    """Return a record as a JSON object; JSON values in it are those of the record, not copies."""
    data: dict[str, Any] = _as_json(record)
    return data


def _as_json(value: Any) -> Any:
    """Write a value in which there may be records; `dataclasses.asdict` would copy the tools of every turn."""
    if isinstance(value, tuple):
        return tuple(map(_as_json, value))
    names = _FIELDS.get(type(value))
    return value if names is None else {name: _as_json(getattr(value, name)) for name in names}


def summary_of(turn: TurnRecord) -> dict[str, Any]:
    """Return what a list shows of a turn, as a JSON object: no texts but the question's beginning, no tools, no replies."""
    calls = [call for reply in turn.replies for call in reply.calls]
    repairs = [mark for reply in turn.replies for mark in reply.repairs] + [mark for call in calls for mark in call.repairs]
    last = turn.replies[-1] if turn.replies else ReplyRecord(number=0)
    return {name: getattr(turn, name) for name in _IN_LISTS} | {
        "question": turn.question[:_SHOWN],
        "error": turn.error[:_SHOWN],
        "replies": len(turn.replies),
        "prompt_tokens": last.prompt_tokens,
        "cached_tokens": last.cached_tokens,
        "completion_tokens": sum(reply.completion_tokens or 0 for reply in turn.replies),
        "calls": [{"name": call.name, "outcome": call.outcome} for call in calls],
        "repairs": sorted({repair.code for repair in repairs}),
        "issues": sorted({issue.code for call in calls for issue in call.issues}),
    }


_RECORDS = (MarkRecord, MessageRecord, SpanRecord, SourceRecord, ValueRecord, CallRecord, ReplyRecord, TurnRecord)
_FIELDS = {record: tuple(field.name for field in fields(record)) for record in _RECORDS}
_SHOWN = 200  # characters
_IN_LISTS = (
    *("id", "source", "began", "client", "model", "way", "dialect"),
    *("outcome", "seconds", "first_token_seconds", "verdict"),
)
