"""Asks a subject every case in every way, and keeps the replies as they came.

Nothing is judged here: a reply is kept raw, so that it can be read and judged again with a better parser. A failure of the
transport is no answer: it is tried again, and if that does not help, the case stays open for the next start of the same run.
After so many failures one after another the run ends, since the server is gone or wrong.

A reply is cut at a size and a time that no useful one has, so that a server which ignores `max_tokens` cannot hold a run.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from ..backends.base import Backend
from ..completion import Chunk, CompletionRequest
from ..errors import (
    BackendError,
    BackendProtocolError,
    BackendStatusError,
    BackendUnavailable,
    ContextOverflow,
    UsageError,
)
from ..feedback import results
from ..generation import Generated
from ..repair import RepairPolicy
from ..types import InvalidCall, Message, RawCall
from .case import Case
from .keptopen import KeptOpen
from .multiturn import MultiTurnCase, run_case
from .store import Run, request_key
from .subjects import Subject
from .suites import tasks_of
from .ways import Settings, Way, catalog_of, conversation, generation, need_of

__all__ = ["Failed", "execute"]

ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds; each further wait is twice as long
HOPELESS = 5  # requests without an answer, one after another
REPLY_LIMIT = 1_000_000  # characters
REPLY_SECONDS = 1800.0
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)

Failed = Callable[[Case, Way, BackendError], None]


async def execute(
    run: Run,
    ways: Sequence[Way],
    subject: Subject,
    *,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda answered: None,
    failed: Failed = lambda case, way, error: None,
) -> int | None:
    """Answer what is not answered yet.

    Args:
        run: open; replies are added to it.
        ways: of calling.
        subject: what is measured.
        concurrency: requests at the same time.
        progress: told how many more requests are answered; first, how many were before.
        failed: told of each request that got no answer.

    Returns:
        How many requests got no answer; None if the run was given up because no request gets one.
    """
    settings, done, tasks = run.settings, run.done(), tasks_of(run.cases)
    messages = {(case.id, way.name): conversation(way, case, settings) for case in run.cases for way in ways}
    wanted = [
        (case, way, key)
        for case in run.cases
        for way in ways
        if (key := request_key(way, case, messages[case.id, way.name], settings, subject.name)) not in done
    ]
    progress(len(run.cases) * len(ways) - len(wanted))
    limit, failures, in_a_row = asyncio.Semaphore(concurrency), 0, 0

    async def one(case: Case, way: Way, key: str) -> None:
        nonlocal failures, in_a_row
        async with limit:
            if in_a_row >= HOPELESS:
                return
            try:
                backend = _Bounded(subject.backend(case, way))
                if case.expects == "task":
                    answer = await _task(tasks[case.id], way, backend, settings)
                else:
                    answer = {"rounds": await _patiently(case, way, messages[case.id, way.name], backend, settings)}
            except BackendError as error:
                failures, in_a_row = failures + 1, in_a_row + 1
                failed(case, way, error)
                return
            in_a_row = 0
            run.add({"key": key, "case": case.id, "way": way.name, **answer})
            progress(1)

    await _all(one(*each) for each in wanted)
    return None if in_a_row >= HOPELESS else failures


async def _all(work: Iterable[Any]) -> None:
    """Do everything at once; the first error ends the rest and comes out as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _task(task: MultiTurnCase, way: Way, backend: Backend, settings: Settings) -> dict[str, Any]:
    """Play a task of several turns; it is judged at once, because only then is there a state to judge."""
    if way.name not in ("xml", "native"):
        raise UsageError(f"tasks of several turns are played with --way xml or native, not {way.name}")
    started = time.monotonic()
    outcome = await run_case(
        task,
        backend,
        mode="native" if way.is_native else "xml",
        lang=settings.lang,
        parallel=settings.parallel,
        reminder=settings.reminder,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
        call_threshold=settings.call_threshold,
        repair=RepairPolicy(max_format_retries=settings.feedback),
    )
    kept = {"usage": outcome.pop("usage"), "seconds": round(time.monotonic() - started, 3)}
    return {"rounds": [kept], "outcome": outcome}


async def _patiently(
    case: Case, way: Way, messages: tuple[Message, ...], backend: Backend, settings: Settings
) -> list[dict[str, Any]]:
    """Answer a case; try again what may go better the next time."""
    for attempt in range(ATTEMPTS):
        try:
            return await _rounds(case, way, messages, backend, settings)
        except ContextOverflow:
            return [{"text": "", "finish_reason": "context_overflow"}]
        except (BackendUnavailable, BackendProtocolError, BackendStatusError) as error:
            hopeless = isinstance(error, BackendStatusError) and error.status_code not in _RETRIED_STATUS
            if hopeless or attempt == ATTEMPTS - 1:
                raise
        await asyncio.sleep(FIRST_WAIT * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


async def _rounds(
    case: Case, way: Way, messages: tuple[Message, ...], backend: Backend, settings: Settings
) -> list[dict[str, Any]]:
    """Answer a case: one reply, and more while none of its calls is valid and feedback is to be given."""
    rounds: list[dict[str, Any]] = []
    started = time.monotonic()
    need = await need_of(way, case, backend, settings)
    asked = time.monotonic() - started
    if need is not None and not need.needs_tool:
        messages = conversation(way, case, settings, needs_tool=False)
    for left in range(settings.feedback, -1, -1):
        generated, kept = await _reply(case, way, messages, backend, settings)
        if need is not None and not rounds:
            kept |= {"log_odds": need.log_odds, "usage": asdict(need.usage + generated.usage)}
            kept |= {name: round(kept[name] + asked, 3) for name in ("seconds", "first_event_seconds")}
        rounds.append(kept)
        calls = generated.reply.calls
        if not left or not calls or not all(isinstance(call, InvalidCall) for call in calls):
            break
        request = str(case.messages[-1]["content"])
        told = results([(call, None) for call in calls], catalog_of(case), lang=settings.lang, request=request)
        messages = (*messages, Message(role="assistant", content=generated.text), Message(role="user", content=told))
    return rounds


async def _reply(
    case: Case, way: Way, messages: tuple[Message, ...], backend: Backend, settings: Settings
) -> tuple[Generated, dict[str, Any]]:
    started, first = time.monotonic(), None
    last: Any = None
    async with aclosing(generation(way, case, messages, backend, settings)) as events:
        async for event in events:
            first = time.monotonic() - started if first is None else first
            last = event
    assert isinstance(last, Generated)
    calls = [_kept_call(call.raw) for call in last.reply.calls] if way.is_native else []
    kept = {
        "text": last.raw,
        "reasoning": last.server_reasoning,
        "calls": calls,
        "finish_reason": last.reply.finish_reason,
        "usage": asdict(last.usage),
        "seconds": round(time.monotonic() - started, 3),
        "first_event_seconds": round(first or 0.0, 3),
    }
    return last, {name: value for name, value in kept.items() if value not in ("", [])}


def _kept_call(raw: RawCall) -> list[str]:
    """Return the name and the text of the arguments of a call that the server parsed."""
    return [raw.name, raw.text.partition('"arguments": ')[2].removesuffix("}")]


class _Bounded(KeptOpen):
    """A backend whose replies end."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        length, started = 0, time.monotonic()
        async with aclosing(self._backend.stream(request)) as chunks:
            async for chunk in chunks:
                length += len(chunk.text) + len(chunk.reasoning)
                if length > REPLY_LIMIT or time.monotonic() - started > REPLY_SECONDS:
                    yield Chunk(finish_reason="length")
                    return
                yield chunk
