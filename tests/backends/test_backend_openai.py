"""The OpenAI-compatible backend against a real server on loopback."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from servers.fake_openai import CUT, DONE, FakeOpenAI, Step, chunk, event, final, llama_props, reply
from servers.raw_http import raw_answer
from servers.run_server import Stage, free_port

from xmlcall.backends.openai import FALLBACK_TEMPLATE, OpenAIBackend
from xmlcall.backends.server_facts import of_name, of_template
from xmlcall.errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow, UsageError
from xmlcall.types.calls import Message, RawArgument, Tool
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

REQUEST = CompletionRequest(messages=(Message(role="user", content="Hi"),))
NATIVE = CompletionRequest(messages=REQUEST.messages, tools=(Tool(name="f"),))


@pytest.fixture
def fake() -> FakeOpenAI:
    return FakeOpenAI()


@pytest.fixture
def url(stage: tuple[Stage, str], fake: FakeOpenAI) -> str:
    stage[0].app = fake.app
    return stage[1]


async def generate(backend: OpenAIBackend, request: CompletionRequest = REQUEST) -> list[Chunk]:
    async with backend:
        return [chunk async for chunk in backend.stream(request)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


# -- streaming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_reply_is_streamed(url: str, fake: FakeOpenAI, path: str) -> None:
    *texts, last = await generate(OpenAIBackend(url + path))
    assert (text_of(texts), sum(chunk.pieces for chunk in texts)) == ("Hello world", 2), "what arrives together may be joined"
    assert last == Chunk(finish_reason="stop", usage=Usage(prompt_tokens=32, completion_tokens=4, cached_tokens=30))
    assert fake.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_bytes_of_a_stream_may_come_one_by_one(url: str, fake: FakeOpenAI) -> None:
    fake.steps = [bytes([byte]) for byte in b": ping\r\n\r\n" + b"".join(reply("é", "🦊")).replace(b"\n", b"\r\n")]
    assert text_of(await generate(OpenAIBackend(url))) == "é🦊"


@pytest.mark.parametrize(
    "steps",
    [
        [*reply("Hi")[:-1]],  # no [DONE]
        [chunk({"content": "Hi"}), DONE],  # no finish reason
        [chunk({"content": "Hi"}, "stop").rstrip(b"\n")],  # no end of the last event
        [*reply("Hi"), chunk({"content": "late"}), 30.0],  # goes on after [DONE]
    ],
)
async def test_streams_that_end_in_their_own_way(url: str, fake: FakeOpenAI, steps: list[Step]) -> None:
    fake.steps = steps
    chunks = await generate(OpenAIBackend(url))
    assert (text_of(chunks), chunks[-1].finish_reason) == ("Hi", "stop")


async def test_native_calls_come_whole_at_the_end(url: str, fake: FakeOpenAI) -> None:
    def part(**fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": 0, **fields}]})

    fake.steps = [
        part(id="call_1", type="function", function={"name": "f", "arguments": ""}),
        part(function={"arguments": '{"a"'}),
        part(function={"arguments": ": 1}"}),
        chunk({}, "tool_calls"),
        DONE,
    ]
    (last,) = await generate(OpenAIBackend(url), NATIVE)
    assert last.finish_reason == "tool_calls"
    assert [call.arguments for call in last.tool_calls] == [(RawArgument(name="a", text="1", value=1),)]
    assert fake.bodies[0]["tools"][0]["function"]["name"] == "f"


PAUSED: list[Step] = [chunk({"content": "b"}), 0.01]


async def test_closing_a_stream_early_is_noticed_by_the_server(url: str, fake: FakeOpenAI) -> None:
    fake.steps = [chunk({"content": "a"}), *PAUSED * 2000]
    async with OpenAIBackend(url) as backend, aclosing(backend.stream(REQUEST)) as stream:
        assert (await anext(stream)).text.startswith("a")
        await stream.aclose()
        assert await asyncio.to_thread(fake.left.wait, 5)
        fake.steps = reply("again")
        assert text_of([chunk async for chunk in backend.stream(REQUEST)]) == "again"


async def test_cancelling_the_reader_ends_the_stream(url: str, fake: FakeOpenAI) -> None:
    fake.steps = [chunk({"content": "a"}), 30.0]
    async with OpenAIBackend(url) as backend:
        has_begun = asyncio.Event()
        task = asyncio.create_task(read_all(backend, has_begun))
        await asyncio.wait_for(has_begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(fake.left.wait, 5)


async def generate_all(backend: OpenAIBackend) -> list[Chunk]:
    return [chunk async for chunk in backend.stream(REQUEST)]


async def read_all(backend: OpenAIBackend, has_begun: asyncio.Event) -> None:
    async for _ in backend.stream(REQUEST):
        has_begun.set()


async def test_how_requests_travel(url: str, fake: FakeOpenAI) -> None:
    fake.props = llama_props()
    await generate(OpenAIBackend(url))
    assert fake.paths == ["/props", "/v1/models", "/apply-template", "/v1/chat/completions"]
    assert len(set(fake.ports)) == 4  # each on its own connection
    assert {headers["accept-encoding"] for headers in fake.headers} == {"identity"}
    assert not any("authorization" in headers for headers in fake.headers)


# -- what the server is ------------------------------------------------------------------------------------------------


async def test_a_server_that_says_nothing_of_itself(url: str) -> None:
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities == Capabilities(server="openai-compatible", fingerprints=(of_name("tiny"),))
        assert backend.model == "tiny"


async def test_vllm_says_its_context_length(url: str, fake: FakeOpenAI) -> None:
    fake.models = [{"id": "a"}, {"id": "b", "max_model_len": 4096, "owned_by": "vllm"}, {"no": "id"}]
    async with OpenAIBackend(url, "b") as backend:
        assert (backend.model, backend.capabilities.context_length) == ("b", 4096)


OPTIONS = {"top_p": 0.8, "top_k": 20, "min_p": 0.05, "presence_penalty": 1.5, "repeat_penalty": 1.05}


@pytest.mark.parametrize(("is_llama", "factor"), [(True, "repeat_penalty"), (False, "repetition_penalty")])
async def test_sampling_options_have_the_names_of_the_server(url: str, fake: FakeOpenAI, is_llama: bool, factor: str) -> None:
    """llama.cpp, tools/server/README.md; vLLM, "Extra parameters" of chat completions."""
    fake.props = llama_props() if is_llama else None
    await generate(OpenAIBackend(url), replace(REQUEST, temperature=0.7, options=OPTIONS))
    (body,) = fake.bodies
    expected = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "presence_penalty": 1.5, factor: 1.05}
    assert {name: body[name] for name in body if name in {*expected, "repeat_penalty", "repetition_penalty"}} == expected


@pytest.mark.parametrize("is_llama", [True, False])
@pytest.mark.parametrize(("model", "top_k"), [("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 20), ("tiny", None)])
async def test_what_the_makers_recommend_is_known_by_the_name(
    url: str, fake: FakeOpenAI, is_llama: bool, model: str, top_k: int | None
) -> None:
    fake.props, fake.models = llama_props() if is_llama else None, [{"id": model}]
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities.recommended.get("top_k") == top_k


@pytest.mark.parametrize("tools", [True, False])
async def test_llama_cpp_says_what_its_template_can(url: str, fake: FakeOpenAI, tools: bool) -> None:
    fake.props = llama_props(tools=tools, n_ctx=2048)
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities == Capabilities(
            server="llama.cpp",
            native_tools=tools,
            context_length=2048,
            tool_role=tools,
            build="b11434-x",
            continues=True,
            constrains=True,
            chat_template=True,
            most_logprobs=1000,
            fingerprints=(of_template("tiny", fake.props["chat_template"]),),
        )
        await generate_all(backend)
    assert fake.bodies[0]["cache_prompt"] is True
    assert "return_progress" not in fake.bodies[0]
    assert "reasoning_format" not in fake.bodies[0]


@pytest.mark.parametrize(("modalities", "sees"), [({"vision": True}, True), ({"vision": False}, False), ({}, None), ("x", None)])
async def test_llama_cpp_says_whether_a_model_sees(url: str, fake: FakeOpenAI, modalities: Any, sees: bool | None) -> None:
    fake.props = llama_props() | {"modalities": modalities}
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities.sees is sees


async def test_the_template_that_llama_cpp_takes_where_a_model_has_none(url: str, fake: FakeOpenAI) -> None:
    fake.props = llama_props(template=FALLBACK_TEMPLATE)
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities.chat_template is False


@pytest.mark.parametrize("texts", [["\nhm</think>Hi"], ["<think>\n", "\nhm</think>Hi"]])
async def test_a_reply_begins_inside_the_thinking_that_the_prompt_opened(url: str, fake: FakeOpenAI, texts: list[str]) -> None:
    fake.props, fake.prompt_end = llama_props(), "<|im_start|>assistant\n<think>\n"
    fake.steps = reply(*texts)  # with the opener if llama.cpp knows the template's tags, else without
    async with OpenAIBackend(url) as backend:
        assert backend.capabilities.reasoning_open
        assert not backend.capabilities.continues
        assert text_of(await generate_all(backend)) == "\nhm</think>Hi"
    assert fake.bodies[0]["reasoning_format"] == "none"


async def test_native_calls_leave_the_thinking_to_the_server(url: str, fake: FakeOpenAI) -> None:
    fake.props, fake.prompt_end = llama_props(tools=True), "<think>"
    fake.steps = [chunk({"reasoning_content": "hm"}), *reply("Hi")]
    chunks = await generate(OpenAIBackend(url), NATIVE)
    assert (chunks[0].reasoning, text_of(chunks)) == ("hm", "Hi")
    assert "reasoning_format" not in fake.bodies[0]


@pytest.mark.parametrize("caps", [None, [], {}, {"supports_tool_calls": "yes"}])
async def test_strange_props_claim_nothing(url: str, fake: FakeOpenAI, caps: Any) -> None:
    fake.props = {"default_generation_settings": [], "chat_template_caps": caps}
    async with OpenAIBackend(url) as backend:
        said = replace(backend.capabilities, fingerprints=())
        assert said == Capabilities(server="llama.cpp", continues=True, constrains=True, most_logprobs=1000)


async def test_a_server_without_a_list_of_models_needs_a_name(url: str, fake: FakeOpenAI) -> None:
    fake.models = None
    with pytest.raises(BackendProtocolError, match=r"list of models .* status 404 .* name the model \(URL#MODEL\)"):
        await generate(OpenAIBackend(url))
    assert text_of(await generate(OpenAIBackend(url, "mine"))) == "Hello world"
    assert fake.bodies[0]["model"] == "mine"


# -- refusals ----------------------------------------------------------------------------------------------------------

OVERFLOW = {"code": 400, "message": "request (5031 tokens) exceeds the available context size (2048 tokens), try increasing it"}


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, {"error": {"message": "bad grammar", "code": 400}}, BackendStatusError, "refused with status 400: bad grammar"),
        (500, "<html>oops</html>", BackendStatusError, "status 500: <html>oops"),
        (502, "", BackendStatusError, "status 502: nothing more"),
        (
            400,
            {"error": OVERFLOW | {"type": "exceed_context_size_error", "n_prompt_tokens": 5031, "n_ctx": 2048}},
            ContextOverflow,
            r"too long for the model \(5031 tokens, the context holds 2048\): start its server .*llama-server -c N",
        ),
        (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, ContextOverflow, "too long for the model: "),
        (400, {"message": "This model's maximum context length is 9 tokens."}, ContextOverflow, "maximum context length is 9"),
        (
            404,
            {"error": {"message": "The model `x` does not exist."}},
            BackendStatusError,
            "asked for the model 'tiny', the server has: tiny, big",
        ),
        (400, {"error": "model 'x' not found"}, BackendStatusError, "the server has: tiny, big"),
        (404, {"detail": "Not Found"}, BackendStatusError, "check the address"),
        (307, "", BackendStatusError, "check the address"),
        (200, {"error": {"message": "loading"}}, BackendStatusError, "in mid-reply: loading"),
        (200, {"choices": []}, BackendProtocolError, "expected a stream"),
    ],
)
async def test_refusals(url: str, fake: FakeOpenAI, status: int, body: Any, kind: type[BackendError], words: str) -> None:
    fake.models = ["tiny", "big"]
    fake.refusal = (status, body)
    with pytest.raises(kind, match=words) as caught:
        await generate(OpenAIBackend(url))
    assert type(caught.value) is kind
    assert caught.value.backend == url
    if isinstance(caught.value, BackendStatusError):
        assert caught.value.status_code == status


async def test_a_long_list_of_models_is_cut(url: str, fake: FakeOpenAI) -> None:
    fake.models = [f"m{number}" for number in range(30)]
    fake.refusal = (404, {"error": "model not found"})
    with pytest.raises(BackendStatusError, match=r"m19 and 10 more$"):
        await generate(OpenAIBackend(url))


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        (
            [event({"error": {"message": "empty grammar stack", "code": 500}})],
            BackendStatusError,
            "mid-reply: empty grammar stack",
        ),
        ([event({"error": OVERFLOW})], ContextOverflow, "too long for the model"),
        ([b"data: {oops\n\n"], BackendProtocolError, "expected JSON in the stream, got '{oops'"),
        ([b"data: [1, 2]\n\n"], BackendProtocolError, "expected a JSON object"),
        ([b"<html>not a stream</html>"], BackendProtocolError, "without a finish reason"),
        ([CUT], BackendUnavailable, "broke off the connection"),
        ([], BackendProtocolError, "without a finish reason"),
        ([final(prompt_tokens=1)], BackendProtocolError, "without a finish reason"),
    ],
)
async def test_streams_that_break(url: str, fake: FakeOpenAI, steps: list[Step], kind: type[BackendError], words: str) -> None:
    fake.steps = [chunk({"content": "Hi"}), *steps]
    async with OpenAIBackend(url) as backend:
        stream = backend.stream(REQUEST)
        assert await anext(stream) == Chunk(text="Hi")
        with pytest.raises(kind, match=words) as caught:
            await anext(stream)
    assert type(caught.value) is kind
    assert caught.value.backend == url


async def test_a_silent_server_is_given_up(url: str, fake: FakeOpenAI) -> None:
    fake.steps = [chunk({"content": "Hi"}), 30.0]
    with pytest.raises(BackendUnavailable, match=r"silent for 0\.1 s"):
        await generate(OpenAIBackend(url, timeout=0.1))


async def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(BackendUnavailable, match=rf"cannot connect to {url} .*llama-server"):
        await generate(OpenAIBackend(f"{url}/v1"))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", BackendProtocolError, "expected HTTP"),
        (b"", BackendUnavailable, "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 9_000_000, BackendProtocolError, "short answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", BackendProtocolError, "expected HTTP"),
    ],
)
async def test_what_is_no_such_server(answer: bytes, kind: type[BackendError], words: str) -> None:
    async with raw_answer(answer) as url:
        with pytest.raises(kind, match=words) as caught:
            await generate(OpenAIBackend(url))
    assert type(caught.value) is kind


# -- addresses and keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://host/v1", "http://", "http://[::1", "http://host:port", "file:///x"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="expected the URL of a server"):
        OpenAIBackend(url)


def mock_server(seen: list[httpx2.Request], status: int = 200) -> httpx2.MockTransport:
    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if request.url.path.endswith("/models"):
            return httpx2.Response(status, json={"data": [{"id": "m"}], "error": request.headers.get("authorization")})
        return httpx2.Response(200, content=b"".join(reply("Hi")), headers={"content-type": "text/event-stream"})

    return httpx2.MockTransport(handle)


@pytest.mark.parametrize(
    ("url", "chat"),
    [
        ("https://host/api/v1", "https://host/api/v1/chat/completions"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai/chat/completions"),
        ("https://host/proxy?x=1", "https://host/proxy/v1/chat/completions"),
        ("http://[::1]:9", "http://[::1]:9/v1/chat/completions"),
    ],
)
async def test_where_the_api_is(url: str, chat: str) -> None:
    seen: list[httpx2.Request] = []
    await generate(OpenAIBackend(url, transport=mock_server(seen)))
    assert str(seen[-1].url) == chat


@pytest.mark.parametrize(
    ("url", "given", "sent"),
    [
        ("https://api.example.com", None, "Bearer from-environment"),
        ("https://api.example.com", "mine", "Bearer mine"),
        ("https://api.example.com", "", None),
        ("http://api.example.com", None, None),
        ("https://127.0.0.1:1", None, None),
        ("http://localhost:1", None, None),
        ("http://[::1]:1", "mine", "Bearer mine"),
    ],
)
async def test_which_key_goes_where(monkeypatch: pytest.MonkeyPatch, url: str, given: str | None, sent: str | None) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment\n")
    seen: list[httpx2.Request] = []
    await generate(OpenAIBackend(url, api_key=given, transport=mock_server(seen)))
    assert {request.headers.get("authorization") for request in seen} == {sent}


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with pytest.raises(UsageError, match="printable ASCII") as caught:
        OpenAIBackend("http://host", api_key=key)
    assert key not in str(caught.value)


async def test_a_wrong_key_is_told_but_not_shown(url: str, fake: FakeOpenAI) -> None:
    fake.api_key = "right-key"
    with pytest.raises(BackendStatusError, match=r"401: Invalid API Key: Bearer \*\*\*; give its API key") as caught:
        await generate(OpenAIBackend(url, api_key="wrong-key"))
    assert "wrong-key" not in f"{caught.value} {caught.value.body}"
    assert text_of(await generate(OpenAIBackend(url, api_key="right-key"))) == "Hello world"


async def test_a_password_in_the_address_is_sent_but_not_shown() -> None:
    url = f"http://me:secret@127.0.0.1:{free_port()}/v1"
    with pytest.raises(BackendUnavailable) as caught:
        await generate(OpenAIBackend(url))
    assert "secret" not in f"{caught.value} {caught.value.backend}"
    seen: list[httpx2.Request] = []
    await generate(OpenAIBackend("http://me:secret@host", transport=mock_server(seen)))
    assert seen[-1].headers["authorization"].startswith("Basic ")


async def test_a_proxy_is_not_asked_for_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert text_of(await generate(OpenAIBackend(url))) == "Hello world"


# -- wrong use ---------------------------------------------------------------------------------------------------------


async def test_a_backend_that_is_not_open(url: str) -> None:
    backend = OpenAIBackend(url)
    with pytest.raises(UsageError, match="not open"):
        await anext(backend.stream(REQUEST))
    await generate(backend)
    with pytest.raises(UsageError, match="not open"):
        await anext(backend.stream(REQUEST))


async def test_a_request_that_is_not_json(url: str) -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        await generate(OpenAIBackend(url), CompletionRequest(messages=REQUEST.messages, extra={"x": object()}))


async def test_half_a_surrogate_pair_can_be_sent(url: str, fake: FakeOpenAI) -> None:
    await generate(OpenAIBackend(url), CompletionRequest(messages=(Message(role="user", content="a\ud83d"),)))
    assert json.dumps(fake.bodies[0]["messages"][0]["content"]) == '"a\\ud83d"'
