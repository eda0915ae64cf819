"""LiteLLM's real proxy with our engine as a provider in its process, asked by OpenAI's SDK."""

import asyncio
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from integrations.asking import FORTY_TWO, REPLIES, WAYS, Answer, body, sdk, streamed
from integrations.install_litellm import ENVIRONMENT
from integrations.litellm_proxy import SWITCHES, deployment, installed, litellm_proxy
from integrations.scripted_model import ScriptedModel
from proxy_harness import ADD, add, block
from servers.fake_openai import CUT
from servers.run_server import run_server

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(installed()), reason=installed() or "LiteLLM is there"),
    pytest.mark.timeout(120),
]

NOWHERE = "http://127.0.0.1:9"
XML = {"mode": "xml"}
SETTINGS = {
    "custom_provider_map": [{"provider": "xmlcall", "custom_handler": "xmlcall.integrations.litellm_provider.handler"}],
    "callbacks": "xmlcall.integrations.litellm.handler_for_all",  # has to leave the provider's models alone
}


@dataclass(frozen=True)
class Place:
    """The proxy, and the model server behind it."""

    url: str
    model: ScriptedModel
    server: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    model = ScriptedModel()
    with run_server(model.app) as server:
        rows = [provided("tiny", server, XML), provided("hermes", server, {**XML, "dialect": "hermes", "reminder": False})]
        rows += [provided("wrong", server, {"color": "red"}), provided("gone", NOWHERE, XML)]
        rows += [deployment("native", NOWHERE, xmlcall=False)]
        router = {"fallbacks": [{"gone": ["tiny"]}, {"native": ["tiny"]}], "num_retries": 0}
        config = {"model_list": rows, "litellm_settings": SETTINGS, "router_settings": router}
        with litellm_proxy(tmp_path_factory.mktemp("provider"), config) as (url, _):
            yield Place(url, model, server)


def provided(name: str, server: str, options: dict[str, Any]) -> dict[str, Any]:
    row = deployment(name, server, xmlcall=options)
    return row | {"litellm_params": {"model": "xmlcall/tiny", "api_base": f"{server}/v1"}}


@pytest.fixture
async def client(place: Place) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(place.url) as client:
        yield client


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REPLIES)
async def test_what_a_caller_gets(place: Place, client: openai.AsyncOpenAI, way: str, case: str) -> None:
    reply, expected = REPLIES[case]
    assert await WAYS[way](client, body(place.model.says(*reply))) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [add("seventeen", 25), block(("fly", {"a": 1})), "<function_results>42</function_results>"])
async def test_the_model_is_asked_again(place: Place, client: openai.AsyncOpenAI, way: str, wrong: str) -> None:
    word = place.model.says(wrong, then=[add(17, 25)])
    assert await WAYS[way](client, body(word)) == Answer("", (FORTY_TWO,), "tool_calls")
    assert len(place.model.asked[word]) == 2


@pytest.mark.parametrize(("way", "pieces"), [("whole", [block(("fly", {}))]), ("streamed", ["Hm. ", block(("fly", {}))])])
async def test_a_call_that_stays_wrong_is_an_error(place: Place, client: openai.AsyncOpenAI, way: str, pieces: list[str]) -> None:
    """It is told once: LiteLLM does not ask again what was asked again already."""
    word = place.model.says(*pieces)
    with pytest.raises(openai.APIError, match="There is no tool 'fly'"):
        await WAYS[way](client, body(word))
    assert len(place.model.asked[word]) == 4  # the last time for plain words


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_is_required_is_asked_for_again(place: Place, client: openai.AsyncOpenAI, way: str) -> None:
    word = place.model.says("It is 42.", then=[add(17, 25)])
    assert (await WAYS[way](client, body(word, tool_choice="required"))).calls == (FORTY_TWO,)


async def test_what_the_model_server_is_sent(place: Place, client: openai.AsyncOpenAI) -> None:
    word = place.model.says("It is 42.")
    await streamed(client, body(word, model="hermes", temperature=0.25, seed=3, max_tokens=9))
    (sent,) = place.model.asked[word]
    assert [sent[name] for name in ("model", "temperature", "seed", "max_tokens")] == ["tiny", 0.25, 3, 9]
    assert sent.keys() <= {"model", "messages", "stream", "stream_options", "temperature", "seed", "max_tokens"}
    assert "<tool_call>" in sent["messages"][0]["content"]
    assert sent["messages"][-1]["content"] == f"{word}: what is 17 + 25?"


async def test_no_caller_chooses_how_a_model_is_asked(place: Place, client: openai.AsyncOpenAI) -> None:
    more = {"xmlcall": {"dialect": "hermes"}, "model_info": {"xmlcall": {"dialect": "hermes"}}}
    word = place.model.says("It is 42.")
    await streamed(client, body(word, extra_body=more))
    assert "<function_calls>" in place.model.asked[word][0]["messages"][0]["content"]


async def test_usage_is_told(place: Place, client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**body(place.model.says(add(17, 25))))
    asked = body(place.model.says(add(17, 25)), stream_options={"include_usage": True}, stream=True)
    *_, last = [chunk async for chunk in await client.chat.completions.create(**asked)]
    assert [each.usage and each.usage.prompt_tokens for each in (whole, last)] == [32, 32]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["gone", "native"])
async def test_a_fallback(place: Place, client: openai.AsyncOpenAI, way: str, model: str) -> None:
    assert (await WAYS[way](client, body(place.model.says(add(17, 25)), model=model))).calls == (FORTY_TWO,)


async def test_twenty_callers_at_once_get_their_own_calls(place: Place, client: openai.AsyncOpenAI) -> None:
    numbers = range(100, 120)
    asked = [body(place.model.says(*add(number, 1))) for number in numbers]
    found = await asyncio.gather(*(WAYS[way](client, each) for way, each in zip(itertools.cycle(WAYS), asked, strict=False)))
    assert [each.calls for each in found] == [(("add", {"a": number, "b": 1}),) for number in numbers]


# more of the request -> status, words of the message
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, 400, "expected one of the tools"),
    ({"model": "wrong"}, 400, "expected a table"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("more", "status", "words"), REFUSED)
async def test_a_request_that_is_refused(
    place: Place, client: openai.AsyncOpenAI, way: str, more: dict[str, Any], status: int, words: str
) -> None:
    word = place.model.says("42")
    with pytest.raises(openai.APIStatusError, match=words) as error:
        await WAYS[way](client, body(word) | more)
    assert error.value.status_code == status
    assert word not in place.model.asked


async def test_a_model_server_that_fails_in_mid_stream(place: Place, client: openai.AsyncOpenAI) -> None:
    chunks = await client.chat.completions.create(stream=True, **body(place.model.says("I add. ", CUT)))
    assert (await anext(chunks)).choices[0].delta.content == "I add. "
    with pytest.raises(openai.APIError):
        async for _ in chunks:
            pass


async def test_anthropics_messages_through_litellm(place: Place) -> None:
    tool = {"name": "add", "description": "Add two integers.", "input_schema": ADD["function"]["parameters"]}
    said = {"role": "user", "content": f"{place.model.says('I add. ', add(17, 25))}: what is 17 + 25?"}
    asked = {"model": "tiny", "max_tokens": 100, "tools": [tool], "messages": [said]}
    async with httpx.AsyncClient(timeout=30) as client:
        parts = (await client.post(f"{place.url}/v1/messages", json=asked)).json()["content"]
    assert [(part["name"], part["input"]) for part in parts if part["type"] == "tool_use"] == [FORTY_TWO]


WITHOUT_PROXY = """
import asyncio, litellm, sys
from xmlcall.integrations.litellm_provider import handler
litellm.custom_provider_map = [{"provider": "xmlcall", "custom_handler": handler}]
asked = {"model": "xmlcall/tiny", "api_base": sys.argv[1], "messages": [{"role": "user", "content": sys.argv[2]}]}
async def main():
    print((await litellm.acompletion(**asked)).choices[0].message.content)
    print("".join([chunk.choices[0].delta.content or "" async for chunk in await litellm.acompletion(**asked, stream=True)]))
asyncio.run(main())
"""


def test_litellm_without_its_proxy(place: Place) -> None:
    python = str(ENVIRONMENT / "bin" / "python")
    command = [python, "-c", WITHOUT_PROXY, f"{place.server}/v1", place.model.says("It is ", "42.")]
    done = subprocess.run(command, env=os.environ | SWITCHES, timeout=100, capture_output=True, text=True, check=False)
    assert done.stdout == "It is 42.\nIt is 42.\n", done.stderr
