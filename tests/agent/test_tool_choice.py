"""Which tool a begun call is for: what a model finds likely, less what it finds likely whatever is said."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scored import choose

from xmlcall import Catalog, Message
from xmlcall.agent.scores import Scores
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import beginning
from xmlcall.errors import BackendStatusError
from xmlcall.turn.tool_need import IDLE, MOST_STEPS, PLAIN, _continues_any
from xmlcall.types.calls import Tool
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

DIALECT = DIALECTS["function_calls"]
BEGUN = beginning(DIALECT)
CAPABILITIES = Capabilities(server="llama.cpp", continues=True, most_logprobs=100)


class Names(ScriptedBackend):
    """A model that writes names of tools with given probabilities, in pieces of some characters.

    Args:
        asked: name -> its share after the person's words.
        idle: the same after words that need no tool.
        length: of a piece, in characters.
    """

    def __init__(self, asked: Mapping[str, float], idle: Mapping[str, float], length: int = 4) -> None:
        super().__init__([], capabilities=CAPABILITIES)
        self._shares, self._length = {False: asked, True: idle}, length

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        question, begun = (message.content for message in request.messages[-2:])
        pieces: dict[str, float] = {}
        for name, share in self._shares[question == IDLE].items():
            whole = beginning(DIALECT, name)
            if whole.startswith(begun):
                piece = whole[len(begun) :][: self._length]
                pieces[piece] = pieces.get(piece, 0.0) + share
        total = math.fsum(pieces.values())
        yield Chunk(text="x", top_logprobs=tuple((piece, math.log(share / total)) for piece, share in pieces.items()))
        yield Chunk(finish_reason="length", usage=Usage(prompt_tokens=10, completion_tokens=1))


def question(*said: str) -> CompletionRequest:
    messages = (Message(role="user", content=text) for text in said or ("What is in this folder?",))
    return CompletionRequest(messages=(Message(role="system", content="Tools."), *messages))


def catalog_of(*names: str) -> Catalog:
    return Catalog([Tool(name=name) for name in names])


EVEN: dict[str, float] = {"list": 1, "list_all": 1, "read": 1}

# shares after the question, shares after "Thanks!" -> the tool
CHOICES: list[tuple[str, dict[str, float], dict[str, float], str]] = [
    ("no habits", {"list": 1, "list_all": 2, "read": 4}, EVEN, "read"),
    ("a habit", {"list": 3, "list_all": 1, "read": 4}, {"list": 1, "list_all": 1, "read": 8}, "list"),
    ("a habit of names that begin alike", {"list": 3, "list_all": 2, "read": 0.1}, {"list": 9, "list_all": 1}, "list_all"),
    ("a habit that the words outweigh", {"list": 1, "read": 9}, {"list": 1, "read": 25}, "read"),
    ("unheard of, and unlikely", {"list": 100, "read": 1}, {"list": 1, "read": 1e-3}, "list"),
    ("the same as always", {"list": 3, "read": 2}, {"list": 3, "read": 2}, "list"),
]


@pytest.mark.parametrize("length", [1, 3, 4, 100])
@pytest.mark.parametrize(("asked", "idle", "expected"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
async def test_the_tool_that_gains_most_is_called(
    asked: dict[str, float], idle: dict[str, float], expected: str, length: int
) -> None:
    names = dict.fromkeys([*asked, *idle])
    name, usage = await choose(Names(asked, idle, length), question(), catalog_of(*names), DIALECT)
    assert name == expected
    assert usage.completion_tokens


async def test_what_is_asked() -> None:
    backend = Names({"a": 1, "b": 2}, {"a": 2, "b": 1})
    await choose(backend, question("Hi", "List it."), catalog_of("a", "b"), DIALECT)
    said = [[message.content for message in request.messages] for request in backend.requests]
    assert said == [["Tools.", "Hi", "List it.", BEGUN], ["Tools.", IDLE, BEGUN]]
    assert {(request.max_tokens, request.temperature, request.top_logprobs) for request in backend.requests} == {(1, 0.0, 100)}


@pytest.mark.parametrize(("share", "asked"), [(PLAIN - 0.01, 2), (PLAIN + 0.01, 1)])
async def test_habits_of_a_plain_choice_are_not_asked_for(share: float, asked: int) -> None:
    backend = Names({"a": share, "b": 1 - share}, {"a": 1, "b": 1})
    chosen, usage = await choose(backend, question(), catalog_of("a", "b"), DIALECT)
    assert (chosen, len(backend.requests), usage.completion_tokens) == ("a", asked, asked)


async def test_habits_are_asked_for_once() -> None:
    backend, scores = Names(EVEN, EVEN), Scores()
    for said in ("What is in this folder?", "And in that?"):
        await choose(backend, question(said), catalog_of(*EVEN), DIALECT, scores)
    idle = [request for request in backend.requests if IDLE in str(request.messages)]
    assert len(idle) * 2 == len(backend.requests) - len(idle)


async def test_what_all_names_begin_with_is_not_asked_about() -> None:
    names = ("country_info.capital", "country_info.population")
    backend = Names(dict.fromkeys(names, 0.5) | {names[1]: 0.9}, dict.fromkeys(names, 0.5))
    chosen, _ = await choose(backend, question("How many live there?"), catalog_of(*names), DIALECT)
    begun = {request.messages[-1].content for request in backend.requests}
    assert (chosen, begun) == (names[1], {f"{BEGUN}country_info"})


async def test_among_no_tools_none_is_chosen() -> None:
    backend = Names({"x": 1.0}, {"x": 1.0})
    chosen, _ = await choose(backend, question(), Catalog([]), DIALECT)
    assert chosen == ""


async def test_one_tool_costs_nothing() -> None:
    backend = ScriptedBackend([])
    assert await choose(backend, question(), catalog_of("only"), DIALECT) == ("only", Usage())


UNTOLD_IDS = ["refused", "no probabilities", "no name of a tool"]
UNTOLD: list[list[Any]] = [
    [BackendStatusError("the last message must be the user's", status_code=400)],
    ["read", "read"],
    [[Chunk(text="x", top_logprobs=(("zzz", -0.1),))]] * 2,
]


@pytest.mark.parametrize("replies", UNTOLD, ids=UNTOLD_IDS)
async def test_where_the_choice_is_left_to_the_model(replies: list[Any]) -> None:
    backend = ScriptedBackend(replies, capabilities=CAPABILITIES)
    assert (await choose(backend, question(), catalog_of("list", "read"), DIALECT))[0] == ""


async def test_a_server_that_is_busy_is_no_refusal() -> None:
    backend = ScriptedBackend([BackendStatusError("busy", status_code=503)], capabilities=CAPABILITIES)
    with pytest.raises(BackendStatusError):
        await choose(backend, question(), catalog_of("list", "read"), DIALECT)


@pytest.mark.parametrize(("shared", "chosen"), [(MOST_STEPS - 2, True), (MOST_STEPS, False)])
async def test_a_name_is_followed_for_so_many_tokens(shared: int, chosen: bool) -> None:
    one, other = f"{'a' * shared}b", f"{'a' * shared}c"
    backend = Names({one: 0.9, other: 0.1}, {one: 0.5, other: 0.5}, length=1)
    name, _ = await choose(backend, question(), catalog_of(one, other), DIALECT)
    assert name == (one if chosen else "")


NAME = st.text("ab_", min_size=1, max_size=6)
TOKENS = st.lists(st.tuples(st.text('ab_">\n', max_size=4), st.floats(-20, 0)), max_size=8).map(tuple)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None)
@given(names=st.sets(NAME, min_size=1, max_size=5), tokens=st.lists(TOKENS, min_size=4, max_size=4))
def test_only_tools_that_are_offered_are_chosen(dialect: str, names: set[str], tokens: list[Any]) -> None:
    replies: list[Any] = [[Chunk(text="x", top_logprobs=each)] for each in tokens] * MOST_STEPS
    backend = ScriptedBackend(replies, capabilities=CAPABILITIES)
    name, _ = asyncio.run(choose(backend, question(), catalog_of(*names), DIALECTS[dialect]))
    assert name in {"", *names}


def test_a_long_token_is_held_against_names_in_time_that_grows_with_it() -> None:
    def seconds(length: int) -> float:
        began = time.process_time()
        assert not _continues_any(['read">\n', 'list">\n'])("x" * length)
        return time.process_time() - began

    assert seconds(160_000) < 0.05 + 12 * max(seconds(40_000), 0.002)
