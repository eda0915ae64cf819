"""The embedded backend: what fails before llama.cpp is asked; and, with a model of 98 MB, llama.cpp itself."""

import asyncio
import builtins
import ctypes
import mmap
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from xmlcall.backends.connect import connect
from xmlcall.backends.embedded import EmbeddedBackend
from xmlcall.backends.openai import FALLBACK_TEMPLATE, OpenAIBackend
from xmlcall.errors import BackendStatusError, BackendUnavailable, ContextOverflow, UsageError
from xmlcall.models import known as models
from xmlcall.types.calls import Message
from xmlcall.types.completion import Chunk, CompletionRequest

# -- without a model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "got: No such file or directory"),
        (b"", "got one that begins with b''"),
        (b"PK\x03\x04zip", r"begins with b'PK\\x03\\x04'"),
    ],
)
async def test_what_is_no_gguf_file(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"expected a GGUF file at .*{words}"):
        await EmbeddedBackend(path).__aenter__()


async def test_a_folder_is_no_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        await EmbeddedBackend(tmp_path).__aenter__()


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("No module named 'xllamacpp'", r"install it with: .*\[local\]"),
        ("libgomp.so.1: cannot open shared object file", "apt-get install libgomp1"),
    ],
)
async def test_without_xllamacpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, words: str) -> None:
    real_import = builtins.__import__

    def fail(name: str, *rest: Any) -> Any:
        if name == "xllamacpp":
            raise ImportError(reason)
        return real_import(name, *rest)

    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    monkeypatch.setattr(builtins, "__import__", fail)

    async def download() -> Path:
        pytest.fail("the model is fetched, though it cannot be loaded")

    for path in (gguf(tmp_path), download):
        with pytest.raises(BackendUnavailable, match=words):
            await EmbeddedBackend(path).__aenter__()


def gguf(folder: Path) -> Path:
    path = folder / "broken.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00and nothing more")
    return path


async def test_a_broken_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'xmlcall[local]'")
    with pytest.raises(BackendUnavailable, match=r"cannot load .*broken\.gguf with a context of 8192 tokens .*may be damaged"):
        await EmbeddedBackend(gguf(tmp_path)).__aenter__()
    assert capfd.readouterr() == ("", "")


def test_the_template_for_models_without_one_is_still_llama_cpps() -> None:
    library = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'xmlcall[local]'")
    [path] = Path(library.__file__).parent.glob("*.so")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(FALLBACK_TEMPLATE.encode()) >= 0


async def test_a_backend_that_is_not_open() -> None:
    backend = EmbeddedBackend("x.gguf")
    assert (backend.model, backend.capabilities.server) == ("x", "llama.cpp")
    with pytest.raises(UsageError, match="not open"):
        await anext(backend.stream(request("Hi")))


# -- with a model ------------------------------------------------------------------------------------------------------

CONTEXT = 1024


def request(content: str, max_tokens: int = 8, **extra: Any) -> CompletionRequest:
    messages = (Message(role="user", content=content),)
    return CompletionRequest(messages=messages, max_tokens=max_tokens, temperature=0.0, seed=1, extra=extra)


ENDLESS = request("Tell a story.", max_tokens=900, ignore_eos=True)


async def generate(backend: EmbeddedBackend, wanted: CompletionRequest) -> list[Chunk]:
    return [chunk async for chunk in backend.stream(wanted)]


def inner(backend: EmbeddedBackend) -> OpenAIBackend:
    assert backend._client is not None
    return backend._client


def port_of(client: OpenAIBackend) -> int:
    return int(client._url.port or 0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def backend() -> AsyncIterator[EmbeddedBackend]:
    async with connect("smollm2-135m", context_length=CONTEXT) as opened:
        assert isinstance(opened, EmbeddedBackend)
        yield opened


@pytest.fixture
def path() -> Path:
    return models.pull("smollm2-135m")


live = pytest.mark.live
in_module_loop = pytest.mark.asyncio(loop_scope="module")


@live
@in_module_loop
async def test_a_reply_is_streamed(backend: EmbeddedBackend) -> None:
    chunks = await generate(backend, request("Count to five."))
    usage = chunks[-1].usage
    assert len(chunks) > 3
    assert "".join(chunk.text for chunk in chunks).strip()
    assert chunks[-1].finish_reason == "length"
    assert usage is not None
    assert usage.completion_tokens == 8
    assert usage.prompt_tokens is not None
    assert 20 < usage.prompt_tokens < 60


@live
@in_module_loop
async def test_what_the_model_is(backend: EmbeddedBackend) -> None:
    assert backend.model == "smollm2-135m"
    capabilities = backend.capabilities
    assert (capabilities.server, capabilities.context_length) == ("llama.cpp", CONTEXT)
    assert (capabilities.native_tools, capabilities.tool_role, capabilities.reasoning_open) == (False, False, False)


@live
@in_module_loop
async def test_the_second_turn_takes_the_first_from_the_cache(backend: EmbeddedBackend) -> None:
    question = Message(role="user", content="Name " + "a big animal, " * 40)
    first = await generate(backend, CompletionRequest(messages=(question,), max_tokens=4, temperature=0.0))
    answer = Message(role="assistant", content="".join(chunk.text for chunk in first))
    turns = (question, answer, Message(role="user", content="Another."))
    last = (await generate(backend, CompletionRequest(messages=turns, max_tokens=4)))[-1]
    assert last.usage is not None
    assert last.usage.cached_tokens is not None
    assert last.usage.cached_tokens > 150


def talk(*said: str, system: str = "Answer in one word. " * 20, aside: bool = False) -> CompletionRequest:
    messages = (Message(role="assistant" if at % 2 else "user", content=text) for at, text in enumerate(said))
    return CompletionRequest(messages=(Message(role="system", content=system), *messages), max_tokens=1, aside=aside)


async def read_anew(backend: EmbeddedBackend, wanted: CompletionRequest) -> int:
    usage = (await generate(backend, wanted))[-1].usage
    assert usage is not None
    return (usage.prompt_tokens or 0) - (usage.cached_tokens or 0)


@live
@in_module_loop
async def test_what_is_asked_aside_leaves_the_conversation_where_it_is(backend: EmbeddedBackend) -> None:
    assert backend.capabilities.keeps_aside
    asked = [
        talk("Name an animal.", aside=True),
        talk("Name an animal."),
        talk("Name " + "a big animal, " * 30, aside=True),
        talk("Name an animal.", "Cow", "Another."),
        talk("Thanks.", aside=True),
        talk("Name an animal.", "Cow", "Another.", "Dog", "One more."),
    ]
    read = [await read_anew(backend, each) for each in asked]
    assert read[0] > 80
    assert max(read[1], *read[3:]) < 40, "what both begin with is read once, and the conversation stays"


@live
@in_module_loop
async def test_slots_share_a_context_that_holds_one_of_them(backend: EmbeddedBackend) -> None:
    long = "word " * (CONTEXT * 3 // 5)
    for aside in (False, True, False, True):
        chunks = await generate(backend, talk(long, aside=aside))
        assert chunks[-1].finish_reason


@live
@in_module_loop
async def test_closing_a_stream_early_frees_the_slot(backend: EmbeddedBackend) -> None:
    async with aclosing(backend.stream(ENDLESS)) as stream:
        for _ in range(3):
            await anext(stream)
        assert await busy(inner(backend))
    for _ in range(100):
        if not await busy(inner(backend)):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the slot was still busy after 5 s")


async def busy(client: OpenAIBackend) -> bool:
    headers = {"Authorization": f"Bearer {client._api_key}"}
    async with httpx.AsyncClient(headers=headers, trust_env=False) as other:
        slots = (await other.get(f"http://127.0.0.1:{port_of(client)}/slots")).json()
    return any(slot["is_processing"] for slot in slots)


@live
@in_module_loop
async def test_a_grammar_is_obeyed_and_a_bad_one_is_told(backend: EmbeddedBackend) -> None:
    chunks = await generate(backend, request("Hi", grammar='root ::= "yes, " "of course"'))
    assert "".join(chunk.text for chunk in chunks) == "yes, of course"
    with pytest.raises(BackendStatusError, match=r"refused with status 400: .*grammar"):
        await generate(backend, request("Hi", grammar='root ::= "a'))


@live
@in_module_loop
async def test_a_prompt_that_is_too_long(backend: EmbeddedBackend) -> None:
    with pytest.raises(ContextOverflow, match=rf"too long for the model \(\d+ tokens, the context holds {CONTEXT}\)"):
        await generate(backend, request("word " * 2000))


@live
@in_module_loop
async def test_the_port_is_guarded(backend: EmbeddedBackend) -> None:
    other = OpenAIBackend(f"http://127.0.0.1:{port_of(inner(backend))}", api_key="guess")
    with pytest.raises(BackendStatusError, match="status 401"):
        await other.__aenter__()


PLAIN_TURN = "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
THINKING_TURN = (
    "{% if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
)


@live
@pytest.mark.parametrize("turn", [PLAIN_TURN, THINKING_TURN + PLAIN_TURN], ids=["tags unknown", "tags known"])
async def test_a_reply_begins_inside_the_thinking_that_the_template_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    """llama.cpp handles `<think>` in two ways, as it knows the template's tags or not; neither may be seen."""
    import xllamacpp

    def with_template() -> Any:
        parameters = real_parameters()
        opener = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
        parameters.chat_template = f"{{% for message in messages %}}{turn}{{% endfor %}}{opener}"
        return parameters

    real_parameters = xllamacpp.CommonParams
    monkeypatch.setattr(xllamacpp, "CommonParams", with_template)
    async with EmbeddedBackend(path, context_length=512) as opened:
        assert opened.capabilities.reasoning_open
        chunks = await generate(opened, request("Hi", max_tokens=20, grammar='root ::= "hm</think>Hi"'))
    assert "".join(chunk.text for chunk in chunks) == "hm</think>Hi"
    assert not any(chunk.reasoning for chunk in chunks)


@live
@pytest.mark.parametrize(("template", "has_one"), [("", True), ("chatml", False)], ids=["its own", "llama.cpp's"])
async def test_it_knows_whether_the_model_has_a_template(
    path: Path, monkeypatch: pytest.MonkeyPatch, template: str, has_one: bool
) -> None:
    """By this name llama.cpp takes the template that it takes where a file has none."""
    import xllamacpp

    def with_template() -> Any:
        parameters = real_parameters()
        parameters.chat_template = template
        return parameters

    real_parameters = xllamacpp.CommonParams
    monkeypatch.setattr(xllamacpp, "CommonParams", with_template)
    async with EmbeddedBackend(path, context_length=512) as opened:
        assert opened.capabilities.chat_template is has_one


@live
async def test_it_leaves_nothing_behind(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal_handler()
    async with EmbeddedBackend(path, context_length=512, threads=2) as opened:
        port = port_of(inner(opened))
        stream = opened.stream(ENDLESS)
        await anext(stream)
        started = time.monotonic()
    assert time.monotonic() - started < 5  # in spite of a stream that goes on
    assert refuses(port)
    with pytest.raises(BackendUnavailable, match=r"connection to .* broke"):
        await exhaust(stream)
    assert signal_handler() == before
    assert capfd.readouterr() == ("", "")


async def exhaust(stream: AsyncIterator[Chunk]) -> int:
    return len([chunk async for chunk in stream])


@live
async def test_a_cancelled_opening_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    real_load = EmbeddedBackend._load

    def load(*arguments: Any) -> Any:
        server = real_load(*arguments)
        ports.append(int(server.listening_address.rpartition(":")[2]))
        return server

    monkeypatch.setattr(EmbeddedBackend, "_load", load)
    task = asyncio.create_task(EmbeddedBackend(path, context_length=512).__aenter__())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(200):
        if ports and refuses(ports[0]):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the server was still there after 10 s")


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def signal_handler() -> tuple[Any, bytes]:
    """The handler of SIGINT, as Python and as the C library know it."""
    action = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    return signal.getsignal(signal.SIGINT), action.raw[:8]
