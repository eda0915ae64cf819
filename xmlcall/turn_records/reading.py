"""Reads a reply: spans that tile its text, its calls with their values, and the repairs that it took.

`Reading` takes the parser's events as they come. A piece of text that no event covers was left out above the parser (text after
the last call, invented results), and becomes a span of markup `dropped`. `read_reply` reads a text with the `ReplyReader` of the
loop, so a live turn and its text give the same record. Each event is read once.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from ..binding.bind import bind
from ..dialects import known
from ..dialects.write import as_message, replies_of, says
from ..errors import UsageError
from ..parsing.parser import parse
from ..parsing.repetition import once
from ..records.store import tool_to_json
from ..toml_file import toml_value
from ..tools.catalog import Catalog, Tools
from ..turn.generate import Binder, ReplyReader
from ..types.calls import InvalidCall, Message, Repair, Reply, Role, Span, Tool, ToolCall
from ..types.completion import Capabilities, CompletionRequest, Usage
from ..types.events import (
    CallInReasoning,
    Event,
    Markup,
    ReasoningDelta,
    Repaired,
    TextDelta,
    ToolArgumentDelta,
    ToolCallEnd,
    ToolCallStart,
)
from ..wire.openai import tool_dict
from .record import (
    CallRecord,
    MarkRecord,
    MessageRecord,
    ReplyRecord,
    SaidBefore,
    SpanRecord,
    TurnRecord,
    ValueRecord,
    is_tool_prompt,
    issues_of,
    lost_call,
    repairs_of,
    values_of,
)

DROPPED: Final = "dropped"
UNDECIDED: Final = "undecided"  # what a span is about that the parser still holds back

_What = tuple[str, str, int | None]  # of a span: its kind, what it is about, and its call
_TEXT: Final[_What] = ("text", "", None)


@dataclass(slots=True)
class ReadCall:
    index: int
    name: str
    dialect: str
    start: int
    end: int
    call: ToolCall | InvalidCall | None = None  # as bound; None until its end has arrived
    is_left_out: bool = False  # whether it repeats an earlier call of the reply
    values: tuple[ValueRecord, ...] | None = field(default=None, repr=False)  # made once

    @property
    def place(self) -> Span | None:
        """Its place in the reply; None if it has none."""
        span = self.call.raw.span if self.call is not None else (self.start, self.end)
        return span if span[0] < span[1] and self.dialect != "native" else None


class Reading:
    """The spans, calls and repairs of a reply, from its events."""

    def __init__(self) -> None:
        self.calls: list[ReadCall] = []
        self.end = 0  # offset until which the reply is covered
        self.repairs: list[Repair] = []
        self.lost: list[CallInReasoning] = []  # calls that are only in the reasoning
        self.reasoning: list[str] = []  # pieces that the server sent apart from the text
        self._spans: list[SpanRecord] = []
        self._last: _What | None = None  # what the span is that may still grow
        self._last_start = 0
        self._by_index: dict[int, ReadCall] = {}
        self._open: ReadCall | None = None

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.read(event)

    def read(self, event: Event) -> None:
        """Read one event; most only extend the piece before."""
        start, end = event.span
        if (what := self._kind(event)) is None or end <= self.end:
            return
        if start > self.end:
            self._grow(self.end, ("markup", DROPPED, self._open.index if self._open else None))
        self._grow(end, what)
        if self._open is not None:
            self._open.end = end

    def spans(self, length: int, *, is_whole: bool = True) -> tuple[SpanRecord, ...]:
        """Return what each piece of the reply was read as; what no event covers was left out, or is undecided before the end."""
        spans = list(self._spans)
        if self._last is not None and self._last_start < self.end:
            spans.append(self._span(self._last_start, self.end, self._last))
        while spans and spans[-1].end > length:  # the text of markup is not known yet
            last = spans.pop()
            if last.start < length:
                spans.append(self._span(last.start, length, (last.kind, last.about, last.call)))
        if self.end < length:
            kind, about = ("markup", DROPPED) if is_whole else ("text", UNDECIDED)
            spans.append(SpanRecord(start=self.end, end=length, kind=kind, about=about))
        return tuple(spans)

    def settle(self, reply: Reply) -> None:
        """Take in the whole reply: which of its calls count, and its repairs."""
        repeated = {repair.span for repair in reply.repairs if repair.code == "repeated-call"}
        counting = {call.id for call in reply.calls}
        for read in self.calls:
            read.is_left_out = read.call is not None and read.call.id not in counting and read.call.raw.span in repeated
        self.repairs = list(reply.repairs)

    def cut(self, end: int) -> None:
        """Drop what was read after a place, because the loop had ended the reply there."""
        spans = list(self.spans(self.end))
        self._spans = [span for span in spans if span.end <= end]
        self._last, self._last_start, self.end = None, end, min(end, self.end)
        self.calls = [call for call in self.calls if call.start < end or not call.end]

    def marks(self) -> tuple[MarkRecord, ...]:
        """Return the repairs and lost calls, in words."""
        return (*repairs_of(self.repairs), *map(lost_call, self.lost))

    def _kind(self, event: Event) -> _What | None:
        """Say what the span of an event is, None for one that is noted otherwise; calls begin and end with that."""
        match event:
            case TextDelta():
                return _TEXT
            case ToolArgumentDelta(index=index, parameter=parameter):
                call = self._by_index.get(index)
                return "value", parameter, call.index if call else None
            case ReasoningDelta(text=text, span=(start, end)):
                if not text or start < end:
                    return "reasoning", "", None
                self.reasoning.append(text)
            case Markup(kind=kind):
                return "markup", kind, self._open.index if self._open else None
            case ToolCallStart():
                return "name", event.name, self._begin(event).index
            case ToolCallEnd():
                return "end", event.raw.name, self._finish(event).index
            case Repaired(code=code, span=span):
                self.repairs.append(Repair(code=code, span=span))
            case CallInReasoning():
                self.lost.append(event)
        return None

    def _begin(self, event: ToolCallStart) -> ReadCall:
        call = ReadCall(len(self.calls), event.name, event.dialect, *event.span)
        self.calls.append(call)
        self._by_index[event.index] = self._open = call
        return call

    def _finish(self, event: ToolCallEnd) -> ReadCall:
        raw = event.raw
        call = self._by_index.pop(raw.index, None)
        if call is None:
            call = ReadCall(len(self.calls), raw.name, raw.dialect, *raw.span)
            self.calls.append(call)
        call.call, call.dialect = event.call or bind(raw, Catalog(())), raw.dialect
        self._open = None
        return call

    def _grow(self, end: int, what: _What) -> None:
        if what != self._last:
            if self._last is not None and self._last_start < self.end:
                self._spans.append(self._span(self._last_start, self.end, self._last))
            self._last, self._last_start = what, self.end
        self.end = end

    @staticmethod
    def _span(start: int, end: int, what: _What) -> SpanRecord:
        kind, about, call = what
        return SpanRecord(start=start, end=end, kind=kind, about=about, call=call)


def call_record(read: ReadCall, text: str, said: SaidBefore | None, *, is_over: bool = True, **facts: Any) -> CallRecord:
    """Return a call as it is shown; if its end has not arrived when the reply is over, it has not started."""
    call, place = read.call, read.place
    start, end = place or (None, None)
    written = call.raw.text if call is not None else text[read.start : read.end]
    named: dict[str, Any] = {"index": read.index, "dialect": read.dialect, "start": start, "end": end, "text": written}
    if call is None:
        named |= {"id": f"call_{read.index}", "name": read.name, "outcome": "not started" if is_over else "writing"}
        return CallRecord(**named | facts)
    named |= {"id": call.id, "name": call.name}
    made = call.repairs if isinstance(call, ToolCall) else call.raw.repairs
    if read.is_left_out:
        made = (*made, Repair(code="repeated-call", span=call.raw.span))
    named["repairs"] = repairs_of(made)
    if isinstance(call, InvalidCall):
        return CallRecord(**named | {"issues": issues_of(call, place), "outcome": "rejected"} | facts)
    if read.values is None:
        read.values = values_of(call, text, said)
    return CallRecord(**named | {"arguments": call.arguments, "values": read.values} | facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadText:
    reading: Reading
    reply: Reply
    refusal: str


def read_text(
    text: str,
    catalog: Catalog,
    messages: Sequence[Message],
    *,
    dialect: str = "auto",
    reasoning_open: bool = False,
    finish_reason: str = "stop",
    unsaid: str = "",
) -> ReadText:
    """Read a reply as the loop would; `unsaid` is the word that stands for "not given", where the prompt asked for one."""
    known(dialect)  # before the parser, which opens the file of a row: texts come with names from pages and files
    server = Capabilities(server="", reasoning_open=reasoning_open)
    request, binder = CompletionRequest(messages=tuple(messages)), Binder(catalog=catalog, unsaid=unsaid)
    reader, reading = ReplyReader(binder, request, server, dialect=dialect), Reading()
    reading.take(reader.feed(text))
    reading.take(reader.close(finish_reason))
    lost, generated = reader.finished("", Usage())
    reading.take([lost] if lost else [])
    asked = next((each.content for each in reversed(messages) if each.role == "user" and not replies_of(each)), "")
    reply, _ = once(generated.reply, asked)
    reading.settle(reply)
    return ReadText(reading=reading, reply=reply, refusal=generated.refusal)


def prompt_of(messages: Iterable[Message]) -> tuple[MessageRecord, ...]:
    return tuple(MessageRecord(role=each.role, content=each.content, name=each.name or "") for each in messages)


def as_messages(messages: Iterable[Message | MessageRecord | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return messages of a conversation, in whatever form they were kept."""
    objects = (
        {"role": each.role, "content": each.content, "name": each.name} if isinstance(each, MessageRecord) else each
        for each in messages
    )
    read = map(as_message, objects)
    return tuple(each if each.role in get_args(Role) else replace(each, role="user") for each in read)


def readable_tools(rows: Iterable[Mapping[str, Any]]) -> Catalog:
    tools: dict[str, Tool] = {}
    for each in rows:
        with suppress(UsageError, TypeError, KeyError, AttributeError):
            tool = Tool.from_mcp(each)
            tools[tool.name] = tool
    return Catalog(list(tools.values()))


def tools_told(tools: Iterable[Tool]) -> tuple[Mapping[str, Any], ...]:
    return tuple(map(tool_to_json, tools))


def read_reply(
    text: str,
    tools: Tools,
    *,
    dialect: str = "auto",
    reasoning_open: bool = False,
    finish_reason: str = "stop",
    number: int = 1,
    conversation: Iterable[Message | MessageRecord | Mapping[str, Any]] = (),
) -> ReplyRecord:
    """Read a reply as the loop would; a `UsageError` is about the dialect, which is never a file, or the tools, not the text."""
    catalog, messages = Catalog.of(tools), as_messages(conversation)
    read = read_text(text, catalog, messages, dialect=dialect, reasoning_open=reasoning_open, finish_reason=finish_reason)
    said = SaidBefore(messages, messages, catalog)
    return ReplyRecord(
        number=number,
        prompt=prompt_of(messages),
        raw=text,
        spans=read.reading.spans(len(text)),
        repairs=read.reading.marks(),
        calls=tuple(replace(call_record(each, text, said), id=f"call_{each.index}") for each in read.reading.calls),
        finish_reason=read.reply.finish_reason,
        refusal=read.refusal,
    )


# -- a reply for use elsewhere: as a case of the parser's corpus, as a request, or as a case of the benchmark ----------
# A corpus case states what the parser reads now; whoever adds the case checks that this is right. A request holds the
# conversation as its client sent it, as far as the prompt shows it: without the description of the tools, and without the
# reminder after a question. All content may be hostile, so it is escaped and cannot leave its TOML string, its JSON or its
# quotes.


_LONGEST_NAME: Final = 60  # characters of a case's name
_TOOL_FIELDS: Final = ("name", "description", "input_schema", "title", "output_schema", "annotations")
_HALF: Final = re.compile(r"[\ud800-\udfff]")


def as_corpus_case(turn: TurnRecord, reply_number: int) -> str:
    """Write a reply as a case of `tests/corpus`, with its tools as a comment for `tools.toml` there."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    finish_reason, reasoning_open = reply.finish_reason or "stop", bool(reply.spans) and reply.spans[0].kind == "reasoning"
    raw = _HALF.sub("\ufffd", reply.raw)  # TOML has no half characters
    found = parse(raw, catalog, finish_reason=finish_reason, reasoning_open=reasoning_open)
    name = "recorded_" + re.sub(r"[^A-Za-z0-9]", "_", turn.id)[:_LONGEST_NAME]
    first = (turn.question.strip().splitlines() or ["a reply"])[0][:_LONGEST_NAME]
    case: dict[str, Any] = {"name": f"{first} ({turn.id}, reply {reply_number})"}
    case |= {"tools": name} if len(catalog) else {}
    case |= {"input": raw}
    case |= {"finish_reason": finish_reason} if finish_reason != "stop" else {}
    case |= {"reasoning_open": True} if reasoning_open else {}
    case |= {"text": found.text}
    case |= {"reasoning": found.reasoning} if found.reasoning else {}
    if found.calls:
        dialects = {call.raw.dialect for call in found.calls}
        case |= {"dialect": dialects.pop()} if len(dialects) == 1 and dialects != {"function_calls"} else {}
        case |= {"calls": [_written(call) for call in found.calls]}
    case |= {"repairs": [repair.code for repair in found.repairs]} if found.repairs else {}
    lines = ["[[case]]", *(f"{key} = {toml_value(value)}" for key, value in case.items())]
    return "\n".join([*_tool_set(name, catalog), *lines, ""])


def as_curl(turn: TurnRecord, reply_number: int, base_url: str) -> str:
    """Write the request that a reply answers, for the OpenAI API of a proxy."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    body: dict[str, Any] = {"model": turn.model, "messages": _messages(turn, reply, catalog)}
    if len(catalog):
        body["tools"] = [tool_dict(tool) for tool in catalog]
    url = shlex.quote(f"{base_url.rstrip('/')}/v1/chat/completions")
    head = f"curl -sS {url} -H 'Content-Type: application/json' --data-binary @- <<'JSON'"
    return f"{head}\n{json.dumps(body)}\nJSON\n"


def as_bench_case(turn: TurnRecord, reply_number: int) -> str:
    """Write a reply as a line of a run's `cases.jsonl`, with its calls as the expected ones."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    calls = [call for call in reply.calls if call.arguments is not None]
    case = {
        "id": f"{turn.id}-{reply_number}",
        "category": "recorded",
        "messages": _messages(turn, reply, catalog),
        "tools": [{name: getattr(tool, name) for name in _TOOL_FIELDS} for tool in catalog],
        "expects": "calls" if calls else "no_call",
        "answers": [],
        "exact": [[call.name, call.arguments if call.ran_with is None else call.ran_with] for call in calls],
        "disputed": False,
    }
    return f"{json.dumps(case)}\n"


def _reply(turn: TurnRecord, number: int) -> ReplyRecord:
    if not 1 <= number <= len(turn.replies):
        raise UsageError(f"expected the number of one of the turn's {len(turn.replies)} replies, got {number}")
    return turn.replies[number - 1]


def _messages(turn: TurnRecord, reply: ReplyRecord, catalog: Catalog) -> list[dict[str, str]]:
    """Return the conversation that a reply answers, without what this program adds to it."""
    prompt = as_messages(reply.prompt)
    messages = [each for each in prompt if not (each.role == "system" and is_tool_prompt(each.content, catalog))]
    if not messages:
        return [{"role": "user", "content": turn.question}]
    asked = next(
        (place for place in reversed(range(len(messages))) if turn.question and says(messages[place], turn.question)), None
    )
    contents = [turn.question if place == asked else message.content for place, message in enumerate(messages)]
    # As any API accepts them: a result whose call is unknown becomes a user message.
    roles = ["user" if message.role == "tool" else message.role for message in messages]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def _written(call: ToolCall | InvalidCall) -> dict[str, Any]:
    if isinstance(call, InvalidCall):
        return {"name": call.name, "issues": [issue.code for issue in call.issues]}
    return {"name": call.name, "arguments": [[argument.name, argument.text] for argument in call.raw.arguments]}


# -- TOML --------------------------------------------------------------------------------------------------------------------


def _tool_set(name: str, catalog: Catalog) -> Iterator[str]:
    """Yield lines of comments: the tools as a set of tests/corpus/tools.toml."""
    if not len(catalog):
        return
    yield "# A set for tests/corpus/tools.toml:"
    for tool in catalog:
        yield f"# [[{name}]]"
        yield f"# name = {toml_value(tool.name)}"
        if tool.description:
            yield f"# description = {toml_value(tool.description)}"
        yield f"# inputSchema = {toml_value(tool.input_schema)}"
    yield ""
