"""The whole product on real local models; run by `make live`, which fetches them."""

import json
import sys
from dataclasses import replace

import httpx
import pytest
from catalogs import ALL
from servers.run_server import run_server

from xmlcall import (
    Answer,
    CallFinished,
    Catalog,
    LocalHost,
    McpHost,
    Message,
    RepairPolicy,
    ReplyEnded,
    Shortened,
    StdioServer,
    Tool,
    ToolCall,
    ToolLoop,
    ToolNeed,
    allow,
    connect,
    render,
    system_prompt,
)
from xmlcall.agent.drive import result_of
from xmlcall.backends.embedded import EmbeddedBackend
from xmlcall.proxy import create_app
from xmlcall.turn.events import LoopEvent
from xmlcall.turn.generate import Binder, ReplyOptions, generate
from xmlcall.turn.machine import Machine
from xmlcall.turn.native import generate_call
from xmlcall.types.calls import Role
from xmlcall.types.completion import CompletionRequest

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

DEMO = StdioServer(name="demo", command=sys.executable, args=("-m", "xmlcall.hosts.demo_server"))


async def run(loop: ToolLoop, *messages: Message) -> list[LoopEvent]:
    return [event async for event in loop.run(messages)]


async def test_the_default_model_answers_with_a_tool() -> None:
    async with ToolLoop(connect("local"), [McpHost(DEMO)], policy=allow(["demo.*"]), temperature=0) as loop:
        events = await run(loop, Message(role="user", content="What is 1234 times 5678?"))
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert finished[0].call.arguments == {"operation": "multiply", "a": 1234, "b": 5678}
    assert isinstance(events[-1], Answer)
    assert "7006652" in events[-1].text.replace(",", "")


async def test_a_second_turn_comes_from_the_prompt_cache() -> None:
    """At least 95 % of the first turn's prompt is not read again (llama.cpp reports `cached_tokens`)."""

    def look_up(word: str) -> str:
        """Look up a word in the dictionary."""
        return word

    async with ToolLoop(
        connect("smollm2-135m"), [LocalHost([look_up])], temperature=0, max_tokens=40, repair=RepairPolicy(max_replies=1)
    ) as loop:
        first = await run(loop, Message(role="user", content="Hello! Who are you?"))
        answer = first[-1]
        assert isinstance(answer, Answer)
        second = await run(loop, *answer.messages, Message(role="user", content="And what do you like?"))
    usages = [event.usage for event in (*first, *second) if isinstance(event, ReplyEnded)]
    assert usages[0].prompt_tokens is not None
    assert usages[0].prompt_tokens > 300
    assert usages[1].cached_tokens is not None
    assert usages[1].cached_tokens >= 0.95 * usages[0].prompt_tokens


async def test_native_mode_on_a_template_without_tools() -> None:
    """What xmlcall is for: the server takes `tools`, says 200, and no call ever comes back."""
    async with ToolLoop(connect("smollm2-135m"), [McpHost(DEMO)], mode="native", temperature=0, max_tokens=60) as loop:
        assert loop.backend.capabilities.native_tools is False
        events = await run(loop, Message(role="user", content="What is 1234 times 5678?"))
    assert not any(isinstance(event, CallFinished) for event in events)


async def test_the_prompt_fits_small_contexts() -> None:
    """The five tools of the golden prompt cost at most a third of a 4,096-token context."""
    async with connect("smollm2-135m") as backend:
        from xmlcall.types.completion import CompletionRequest

        messages = (Message(role="system", content=system_prompt(ALL)), Message(role="user", content="Hi"))
        usage = None
        async for chunk in backend.stream(CompletionRequest(messages=messages, max_tokens=1)):
            usage = chunk.usage or usage
    assert usage is not None
    assert usage.prompt_tokens is not None
    assert usage.prompt_tokens < 4096 / 3


async def test_a_reply_cut_inside_a_call_is_continued_to_the_same_text() -> None:
    """The reply of a model that is cut every 20 tokens is, by character, the one that it writes in one go."""

    def save_note(title: str, text: str, tags: list[str]) -> str:
        """Save a note."""
        return "saved"

    tool = Tool.from_function(save_note)
    catalog = Catalog([tool])
    binder = Binder(catalog=catalog)
    question = "Save a note titled Cats with a text of two sentences about cats, tags animal and pet."
    request = CompletionRequest(
        messages=(Message(role="system", content=system_prompt(catalog)), Message(role="user", content=question)), temperature=0
    )
    async with connect("local") as backend:
        how, short = ReplyOptions(server=backend.capabilities, continuations=10), replace(request, max_tokens=20)
        whole = await result_of(Machine(generate(request, binder, how)), backend)
        cut = await result_of(Machine(generate(short, binder, how)), backend)
        constrained = await result_of(Machine(generate_call(request, binder, tool, how, "function_calls")), backend)
    assert cut.text == whole.text
    assert isinstance(cut.reply.calls[0], ToolCall)
    assert isinstance(constrained.reply.calls[0], ToolCall)
    assert constrained.text.startswith("<function_calls>")


# -- more than the context holds ---------------------------------------------------------------------------------------

SMALL_CONTEXT = 2048
REPLY = 400  # tokens; so many have to be free after each prompt


def read_file(path: str) -> str:
    """Read a file."""
    lines = (f"{number:06d} 2026-11-22T10:15:30 ok\n" for number in range(3600))  # digits, so that the first estimate is wrong
    return f"The log begins here.\n{''.join(lines)}The log ends here."


def small_loop() -> ToolLoop:
    backend = connect("local", context_length=SMALL_CONTEXT)
    return ToolLoop(backend, [LocalHost([read_file])], policy=["*"], temperature=0, max_tokens=REPLY)


def assert_it_fitted(events: list[LoopEvent]) -> None:
    assert isinstance(events[-1], Answer)
    assert events[-1].stop_reason == "end"
    prompts = [event.usage.prompt_tokens for event in events if isinstance(event, ReplyEnded)]
    assert prompts
    assert all(length is not None and length + REPLY <= SMALL_CONTEXT for length in prompts), prompts


async def test_a_result_larger_than_the_context_ends_in_an_answer() -> None:
    call = render([{"name": "read_file", "arguments": {"path": "log.txt"}}])
    result = f'<result name="read_file">\n{read_file("log.txt")}\n</result>'
    said = (
        Message(role="user", content="How does the file log.txt begin?"),
        Message(role="assistant", content=call),
        Message(role="user", content=f"<function_results>\n{result}\n</function_results>\n\n(Now answer in a short sentence.)"),
    )
    async with small_loop() as loop:
        events = await run(loop, *said)
    assert_it_fitted(events)
    shortened = [event for event in events if isinstance(event, Shortened)]
    assert shortened[0].results[0].characters > 100_000


SIDES: list[tuple[Role, str]] = [("user", "I have"), ("assistant", "You have")]


async def test_a_conversation_larger_than_the_context_ends_in_an_answer() -> None:
    said = [Message(role=role, content=f"{words} {number} apples. " * 15) for number in range(60) for role, words in SIDES]
    async with small_loop() as loop:
        events = await run(loop, *said, Message(role="user", content="Good morning! Please say hello to me."))
    assert_it_fitted(events)
    assert any(isinstance(event, Shortened) and event.messages > 60 for event in events)


async def test_the_call_threshold_tells_a_greeting_from_a_sum() -> None:
    """As in `xmlcall chat`, with the demo server's tools."""
    questions = {"Good morning!": False, "What is 1234 times 5678?": True}
    async with ToolLoop(
        connect("local"), [McpHost(DEMO)], call_threshold="auto", temperature=0, repair=RepairPolicy(max_replies=1)
    ) as loop:
        for question, needs_tool in questions.items():
            first = (await run(loop, Message(role="user", content=question)))[1]
            assert isinstance(first, ToolNeed)
            assert first.needs_tool is needs_tool


CITIES = """Paris London Rome Oslo Tokyo Bern Madrid Lima Cairo Delhi Seoul Hanoi Dublin Vienna Prague Warsaw Athens Lisbon Zagreb
Riga Tallinn Vilnius Helsinki Stockholm Ankara Nairobi Lagos Accra Tunis Dakar Quito Bogota Havana Manila Jakarta Amman Muscat
Doha Kyiv Sofia""".split()  # noqa: SIM905


async def test_calls_that_a_server_leaves_in_the_text_are_read_in_native_mode() -> None:
    """The same 40 questions: what llama.cpp tells of the calls, and what is read in its text besides."""

    def get_weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"It rains in {city}."

    right = {}
    for mode in ("native-only", "native"):
        host, options = LocalHost([get_weather]), {"temperature": 0, "max_tokens": 80, "repair": RepairPolicy(max_replies=1)}
        async with ToolLoop(connect("local"), [host], mode=mode, policy=allow(["*"]), **options) as loop:  # type: ignore[arg-type]
            answers = [await run(loop, Message(role="user", content=f"What is the weather in {city}?")) for city in CITIES]
        calls = [[event.call.arguments for event in events if isinstance(event, CallFinished)] for events in answers]
        right[mode] = sum(each == [{"city": city}] for each, city in zip(calls, CITIES, strict=True))
    print(right)
    assert right["native-only"] <= 4
    assert right["native"] >= 36


WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


async def test_a_call_that_llama_cpp_refuses_with_500_is_asked_for_in_the_prompt() -> None:
    """The reply continues the client's beginning, a broken call, which llama.cpp's own parser refuses."""
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", }}\n</tool_call>'
    said = [{"role": "user", "content": "What is the weather in Oslo?"}, {"role": "assistant", "content": broken}]
    asked = {
        "model": "local",
        "messages": said,
        "tools": [{"type": "function", "function": WEATHER}],
        "temperature": 0,
        "max_tokens": 80,
    }
    async with connect("local") as backend:
        assert isinstance(backend, EmbeddedBackend)
        async with backend.relay("POST", "/chat/completions", json.dumps(asked).encode()) as refused:
            body = b"".join([part async for part in refused.chunks])
    assert refused.status == 500
    assert b"does not match the expected peg-native format" in body
    with run_server(create_app("local", mode="native"), lifespan="on") as url:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            answer = await client.post("/v1/chat/completions", json=asked)
    [call] = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
