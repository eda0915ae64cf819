"""Servers that fail, refuse, stay silent or never end: what a run and a calibration make of them."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers.fake_openai import FakeOpenAI, Step, chunk
from servers.run_server import run_server

from xmlcall import Tool
from xmlcall.backends import retrying
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.retrying import Patience
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.bench.case import Case
from xmlcall.bench.runner import PatientBackend
from xmlcall.bench.store import RecordedRun, create_or_resume
from xmlcall.bench.subjects import Subject, model_subject
from xmlcall.bench.ways import Settings, way_of
from xmlcall.errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable
from xmlcall.types.calls import Message, RawCall
from xmlcall.types.completion import Chunk, CompletionRequest

ADD = Tool(name="add", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CASES = [
    Case(
        id=f"case-{number}",
        category="simple",
        messages=({"role": "user", "content": f"What is {number} + 1?"},),
        tools=(ADD,),
        answers=({"add": {"a": [number]}},),
    )
    for number in range(20)
]
XML = [way_of("xml")]
REQUEST = CompletionRequest(messages=(Message(role="user", content="Hi"),))
WRONG = '<function_calls><invoke name="add"><parameter name="a">{}</parameter></invoke></function_calls>'
LIKELY, UNLIKELY = (
    [Chunk(text=token, top_logprobs=((token, math.log(0.9)), (other, math.log(0.1)))), Chunk(finish_reason="length")]
    for token, other in (("<", "I"), ("I", "<"))
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PATIENCE", Patience(pauses=(0.0, 0.0, 0.0)))


def start(folder: Path, cases: Sequence[Case] = CASES, **settings: Any) -> RecordedRun:
    about = {"ways": ["xml"], "settings": Settings(**settings).to_json(), "model": "m", "suite": "s"}
    return create_or_resume(folder, about, cases)


def refused(status_code: int) -> BackendStatusError:
    return BackendStatusError("no", backend="b", status_code=status_code)


def gone() -> BackendUnavailable:
    return BackendUnavailable("gone", backend="b")


# -- giving up ---------------------------------------------------------------------------------------------------------


def failing(error: BackendError, *bad: int) -> Subject:
    """A model that always fails at some cases."""
    ids = {f"case-{number}" for number in bad}
    return Subject(
        name="m", backend=lambda case, way: ScriptedBackend([error] * 4) if case.id in ids else ScriptedBackend(["Paris."])
    )


# 200: what breaks inside a stream
OF_THE_SERVER = [gone(), BackendProtocolError("what?", backend="b"), *map(refused, (200, 401, 403, 404, 429, 500, 502, 503))]


async def test_waiting_is_no_part_of_a_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the waiting itself moves on."""
    waited: list[float] = []
    real = time.monotonic

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    def clock() -> float:
        return real() + sum(waited)

    monkeypatch.setattr(retrying, "sleep", wait)
    monkeypatch.setattr(retrying, "monotonic", clock)
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(runner, "PATIENCE", Patience(pauses=(20.0,)))
    run = start(tmp_path / "run", CASES[:1])
    backend = ScriptedBackend([refused(503), "Paris."])
    assert await runner.execute(run, XML, Subject(name="m", backend=lambda *_: backend)) == 0
    [kept] = run.replies[0]["rounds"]
    assert waited
    assert max(kept["seconds"], kept["first_event_seconds"]) < sum(waited)


@pytest.mark.parametrize("error", OF_THE_SERVER, ids=repr)
async def test_a_server_that_fails_ends_the_run(tmp_path: Path, error: BackendError) -> None:
    told: list[str] = []
    subject = failing(error, *range(3, 20))
    run = start(tmp_path / "run")
    assert await runner.execute(run, XML, subject, failed=lambda case, *_: told.append(case.id)) is None
    assert told == [f"case-{number}" for number in range(3, 3 + runner.HOPELESS)]
    assert len(run.replies) == 3


@pytest.mark.parametrize("status_code", [400, 413, 422])
async def test_a_request_that_is_refused_for_its_own_sake_is_passed_over(tmp_path: Path, status_code: int) -> None:
    told: list[str] = []
    run = start(tmp_path / "run")
    subject = failing(refused(status_code), *range(2, 12))
    assert await runner.execute(run, XML, subject, failed=lambda case, *_: told.append(case.id)) == 10
    assert told == [f"case-{number}" for number in range(2, 12)]
    assert len(run.replies) == 10


async def test_refused_requests_between_failures_of_the_server_change_nothing(tmp_path: Path) -> None:
    asked: list[str] = []

    def backend(case: Case, way: object) -> ScriptedBackend:
        asked.append(case.id)
        return ScriptedBackend([refused(400 if len(asked) % 2 else 401)])

    assert await runner.execute(start(tmp_path / "run"), XML, Subject(name="m", backend=backend)) is None
    assert len(asked) == 2 * runner.HOPELESS


@pytest.mark.parametrize(("status_code", "ending"), [(400, 8), (503, None)])
async def test_all_cases_have_their_turn_when_a_run_goes_on(tmp_path: Path, status_code: int, ending: int | None) -> None:
    """Eight scattered cases always fail; the run was stopped before its end, and those that failed would come first."""
    bad = (0, 1, 3, 5, 6, 8, 10, 12)
    subject, folder = failing(refused(status_code), *bad), tmp_path / "run"
    assert await runner.execute(start(folder), XML, subject) == len(bad)
    lines = (folder / "replies.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "replies.jsonl").write_bytes(b"".join(lines[:6]))
    again = start(folder)
    assert await runner.execute(again, XML, subject) == ending
    assert {reply["case"] for reply in again.replies} == {f"case-{number}" for number in range(20)} - {
        f"case-{number}" for number in bad
    }


async def test_a_late_answer_does_not_take_back_that_the_run_was_given_up(tmp_path: Path) -> None:
    """Six are asked at once; five fail, and before the next one begins, the first is answered."""
    asked: list[str] = []
    told = asyncio.Event()

    class Late(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            await told.wait()
            yield Chunk(text="Paris.", finish_reason="stop")

    class Refusing(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            await asyncio.sleep(0)
            raise refused(401)
            yield

    def backend(case: Case, way: object) -> ScriptedBackend:
        asked.append(case.id)
        return (Late if case.id == "case-0" else Refusing)([])

    run = start(tmp_path / "run")
    subject = Subject(name="m", backend=backend)
    assert await runner.execute(run, XML, subject, concurrency=6, failed=lambda *_: told.set()) is None
    assert (len(asked), [reply["case"] for reply in run.replies]) == (6, ["case-0"])


# -- replies end -------------------------------------------------------------------------------------------------------


@dataclass
class Endless:
    """A step that is streamed for ever."""

    step: bytes

    def __iter__(self) -> Iterator[Step]:
        yield chunk({"role": "assistant", "content": ""})
        for _ in itertools.count():
            yield self.step
            yield 0.01


ARGUMENTS = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "add", "arguments": "9" * 1000}}]}


async def chunks_of(backend: PatientBackend) -> list[Chunk]:
    return [each async for each in backend.stream(REQUEST)]


@pytest.mark.parametrize(
    "steps",
    [
        Endless(b": keep-alive\n\n"),
        Endless(chunk({"content": ""})),
        Endless(chunk(ARGUMENTS)),
        Endless(chunk({"content": "and so on "})),
        [chunk({"content": "and"}), 60.0],
    ],
    ids=["comments", "empty", "arguments", "text", "silence"],
)
async def test_a_stream_without_end_is_cut(monkeypatch: pytest.MonkeyPatch, steps: Any) -> None:
    monkeypatch.setattr(runner, "REPLY_SECONDS", 0.1)
    fake = FakeOpenAI(steps=steps)
    with run_server(fake.app) as url:
        async with OpenAIBackend(f"{url}/v1") as server:
            async with asyncio.timeout(10):
                found = await chunks_of(PatientBackend(server))
            assert await asyncio.to_thread(fake.left.wait, 10)
    assert found[-1] == Chunk(finish_reason="length")
    assert not any(each.tool_calls for each in found)
    assert len(fake.bodies) == 1


async def test_a_stream_that_never_waits_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "REPLY_SECONDS", 0.05)

    class Hasty(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            nothing = Chunk()
            while True:
                yield nothing

    assert (await chunks_of(PatientBackend(Hasty([]))))[-1] == Chunk(finish_reason="length")


@pytest.mark.parametrize(("characters", "whole"), [(99, True), (101, False)])
async def test_the_text_of_tool_calls_counts(monkeypatch: pytest.MonkeyPatch, characters: int, whole: bool) -> None:
    monkeypatch.setattr(runner, "REPLY_LIMIT", 100)
    call = RawCall(index=0, name="add", text="9" * characters, span=(0, 0), dialect="native", arguments=())
    last = Chunk(tool_calls=(call,), finish_reason="tool_calls")
    expected = last if whole else Chunk(finish_reason="length")
    assert await chunks_of(PatientBackend(ScriptedBackend([[last]]))) == [expected]


class Silent(ScriptedBackend):
    """Says nothing, and notes that it was asked and that its stream was closed."""

    closed = False

    def __init__(self) -> None:
        super().__init__([])
        self.asked = asyncio.Event()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        self.asked.set()
        try:
            await asyncio.Event().wait()
            yield Chunk()
        finally:
            self.closed = True


async def test_a_time_limit_closes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "REPLY_SECONDS", 0.01)
    silent = Silent()
    assert await chunks_of(PatientBackend(silent)) == [Chunk(finish_reason="length")]
    assert silent.closed


async def test_a_person_can_still_interrupt(tmp_path: Path) -> None:
    silent = Silent()
    running = asyncio.create_task(runner.execute(start(tmp_path / "run"), XML, model_subject(silent)))
    await silent.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (silent.closed, len(silent.requests)) == (True, 1)


# -- beginning again ------------------------------------------------------------------------------------------------------

BROKEN = ["Par", gone()]


@pytest.mark.parametrize(
    ("settings", "script", "answered", "asked"),
    [
        ({}, [BROKEN, gone(), BROKEN, "Paris."], True, 4),
        ({}, [BROKEN] * 9, False, 4),
        ({}, [gone(), gone(), BROKEN, gone(), "Paris."], True, 5),
        ({}, [gone(), gone(), gone(), gone(), "Paris."], False, 4),
        ({"call_threshold": 0.0}, [gone(), LIKELY, gone(), BROKEN, LIKELY, BROKEN, LIKELY, "Paris."], True, 8),
        ({"call_threshold": 0.0}, [LIKELY, BROKEN] * 9, False, 8),
        ({"call_threshold": 0.0}, ["<", LIKELY, "Paris."], False, 1),  # tells no probabilities, and will not
        # Another first reply each time, so that each second request is another one, too.
        ({"feedback": 1}, [each for n in range(9) for each in (WRONG.format(f"x{n}"), BROKEN)], False, 8),
    ],
)
async def test_a_reply_that_breaks_off_begins_its_case_again(
    tmp_path: Path, settings: dict[str, Any], script: list[Any], answered: bool, asked: int
) -> None:
    backend, run = ScriptedBackend(script), start(tmp_path / "run", CASES[:1], **settings)
    assert await runner.execute(run, XML, model_subject(backend)) == (0 if answered else 1)
    assert [reply["rounds"][-1]["text"] for reply in run.replies] == ["Paris."] * answered
    assert len(backend.requests) == asked
