"""Asks a subject every case in every way, and stores the raw replies.

Nothing is judged here: replies are stored raw, so that a better parser can read and judge them again. A transport failure does
not count as an answer: the request is retried (`backends/retrying.py`), and a case whose reply broke off starts again. If that
does not help, the case stays open for the next start of the same run. After several failures in a row the run ends, because the
server is gone or misconfigured. If the server refuses one particular request, that is reported and the run continues.

A reply is cut off at a size and a time that no useful reply reaches, so a server that ignores `max_tokens` cannot block a run.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any

from ..agent.drive import drive
from ..agent.scores import Scores
from ..backends.base import Backend, KeptOpen
from ..backends.retrying import Patience, Retrying, may_pass
from ..errors import BackendError, BackendStatusError, ContextOverflow, UsageError
from ..prompting.results import results
from ..turn.attempts import RepairPolicy, none_can_run
from ..turn.generate import Generated
from ..types.calls import Message, TextContent, ToolCall, ToolResult
from ..types.completion import Chunk, CompletionRequest, Usage
from .case import Case
from .play import converse
from .store import RecordedRun, request_key
from .subjects import Subject
from .ways import AskedCase, Way, asking_of

PATIENCE = Patience(pauses=(1.0, 2.0, 4.0), longest=60.0)  # no user waits for a single answer
HOPELESS = 5  # failures of the server, one after another
REPLY_LIMIT = 1_000_000  # characters
REPLY_SECONDS = 1800.0
_OWN_STATUS = (400, 413, 422)  # these concern one request, not the server
_CUT = Chunk(finish_reason="length")
MOST_DESCRIBED = 2  # replies that only ask for descriptions of tools

Failed = Callable[[Case, Way, BackendError], None]
Answered = Callable[[int, bool], None]  # how many requests have an answer more, and whether they got it now


async def execute(
    run: RecordedRun,
    ways: Sequence[Way],
    subject: Subject,
    *,
    cases: Sequence[Case] | None = None,
    concurrency: int = 1,
    progress: Answered = lambda answered, is_new: None,
    failed: Failed = lambda case, way, error: None,
) -> int | None:
    """Answer what is not answered yet; `progress` is called first with the requests that an earlier start answered.

    Returns:
        How many requests got no answer; None if the run was given up because the server fails, with requests left unasked.
    """
    cases = run.cases if cases is None else cases
    check_ways(cases, ways)
    wanted = _wanted(run, [AskedCase(way, case, run.settings) for case in cases for way in ways], subject.name)
    progress(len(cases) * len(ways) - len(wanted), False)
    scores = Scores()
    limit, failures, in_a_row, given_up = asyncio.Semaphore(concurrency), 0, 0, False

    async def one(asked: AskedCase, key: str) -> None:
        nonlocal failures, in_a_row, given_up
        case, way = asked.case, asked.way
        async with limit:
            if given_up:
                return
            try:
                backend = PatientBackend(subject.backend(case, way))
                if case.expects == "talk":
                    answer = await _conversed(asked, backend)
                else:
                    answer = {"rounds": await _patiently(asked, backend, scores)}
            except BackendError as error:
                is_of_request = isinstance(error, BackendStatusError) and error.status_code in _OWN_STATUS
                failures, in_a_row = failures + 1, in_a_row + (not is_of_request)
                given_up = given_up or in_a_row >= HOPELESS
                failed(case, way, error)
                return
            in_a_row = 0
            run.add({"key": key, "case": case.id, "way": way.name, **answer})
            progress(1, True)

    await _all_of(one(*each) for each in wanted)
    return None if given_up else failures


def check_ways(cases: Sequence[Case], ways: Sequence[Way]) -> None:
    if any(not way.offers for way in ways) and any(case.expects != "talk" for case in cases):
        raise UsageError("--way none plays conversations only: --suite ordinary or talk")
    others = [way.name for way in ways if not (way.is_ours or way.is_native)]
    if others and any(case.expects == "talk" for case in cases):
        raise UsageError(f"conversations are played with --way xml, native, native+read or a wire format, not {others[0]}")


def _wanted(run: RecordedRun, every: Iterable[AskedCase], model: str) -> list[tuple[AskedCase, str]]:
    """Return the requests without an answer, with their keys; those that failed before, and may always, come last."""
    done, keyed = run.done(), [(asked, request_key(asked, model)) for asked in every]
    begun = max((place for place, (_, key) in enumerate(keyed, 1) if key in done), default=0)
    return [each for each in (*keyed[begun:], *keyed[:begun]) if each[1] not in done]


async def _all_of(work: Iterable[Any]) -> None:
    """Run everything concurrently; the first error cancels the rest and is raised unchanged."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _conversed(asked: AskedCase, backend: "PatientBackend") -> dict[str, Any]:
    way, started, asking = asked.way, backend.clock(), asking_of(asked.way, asked.settings)
    asking = asking if way.offers else replace(asking, mode="native")
    repair = RepairPolicy(asks_for_unsaid=True)
    outcome = await converse(asked.case, backend, offers=way.offers, asking=asking, repair=repair)
    kept = {"usage": outcome.pop("usage"), "seconds": round(backend.clock() - started, 3)}
    return {"rounds": [kept], "outcome": outcome}


async def _patiently(asked: AskedCase, backend: "PatientBackend", scores: Scores) -> list[dict[str, Any]]:
    """Answer a case; begin it again if a reply broke off."""
    for pause in (*PATIENCE.pauses, None):
        try:
            return await _rounds(asked, backend, scores)
        except ContextOverflow:
            return [{"text": "", "finish_reason": "context_overflow"}]
        except BackendError as error:
            if pause is None or not (backend.broke_off and may_pass(error)):
                raise
        await asyncio.sleep(pause)
    raise AssertionError("the last try returns or raises")


async def _rounds(asked: AskedCase, backend: "PatientBackend", scores: Scores) -> list[dict[str, Any]]:
    """Answer a case: one reply, and more while none of its calls is valid and feedback is to be given."""
    rounds: list[dict[str, Any]] = []
    started = backend.clock()
    need = await asked.need(backend, scores)
    seconds, messages = backend.clock() - started, asked.decided(need)
    begun = need.begun if need is not None else ""
    for left in range(asked.settings.feedback, -1, -1):
        generated, kept, messages = await _described(asked, messages, backend, "" if rounds else begun)
        if need is not None and not rounds:
            kept |= {name: getattr(need, name) for name in ("log_odds", "score", "threshold")}
            kept |= {"need_usage": asdict(need.usage)}
            kept |= {"begun": True} if begun else {}
            kept |= {} if need.number is None else {"number": need.number}
            kept |= {name: round(kept[name] + seconds, 3) for name in ("seconds", "first_event_seconds")}
        rounds.append(kept)
        calls = generated.reply.calls
        if not left or not none_can_run(calls):
            break
        messages = (*messages, Message(role="assistant", content=generated.text), asked.feedback(calls))
    return rounds


async def _described(
    asked: AskedCase, messages: tuple[Message, ...], backend: "PatientBackend", begun: str
) -> tuple[Generated, dict[str, Any], tuple[Message, ...]]:
    """Generate a reply; one that only asks for descriptions of tools is answered, as in a loop. Returns the conversation, too."""
    before: list[str] = []
    usage, seconds = Usage(), 0.0
    offered = asked.offered if asked.settings.tool_tokens is not None and asked.way.is_ours else None
    while True:
        generated, kept = await _reply(asked, messages, backend, begun)
        usage, seconds = usage + generated.usage, seconds + kept["seconds"]
        calls = generated.reply.calls
        own = [call for call in calls if isinstance(call, ToolCall) and offered and call.name == offered.own]
        if offered is None or not own or len(own) < len(calls) or len(before) == MOST_DESCRIBED:
            break
        before.append(generated.raw)
        described = [(call, ToolResult(content=(TextContent(text=offered.describe(call.arguments)),))) for call in own]
        answer = results(described, offered.catalog, offered.format, request=str(asked.case.messages[-1]["content"]))
        messages = (*messages, Message(role="assistant", content=generated.text), answer)
        begun = ""
    if before:
        kept |= {"described": before, "usage": asdict(usage), "seconds": round(seconds, 3)}
    return generated, kept, messages


async def _reply(
    asked: AskedCase, messages: tuple[Message, ...], backend: "PatientBackend", begun: str
) -> tuple[Generated, dict[str, Any]]:
    started, first = backend.clock(), None
    machine = asked.generation(messages, backend.capabilities, begun)
    async with aclosing(drive(machine, backend)) as events:
        async for _ in events:
            first = backend.clock() - started if first is None else first
    last = machine.result
    assert last is not None
    # Of a call that the server parsed, its name and the text of its arguments are kept.
    raws = [call.raw for call in last.reply.calls if call.raw.dialect == "native"]
    calls = [[raw.name, raw.text.partition('"arguments": ')[2].removesuffix("}")] for raw in raws]
    kept = {
        "text": last.raw,
        "reasoning": last.server_reasoning,
        "calls": calls,
        "finish_reason": last.reply.finish_reason,
        "usage": asdict(last.usage),
        "seconds": round(backend.clock() - started, 3),
        "first_event_seconds": round(first or 0.0, 3),
    }
    return last, {name: value for name, value in kept.items() if value not in ("", [])}


class _BoundedBackend(KeptOpen):
    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        length, end = 0, time.monotonic() + REPLY_SECONDS
        async with aclosing(self._backend.stream(request)) as chunks:
            while chunk := await _next(chunks, end):
                length += len(chunk.text) + len(chunk.reasoning) + sum(len(call.text) for call in chunk.tool_calls)
                chunk = _CUT if length > REPLY_LIMIT else chunk
                yield chunk
                if chunk is _CUT:
                    return


async def _next(chunks: AsyncGenerator[Chunk], end: float) -> Chunk | None:
    """Return the next chunk; the end of a cut reply if no chunk comes in time; None after the last."""
    try:
        async with asyncio.timeout(end - time.monotonic()):
            chunk = await anext(chunks, None)
    except TimeoutError:
        return _CUT
    # If a stream always has a chunk ready, the timeout never fires.
    return _CUT if chunk and time.monotonic() > end else chunk


class PatientBackend(KeptOpen):
    """A backend that limits its replies, and retries a request that fails before its reply begins."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(Retrying(_BoundedBackend(backend), PATIENCE, on_retry=self._lose))
        self._lost = 0.0
        self.broke_off = False  # whether the last reply failed after it had begun

    def clock(self) -> float:
        """Return the time in seconds, without failed attempts: reports show how long replies took."""
        return time.monotonic() - self._lost

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self.broke_off = begun = False
        try:
            async with aclosing(self._backend.stream(request)) as chunks:
                async for chunk in chunks:
                    begun = begun or chunk.progress is None
                    yield chunk
        except BackendError:
            self.broke_off = begun
            raise

    def _lose(self, seconds: float) -> None:
        self._lost += seconds
