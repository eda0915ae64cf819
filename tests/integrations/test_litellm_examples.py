"""examples/litellm with LiteLLM's real proxy: our provider and our hooks in it, and `xmlcall serve` behind it."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml
from integrations.asking import FORTY_TWO, REPLIES, WAYS, Answer, body, sdk
from integrations.litellm_proxy import installed, litellm_proxy
from integrations.scripted_model import ANY, ScriptedModel
from proxy_harness import ADD, add, block
from servers.fake_openai import CUT
from servers.run_server import run_server
from servers.started import printed_url

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(installed()), reason=installed() or "LiteLLM is there"),
    pytest.mark.timeout(120),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "litellm"


@dataclass(frozen=True)
class Place:
    """The proxy with the configuration of the example, and the model server behind all of it."""

    url: str
    model: ScriptedModel


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, model = tmp_path_factory.mktemp("example"), ScriptedModel()
    written = (EXAMPLE / "config.yaml").read_text(encoding="utf-8")
    with run_server(model.app) as server:
        serve = ("-m", "xmlcall", "serve", "--model", f"{server}/v1", "--ask", "mode=xml", "--port", "0")
        with printed_url(*serve) as (served, _):
            moved = written.replace("http://127.0.0.1:8080", server).replace("http://127.0.0.1:8485", served)
            with litellm_proxy(folder, yaml.safe_load(moved)) as (url, _):
                yield Place(url, model)


@pytest.fixture
async def client(place: Place) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(place.url) as client:
        yield client


@pytest.mark.parametrize("model", ["tiny", "tiny-zh", "tiny-served", "tiny-inside"])
def test_the_program_of_the_example(place: Place, model: str) -> None:
    place.model.says("I count. ", block(("days_until", {"feast": "Christmas"})), then=["It is 32 days."], word=ANY)
    command = [sys.executable, str(EXAMPLE / "ask.py"), model, f"{place.url}/v1"]
    done = subprocess.run(command, env=os.environ, timeout=60, capture_output=True, text=True, check=False)
    assert done.stdout == "I count. [days_until: Christmas: 32 days]\nIt is 32 days.", done.stderr
    last = place.model.asked[ANY][1]["messages"][-1]
    assert (last["role"], "Christmas: 32 days" in last["content"]) == ("user", True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REPLIES)
async def test_xmlcall_serve_behind_litellm(place: Place, client: openai.AsyncOpenAI, way: str, case: str) -> None:
    reply, expected = REPLIES[case]
    assert await WAYS[way](client, body(place.model.says(*reply), model="tiny-served")) == expected


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_is_repaired_behind_litellm_only_goes_out_right(
    place: Place, client: openai.AsyncOpenAI, way: str
) -> None:
    """What the hooks cannot do: the model is told what is wrong, and asked again."""
    word = place.model.says(add("seventeen", 25), then=[add(17, 25)])
    assert await WAYS[way](client, body(word, model="tiny-served")) == Answer("", (FORTY_TWO,), "tool_calls")
    assert len(place.model.asked[word]) == 2
    hooked = place.model.says(add("seventeen", 25), then=[add(17, 25)])
    assert (await WAYS[way](client, body(hooked))).calls == (("add", {"a": "seventeen", "b": 25}),)
    assert len(place.model.asked[hooked]) == 1


async def test_a_failure_in_mid_stream_behind_litellm(place: Place, client: openai.AsyncOpenAI) -> None:
    word = place.model.says("I add. ", CUT)
    chunks = await client.chat.completions.create(stream=True, **body(word, model="tiny-served"))
    with pytest.raises(openai.APIError):
        async for _ in chunks:
            pass


# LiteLLM's other APIs: path, body without the question, where a call is in the answer
SCHEMA = ADD["function"]["parameters"]
MESSAGES_TOOLS = [{"name": "add", "description": "Add two integers.", "input_schema": SCHEMA}]
RESPONSES_TOOLS = [{"type": "function", "name": "add", "description": "Add two integers.", "parameters": SCHEMA}]
OTHERS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"max_tokens": 100, "tools": MESSAGES_TOOLS},
    "/v1/responses": {"tools": RESPONSES_TOOLS},
}


@pytest.mark.parametrize("path", OTHERS)
async def test_xmlcall_serve_behind_other_apis_of_litellm(place: Place, path: str) -> None:
    said = f"{place.model.says('I add. ', add(17, 25))}: what is 17 + 25?"
    question = {"input": said} if path == "/v1/responses" else {"messages": [{"role": "user", "content": said}]}
    async with httpx.AsyncClient(timeout=30) as client:
        answer = (await client.post(f"{place.url}{path}", json={"model": "tiny-served", **OTHERS[path], **question})).json()
    parts = answer["output"] if path == "/v1/responses" else answer["content"]
    (call,) = [part for part in parts if part["type"] in ("tool_use", "function_call")]
    arguments = call.get("input") or json.loads(call["arguments"])
    assert (call["name"], arguments) == FORTY_TWO
