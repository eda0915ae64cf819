"""What the proxy records of requests by real callers over loopback: one turn for each, and what was in it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
from profiles import examples
from proxy_harness import ADD, add, body, double, function
from servers.fake_ollama import FakeOllama
from servers.fake_openai import CUT, FakeOpenAI, Step, chunk, reply
from servers.run_server import Stage, run_server, wait_until
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp
from turn_harness import turn_from_json

from xmlcall import LocalHost
from xmlcall.backends.base import Backend
from xmlcall.backends.connect import connect
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.proxy.app import app_of
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.recording import client_of
from xmlcall.proxy.http.access import Guard, key_of
from xmlcall.proxy.http.access import serving as serving_one
from xmlcall.turn_records.builder import Recorder
from xmlcall.turn_records.record import TurnRecord, record_to_json, summary_of

SECONDS = 10.0
CHAT, RESPONSES, MESSAGES, OLLAMA_CHAT = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
KEY = "key-of-this-server-7f3a"
HI = [{"role": "user", "content": "Hi"}]
HEADERS = {"authorization": f"Bearer {KEY}", "user-agent": "demo/1.0"}


class Proxies:
    """Proxies in front of one stage each, with a recorder for all of them.

    Attributes:
        urls: by name.
        recorder: anew for each test.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.openai, self.ollama = Stage(), Stage()
        self.openai.app, self.ollama.app = FakeOpenAI().app, FakeOllama().app
        self.urls: dict[str, str] = {}
        self.engines: list[Engine] = []
        self.recorder = Recorder()

    def record(self, recorder: Recorder | None) -> None:
        """Have all proxies record with another recorder."""
        self.recorder = recorder or Recorder()
        for engine in self.engines:
            engine.recorder = recorder

    def ask(self, path: str, data: Mapping[str, Any] | bytes, *, proxy: str = "xml", **headers: str) -> httpx.Response:
        """Ask a proxy."""
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        return self._http.post(self.urls[proxy] + path, content=content, headers=HEADERS | headers)

    def turns(self, count: int = 1) -> list[TurnRecord]:
        """Return what was recorded, newest first; wait until nothing is under way."""
        wait_until(lambda: len(self.recorder.turns()) >= count and not self.recorder.size()["under way"])
        turns = [turn.record() for turn in self.recorder.turns()]
        assert len(turns) == count
        for turn in turns:
            as_json = json.dumps(record_to_json(turn))
            assert KEY not in as_json
            assert turn_from_json(json.loads(as_json)) == turn
            assert summary_of(turn)["id"] == turn.id
        return turns


@contextlib.contextmanager
def serving(engine: Engine) -> Iterator[str]:
    @contextlib.asynccontextmanager
    async def lifespan(app: object) -> Any:
        async with engine:
            yield

    app: ASGIApp = app_of(serving_one(engine), Guard(keys=(key_of(KEY),)), lifespan=lifespan)
    with run_server(app, lifespan="on") as url:
        yield url


@pytest.fixture(scope="module")
def all_proxies() -> Iterator[Proxies]:
    with contextlib.ExitStack() as stack:
        proxies = Proxies(stack.enter_context(httpx.Client(timeout=SECONDS)))
        openai, ollama = (stack.enter_context(run_server(stage)) for stage in (proxies.openai, proxies.ollama))

        def proxy(name: str, backend: Backend, *hosts: LocalHost, mode: Any = "xml") -> None:
            engine = Engine(backend, hosts, mode=mode, allowed=["*"])
            proxies.engines.append(engine)
            proxies.urls[name] = stack.enter_context(serving(engine))

        proxy("xml", connect(f"{openai}/v1"))
        proxy("native", connect(f"{openai}/v1"), mode="native")
        proxy("own", connect(f"{openai}/v1"), LocalHost([double], name="own"))
        proxy("ollama", OllamaBackend("tiny", host=ollama))
        yield proxies


@pytest.fixture
def proxies(all_proxies: Proxies, no_pauses: None) -> Proxies:
    all_proxies.record(Recorder(hidden=[KEY]))
    return all_proxies


def play(proxies: Proxies, *replies: Sequence[Step], **options: Any) -> FakeOpenAI:
    """Have the model server give one reply after the other, the last one again and again."""
    fake = FakeOpenAI(**options)
    left = [list(each) for each in replies]
    app = fake.app

    async def next_reply(scope: Any, receive: Any, send: Any) -> None:
        if left and scope["path"].endswith("/chat/completions"):
            fake.steps = left.pop(0) if len(left) > 1 else left[0]
        await app(scope, receive, send)

    proxies.openai.app = next_reply
    return fake


def prompts(turn: TurnRecord, number: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in turn.replies[number].prompt]


# -- each kind of request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_of_the_callers_tool(stream: bool, proxies: Proxies) -> None:
    fake = play(proxies, reply("I add. ", *(add(1, 2)[at : at + 7] for at in range(0, 200, 7))))
    assert proxies.ask(CHAT, body("1 + 2?", stream=stream)).status_code == 200
    (turn,) = proxies.turns()
    assert (turn.source, turn.client, turn.model, turn.way) == ("proxy", "demo/1.0", "tiny", "xml")
    assert (turn.dialect, turn.family, turn.lang, turn.question) == ("function_calls", "list", "en", "1 + 2?")
    assert [tool["name"] for tool in turn.tools] == ["add", "echo"]
    (said,) = turn.replies
    assert said.raw == f"I add. {add(1, 2)}"
    assert "".join(said.raw[span.start : span.end] for span in said.spans) == said.raw
    (call,) = said.calls
    assert (call.name, call.arguments, call.outcome) == ("add", {"a": 1, "b": 2}, "handed over")
    assert [(value.path, value.source and value.source.kind) for value in call.values] == [("$.a", "person"), ("$.b", "person")]
    assert (turn.outcome, turn.answer.strip(), turn.error) == ("tool_calls", "I add.", "")
    assert (said.prompt_tokens, said.cached_tokens, said.completion_tokens) == (32, 30, 4)
    assert turn.seconds is not None
    assert turn.first_token_seconds is not None
    assert 0 < turn.first_token_seconds <= turn.seconds
    sent = [(message["role"], message["content"]) for message in fake.bodies[-1]["messages"]]
    assert prompts(turn) == sent, "the prompt is what went to the model"


def test_a_call_that_cannot_run_and_the_next_try(proxies: Proxies) -> None:
    play(proxies, reply(add("x", 2)), reply(add(1, 2)))
    assert proxies.ask(CHAT, body("1 + 2?")).status_code == 200
    (turn,) = proxies.turns()
    assert [[call.outcome for call in each.calls] for each in turn.replies] == [["rejected"], ["handed over"]]
    assert [issue.code for issue in turn.replies[0].calls[0].issues] == ["wrong-type"]
    assert len(turn.replies[1].prompt) > len(turn.replies[0].prompt)
    assert turn.outcome == "tool_calls"


def test_calls_that_never_can_run(proxies: Proxies) -> None:
    play(proxies, reply(add("x", "y")))
    response = proxies.ask(CHAT, body("1 + 2?"))
    (turn,) = proxies.turns()
    assert (turn.outcome, len(turn.replies)) == ("invalid_calls", 3)
    assert response.status_code == 200
    assert {call.outcome for each in turn.replies for call in each.calls} == {"rejected"}


def test_a_tool_that_the_proxy_runs_itself(proxies: Proxies) -> None:
    call = '<function_calls>\n<invoke name="double">\n<parameter name="n">21</parameter>\n</invoke>\n</function_calls>'
    play(proxies, reply(call), reply("It is 42."))
    response = proxies.ask(CHAT, body("Double 21.", tools=[]), proxy="own")
    assert response.json()["choices"][0]["message"]["content"] == "It is 42."
    (turn,) = proxies.turns()
    (ran,) = turn.replies[0].calls
    assert (ran.outcome, ran.server, ran.tool, ran.result) == ("ok", "own", "double", "42")
    assert ran.seconds is not None
    assert (turn.way, turn.outcome, turn.answer) == ("xml", "end", "It is 42.")


PLAIN = [
    ("a message of Anthropic's", MESSAGES, {"max_tokens": 9, "messages": HI, "system": "Be brief."}, "xml"),
    ("a response of OpenAI's", RESPONSES, {"input": "Hi"}, "xml"),
    ("a chat of Ollama's before OpenAI's server", OLLAMA_CHAT, {"messages": HI}, "xml"),
    ("a prompt of Ollama's before OpenAI's server", "/api/generate", {"prompt": "Hi"}, "xml"),
    ("a choice of no tool", CHAT, {"messages": HI, "tools": [ADD], "tool_choice": "none"}, "xml"),
]


@pytest.mark.parametrize(("path", "data", "proxy"), [case[1:] for case in PLAIN], ids=[case[0] for case in PLAIN])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_without_tools(path: str, data: dict[str, Any], proxy: str, stream: bool, proxies: Proxies) -> None:
    play(proxies, reply("Hello", " world"))
    assert proxies.ask(path, {"model": "tiny", "stream": stream, **data}, proxy=proxy).status_code == 200
    (turn,) = proxies.turns()
    assert (turn.way, turn.question, turn.outcome, turn.answer) == ("plain", "Hi", "end", "Hello world")
    (said,) = turn.replies
    assert (said.raw, said.finish_reason, said.completion_tokens, said.calls) == ("Hello world", "stop", 4, ())
    assert prompts(turn)[-1] == ("user", "Hi")


def test_thinking_in_a_field_of_its_own(proxies: Proxies) -> None:
    play(proxies, [chunk({"reasoning_content": "Hm. "}), *reply("Hello")])
    proxies.ask(MESSAGES, {"model": "x", "max_tokens": 9, "messages": HI})
    (turn,) = proxies.turns()
    assert (turn.replies[0].reasoning, turn.replies[0].raw) == ("Hm. ", "Hello")


def test_the_model_servers_own_function_calling(proxies: Proxies) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    play(proxies, [chunk({"tool_calls": [call]}), *reply(finish_reason="tool_calls")])
    proxies.ask(CHAT, body("1 + 2?"), proxy="native")
    (turn,) = proxies.turns()
    (found,) = turn.replies[0].calls
    assert (turn.way, found.dialect, found.arguments, found.outcome) == ("native", "native", {"a": 1, "b": 2}, "handed over")
    assert (turn.dialect, turn.outcome) == ("", "tool_calls")


# -- bytes that are passed on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_that_is_passed_on(stream: bool, proxies: Proxies) -> None:
    fake = FakeOpenAI(steps=reply("Héllo", " world"))
    whole = {"choices": [{"message": {"content": "Héllo world", "reasoning_content": "Hm."}, "finish_reason": "stop"}]}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if stream or not scope["path"].endswith("/chat/completions"):
            await fake.app(scope, receive, send)
            return
        await JSONResponse(whole | {"usage": {"prompt_tokens": 32, "completion_tokens": 4}})(scope, receive, send)

    proxies.openai.app = app
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    response = proxies.ask(CHAT, {"model": "gpt", "messages": said, "stream": stream})
    assert response.status_code == 200
    (turn,) = proxies.turns()
    assert (turn.way, turn.question, turn.model, turn.client) == ("relayed", "Hi", "tiny", "demo/1.0")
    assert (turn.outcome, turn.answer, turn.error) == ("end", "Héllo world", "")
    (read,) = turn.replies
    assert (read.raw, read.finish_reason, read.prompt_tokens, read.completion_tokens) == ("Héllo world", "stop", 32, 4)
    assert read.reasoning == ("" if stream else "Hm.")
    assert prompts(turn) == [("system", "Be brief."), ("user", "Hi")]
    assert turn.first_token_seconds is not None
    assert turn.seconds is not None
    assert turn.first_token_seconds <= turn.seconds


@pytest.mark.parametrize("path", [OLLAMA_CHAT, "/api/generate"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_question_to_ollama_that_is_passed_on(path: str, stream: bool, proxies: Proxies) -> None:
    proxies.ollama.app = FakeOllama().app
    said: dict[str, Any] = {"prompt": "Hi"} if path == "/api/generate" else {"messages": HI}
    response = proxies.ask(path, {"model": "tiny", "stream": stream, **said}, proxy="ollama")
    (turn,) = proxies.turns()
    assert (turn.way, turn.question) == ("relayed", "Hi")
    if response.status_code == 200:  # the fake does not generate otherwise than in chats
        lines = [json.loads(line) for line in response.text.splitlines() if line]
        texts = "".join(line["message"]["content"] if "message" in line else line["response"] for line in lines)
        assert (turn.outcome, turn.replies[0].raw, turn.answer) == ("end", texts, texts)
        assert texts
    else:
        assert (turn.outcome, str(response.status_code) in turn.error) == ("error", True)


def test_a_completion_that_is_passed_on(proxies: Proxies) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        texts = [b'data: {"choices":[{"index":0,"text":"%s"}]}\n\n' % text for text in (b"def", b" f()")]
        await StreamingResponse(iter([*texts, b"data: [DONE]\n\n"]), media_type="text/event-stream")(scope, receive, send)

    proxies.openai.app = app
    proxies.ask("/v1/completions", {"model": "tiny", "prompt": "# a function", "stream": True})
    (turn,) = proxies.turns()
    assert (turn.way, turn.question, turn.answer) == ("relayed", "# a function", "def f()")


def test_what_no_text_answers_is_no_turn(proxies: Proxies) -> None:
    play(proxies, reply("Hello"))
    proxies.ask("/v1/embeddings", {"model": "tiny", "input": "x"})
    proxies.ask("/v1/messages/count_tokens", {"model": "tiny", "messages": HI})
    proxies.ask("/api/generate", {"model": "tiny"})  # loads a model
    httpx.get(proxies.urls["xml"] + "/v1/models", headers=HEADERS)
    assert proxies.turns(0) == []


def test_what_is_passed_on_need_not_be_in_any_format(proxies: Proxies) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pieces = [b"\xff\xfe", b"data: {\n\n", b"data: 7\n\n", b'data: {"choices": 5}\n\n', b'data: {"choices":[{"delta":[]}]}\n']
        await StreamingResponse(iter(pieces), media_type="text/event-stream")(scope, receive, send)

    proxies.openai.app = app
    odd = {"model": "tiny", "messages": [{"role": 5, "content": {"a": 1}}, "x", {"role": "user", "content": [5, {"text": 7}]}]}
    assert proxies.ask(CHAT, odd).content.startswith(b"\xff\xfe")
    (turn,) = proxies.turns()
    assert (turn.outcome, turn.answer, turn.replies[0].raw) == ("end", "", "")


# -- what goes wrong -------------------------------------------------------------------------------------------------------

REFUSED = [
    (CHAT, b"{", "expected a JSON body", 400),
    (CHAT, b"[]", "expected a JSON object", 400),
    (CHAT, json.dumps({"messages": 5, "tools": [ADD]}).encode(), "messages", 400),
    (MESSAGES, json.dumps({"messages": HI, "max_tokens": "x"}).encode(), "max_tokens", 400),
    (RESPONSES, json.dumps({"input": "Hi", "previous_response_id": "x"}).encode(), "previous_response_id", 400),
]


@pytest.mark.parametrize(("path", "content", "what", "status"), REFUSED)
def test_a_request_that_is_refused_tells_what_was_wrong(
    path: str, content: bytes, what: str, status: int, proxies: Proxies
) -> None:
    response = proxies.ask(path, content)
    assert response.status_code == status
    (turn,) = proxies.turns()
    assert (turn.outcome, turn.replies, turn.client) == ("error", (), "demo/1.0")
    why, told = turn.error.split("\n")
    assert what in why
    assert told == f"sent to the caller with status {status}: {json.dumps(response.json(), ensure_ascii=False)}"


def test_who_may_not_call_leaves_nothing(proxies: Proxies) -> None:
    assert proxies.ask(CHAT, body("Hi"), authorization="Bearer wrong").status_code == 401
    assert proxies.ask(CHAT, body("Hi"), origin="http://evil.example").status_code == 403
    assert proxies.turns(0) == []


@pytest.mark.parametrize("path", [CHAT, MESSAGES, OLLAMA_CHAT])
def test_a_model_server_that_refuses(path: str, proxies: Proxies) -> None:
    play(proxies, refusal=(500, {"error": {"message": f"broken, {KEY}"}}))
    response = proxies.ask(path, {"model": "x", "max_tokens": 9, "messages": HI, "tools": []})
    (turn,) = proxies.turns()
    assert response.status_code >= 400
    assert turn.outcome == "error"
    assert "broken, ***" in turn.error, "and this server's key is cut out"
    assert f"status {response.status_code}" in turn.error


@pytest.mark.parametrize("tools", [[], [ADD]], ids=["passed on", "read"])
def test_a_stream_that_the_model_server_breaks_off(tools: list[Any], proxies: Proxies) -> None:
    play(proxies, [chunk({"content": "Hello, "}), chunk({"content": "wor"}), 0.1, CUT])
    with contextlib.suppress(httpx.HTTPError):
        proxies.ask(CHAT, {"model": "x", "messages": HI, "stream": True, "tools": tools})
    (turn,) = proxies.turns()
    assert (turn.outcome, turn.replies[0].raw) == ("error", "Hello, wor")
    assert turn.error.count("\n") == 1
    assert "sent to the caller with status 200" in turn.error


@pytest.mark.parametrize("tools", [[], [ADD]], ids=["passed on", "read"])
def test_a_caller_that_leaves(tools: list[Any], proxies: Proxies) -> None:
    fake = play(proxies, [chunk({"content": "Hello, "}), 60.0])
    content = {"model": "x", "messages": HI, "stream": True, "tools": tools}
    with httpx.stream("POST", proxies.urls["xml"] + CHAT, json=content, headers=HEADERS, timeout=SECONDS) as response:
        pieces = response.iter_bytes()  # to be kept: a reader that is let go hangs up
        assert next(pieces)
        wait_until(lambda: bool(proxies.recorder.turns()[0].record().replies))
        wait_until(lambda: proxies.recorder.turns()[0].record().replies[0].raw == "Hello, ")
        (under_way,) = (turn.record() for turn in proxies.recorder.turns())
        assert (under_way.outcome, under_way.seconds) == ("", None)
    (turn,) = proxies.turns()
    assert fake.left.wait(SECONDS)
    assert (turn.outcome, turn.error, turn.replies[0].raw) == ("left", "", "Hello, ")
    assert turn.seconds is not None


def test_a_caller_that_leaves_before_anything_came(proxies: Proxies) -> None:
    play(proxies, [60.0])
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(proxies.urls["xml"] + CHAT, json=body("Hi"), headers=HEADERS, timeout=0.3)
    (turn,) = proxies.turns()
    assert (turn.outcome, turn.question, turn.answer) == ("left", "Hi", "")


# -- many, long, hostile ---------------------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_many_requests_at_once(proxies: Proxies) -> None:
    fake, count = FakeOpenAI(), examples(200)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/chat/completions"):
            await fake.app(scope, receive, send)
            return
        said = (await Request(scope, receive).json())["messages"][-1]["content"].split()[0]

        async def steps() -> AsyncIterator[bytes]:
            yield chunk({"content": "I got "})
            await asyncio.sleep(0.2)
            for piece in reply(*said):
                yield piece

        await StreamingResponse(steps(), media_type="text/event-stream")(scope, receive, send)

    proxies.openai.app = app

    async def ask_all() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, limits=limits, headers=HEADERS) as client:
            asked = (client.post(proxies.urls["xml"] + CHAT, json=body(f"{n}", stream=bool(n % 2))) for n in range(count))
            assert {response.status_code for response in await asyncio.gather(*asked)} == {200}

    asyncio.run(ask_all())
    turns = proxies.turns(count)
    assert {turn.question: turn.answer for turn in turns} == {f"{n}": f"I got {n}" for n in range(count)}
    assert {(turn.outcome, turn.way, turn.replies[0].raw == turn.answer) for turn in turns} == {("end", "xml", True)}


def test_a_turn_has_a_share_of_the_memory(proxies: Proxies) -> None:
    proxies.record(Recorder(most_text=16 * 20_000))
    words = [f"word {number} " for number in range(10_000)]
    play(proxies, reply(*words))
    for tools in ([], [ADD]):
        assert len(proxies.ask(CHAT, {"model": "x", "messages": HI, "tools": tools}).content) > 80_000, "the caller has it all"
    for turn in proxies.turns(2):
        assert turn.error == "the rest of this turn was too long to be recorded"
        assert (turn.outcome, len(turn.replies[0].raw) < 60_000) == ("end", True)
    assert proxies.recorder.size()["text"] < 3 * 20_000 + 65_536, (
        "the last piece of what is passed on is counted once it is there"
    )


def test_a_prompt_that_is_too_long_is_not_kept(proxies: Proxies) -> None:
    proxies.record(Recorder(most_text=16 * 20_000))
    play(proxies, reply("Hello"))
    long = "x" * 100_000
    for tools in ([], [ADD]):
        proxies.ask(CHAT, {"model": "x", "messages": [{"role": "user", "content": long}], "tools": tools, "stream": True})
    for turn in proxies.turns(2):
        assert (turn.replies[0].prompt, turn.answer) == ((), "Hello")
        assert len(turn.question) == 5_001
    assert proxies.recorder.size()["text"] < 100_000


def test_pictures_are_not_kept(proxies: Proxies) -> None:
    play(proxies, reply("A cat."))
    picture = "data:image/png;base64," + "QUJD" * 50_000
    said = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture}}]
    for tools in ([], [ADD]):
        proxies.ask(CHAT, {"model": "x", "messages": [{"role": "user", "content": said}], "tools": tools})
    for turn in proxies.turns(2):
        assert "QUJD" not in json.dumps(record_to_json(turn))
        assert turn.question == "What is it?"


def test_the_name_of_a_program_is_fit_to_be_shown() -> None:
    assert client_of("OpenAI/Python 2.7.1") == "OpenAI/Python 2.7.1"
    assert client_of("a\x1b[31m\r\nSet-Cookie: \x00b\x9f\xad\xa0c") == "a [31m Set-Cookie: b c"
    assert client_of("x" * 500) == "x" * 79 + "…"
    assert client_of("") == ""


def test_without_a_recorder_nothing_is_recorded(proxies: Proxies) -> None:
    proxies.record(None)
    play(proxies, reply("Hello"))
    assert proxies.ask(CHAT, body("Hi")).status_code == 200
    assert proxies.recorder.turns() == []


def test_renamed_tools_are_shown_as_the_model_sees_them(proxies: Proxies) -> None:
    odd = function("a b!", "Do.", x={"type": "string"})
    play(proxies, reply("Hello"))
    proxies.ask(CHAT, body("Hi", tools=[odd]))
    (turn,) = proxies.turns()
    assert turn.tools[0]["name"] in turn.replies[0].prompt[0].content
