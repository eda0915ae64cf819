"""The turns of a running program: how many are kept, and who is told."""

import asyncio
from contextlib import aclosing

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.turn_records.builder import WATCH_SECONDS, Recorder, RecordingBackend, TurnBuilder
from xmlcall.types.calls import Message
from xmlcall.types.completion import CompletionRequest


def finished(recorder: Recorder, text: int = 0, **facts: str) -> TurnBuilder:
    """Record a turn that is over."""
    turn = recorder.begin(**facts)
    recorder.grew(turn, text)
    turn.end("end")
    recorder.done(turn)
    return turn


def ids(recorder: Recorder) -> list[str]:
    return [turn.id for turn in recorder.turns()]


def test_a_turn_is_found_by_its_id() -> None:
    recorder = Recorder()
    turn = recorder.begin(client="x", question="Hi")
    assert recorder.find(turn.id) is turn
    assert recorder.find("turn_0") is None
    record = turn.record()
    assert (record.source, record.client, record.question, record.outcome) == ("proxy", "x", "Hi", "")
    assert Recorder().begin(source="chat").record().source == "chat"
    assert recorder.begin(id="mine", source="file").record().source == "file"


def test_the_newest_turns_come_first_and_those_that_ended_first_leave_first() -> None:
    recorder = Recorder(most_turns=3)
    first = recorder.begin()
    others = [finished(recorder) for _ in range(5)]
    assert ids(recorder) == [others[4].id, others[3].id, first.id], "the first one is under way and stays"
    first.end("end")
    recorder.done(first)
    late = finished(recorder)
    assert ids(recorder) == [late.id, others[4].id, first.id], "of two that are over, the one that ended first leaves"


def test_more_stay_only_while_more_are_under_way() -> None:
    recorder = Recorder(most_turns=2)
    running = [recorder.begin() for _ in range(5)]
    assert len(recorder.turns()) == 5
    for turn in running:
        turn.end("end")
        recorder.done(turn)
    assert ids(recorder) == [running[4].id, running[3].id]
    assert recorder.size() == {"turns": 2, "under way": 0, "text": 0}


def test_text_is_bounded() -> None:
    recorder = Recorder(most_text=1600)
    kept = [finished(recorder, 100) for _ in range(20)]
    assert recorder.size() == {"turns": 16, "under way": 0, "text": 1600}
    assert ids(recorder) == [turn.id for turn in reversed(kept[4:])]


def test_one_turn_has_a_share_of_the_text() -> None:
    recorder = Recorder(most_text=1600)
    turn = recorder.begin()
    assert recorder.room == 100
    assert recorder.grew(turn, 60) == 40
    assert recorder.grew(turn, 60) == -20, "nothing more of it is to be kept"


def test_many_turns_under_way_have_the_text_together() -> None:
    recorder = Recorder(most_text=1600)
    old = finished(recorder, 100)
    for _ in range(16):
        left = recorder.grew(recorder.begin(), 100)
    assert (left, recorder.find(old.id)) == (0, None)
    assert recorder.grew(recorder.begin(), 1) < 0


def test_a_turn_that_has_left_grows_no_more() -> None:
    recorder = Recorder(most_turns=1)
    old = finished(recorder)
    finished(recorder)
    assert recorder.grew(old, 10) == 0
    assert recorder.size()["text"] == 0


def test_a_turn_can_be_begun_by_somebody_else() -> None:
    recorder = Recorder()
    recorder.add(TurnBuilder(id="a", source="chat"))
    again = recorder.add(TurnBuilder(id="a", source="chat"))
    assert recorder.turns() == [again]


def test_finished_turns_are_handed_on() -> None:
    told: list[TurnBuilder] = []
    recorder = Recorder(most_turns=1, keep=told.append)
    turns = [finished(recorder) for _ in range(3)]
    assert told == turns


def test_keys_are_cut_out() -> None:
    recorder = Recorder(hidden=["sk-1", "sk-1234", ""])
    assert recorder.hide("Invalid key sk-1234, not sk-1.") == "Invalid key ***, not ***."


async def test_watchers_are_told_what_changed_since_the_last_word() -> None:
    recorder = Recorder()
    a, b = recorder.begin(), recorder.begin()
    async with aclosing(recorder.watch()) as watching:
        first = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0)
        recorder.changed(a)
        assert await first == {a.id}
        for _ in range(1000):
            recorder.changed(a)
            recorder.changed(b)
        begun = asyncio.get_running_loop().time()
        assert await anext(watching) == {a.id, b.id}
        assert asyncio.get_running_loop().time() - begun > WATCH_SECONDS * 0.9


async def test_each_watcher_is_told_and_a_slow_one_gathers_no_more_than_there_is() -> None:
    recorder = Recorder(most_turns=10)
    async with aclosing(recorder.watch()) as slow, aclosing(recorder.watch()) as other:
        waiting = [asyncio.ensure_future(anext(each)) for each in (slow, other)]
        await asyncio.sleep(0)
        turn = recorder.begin()
        assert await asyncio.gather(*waiting) == [{turn.id}, {turn.id}]
        for _ in range(10_000):
            finished(recorder)
        assert await anext(slow) == set(ids(recorder)) - {turn.id}, "which is under way, and did not change"


async def test_watching_ends_when_the_recorder_is_closed() -> None:
    recorder = Recorder()

    async def watched() -> list[set[str]]:
        return [each async for each in recorder.watch()]

    watching = asyncio.ensure_future(watched())
    await asyncio.sleep(0)
    turn = recorder.begin()
    await asyncio.sleep(0)
    recorder.close()
    async with asyncio.timeout(5):
        assert await watching == [{turn.id}]
        assert await watched() == [], "and nobody begins to watch after that"


class Heard(TurnBuilder):
    """Listens."""

    def __init__(self) -> None:
        super().__init__(id="t", source="chat")
        self.said: list[object] = []

    def prompt(self, messages: object) -> None:
        self.said.append(messages)

    def wrote(self, text: str) -> None:
        self.said.append(text)


async def test_a_backend_is_listened_to() -> None:
    inner, heard = ScriptedBackend(["Hello."], chunk_size=3), Heard()
    request = CompletionRequest(messages=(Message(role="user", content="Hi"),))
    async with inner, RecordingBackend(inner, heard) as backend:
        assert (backend.model, backend.capabilities.server) == ("scripted", "scripted")
        texts = [chunk.text async for chunk in backend.stream(request)]
    assert heard.said == [request.messages, "Hel", "lo."]
    assert "".join(texts) == "Hello."


async def test_a_reply_that_is_left_ends_at_the_model_server() -> None:
    inner = ScriptedBackend(["Hello."], chunk_size=1)
    request = CompletionRequest(messages=(Message(role="user", content="Hi"),))
    async with inner, RecordingBackend(inner, Heard()) as backend, aclosing(backend.stream(request)) as stream:
        await anext(stream)
    assert inner.closed_early == [True]
