"""Drives a machine: performs its actions with a backend, and runs its calls if there are any.

This is the only place where a turn meets an event loop. `Scores` caches answers that depend only on the model and the request:
how the model begins a reply to our own messages, from which thresholds and habits are derived.
"""

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from ..backends.base import Backend, chunks_of, tries_of
from ..errors import BackendError, BackendStatusError
from ..turn.machine import Ask, FirstToken, Machine, Run, Score
from ..types.completion import CompletionRequest, Usage

__all__ = ["Scores", "drive", "first_token", "new_id", "result_of"]

KEPT: Final = 500  # answers
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501})  # statuses that mean that the server can never answer this


def new_id() -> str:
    """Make an id of a call: `call_` and 24 letters and digits, as OpenAI's are."""
    return f"call_{secrets.token_hex(12)}"


class Scores:
    """A cache of the first tokens of one model's replies, for each `Score` that may be kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, FirstToken | BackendStatusError] = OrderedDict()
        self._asking = asyncio.Lock()  # conversations that begin at the same time ask the same questions

    async def ask(self, backend: Backend, score: Score) -> list[FirstToken]:
        """Ask for the first tokens."""
        if not score.keep:
            return [await first_token(backend, request) for request in score.requests]
        async with self._asking:
            return [await self._known(backend, request) for request in score.requests]

    async def _known(self, backend: Backend, request: CompletionRequest) -> FirstToken:
        key = _key(request)
        if key not in self._kept:
            try:
                told = await first_token(backend, request)
            except BackendStatusError as error:
                if error.status_code not in _REFUSED:
                    raise  # perhaps temporary
                self._keep(key, error)
                raise
            self._keep(key, replace(told, usage=Usage()))
            return told
        self._kept.move_to_end(key)
        if isinstance(known := self._kept[key], BackendStatusError):
            raise known.with_traceback(None)  # else the traceback grows each time
        return known

    def _keep(self, key: str, answer: FirstToken | BackendStatusError) -> None:
        self._kept[key] = answer
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _key(request: CompletionRequest) -> str:
    said = [(message.role, message.content) for message in request.messages]
    return json.dumps([said, dict(request.extra)], default=str)


async def first_token(backend: Backend, request: CompletionRequest) -> FirstToken:
    """Ask a model for one token."""
    told = FirstToken()
    async with aclosing(chunks_of(tries_of(backend, request))) as chunks:
        async for chunk in chunks:
            told = told.after(chunk)
            if told.text and not told.candidates:  # a server that ignores `max_tokens` might generate for a long time
                break
    return told


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
    """Perform a machine's actions until it has ended.

    Args:
        run: runs a call, and yields its events, the end last; None if there are no calls.
        hear: receives the events that follow from each input, and passes them on.
    """
    scores = scores or Scores()
    events = iter(hear(machine.events()))
    while (event := await _in_thread(events) if machine.is_demanding else next(events, _END)) is not _END:
        yield event
    while (action := machine.action) is not None:
        match action:
            case Score():
                following = await _scored(machine, backend, action, scores)
            case Ask(request=request):
                tries, is_due = tries_of(backend, request), True
                while is_due:
                    begun, is_due = False, False
                    try:
                        async with tries.opened() as chunks:
                            hears = tries.hears
                            async for chunk in chunks:
                                begun = begun or chunk.progress is None
                                for each in hears:
                                    each(chunk)
                                events = machine.receive(chunk)
                                while (
                                    event := await _in_thread(events) if machine.is_demanding else next(events, _END)
                                ) is not _END:
                                    yield event
                                if machine.has_enough:
                                    break
                            else:
                                tries.ended()
                        following = machine.end()
                    except BackendError as error:
                        failed = await tries.again(error, begun=begun)
                        is_due = failed is None
                        following = iter(()) if failed is None else machine.refuse(failed)
            case Run():
                assert run is not None, "a machine that calls tools needs `run`"
                following = iter(())
                async with aclosing(run(action)) as happenings:
                    async for happened in happenings:
                        for event in hear(machine.note(happened)):
                            yield event
        events = iter(hear(following))
        while (event := await _in_thread(events) if machine.is_demanding else next(events, _END)) is not _END:
            yield event
    if machine.error is not None:
        raise machine.error


async def _scored(machine: Machine[Any], backend: Backend, score: Score, scores: Scores) -> Iterator[Any]:
    try:
        return machine.scored(await scores.ask(backend, score))
    except BackendError as error:
        return machine.refuse(error)


async def _in_thread(events: Iterator[Any]) -> Any:
    """Return the next event, _END after the last. The work is done in a thread, and cancellation waits until it is complete."""
    step = asyncio.ensure_future(asyncio.to_thread(next, events, _END))
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        await asyncio.wait([step])
        raise


async def result_of(machine: Machine[T], backend: Backend, scores: Scores | None = None) -> T:
    """Drive a machine that runs no calls, and return its result."""
    async with aclosing(drive(machine, backend, scores=scores)) as events:
        async for _ in events:
            pass
    return cast(T, machine.result)
