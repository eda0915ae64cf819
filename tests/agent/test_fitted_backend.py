"""Results, histories and catalogs that are larger than the model's context, through loop, proxy and command line."""

import json
import logging
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, call, model_server, run_cli
from profiles import covering
from proxy_harness import ask_engine, body, function
from servers.fake_openai import DONE, FakeOpenAI, chunk, llama_props
from servers.started import ProcessFiles

from xmlcall import Answer, LocalHost, Message, Shortened, ToolLoop
from xmlcall.agent.fitted_backend import FittedBackend
from xmlcall.backends.embedded import LARGER_CONTEXT as EMBEDDED
from xmlcall.backends.ollama import LARGER_CONTEXT as OLLAMA
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ContextOverflow
from xmlcall.prompting.fit_context import Fitted, estimate
from xmlcall.prompting.system import Scale
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.openai_chat import CHAT
from xmlcall.turn.events import LoopEvent
from xmlcall.types.calls import Role
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

LONG = "BEGIN " + "The quick brown fox jumps over the lazy dog 42 times. " * 3700 + "END"  # 200,000 characters
READ = call("read_file", path="a.txt")
# How dense the model's tokens are, and whether the server says how much it holds before it refuses.
DENSITIES = (1.2, 3.0, 5.0)
PROPS = (None, llama_props(n_ctx=3000))


def read_file(path: str) -> str:
    """Read a file."""
    return LONG


ROLES: tuple[Role, Role] = ("user", "assistant")


def history(turns: int) -> list[Message]:
    said = [(f"Question {n}? " * 20, f"Answer {n}. " * 20) for n in range(turns)]
    return [Message(role=role, content=text) for both in said for role, text in zip(ROLES, both, strict=True)]


async def run(url: str, *messages: Message, tools: Any = (read_file,), **options: Any) -> list[LoopEvent]:
    async with ToolLoop(OpenAIBackend(url), [LocalHost(tools)], policy=["*"], **options) as loop:
        return [event async for event in loop.run(messages)]


def sent(fake: FakeOpenAI) -> list[str]:
    """The contents of the last request."""
    return [message["content"] for message in fake.bodies[-1]["messages"]]


# -- the loop ----------------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(("density", "props"), covering(DENSITIES, PROPS))
async def test_a_result_larger_than_the_context_ends_in_an_answer(density: float, props: dict[str, Any] | None) -> None:
    with model_server(READ, "It is about a fox.") as (url, fake):
        fake.n_ctx, fake.token_length, fake.props = 3000, density, props
        events = await run(url, Message(role="user", content="What is in a.txt?"))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.stop_reason) == ("It is about a fox.", "end")
    assert LONG in answer.messages[2].content, "the conversation itself stays whole"
    assert "\nBEGIN The quick" in sent(fake)[-1]
    assert "times. END\n</result>\n</function_results>\n\n(Now answer" in sent(fake)[-1]
    assert sum(map(len, sent(fake))) / density < 3000 - 500, "no room for the reply"
    (shortened,) = [event for event in events if isinstance(event, Shortened)]
    assert (shortened.results[0].name, shortened.results[0].characters, shortened.messages) == ("read_file", len(LONG), 0)


@pytest.mark.sweep
@pytest.mark.parametrize(("density", "props"), covering(DENSITIES, PROPS))
async def test_a_history_larger_than_the_context_ends_in_an_answer(density: float, props: dict[str, Any] | None) -> None:
    with model_server("Yes.") as (url, fake):
        fake.n_ctx, fake.token_length, fake.props = 3000, density, props
        events = await run(url, *history(60), Message(role="user", content="Do you remember?"))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert (answer.stop_reason, len(answer.messages)) == ("end", 122)
    assert "Do you remember?" in sent(fake)[-1]
    assert sum(isinstance(event, Shortened) and event.messages > 0 for event in events) == 1


async def test_the_servers_own_function_calling_is_sent_what_fits_too() -> None:
    delta = {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}]}
    with model_server([chunk(delta), chunk({}, "tool_calls"), DONE], "A fox.") as (url, fake):
        fake.n_ctx, fake.props = 3000, llama_props(tools=True, n_ctx=3000)
        events = await run(url, Message(role="user", content="What is in a.txt?"), mode="native")
    assert isinstance(events[-1], Answer)
    assert events[-1].text == "A fox."
    assert fake.bodies[-1]["messages"][-1]["role"] == "tool"


def many_tools(count: int) -> list[Any]:
    def tool_of(number: int) -> Any:
        def tool(text: str) -> str:
            return text

        tool.__name__, tool.__doc__ = f"tool_{number}", "Do something with a text. " * 20
        return tool

    return [tool_of(number) for number in range(count)]


@pytest.mark.parametrize("n_ctx", [3000, 2000])
async def test_a_catalog_larger_than_the_context_is_shown_in_part(n_ctx: int) -> None:
    with model_server("A fox.") as (url, fake):
        fake.n_ctx, fake.props = n_ctx, llama_props(n_ctx=n_ctx)
        events = await run(url, Message(role="user", content="Hi"), tools=many_tools(60))
    assert isinstance(events[-1], Answer)
    assert len(fake.bodies) == 1
    assert "tool_0" in sent(fake)[0]


async def test_a_catalog_that_is_shown_whole_at_any_cost_is_told_with_what_to_do() -> None:
    with model_server("never") as (url, fake):
        fake.n_ctx = 3000
        with pytest.raises(ContextOverflow) as caught:
            await run(url, Message(role="user", content="Hi"), tools=many_tools(60), tool_tokens=100_000)
    message = str(caught.value)
    assert f"about {caught.value.prompt_tokens:,} tokens" in message
    for words in ("the context holds 3,000", "fewer tools", '"includeTools"', "`llama-server -c N`"):
        assert words in message
    assert len(fake.bodies) <= 2, "what is the same is not sent again"


async def test_a_message_larger_than_the_context_is_not_blamed_on_the_tools() -> None:
    with model_server("never") as (url, fake):
        fake.n_ctx = 3000
        with pytest.raises(ContextOverflow, match="shorten the message, or start its server with a larger context") as caught:
            await run(url, *history(60), Message(role="user", content=LONG))
    assert "fewer tools" not in str(caught.value)


@pytest.mark.parametrize("advice", [EMBEDDED, OLLAMA])
async def test_whose_context_is_chosen_here_is_told_the_option(advice: str) -> None:
    refusal = ContextOverflow("too long", status_code=400, prompt_tokens=9000, context_length=4096, advice=advice)
    with pytest.raises(ContextOverflow, match=r"about 9,000 tokens, .* holds 4,096, .*with --context N"):
        await chunks_of(FittedBackend(ScriptedBackend([refusal] * 9), Scale()), asked("word " * 30_000))


# -- the backend -------------------------------------------------------------------------------------------------------

LLAMA = Capabilities(server="llama.cpp", context_length=4096)


def asked(*texts: str, **fields: Any) -> CompletionRequest:
    said = [Message(role=ROLES[n % 2], content=text) for n, text in enumerate(texts)]
    return CompletionRequest(messages=(Message(role="system", content="Be kind."), *said), **fields)


async def chunks_of(backend: FittedBackend, request: CompletionRequest) -> list[Chunk]:
    async with aclosing(backend.stream(request)) as stream:
        return [chunk async for chunk in stream]


def talk(characters: int) -> list[str]:
    return ["word " * (characters // 5)] * 40 + ["And now?"]


@pytest.mark.parametrize(
    "figures",
    [{}, {"prompt_tokens": 9000}, {"context_length": 4096}, {"prompt_tokens": 9000, "context_length": 4096}],
    ids=["nothing", "the prompt", "the context", "both"],
)
async def test_a_refusal_is_answered_with_less(figures: dict[str, Any]) -> None:
    inner = ScriptedBackend([ContextOverflow("no", status_code=400, **figures), "Hi."])
    told: list[Fitted] = []
    chunks = await chunks_of(FittedBackend(inner, Scale(), on_cut=told.append), asked(*talk(500)))
    assert "".join(chunk.text for chunk in chunks) == "Hi."
    first, second = (estimate(request.messages) for request in inner.requests)
    assert second < 0.8 * first
    assert [fitted.left_out for fitted in told] == [42 - len(inner.requests[1].messages)]


async def test_refusals_have_an_end() -> None:
    inner = ScriptedBackend([ContextOverflow("no", status_code=400)] * 9)
    with pytest.raises(ContextOverflow, match="without older messages"):
        await chunks_of(FittedBackend(inner, Scale()), asked(*talk(5000)))
    assert len(inner.requests) == 4
    sizes = [estimate(request.messages) for request in inner.requests]
    assert sizes == sorted(sizes, reverse=True)


async def test_what_comes_after_the_reply_began_is_not_asked_again() -> None:
    inner = ScriptedBackend([["Hi", ContextOverflow("no", status_code=200)]])
    with pytest.raises(ContextOverflow, match=r"^no$"):
        await chunks_of(FittedBackend(inner, Scale()), asked(*talk(5000)))
    assert len(inner.requests) == 1


async def test_a_count_from_the_server_lets_more_through_or_less() -> None:
    """About 2,900 estimated tokens; what the first reply told decides about the second request."""
    request = asked(*["word " * 40] * 40, "And now?")
    for told, is_cut in ((1800, False), (6000, True)):
        usage = Chunk(finish_reason="stop", usage=Usage(prompt_tokens=told))
        inner = ScriptedBackend([["a", usage], ["b", usage]], capabilities=LLAMA)
        backend = FittedBackend(inner, Scale())
        for _ in range(2):
            await chunks_of(backend, request)
        assert [each.messages == request.messages for each in inner.requests] == [True, not is_cut]


async def test_a_question_about_a_prompt_is_cut_where_the_prompt_is() -> None:
    """The call threshold asks for one token, and then for the reply: the server's cache has to hold."""
    inner = ScriptedBackend(["a", "b", "c"], capabilities=LLAMA)
    backend = FittedBackend(inner, Scale())
    for max_tokens in (1, 2048, None):
        await chunks_of(backend, asked(*talk(500), max_tokens=max_tokens))
    first, *others = inner.requests
    assert len(first.messages) < 42
    assert all(replace(other, max_tokens=1) == first for other in others)


async def test_a_server_that_wants_room_for_the_whole_reply() -> None:
    """vLLM: the prompt fits, prompt and `max_tokens` together do not."""
    refusal = ContextOverflow("no", status_code=400, prompt_tokens=2500, context_length=4096)
    inner = ScriptedBackend([refusal, "Hi."], capabilities=LLAMA)
    await chunks_of(FittedBackend(inner, Scale()), asked(*["word " * 40] * 40, "And?", max_tokens=3000))
    assert [request.max_tokens for request in inner.requests] == [3000, 1024]


# -- the proxy ---------------------------------------------------------------------------------------------------------

FILE = function("read_file", "Read a file.", path={"type": "string"})


def with_result(text: str, *before: dict[str, Any]) -> dict[str, Any]:
    asked = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [asked]}
    return body(*before, "What is in it?", said, {"role": "tool", "tool_call_id": "call_1", "content": text}, tools=[FILE])


SAID_BEFORE = [{"role": message.role, "content": message.content} for message in history(60)]
CONVERSATIONS = {
    "result": with_result(LONG),
    "history": with_result("short", *SAID_BEFORE),
    "no tools": body(*SAID_BEFORE, "And now?", tools=[]),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "density", "props"), covering(CONVERSATIONS, DENSITIES, PROPS))
async def test_a_callers_conversation_is_sent_as_it_fits(
    name: str, density: float, props: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    with model_server("A fox.") as (url, fake):
        fake.n_ctx, fake.token_length, fake.props = 3000, density, props
        async with Engine(OpenAIBackend(url), mode="xml") as engine:
            answer = await ask_engine(engine, CONVERSATIONS[name])
    assert (answer.text, answer.finish_reason) == ("A fox.", "stop")
    assert [record.message for record in caplog.records if "to fit the model's context: " in record.message]


async def test_tokens_of_the_whole_conversation_are_counted() -> None:
    async with Engine(ScriptedBackend([], capabilities=replace(LLAMA, server="scripted")), mode="xml") as engine:
        assert await engine.count_tokens(CHAT.read(with_result(LONG)).request) > 40_000


async def test_a_caller_with_too_many_tools_is_told_so() -> None:
    tools = [function(f"tool_{number}", "Do something. " * 40, text={"type": "string"}) for number in range(60)]
    with model_server("never") as (url, fake):
        fake.n_ctx = 3000
        async with Engine(OpenAIBackend(url), mode="xml", tool_tokens=100_000) as engine:
            with pytest.raises(ContextOverflow, match=r"the context holds 3,000, .*includeTools"):
                await ask_engine(engine, body("Hi", tools=tools))


# -- the command line --------------------------------------------------------------------------------------------------


def test_a_person_is_told_what_the_model_did_not_see(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [HOSTILE, "good"], "env": ProcessFiles(tmp_path).env}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"files": server}}))
    with model_server(call("echo", text=" ".join(map(str, range(5000)))), "A fox.") as (url, fake):
        fake.n_ctx, fake.props = 12_000, llama_props(n_ctx=3000)
        done = run_cli("run", "--mcp", "mcp.json", "--yes", "--verbose", "--model", url, "Hi", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "A fox.\n")
    assert "the model's context holds 3,000 tokens\n" in done.stderr
    assert "characters of results of echo" in done.stderr
    assert "they do not fit into the model's context (see --context)\n" in done.stderr


async def test_what_goes_out_and_what_comes_is_told_in_each_try() -> None:
    told: list[list[str]] = []
    heard: list[str] = []
    overflow = ContextOverflow("too long", backend="x", status_code=400, prompt_tokens=4000, context_length=3000)
    inner = ScriptedBackend([overflow, "Hello."], chunk_size=2)
    backend = FittedBackend(
        inner, Scale(), on_sent=lambda messages: told.append([message.content for message in messages]), on_text=heard.append
    )
    async with inner, aclosing(backend.stream(CompletionRequest(messages=tuple(history(200))))) as chunks:
        texts = [chunk.text async for chunk in chunks if chunk.text]
    assert told == [[message.content for message in request.messages] for request in inner.requests]
    assert len(told) == 2
    assert sum(map(len, told[1])) < sum(map(len, told[0])), "the second one is what was sent after the refusal"
    assert heard == texts == ["He", "ll", "o."]
