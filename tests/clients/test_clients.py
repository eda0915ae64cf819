"""The SDKs of OpenAI, Anthropic and Ollama in one process with the model: real clients, scripted models, no port but Ollama's."""

import asyncio
import base64
import gc
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest
from profiles import covering
from pydantic import BaseModel
from servers.fake_ollama import FakeOllama, Step, done, line, part
from servers.run_server import Stage, free_port

from xmlcall.backends import retrying
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.clients import AsyncTransport, Transport, async_httpx2_client, async_httpx_client, httpx2_client, httpx_client
from xmlcall.clients import ollama as drop_in
from xmlcall.clients.asgi import AHEAD, AppError, AppResponse
from xmlcall.errors import BackendProtocolError, BackendStatusError, UsageError
from xmlcall.types.calls import Tool
from xmlcall.types.completion import Chunk, CompletionRequest

SCHEMA = {
    "type": "object",
    "properties": {
        "place": {
            "type": "object",
            "description": "Where.",
            "properties": {"city": {"type": "string", "minLength": 2}, "country": {"type": ["string", "null"]}},
            "required": ["city"],
            "additionalProperties": False,
        }
    },
    "required": ["place"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "Weather."}
OPENAI_TOOL: Any = {"type": "function", "function": {**WEATHER, "parameters": SCHEMA, "strict": True}}
ANTHROPIC_TOOL: Any = {**WEATHER, "input_schema": SCHEMA}
OLLAMA_TOOL: Any = {"type": "function", "function": {**WEATHER, "parameters": SCHEMA}}

ARGUMENTS = {"place": {"city": "Zürich \u2028 Nord"}}
CALL = f"""I look.
<function_calls>
<invoke name="get_weather">
<parameter name="place">{json.dumps(ARGUMENTS["place"], ensure_ascii=False)}</parameter>
</invoke>
</function_calls>"""
TWO_CALLS = CALL.replace("</function_calls>", "") + CALL.replace("Zürich", "Bern").partition("<function_calls>")[2]
ANSWER = "It rains."
HI: Any = {"role": "user", "content": "Weather?"}
ASK: Any = {"model": "any", "messages": [HI]}
CHAT = "/v1/chat/completions"


class Watched(ScriptedBackend):
    """A scripted model that waits after its first chunk until it is let on, and counts what it does."""

    def __init__(self, *replies: Any, waits: bool = False, opening: float = 0.0, refusals: tuple[Exception, ...] = ()) -> None:
        super().__init__(replies)
        self.gate = threading.Event()
        self.said = self.opened = self.closed = self.running = 0
        self._opening, self._refusals = opening, list(refusals)
        if not waits:
            self.gate.set()

    async def __aenter__(self) -> "Watched":
        await asyncio.sleep(self._opening)
        self.opened += 1
        if self._refusals:
            raise self._refusals.pop(0)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.closed += 1

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self.running += 1
        try:
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    self.said += 1
                    yield chunk
                    while not self.gate.is_set():  # noqa: ASYNC110 -- set from other threads, too
                        await asyncio.sleep(0.002)
        finally:
            self.running -= 1


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "xmlcall"]


@pytest.fixture(autouse=True)
async def no_tasks_left() -> AsyncIterator[None]:
    yield
    await asyncio.sleep(0)  # event loops close the generators that SDKs leave open in tasks of their own
    for _ in range(100):
        await asyncio.sleep(0)
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0.005)
    assert asyncio.all_tasks() == {asyncio.current_task()}


# One way to write a test for a sync client and its async twin; the sync one's work is done in a thread, so it may block here.


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def entered(value: Any) -> AsyncIterator[Any]:
    value = await settled(value)
    if hasattr(value, "__aenter__") and not isinstance(value, ollama.Client):  # which has both
        async with value as inner:
            yield inner
    else:
        with value as inner:
            yield inner


async def each(items: Any) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def read(client: Any, **fields: Any) -> list[bytes]:
    """Ask a plain client in a stream, and read it to its end."""
    async with entered(client.stream("POST", CHAT, json={**ASK, **fields})) as answer:
        return [piece async for piece in pieces_of(answer)]


def pieces_of(answer: Any) -> AsyncIterator[bytes]:
    is_async = isinstance(answer.stream, httpx.AsyncByteStream | httpx2.AsyncByteStream)
    return each(answer.aiter_bytes() if is_async else answer.iter_bytes())


async def closed(client: Any) -> None:
    await settled((getattr(client, "aclose", None) or client.close)())


# -- conversations ------------------------------------------------------------------------------------------------------


async def openai_turn(client: Any, messages: list[Any], stream: bool) -> tuple[str, list[tuple[str, str, Any]]]:
    """Ask and add the answer to the messages; give its text and its calls."""
    asked = {"model": "any", "messages": messages, "tools": [OPENAI_TOOL]}
    if stream:
        async with entered(client.chat.completions.stream(**asked)) as events:
            completion = await settled(events.get_final_completion())
    else:
        completion = await settled(client.chat.completions.create(**asked))
    message = completion.choices[0].message
    messages.append(message.to_dict(mode="json"))
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    return message.content or "", calls


async def anthropic_turn(client: Any, messages: list[Any], stream: bool) -> tuple[str, list[tuple[str, str, Any]]]:
    asked = {"model": "any", "max_tokens": 99, "messages": messages, "tools": [ANTHROPIC_TOOL]}
    if stream:
        async with entered(client.messages.stream(**asked)) as events:
            message = await settled(events.get_final_message())
    else:
        message = await settled(client.messages.create(**asked))
    messages.append({"role": "assistant", "content": [block.to_dict(mode="json") for block in message.content]})
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]


def openai_result(identity: str, text: str) -> Any:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def anthropic_result(identity: str, text: str) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": identity, "content": text}]}


def older(client: Any) -> Any:
    """An httpx client, where the SDK's types ask for one of httpx2, its successor."""
    return client


SDKS: dict[str, Callable[..., Any]] = {
    "openai": lambda model, **more: openai.OpenAI(api_key="-", http_client=httpx2_client(model, mode="xml"), **more),
    "openai async": lambda model, **more: openai.AsyncOpenAI(
        api_key="-", http_client=async_httpx2_client(model, mode="xml"), **more
    ),
    "openai, httpx": lambda model, **more: openai.OpenAI(api_key="-", http_client=older(httpx_client(model, mode="xml")), **more),
    "openai async, httpx": lambda model, **more: openai.AsyncOpenAI(
        api_key="-", http_client=older(async_httpx_client(model, mode="xml")), **more
    ),
    "anthropic": lambda model, **more: anthropic.Anthropic(api_key="-", http_client=httpx2_client(model, mode="xml"), **more),
    "anthropic async": lambda model, **more: anthropic.AsyncAnthropic(
        api_key="-", http_client=async_httpx2_client(model, mode="xml"), **more
    ),
}


def turn_of(name: str) -> tuple[Any, Any]:
    return (openai_turn, openai_result) if name.startswith("openai") else (anthropic_turn, anthropic_result)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", SDKS)
async def test_conversations(name: str, stream: bool) -> None:
    backend = Watched(CALL, ANSWER)
    turn, result = turn_of(name)
    messages = [HI]
    async with entered(SDKS[name](backend)) as client:
        text, calls = await turn(client, messages, stream)
        assert (text.strip(), [(tool, arguments) for _, tool, arguments in calls]) == ("I look.", [("get_weather", ARGUMENTS)])
        messages.append(result(calls[0][0], "It pours in Zürich"))
        assert await turn(client, messages, stream) == (ANSWER, [])
    said = [message.content for message in backend.requests[1].messages]
    assert "It pours in Zürich" in said[-1]
    assert '<invoke name="get_weather">' in said[-2]
    assert (backend.opened, backend.closed) == (1, 1)


@pytest.mark.parametrize("name", SDKS)
async def test_the_first_word_comes_before_the_last_is_made(name: str) -> None:
    backend = Watched(["One", " two"], waits=True)
    texts = []
    async with entered(SDKS[name](backend, timeout=20.0, max_retries=0)) as client:
        ask = client.chat.completions if name.startswith("openai") else client.messages
        async with entered(ask.create(model="any", messages=[HI], stream=True, max_tokens=9)) as events:
            async for event in each(events):
                if text := text_of(event):
                    texts.append(text)
                    assert backend.said == 1 or len(texts) == 2
                    backend.gate.set()
    assert texts == ["One", " two"]


def text_of(event: Any) -> str:
    if choices := getattr(event, "choices", None):
        return choices[0].delta.content or ""
    return getattr(getattr(event, "delta", None), "text", "")


@pytest.mark.parametrize("name", SDKS)
async def test_leaving_early_ends_the_generation(name: str) -> None:
    backend = Watched(["word "] * 5000)
    async with entered(SDKS[name](backend)) as client:
        ask = client.chat.completions if name.startswith("openai") else client.messages
        async with entered(ask.create(model="any", messages=[HI], stream=True, max_tokens=9)) as events:
            async for event in each(events):
                if text_of(event):
                    break
        assert (backend.closed_early, backend.running) == ([True], 0)
        assert backend.said < 100


TRIES = 1 + len(retrying.Patience().pauses)


async def _at_once(seconds: float) -> None:
    """Wait for nothing between two tries."""


FAILURES: dict[str, tuple[Exception, int]] = {
    "the server refused: no": (BackendStatusError("the server refused: no", status_code=422), 422),
    "expected JSON, got 'ü'": (BackendProtocolError("expected JSON, got 'ü'"), 502),
    "the request is wrong": (UsageError("the request is wrong"), 400),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "words", "stream"), covering(SDKS, FAILURES, [False, True]))
async def test_errors_of_the_model_server(name: str, words: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "sleep", _at_once)
    error, status = FAILURES[words]
    async with entered(SDKS[name](Watched(*[error] * TRIES), max_retries=0)) as client:
        ask = client.chat.completions if name.startswith("openai") else client.messages
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError), match=words) as raised:
            await settled(ask.create(model="any", messages=[HI], stream=stream, max_tokens=9))
        assert isinstance(raised.value, openai.APIStatusError | anthropic.APIStatusError)
        assert raised.value.status_code == status


@pytest.mark.parametrize("name", SDKS)
async def test_an_error_in_the_middle_of_a_stream(name: str) -> None:
    async with entered(SDKS[name](Watched(["One", BackendProtocolError("it broke")]))) as client:
        ask = client.chat.completions if name.startswith("openai") else client.messages
        with pytest.raises((openai.APIError, anthropic.APIError), match="it broke"):
            async with entered(ask.create(model="any", messages=[HI], stream=True, max_tokens=9)) as events:
                assert [text async for event in each(events) if (text := text_of(event))] == ["One"]


# -- the plain clients --------------------------------------------------------------------------------------------------

PLAIN: dict[str, Callable[..., Any]] = {
    "httpx2": httpx2_client,
    "httpx": httpx_client,
    "async httpx2": async_httpx2_client,
    "async httpx": async_httpx_client,
}
OWN: dict[str, Callable[..., Any]] = {
    "httpx2": lambda model, **more: httpx2.Client(transport=Transport(model), base_url="https://example.org", **more),
    "httpx": lambda model, **more: httpx.Client(transport=Transport(model), base_url="https://example.org", **more),
    "async httpx2": lambda model, **more: httpx2.AsyncClient(transport=AsyncTransport(model), base_url="http://a", **more),
    "async httpx": lambda model, **more: httpx.AsyncClient(transport=AsyncTransport(model), base_url="http://a", **more),
}


@pytest.mark.parametrize("make", [PLAIN, OWN], ids=["ready", "own"])
@pytest.mark.parametrize("name", PLAIN)
async def test_paths(name: str, make: dict[str, Callable[..., Any]]) -> None:
    backend = Watched("Grüße", "Hello")
    async with entered(make[name](backend)) as client:
        assert (await settled(client.get("/"))).json() == {"status": "ok", "model": "scripted"}
        assert (await settled(client.get("/v1/models/%C3%BC%2F1?limit=3"))).json()["id"] == "ü/1"
        assert (await settled(client.get("/nowhere"))).status_code == 404
        assert (await settled(client.post(CHAT, content=b"{"))).status_code == 400
        answer = await settled(client.post(CHAT, json=ASK, headers={"Host": "evil.example"}))
        assert answer.json()["choices"][0]["message"]["content"] == "Grüße"
        line = await settled(client.post("/api/chat", json={**ASK, "stream": False}))
        assert line.json()["message"]["content"] == "Hello"
    assert (backend.opened, backend.closed) == (1, 1)


async def test_options_reach_the_proxy() -> None:
    with httpx2_client(Watched("Hi"), api_key="secret") as client:
        assert client.post(CHAT, json=ASK).status_code == 401
        assert client.post(CHAT, json=ASK, headers={"Authorization": "Bearer secret"}).status_code == 200


@pytest.mark.parametrize("model", ["no such model", "", "http//x"])
@pytest.mark.parametrize("make", [Transport, AsyncTransport, *PLAIN.values()])
def test_a_wrong_name_is_told_at_once(make: Callable[..., Any], model: str) -> None:
    with pytest.raises(UsageError, match="expected a model as"):
        make(model)


@pytest.mark.parametrize("name", PLAIN)
async def test_a_client_that_asks_nothing_opens_nothing(name: str) -> None:
    backend = Watched()
    await closed(PLAIN[name](backend))
    assert (backend.opened, backend.closed) == (0, 0)


@pytest.mark.parametrize("name", PLAIN)
async def test_a_model_that_does_not_open_is_told_in_the_callers_format(name: str) -> None:
    async with entered(PLAIN[name](f"http://127.0.0.1:{free_port()}/v1")) as client:
        answers = [await settled(client.post(path, json=ASK)) for path in (CHAT, "/v1/messages", "/api/chat")]
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    openai_error, anthropic_error, ollama_error = (answer.json() for answer in answers)
    assert openai_error["error"]["code"] == "model_server_unavailable"
    assert anthropic_error["type"] == "error"
    words = [openai_error["error"]["message"], anthropic_error["error"]["message"], ollama_error["error"]]
    assert all(text.startswith("cannot connect to http://127.0.0.1:") for text in words)


@pytest.mark.parametrize("name", OWN)
async def test_a_model_that_did_not_open_is_tried_again(name: str) -> None:
    backend = Watched("Hi", refusals=(RuntimeError("a bug"), UsageError("no such file")))
    library = httpx2 if "httpx2" in name else httpx
    async with entered(OWN[name](backend)) as client:
        with pytest.raises(library.RemoteProtocolError, match="the model was not opened: a bug"):
            await settled(client.post(CHAT, json=ASK))
        refused = await settled(client.post(CHAT, json=ASK))
        assert (refused.status_code, refused.json()["error"]["message"]) == (400, "no such file")
        assert (await settled(client.post(CHAT, json=ASK))).status_code == 200
    assert (backend.opened, backend.closed) == (3, 1)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "stream"), covering(OWN, [False, True]))
async def test_silence_beyond_the_clients_limit(name: str, stream: bool) -> None:
    backend = Watched(["One", "two"], waits=True, opening=0.2)  # opening is not limited
    library = httpx2 if "httpx2" in name else httpx
    async with entered(OWN[name](backend, timeout=0.15)) as client:
        with pytest.raises(library.ReadTimeout, match=r"nothing came from the model for 0\.15 s") as raised:
            await read(client, stream=stream)
        assert raised.value.request.url.path == CHAT
        assert (backend.closed_early, backend.running) == ([True], 0)


@pytest.mark.parametrize("name", OWN)
async def test_a_slow_reader_holds_the_model_up(name: str) -> None:
    backend = Watched([f"{number} " for number in range(1000)])
    async with entered(OWN[name](backend)) as client:
        async with entered(client.stream("POST", "/api/chat", json=ASK)) as answer:
            pieces = pieces_of(answer)
            first = await anext(pieces)
            await asyncio.sleep(0.1)
            assert backend.said < AHEAD + 5
            lines = (first + b"".join([piece async for piece in pieces])).splitlines()
    words = [json.loads(line)["message"]["content"] for line in lines]
    assert "".join(words) == "".join(f"{number} " for number in range(1000))


@pytest.mark.parametrize("name", OWN)
async def test_closing_the_client_ends_an_answer_that_is_being_read(name: str) -> None:
    backend = Watched(["word "] * 1000)
    library = httpx2 if "httpx2" in name else httpx
    client = OWN[name](backend)
    async with entered(client.stream("POST", CHAT, json={**ASK, "stream": True})) as answer:
        pieces = pieces_of(answer)
        await anext(pieces)
        await closed(client)
        assert (backend.closed_early, backend.running, backend.closed) == ([True], 0, 1)
        with pytest.raises(library.RemoteProtocolError, match="closed"):
            async for _ in pieces:
                pass


def test_one_client_serves_many_threads() -> None:
    all_ask = asyncio.Barrier(8)

    class Meeting(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            await all_ask.wait()
            yield Chunk(text=request.messages[-1].content)
            yield Chunk(finish_reason="stop")

    def ask(number: int) -> str:
        with client.stream(
            "POST", "/api/chat", json={"model": "m", "messages": [{"role": "user", "content": f"n{number}"}]}
        ) as answer:
            return "".join(json.loads(line)["message"]["content"] for line in answer.iter_lines())

    with httpx2_client(Meeting([])) as client, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [f"n{number}" for number in range(8)]


async def test_one_async_client_serves_many_tasks() -> None:
    backend = Watched(*["yes"] * 20, opening=0.05)
    async with async_httpx2_client(backend) as client:
        answers = await asyncio.gather(*(client.post(CHAT, json=ASK) for _ in range(20)))
    assert [answer.status_code for answer in answers] == [200] * 20
    assert (backend.opened, backend.closed) == (1, 1)


@pytest.mark.parametrize("opening", [0.0, 10.0], ids=["while it answers", "while it opens"])
async def test_a_cancelled_request(opening: float) -> None:
    backend = Watched(["One", "two"], waits=True, opening=opening)
    async with async_httpx2_client(backend) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(CHAT, json=ASK), 0.1)
        assert (backend.closed_early, backend.running) == ([] if opening else [True], 0)
    assert backend.opened == backend.closed == (0 if opening else 1)


def test_closing_while_the_model_opens() -> None:
    backend = Watched("Hi", opening=30.0)
    client = httpx2_client(backend)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, CHAT, json=ASK)
        while "xmlcall" not in [thread.name for thread in threading.enumerate()]:
            time.sleep(0.005)
        time.sleep(0.05)
        client.close()
        with pytest.raises(httpx2.RemoteProtocolError, match="closed before it was open"):
            asked.result(10)


def test_an_async_client_outlives_its_event_loop() -> None:
    backend = Watched("One", "two")
    client = async_httpx2_client(backend)

    async def ask() -> Any:
        return (await client.post("/api/chat", json={**ASK, "stream": False})).json()["message"]["content"]

    assert [asyncio.run(ask()), asyncio.run(ask())] == ["One", "two"]
    assert (backend.opened, backend.closed) == (2, 2)
    asyncio.run(client.aclose())


async def test_an_async_client_refuses_a_second_event_loop() -> None:
    async with async_httpx2_client(Watched("One")) as client:
        await client.post(CHAT, json=ASK)
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, client.post(CHAT, json=ASK))


def test_a_transport_that_was_closed_opens_again() -> None:
    backend = Watched("One", "two")
    transport = Transport(backend)
    for _ in range(2):
        with httpx2.Client(transport=transport, base_url="http://a") as client:
            assert client.post(CHAT, json=ASK).status_code == 200
    assert (backend.opened, backend.closed) == (2, 2)


@pytest.mark.parametrize("name", PLAIN)
async def test_a_model_that_does_not_close_is_told(name: str) -> None:
    class Stuck(ScriptedBackend):
        async def __aexit__(self, *error: object) -> None:
            raise OSError("it cannot be closed")

    client = PLAIN[name](Stuck(["Hi"]))
    await read(client)
    with pytest.raises(OSError, match="it cannot be closed"):
        await closed(client)


def test_a_forgotten_client_is_closed() -> None:
    backend = Watched("One")
    client = httpx2_client(backend)
    client.post(CHAT, json=ASK)
    del client
    gc.collect()
    assert backend.closed == 1


# What a program prints that ends without closing its client, or is interrupted.
SCRIPT = """
import asyncio, os, signal, threading
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.clients import async_httpx2_client, httpx2_client

class Loud(ScriptedBackend):
    async def __aexit__(self, *error):
        print("closed", self.closed_early)

    async def stream(self, request):
        try:
            async for chunk in super().stream(request):
                yield chunk
                await asyncio.sleep(pause)
        finally:
            print("ended")

pause = 0
path, ask = "/v1/chat/completions", {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}
backend = Loud([["Hi"] * 500])
client = httpx2_client(backend)
"""
NEVER_CLOSED = "print(client.post(path, json=ask).status_code)"
ASYNC = """
client = async_httpx2_client(backend)
print(asyncio.run(client.post(path, json=ask)).status_code)
"""
NEVER_READ = """
answer = client.send(client.build_request("POST", path, json=ask | {"stream": True}), stream=True)
print(answer.status_code)
"""
INTERRUPTED = """
pause = 30
threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    client.post(path, json=ask)
except KeyboardInterrupt:
    threading.Event().wait(0.3)
    print("interrupted")
client.close()
"""
FAILING = """
async def fail(*error):
    raise OSError("it cannot be closed")
Loud.__aexit__ = fail
print(client.post(path, json=ask).status_code)
"""
ENDINGS = {
    "never closed": (NEVER_CLOSED, "ended\n200\nclosed [False]\n"),
    "async": (ASYNC, "ended\nclosed [False]\n200\n"),  # closed with its event loop
    "never read": (NEVER_READ, "200\nended\nclosed [True]\n"),
    "interrupted": (INTERRUPTED, "ended\ninterrupted\nclosed [True]\n"),
    "not to be closed": (FAILING, "ended\n200\n"),
}


IN_ANY_PROFILE = "never closed"  # one is enough for `make test`: each is a process of its own


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(code, printed, id=name, marks=() if name == IN_ANY_PROFILE else pytest.mark.full)
        for name, (code, printed) in ENDINGS.items()
    ],
)
def test_the_end_of_a_program(code: str, printed: str) -> None:
    argv = [sys.executable, "-W", "error", "-c", SCRIPT + code]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")


HEAVY = "{'httpx', 'httpx2', 'ollama', 'starlette', 'pydantic', 'openai', 'anthropic'} & sys.modules.keys()"


# One after the other in one process: each may load what the one before it may.
LOADED: dict[str, set[str]] = {
    "import xmlcall.clients": set(),
    "xmlcall.clients.Transport": {"httpx", "httpx2", "starlette", "pydantic"},
    "import xmlcall.clients.ollama": {"httpx", "httpx2", "starlette", "pydantic", "ollama"},
}


def test_what_an_import_loads() -> None:
    code = "".join(f"{statement}\nprint(*({HEAVY}))\n" for statement in LOADED)
    argv = [sys.executable, "-c", f"import sys\n{code}"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    found = [set(line.split()) for line in ended.stdout.splitlines()]
    assert [line - may for line, may in zip(found, LOADED.values(), strict=True)] == [set()] * len(LOADED)


# -- apps that fail -----------------------------------------------------------------------------------------------------

START = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
ERROR = {"type": "http.response.start", "status": 500, "headers": []}
MORE = {"type": "http.response.body", "body": b"some", "more_body": True}
LAST = {"type": "http.response.body", "body": b" last"}

APPS: list[tuple[list[Any], list[Any]]] = [
    ([START, MORE, LAST], [200, b"some", b" last", b"", b""]),
    ([START, LAST], [200, b" last", b""]),
    ([START, MORE, {"type": "http.response.body"}], [200, b"some", b""]),
    ([ERROR, LAST], [500, b" last", b""]),
    ([START, MORE], [200, b"some", "the app ended without a whole answer"]),
    ([START], [200, "the app ended without a whole answer"]),
    ([], ["the app ended without a whole answer"]),
    ([KeyError("x")], ["KeyError: 'x'"]),
    ([START, MORE, KeyError("x")], [200, b"some", "KeyError: 'x'"]),
    ([ERROR, LAST, ValueError("why")], ["ValueError: why"]),
    ([ERROR, MORE, ValueError("why")], [500, b"some", "ValueError: why"]),
    ([START, MORE, LAST, ValueError("late")], [200, b"some", "ValueError: late"]),
]


@pytest.mark.parametrize(("steps", "expected"), APPS)
async def test_answers_of_apps(steps: list[Any], expected: list[Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await receive() == {"type": "http.request", "body": b"body", "more_body": False}
        for step in steps:
            if isinstance(step, Exception):
                raise step
            await send(step)

    exchange = AppResponse(app, {"type": "http"}, b"body")
    got: list[Any] = []
    try:
        got.append((await exchange.begin(5))[0])
        while len(got) < len(expected):
            got.append(await exchange.piece(5))
    except AppError as error:
        got.append(str(error))
    await exchange.aclose()
    assert got == expected


async def test_an_app_that_does_not_listen_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.clients.asgi.LEAVE_SECONDS", 0.05)
    ended = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send(START)
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    exchange = AppResponse(app, {"type": "http"}, b"")
    assert await exchange.begin() == (200, [(b"a", b"b")])
    with pytest.raises(TimeoutError):
        await exchange.piece(0.02)
    await exchange.aclose()
    await asyncio.sleep(0)
    assert ended == [True]


async def test_an_app_is_told_that_its_caller_left_also_while_it_sends() -> None:
    told = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in [START, *[MORE] * 100]:
            await send(message)
        told.append(await receive())

    exchange = AppResponse(app, {"type": "http"}, b"")
    await exchange.begin()
    await exchange.aclose()
    assert told == [{"type": "http.disconnect"}]


# -- Ollama -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(stage: tuple[Stage, str]) -> FakeOllama:
    played = FakeOllama()
    stage[0].app = played.app
    return played


@pytest.fixture
def host(stage: tuple[Stage, str]) -> str:
    return stage[1]


def say(text: str) -> list[Step]:
    """Stream a text, without a count of the prompt: a count that is too low is an error."""
    return [part(text), done(None)]


OLLAMA: dict[str, Callable[..., Any]] = {"sync": drop_in.Client, "async": drop_in.AsyncClient}
both_ollamas = pytest.mark.parametrize("make", OLLAMA.values(), ids=OLLAMA)


async def chat(
    client: Any, messages: list[Any], *, model: str = "tiny", stream: bool = False, **fields: Any
) -> drop_in.ChatResponse:
    """Ask; a streamed answer is put together."""
    answer = await settled(client.chat(model, messages, stream=stream, **fields))
    if not stream:
        assert isinstance(answer, drop_in.ChatResponse)
        return answer
    parts = [part async for part in each(answer)]
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    text = "".join(part.message.content or "" for part in parts)
    message = drop_in.Message(role="assistant", content=text, tool_calls=calls or None)
    return drop_in.ChatResponse(**{**parts[-1].model_dump(), "message": message})


@both_ollamas
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_conversations_with_ollama(make: Any, stream: bool, fake: FakeOllama, host: str) -> None:
    fake.steps = say(TWO_CALLS)
    messages = [HI]
    async with entered(make(host)) as client:
        answer = await chat(client, messages, stream=stream, tools=[OLLAMA_TOOL])
        assert isinstance(answer, ollama.ChatResponse)
        assert isinstance(answer.message, ollama.Message)
        assert (answer["model"], answer["message"]["content"].strip()) == ("tiny", "I look.")
        zurich, bern = answer.message.tool_calls or ()
        assert (zurich.function.name, zurich.function.arguments) == ("get_weather", ARGUMENTS)
        assert zurich.id
        assert bern.id
        assert zurich.id != bern.id
        messages.append(answer.message)
        # The other way round: only the ids tell which is which.
        messages.append({"role": "tool", "tool_name": "get_weather", "tool_call_id": bern.id, "content": "sun in B"})
        messages.append(drop_in.Message(role="tool", tool_name="get_weather", tool_call_id=zurich.id, content="rain in Z"))
        fake.steps = say(ANSWER)
        answer = await chat(client, messages, stream=stream, tools=[OLLAMA_TOOL])
        assert (answer.message.content, answer.message.tool_calls, answer.done_reason) == (ANSWER, None, "stop")
    system, _, called, results = (message["content"] for message in fake.bodies[-1]["messages"])
    assert "minLength" in system or "at least 2" in system
    assert called.index("Zürich") < called.index("Bern")
    assert results.index("rain in Z") < results.index("sun in B")


@both_ollamas
async def test_results_without_ids_are_matched_by_order(make: Any, fake: FakeOllama, host: str) -> None:
    fake.steps = say(TWO_CALLS)
    async with entered(make(host=host)) as client:
        answer = await chat(client, [HI], tools=[OLLAMA_TOOL])
        fake.steps = say(ANSWER)
        results = [{"role": "tool", "tool_name": "get_weather", "content": text} for text in ("first", "second")]
        await chat(client, [HI, answer.message, *results], tools=[OLLAMA_TOOL])
    assert fake.bodies[-1]["messages"][-1]["content"].index("first") < fake.bodies[-1]["messages"][-1]["content"].index("second")


class Place(BaseModel):
    city: str
    country: str | None = None


def find(place: Place, unit: Literal["C", "F"] = "C") -> str:
    """Find the weather.

    Args:
        place: where.
        unit: of temperatures.
    """
    return f"{place} {unit}"


FIND = Tool.from_function(find)
PNG = b"\x89PNG\r\n\x1a\nrest"
IMAGE = base64.b64encode(PNG).decode()
MODEL_CALL = drop_in.CallWithId(
    id="call_1", function=ollama.Message.ToolCall.Function(name="f", arguments={"a": [None, {"b": 1}]})
)
WRITTEN_CALL = {"id": "call_1", "function": {"name": "f", "arguments": {"a": [None, {"b": 1}]}}}
NULLS = {"type": "object", "properties": {"a": {"enum": [None, "ü"], "default": None}}}

MESSAGES: list[tuple[Any, dict[str, Any]]] = [
    (HI, HI),
    ({"role": "user", "content": ""}, {"role": "user", "content": ""}),
    (ollama.Message(role="user", content="Grüße \ud83d"), {"role": "user", "content": "Grüße \ud83d"}),
    ({"role": "user", "content": "?", "images": [PNG, IMAGE]}, {"role": "user", "content": "?", "images": [IMAGE, IMAGE]}),
    (
        ollama.Message(role="user", content="?", images=[ollama.Image(value=PNG)]),
        {"role": "user", "content": "?", "images": [IMAGE]},
    ),
    (
        drop_in.Message(role="assistant", thinking="Hm", tool_calls=[MODEL_CALL]),
        {"role": "assistant", "thinking": "Hm", "tool_calls": [WRITTEN_CALL]},
    ),
    (ollama.Message(role="assistant", tool_calls=[MODEL_CALL]), {"role": "assistant", "tool_calls": [WRITTEN_CALL]}),
    ({"role": "assistant", "tool_calls": (MODEL_CALL,)}, {"role": "assistant", "tool_calls": [WRITTEN_CALL]}),
    (
        {"role": "tool", "tool_call_id": "call_1", "tool_name": "f", "content": "x", "extra": None},
        {"role": "tool", "tool_call_id": "call_1", "tool_name": "f", "content": "x", "extra": None},
    ),
]


@pytest.mark.parametrize(("message", "written"), MESSAGES)
async def test_messages_reach_ollama_whole(message: Any, written: dict[str, Any], fake: FakeOllama, host: str) -> None:
    with drop_in.Client(host, mode="native") as client:  # passed on as it is
        await chat(client, [message], stream=True, tools=[OLLAMA_TOOL])
    assert fake.bodies[-1]["messages"] == [written]


TOOLS: list[tuple[Any, dict[str, Any]]] = [
    (OLLAMA_TOOL, OLLAMA_TOOL),
    (OPENAI_TOOL, OPENAI_TOOL),
    (find, {"type": "function", "function": {"name": "find", "description": FIND.description, "parameters": FIND.input_schema}}),
    (Tool(name="t", input_schema=NULLS), {"type": "function", "function": {"name": "t", "description": "", "parameters": NULLS}}),
    (
        ollama.Tool(
            function=ollama.Tool.Function(
                name="t",
                parameters=ollama.Tool.Function.Parameters.model_validate(
                    {"$defs": {"a": {"type": "string"}}, "required": ["a"]}
                ),
            )
        ),
        {
            "type": "function",
            "function": {"name": "t", "parameters": {"type": "object", "$defs": {"a": {"type": "string"}}, "required": ["a"]}},
        },
    ),
]


@pytest.mark.parametrize(("tool", "written"), TOOLS, ids=lambda value: type(value).__name__)
async def test_tools_reach_ollama_whole(tool: Any, written: dict[str, Any], fake: FakeOllama, host: str) -> None:
    with drop_in.Client(host, mode="native") as client:
        await chat(client, [HI], stream=True, tools=[tool])
    assert fake.bodies[-1]["tools"] == [written]
    assert FIND.input_schema["$defs"]["Place"]["required"] == ["city"]


async def test_the_other_arguments_reach_ollama(fake: FakeOllama, host: str) -> None:
    written = {"model": "tiny", "messages": [HI], "tools": [], "stream": True}
    fields: dict[str, Any] = {"think": "low", "logprobs": True, "top_logprobs": 2, "format": "json", "keep_alive": 1.5}
    with drop_in.Client(host) as client:
        await chat(client, [HI], stream=True, options=ollama.Options(temperature=0.5, stop=["x"]), **fields)
        assert fake.bodies[-1] == {**written, **fields, "options": {"temperature": 0.5, "stop": ["x"]}}
        await chat(client, [HI], stream=True, think=False, format=None, options={"top_k": 3})
        assert fake.bodies[-1] == {**written, "think": False, "options": {"top_k": 3}}
        with pytest.raises(TypeError, match="unexpected keyword argument 'tool'"):
            client.chat("tiny", [HI], tool=[])


@both_ollamas
async def test_native_calls_have_ids(make: Any, fake: FakeOllama, host: str) -> None:
    """Ours: Ollama's library does not tell those of its server."""
    call = {"id": "call_x", "function": {"index": 0, "name": "get_weather", "arguments": ARGUMENTS}}
    fake.steps = [part(tool_calls=[call]), done()]
    async with entered(make(host, mode="native")) as client:
        answer = await chat(client, [HI], stream=True, tools=[OLLAMA_TOOL])
    (got,) = answer.message.tool_calls or ()
    assert str(got.id).startswith("call_")
    assert got.function.arguments == ARGUMENTS


@both_ollamas
async def test_line_ends_inside_of_strings(make: Any, fake: FakeOllama, host: str) -> None:
    fake.steps = [part("a\x85b\u2028c"), line({"message": {"role": "assistant", "content": ""}, "done": True})]
    async with entered(make(host)) as client:
        assert (await chat(client, [HI], stream=True)).message.content == "a\x85b\u2028c"
        fake.steps = [line({"message": {"role": "assistant", "content": "a\x85b"}, "done": True})]
        assert (await chat(client, [HI])).message.content == "a\x85b"
        loaded = await chat(client, [], stream=True, tools=[OLLAMA_TOOL])  # one object, without a line end
        assert loaded.done


@both_ollamas
async def test_leaving_early_ends_ollamas_generation(make: Any, fake: FakeOllama, host: str) -> None:
    fake.steps = [step for _ in range(500) for step in (part("word "), 0.01)]
    async with entered(make(host)) as client:
        parts = await settled(client.chat("tiny", [HI], tools=[OLLAMA_TOOL], stream=True))
        async for first in each(parts):
            assert first.message.content == "word "
            break
        await settled(parts.aclose() if hasattr(parts, "aclose") else parts.close())
        assert await asyncio.to_thread(fake.left.wait, 5)


REFUSALS: dict[str, tuple[str, dict[str, Any], type[Exception]]] = {
    "no such thing": ("tiny", {"refusal": (400, "no such thing")}, ollama.ResponseError),
    "it crashed": ("tiny", {"refusal": (500, "it crashed")}, ollama.ResponseError),
    "ollama pull nobody": ("nobody", {}, ollama.ResponseError),
    "out of memory": ("tiny", {"steps": [part("a"), line({"error": "out of memory"})]}, ollama.ResponseError),
    "expected the name of a model": ("", {}, UsageError),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("words", "way", "stream"), covering(REFUSALS, OLLAMA, [False, True]))
async def test_errors_of_ollama(words: str, way: str, stream: bool, fake: FakeOllama, host: str) -> None:
    model, state, kind = REFUSALS[words]
    for name, value in state.items():
        setattr(fake, name, value)
    async with entered(OLLAMA[way](host)) as client:
        with pytest.raises(kind, match=words):
            await chat(client, [HI], model=model, tools=[OLLAMA_TOOL], stream=stream)


@both_ollamas
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_no_ollama(make: Any, stream: bool) -> None:
    async with entered(make(f"http://127.0.0.1:{free_port()}")) as client:
        with pytest.raises(ConnectionError, match="start it with `ollama serve`"):
            await chat(client, [HI], stream=stream)


@both_ollamas
async def test_every_model_is_served_and_all_else_is_ollamas_own(make: Any, fake: FakeOllama, host: str) -> None:
    async with entered(make(host, headers={"x-mine": "1"}, timeout=20)) as client:
        assert isinstance(client, ollama.Client | ollama.AsyncClient)
        listed = await settled(client.list())
        assert [model.model for model in listed.models] == ["tiny:latest", "gemma3:4b"]
        assert (await settled(client.show("tiny"))).capabilities == ["completion"]
        for model in ("tiny", "gemma3:4b", "tiny"):
            fake.steps = say(CALL)
            answer = await settled(client.chat(model=model, messages=[HI], tools=[OLLAMA_TOOL]))
            assert answer.model == model
            assert fake.bodies[-1]["model"] == model


async def test_a_time_limit_of_ollamas_client(fake: FakeOllama, host: str) -> None:
    fake.steps = [part("a"), 1.0, done()]
    with drop_in.Client(host, timeout=0.2) as client, pytest.raises(httpx.ReadTimeout):
        await chat(client, [HI], stream=True)


def test_threads_share_a_client_of_ollama(fake: FakeOllama, host: str) -> None:
    fake.steps = say(CALL)
    with drop_in.Client(host) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.chat("tiny", [HI], tools=[OLLAMA_TOOL]), range(4)))
    assert len({call.id for answer in answers for call in answer.message.tool_calls or ()}) == 4
