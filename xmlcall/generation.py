"""One reply: the backend's stream through the parser, stopped as soon as nothing useful can follow.

Once a block is finished (or a call without wrapper), only white space or another opener may follow. Anything else is the model
inventing results, so the stream is closed, which ends the generation on the server, and that text is neither shown nor kept. A
stop string would do this worse: it also fires inside values, in reasoning and between two blocks.

The kept text is the model's own, character by character, so that the next prompt starts with what the server has cached.

A reply that the server cut inside a call is continued where it can be: what was written so far goes back as the beginning of the
model's message, and what comes is read on by the same parser, as if there had been no cut.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from .backends.base import Backend
from .binding import bind
from .catalog import Catalog
from .completion import Chunk, CompletionRequest, PromptProgress, Usage
from .errors import BackendStatusError
from .events import Event, Markup, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart
from .parser import Parser
from .reply import reply_of
from .types import Message, RawCall, Reply, ToolCall

__all__ = ["Continued", "Generated", "generate", "generate_native"]


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
        reply: read and bound.
        text: what goes into the history.
        usage: the server's count.
        raw: all that came, also what nobody is shown.
        server_reasoning: what came in the server's own reasoning field.
    """

    reply: Reply
    text: str
    usage: Usage
    raw: str
    server_reasoning: str = ""


class _Watch:
    """Passes events on until nothing useful can follow.

    Args:
        parallel: whether a second call is wanted.
    """

    def __init__(self, *, parallel: bool) -> None:
        self.kept: list[Event] = []
        self.done = False
        self.end: int | None = None  # offset of the end of the last call or block
        self.inside = False  # a wrapper is open
        self.calling = False  # a call is open
        self._parallel = parallel
        self._finished = False
        self._waiting: list[Event] = []

    def pass_on(self, events: list[Event]) -> list[Event]:
        shown = [shown for event in events for shown in self._one(event)]
        self.kept += shown
        return shown

    def _one(self, event: Event) -> list[Event]:
        if self.done:
            return []
        if isinstance(event, ToolCallStart) and self.end is not None and not self._parallel:
            self.done = True
            return []
        if self._finished and not _may_follow(event):
            self.done = True
            return []
        self._note(event)
        if self._finished and isinstance(event, TextDelta):  # white space, perhaps before another block
            self._waiting.append(event)
            return []
        released, self._waiting = self._waiting, []
        return [*released, event]

    def _note(self, event: Event) -> None:
        match event:
            case Markup(kind="block_open"):
                self.inside, self._finished = True, False
            case ToolCallStart():
                self._finished, self.calling = False, True
            case ToolCallEnd(span=span):
                self.end, self._finished, self.calling = span[1], not self.inside, False
            case Markup(kind="block_close" | "fence" | "stray", span=span) if self.end is not None:
                self.end, self.inside, self._finished = span[1], False, True


def _may_follow(event: Event) -> bool:
    if isinstance(event, TextDelta):
        return not event.text.strip()
    return isinstance(event, (Markup, ToolCallStart, Repaired))


async def generate(
    backend: Backend,
    request: CompletionRequest,
    catalog: Catalog,
    *,
    parallel: bool = True,
    continuations: int = 0,
    prefix: str = "",
) -> AsyncGenerator[Event | Continued | PromptProgress | Generated]:
    """Generate a reply in which calls are text.

    Args:
        backend: open.
        request: the conversation.
        catalog: what was offered.
        parallel: whether a block may hold several calls; if not, the reply ends before the second.
        continuations: how often a reply that was cut inside a call is continued, if the backend can.
        prefix: how the reply begins, written for the model; only for a backend that continues.

    Yields:
        The progress of the prompt, where the server tells it, the parser's events as they come, then one Generated.

    Raises:
        BackendError: from the stream.
    """
    parser = Parser(catalog, reasoning_open=backend.capabilities.reasoning_open)
    watch, last, usage, text, reasoning = _Watch(parallel=parallel), Chunk(), Usage(), prefix, ""
    for event in watch.pass_on(parser.feed(prefix)):
        yield event
    left = continuations if backend.capabilities.continues else 0
    for count in range(left + 1):
        if count:
            yield Continued(count=count)
        last, begun = Chunk(), len(text)
        async with aclosing(_stream(backend, request, text, is_rest=count > 0)) as stream:
            async for chunk in stream:
                last = _merge(last, chunk)
                if chunk.progress:
                    yield chunk.progress
                if chunk.reasoning:
                    reasoning += chunk.reasoning
                    yield ReasoningDelta(text=chunk.reasoning, span=(len(text), len(text)))
                text += chunk.text
                for event in watch.pass_on(parser.feed(chunk.text)):
                    yield event
                if watch.done:
                    break
        usage = usage + (last.usage or Usage())
        if watch.done or last.finish_reason != "length" or len(text) == begun or not (watch.calling or watch.inside):
            break
    finish_reason = "stop" if watch.done else last.finish_reason or "stop"
    if finish_reason == "stop" and request.stop and watch.calling:
        finish_reason = "length"  # one of the strings may have cut the call
    for event in watch.pass_on(parser.close(finish_reason)):
        yield event
    kept, events = _cut(text, watch)
    reply = reply_of(events, catalog, finish_reason=finish_reason)
    reply = replace(reply, reasoning=reasoning + reply.reasoning)
    yield Generated(reply=reply, text=kept, usage=usage, raw=text, server_reasoning=reasoning)


async def _stream(backend: Backend, request: CompletionRequest, begun: str, *, is_rest: bool) -> AsyncGenerator[Chunk]:
    """Stream a reply, or the rest of one; a server that refuses to go on (the context may be full) leaves it as cut as it was."""
    if begun:
        request = replace(request, messages=(*request.messages, Message(role="assistant", content=begun)))
    try:
        async with aclosing(backend.stream(request)) as stream:
            async for chunk in stream:
                yield chunk
    except BackendStatusError:
        if not is_rest:
            raise
        yield Chunk(finish_reason="length")


def _merge(last: Chunk, chunk: Chunk) -> Chunk:
    return Chunk(finish_reason=chunk.finish_reason or last.finish_reason, usage=chunk.usage or last.usage)


def _cut(text: str, watch: _Watch) -> tuple[str, list[Event]]:
    """Leave out what follows the last call; close a wrapper that was cut open, so that the history shows whole calls."""
    if watch.end is None:
        return text, watch.kept
    events = [event for event in watch.kept if not isinstance(event, TextDelta) or event.span[0] < watch.end]
    closed = text[: watch.end]
    return (f"{closed}\n</function_calls>" if watch.inside and watch.done else closed), events


async def generate_native(
    backend: Backend, request: CompletionRequest, catalog: Catalog
) -> AsyncGenerator[Event | PromptProgress | Generated]:
    """Generate a reply with the server's own function calling; its text is not read for calls.

    Args:
        backend: open.
        request: the conversation, with `tools`.
        catalog: what was offered.

    Yields:
        The progress of the prompt, where the server tells it, text and reasoning as they come, each call once, then one
        Generated.

    Raises:
        BackendError: from the stream.
    """
    last, text, reasoning, raws = Chunk(), "", "", list[RawCall]()
    async with aclosing(backend.stream(request)) as stream:
        async for chunk in stream:
            last = _merge(last, chunk)
            if chunk.progress:
                yield chunk.progress
            reasoning += chunk.reasoning
            if chunk.reasoning:
                yield ReasoningDelta(text=chunk.reasoning, span=(len(text), len(text)))
            if chunk.text:
                yield TextDelta(text=chunk.text, span=(len(text), len(text) + len(chunk.text)))
            text += chunk.text
            for raw in chunk.tool_calls:
                raws.append(raw)
                yield ToolCallStart(index=raw.index, name=raw.name, span=raw.span, dialect=raw.dialect)
                yield ToolCallEnd(raw=raw, span=raw.span)
    calls = tuple(bind(raw, catalog) for raw in raws)
    repairs = tuple(repair for call in calls if isinstance(call, ToolCall) for repair in call.repairs)
    reply = Reply(text=text, reasoning=reasoning, calls=calls, repairs=repairs, finish_reason=last.finish_reason or "stop")
    yield Generated(reply=reply, text=text, usage=last.usage or Usage(), raw=text, server_reasoning=reasoning)
