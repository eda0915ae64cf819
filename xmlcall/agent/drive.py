"""Drives a machine: performs its actions with a backend, and runs its calls if there are any.

This is the only place where a turn meets an event loop. `Scores` caches answers that depend only on the model and the request:
how the model begins a reply to our own messages, from which thresholds and habits are derived. `completed` asks
for a reply outside a turn, because a tool server wants one.
"""

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from ..backends.base import Backend, Tries, chunks_of, tries_of
from ..errors import BackendError, BackendStatusError
from ..hosts.mcp.server_requests import SampleReply, SampleRequest
from ..turn.generate import prepare
from ..turn.machine import Ask, FirstToken, Machine, Run, Score
from ..types.completion import Chunk, CompletionRequest, FinishReason, Usage

KEPT: Final = 500  # answers
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501})  # statuses that mean that the server can never answer this


def new_id() -> str:
    """Make an id of a call: `call_` and 24 letters and digits, as OpenAI's are."""
    return f"call_{secrets.token_hex(12)}"


def prepare_beside(stack: AsyncExitStack) -> None:
    """Compile what a program's first reply needs in a thread, while servers and models open; the stack waits for its end."""
    if not prepare.cache_info().currsize:
        stack.push_async_callback(asyncio.wait, [asyncio.create_task(asyncio.to_thread(prepare))])


class Scores:
    """A cache of the first tokens of one model's replies, for each `Score` that may be kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, FirstToken | BackendStatusError] = OrderedDict()
        self._asking = asyncio.Lock()  # conversations that begin at the same time ask the same questions

    async def ask(self, backend: Backend, score: Score) -> list[FirstToken]:
        if not score.keep:
            return [await first_token(backend, request) for request in score.requests]
        async with self._asking:
            return [await self._known(backend, request) for request in score.requests]

    async def _known(self, backend: Backend, request: CompletionRequest) -> FirstToken:
        said = [(message.role, message.content) for message in request.messages]
        key = json.dumps([said, dict(request.extra)], default=str)
        if key in self._kept:
            self._kept.move_to_end(key)
            if isinstance(known := self._kept[key], BackendStatusError):
                raise known.with_traceback(None)  # else the traceback grows each time
            return known
        try:
            token = await first_token(backend, request)
            self._kept[key] = replace(token, usage=Usage())
            return token
        except BackendStatusError as error:
            if error.status_code in _REFUSED:  # others may be temporary
                self._kept[key] = error
            raise
        finally:
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


async def first_token(backend: Backend, request: CompletionRequest) -> FirstToken:
    """Ask a model for one token."""
    token = FirstToken()
    async with aclosing(chunks_of(tries_of(backend, request))) as chunks:
        async for chunk in chunks:
            token = token.after(chunk)
            if token.lacks_candidates:
                break
    return token


T = TypeVar("T")
_END: Final = object()  # after the last event
RunCall = Callable[[Run], AsyncGenerator[Any]]


async def drive(
    machine: Machine[Any],
    backend: Backend,
    *,
    scores: Scores | None = None,
    run: RunCall | None = None,
    hear: Callable[[Iterator[Any]], Iterable[Any]] = iter,
) -> AsyncGenerator[Any]:
    """Perform a machine's actions until it has ended; closing this generator closes the backend's stream at once.

    Args:
        run: runs a call, and yields its events, the end last; None if there are no calls.
        hear: receives the events that follow from each input but a piece of a reply, and passes them on.
    """
    scores, events = scores or Scores(), machine.events()
    while True:
        events = iter(hear(events))
        while (event := await _next(machine, events)) is not _END:
            yield event
        match machine.action:
            case Score() as score:
                try:
                    events = machine.scored(await scores.ask(backend, score))
                except BackendError as error:
                    events = machine.refuse(error)
            case Ask(request=request):
                reply = _Reply(machine, tries_of(backend, request))
                while reply.is_due:
                    async with reply.opened() as chunks:
                        async for chunk in chunks:
                            events = reply.receive(chunk)
                            while (event := await _next(machine, events)) is not _END:
                                yield event
                            if machine.has_enough:
                                break
                events = reply.following
            case Run() as call:
                assert run is not None, "a machine that calls tools needs `run`"
                async with aclosing(run(call)) as happenings:
                    async for happened in happenings:
                        for event in hear(machine.note(happened)):
                            yield event
                events = iter(())
            case None:
                break
    if machine.error is not None:
        raise machine.error


async def _next(machine: Machine[Any], events: Iterator[Any]) -> Any:
    """Return the next event, _END after the last; demanding work before it is done in a thread, which a cancellation awaits."""
    if not machine.is_demanding:
        return next(events, _END)
    step = asyncio.ensure_future(asyncio.to_thread(next, events, _END))
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        await asyncio.wait([step])
        raise


class _Reply:
    """The same as `backends.base.chunks_of`, without a generator in the path of each piece."""

    def __init__(self, machine: Machine[Any], tries: Tries) -> None:
        self.is_due = True  # whether another attempt has to be made
        self.following: Iterator[Any] = iter(())  # from the end of the reply, or from its failure
        self._machine, self._tries, self._has_begun = machine, tries, False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Make the next attempt; afterwards end the machine's reply, unless the attempt is repeated."""
        self._has_begun = self.is_due = False
        try:
            async with self._tries.opened() as chunks:
                yield chunks
                if not self._machine.has_enough:
                    self._tries.ended()
            self.following = self._machine.end()
        except BackendError as error:
            failed = await self._tries.again(error, begun=self._has_begun)
            self.is_due = failed is None
            self.following = iter(()) if failed is None else self._machine.refuse(failed)

    def receive(self, chunk: Chunk) -> Iterator[Any]:
        """Pass a piece on to those who listen and to the machine."""
        self._has_begun = self._has_begun or chunk.progress is None
        for hear in self._tries.listeners:
            hear(chunk)
        return self._machine.receive(chunk)


async def result_of(machine: Machine[T], backend: Backend, scores: Scores | None = None) -> T:
    async with aclosing(drive(machine, backend, scores=scores)) as events:
        async for _ in events:
            pass
    return cast(T, machine.result)


async def completed(backend: Backend, request: SampleRequest, limit: int) -> SampleReply:
    """Return the model's reply to a server's request (MCP sampling); the model sees neither the tools nor the conversation."""
    pieces: list[str] = []
    reason: FinishReason = "other"
    wanted = CompletionRequest(messages=request.messages, max_tokens=limit, temperature=request.temperature, stop=request.stop)
    async with aclosing(backend.stream(wanted)) as chunks:
        async for chunk in chunks:
            pieces.append(chunk.text)
            reason = chunk.finish_reason or reason
    text = "".join(pieces).rpartition("</think>")[2].strip()  # the model's reasoning is not for the server
    return SampleReply(text=text, model=backend.model, finish_reason=reason)
