"""One reply: the backend's stream through the parser, stopped as soon as nothing useful can follow.

Once a block is finished (or a call without wrapper), only white space or another opener may follow; in a format with one block a
reply, no opener either. Anything else is the model inventing results, so the stream is closed, which ends the generation on the
server, and that text is neither shown nor kept. A stop string would do this worse: it also fires inside values, in reasoning and
between two blocks.

Two more things end a reply: the frame of results, which the model must not write (`leaks.py`), and a repetition without end
(`repetition.py`), of which the first time is kept: a model that reads its own repetitions goes on with them.

The rest of the kept text is the model's own, character by character, so that the next prompt starts with what the server has
cached.

A reply that the server cut inside a call is continued where it can be: what was written so far goes back as the beginning of the
model's message, and what comes is read on by the same parser, as if there had been no cut.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..binding.bind import bind, without_unsaid
from ..binding.echo import Sources, echo_of
from ..binding.grounds import groundless_call
from ..dialects.write import block_closer
from ..errors import BackendError, BackendStatusError, ContextOverflow
from ..parsing.parser import Parser, call_meant
from ..parsing.repetition import Runaway
from ..parsing.reply import reply_of
from ..prompting.leaks import Leaks, Refusal, results_in
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Message, RawCall, Reply, ToolCall
from ..types.completion import Capabilities, CompletionRequest, Usage, UsageCount
from ..types.events import CallInReasoning, Event, Markup, ReasoningDelta, ToolCallEnd
from .machine import ENOUGH, Ask, Ended, Kind, Script
from .reply_end import Held, Waits, Watch, text_until

__all__ = [
    "REPETITION",
    "Binder",
    "Continued",
    "Generated",
    "NotTaken",
    "ReplyOptions",
    "ReplyReader",
    "generate",
    "generate_begun",
    "is_refused_beginning",
    "lost_call",
    "numbered_ids",
]

NewId = Callable[[], str]

REPETITION: Final = "repetition"
"""The finish reason of a reply that was ended because it repeated itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """A reply was cut inside a call, and the model was asked to go on with it.

    Args:
        count: how often this reply was continued, from 1.
    """

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A finished reply.

    Args:
        calls_in_text: the calls stand in `text`, and not in a field of their own.
        refusal: why the reply is no answer, if it is none and calls nothing.
        fell_back: the server refused the beginning that was written for the model, and the reply was asked for otherwise.
        held: the call that ended the reply, because it waits for the result of one before it; it is not in the reply.
    """

    reply: Reply
    text: str
    usage: Usage
    raw: str
    server_reasoning: str = ""
    calls_in_text: bool = True
    refusal: Refusal = ""
    fell_back: bool = False
    held: Held | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Binds each call once, when it ends; the bound call travels in the event.

    Args:
        sources: texts by others, from which a call must not be copied; None if copies count as calls.
        unsaid: the word that the prompt asks for where the request says nothing of a parameter; "" if it asks for none.
        waits: says for which values a call behind another has to wait; None if none has to.
        unspoken: says which parameters of a call have values that nobody said; None if that does not matter.
        new_id: makes the ids of calls; they have to be unique in a conversation.
    """

    catalog: Catalog
    sources: Sources | None = None
    unsaid: str = ""
    waits: Waits | None = None
    unspoken: Callable[[ToolCall], Sequence[str]] | None = None
    new_id: NewId = field(default_factory=lambda: numbered_ids())

    def bound(self, events: Iterable[Event]) -> list[Event]:
        """Return events with each call bound, under an id that is unique in the conversation."""
        return [replace(event, call=self._call(event.raw)) if isinstance(event, ToolCallEnd) else event for event in events]

    def anew(self, call: ToolCall) -> ToolCall | InvalidCall:
        """Return a call as another catalog has its tool."""
        return replace(self._fitted(call.raw), id=call.id)

    def _fitted(self, raw: RawCall) -> ToolCall | InvalidCall:
        return replace(bind(without_unsaid(raw, self.catalog, self.unsaid), self.catalog), raw=raw)

    def _call(self, raw: RawCall) -> ToolCall | InvalidCall:
        call = self._fitted(raw)
        copied = None if self.sources is None else echo_of(call, self.catalog, self.sources)
        if copied is None and isinstance(call, ToolCall) and self.unspoken and (names := self.unspoken(call)):
            return replace(groundless_call(call, names), id=self.new_id())
        return replace(copied or call, id=self.new_id())


def numbered_ids(prefix: str = "call") -> NewId:
    """Return what makes ids `call_1`, `call_2` and so on, for whoever needs no others than these."""
    count = itertools.count(1)
    return lambda: f"{prefix}_{next(count)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """How a reply is asked for and read.

    Args:
        parallel: whether a block may hold several calls; if not, the reply ends before the second.
        continuations: how often a reply that was cut inside a call is continued, if the server can.
    """

    server: Capabilities
    parallel: bool = True
    one_tool: bool = False
    continuations: int = 0
    kind: Kind = "reply"
    falls_back: bool = False


def generate(request: CompletionRequest, binder: Binder, how: ReplyOptions, *, prefix: str = "") -> Script[Generated]:
    """Generate a reply in which calls are text.

    Args:
        prefix: how the reply begins, written for the model; only for a server that continues.

    Yields:
        The progress of the prompt, where the server tells it, and the parser's events as they come; those of the prefix once the
        server has taken it.
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
        if reading.done or last.finish_reason != "length" or len(reading.text) == length or not reading.calling:
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
    """Read a stream to its end, or until nothing useful can follow; return what it said of its end, and the thoughts in it."""
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
        if ask.kind == "rest":  # it refuses to go on, the context may be full: the reply is as cut as it was
            return Ended(finish_reason="length", usage=used.usage), thoughts
        if how.falls_back and not has_come and (ask.kind == "forced" or is_refused_beginning(error)):
            raise NotTaken(str(error)) from error
        raise
    yield from () if has_come else begun
    return Ended(finish_reason=finish_reason or came.finish_reason, usage=used.usage or came.usage), thoughts


class NotTaken(Exception):
    """The server did not take a request that asks for more than a reply; nothing has come, and it can be made without that."""


def lost_call(reply: Reply, reasoning: str, catalog: Catalog, end: int) -> CallInReasoning | None:
    """Return that a model called a tool in its thinking alone, which a server keeps in a field of its own.

    Args:
        reply: its text and calls; with any of them, the thinking has ended.
    """
    name = "" if reply.calls or reply.text.strip() or not reasoning else call_meant(reasoning, catalog)
    return CallInReasoning(name=name, span=(end, end)) if name else None


class ReplyReader:
    """A reply while it is read."""

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
        self._pieces = [""]  # joined when all is asked for: to add each to a text is quadratic in its length
        self._binder = binder
        self._parser = Parser(binder.catalog, dialect=dialect, reasoning_open=server.reasoning_open)
        leaks = Leaks(results_in(request.messages))
        self._watch = Watch(parallel=parallel, one_tool=one_tool, leaks=leaks, waits=binder.waits)
        self._repeats, self._thinks_again = Runaway(), Runaway()
        self._may_cut_calls = bool(request.stop)
        self._finish_reason = "stop"

    @property
    def text(self) -> str:
        """All that came, but reasoning in the server's own field."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def done(self) -> bool:
        """Whether nothing useful can follow."""
        return self._watch.done or self._is_runaway

    @property
    def calling(self) -> bool:
        """Whether a call or a wrapper is open."""
        return self._watch.calling or self._watch.inside or self._parser.in_call

    @property
    def _is_runaway(self) -> bool:
        return self._repeats.end is not None or self._thinks_again.end is not None

    def feed(self, text: str, reasoning: str = "") -> list[Event]:
        """Read more; what follows a repetition is not read, so that it is the same in whatever chunks it comes."""
        self._thinks_again.feed(reasoning)
        self._repeats.feed(text)
        end = self._repeats.end
        read = text if end is None else text[: max(end - len(self.text), 0)]
        self._pieces.append(text)
        return self._watch.pass_on(self._binder.bound(self._parser.feed(read)))

    def close(self, finish_reason: str) -> list[Event]:
        """Read the end: why there is none is told by the parser's last events, and by the reply."""
        watch = self._watch
        if self._repeats.end is not None and self._repeats.start + self._repeats.period <= (watch.end or 0):
            watch.done = True  # whole calls came again and again; the one that is open is one more of them
        if watch.done:
            finish_reason = "stop"
        elif self._is_runaway:
            finish_reason = REPETITION
        elif finish_reason == "stop" and self._may_cut_calls and watch.calling:
            finish_reason = "length"  # one of the strings may have cut the call
        self._finish_reason = finish_reason
        return watch.close(self._binder.bound(self._parser.close(finish_reason)))

    def finished(self, reasoning: str, usage: Usage) -> tuple[CallInReasoning | None, Generated]:
        """Return a call that was lost in its thinking, and what came of it; to be called at its end."""
        generated = self._generated()
        lost = lost_call(generated.reply, reasoning, self._binder.catalog, len(self.text))
        reply = replace(generated.reply, reasoning=reasoning + generated.reply.reasoning)
        return lost, replace(generated, reply=reply, usage=usage, server_reasoning=reasoning)

    def _generated(self) -> Generated:
        watch = self._watch
        end, events = self._repeats_cut() if self._repeats.end is not None else self._cut()
        text = watch.leaks.kept(self.text, end)
        if watch.done and watch.end is not None and (closer := self._open_wrapper(events, end)):
            text += closer
        reply = reply_of(events, self._binder.catalog, finish_reason=self._finish_reason)
        found = watch.leaks.found
        is_answer = reply.calls or (found != "invented_results" and reply.text.strip())
        return Generated(
            reply=reply, text=text, usage=Usage(), raw=self.text, refusal="" if is_answer else found, held=watch.held
        )

    def _open_wrapper(self, events: list[Event], end: int) -> str:
        """Return what closes the wrapper which is open where the kept text ends; "" if none is."""
        markup = (event for event in events if isinstance(event, Markup) and event.span[1] <= end)
        blocks = [event for event in markup if event.kind in ("block_open", "block_close")]
        calls = [event.raw.dialect for event in events if isinstance(event, ToolCallEnd)]
        if not calls or not blocks or blocks[-1].kind == "block_close":
            return ""
        return block_closer(calls[-1], self.text[slice(*blocks[-1].span)])

    def _cut(self) -> tuple[int, list[Event]]:
        """Return where the kept text ends and the events until there: nothing follows the last call."""
        end = self._watch.end
        return (len(self.text), self._watch.kept) if end is None else (end, text_until(self._watch.kept, end))

    def _repeats_cut(self) -> tuple[int, list[Event]]:
        """Return the same for a text that repeats itself: a call that came again and again is kept once, and so is text."""
        events, once = self._watch.kept, self._repeats.start + self._repeats.period
        ends = [event.span[1] for event in events if isinstance(event, ToolCallEnd) and event.span[1] >= once]
        if self._watch.done and ends:
            return ends[0], [event for event in events if event.span[1] <= ends[0]]
        line_end = self.text.find("\n", once - 1, once + self._repeats.period)  # a unit may end a line
        end = min(once if line_end < 0 else line_end, self._watch.end or len(self.text))
        return end, text_until(events, end)


def generate_begun(
    request: CompletionRequest, begun: str, otherwise: CompletionRequest, binder: Binder, how: ReplyOptions
) -> Script[Generated]:
    """Generate a reply whose beginning is written for the model; as asked for otherwise where the server refuses that.

    Args:
        request: the conversation, for a server that continues a last message of the model's own.
        otherwise: the conversation for a server that refuses: some templates allow no such message.
    """
    try:
        return (yield from generate(request, binder, replace(how, falls_back=True), prefix=begun))
    except NotTaken:
        generated = yield from generate(otherwise, binder, how)
        return replace(generated, fell_back=True)


def is_refused_beginning(error: BackendError) -> bool:
    """Say whether a server may have refused the beginning of a reply.

    Args:
        error: with which a request failed that had one. Where a template raises, some servers say 500.
    """
    return isinstance(error, BackendStatusError) and not isinstance(error, ContextOverflow) and 400 <= error.status_code <= 500
