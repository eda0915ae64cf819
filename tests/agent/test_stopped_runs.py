"""A run that is ended from outside: what is left is a conversation that can go on."""

import asyncio
from contextlib import aclosing
from typing import Any, Self

import pytest

from xmlcall import Answer, BackendError, CallFinished, CallStarted, LocalHost, Message, TextDelta, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendUnavailable
from xmlcall.turn.events import LoopEvent, ReplyEnded, ReplyStarted

QUESTION = Message(role="user", content="Go.")
UNKNOWN = "This call was stopped while it ran. It is not known whether it did its work: find out before it is made again."
NOT_RUN = "Not run: the turn was ended before it."

Told = list[tuple[Message, ...]]


def calls(*names: str) -> str:
    written = "".join(f'<invoke name="{name}"></invoke>' for name in names)
    return f"<function_calls>{written}</function_calls>"


def quick() -> str:
    """Answer at once."""
    return "done"


def later() -> str:
    """Answer at once, too."""
    return "done later"


RUNNING = asyncio.Event()


async def hang() -> str:
    """Never answer."""
    RUNNING.set()
    await asyncio.sleep(60)
    return "never"


def make(replies: list[Any], told: Told, **options: Any) -> tuple[ToolLoop, Any]:
    backend = ScriptedBackend(replies, chunk_size=5)
    loop = ToolLoop(backend, [LocalHost([quick, later, hang])], policy=["*"], reminder=False, **options)
    return loop, loop.run([QUESTION], on_stop=told.append)


async def stopped_at(stop: type[LoopEvent], replies: list[Any], nth: int = 1, **options: Any) -> tuple[Message, ...]:
    """Run until an event comes for the nth time, and leave then; gives the conversation that is left."""
    told: Told = []
    loop, run = make(replies, told, **options)
    async with loop, aclosing(run) as events:
        async for event in events:
            nth -= isinstance(event, stop)
            if not nth:
                break
    [messages] = told
    return messages


def roles(messages: tuple[Message, ...]) -> list[str]:
    return [message.role for message in messages]


async def test_text_that_was_shown_stays() -> None:
    messages = await stopped_at(TextDelta, ["Once upon a time"], 2)
    assert roles(messages) == ["user", "assistant"]
    assert messages[1].content == "Once upon"


async def test_before_anything_came_only_the_question_is_there() -> None:
    assert await stopped_at(ReplyStarted, ["never"]) == (QUESTION,)


async def test_a_call_that_ran_counts_as_unknown_and_those_after_it_as_not_run() -> None:
    messages = await stopped_at(CallStarted, [calls("quick", "hang", "later")], 2)
    assert roles(messages) == ["user", "assistant", "user"]
    parts = messages[2].content.split("<result ")[1:]
    assert [part.partition("\n")[2].partition("\n")[0] for part in parts] == ["done", UNKNOWN, NOT_RUN]


async def test_a_reply_whose_calls_were_not_begun_has_results_all_the_same() -> None:
    messages = await stopped_at(ReplyEnded, [calls("quick", "later")])
    assert messages[-1].content.count(NOT_RUN) == 2


async def test_a_result_that_came_is_kept() -> None:
    messages = await stopped_at(CallFinished, [calls("quick"), "never"])
    assert "done" in messages[-1].content
    assert UNKNOWN not in messages[-1].content


async def test_native_calls_each_have_a_result() -> None:
    messages = await stopped_at(CallStarted, [calls("quick", "hang", "later")], 2, mode="native")
    assert [call.name for call in messages[1].tool_calls] in ([], ["quick", "hang", "later"])
    assert messages[-1].role in ("tool", "user")


async def test_a_model_server_that_fails_leaves_what_tools_did() -> None:
    told: Told = []
    loop, run = make([calls("quick"), [BackendUnavailable("gone", backend="x")]], told)
    async with loop:
        with pytest.raises(BackendError, match="gone"):
            async for _ in run:
                pass
    [messages] = told
    assert roles(messages) == ["user", "assistant", "user"]
    assert "done" in messages[-1].content


async def test_a_task_that_is_cancelled_leaves_the_same() -> None:
    told: Told = []
    loop, run = make([calls("hang")], told)
    RUNNING.clear()

    async def work() -> None:
        async with aclosing(run) as events:
            async for _ in events:
                pass

    async with loop:
        task = asyncio.create_task(work())
        await RUNNING.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert UNKNOWN in told[0][-1].content


async def test_a_run_that_answers_is_not_stopped() -> None:
    told: Told = []
    loop, run = make(["Hello."], told)
    async with loop:
        events = [event async for event in run]
    assert isinstance(events[-1], Answer)
    assert told == []


async def test_another_model_goes_on_and_one_that_does_not_open_changes_nothing() -> None:
    class Closed(ScriptedBackend):
        async def __aenter__(self) -> Self:
            raise BackendUnavailable("gone", backend="x")

    class Noting(ScriptedBackend):
        is_left = False

        async def __aexit__(self, *error: object) -> None:
            self.is_left = True

    first, second = Noting(["One.", "Two."]), Noting(["Three."])
    async with ToolLoop(first, []) as loop:
        assert (await loop.ask("a")).text == "One."
        with pytest.raises(BackendError, match="gone"):
            await loop.change_model(Closed([]))
        assert (await loop.ask("b")).text == "Two."
        await loop.change_model(second)
        assert (first.is_left, second.is_left) == (True, False)
        assert (await loop.ask("c")).text == "Three."
    assert second.is_left
