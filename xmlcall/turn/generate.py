"""Generates one reply: feeds the backend's stream to the parser, and stops it as soon as nothing useful can follow.

The stream is then closed, which ends the generation on the server. A stop string would do worse: it also fires inside values, in
reasoning and between two blocks. Endless repetition ends a reply, too (`repetition`); only the first occurrence is kept, because
a model that reads its own repetitions continues them. Otherwise the kept text is exactly what the model wrote, so that the next
prompt begins with what the server has cached.

A reply that the server cut inside a call is continued if the server supports that: the text so far goes back as the beginning of
the model's message, and the same parser reads on as if there had been no cut.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ..binding.bind import bind, without_unsaid
from ..binding.echo import Sources, echo_of
from ..binding.grounds import groundless_call
from ..dialects import DIALECTS
from ..dialects.write import block_closer, ends_with_calls
from ..errors import BackendError, BackendStatusError, ContextOverflow
from ..parsing.parser import Parser, call_meant, reply_of
from ..parsing.repetition import Runaway
from ..prompting.format import ENGLISH
from ..prompting.leaks import Leaks, Refusal, results_in
from ..prompting.system import tool_prompt
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Message, RawCall, Reply, Tool, ToolCall
from ..types.completion import Capabilities, Chunk, CompletionRequest, Usage, UsageCount
from ..types.events import CallInReasoning, Event, Markup, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart
from .machine import ENOUGH, Ask, Ended, Kind, Script

# -- where a reply ends ------------------------------------------------------------------------------------------------
# Once a block is finished (or a call without wrapper), only white space or another opener may follow. Anything else means that
# the model invents results; that text is neither shown nor kept. If a format allows one block per reply, nothing may follow
# the block, because small models then call every tool that was described (docs/decisions/loop.md). The reply also ends where
# `leaks.py` ends it.
#
# A call that needs the result of an earlier call (`waiting.py`) ends the reply as well. It is not kept, because its values are
# invented and a model repeats what its history shows. The values of calls after it would be invented too, or depend on what it
# does.


Waits = Callable[[ToolCall, Sequence[ToolCall]], tuple[str, ...]]
"""Takes a call and the earlier calls of its reply; returns the JSON paths of the values it waits for, none if it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A call that needs the result of an earlier call in the same reply."""

    call: ToolCall
    paths: tuple[str, ...]


class Watch:
    """Passes events on until nothing useful can follow."""

    def __init__(self, *, parallel: bool, leaks: Leaks, one_tool: bool = False, waits: Waits | None = None) -> None:
        self.kept: list[Event] = []
        self.done = False
        self.end: int | None = None  # offset of the end of the last call or block
        self.inside = False  # a wrapper is open
        self.calling = False  # a call is open
        self.leaks = leaks
        self.held: Held | None = None  # the call that has to wait, if such a call ended the reply
        self._parallel = parallel
        self._one_tool = one_tool
        self._first_name = ""
        self._waits = waits  # says for which values a later call has to wait
        self._ready: list[ToolCall] = []
        self._finished = False
        self._one_block = False  # the last call was written in a format with one block a reply
        self._no_more_calls = False  # such a block is closed
        self._waiting: list[Event] = []

    def pass_on(self, events: list[Event]) -> list[Event]:
        """Process events of the parser; return those to show."""
        if self.held:
            return []
        shown: list[Event] = []
        for event in events:
            for passed in self._one(event):
                shown += self.leaks.pass_on(passed)
            self.done = self.done or self.leaks.stopped
        self.kept += shown
        if self.held:
            self._leave_out_open_call()
        return shown

    def close(self, events: list[Event]) -> list[Event]:
        """Process the last events of a reply; return those to show."""
        shown = [*self.pass_on(events), *(rest := self.leaks.close())]
        self.kept += rest
        return shown

    def _one(self, event: Event) -> list[Event]:
        if self.done:
            return []
        if isinstance(event, ToolCallStart) and self.end is not None and not self._may_call(event.name):
            self.done = True
            return []
        if self._finished and not _may_follow(event, calls=not self._no_more_calls):
            self.done = True
            return []
        if isinstance(event, ToolCallEnd) and isinstance(event.call, ToolCall) and self._holds(event.call):
            return []
        self._note(event)
        if self._finished and isinstance(event, TextDelta):  # white space, perhaps before another block
            self._waiting.append(event)
            return []
        released, self._waiting = self._waiting, []
        return [*released, event]

    def _may_call(self, name: str) -> bool:
        """Say whether another call, of this tool, may follow."""
        return self._parallel and (not self._one_tool or name == self._first_name)

    def _holds(self, call: ToolCall) -> bool:
        """End the reply if a call has to wait; the first call never does."""
        if self._waits and self._ready and (paths := self._waits(call, self._ready)):
            self.held, self.done = Held(call=call, paths=paths), True
            return True
        self._ready.append(call)
        return False

    def _leave_out_open_call(self) -> None:
        """Drop the beginning of the call that has to wait."""
        starts = [place for place, event in enumerate(self.kept) if isinstance(event, ToolCallStart)]
        ends = [place for place, event in enumerate(self.kept) if isinstance(event, ToolCallEnd)]
        del self.kept[next(place for place in starts if place > ends[-1]) :]

    def _note(self, event: Event) -> None:
        match event:
            case Markup(kind="block_open"):
                self.inside, self._finished = True, False
            case ToolCallStart(name=name):
                self._finished, self.calling = False, True
                self._first_name = self._first_name or name
            case ToolCallEnd(span=span, raw=raw):
                row = DIALECTS.get(raw.dialect)
                self.inside = self.inside and not (row and ends_with_calls(row))
                self.end, self._finished, self.calling = span[1], not self.inside, False
                self._one_block = row is not None and row.one_block
            case Markup(kind="block_close" | "fence" | "stray", span=span) if self.end is not None:
                self.end, self.inside, self._finished = span[1], False, True
                self._no_more_calls = self._no_more_calls or (event.kind == "block_close" and self._one_block)


def _may_follow(event: Event, *, calls: bool) -> bool:
    if isinstance(event, TextDelta):
        return not event.text.strip()
    if calls:
        return isinstance(event, (Markup, ToolCallStart, Repaired))
    return isinstance(event, Markup) and event.kind != "block_open"


def text_until(events: list[Event], end: int) -> list[Event]:
    """Drop text after an offset."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta)) and event.span[1] > end:
            start = event.span[0]
            kept += [replace(event, text=event.text[: end - start], span=(start, end))] if start < end else []
        else:
            kept.append(event)
    return kept


# -- one reply ---------------------------------------------------------------------------------------------------------


NewId = Callable[[], str]


def numbered_ids(prefix: str = "call") -> NewId:
    """Return a function that makes the ids `call_1`, `call_2` and so on."""
    count = itertools.count(1)
    return lambda: f"{prefix}_{next(count)}"


Lost = Literal["", "empty", "unread", "failed"]
"""Why a reply by the server's own function calling came to nothing: it was empty, the server could not read it, or failed."""

REPETITION: Final = "repetition"
"""The finish reason of a reply that was ended because it repeated itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """A reply was cut inside a call, and the model was asked to continue it.

    Args:
        count: how often this reply was continued, from 1.
    """

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A finished reply."""

    reply: Reply
    text: str
    usage: Usage
    raw: str
    server_reasoning: str = ""
    calls_in_text: bool = True  # whether the calls are in `text` rather than in a separate field
    refusal: Refusal = ""  # why the reply is no answer, if it is none and has no calls
    # Whether the server refused the given beginning of the reply, so that the reply was requested without it.
    fell_back: bool = False
    # The call that ended the reply because it needs the result of an earlier call; it is not in the reply.
    held: Held | None = None
    lost: Lost = ""  # why the reply came to nothing, if it has to be asked for in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Binds each call once, when it ends; the bound call travels in the event."""

    catalog: Catalog
    sources: Sources | None = None  # texts by others that a call must not be copied from; None if copies count as calls
    unsaid: str = ""  # the word that the prompt asks for if the request does not mention a parameter; "" if it asks for none
    waits: Waits | None = None  # says for which values a later call has to wait; None if no call has to
    # Says which parameters of a call have values that appear nowhere in the conversation; None to skip the check.
    unspoken: Callable[[ToolCall], Sequence[str]] | None = None
    new_id: NewId = field(default_factory=numbered_ids)  # makes the ids of calls, which have to be unique in a conversation

    def bound(self, events: Iterable[Event]) -> list[Event]:
        """Bind the call of each event, and give it an id that is unique in the conversation."""
        return [replace(event, call=self._bind(event.raw)) if isinstance(event, ToolCallEnd) else event for event in events]

    def anew(self, call: ToolCall) -> ToolCall | InvalidCall:
        """Bind a call again, with this catalog's version of its tool."""
        return replace(self._fitted(call.raw), id=call.id)

    def _fitted(self, raw: RawCall) -> ToolCall | InvalidCall:
        return replace(bind(without_unsaid(raw, self.catalog, self.unsaid), self.catalog), raw=raw)

    def _bind(self, raw: RawCall) -> ToolCall | InvalidCall:
        call = self._fitted(raw)
        copied = None if self.sources is None else echo_of(call, self.catalog, self.sources)
        if copied is None and isinstance(call, ToolCall) and self.unspoken and (names := self.unspoken(call)):
            return replace(groundless_call(call, names), id=self.new_id())
        return replace(copied or call, id=self.new_id())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """How a reply is requested and read."""

    server: Capabilities
    parallel: bool = True  # whether a block may contain several calls; if not, the reply ends before the second
    one_tool: bool = False
    continuations: int = 0  # how often a reply that was cut inside a call is continued, if the server supports that
    kind: Kind = "reply"  # see `Ask`
    falls_back: bool = False  # whether the request is made again without its beginning or constraint if the server refuses that


def generate(request: CompletionRequest, binder: Binder, how: ReplyOptions, *, prefix: str = "") -> Script[Generated]:
    """Generate a reply in which calls are text, from its given beginning if the server can continue a message.

    Yields the parser's events as they come; those of the beginning once the server has accepted it.
    """
    reading = ReplyReader(binder, request, how.server, parallel=how.parallel, one_tool=how.one_tool)
    begun = reading.feed(prefix)
    usage, reasoning = Usage(), ""
    for count in range((how.continuations if how.server.continues else 0) + 1):
        if count:
            yield Continued(count=count)
        length = len(reading.text)
        last, thoughts = yield from _stream(_ask(request, reading.text, how, count), reading, begun, how)
        begun, reasoning, usage = [], reasoning + thoughts, usage + (last.usage or Usage())
        if reading.done or last.finish_reason != "length" or len(reading.text) == length or not reading.in_block:
            break
    yield from reading.close(last.finish_reason or "stop")
    lost, generated = reading.finished(reasoning, usage)
    if lost:
        yield lost
    return generated


def _ask(request: CompletionRequest, text: str, how: ReplyOptions, count: int) -> Ask:
    if text:
        request = replace(request, messages=(*request.messages, Message(role="assistant", content=text)))
    return Ask(request=request, kind="rest" if count else how.kind)


def _stream(ask: Ask, reading: "ReplyReader", begun: list[Event], how: ReplyOptions) -> Script[tuple[Ended, str]]:
    """Read a stream to its end, or until nothing useful can follow; return how it ended, and the reasoning in it."""
    finish_reason, used, thoughts, has_come = None, UsageCount(), "", False
    try:
        while not isinstance(came := (yield ask), Ended):
            finish_reason = came.finish_reason or finish_reason
            used.take(came)
            if came.progress:
                yield came.progress
            if came.text or came.reasoning:
                yield from () if has_come else begun
                has_come = True
            if came.reasoning:
                thoughts += came.reasoning
                yield ReasoningDelta(text=came.reasoning, span=(len(reading.text), len(reading.text)))
            yield from reading.feed(came.text, came.reasoning)
            if reading.done:
                yield ENOUGH
    except BackendStatusError as error:
        if ask.kind == "rest":  # the server refuses to continue, perhaps because the context is full: the reply stays cut
            return Ended(finish_reason="length", usage=used.usage), thoughts
        if how.falls_back and not has_come and (ask.kind == "forced" or is_refused_beginning(error)):
            raise NotTaken(str(error)) from error
        raise
    yield from () if has_come else begun
    used.take(Chunk(usage=came.usage))
    return Ended(finish_reason=finish_reason or came.finish_reason, usage=used.usage), thoughts


class NotTaken(Exception):
    """The server refused a request with an extra (a beginning, a constraint) before any output; it can be repeated without it."""


def lost_call(reply: Reply, reasoning: str, catalog: Catalog, end: int) -> CallInReasoning | None:
    """Return an event if a model called a tool only in its reasoning, which the server keeps in a separate field."""
    name = "" if reply.calls or reply.text.strip() or not reasoning else call_meant(reasoning, catalog)
    return CallInReasoning(name=name, span=(end, end)) if name else None


class ReplyReader:
    """Reads one reply: parses it, binds its calls, and notices when nothing useful can follow."""

    def __init__(
        self,
        binder: Binder,
        request: CompletionRequest,
        server: Capabilities,
        *,
        parallel: bool = True,
        one_tool: bool = False,
        dialect: str = "auto",
    ) -> None:
        self._pieces = [""]  # joined on demand: appending each to a string would take quadratic time
        self._binder = binder
        self._parser = Parser(binder.catalog, dialect=dialect, reasoning_open=server.reasoning_open)
        leaks = Leaks(results_in(request.messages))
        self._watch = Watch(parallel=parallel, one_tool=one_tool, leaks=leaks, waits=binder.waits)
        self._repeats, self._thinks_again = Runaway(), Runaway()
        self._may_cut_calls = bool(request.stop)
        self._finish_reason = "stop"

    @property
    def text(self) -> str:
        """The output so far, except reasoning in the server's separate field."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def done(self) -> bool:
        """Whether nothing useful can follow."""
        return self._watch.done or self._is_runaway

    @property
    def in_block(self) -> bool:
        """Whether a call or a wrapper is open."""
        return self._watch.calling or self._watch.inside or self._parser.in_call

    @property
    def _is_runaway(self) -> bool:
        return self._repeats.end is not None or self._thinks_again.end is not None

    def feed(self, text: str, reasoning: str = "") -> list[Event]:
        """Read more; ignore what follows a repetition, so that the result does not depend on the chunks."""
        self._thinks_again.feed(reasoning)
        self._repeats.feed(text)
        end = self._repeats.end
        read = text if end is None else text[: max(end - len(self.text), 0)]
        self._pieces.append(text)
        return self._watch.pass_on(self._binder.bound(self._parser.feed(read)))

    def close(self, finish_reason: str) -> list[Event]:
        """Read the end; the parser's last events and the reply say why it ended."""
        watch = self._watch
        if self._repeats.end is not None and self._repeats.start + self._repeats.period <= (watch.end or 0):
            watch.done = True  # whole calls were repeated; the call that is open is one more repetition
        if watch.done:
            finish_reason = "stop"
        elif self._is_runaway:
            finish_reason = REPETITION
        elif finish_reason == "stop" and self._may_cut_calls and watch.calling:
            finish_reason = "length"  # a stop string may have cut the call
        self._finish_reason = finish_reason
        return watch.close(self._binder.bound(self._parser.close(finish_reason)))

    def finished(self, reasoning: str, usage: Usage) -> tuple[CallInReasoning | None, Generated]:
        """Return an event if a call was lost in the reasoning, and the finished reply; to be called after `close`."""
        watch = self._watch
        end, events = self._repeats_cut() if self._repeats.end is not None else self._cut()
        text = watch.leaks.kept(self.text, end)
        if watch.done and watch.end is not None and (closer := self._open_wrapper(events, end)):
            text += closer
        reply = reply_of(events, self._binder.catalog, finish_reason=self._finish_reason)
        found = watch.leaks.found
        is_answer = reply.calls or (found != "invented_results" and reply.text.strip())
        lost = lost_call(reply, reasoning, self._binder.catalog, len(self.text))
        return lost, Generated(
            reply=replace(reply, reasoning=reasoning + reply.reasoning),
            text=text,
            usage=usage,
            raw=self.text,
            server_reasoning=reasoning,
            refusal="" if is_answer else found,
            held=watch.held,
        )

    def _open_wrapper(self, events: list[Event], end: int) -> str:
        """Return the text that closes the wrapper left open at the end of the kept text; "" if none is open."""
        markup = (event for event in events if isinstance(event, Markup) and event.span[1] <= end)
        blocks = [event for event in markup if event.kind in ("block_open", "block_close")]
        calls = [event.raw.dialect for event in events if isinstance(event, ToolCallEnd)]
        if not calls or not blocks or blocks[-1].kind == "block_close":
            return ""
        return block_closer(calls[-1], self.text[slice(*blocks[-1].span)])

    def _cut(self) -> tuple[int, list[Event]]:
        """Return where the kept text ends, and the events up to there: nothing follows the last call."""
        end = self._watch.end
        return (len(self.text), self._watch.kept) if end is None else (end, text_until(self._watch.kept, end))

    def _repeats_cut(self) -> tuple[int, list[Event]]:
        """Return the same for a text that repeats itself: a repeated call is kept once, and so is repeated text."""
        events, once = self._watch.kept, self._repeats.start + self._repeats.period
        ends = [event.span[1] for event in events if isinstance(event, ToolCallEnd) and event.span[1] >= once]
        if self._watch.done and ends:
            return ends[0], [event for event in events if event.span[1] <= ends[0]]
        line_end = self.text.find("\n", once - 1, once + self._repeats.period)  # the repeated unit may end in a line break
        end = min(once if line_end < 0 else line_end, self._watch.end or len(self.text))
        return end, text_until(events, end)


def generate_begun(
    request: CompletionRequest, begun: str, otherwise: CompletionRequest, binder: Binder, how: ReplyOptions
) -> Script[Generated]:
    """Generate a reply with a given beginning; without it, from `otherwise`, if the server refuses.

    Some templates allow no last message of role `assistant`, so `otherwise` has none.
    """
    try:
        return (yield from generate(request, binder, replace(how, falls_back=True), prefix=begun))
    except NotTaken:
        return replace((yield from generate(otherwise, binder, how)), fell_back=True)


def is_refused_beginning(error: BackendError) -> bool:
    """Say whether a server may have refused the beginning of a reply; some answer 500 if the template raises."""
    return isinstance(error, BackendStatusError) and not isinstance(error, ContextOverflow) and 400 <= error.status_code <= 500


@functools.cache
def prepare() -> None:
    """Compile what the first reply with tools needs: templates, and the patterns of all formats. It takes some 0.5 s, once."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    catalog = Catalog([Tool(name="example", description="", input_schema=schema)])
    reader = ReplyReader(Binder(catalog=catalog), CompletionRequest(messages=()), Capabilities(server=""))
    reader.feed(tool_prompt(catalog, ENGLISH))
