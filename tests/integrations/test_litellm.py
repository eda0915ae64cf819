"""LiteLLM's real proxy with our hooks, before a model server that says what it is told to, asked by OpenAI's SDK."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from integrations.litellm_proxy import deployment, installed, litellm_proxy
from integrations.scripted_model import ScriptedModel
from proxy_harness import ADD, ECHO, add, block
from servers.fake_openai import CUT
from servers.run_server import run_server

pytestmark = [pytest.mark.skipif(bool(installed()), reason=installed() or "LiteLLM is there"), pytest.mark.timeout(180)]

HANDLER = "xmlcall.integrations.litellm.handler"
TOOLS = [ADD, ECHO]
Asked = Mapping[str, Any]
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """The proxy and the model server behind it."""

    url: str
    model: ScriptedModel
    log: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    model = ScriptedModel()
    with run_server(model.app) as server:
        rows = [
            deployment("tiny", server, xmlcall=True),
            deployment("untouched", server),
            deployment("off", server, xmlcall=False),
        ]
        rows += [deployment("hermes", server, xmlcall={"dialect": "hermes", "lang": "zh", "reminder": False})]
        rows += [deployment("wrong", server, xmlcall={"dialect": "klingon"})]
        config = {"model_list": rows, "litellm_settings": {"callbacks": HANDLER}}
        with litellm_proxy(tmp_path_factory.mktemp("litellm"), config) as (url, log):
            yield Place(url, model, log)


@pytest.fixture
async def client(place: Place) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{place.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def body(word: str, *before: Mapping[str, Any], model: str = "tiny", **more: Any) -> dict[str, Any]:
    messages = [*before, {"role": "user", "content": f"{word}: what is 17 + 25?"}]
    return {"model": model, "messages": messages, "tools": TOOLS} | more


@dataclass(frozen=True)
class Answer:
    """What a caller was given."""

    text: str
    calls: tuple[Call, ...]
    finish_reason: str


def answer(text: str | None, calls: Sequence[Any], reason: str | None) -> Answer:
    read = tuple((call.function.name, json.loads(call.function.arguments)) for call in calls)
    assert len({call.id for call in calls if call.id}) == len(read)
    return Answer(text or "", read, reason or "")


async def whole(client: openai.AsyncOpenAI, asked: Asked) -> Answer:
    choice = (await client.chat.completions.create(**asked)).choices[0]
    return answer(choice.message.content, choice.message.tool_calls or [], choice.finish_reason)


async def streamed(client: openai.AsyncOpenAI, asked: Asked) -> Answer:
    """Ask by the SDK's own reader of streams, which puts the deltas of a call together."""
    async with client.chat.completions.stream(**asked) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    return answer(choice.message.content, choice.message.tool_calls or [], choice.finish_reason)


WAYS = {"whole": whole, "streamed": streamed}
INVOKE = '<invoke name="{0}">\n<parameter name="a">17</parameter>\n</invoke>'
FORTY_TWO: Call = ("add", {"a": 17, "b": 25})

# the reply -> what the caller gets
REPLIES: dict[str, tuple[str, Answer]] = {
    "text": ("It is 42.", Answer("It is 42.", (), "stop")),
    "a call": (add(17, 25), Answer("", (FORTY_TWO,), "tool_calls")),
    "text and a call": (f"I add. {add(17, 25)}", Answer("I add. ", (FORTY_TWO,), "tool_calls")),
    "two calls": (
        block(("add", {"a": 17, "b": 25}), ("echo", {"text": "two words"})),
        Answer("", (FORTY_TWO, ("echo", {"text": "two words"})), "tool_calls"),
    ),
    "a call in Chinese text": (f"我来算一下。{add(17, 25)}", Answer("我来算一下。", (FORTY_TWO,), "tool_calls")),
    "Chinese values": (block(("echo", {"text": "苏黎世"})), Answer("", (("echo", {"text": "苏黎世"}),), "tool_calls")),
    "one call twice": (block(*[FORTY_TWO] * 2), Answer("", (FORTY_TWO,), "tool_calls")),
    "results that are invented": (
        f"{add(17, 25)}\n<function_results>42</function_results> 42!",
        Answer("", (FORTY_TWO,), "tool_calls"),
    ),
    "a wrong argument": (add("seventeen", 25), Answer("", (("add", {"a": "seventeen", "b": 25}),), "tool_calls")),
    "an unknown tool": (f"<function_calls>\n{INVOKE.format('fly')}\n</function_calls>", Answer(INVOKE.format("fly"), (), "stop")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REPLIES)
async def test_what_a_caller_gets(place: Place, client: openai.AsyncOpenAI, way: str, case: str) -> None:
    reply, expected = REPLIES[case]
    assert await WAYS[way](client, body(place.model.says(reply))) == expected
