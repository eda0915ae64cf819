"""A replica that is killed can tell its callers nothing: their connections break off, and the official SDKs raise on that.

What stands between them is HTTP's chunked encoding: without its last chunk an answer is not whole. Where an SDK took such an
answer for a short one, nobody would learn that something is missing.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest
from cli_harness import SECONDS, lent_server
from servers.fake_openai import FakeOpenAI
from serving import ENDLESS, TOOL, Serving

SAID: Any = [{"role": "user", "content": "Hi"}]
OFFERED: Any = [TOOL]


def openai_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=SECONDS)


def anthropic_of(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=SECONDS)


def chat(url: str, stream: bool) -> Any:
    return openai_of(url).chat.completions.create(model="any", messages=SAID, tools=OFFERED, stream=stream)


def relayed(url: str, stream: bool) -> Any:
    return openai_of(url).chat.completions.create(model="any", messages=SAID, stream=stream)


def responses(url: str, stream: bool) -> Any:
    return openai_of(url).responses.create(model="any", input="Hi", stream=stream)


def messages(url: str, stream: bool) -> Any:
    return anthropic_of(url).messages.create(model="any", max_tokens=9, messages=SAID, stream=stream)


def ollama_chat(url: str, stream: bool) -> Any:
    client = ollama.Client(host=url, timeout=SECONDS)
    return client.chat(model="any", messages=SAID, stream=True) if stream else client.chat(model="any", messages=SAID)


def chat_events(url: str) -> Iterator[Any]:
    with openai_of(url).chat.completions.stream(model="any", messages=SAID) as events:
        yield from events


def responses_events(url: str) -> Iterator[Any]:
    with openai_of(url).responses.stream(model="any", input="Hi") as events:
        yield from events


def messages_events(url: str) -> Iterator[Any]:
    with anthropic_of(url).messages.stream(model="any", max_tokens=9, messages=SAID) as events:
        yield from events


# How each is asked, and what it raises when a stream breaks off: Anthropic's and Ollama's pass on the error of their HTTP client.
STREAMED: dict[str, tuple[Callable[[str], Any], type[Exception]]] = {
    "chat": (lambda url: chat(url, True), openai.APIConnectionError),
    "chat, relayed": (lambda url: relayed(url, True), openai.APIConnectionError),
    "chat, by events": (chat_events, openai.APIConnectionError),
    "responses": (lambda url: responses(url, True), openai.APIConnectionError),
    "responses, by events": (responses_events, openai.APIConnectionError),
    "messages": (lambda url: messages(url, True), httpx2.RemoteProtocolError),
    "messages, by events": (messages_events, httpx2.RemoteProtocolError),
    "ollama": (lambda url: ollama_chat(url, True), httpx.RemoteProtocolError),
}
WHOLE: dict[str, tuple[Callable[[str, bool], Any], type[Exception]]] = {
    "chat, relayed": (relayed, openai.APIConnectionError),
    "responses": (responses, openai.APIConnectionError),
    "messages": (messages, anthropic.APIConnectionError),
    "ollama": (ollama_chat, httpx.RemoteProtocolError),
}


@pytest.fixture
def fake() -> FakeOpenAI:
    """A model server that says one word and then nothing."""
    return FakeOpenAI(steps=ENDLESS)


@pytest.fixture
def proxy(fake: FakeOpenAI, tmp_path: Path) -> Iterator[Serving]:
    with lent_server(fake.app) as model:
        with Serving("--model", f"{model}/v1", "--ask", "mode=xml", home=tmp_path) as running:
            yield running


def killed_in(pieces: Any, proxy: Serving) -> list[str]:
    """Read a stream whose server is killed at its first word."""
    seen = []
    for piece in pieces:
        seen.append(str(piece))
        if "Hello" in seen[-1]:
            proxy.process.kill()
    return seen


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_that_breaks_off_raises(name: str, proxy: Serving) -> None:
    asked, raised = STREAMED[name]
    with pytest.raises(raised):
        killed_in(asked(proxy.url), proxy)
    assert proxy.process.wait(SECONDS) == -9


@pytest.mark.sweep  # as a program of its own, too
def test_an_answer_that_does_not_come_raises(fake: FakeOpenAI, proxy: Serving) -> None:
    with ThreadPoolExecutor() as threads:
        asked = {name: threads.submit(ask, proxy.url, False) for name, (ask, _) in WHOLE.items()}
        deadline = time.monotonic() + SECONDS
        while len(fake.bodies) < len(asked) and time.monotonic() < deadline:
            time.sleep(0.02)
        proxy.process.kill()
        failed = {name: answer.exception(SECONDS) for name, answer in asked.items()}
    assert len(fake.bodies) == len(asked), "all were under way"
    assert {name: type(error) for name, error in failed.items()} == {name: raised for name, (_, raised) in WHOLE.items()}
