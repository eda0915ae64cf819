"""Any replica of the proxy can answer any turn: the model server is sent the same bytes as by one proxy alone."""

import contextlib
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import model_server
from profiles import covering
from proxy_harness import ask_engine, double
from replica_talk import TALK, Turn, not_cached, own_talk, play, prompts_of, talk_of
from serving import Serving

from xmlcall import LocalHost
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ContextOverflow
from xmlcall.prompting.fit_context import estimate
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.model_server import REFERENCE
from xmlcall.proxy.formats.contract import WholeResponse, call_of
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

OWN_TALK = own_talk(("double", {"n": 4}))
TALKS = {"own words": TALK, "long": talk_of(12)}
SEEDS = range(4)
REPLICAS = 3


def said_in(talk: Sequence[Turn]) -> list[str]:
    return [reply for _, replies in talk for reply in replies]


@contextlib.asynccontextmanager
async def engines(model: ScriptedBackend, count: int) -> AsyncIterator[list[Engine]]:
    """Open engines, each with a host of its own, as replicas in processes of their own have."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Engine(model, [LocalHost([double], name="own")], mode="xml", allowed=["own.*"]))
            for _ in range(count)
        ]


async def sent(model: ScriptedBackend, talk: Sequence[Turn], count: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    chosen = random.Random(seed)
    async with engines(model, count) as replicas:
        await play([partial(ask_engine, each) for each in replicas], talk, lambda _: chosen.randrange(count))
    return prompts_of(model.requests)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "seed"), covering(TALKS, SEEDS))
async def test_replicas_send_what_one_would(name: str, seed: int) -> None:
    talk = TALKS[name]
    replies = said_in(talk)
    one, three = [await sent(ScriptedBackend(replies), talk, count, seed) for count in (1, REPLICAS)]
    assert three == one
    assert sum(not_cached(three, replies)) == sum(not_cached(one, replies))


READ_ANEW = [(TALK, REPLICAS, 370), (OWN_TALK, 1, 360), (talk_of(12), REPLICAS, 570)]


@pytest.mark.parametrize(("talk", "replicas", "most"), READ_ANEW, ids=["own words", "own tools, one process", "long"])
async def test_what_the_model_server_has_to_read_anew(talk: Sequence[Turn], replicas: int, most: int) -> None:
    """Characters of a prompt. With the model's own words in the memory of each replica, three had twice to five times that."""
    replies = said_in(talk)
    prompts = await sent(ScriptedBackend(replies), talk, replicas)
    anew = not_cached(prompts, replies)
    assert sum(anew) / len(anew) < most
    whole = sum(len(content) for prompt in prompts for _, content in prompt)
    assert 1 - sum(anew[1:]) / whole > 0.9


async def test_a_round_of_own_tools_is_shown_again() -> None:
    """By the process that ran the tools: it keeps their rounds, and a balancer keeps a client on it."""
    prompts = await sent(ScriptedBackend(said_in(OWN_TALK)), OWN_TALK, 1)
    contents = [content for _, content in prompts[-1]]
    assert sum("double" in content and "8" in content for content in contents) >= 2


# -- what does not fit into the context --------------------------------------------------------------------------------


class SmallModel(ScriptedBackend):
    """Refuses prompts that are too long, as model servers do, and tells the lengths of others.

    Args:
        replies: of the conversation.
        density: of its tokens, by our estimate.
        length: tokens of its context.
        is_told: whether it says beforehand how long that is.
    """

    def __init__(self, replies: Sequence[str], density: float, length: int, *, is_told: bool) -> None:
        super().__init__(replies, capabilities=Capabilities(server="scripted", context_length=length if is_told else None))
        self._density, self._length = density, length
        self.measured = self.refused = 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        tokens = round(estimate(request.messages) * self._density)
        if request.messages[0].content == REFERENCE:
            self.measured += 1
            yield Chunk(text="I", finish_reason="length", usage=Usage(prompt_tokens=tokens, completion_tokens=1))
            return
        if tokens >= self._length:
            self.refused += 1
            raise ContextOverflow("too long", status_code=400, prompt_tokens=tokens, context_length=self._length)
        async for chunk in super().stream(request):
            yield chunk
        yield Chunk(usage=Usage(prompt_tokens=tokens, completion_tokens=5))


@pytest.mark.sweep
@pytest.mark.parametrize(("density", "is_told"), covering([0.6, 1.0, 1.5], [True, False]))
async def test_replicas_cut_where_one_would(density: float, is_told: bool) -> None:
    talk = talk_of(16)
    one, three = [SmallModel(said_in(talk), density, 3000, is_told=is_told) for _ in range(2)]
    prompts = [await sent(model, talk, count, seed=2) for model, count in ((one, 1), (three, REPLICAS))]
    assert prompts[0] == prompts[1]
    assert any("are left out" in content for _, content in prompts[0][-1]), "the test is about cuts"
    assert (one.measured, 1 <= three.measured <= REPLICAS) == (1, True)


async def test_a_cut_stays_where_it_is_for_some_turns() -> None:
    """A server that counts more of these words than of the reference refuses each prompt; cuts stay at the same places."""

    class Denser(SmallModel):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            self._density = 1.0 if request.messages[0].content == REFERENCE else 1.7
            async for chunk in super().stream(request):
                yield chunk

    talk = talk_of(24)
    model = Denser(said_in(talk), 1.0, 4000, is_told=True)
    prompts = await sent(model, talk, 1)
    anew = not_cached(prompts, said_in(talk))
    assert model.refused
    assert sum(count < 1500 for count in anew[10:]) > len(anew[10:]) / 2


async def test_short_conversations_cost_no_request() -> None:
    model = SmallModel(said_in(TALK), 1.0, 32_000, is_told=True)
    await sent(model, TALK, 1)
    assert (model.measured, model.refused) == (0, 0)


# -- real processes ----------------------------------------------------------------------------------------------------


def asking(url: str) -> Callable[[dict[str, Any]], Any]:
    async def ask(data: dict[str, Any]) -> WholeResponse:
        async with httpx.AsyncClient(timeout=30) as client:
            answer = (await client.post(f"{url}/v1/chat/completions", json=data)).json()
        (choice,) = answer["choices"]
        calls = tuple(
            call_of(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]), index)
            for index, call in enumerate(choice["message"].get("tool_calls") or ())
        )
        text, reason = choice["message"]["content"] or "", choice["finish_reason"]
        return WholeResponse(text=text, reasoning="", calls=calls, finish_reason=reason, usage=Usage())

    return ask


async def sent_by_processes(home: Path, count: int) -> list[Any]:
    chosen = random.Random(5)
    with contextlib.ExitStack() as stack:
        model, fake = stack.enter_context(model_server(*said_in(TALK)))
        options = ("--ask", "mode=xml", "--model", model)
        homes = [home / f"{count} {number}" for number in range(count)]
        for each in homes:
            each.mkdir()
        proxies = [stack.enter_context(Serving(*options, home=each)) for each in homes]
        await play([asking(proxy.url) for proxy in proxies], TALK, lambda _: chosen.randrange(count))
    return [body["messages"] for body in fake.bodies]


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_processes_send_what_one_would(tmp_path: Path) -> None:
    """Each has hashes of its own, so that the order of a set would show."""
    one = await sent_by_processes(tmp_path, 1)
    three = await sent_by_processes(tmp_path, REPLICAS)
    assert len(one) == len(said_in(TALK))
    assert three == one
