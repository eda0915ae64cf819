"""The Ollama backend against a real server on loopback."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from servers.fake_ollama import CUT, FakeOllama, Step, done, line, part, reply
from servers.raw_http import raw_answer
from servers.run_server import Stage, free_port

from xmlcall.backends.ollama import OllamaBackend
from xmlcall.errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow, UsageError
from xmlcall.types.calls import Message, RawArgument, RawCall, Tool, ToolCall
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

REQUEST = CompletionRequest(messages=(Message(role="user", content="Hi"),))


@pytest.fixture
def fake() -> FakeOllama:
    return FakeOllama()


@pytest.fixture
def host(stage: tuple[Stage, str], fake: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    stage[0].app = fake.app
    return stage[1]


async def generate(backend: OllamaBackend, request: CompletionRequest = REQUEST) -> list[Chunk]:
    async with backend:
        return [chunk async for chunk in backend.stream(request)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


# -- streaming ---------------------------------------------------------------------------------------------------------


async def test_a_reply_is_streamed_and_the_context_is_always_asked_for(host: str, fake: FakeOllama) -> None:
    assert await generate(OllamaBackend("tiny", host=host)) == [
        Chunk(text="Hello"),
        Chunk(text=" world"),
        Chunk(finish_reason="stop", usage=Usage(prompt_tokens=100, completion_tokens=4)),
    ]
    assert fake.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "options": {"num_ctx": 16384},
            "truncate": False,
            "shift": False,
        }
    ]
    assert fake.headers[0]["accept-encoding"] == "identity"


async def test_schemas_and_ids_arrive_whole(host: str, fake: FakeOllama) -> None:
    """Nested schemas and the ids of calls are sent as they are."""
    schema = {"type": "object", "properties": {"o": {"type": "object", "properties": {"x": {"anyOf": [{"type": "null"}]}}}}}
    call = ToolCall(id="call_7", name="f", arguments={"o": {}}, raw=RawCall(index=0, name="f"))
    messages = (
        Message(role="user", content="Hi"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="done", tool_call_id="call_7", name="f"),
    )
    await generate(
        OllamaBackend("tiny", host=host),
        CompletionRequest(messages=messages, tools=(Tool(name="f", input_schema=schema),), max_tokens=7, extra={"think": False}),
    )
    (body,) = fake.bodies
    assert body["tools"][0]["function"]["parameters"] == schema
    assert body["messages"][1]["tool_calls"][0]["id"] == "call_7"
    assert body["messages"][2] == {"role": "tool", "content": "done", "tool_call_id": "call_7", "tool_name": "f"}
    assert (body["options"]["num_predict"], body["think"]) == (7, False)


async def test_sampling_options_are_sent_by_name(host: str, fake: FakeOllama) -> None:
    options = {"top_p": 0.8, "top_k": 20, "min_p": 0.05, "presence_penalty": 1.5, "repeat_penalty": 1.05}
    await generate(OllamaBackend("tiny", host=host), replace(REQUEST, temperature=0.7, options=options))
    assert fake.bodies[0]["options"] == {"num_ctx": 16384, "temperature": 0.7, **options}


async def test_thinking_and_native_calls(host: str, fake: FakeOllama) -> None:
    calls = [{"id": "x", "function": {"index": 0, "name": "f", "arguments": {"a": {"b": [1]}}}}]
    fake.steps = [part(thinking="hm"), part(tool_calls=calls), part(tool_calls=calls), done()]
    chunks = await generate(OllamaBackend("tiny", host=host))
    assert chunks[0].reasoning == "hm"
    assert [call.index for chunk in chunks for call in chunk.tool_calls] == [0, 1]
    assert chunks[1].tool_calls[0].arguments == (RawArgument(name="a", text='{"b": [1]}', value={"b": [1]}),)


async def test_bytes_of_a_stream_may_come_one_by_one(host: str, fake: FakeOllama) -> None:
    text = "é\x85\u2028\u2029\u200b🦊\x0c"  # the second to fourth and the last one end a line for httpx
    assert text[1:4].encode() in part(text)
    for size in (1, 2, 3, 1000):
        sent = b"".join(reply(text, "Â"))
        fake.steps = [sent[start : start + size] for start in range(0, len(sent), size)]
        assert text_of(await generate(OllamaBackend("tiny", host=host))) == text + "Â"


PAUSED: list[Step] = [part("b"), 0.01]


async def test_closing_a_stream_early_is_noticed_by_the_server(host: str, fake: FakeOllama) -> None:
    fake.steps = [part("a"), *PAUSED * 2000]
    async with OllamaBackend("tiny", host=host) as backend, aclosing(backend.stream(REQUEST)) as stream:
        assert (await anext(stream)).text == "a"
        await stream.aclose()
        assert await asyncio.to_thread(fake.left.wait, 5)
        fake.steps = reply("again")
        assert text_of([chunk async for chunk in backend.stream(REQUEST)]) == "again"


async def test_what_comes_after_the_end_is_not_waited_for(host: str, fake: FakeOllama) -> None:
    fake.steps = [*reply("Hi"), part("late"), 30.0]
    assert text_of(await generate(OllamaBackend("tiny", host=host))) == "Hi"


# -- the context -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trained", "running", "given", "num_ctx"),
    [
        (131072, [], None, 16384),
        (8192, [], None, 8192),
        (131072, [{"model": "tiny:latest", "context_length": 32768}], None, 32768),  # else Ollama would load it again
        (131072, [{"model": "tiny:latest", "context_length": 4096}], None, 16384),
        (131072, [{"model": "gemma3:4b", "context_length": 32768}], None, 16384),
        (131072, [{"model": "tiny:latest", "context_length": 32768}], 2048, 2048),
        (8192, [], 32768, 8192),
    ],
)
async def test_the_context_length(
    host: str, fake: FakeOllama, trained: int, running: Sequence[dict[str, Any]], given: int | None, num_ctx: int
) -> None:
    fake.context_length, fake.running = trained, running
    async with OllamaBackend("tiny", host=host, num_ctx=given) as backend:
        assert backend.capabilities.context_length == num_ctx
        assert text_of([chunk async for chunk in backend.stream(REQUEST)]) == "Hello world"
    assert fake.bodies[0]["options"]["num_ctx"] == num_ctx


LONG = "the quick brown fox " * 1000


@pytest.mark.parametrize(
    ("content", "read", "cut"),
    [
        ("Hi", 10, False),
        ("Hi", None, False),
        ("Hi", 0, False),
        ("Hi", 4091, False),
        ("Hi", 4092, True),
        ("Hi", 4096, True),
        (LONG, 2999, True),
        (LONG, 3000, False),
        (" " * 100_000, 10, False),
    ],
)
async def test_a_prompt_that_was_cut_in_silence(host: str, fake: FakeOllama, content: str, read: int | None, cut: bool) -> None:
    fake.steps = [part("Hi"), done(read)]
    backend = OllamaBackend("tiny", host=host, num_ctx=4096)
    request = CompletionRequest(messages=(Message(role="user", content=content),))
    if not cut:
        assert text_of(await generate(backend, request)) == "Hi"
        return
    with pytest.raises(
        ContextOverflow, match=rf"read {read} tokens of a prompt of at least \d+, its context holds 4096: .*num_ctx"
    ):
        await generate(backend, request)


# -- what the model is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "template", "native_tools", "tool_role"),
    [
        (["completion"], '{{ if eq .Role "tool" }}', False, False),
        (["completion", "tools"], '{{ if eq .Role "tool" }}', True, True),
        (["completion", "tools", "vision"], "{{ .Prompt }}", True, False),
        (None, "{{ .Prompt }}", None, False),
    ],
)
async def test_capabilities(
    host: str, fake: FakeOllama, capabilities: Sequence[str] | None, template: str, native_tools: bool | None, tool_role: bool
) -> None:
    fake.capabilities, fake.template = capabilities, template
    async with OllamaBackend("tiny", host=host) as backend:
        assert backend.capabilities == Capabilities(
            server="ollama",
            native_tools=native_tools,
            context_length=16384,
            sees=None if capabilities is None else "vision" in capabilities,
            tool_role=tool_role,
            constrains=True,
            chat_template=template != "{{ .Prompt }}",
        )


@pytest.mark.parametrize(("digest", "known_by"), [("", ()), ("AB" * 32, ("ollama:abababababababab",))])
async def test_a_model_is_known_by_its_digest(host: str, fake: FakeOllama, digest: str, known_by: tuple[str, ...]) -> None:
    fake.digest = digest
    async with OllamaBackend("tiny", host=host) as backend:
        assert backend.capabilities.fingerprints == known_by


@pytest.mark.parametrize(
    ("template", "modelfile", "has_one"),
    [
        ("{{ .Prompt }}", "FROM x\nTEMPLATE {{ .Prompt }}\n", False),
        ("{{- .Prompt -}}\n", "", False),
        ("[INST] {{ .Prompt }} [/INST]", "", True),
        ("{{ .Prompt }}", "FROM x\nTEMPLATE {{ .Prompt }}\nRENDERER qwen3-coder\n", True),
        ("", "", None),
    ],
)
async def test_a_model_without_a_chat_template(
    host: str, fake: FakeOllama, template: str, modelfile: str, has_one: bool | None
) -> None:
    fake.template, fake.modelfile = template, modelfile
    async with OllamaBackend("tiny", host=host) as backend:
        assert backend.capabilities.chat_template is has_one


async def test_the_host_comes_from_the_environment(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert text_of(await generate(OllamaBackend("tiny"))) == "Hello world"


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_model_that_is_not_there(host: str, fake: FakeOllama) -> None:
    with pytest.raises(BackendStatusError, match=r"no model 'llama9': .*`ollama pull llama9`; it has: tiny:latest, gemma3:4b"):
        await generate(OllamaBackend("llama9", host=host))
    async with OllamaBackend("tiny", host=host) as backend:
        fake.models = ()
        with pytest.raises(BackendStatusError, match=r"404: model 'tiny' not found; fetch it with `ollama pull tiny`"):
            await anext(backend.stream(REQUEST))


@pytest.mark.parametrize(
    ("status", "error", "kind", "words"),
    [
        (400, "registry.ollama.ai/library/tiny:latest does not support tools", BackendStatusError, "use mode xml"),
        (400, "tiny does not support vision\ntiny does not support tools", BackendStatusError, "use mode xml"),
        (500, "model requires more system memory (9 GiB) than is available", BackendStatusError, "smaller num_ctx"),
        (400, "exceed_context_size_error: request (99 tokens)", ContextOverflow, "too long for the model: "),
        (
            400,
            {"message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 99, "n_ctx": 50},
            ContextOverflow,
            r"\(99 tokens, the context holds 50\)",
        ),
        (503, "server busy", BackendStatusError, "refused with status 503: server busy"),
    ],
)
async def test_refusals(host: str, fake: FakeOllama, status: int, error: Any, kind: type[BackendError], words: str) -> None:
    fake.refusal = (status, error)
    with pytest.raises(kind, match=words) as caught:
        await generate(OllamaBackend("tiny", host=host))
    assert type(caught.value) is kind
    assert caught.value.status_code == status  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([line({"error": "an error was encountered while running the model"})], BackendStatusError, "in mid-reply: an error was"),
        ([line({"error": {"message": "odd form"}})], BackendStatusError, "in mid-reply: odd form"),
        ([b'{"message": \n'], BackendProtocolError, "JSONDecodeError"),
        ([b"\n"], BackendProtocolError, "JSONDecodeError"),
        ([b"[1, 2]\n"], BackendProtocolError, "expected Ollama's JSON"),
        ([b'{"done": false}\n'], BackendProtocolError, "expected lines with a message"),
        ([b"[" * 100_000 + b"\n"], BackendProtocolError, "RecursionError"),
        ([b" " * 2**20] * 17, BackendProtocolError, "more than 16777216 bytes"),
        ([CUT], BackendUnavailable, "broke off the connection"),
        ([], BackendProtocolError, "without a line with `done`"),
    ],
)
async def test_streams_that_break(host: str, fake: FakeOllama, steps: list[Step], kind: type[BackendError], words: str) -> None:
    fake.steps = [part("Hi"), *steps]
    async with OllamaBackend("tiny", host=host) as backend:
        stream = backend.stream(REQUEST)
        assert await anext(stream) == Chunk(text="Hi")
        with pytest.raises(kind, match=words) as caught:
            await anext(stream)
    assert type(caught.value) is kind
    assert caught.value.backend == f"Ollama at {host}"


async def test_a_silent_server_is_given_up(host: str, fake: FakeOllama) -> None:
    fake.steps = [part("Hi"), 30.0]
    with pytest.raises(BackendUnavailable, match=r"silent for 0\.1 s"):
        await generate(OllamaBackend("tiny", host=host, timeout=0.1))


async def test_nobody_there() -> None:
    host = f"http://me:secret@127.0.0.1:{free_port()}"
    with pytest.raises(BackendUnavailable, match=r"cannot connect to Ollama at 127\.0\.0\.1:.*`ollama serve`") as caught:
        await generate(OllamaBackend("tiny", host=host))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", BackendProtocolError),
        (b"", BackendUnavailable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", BackendProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", BackendProtocolError),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n[[]]", BackendProtocolError),
    ],
)
async def test_what_is_no_ollama(answer: bytes, kind: type[BackendError]) -> None:
    async with raw_answer(answer) as host:
        with pytest.raises(kind) as caught:
            await generate(OllamaBackend("tiny", host=host))
    assert type(caught.value) is kind


async def test_wrong_use(host: str) -> None:
    with pytest.raises(UsageError, match="expected the name of a model"):
        OllamaBackend("")
    with pytest.raises(UsageError, match="not open"):
        await anext(OllamaBackend("tiny", host=host).stream(REQUEST))
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        await generate(OllamaBackend("tiny", host=host), CompletionRequest(messages=(), extra={"x": {1}}))
