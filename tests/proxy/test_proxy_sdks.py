"""The official SDKs of OpenAI, Anthropic and Ollama talk to the proxy over a real connection."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import pytest
from clients.programs import anthropic_sdk, ollama_sdk, openai_responses, openai_sdk
from clients.scripted import ANSWER, CALL, MultiplyingModel
from proxy_harness import block
from servers.run_server import run_server

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendProtocolError
from xmlcall.proxy import create_app
from xmlcall.proxy.http.access import Guard, key_of
from xmlcall.types.completion import Chunk, CompletionRequest, Usage

SECONDS = 10.0

# -- a whole conversation, as the documented programs have it ----------------------------------------------------------

PROGRAMS = {
    "chat": (openai_sdk, "/v1"),
    "responses": (openai_responses, "/v1"),
    "messages": (anthropic_sdk, ""),
    "ollama": (ollama_sdk, ""),
}
WAYS = ("whole", "streamed", "async_whole", "async_streamed")
CONVERSATIONS = [(name, how) for name in PROGRAMS for how in WAYS]


@pytest.fixture(scope="module")
def multiplying() -> Iterator[tuple[str, MultiplyingModel]]:
    model = MultiplyingModel()
    with run_server(create_app(model, mode="xml"), lifespan="on") as url:
        yield url, model


@pytest.mark.parametrize(("name", "how"), CONVERSATIONS)
def test_a_conversation(name: str, how: str, multiplying: tuple[str, MultiplyingModel]) -> None:
    (url, model), (program, path) = multiplying, PROGRAMS[name]
    model.requests.clear()
    answer = getattr(program, how)(url + path)
    assert (asyncio.run(answer) if asyncio.iscoroutine(answer) else answer) == ANSWER
    first, second = [request.messages for request in model.requests]
    assert [message.role for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first  # what the server has cached of the prompt
    assert "multiply" in first[0].content
    assert first[1].content.startswith("What is 1234 times 5678?")
    assert second[2].content == CALL, "written from what the client sends, as the model wrote it"
    assert '<result name="multiply">\n7006652\n</result>' in second[3].content


@anthropic.beta_tool
def multiply(a: int, b: int) -> str:
    """Multiply two integers."""
    return str(a * b)


def test_anthropics_tool_runner_does_without_threads(multiplying: tuple[str, MultiplyingModel]) -> None:
    """It wants the server to keep the conversation, and sends the whole of it where one says that it cannot."""
    url, model = multiplying
    model.requests.clear()
    asked: Any = {"role": "user", "content": "What is 1234 times 5678?"}
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        runner = client.beta.messages.tool_runner(model="local", max_tokens=1000, tools=[multiply], messages=[asked])
        (answer,) = runner.until_done().content
    assert answer.type == "text"
    assert answer.text == ANSWER
    assert [len(request.messages) for request in model.requests] == [2, 4]


# -- all that a model may say ------------------------------------------------------------------------------------------

ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"], "additionalProperties": False}
PROPERTIES = {"name": {"type": "string"}, "homes": {"type": "array", "items": ADDRESS}, "age": {"type": ["integer", "null"]}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["name", "homes", "age"], "additionalProperties": False}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOLS = {"remember": SCHEMA, "now": NOTHING}

ZURICH = {
    "name": 'Zoë "Z" \\ Müller\n世界 \U0001f600\u2028',
    "homes": [{"street": "Bahnhofstraße 1"}, {"street": ""}],
    "age": None,
}
QUOTED = {"name": "<b>&amp;</b> </function_calls", "homes": [], "age": -5}
Called = list[tuple[str, dict[str, Any]]]


def written(*calls: tuple[str, dict[str, Any]]) -> str:
    """Write calls as a model should: strings as they are, the rest as JSON."""
    shown = [
        (name, {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()})
        for name, arguments in calls
    ]
    return block(*shown)


# The question: what the model says to it, the text that the caller gets, its calls.
SAYINGS: dict[str, tuple[str, str, Called]] = {
    "text": ("Grüße, 世界 \U0001f600\u2028. <b>5 < 6</b>", "Grüße, 世界 \U0001f600\u2028. <b>5 < 6</b>", []),
    "no arguments": (written(("now", {})), "", [("now", {})]),
    "hard values": (f"So:\n{written(('remember', ZURICH))}", "So:\n", [("remember", ZURICH)]),
    "markup": (written(("remember", QUOTED)), "", [("remember", QUOTED)]),
    "two calls": (written(("remember", ZURICH), ("now", {})), "", [("remember", ZURICH), ("now", {})]),
    "a result of its own": (f"{written(('now', {}))}\n<function_results>12:00</function_results>", "", [("now", {})]),
}
STOPPED = {"a result of its own"}  # after the call, before the model server could tell the usage, which is estimated then
FAILURES = {"breaks": "Well, ", "never right": block(("nothing_like_it", {"name": "x"}))}


class SayingModel(ScriptedBackend):
    """Says what the table has for the question; some questions it cannot answer."""

    def __init__(self) -> None:
        super().__init__([])

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        question = next(message for message in request.messages if message.role == "user").content.partition("\n")[0]
        text = SAYINGS[question][0] if question in SAYINGS else FAILURES[question]
        for start in range(0, len(text), 5):
            yield Chunk(text=text[start : start + 5])
        if question == "breaks":
            raise BackendProtocolError("the model server broke", backend="scripted")
        yield Chunk(finish_reason="stop", usage=Usage(prompt_tokens=20, completion_tokens=5))


@pytest.fixture(scope="module")
def saying() -> Iterator[tuple[str, SayingModel]]:
    model = SayingModel()
    with run_server(create_app(model, mode="xml"), lifespan="on") as url:
        yield url, model


Heard = tuple[list[str], Called, tuple[int, int]]
"""Pieces of text, calls, tokens of prompt and reply."""


def hear_chat(url: str, question: str, stream: bool, **options: Any) -> Heard:
    functions = [{"name": name, "parameters": schema, "strict": True} for name, schema in TOOLS.items()]
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": question}]}
    asked |= {"tools": [{"type": "function", "function": function} for function in functions]}
    pieces: list[str] = []
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", **options) as client:
        if stream:
            with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                pieces = [event.delta for event in events if event.type == "content.delta"]
                reply: Any = events.get_final_completion()
        else:
            reply = client.chat.completions.create(**asked)
    message = reply.choices[0].message
    assert "".join(pieces) == (message.content or "") or not stream
    assert reply.choices[0].finish_reason == ("tool_calls" if message.tool_calls else "stop")
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    return pieces or [message.content or ""], calls, (reply.usage.prompt_tokens, reply.usage.completion_tokens)


def hear_responses(url: str, question: str, stream: bool, **options: Any) -> Heard:
    tools = [{"type": "function", "name": name, "parameters": schema, "strict": True} for name, schema in TOOLS.items()]
    asked: Any = {"model": "m", "input": question, "tools": tools}
    pieces: list[str] = []
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", **options) as client:
        if stream:
            with client.responses.stream(**asked) as events:
                told = list(events)
                for failed in (event.response.error for event in told if event.type == "response.failed"):
                    assert failed is not None
                    raise openai.APIError(failed.message, httpx2.Request("POST", url), body=failed)  # left to callers
                pieces = [event.delta for event in told if event.type == "response.output_text.delta"]
                reply: Any = events.get_final_response()
        else:
            reply = client.responses.create(**asked)
    assert "".join(pieces) == reply.output_text or not stream
    calls = [(item.name, json.loads(item.arguments)) for item in reply.output if item.type == "function_call"]
    return pieces or [reply.output_text], calls, (reply.usage.input_tokens, reply.usage.output_tokens)


def hear_messages(url: str, question: str, stream: bool, **options: Any) -> Heard:
    tools = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
    asked: Any = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": question}], "tools": tools}
    pieces: list[str] = []
    with anthropic.Anthropic(base_url=url, api_key="none", **options) as client:
        if stream:
            with client.messages.stream(**asked) as events:
                pieces = list(events.text_stream)
                reply: Any = events.get_final_message()
        else:
            reply = client.messages.create(**asked)
    text = "".join(block.text for block in reply.content if block.type == "text")
    assert "".join(pieces) == text or not stream
    calls = [(block.name, block.input) for block in reply.content if block.type == "tool_use"]
    assert reply.stop_reason == ("tool_use" if calls else "end_turn")
    return pieces or [text], calls, (reply.usage.input_tokens, reply.usage.output_tokens)


def hear_ollama(url: str, question: str, stream: bool, **_: Any) -> Heard:
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in TOOLS.items()]
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": question}], "tools": tools}
    client: Any = ollama.Client(host=url)  # whose `close` has no types
    try:
        parts = [*client.chat(**asked, stream=True)] if stream else [client.chat(**asked)]
    finally:
        client.close()
    calls = [(call.function.name, dict(call.function.arguments)) for part in parts for call in part.message.tool_calls or ()]
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    pieces = [part.message.content or "" for part in parts if part.message.content]
    return pieces, calls, (parts[-1].prompt_eval_count or 0, parts[-1].eval_count or 0)


HEARING: dict[str, Callable[..., Heard]] = {
    "chat": hear_chat,
    "responses": hear_responses,
    "messages": hear_messages,
    "ollama": hear_ollama,
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("question", SAYINGS)
@pytest.mark.parametrize("name", HEARING)
def test_what_the_caller_gets(name: str, question: str, stream: bool, saying: tuple[str, SayingModel]) -> None:
    pieces, calls, usage = HEARING[name](saying[0], question, stream)
    _, text, expected = SAYINGS[question]
    assert ("".join(pieces), calls) == (text, expected)
    assert usage == ((0, 16) if question in STOPPED else (20, 5))
    if stream and question == "text":
        assert len(pieces) > 3


# -- what goes wrong ---------------------------------------------------------------------------------------------------

ERRORS: dict[str, Any] = {
    "chat": openai.APIError,
    "responses": openai.APIError,
    "messages": anthropic.APIError,
    "ollama": ollama.ResponseError,
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", HEARING)
def test_a_model_server_that_breaks(name: str, stream: bool, saying: tuple[str, SayingModel]) -> None:
    with pytest.raises(ERRORS[name], match="the model server broke") as caught:
        HEARING[name](saying[0], "breaks", stream, max_retries=0)
    assert stream or caught.value.status_code == 502


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", HEARING)
def test_a_call_that_stays_invalid_is_an_error_that_no_sdk_repeats(
    name: str, stream: bool, saying: tuple[str, SayingModel]
) -> None:
    url, model = saying
    model.requests.clear()
    with pytest.raises(ERRORS[name], match="nothing_like_it") as caught:
        HEARING[name](url, "never right", stream)
    assert caught.value.status_code == 502
    conversations = [request for request in model.requests if len(request.messages) == 2]
    assert len(conversations) == 1 < len(model.requests)


USER = {"role": "user", "content": "text"}
TOOL = {"type": "function", "function": {"name": "now"}}
OTHER = {"type": "function", "function": {"name": "now", "description": "Another."}}
WRONG: list[tuple[type[Exception], str, Callable[[Any], Any], str]] = [
    (openai.BadRequestError, "openai", lambda c: c.chat.completions.create(model="m", messages=[]), "messages"),
    (
        openai.BadRequestError,
        "openai",
        lambda c: c.chat.completions.create(model="m", messages=[USER], tools=[TOOL, OTHER]),
        "two tools are named 'now'",
    ),
    (
        openai.BadRequestError,
        "openai",
        lambda c: c.responses.create(model="m", input="x", previous_response_id="resp_1"),
        "previous",
    ),
    (openai.NotFoundError, "openai", lambda c: c.images.generate(prompt="x"), "images/generations"),
    (openai.NotFoundError, "openai", lambda c: c.embeddings.create(model="m", input="x"), "embeddings"),
    (
        anthropic.BadRequestError,
        "anthropic",
        lambda c: c.messages.create(model="m", max_tokens=9, messages=[USER], tool_choice={"type": "tool", "name": "gone"}),
        "gone",
    ),
    (anthropic.NotFoundError, "anthropic", lambda c: c.messages.batches.list(), "batches"),
    (ollama.ResponseError, "ollama", lambda c: c.chat("m", [{"role": "user", "content": "x", "images": ["!"]}]), "base64"),
    (ollama.ResponseError, "ollama", lambda c: c.embed("m", "x"), "api/embed"),
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with run_server(create_app(SayingModel(), mode="xml", guard=Guard(keys=(key_of("secret"),))), lifespan="on") as url:
        yield url


def client_of(sdk: str, url: str, key: str) -> Any:
    if sdk == "openai":
        return openai.OpenAI(base_url=f"{url}/v1", api_key=key)
    if sdk == "anthropic":
        return anthropic.Anthropic(base_url=url, api_key=key)
    return ollama.Client(host=url, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize(("kind", "sdk", "ask", "message"), WRONG)
def test_wrong_requests_raise_the_sdks_own_errors(
    kind: type[Exception], sdk: str, ask: Callable[[Any], Any], message: str, guarded: str
) -> None:
    client = client_of(sdk, guarded, "secret")
    with pytest.raises(kind, match=message):
        ask(client)
    client.close()


@pytest.mark.parametrize(
    ("kind", "sdk"),
    [(openai.AuthenticationError, "openai"), (anthropic.AuthenticationError, "anthropic"), (ollama.ResponseError, "ollama")],
)
def test_the_key(kind: type[Exception], sdk: str, guarded: str) -> None:
    for key in ("wrong", "secret"):
        client = client_of(sdk, guarded, key)
        listing = client.list if sdk == "ollama" else client.models.list
        if key == "wrong":
            with pytest.raises(kind, match="API key"):
                listing()
        else:
            assert "scripted" in str(listing())
        client.close()


def test_what_the_sdks_ask_besides(saying: tuple[str, SayingModel]) -> None:
    url, _ = saying
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["scripted"]
        assert client.models.retrieve("a/b").id == "a/b"
    with anthropic.Anthropic(base_url=url, api_key="none") as other:
        assert [model.id for model in other.models.list()] == ["scripted"]
        assert other.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x" * 400}]).input_tokens > 90
    third: Any = ollama.Client(host=url)
    assert [model.model for model in third.list().models] == ["scripted"]
    assert "tools" in (third.show("m").capabilities or ())
    assert third.generate("m", "text").response == SAYINGS["text"][1]
    third.close()
