"""The records of a turn: what the model was sent, what it wrote, how that was parsed, and the outcome of each call.

A turn leads from a user's message to an answer, reply by reply, as in `turn.turn`. The terminal, the page and JSON output show
only these records, so they cannot disagree. All records are plain data: `record_to_json` writes them under the names of their
fields. Offsets count characters of the reply (Unicode code points), and the end is exclusive.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from ..binding.provenance import SaidIndex, ValueSource, values_in
from ..dialects.write import replies_of, start_in
from ..errors import ISSUES, REPAIRS
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Issue, Message, RawArgument, RawCall, Repair, Span, ToolCall
from ..types.events import CallInReasoning

TurnSource = Literal["proxy", "chat", "conversation", "run", "file"]

CallOutcome = Literal[
    "writing",  # its end has not come
    "waiting",  # for a person's decision
    "running",
    "ok",
    "error",  # the tool reported it
    "failed",  # its server failed
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
    why: str  # its meaning in a sentence, for a person
    start: int | None = None  # None if it has no place in the reply
    end: int | None = None
    path: str = ""
    expected: str = ""
    got: str = ""
    readings: tuple[str, ...] = ()
    told: str = ""  # the message to the model, of an issue


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Where a value came from."""

    kind: str
    call: int | None = None  # number of the call whose result contains it, from 1
    tool: str = ""
    may_be_translation: bool = False  # of the person's words; then `kind` says where it came from if it is none
    message: int | None = None  # index of the message in the prompt that contains it
    start: int | None = None  # place in that message; None if the message spells it otherwise
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRecord:
    path: str
    value: Any  # as bound, JSON; an object or list only if it is empty
    start: int | None = None  # place in the reply; None if unknown
    end: int | None = None
    source: SourceRecord | None = None
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
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
    role: str
    content: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRecord:
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
    cached_tokens: int | None = None  # part of the prompt from the server's cache; None if not reported
    completion_tokens: int | None = None
    first_token_seconds: float | None = None
    seconds: float | None = None

    @property
    def text(self) -> str:
        """What a person reads of it."""
        return "".join(self.raw[span.start : span.end] for span in self.spans if span.kind == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn: a question or request, the replies to it, and how it ended."""

    id: str
    source: TurnSource
    began: str = ""
    client: str = ""
    model: str = ""
    way: str = ""  # `xml`, `native`, `plain` (no tools) or `relayed` (its bytes were passed on)
    dialect: str = ""  # the format in which the model was asked to write calls
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
    return {name: _as_json(getattr(record, name)) for name in _FIELDS[type(record)]}


def _as_json(value: Any) -> Any:
    """Write a value in which there may be records; `dataclasses.asdict` would copy the tools of every turn."""
    if isinstance(value, tuple):
        return tuple(map(_as_json, value))
    return record_to_json(value) if type(value) in _FIELDS else value


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

# -- the place in the reply, the source and the meaning of each value and mark of a call -------------------------------
# A parameter of a tagged format has its own place in the reply. In JSON all arguments share one, where a value is found by its
# text if that occurs once. Sources are found as in `binding.provenance`, but only in the words of the conversation: text that
# this program adds to a prompt (descriptions, examples, reminders) is no source. The cost is linear in the conversation, once
# for each reply with calls.


_BEGINNING: Final = 20_000  # characters of a value by which its source is found
_READ: Final = 200_000  # characters of a message in which sources are looked for
_LONGEST: Final = 2000  # characters of a value of which the place is looked for
_CASES: Final = 200  # characters of a value that is looked for in other cases as well

_Words = tuple[Message, int]  # a message of a prompt reduced to its author's words, and where these begin in it


class SaidBefore:
    """What was said before a reply, read on demand; `conversation` is without additions of this program, empty if unknown."""

    def __init__(self, prompt: Sequence[Message], conversation: Sequence[Message], catalog: Catalog) -> None:
        self._prompt, self._conversation, self._catalog = prompt, conversation, catalog
        self._index: SaidIndex | None = None
        self._words: list[_Words] = []
        self._results: dict[int, Span] = {}  # number of a call -> place of its result in its message

    def sources(self, call: ToolCall) -> dict[str, SourceRecord]:
        index, tool, found = self._index or self._read(), self._catalog.get(call.name), dict[str, SourceRecord]()
        for path, name, value in values_in(call.arguments):
            beginning = value[:_BEGINNING] if isinstance(value, str) else value
            found[path] = self._record(index.source_of(beginning, tool, name), value)
        return found

    def _read(self) -> SaidIndex:
        self._words = list(_said_in(self._prompt, self._conversation, self._catalog))
        self._index = SaidIndex()
        messages = [replace(message, content=message.content[:_READ]) for message, _ in self._words]
        self._index.add_messages(messages)
        replies = (reply for message in messages for reply in replies_of(message))
        self._results = {number: (reply.start, reply.end) for number, reply in enumerate(replies, start=1)}
        return self._index

    def _record(self, source: ValueSource, value: Any) -> SourceRecord:
        place = None
        if source.message is not None:
            message, begins = self._words[source.message]
            within = self._results.get(source.call or 0) or (0, len(message.content))
            found = _found(value, message.content[slice(*within)])
            place = found and (found[0] + within[0] + begins, found[1] + within[0] + begins)
        start, end = place or (None, None)
        named = {name: getattr(source, name) for name in ("kind", "call", "tool", "message", "may_be_translation")}
        return SourceRecord(**named, start=start, end=end)


def _said_in(prompt: Sequence[Message], conversation: Sequence[Message], catalog: Catalog) -> Iterator[_Words]:
    """Yield each message of a prompt, reduced to its author's words; messages of ours are empty."""
    said = iter(conversation)
    waiting = next(said, None)
    for message in prompt:
        at = -1 if waiting is None else start_in(message, waiting)
        if waiting is not None and at >= 0:
            is_ours = waiting.role == "system" and is_tool_prompt(waiting.content, catalog)
            yield replace(message, content="" if is_ours else waiting.content), at
            waiting = next(said, None)
        else:
            if waiting is not None and waiting.role == message.role and message.role != "system":
                waiting = next(said, None)  # sent in part
            yield (replace(message, content="") if message.role == "system" else message), 0


def is_tool_prompt(content: str, catalog: Catalog) -> bool:
    """Say whether a system message describes the tools, as this program's own does."""
    described = (f"{tool.name} {line}" for tool in catalog for line in tool.description.strip().splitlines()[:1])
    return len(catalog) > 0 and all(part in content for each in described for part in each.split(" ", 1))


def values_of(call: ToolCall, text: str, said: SaidBefore | None) -> tuple[ValueRecord, ...]:
    sources = said.sources(call) if said is not None else {}
    places = _Places(call, text)
    return tuple(
        ValueRecord(
            path=path,
            value=value,
            **dict(zip(("start", "end"), places.of(path, name, value), strict=True)),
            source=sources.get(path),
            repairs=codes_of_value(path, name, call.repairs, call.raw),
        )
        for path, name, value in values_in(call.arguments)
    )


class _Places:
    """The places of a call's values in a reply."""

    def __init__(self, call: ToolCall, text: str) -> None:
        self._text = text
        (start, end), is_native = call.raw.span, call.raw.dialect == "native"
        self._whole = call.raw.span if start < end <= len(text) and not is_native else None
        self._arguments: dict[str, RawArgument] = {}
        meant = {repair.span: repair.path[2:] for repair in call.repairs if repair.code == "parameter-name"}
        for each in call.raw.arguments:
            self._arguments.setdefault(meant.get(each.span, each.name), each)
        self._shared = Counter(each.span for each in call.raw.arguments)

    def of(self, path: str, name: str, value: Any) -> Span | tuple[None, None]:
        """Return the place of a value, else of its parameter."""
        argument = self._arguments.get(name)
        span = argument.span if argument is not None and argument.span[0] < argument.span[1] else self._whole
        if span is None:
            return None, None
        is_own = argument is not None and self._shared[argument.span] == 1 and path in (f"$.{name}", f"$['{name}']")
        if is_own and argument is not None and span != self._whole:
            within = self._text[slice(*span)]
            if not within.lstrip().startswith("{") or (isinstance(value, str) and value == argument.text == within):
                return span
        return _only_place(value, self._text, span) or span


def _only_place(value: Any, text: str, span: Span) -> Span | None:
    """Return the place of a value's text in a part of a reply, if it occurs there once."""
    for written in _writings(value):
        pattern = re.compile(_as_word(written))
        found = [match.span() for match, _ in zip(pattern.finditer(text, *span), range(2), strict=False)]
        if len(found) == 1:
            return found[0]
    return None


def _writings(value: Any) -> list[str]:
    """Return how a value may be written, without its quotation marks."""
    if not isinstance(value, str):
        return [json.dumps(value)]
    if not value or len(value) > _LONGEST:
        return []
    return list(dict.fromkeys([value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]]))


def _as_word(text: str) -> str:
    before, after = (r"(?<!\w)" if text[0].isalnum() else ""), (r"(?!\w)" if text[-1].isalnum() else "")
    return f"{before}{re.escape(text)}{after}"


def _found(value: Any, text: str) -> Span | None:
    written = value if isinstance(value, str) else json.dumps(value)
    if not written or len(written) > _LONGEST:
        return None
    cases = re.IGNORECASE if len(written) <= _CASES else 0
    found = re.search(_as_word(written), text, cases) or re.search(re.escape(written), text, cases)
    return found.span() if found else None


# -- repairs, conversions and mistakes of a call, each with what it means in words -------------------------------------
# A code of `errors.REPAIRS` or `errors.ISSUES` becomes a `MarkRecord` with its sentence and its place. A conversion of binding
# has the path of a value: it made that value, and every value inside it.

LOST_CALL: Final = "lost-call"  # code of the mark for a call that is only in the reasoning
_LOST: Final = "The model called a tool only in its reasoning, where no call runs. Ask again if it is needed."


def whys() -> dict[str, dict[str, str]]:
    """Return all codes with what they mean: `repairs` and `issues`."""
    return {"repairs": {**REPAIRS, LOST_CALL: _LOST}, "issues": dict(ISSUES)}


def repairs_of(repairs: Iterable[Repair]) -> tuple[MarkRecord, ...]:
    return tuple(
        MarkRecord(code=each.code, why=REPAIRS.get(each.code, ""), start=each.span[0], end=each.span[1], path=each.path)
        for each in repairs
    )


def lost_call(event: CallInReasoning) -> MarkRecord:
    return MarkRecord(code=LOST_CALL, why=_LOST, start=event.span[0], end=event.span[1], got=event.name)


def issues_of(call: InvalidCall, place: Span | None) -> tuple[MarkRecord, ...]:
    spans = {f"$.{each.name}": each.span for each in call.raw.arguments} if place is not None else {}
    placed = {parameter: span for parameter, span in spans.items() if span[0] < span[1]}
    return tuple(_issue(issue, placed, place) for issue in call.issues)


def _issue(issue: Issue, spans: Mapping[str, Span], whole: Span | None) -> MarkRecord:
    """Return the mark of an issue, at the place of the parameter that contains its path, or of the whole call."""
    start, end = next((span for parameter, span in spans.items() if _is_in(issue.path, parameter)), whole) or (None, None)
    about = {"path": issue.path, "expected": issue.expected, "got": issue.got, "told": issue.message}
    return MarkRecord(code=issue.code, why=issue.why, start=start, end=end, readings=tuple(issue.readings), **about)


def _is_in(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def codes_of_value(path: str, parameter: str, repairs: Sequence[Repair], raw: RawCall) -> tuple[str, ...]:
    own = repairs[len(raw.repairs) :]
    made = [each.code for each in own if each.path and (each.path == f"$.{parameter}" or _is_in(path, each.path))]
    return tuple(dict.fromkeys(made))
