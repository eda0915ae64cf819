"""Tools in grades, in whole turns of loop and proxy: what is sent, and who answers a call of the tool that describes tools."""

from typing import Any

import pytest
from proxy_harness import ask, ask_engine, block, body, function, texts

from xmlcall import Answer, CallDenied, CallFinished, CallStarted, LocalHost, Message, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.engine.engine import Engine
from xmlcall.turn.events import LoopEvent
from xmlcall.types.completion import Capabilities, Chunk

FILLERS = [f"filler_{number}" for number in range(40)]
ABOUT = "Does something that nobody asks for. " * 9
DESCRIBE = block(("describe_tools", {"names": '["weather"]'}))
CALL = block(("weather", {"city": "Oslo"}))
QUESTION = "Is it raining in Oslo? What is the weather like?"


def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"It rains in {city}."


def fillers() -> list[Any]:
    def filler_of(name: str) -> Any:
        def filler(text: str, number: int = 1) -> str:
            return text

        filler.__name__, filler.__doc__ = name, ABOUT
        return filler

    return list(map(filler_of, FILLERS))


async def run(replies: Any, *messages: Message, **options: Any) -> tuple[list[LoopEvent], ScriptedBackend]:
    backend = ScriptedBackend(replies, capabilities=options.pop("capabilities", Capabilities(server="scripted")))
    options = {"policy": ["local.weather"]} | options
    async with ToolLoop(backend, [LocalHost([*fillers(), weather])], **options) as loop:
        said = messages or (Message(role="user", content=QUESTION),)
        return [event async for event in loop.run(said)], backend


async def test_what_fits_stands_after_the_question_and_nowhere_else() -> None:
    events, backend = await run([CALL, "It rains."], tool_tokens=1500)
    system, asked = (message.content for message in backend.requests[0].messages)
    assert "filler_39" in system
    assert "### weather" not in system
    assert asked.startswith(f"{QUESTION}\n\n(These tools fit this request best:)\n\n### weather\n")
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "### weather" not in str(answer.messages)
    assert backend.requests[1].messages[:2] == backend.requests[0].messages[:2], "within a turn nothing before changes"
    after = [*answer.messages, Message(role="user", content="Thanks!")]
    _, later = await run(["You are welcome."], *after, tool_tokens=1500)
    assert later.requests[0].messages[0].content == system
    assert "### weather" not in str(later.requests[0].messages)


async def test_a_description_is_given_without_asking_anybody() -> None:
    events, backend = await run([DESCRIBE, CALL, "It rains."], tool_tokens=1500)
    started = [(event.host, event.call.name) for event in events if isinstance(event, CallStarted)]
    assert started == [("xmlcall", "describe_tools"), ("local", "weather")]
    assert "### weather\nSay what the weather is like." in backend.requests[1].messages[-1].content
    assert isinstance(events[-1], Answer)
    assert events[-1].stop_reason == "end"


async def test_one_who_only_asks_for_descriptions_is_stopped() -> None:
    events, _ = await run([DESCRIBE] * 9, tool_tokens=1500)
    assert isinstance(events[-1], Answer)
    assert events[-1].stop_reason == "repeated_call"
    assert sum(isinstance(event, CallFinished) for event in events) == 2
    assert any(isinstance(event, CallDenied) for event in events)


async def test_where_all_is_shown_whole_there_is_no_such_tool() -> None:
    events, backend = await run([DESCRIBE, "I do not know."], tool_tokens=100_000)
    assert "describe_tools" not in backend.requests[0].messages[0].content
    assert not any(isinstance(event, CallStarted) for event in events)


@pytest.mark.parametrize(("length", "is_whole"), [(None, True), (8192, False), (131_072, True)])
async def test_the_budget_follows_from_the_context(length: int | None, is_whole: bool) -> None:
    _, backend = await run(["Hi"], capabilities=Capabilities(server="scripted", context_length=length))
    assert ("### weather" in backend.requests[0].messages[0].content) == is_whole


async def test_the_need_is_asked_without_descriptions_and_the_tool_is_chosen_with_them() -> None:
    name = [Chunk(text="weather", top_logprobs=(("weather", -0.5), ("filler", -1.0)))]
    told: list[Any] = [
        [Chunk(text="<", top_logprobs=(("<", -0.01),))],
        name,
        name,
        '<parameter name="city">Oslo</parameter></invoke>',
        "Rain.",
    ]
    capabilities = Capabilities(server="llama.cpp", continues=True, most_logprobs=100)
    events, backend = await run(told, capabilities=capabilities, call_threshold=0.0, tool_tokens=1500)
    need, choice, habit, begun = ([message.content for message in request.messages[1:]] for request in backend.requests[:4])
    assert need == [QUESTION]
    assert habit[0] == "Thanks!"
    assert choice[0] == begun[0] != QUESTION
    assert "### weather" in choice[0]
    assert begun[-1].endswith('<invoke name="weather">\n')
    assert [event.call.arguments for event in events if isinstance(event, CallStarted)] == [{"city": "Oslo"}]


@pytest.mark.parametrize(("tool_tokens", "calls"), [(1500, ["weather", "weather"]), (None, ["weather", "weather", "filler_1"])])
async def test_a_begun_call_is_followed_by_none_of_another_tool_that_was_described(
    tool_tokens: int | None, calls: list[str]
) -> None:
    """A small model calls each tool that is described after the question; where all are shown, it may call several."""
    name = [Chunk(text="weather", top_logprobs=(("weather", -0.1), ("filler", -3.0)))]
    needed = [Chunk(text="<", top_logprobs=(("<", -0.01),))]
    more = [("Oslo", "weather", "city"), ("Rome", "filler_1", "text")]
    rest = "".join(f'<invoke name="{tool}">\n<parameter name="{key}">{city}</parameter>\n</invoke>\n' for city, tool, key in more)
    reply = f'<parameter name="city">Bergen</parameter>\n</invoke>\n{rest}</function_calls>'
    capabilities = Capabilities(server="llama.cpp", continues=True, most_logprobs=100)
    told: list[Any] = [needed, name, reply, "Rain."]
    options: dict[str, Any] = {"call_threshold": 0.0, "tool_tokens": tool_tokens, "policy": ["local.*"]}
    events, backend = await run(told, capabilities=capabilities, **options)
    assert [event.call.name for event in events if isinstance(event, CallStarted)] == calls
    assert backend.requests[3].messages[2].content.endswith("</function_calls>")


async def test_no_prompt_of_ours_for_the_servers_own_function_calling() -> None:
    _, backend = await run(["Hi"], mode="native", tool_tokens=100_000)
    assert len(backend.requests[0].tools) == 41
    assert [message.content for message in backend.requests[0].messages] == [QUESTION]


# -- the proxy ---------------------------------------------------------------------------------------------------------

WEATHER = function("weather", "Say what the weather is like.", city={"type": "string"})
TOOLS = [*(function(name, ABOUT, text={"type": "string"}) for name in FILLERS), WEATHER]


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    return body(*(messages or (QUESTION,)), tools=TOOLS, **fields)


async def test_the_caller_sees_nothing_of_a_description() -> None:
    backend = ScriptedBackend([DESCRIBE, CALL])
    answer = await ask(backend, asked(), tool_tokens=1500)
    assert [(call.name, call.arguments) for call in answer.calls] == [("weather", {"city": "Oslo"})]
    assert "### weather" in texts(backend, 0)[-1][1]
    assert "<function_results>" in texts(backend, 1)[-1][1]


async def test_a_conversation_that_goes_on_begins_as_before() -> None:
    backend = ScriptedBackend([CALL, "It rains."])
    async with Engine(backend, mode="xml", tool_tokens=1500) as engine:
        (call,) = (await ask_engine(engine, asked())).calls
        told = {"id": call.id, "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        await ask_engine(engine, asked(QUESTION, {"role": "assistant", "content": None, "tool_calls": [told]}, result))
    assert texts(backend, 1)[:2] == texts(backend, 0)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "filler_7"}}])
async def test_where_a_call_is_demanded_a_description_is_none(choice: Any) -> None:
    wanted = block(("filler_7", {"text": "x"}))
    backend = ScriptedBackend([DESCRIBE, wanted])
    answer = await ask(backend, asked(tool_choice=choice), tool_tokens=1500)
    assert [call.name for call in answer.calls] == ["filler_7"]
    if choice != "required":
        assert "### filler_7" in texts(backend, 0)[-1][1]


async def test_tokens_are_counted_of_what_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "xmlcall.proxy")
    backend = ScriptedBackend(["Hi", "Hi"])
    async with Engine(backend, mode="xml", tool_tokens=1500) as engine:
        for _ in range(2):
            await ask_engine(engine, asked())
    assert sum("41 tools are shown to the model" in record.getMessage() for record in caplog.records) == 1
