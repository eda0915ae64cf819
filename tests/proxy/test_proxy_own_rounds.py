"""Rounds of the proxy's own tools: what is kept, how long, and what the model is shown of it again."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from proxy_harness import ask_engine, block, body, double, function, texts

from xmlcall import LocalHost
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.prompting.writer import OwnRounds, with_calls
from xmlcall.proxy.engine import own_tools
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.own_tools import SECONDS, OwnTools, RoundsKept
from xmlcall.proxy.formats.contract import call_of
from xmlcall.types.calls import Message, TextContent, ToolResult

CALL = block(("add", {"a": 1, "b": 2}))
DOUBLE = block(("double", {"n": 4}))
REPLIES = [DOUBLE, f"Now.\n\n{CALL}", "Done."]


def told(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


ROUNDS = OwnRounds(
    before=(Message(role="assistant", content=DOUBLE), Message(role="user", content="8", images=("data:,x",))),
    shown="Well. ",
    calls=((call_of("call_1", "add", {"a": 1, "b": None}, 0), None), (call_of("", "double", {"n": 4}, 1), told("8 \ud800 世界"))),
    results=("8",),
)


def engine_of(model: ScriptedBackend, rounds: RoundsKept) -> Engine:
    own = OwnTools([LocalHost([double], name="own")], ["*"])
    own.rounds = rounds
    return Engine(model, own, mode="xml")


async def second_prompt(rounds: RoundsKept, between: Callable[[str], None] | None = None) -> list[tuple[str, str]]:
    """Have the proxy run a tool of its own and give a call to the caller; give the prompt of the request with its result."""
    model = ScriptedBackend(REPLIES)
    async with engine_of(model, rounds) as engine:
        turn = await ask_engine(engine, body("Both."))
        (call,) = turn.calls
        if between is not None:
            between(call.id)
        made = {"id": call.id, "type": "function", "function": {"name": "add", "arguments": json.dumps(call.arguments)}}
        said = {"role": "assistant", "content": turn.text, "tool_calls": [made]}
        await ask_engine(engine, body("Both.", said, {"role": "tool", "tool_call_id": call.id, "content": "3"}))
    return texts(model)


KNOWN = ["system", "user", "assistant", "user", "assistant", "user"]
NOT_KNOWN = ["system", "user", "assistant", "user"]


def roles(prompt: list[tuple[str, str]]) -> list[str]:
    return [role for role, _ in prompt]


async def test_rounds_are_shown_again_and_text_of_them_is_not_said_twice() -> None:
    prompt = await second_prompt(RoundsKept())
    assert roles(prompt) == KNOWN
    assert (prompt[2][1], prompt[4][1]) == (DOUBLE, f"Now.\n\n{CALL}")
    assert "\n8\n" in prompt[3][1]


async def test_rounds_are_forgotten_after_a_day() -> None:
    now = [1000.0]

    def wait(identity: str) -> None:
        now[0] += SECONDS

    assert roles(await second_prompt(RoundsKept(lambda: now[0]), wait)) == NOT_KNOWN


async def test_hidden_rounds_of_other_arguments_are_not_shown() -> None:
    rounds = RoundsKept()

    def overwrite(identity: str) -> None:
        rounds.keep(replace(ROUNDS, calls=((call_of(identity, "add", {"a": 1, "b": 3}, 0), None),)))

    assert roles(await second_prompt(rounds, overwrite)) == NOT_KNOWN


async def test_engines_of_one_process_share_rounds() -> None:
    """The caller may go on with another model of the proxy."""
    rounds = RoundsKept()
    model = ScriptedBackend(["Done."])
    (call,) = (ROUNDS.theirs[0],)
    rounds.keep(ROUNDS)
    made = {"id": call.id, "type": "function", "function": {"name": "add", "arguments": json.dumps(call.arguments)}}
    said = {"role": "assistant", "content": "Well. ", "tool_calls": [made]}
    async with engine_of(model, rounds) as engine:
        await ask_engine(engine, body("Both.", said, {"role": "tool", "tool_call_id": call.id, "content": "3"}))
    assert roles(texts(model)) == KNOWN


def kept_of(rounds: RoundsKept, *identities: str) -> list[str]:
    """Return those of which rounds are kept."""
    calls = {each: call_of(each, "add", {}, 0) for each in identities}
    return [*rounds.recall([Message(role="assistant", content="", tool_calls=(call,)) for call in calls.values()])]


@pytest.mark.parametrize(("limit", "left"), [(100, ["a", "b", "c"]), (70, ["b", "c"]), (20, [])])
def test_the_oldest_rounds_go_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch, limit: int, left: list[str]) -> None:
    monkeypatch.setattr(own_tools, "CHARACTERS_LIMIT", limit)
    rounds = RoundsKept()
    for each in ("a", "b", "b", "c"):  # what is kept anew takes its room once
        rounds.keep(replace(ROUNDS, before=(), shown="x" * 28, calls=((call_of(each, "add", {}, 0), None),), results=()))
    assert kept_of(rounds, "a", "b", "c") == left


async def test_descriptions_that_the_model_asked_for_are_rounds_too() -> None:
    tools = [function(f"tool_{number}", "Do something with a text. " * 30, text={"type": "string"}) for number in range(40)]
    replies = [block(("describe_tools", {"names": '["tool_3"]'})), block(("tool_3", {"text": "x"})), "Done."]
    model = ScriptedBackend(replies)
    async with Engine(model, mode="xml", tool_tokens=800) as engine:
        (call,) = (await ask_engine(engine, body("Do it.", tools=tools))).calls
        made = {"id": call.id, "type": "function", "function": {"name": "tool_3", "arguments": '{"text": "x"}'}}
        said = {"role": "assistant", "content": None, "tool_calls": [made]}
        await ask_engine(engine, body("Do it.", said, {"role": "tool", "content": "3"}, tools=tools))
    assert roles(texts(model)) == KNOWN


TEXTS = [
    ("", CALL),
    (" \n", CALL),
    ("So:\n", f"So:\n{CALL}"),
    ("So.\n\n", f"So.\n\n{CALL}"),
    ("So.", f"So.\n\n{CALL}"),
    ("So.\n\n\n", f"So.\n\n{CALL}"),
]


@pytest.mark.parametrize(("text", "written"), TEXTS)
def test_words_before_a_call(text: str, written: str) -> None:
    assert with_calls(text, CALL) == written


TEXT_OF_ROUNDS = [("Well. Now.\n", "Now.\n"), ("Well. ", ""), ("Now.", "Now."), ("", ""), (" Well. Now. ", "Now.")]


@pytest.mark.parametrize(("content", "rest"), TEXT_OF_ROUNDS)
def test_text_that_was_shown_in_rounds_before(content: str, rest: str) -> None:
    assert ROUNDS.rest_of(content).strip() == rest.strip()
