"""Drives a machine: performs its actions with a backend, and runs its calls. Only here does a turn meet an event loop."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, TypeVar, cast

from ..backends.base import Backend, TriedRequest, tries_of
from ..errors import BackendError
from ..turn.generate import prepare
from ..turn.machine import Ask, Machine, Run, Score
from .scores import Scores

T = TypeVar("T")
_END: Final = object()  # after the last event


async def drive(
    machine: Machine[Any],
    backend: Backend,
    *,
    scores: Scores | None = None,
    run: Callable[[Run], AsyncGenerator[Any]] | None = None,
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
                tried = TriedRequest(tries_of(backend, request))
                while tried.is_due:
                    async with tried.opened() as chunks:
                        async for chunk in chunks:
                            events = machine.receive(tried.hear(chunk))
                            while (event := await _next(machine, events)) is not _END:
                                yield event
                            if machine.has_enough:
                                break
                        else:
                            tried.ended()
                events = machine.end() if tried.error is None else machine.refuse(tried.error)
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


async def result_of(machine: Machine[T], backend: Backend, scores: Scores | None = None) -> T:
    async with aclosing(drive(machine, backend, scores=scores)) as events:
        async for _ in events:
            pass
    return cast(T, machine.result)


def new_call_id() -> str:
    """Make an id of a call: `call_` and 24 letters and digits, as OpenAI's are."""
    return f"call_{secrets.token_hex(12)}"


def prepare_beside(stack: AsyncExitStack) -> None:
    """Compile what a program's first reply needs in a thread, while servers and models open; the stack waits for its end."""
    if not prepare.cache_info().currsize:
        stack.push_async_callback(asyncio.wait, [asyncio.create_task(asyncio.to_thread(prepare))])
