"""A client that runs the same call again and again, with the same result: the model is told, as in a loop of our own."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_harness import ADD, add, ask, ask_engine, block, body, function, texts

from xmlcall import RepairPolicy
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.openai_chat import CHAT
from xmlcall.turn.attempts import calls_made
from xmlcall.types.completion import Chunk
from xmlcall.wire.openai import native_call

Mode = Literal["xml", "native"]
WORDS = "It stays 3."
STUCK = "(The model made the same call of add again and again, although its result was the same each time. It was stopped.)"


def ran(result: str, a: int = 1, identity: str = "", name: str = "add") -> list[dict[str, Any]]:
    """A call that the client has run."""
    identity = identity or f"c{next(NUMBERS)}"
    function = {"name": name, "arguments": json.dumps({"a": a, "b": 2})}
    said = {"role": "assistant", "content": None, "tool_calls": [{"id": identity, "type": "function", "function": function}]}
    return [said, {"role": "tool", "tool_call_id": identity, "content": result}]


NUMBERS = iter(range(10**9))
ASKED = {"role": "user", "content": "What is 1 + 2?"}
AGAIN = {"role": "user", "content": "Look again."}
SAID = {"role": "assistant", "content": "It is 3."}

HISTORIES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "never": ([ASKED], False),
    "once": ([ASKED, *ran("3")], False),
    "twice": ([ASKED, *ran("3"), *ran("3")], True),
    "often": ([ASKED, *ran("3"), *ran("3"), *ran("3"), *ran("3")], True),
    "twice, one id": ([ASKED, *ran("3", identity="x"), *ran("3", identity="x")], True),
    "twice, with words of the client": ([ASKED, *ran("3"), AGAIN, *ran("3"), AGAIN], True),
    "results differ": ([ASKED, *ran("10 %"), *ran("20 %"), *ran("30 %")], False),
    "results differ, one id": ([ASKED, *ran("10 %", identity="x"), *ran("20 %", identity="x")], False),
    "the last result differs": ([ASKED, *ran("3"), *ran("3"), *ran("4")], False),
    "another call between": ([ASKED, *ran("3"), *ran("5", a=3), *ran("3")], False),
    "another tool between": ([ASKED, *ran("3"), *ran("3"), *ran("3", name="echo")], False),
    "the person asks again": ([ASKED, *ran("3"), *ran("3"), SAID, AGAIN], False),
    "no result": ([ASKED, *ran("3")[:1], *ran("3")[:1]], False),
}


def call_of(mode: Mode, a: int = 1) -> Any:
    if mode == "xml":
        return add(a, 2)
    arguments = json.dumps({"a": a, "b": 2})
    return [Chunk(tool_calls=(native_call(0, "add", arguments),), finish_reason="tool_calls")]


@pytest.mark.parametrize("mode", ["xml", "native"])
@pytest.mark.parametrize("name", HISTORIES)
async def test_the_third_time_the_model_is_told(name: str, mode: Mode) -> None:
    history, is_stopped = HISTORIES[name]
    backend = ScriptedBackend([call_of(mode), WORDS])
    turn = await ask(backend, body(*history), mode=mode)
    if not is_stopped:
        assert [(call.name, call.arguments) for call in turn.calls] == [("add", {"a": 1, "b": 2})]
        return
    assert (turn.text, turn.calls, turn.finish_reason) == (WORDS, (), "stop")
    assert any("times in a row" in said for _, said in texts(backend))


@pytest.mark.parametrize("mode", ["xml", "native"])
async def test_a_model_that_insists_is_stopped_with_a_line(mode: Mode) -> None:
    backend = ScriptedBackend([call_of(mode), call_of(mode)])
    turn = await ask(backend, body(*HISTORIES["twice"][0]), mode=mode)
    assert (turn.text, turn.calls, turn.finish_reason) == (STUCK, (), "stop")


@pytest.mark.parametrize("mode", ["xml", "native"])
async def test_another_call_goes_on(mode: Mode) -> None:
    backend = ScriptedBackend([call_of(mode), call_of(mode, a=7)])
    turn = await ask(backend, body(*HISTORIES["twice"][0]), mode=mode)
    assert [call.arguments for call in turn.calls] == [{"a": 7, "b": 2}]


async def test_the_limit_is_the_loops() -> None:
    backend = ScriptedBackend([add(1, 2)])
    turn = await ask(backend, body(*HISTORIES["twice"][0]), repair=RepairPolicy(max_repeats=3))
    assert len(turn.calls) == 1


@pytest.mark.parametrize("mode", ["xml", "native"])
async def test_the_answer_may_say_what_the_results_before_said(mode: Mode) -> None:
    answer = "The sum is 4711, as it was each time."
    history = [ASKED, *ran("4711"), *ran("4711")]
    backend = ScriptedBackend([call_of(mode), answer])
    turn = await ask(backend, body(*history), mode=mode, repair=RepairPolicy(asks_for_unsaid=True))
    assert turn.text == answer


async def test_a_call_that_the_caller_demands_is_made() -> None:
    backend = ScriptedBackend([add(1, 2)])
    turn = await ask(backend, body(*HISTORIES["twice"][0], tool_choice="required"))
    assert len(turn.calls) == 1


async def test_a_call_that_is_not_sent_is_not_handed_over() -> None:
    """A call of ours before it in the same reply is no reason to take it for a new one."""
    tools = [ADD, *(function(f"echo_{number}", "long " * 40, text={"type": "string"}) for number in range(6))]
    described = block(("describe_tools", {"names": '["echo_3"]'}), ("add", {"a": 1, "b": 2}))
    backend = ScriptedBackend([described, WORDS])
    turn = await ask(backend, body(*HISTORIES["twice"][0], tools=tools), mode="xml", tool_tokens=150)
    assert (turn.text, turn.calls, turn.finish_reason) == (WORDS, (), "stop")


async def test_each_request_is_judged_by_its_own_history() -> None:
    async with Engine(ScriptedBackend([add(1, 2), WORDS, add(1, 2)]), mode="xml") as engine:
        assert (await ask_engine(engine, body(*HISTORIES["twice"][0]))).text == WORDS
        assert len((await ask_engine(engine, body(*HISTORIES["once"][0]))).calls) == 1


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["3", "4"]), st.sampled_from(["", "x"])), max_size=8))
def test_calls_are_found_with_their_own_results(made: Sequence[tuple[int, str, str]]) -> None:
    history = [message for a, result, identity in made for message in ran(result, a=a, identity=identity)]
    found = calls_made(CHAT.read(body(ASKED, *history)).request.messages)
    assert [(call.arguments["a"], result) for call, result in found] == [(a, result) for a, result, _ in made]
