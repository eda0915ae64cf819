"""Rounds of the proxy's own tools in a store: what is kept, and what comes of a store that fails or that others wrote into."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_harness import ask_engine, block, body, function, texts
from redis_server import RedisServer

from xmlcall import LocalHost
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy import create_app
from xmlcall.proxy.engine import own_rounds
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.history import said
from xmlcall.proxy.engine.own_rounds import NoRoundsError, OwnRounds, decoded, encoded
from xmlcall.proxy.formats.bodies import call_of
from xmlcall.proxy.sharing.redis import RedisStore
from xmlcall.proxy.sharing.store import MemoryStore, Store, StoreError
from xmlcall.types.calls import Message, TextContent, ToolResult

CALL = block(("add", {"a": 1, "b": 2}))
DOUBLE = block(("double", {"n": 4}))
REPLIES = [DOUBLE, f"Now.\n\n{CALL}", "Done."]


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def told(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


ROUNDS = OwnRounds(
    before=(Message(role="assistant", content=DOUBLE), Message(role="user", content="8", images=("data:,x",))),
    shown="Well. ",
    calls=((call_of("call_1", "add", {"a": 1, "b": None}, 0), None), (call_of("", "double", {"n": 4}, 1), told("8 \ud800 世界"))),
    results=("8",),
)


def engine_of(model: ScriptedBackend, store: Store) -> Engine:
    return Engine(model, [LocalHost([double], name="own")], mode="xml", allowed=["*"], store=store)


async def second_prompt(store: Store, between: Callable[[str], Any] | None = None) -> list[tuple[str, str]]:
    """Have the proxy run a tool of its own and give a call to the caller; give the prompt of the request with its result."""
    model = ScriptedBackend(REPLIES)
    async with engine_of(model, store) as engine:
        turn = await ask_engine(engine, body("Both."))
        (call,) = turn.calls
        if between is not None:
            await between(call.id)
        made = {"id": call.id, "type": "function", "function": {"name": "add", "arguments": json.dumps(call.arguments)}}
        said = {"role": "assistant", "content": turn.text, "tool_calls": [made]}
        await ask_engine(engine, body("Both.", said, {"role": "tool", "tool_call_id": call.id, "content": "3"}))
    return texts(model)


KNOWN = ["system", "user", "assistant", "user", "assistant", "user"]
NOT_KNOWN = ["system", "user", "assistant", "user"]


def roles(prompt: list[tuple[str, str]]) -> list[str]:
    return [role for role, _ in prompt]


async def test_rounds_are_shown_again_and_text_of_them_is_not_said_twice() -> None:
    prompt = await second_prompt(MemoryStore())
    assert roles(prompt) == KNOWN
    assert (prompt[2][1], prompt[4][1]) == (DOUBLE, f"Now.\n\n{CALL}")
    assert "\n8\n" in prompt[3][1]


class Broken:
    """A store that fails, or answers after a time.

    Args:
        seconds: after which it would answer; None fails at once.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds

    async def _answer(self) -> None:
        if self._seconds is None:
            raise StoreError("the store at 127.0.0.1:6379 failed (ConnectionError)")
        await asyncio.sleep(self._seconds)

    async def get(self, key: str) -> bytes | None:
        await self._answer()
        return None

    async def put(self, key: str, value: bytes, *, seconds: float) -> None:
        await self._answer()

    async def add(self, key: str, amount: int, *, seconds: float) -> int:
        raise AssertionError("rounds are no sums")


@pytest.mark.parametrize("store", [Broken(), Broken(30)], ids=["fails", "slow"])
async def test_a_store_that_fails_costs_the_rounds_and_not_the_answer(
    store: Broken, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    monkeypatch.setattr(own_rounds, "WAIT", 0.2)
    begun = time.monotonic()
    assert roles(await second_prompt(store)) == NOT_KNOWN
    assert time.monotonic() - begun < 5
    assert sum("are not known now" in record.getMessage() for record in caplog.records) == 1
    assert sum("are not kept" in record.getMessage() for record in caplog.records) == 1


async def test_a_proxy_without_tools_of_its_own_asks_no_store(caplog: pytest.LogCaptureFixture) -> None:
    class Untouched(Broken):
        async def _answer(self) -> None:
            raise AssertionError("asked")

    made = {"id": f"call_{'0' * 24}", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [made]}
    async with Engine(ScriptedBackend([CALL, "Done."]), mode="xml", store=Untouched()) as engine:
        assert (await ask_engine(engine, body("Add."))).calls
        assert (await ask_engine(engine, body("Add.", said, {"role": "tool", "content": "3"}))).text == "Done."


GARBAGE: dict[str, bytes] = {
    "no JSON": b"\xff\x00",
    "a list": b"[]",
    "another version": b'{"version":2,"before":[],"shown":"","calls":[],"results":[]}',
    "no calls": b'{"version":1,"before":[],"shown":"","calls":[],"results":[]}',
    "a system message": encoded(ROUNDS).replace(b'"assistant"', b'"system"'),
    "more": encoded(ROUNDS)[:-1] + b',"more":1}',
    "a number of text": encoded(ROUNDS).replace(b'"Well. "', b"5"),
    "no number": encoded(ROUNDS).replace(b'{"n":4}', b'{"n":NaN}'),
    "a number too large": encoded(ROUNDS).replace(b'{"n":4}', b'{"n":1e999}'),
    "deep": b"[" * 100_000,
    "large": b" " * (own_rounds.BYTES_LIMIT + 1),
}


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_rounds_is_not_known(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    with pytest.raises(NoRoundsError):
        decoded(value)
    store = MemoryStore()

    async def overwrite(identity: str) -> None:
        await store.put(f"rounds:{identity}", value, seconds=60)

    assert roles(await second_prompt(store, overwrite)) == NOT_KNOWN
    assert sum("passed over" in record.getMessage() for record in caplog.records) == 1


async def test_rounds_behind_other_arguments_are_not_shown() -> None:
    store = MemoryStore()

    async def overwrite(identity: str) -> None:
        other = replace(ROUNDS, calls=((call_of(identity, "add", {"a": 1, "b": 3}, 0), None),))
        await store.put(f"rounds:{identity}", encoded(other), seconds=60)

    assert roles(await second_prompt(store, overwrite)) == NOT_KNOWN


def test_rounds_are_the_same_when_read() -> None:
    assert decoded(encoded(ROUNDS)) == ROUNDS


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5).map(repr).map(str.encode)
)
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    with pytest.raises(NoRoundsError):
        decoded(value)


async def test_rounds_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    monkeypatch.setattr(own_rounds, "BYTES_LIMIT", 100)
    assert roles(await second_prompt(MemoryStore())) == NOT_KNOWN
    assert "100 are kept" in caplog.text


async def test_ids_of_others_are_not_looked_up() -> None:
    class Listed(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.keys: list[str] = []

        async def get(self, key: str) -> bytes | None:
            self.keys.append(key)
            return await super().get(key)

    store = Listed()
    history: list[dict[str, Any]] = []
    for identity in ("toolu_1", "call_\n*", f"call_{'0' * 24}", "x" * 10_000):
        made = {"id": identity, "type": "function", "function": {"name": "add", "arguments": "{}"}}
        history += [{"role": "assistant", "content": None, "tool_calls": [made]}, {"role": "tool", "content": "3"}]
    async with engine_of(ScriptedBackend(["Done."]), store) as engine:
        await ask_engine(engine, body("Add.", *history))
    assert store.keys == [f"rounds:call_{'0' * 24}"]


async def test_a_redis_that_ends_and_comes_back(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()

    async def end(identity: str) -> None:
        server.end()

    try:
        async with RedisStore(server.url) as store:
            assert roles(await second_prompt(store)) == KNOWN
            assert roles(await second_prompt(store, end)) == NOT_KNOWN
            server.start()
            assert roles(await second_prompt(store)) == KNOWN
    finally:
        server.end()


async def test_an_app_opens_the_store_that_it_has_the_address_of(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    app = create_app(ScriptedBackend(REPLIES), [LocalHost([double], name="own")], mode="xml", allowed=["*"], share=server.url)
    try:
        async with app.router.lifespan_context(app), RedisStore(server.url) as store:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                answer = (await client.post("/v1/chat/completions", json=body("Both."))).json()
            (call,) = answer["choices"][0]["message"]["tool_calls"]
            kept = await store.get(f"rounds:{call['id']}")
        assert kept is not None
        assert decoded(kept).results == ("8",)
    finally:
        server.end()


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
    assert said(text, CALL) == written


TEXT_OF_ROUNDS = [("Well. Now.\n", "Now.\n"), ("Well. ", ""), ("Now.", "Now."), ("", ""), (" Well. Now. ", "Now.")]


@pytest.mark.parametrize(("content", "rest"), TEXT_OF_ROUNDS)
def test_text_that_was_shown_in_rounds_before(content: str, rest: str) -> None:
    assert ROUNDS.rest_of(content).strip() == rest.strip()


async def test_descriptions_that_the_model_asked_for_are_rounds_too() -> None:
    tools = [function(f"tool_{number}", "Do something with a text. " * 30, text={"type": "string"}) for number in range(40)]
    store = MemoryStore()
    replies = [block(("describe_tools", {"names": '["tool_3"]'})), block(("tool_3", {"text": "x"})), "Done."]
    model = ScriptedBackend(replies)
    async with Engine(model, mode="xml", store=store, tool_tokens=800) as engine:
        (call,) = (await ask_engine(engine, body("Do it.", tools=tools))).calls
        made = {"id": call.id, "type": "function", "function": {"name": "tool_3", "arguments": '{"text": "x"}'}}
        said = {"role": "assistant", "content": None, "tool_calls": [made]}
        await ask_engine(engine, body("Do it.", said, {"role": "tool", "content": "3"}, tools=tools))
    assert roles(texts(model)) == KNOWN
