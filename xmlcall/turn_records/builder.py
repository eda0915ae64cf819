"""Builds the record of a turn from its events, at any time while the turn runs.

`note` reads the parser's events as they come and keeps none of them, because the text, the spans and the bound calls hold
everything. Each reply is written as a record once; afterwards only the calls that change are.

The record of a running turn shows the raw text as far as it is known: `wrote` takes the model server's output piece by piece.

Times come from `time.monotonic`, read when the turn begins, at the first piece, and when a reply or a call begins or ends.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, get_args

from ..backends.base import Around, Backend, KeptOpen, Tries
from ..dialects.write import says
from ..prompting.results import result_text
from ..records.audit import MASK
from ..tools.catalog import Catalog
from ..turn.events import (
    Answer,
    AskedAgain,
    CallDenied,
    CallFinished,
    CallHeld,
    CallRejected,
    CallStarted,
    LoopEvent,
    ReplyEnded,
    ReplyStarted,
    RetryAsked,
    StepEnded,
)
from ..types.calls import InvalidCall, Message, Tool, ToolCall
from ..types.completion import Chunk, CompletionRequest
from ..types.events import Event, Markup, ToolCallEnd, ToolCallStart
from .reading import ReadCall, Reading, call_record, prompt_of, tools_told
from .record import CallRecord, ReplyRecord, SaidBefore, TurnRecord

MOST_RESULT: Final = 200_000  # maximum characters of a result in a record
_REFUSALS: Final = frozenset({"invented_results", "own_words"})
_PARSED: Final = frozenset(get_args(Event))


# -- a reply, from the events of the parser and the pieces of its raw text ---------------------------------------------


class ReplyUnderWay:
    """A reply, while it arrives and after it has ended."""

    def __init__(self, number: int, now: float) -> None:
        self.asked_at = now
        self.first_at: float | None = None
        self.ended_at: float | None = None
        self.prompt: tuple[Message, ...] = ()
        self.conversation: tuple[Message, ...] = ()
        self.reading = Reading()
        self.begun = ""  # the model's own words at the end of the prompt
        self.is_begun = False  # whether these words are the beginning of the reply, not words that a caller put there
        self.wrote: list[str] = []
        self.raw = ""  # set once the whole text is known
        self.known = ReplyRecord(number=number)  # its record, without what is read in the text
        self.counting: frozenset[str] | None = None  # ids of the calls that count; None until the reply has ended
        self.said: SaidBefore | None = None
        self.record: ReplyRecord | None = None  # cached until something changes

    @property
    def has_arrived(self) -> bool:
        return self.first_at is not None or bool(self.raw)

    def text(self) -> str:
        if self.counting is not None:
            return self.raw
        if len(self.wrote) > 1:
            self.wrote[:] = ["".join(self.wrote)]
        written = self.wrote[0] if self.wrote else ""
        return self.begun + written if self.is_begun else written

    def note_first(self, event: Event, now: float) -> None:
        """Record the first event. If the prompt began the reply for the model, it begins with the markup of a call."""
        self.first_at = now
        if self.begun and isinstance(event, Markup | ToolCallStart) and event.span[1] <= len(self.begun):
            self.is_begun = not "".join(self.wrote).startswith(self.begun[: event.span[1]])

    def is_continued_by(self, begun: str) -> bool:
        """Whether a request asks for the rest of this reply."""
        return self.has_arrived or bool(begun and self.wrote and begun in (self.text(), self.begun + self.text()))

    def know(self, **facts: Any) -> None:
        """Record fields of the reply that are not read in its text."""
        self.known, self.record = replace(self.known, **facts), None

    def end(self, event: ReplyEnded) -> None:
        self.raw = event.raw or self.text()
        self.counting = frozenset(call.id for call in event.reply.calls)
        self.reading.settle(event.reply)
        own = sum(span.end - span.start for span in self.reading.spans(len(self.raw)) if span.kind == "reasoning")
        if not self.reading.reasoning and event.reply.reasoning and not own:
            self.reading.reasoning.append(event.reply.reasoning)
        tokens = {name: getattr(event.usage, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
        self.know(finish_reason=event.reply.finish_reason, is_kept=event.message is not None, **tokens)
        if self.is_begun and self.raw.startswith(self.begun):
            self.prompt = self.prompt[:-1]
        self.wrote, self.begun = [], ""


# -- a turn -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Fact:
    shown: dict[str, Any] = field(default_factory=dict)  # fields of the call's record
    call: ToolCall | InvalidCall | None = None  # the call as last reported, if it differs from the one bound in the reply
    began: float | None = None  # clock time at which the call started


class TurnBuilder:
    """A turn, running or ended; `record` returns its record, of which the `facts` are known when the turn begins."""

    def __init__(self, *, tools: Catalog | Iterable[Tool] = (), conversation: Sequence[Message] = (), **facts: Any) -> None:
        self.version, self.is_over = 0, False  # the version increases with each change
        self._known = TurnRecord(**{"began": datetime.now(UTC).isoformat(timespec="milliseconds")} | facts)
        self.id = self._known.id
        self.conversation = tuple(conversation)  # the messages so far, without the text that this program adds to a prompt
        self._tools = tools
        self._catalog: Catalog | None = None
        self._tools_shown: tuple[Mapping[str, Any], ...] | None = None
        self._replies: list[ReplyUnderWay] = []
        self._reply: ReplyUnderWay | None = None  # under way
        self._prompt: tuple[Message, ...] = ()
        self._calls: dict[str, _Fact] = {}
        self._begun_at = time.monotonic()
        self._first_at: float | None = None
        self._ended_at: float | None = None

    def know(self, **facts: Any) -> None:
        """Record facts as for the constructor; `first_token_seconds` and `seconds` replace the clock's times."""
        if "tools" in facts:
            self._tools, self._catalog, self._tools_shown = facts.pop("tools"), None, None
        self.conversation = tuple(facts.pop("conversation", self.conversation))
        self._known = replace(self._known, **facts)
        self._changed_all()

    def prompt(self, messages: Sequence[Message]) -> None:
        """Record the messages that the next reply answers, as sent. A reply continued after a cut keeps its own."""
        self.version += 1
        reply, sent = self._reply, tuple(messages)
        begun = sent[-1].content if sent and sent[-1].role == "assistant" else ""
        if reply is None:
            self._prompt = sent
        elif not reply.is_continued_by(begun):
            reply.prompt, reply.begun, reply.wrote, reply.record = sent, begun, [], None
            reply.asked_at = time.monotonic()

    def wrote(self, text: str) -> None:
        """Record a piece of the raw reply, before the events that it produces."""
        if self._reply is not None and text:
            self._reply.wrote.append(text)

    def note(self, event: LoopEvent) -> None:
        self.version += 1
        kind = type(event)
        if kind in _PARSED:
            reply = self._reply or self._begin(len(self._replies) + 1)
            parsed: Any = event  # its type was looked up
            if reply.first_at is None:
                reply.note_first(parsed, time.monotonic())
                self._first_at = reply.first_at if self._first_at is None else self._first_at
            reply.record = None
            reply.reading.read(parsed)
        elif (take := _TAKES.get(kind)) is not None:
            take(self, event)

    def waiting(self, call_id: str) -> None:
        self._tell(call_id, outcome="waiting")

    def end(self, outcome: str, *, answer: str = "", error: str = "") -> None:
        """End the turn. An argument that is empty leaves the earlier value."""
        known = self._known
        self._known = replace(known, outcome=outcome or known.outcome, answer=answer or known.answer, error=error or known.error)
        self._ended_at = time.monotonic() if self._ended_at is None else self._ended_at
        self.is_over = True
        for fact in self._calls.values():
            if fact.shown.get("outcome") in ("running", "waiting"):
                fact.shown["outcome"] = "unknown" if fact.shown["outcome"] == "running" else "not started"
        self._changed_all()

    def record(self) -> TurnRecord:
        if self._tools_shown is None:
            self._tools_shown = tools_told(self._tools)
        known, replies = self._known, tuple(map(self._reply_record, self._replies))
        first, seconds = _between(self._begun_at, self._first_at), _between(self._begun_at, self._ended_at)
        first = first if known.first_token_seconds is None else known.first_token_seconds
        seconds = seconds if known.seconds is None else known.seconds
        return replace(known, tools=self._tools_shown, replies=replies, first_token_seconds=first, seconds=seconds)

    def _begin(self, number: int) -> ReplyUnderWay:
        reply = ReplyUnderWay(number, time.monotonic())
        if self._replies and not self._replies[-1].has_arrived and self._replies[-1].counting is None:
            self._replies.pop()  # an attempt that produced nothing
        self._replies.append(reply)
        self._reply, reply.prompt, reply.conversation, self._prompt = reply, self._prompt, self.conversation, ()
        if reply.prompt and reply.prompt[-1].role == "assistant":
            reply.begun = reply.prompt[-1].content
        return reply

    def _turn_ended(self, event: ReplyEnded) -> None:
        reply = self._reply or self._begin(event.number)
        reply.ended_at = time.monotonic()
        reply.end(event)
        reply.record = self._reply = None

    def _step_ended(self, event: StepEnded) -> None:
        """Record the conversation so far, without the reminder after the person's words."""
        known = self.conversation
        self.conversation = tuple(
            known[place] if place < len(known) and says(message, known[place].content, known[place].role) else message
            for place, message in enumerate(event.messages)
        )

    def _call_started(self, event: CallStarted) -> None:
        facts = {"server": event.host, "tool": event.host_tool, "by": event.by, "reason": event.reason}
        fact = self._tell(event.call.id, outcome="running", **facts)
        fact.began, fact.call = time.monotonic(), event.call

    def _call_finished(self, event: CallFinished) -> None:
        text = result_text(event.result)
        facts = {"result": text[:MOST_RESULT], "result_size": len(text), "failure": event.failure}
        fact = self._tell(event.call.id, outcome=event.outcome, **facts)
        if fact.began is not None:
            fact.shown["seconds"] = time.monotonic() - fact.began

    def _call_refused(self, event: CallRejected | CallDenied) -> None:
        facts = {"outcome": "rejected", "server": event.host, "tool": event.host_tool}
        if isinstance(event, CallDenied):
            facts |= {"outcome": "denied", "by": event.by, "reason": event.reason}
        self._tell(event.call.id, **facts).call = event.call

    def _call_held(self, event: CallHeld) -> None:
        """Record a call that waits; its end is not among the events of its reply."""
        self._tell(event.call.id, outcome="held", reason=", ".join(event.paths), server=event.host, tool=event.host_tool)
        raw, reading = event.call.raw, self._replies[-1].reading if self._replies else Reading()
        if any(call.call is None for call in reading.calls):
            reading.read(ToolCallEnd(raw=raw, span=(min(reading.end, raw.span[1]), raw.span[1]), call=event.call))

    def _asked_again(self, event: RetryAsked | AskedAgain) -> None:
        if self._replies:
            if isinstance(event, RetryAsked):
                facts: dict[str, Any] = {"refusal": event.refusal}
            else:
                facts = {"is_kept": False, "refusal": f"native_{event.why}" if event.in_text else ""}
            self._replies[-1].know(**facts)

    def _answered(self, event: Answer) -> None:
        if event.stop_reason in _REFUSALS and self._replies:
            self._replies[-1].know(refusal=event.stop_reason)
        self.end(event.stop_reason, answer=event.text)

    def _tell(self, call_id: str, **facts: Any) -> _Fact:
        self.version += 1
        fact = self._calls.setdefault(call_id, _Fact())
        fact.shown |= facts
        if self._replies:
            self._replies[-1].record = None
        return fact

    def _changed_all(self) -> None:
        self.version += 1
        for reply in self._replies:
            reply.record = None

    def _said_before(self, reply: ReplyUnderWay) -> SaidBefore:
        if reply.said is None:
            if self._catalog is None:
                self._catalog = self._tools if isinstance(self._tools, Catalog) else Catalog(self._tools)
            reply.said = SaidBefore(reply.prompt or reply.conversation, reply.conversation, self._catalog)
        return reply.said

    def _reply_record(self, reply: ReplyUnderWay) -> ReplyRecord:
        if reply.record is not None:
            return reply.record
        text = reply.text()
        reply.record = replace(
            reply.known,
            prompt=prompt_of(reply.prompt or reply.conversation),
            raw=text,
            spans=reply.reading.spans(len(text), is_whole=reply.counting is not None or self.is_over),
            repairs=reply.reading.marks(),
            calls=tuple(self._call_record(read, text, reply) for read in reply.reading.calls),
            reasoning="".join(reply.reading.reasoning),
            first_token_seconds=_between(reply.asked_at, reply.first_at),
            seconds=_between(reply.asked_at, reply.ended_at),
        )
        return reply.record

    def _call_record(self, read: ReadCall, text: str, reply: ReplyUnderWay) -> CallRecord:
        call = read.call
        if call is None:
            return call_record(read, text, None, is_over=reply.counting is not None or self.is_over)
        fact = self._calls.get(call.id)
        facts = dict(fact.shown) if fact is not None else {}
        if isinstance(call, InvalidCall):
            return call_record(read, text, None, **facts)
        said = self._said_before(reply) if read.values is None else None
        if fact is None and self._is_handed_over(call, read, reply):
            facts["outcome"] = "handed over"
        elif fact is not None and isinstance(fact.call, InvalidCall):
            read.call = replace(fact.call, raw=call.raw)  # the tool was removed in the meantime
        elif fact is not None and isinstance(fact.call, ToolCall):
            ran = fact.call.arguments
            is_other = ran is not call.arguments and repr(ran) != repr(call.arguments)  # Python treats 1 and true as equal
            facts |= {"ran_with": ran} if is_other else {}
        return call_record(read, text, said, **facts)

    def _is_handed_over(self, call: ToolCall, read: ReadCall, reply: ReplyUnderWay) -> bool:
        if not self.is_over or not reply.known.is_kept or read.is_left_out or call.id not in (reply.counting or ()):
            return False
        return self._known.source == "proxy" or self._known.outcome == "tool_calls"


def _between(begin: float, end: float | None) -> float | None:
    return None if end is None else end - begin


_TAKES: Final[dict[type, Callable[[TurnBuilder, Any], object]]] = {
    ReplyStarted: lambda turn, event: turn._begin(event.number),
    ReplyEnded: TurnBuilder._turn_ended,
    StepEnded: TurnBuilder._step_ended,
    CallStarted: TurnBuilder._call_started,
    CallFinished: TurnBuilder._call_finished,
    CallRejected: TurnBuilder._call_refused,
    CallDenied: TurnBuilder._call_refused,
    CallHeld: TurnBuilder._call_held,
    RetryAsked: TurnBuilder._asked_again,
    AskedAgain: TurnBuilder._asked_again,
    Answer: TurnBuilder._answered,
}

# -- the turns of a running program in bounded memory; watchers are notified when one changes --------------------------
# A turn is kept as its `TurnBuilder`, and a record is made on demand. The number of turns and their text are limited: the
# turns that ended first leave first, and running turns stay. One turn may have only a part of the text (`room`), so that an
# endless turn cannot displace all others. Everything runs in the thread of the event loop, except the file of finished turns.


MOST_TURNS: Final = 500
MOST_TEXT: Final = 64 * 1024 * 1024  # characters of all turns together: prompts, replies and results
SHARE: Final = 16  # one turn may have a sixteenth of the text
WATCH_SECONDS: Final = 0.2  # between two notifications of a watcher


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A turn and the size of its text; `tell` passes batched events to its builder."""

    builder: TurnBuilder
    text: int = 0
    tell: Callable[[], object] | None = None

    def up_to_date(self) -> TurnBuilder:
        if self.tell is not None:
            self.tell()
        return self.builder


class _Watcher:
    """Waits for changes; `ids` are the turns that have changed since the last notification."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.called = asyncio.Event()


class Recorder:
    """The turns of a running program; `keep` writes each that has finished, and no record has a `hidden` key."""

    def __init__(
        self,
        *,
        most_turns: int = MOST_TURNS,
        most_text: int = MOST_TEXT,
        keep: Callable[[TurnBuilder], None] | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self._most_turns, self._most_text = most_turns, most_text
        self._keep = keep
        self._hidden = tuple(sorted({key for key in hidden if key}, key=len, reverse=True))
        self._turns: dict[str, _Kept] = {}  # in the order of their beginnings
        self._finished: dict[str, None] = {}  # in the order of their ends
        self._text = 0
        self.watchers: list[_Watcher] = []  # while there are none, `changed` need not be called
        self._is_closed = False
        self.room = most_text // SHARE  # characters that one turn may have

    def begin(self, **facts: Any) -> TurnBuilder:
        """Begin a turn with facts for its `TurnBuilder`; id and source have defaults."""
        return self.add(TurnBuilder(**{"id": new_turn_id(), "source": "proxy", **facts}))

    def add(self, builder: TurnBuilder) -> TurnBuilder:
        """Add a turn that started elsewhere; it replaces one with the same id."""
        self._leave(builder.id)
        self._turns[builder.id] = _Kept(builder=builder)
        self.changed(builder)
        self._make_room()
        return builder

    def holds_back(self, builder: TurnBuilder, tell: Callable[[], object]) -> None:
        """Note that a running turn's events arrive in batches; `tell` passes on the current batch before the turn is read."""
        if kept := self._turns.get(builder.id):
            kept.tell = tell

    def changed(self, builder: TurnBuilder) -> None:
        """Notify the watchers."""
        for watcher in self.watchers:
            watcher.ids.add(builder.id)
            watcher.called.set()

    def grew(self, builder: TurnBuilder, text: int) -> int:
        """Count text of a turn, and return how much more it may have; finished turns leave if there is too much text."""
        if (kept := self._turns.get(builder.id)) is None:
            return 0
        kept.text += text
        self._text += text
        self._make_room()
        return min(self.room - kept.text, self._most_text - self._text)

    def done(self, builder: TurnBuilder) -> None:
        """Note that a turn has finished, and have it written."""
        if kept := self._turns.get(builder.id):
            self._finished[builder.id] = kept.tell = None
        self.changed(builder)
        self._make_room()
        if self._keep is not None:
            self._keep(builder)

    def turns(self) -> list[TurnBuilder]:
        """Return the turns, newest first."""
        return [kept.up_to_date() for kept in [*reversed(self._turns.values())]]  # a copy: others may be dropped meanwhile

    def find(self, id: str) -> TurnBuilder | None:
        kept = self._turns.get(id)
        return kept.up_to_date() if kept else None

    async def watch(self) -> AsyncGenerator[set[str]]:
        """Yield the ids of turns that changed since the last time, at most 5 times a second, until the recorder is closed."""
        watcher = _Watcher()
        self.watchers.append(watcher)
        try:
            while not self._is_closed:
                await watcher.called.wait()
                watcher.called.clear()
                if watcher.ids:
                    ids, watcher.ids = watcher.ids, set()
                    yield ids
                    await asyncio.sleep(0 if self._is_closed else WATCH_SECONDS)
        finally:
            self.watchers.remove(watcher)

    def hide(self, text: str) -> str:
        for key in self._hidden:
            text = text.replace(key, MASK)
        return text

    def close(self) -> None:
        """End the watchers, because a server that stops waits for its streams."""
        self._is_closed = True
        for watcher in self.watchers:
            watcher.called.set()

    def size(self) -> Mapping[str, int]:
        """Return how many turns are kept and how much text they have."""
        return {"turns": len(self._turns), "under way": len(self._turns) - len(self._finished), "text": self._text}

    def _make_room(self) -> None:
        """Drop finished turns, those that ended first first."""
        while self._finished and (len(self._turns) > self._most_turns or self._text > self._most_text):
            self._leave(next(iter(self._finished)))

    def _leave(self, id: str) -> None:
        if (kept := self._turns.pop(id, None)) is None:
            return
        self._finished.pop(id, None)
        self._text -= kept.text
        for watcher in self.watchers:  # a slow watcher would collect ids without end
            watcher.ids.discard(id)


def new_turn_id() -> str:
    """Make an id of a turn that cannot be guessed."""
    return f"turn_{secrets.token_hex(8)}"


# -- what goes over the wire -------------------------------------------------------------------------------------------


class RecordingBackend(Around, KeptOpen):
    """A backend whose prompts and pieces a listener receives first."""

    def __init__(self, backend: Backend, listener: TurnBuilder) -> None:
        super().__init__(backend)
        self._listener = listener

    def tries(self, request: CompletionRequest) -> Tries:
        self._listener.prompt(request.messages)
        tries = Tries(self._backend, request)
        tries.listeners = (self._hear,)
        return tries

    def _hear(self, chunk: Chunk) -> None:
        if chunk.text:
            self._listener.wrote(chunk.text)
