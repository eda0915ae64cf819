"""LiteLLM's real proxy with our hooks, before a model server that says what it is told to, asked by OpenAI's SDK."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from integrations.asking import FORTY_TWO, REPLIES, WAYS, Answer, body, sdk, streamed, whole
from integrations.litellm_proxy import deployment, installed, litellm_proxy
from integrations.scripted_model import ScriptedModel
from proxy_harness import ADD, add, block
from servers.fake_openai import CUT
from servers.run_server import run_server

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(installed()), reason=installed() or "LiteLLM is there"),
    pytest.mark.timeout(180),
]

HANDLER = "xmlcall.integrations.litellm.handler"
NOWHERE = "http://127.0.0.1:9"
ROUTER = {"fallbacks": [{"gone": ["untouched"]}], "num_retries": 0}


@dataclass(frozen=True)
class Place:
    """The proxy, and the model server behind it."""

    url: str
    model: ScriptedModel
    server: str
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
        rows += [deployment("wrong", server, xmlcall={"dialect": "klingon"}), deployment("gone", NOWHERE, xmlcall=True)]
        config = {"model_list": rows, "litellm_settings": {"callbacks": HANDLER}, "router_settings": ROUTER}
        with litellm_proxy(tmp_path_factory.mktemp("litellm"), config) as (url, log):
            yield Place(url, model, server, log)


@pytest.fixture(scope="module")
def all_marked(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[str]:
    """The proxy with the handler for all models, and with models of which some say that they want none of it."""
    rows = [deployment("plain", place.server), deployment("off", place.server, xmlcall=False)]
    config = {"model_list": rows, "litellm_settings": {"callbacks": f"{HANDLER}_for_all"}}
    with litellm_proxy(tmp_path_factory.mktemp("all"), config) as (url, _):
        yield url


@pytest.fixture
async def client(place: Place) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(place.url) as client:
        yield client


INVOKE = '<invoke name="{0}">\n<parameter name="a">17</parameter>\n</invoke>'

# the reply -> what the caller gets
HOOKED: dict[str, tuple[str, Answer]] = {
    **REPLIES,
    "a wrong argument": (add("seventeen", 25), Answer("", (("add", {"a": "seventeen", "b": 25}),), "tool_calls")),
    "an unknown tool": (f"<function_calls>\n{INVOKE.format('fly')}\n</function_calls>", Answer(INVOKE.format("fly"), (), "stop")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", HOOKED)
async def test_what_a_caller_gets(place: Place, client: openai.AsyncOpenAI, way: str, case: str) -> None:
    reply, expected = HOOKED[case]
    assert await WAYS[way](client, body(place.model.says(reply))) == expected


async def test_the_answer_is_the_same_however_the_stream_is_cut(place: Place, client: openai.AsyncOpenAI) -> None:
    reply = f"嗯。{add(17, 25)}"
    cuts = [[reply[:cut], reply[cut:]] for cut in range(1, len(reply))]
    answers = [await streamed(client, body(place.model.says(*pieces))) for pieces in [*cuts, list(reply)]]
    assert [found for found in answers if found != Answer("嗯。", (FORTY_TWO,), "tool_calls")] == []


async def test_chunks_of_a_call(place: Place, client: openai.AsyncOpenAI) -> None:
    """Text, then the name with the id and no arguments, then arguments, then the reason; the usage last, if it was asked for."""
    asked = body(place.model.says("I add. ", *add(17, 25)), stream_options={"include_usage": True})
    chunks = [chunk async for chunk in await client.chat.completions.create(stream=True, **asked)]
    *parts, usage = chunks
    deltas = [(chunk.choices[0].delta, chunk.choices[0].finish_reason) for chunk in parts]
    assert [(delta.role, delta.content) for delta, _ in deltas[:2]] == [("assistant", ""), (None, "I add. ")]
    calls = [delta.tool_calls[0] for delta, _ in deltas if delta.tool_calls]
    heads = [(call.index, call.function and call.function.name, call.function and call.function.arguments) for call in calls]
    assert heads == [(0, "add", ""), (0, None, '{"a": 17, "b": 25}')]
    assert [bool(call.id) for call in calls] == [True, False]
    assert [reason for _, reason in deltas] == [None] * 4 + ["tool_calls"]
    assert (usage.choices, usage.usage and usage.usage.completion_tokens) == ([], 4)
    assert {chunk.id for chunk in chunks} == {"chatcmpl-x"}


async def test_twenty_callers_at_once_get_their_own_calls(place: Place, client: openai.AsyncOpenAI) -> None:
    numbers = range(100, 120)
    asked = [body(place.model.says(*add(number, 1))) for number in numbers]
    found = await asyncio.gather(*(WAYS[way](client, each) for way, each in zip(itertools.cycle(WAYS), asked, strict=False)))
    assert [each.calls for each in found] == [(("add", {"a": number, "b": 1}),) for number in numbers]


# -- requests ----------------------------------------------------------------------------------------------------------

CALL = {"id": "call_1", "type": "function", "function": {"name": "echo", "arguments": '{"text": "hello"}'}}
BEFORE: list[dict[str, Any]] = [
    {"role": "user", "content": "Say hello"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "hello, said the tool"},
    {"role": "assistant", "content": "It was said."},
]


@pytest.mark.parametrize("way", WAYS)
async def test_calls_that_the_model_server_reads_itself_stay(place: Place, client: openai.AsyncOpenAI, way: str) -> None:
    native = {"tool_calls": [{"index": 0, "id": "call_7", "type": "function", "function": {"name": "add", "arguments": "{}"}}]}
    assert (await WAYS[way](client, body(place.model.says(native)))).calls == (("add", {}),)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_functions_are_answered_in_their_own_form(place: Place, client: openai.AsyncOpenAI, is_streamed: bool) -> None:
    asked = body(place.model.says(add(17, 25)), tools=openai.omit, functions=[ADD["function"]], stream=is_streamed)
    answer = await client.chat.completions.create(**asked)
    parts = [chunk.choices[0].delta async for chunk in answer] if is_streamed else [answer.choices[0].message]
    calls = [part.function_call for part in parts if part.function_call]
    assert "".join(call.name or "" for call in calls) == "add"
    assert json.loads("".join(call.arguments for call in calls)) == FORTY_TWO[1]


@pytest.mark.parametrize("way", WAYS)
async def test_what_the_model_server_is_sent(place: Place, client: openai.AsyncOpenAI, way: str) -> None:
    word = place.model.says("It is 42.")
    await WAYS[way](client, body(word, *BEFORE, temperature=0.25, parallel_tool_calls=False))
    (sent,) = place.model.asked[word]
    system, _, call, result, said, question = (message["content"] for message in sent["messages"])
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "Add two integers." in system
    assert call == block(("echo", {"text": "hello"}))
    assert result.startswith("<function_results>")
    assert "hello, said the tool" in result
    assert (said, question.startswith(word)) == ("It was said.", True)
    assert len(question) > len(f"{word}: what is 17 + 25?")
    assert sent.keys() - {"stream", "stream_options"} == {"model", "messages", "temperature"}


# model, more of the request -> whether the model server gets tools, and whether calls are read
TOUCHED: list[tuple[str, dict[str, Any], bool, bool]] = [
    ("tiny", {}, False, True),
    ("tiny", {"tool_choice": "auto"}, False, True),
    ("tiny", {"tool_choice": "required"}, False, True),
    ("tiny", {"tool_choice": {"type": "function", "function": {"name": "add"}}}, False, True),
    ("tiny", {"tool_choice": {"type": "function", "function": {"name": "echo"}}}, False, False),
    ("tiny", {"tool_choice": "none"}, False, False),
    ("tiny", {"tools": openai.omit}, False, False),
    ("untouched", {}, True, False),
    ("off", {}, True, False),
    ("hermes", {}, False, True),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("model", "more", "tools", "is_read"), TOUCHED)
async def test_which_requests_are_touched(
    place: Place, client: openai.AsyncOpenAI, way: str, model: str, more: dict[str, Any], tools: bool, is_read: bool
) -> None:
    word = place.model.says(add(17, 25))
    found = await WAYS[way](client, body(word, model=model, **more))
    assert ("tools" in place.model.asked[word][0]) is tools
    assert (found.calls == (FORTY_TWO,)) is is_read
    assert ("<invoke" in found.text) is not is_read


@pytest.mark.parametrize(("model", "is_read"), [("plain", True), ("off", False)])
async def test_the_handler_for_all_models(place: Place, all_marked: str, model: str, is_read: bool) -> None:
    word = place.model.says(add(17, 25))
    async with sdk(all_marked) as client:
        assert ((await streamed(client, body(word, model=model))).calls == (FORTY_TWO,)) is is_read


async def test_a_model_is_asked_as_its_model_info_says(place: Place, client: openai.AsyncOpenAI) -> None:
    word = place.model.says("42")
    await whole(client, body(word, model="hermes"))
    system, question = (message["content"] for message in place.model.asked[word][0]["messages"])
    assert "<tool_call>" in system
    assert "工具" in system
    assert question == f"{word}: what is 17 + 25?"


@pytest.mark.parametrize("way", WAYS)
async def test_a_fallback_gets_the_same_prompt_and_is_read_the_same(place: Place, client: openai.AsyncOpenAI, way: str) -> None:
    word = place.model.says(add(17, 25))
    assert (await WAYS[way](client, body(word, model="gone"))).calls == (FORTY_TWO,)
    assert "tools" not in place.model.asked[word][0]


# -- failures ----------------------------------------------------------------------------------------------------------

# more of the request -> status, words of the message
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"n": 2}, 400, "ask once for each answer"),
    ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, 400, "expected one of the tools"),
    ({"model": "wrong"}, 500, "not configured rightly"),
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


@pytest.mark.parametrize("way", WAYS)
async def test_results_that_the_model_invents_are_no_answer(place: Place, client: openai.AsyncOpenAI, way: str) -> None:
    with pytest.raises(openai.APIError, match="results that no tool gave"):
        await WAYS[way](client, body(place.model.says("<function_results>42</function_results>")))


@pytest.mark.parametrize("pieces", [["I add. ", CUT], ["I add. ", add(17, 25)[:60], CUT]])
async def test_a_model_server_that_fails_in_mid_stream(place: Place, client: openai.AsyncOpenAI, pieces: list[str]) -> None:
    """What came goes out, then an error; of a call that was begun nothing goes out."""
    chunks = await client.chat.completions.create(stream=True, **body(place.model.says(*pieces)))
    said = [(await anext(chunks)).choices[0].delta for _ in range(2)]
    with pytest.raises(openai.APIError, match="Connection error"):
        await anext(chunks)
    assert "".join(delta.content or "" for delta in said) == "I add. "


async def test_the_log_tells_of_a_call_that_cannot_run(place: Place, client: openai.AsyncOpenAI) -> None:
    await whole(client, body(place.model.says(block(("fly_away", {"where": "secret-place"})))))
    told = place.log.read_text()
    assert "a call of 'fly_away' cannot run (unknown-tool)" in told
    assert "secret-place" not in told
