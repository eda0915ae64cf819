"""Many tools and the server's own function calling: those that fit are sent, the others are found; loop and proxy alike."""

import json
import statistics
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from proxy_harness import ask_engine, body, events_of, function

from xmlcall import Answer, Asking, CallFinished, CallStarted, Catalog, LocalHost, Message, Tool, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench.subjects import oracle_calls
from xmlcall.bench.suites import cases_of
from xmlcall.prompting.format import ENGLISH
from xmlcall.prompting.system import Budget, budget_for, native_tools_within, tokens_of
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.contract import WholeResponse, whole_response
from xmlcall.proxy.formats.openai_chat import CHAT
from xmlcall.turn.machine import Ask
from xmlcall.turn.opening import begin_turn
from xmlcall.types.calls import RawArgument, RawCall, TextContent
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

COUNT = 200
QUESTION = "What is the weather like in Oslo?"
ABOUT = "Do something that nobody asks for, in some way or other. " * 4
DESCRIBE = "describe_tools"
MONEY = "Convert an amount of money. " + "Any currency can be used, and all rates are those of today. " * 8
LITTLE = 2000  # tokens for all tools


def native(*calls: tuple[str, dict[str, Any]], text: str = "", finish: str = "tool_calls") -> list[Chunk]:
    """Write a reply with calls that the server found itself."""
    raws = [
        RawCall(
            index=index,
            name=name,
            arguments=tuple(RawArgument(name=key, text=json.dumps(value), value=value) for key, value in arguments.items()),
            dialect="native",
        )
        for index, (name, arguments) in enumerate(calls)
    ]
    words = [Chunk(text=text)] if text else []
    ids = tuple(f"server_{raw.index}" for raw in raws)
    return [*words, Chunk(tool_calls=tuple(raws), call_ids=ids, finish_reason=finish)]  # type: ignore[arg-type]


FIND = native((DESCRIBE, {"names": ["convert currency"]}), text="Let me look.")
CONVERT = native(("convert_currency", {"amount": 5}))
WEATHER = native(("weather", {"city": "Oslo"}))


def sent(request: CompletionRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def size_of(request: CompletionRequest) -> float:
    return sum(tokens_of(json.dumps([tool.name, tool.description, tool.input_schema])) for tool in request.tools)


# -- what is chosen ----------------------------------------------------------------------------------------------------


def tool(name: str, description: str = ABOUT, **properties: Any) -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object", "properties": properties})


TOOLS = [
    *(tool(f"filler_{number}") for number in range(COUNT)),
    tool("weather", "Say what the weather is like.", city={"type": "string"}),
    tool("convert_currency", MONEY, amount={"type": "number"}),
]


def test_all_are_sent_where_there_is_room() -> None:
    offered = native_tools_within(budget_for(None), Catalog(TOOLS[-20:]), ENGLISH)
    assert (offered.grade, offered.own, len(offered.catalog)) == ("whole", "", 20)


@pytest.mark.parametrize(
    ("request_", "first", "inside", "outside"),
    [
        (QUESTION, (), {"weather"}, {"convert_currency"}),
        ("Convert 5 dollars to an amount in euros", (), {"convert_currency"}, set()),
        ("你好", (), {"filler_0"}, {"convert_currency"}),
        ("And in Rome?", ("weather",), {"weather"}, set()),
        (QUESTION, ("gone", "filler_199"), {"weather", "filler_199"}, set()),
    ],
)
def test_what_fits_the_words_or_was_called_is_chosen(
    request_: str, first: Sequence[str], inside: set[str], outside: set[str]
) -> None:
    offered = native_tools_within(Budget(whole=LITTLE, parts=LITTLE), Catalog(TOOLS), ENGLISH)
    chosen = offered.chosen(request_, first)
    assert inside <= chosen
    assert not outside & chosen
    assert 3 < len(chosen) < COUNT / 2
    assert offered.own not in chosen


def test_the_finding_tool_says_names_and_how_many_there_are() -> None:
    offered = native_tools_within(Budget(whole=LITTLE, parts=LITTLE), Catalog(TOOLS), ENGLISH)
    [own] = offered.describing
    assert "There are 202 tools" in own.description
    assert "Names: filler_0, filler_1, " in own.description
    assert own.description.endswith(" more.")
    assert tokens_of(own.description) < LITTLE / 2
    few = native_tools_within(Budget(whole=1, parts=LITTLE), Catalog(TOOLS[-2:]), ENGLISH)
    assert few.describing[0].description.endswith("Names: weather, convert_currency.")


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    offered = native_tools_within(Budget(whole=1, parts=LITTLE), Catalog([*TOOLS, tool(DESCRIBE)]), ENGLISH)
    assert offered.own == "describe_tools_2"


def test_what_was_found_is_bounded_and_the_latest_stays() -> None:
    offered = native_tools_within(Budget(whole=LITTLE, parts=LITTLE), Catalog(TOOLS), ENGLISH)
    chosen = offered.chosen(QUESTION)
    every = [f"filler_{number}" for number in range(COUNT)]
    found = [each.name for each in offered.latest_found(every, chosen)]
    assert 0 < len(found) < 20
    assert found == [name for name in every if name not in chosen][-len(found) :]
    large = [*TOOLS, tool("large", "x" * 100_000)]
    offered = native_tools_within(Budget(whole=LITTLE, parts=LITTLE), Catalog(large), ENGLISH)
    assert [each.name for each in offered.latest_found(["filler_9", "large"], frozenset())] == ["large"]


def test_the_right_one_of_200_real_tools_is_sent() -> None:
    cases = [case for case in cases_of("catalog") if len(case.tools) == COUNT]
    sizes = []
    for case in cases:
        offered = native_tools_within(budget_for(None), Catalog(case.tools), ENGLISH)
        chosen = offered.chosen(case.messages[-1]["content"])
        assert {name for name, _ in oracle_calls(case)} <= chosen, case.id
        sizes.append(len(chosen))
    assert len(cases) == 40
    assert 10 <= statistics.mean(sizes) <= 12


# -- in the loop -------------------------------------------------------------------------------------------------------


def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"It rains in {city}."


def convert_currency(amount: float) -> str:
    return f"{amount} EUR"


convert_currency.__doc__ = MONEY


def functions() -> list[Any]:
    def filler_of(number: int) -> Any:
        def filler(text: str = "") -> str:
            return text

        filler.__name__, filler.__doc__ = f"filler_{number}", ABOUT
        return filler

    return [*map(filler_of, range(COUNT)), weather, convert_currency]


async def run(replies: Any, *messages: Any, **options: Any) -> tuple[list[Any], ScriptedBackend]:
    capabilities = options.pop("capabilities", Capabilities(server="scripted"))
    backend = ScriptedBackend(replies, capabilities=capabilities)
    settings: dict[str, Any] = {"policy": ["*"], "mode": "native", "tool_tokens": LITTLE, **options}
    async with ToolLoop(backend, [LocalHost(functions())], **settings) as loop:
        said = messages or (Message(role="user", content=QUESTION),)
        return [event async for event in loop.run(said)], backend


@pytest.mark.parametrize("mode", ["native", "native-only"])
async def test_a_tool_that_fits_is_called_at_once(mode: str) -> None:
    events, backend = await run([WEATHER, "It rains."], mode=mode)
    names = sent(backend.requests[0])
    assert {"weather", DESCRIBE} <= {*names}
    assert names[-1] == DESCRIBE
    assert size_of(backend.requests[0]) < LITTLE
    assert sent(backend.requests[1]) == names
    assert [message.content for message in backend.requests[0].messages] == [QUESTION]
    assert events[-1].text == "It rains."


async def test_what_is_found_is_sent_with_the_next_requests_of_the_turn_and_with_no_other_turn() -> None:
    events, backend = await run([FIND, CONVERT, "5 EUR."])
    names = sent(backend.requests[0])
    assert "convert_currency" not in names
    assert sent(backend.requests[1]) == sent(backend.requests[2]) == [*names, "convert_currency"]
    assert size_of(backend.requests[2]) < LITTLE
    started = [(event.host, event.call.name) for event in events if isinstance(event, CallStarted)]
    assert started == [("xmlcall", DESCRIBE), ("local", "convert_currency")]
    described = backend.requests[1].messages[-1]
    assert described.role == "tool"
    assert "### convert_currency\nConvert an amount of money." in described.content
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert (answer.stop_reason, answer.text) == ("end", "5 EUR.")
    thanks = Message(role="user", content="你好")
    _, later = await run(["Hi."], *answer.messages, thanks)
    assert {"convert_currency", "filler_0"} <= {*sent(later.requests[0])}, "it was called before"
    _, other = await run(["Hi."], thanks)
    assert "convert_currency" not in sent(other.requests[0])


async def test_a_tool_that_was_not_sent_can_be_called() -> None:
    events, _ = await run([CONVERT, "5 EUR."])
    [result] = [event.result for event in events if isinstance(event, CallFinished)]
    assert result.content == (TextContent(text="5.0 EUR"),)


async def test_nothing_is_found() -> None:
    events, backend = await run([native((DESCRIBE, {"names": ["qqq"]})), "I cannot."])
    assert sent(backend.requests[1]) == sent(backend.requests[0])
    assert backend.requests[1].messages[-1].content == "There is no tool named qqq, and none fits the words."
    assert events[-1].text == "I cannot."


@pytest.mark.parametrize(("length", "is_whole"), [(None, False), (8192, False), (262_144, True)])
async def test_the_budget_follows_from_the_context(length: int | None, is_whole: bool) -> None:
    capabilities = Capabilities(server="scripted", context_length=length)
    _, backend = await run(["Hi"], capabilities=capabilities, tool_tokens=None)
    assert (len(backend.requests[0].tools) == COUNT + 2) == is_whole
    assert (DESCRIBE in sent(backend.requests[0])) != is_whole


def test_a_turn_that_a_program_drives_itself_does_the_same() -> None:
    turn = begin_turn(
        [{"role": "user", "content": QUESTION}], TOOLS, asking=Asking(mode="native", tool_tokens=LITTLE), server=None
    )
    requests = []
    for reply in (FIND, native(text="Done.", finish="stop")):
        action = turn.next()
        assert isinstance(action, Ask)
        requests.append(action.request)
        for chunk in reply:
            list(turn.receive(chunk))
        list(turn.end())
    assert sent(requests[1]) == [*sent(requests[0]), "convert_currency"]


# -- in the proxy ------------------------------------------------------------------------------------------------------

FUNCTIONS = [
    *(function(f"filler_{number}", ABOUT, required=(), text={"type": "string"}) for number in range(COUNT)),
    function("weather", "Say what the weather is like.", city={"type": "string"}),
    function("convert_currency", MONEY, amount={"type": "number"}),
]

ANSWERED: list[tuple[list[Any], str, list[tuple[str, dict[str, Any]]]]] = [
    ([native(text="It rains.", finish="stop")], "It rains.", []),
    ([WEATHER], "", [("weather", {"city": "Oslo"})]),
    ([FIND, CONVERT], "Let me look.", [("convert_currency", {"amount": 5})]),
    ([FIND, native(text="I cannot.", finish="stop")], "Let me look.I cannot.", []),
    ([native((DESCRIBE, {"names": ["filler_9"]}), ("weather", {"city": "Oslo"}))], "", [("weather", {"city": "Oslo"})]),
]


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    return body(*(messages or (QUESTION,)), tools=FUNCTIONS, **fields)


@pytest.mark.parametrize("wire", ["openai", "ollama"], ids=["the caller's wire", "another wire"])
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("replies", "text", "calls"), ANSWERED)
async def test_the_caller_sees_calls_of_its_own_tools_only(
    replies: list[Any], text: str, calls: list[Any], is_streamed: bool, wire: str
) -> None:
    backend = ScriptedBackend(replies, capabilities=Capabilities(server="ollama" if wire == "ollama" else "scripted"))
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        if is_streamed:
            assert DESCRIBE not in str(await events_of(engine, asked(stream=True)))
        else:
            answer = await answer_of(engine, asked())
            assert [(call.name, call.arguments) for call in answer.calls] == calls
            assert (answer.text, answer.finish_reason) == (text, "tool_calls" if calls else "stop")
    first = backend.requests[0]
    assert {"weather", DESCRIBE} <= {*sent(first)}
    assert size_of(first) < LITTLE
    assert "tools" not in first.extra, "else the caller's own list would be sent"
    if len(replies) > 1:
        assert sent(backend.requests[1]) == [*sent(first), "convert_currency"]
        added = backend.requests[1].messages[1:]
        assert [message.role for message in added] == ["assistant", "tool"]


async def answer_of(engine: Engine, data: dict[str, Any]) -> WholeResponse:
    """Ask with the whole body, as over HTTP, of which a server of the same wire format gets every field."""
    async with aclosing(engine.respond(replace(CHAT.read(data).request, whole=data))) as events:
        return whole_response([event async for event in events])


def told(call: Any, **fields: Any) -> list[dict[str, Any]]:
    """Write a call and its result as the caller's next request has them."""
    made = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
    said = {"role": "assistant", "content": "Let me look.", "tool_calls": [made], **fields}
    return [said, {"role": "tool", "tool_call_id": call.id, "content": "5 EUR"}]


BOTH = native((DESCRIBE, {"names": ["convert currency"]}), ("weather", {"city": "Oslo"}))
DONE = native(text="5 EUR.", finish="stop")


@pytest.mark.parametrize("wire", ["openai", "ollama"], ids=["the caller's wire", "another wire"])
@pytest.mark.parametrize(
    ("replies", "roles"),
    [
        ([FIND, CONVERT, DONE], ["user", "assistant", "tool", "assistant", "tool"]),
        ([BOTH, DONE], ["user", "assistant", "tool", "tool"]),
    ],
    ids=["a hidden round", "a hidden call beside one of the caller's"],
)
async def test_the_next_request_is_the_one_before_with_more_after_it(replies: list[Any], roles: list[str], wire: str) -> None:
    backend = ScriptedBackend(replies, capabilities=Capabilities(server="ollama" if wire == "ollama" else "scripted"))
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        (call,) = (await answer_of(engine, asked())).calls
        answer = await answer_of(engine, asked(QUESTION, *told(call, reasoning_content="Hm.")))
    assert answer.text == "5 EUR."
    before, after = backend.requests[-2:]
    assert [message.role for message in after.messages] == roles
    assert after.messages[: len(before.messages)] == before.messages
    assert {*sent(before)} <= {*sent(after)}
    assert "convert_currency" in sent(after)
    if wire == "openai":
        rows = after.extra["messages"]
        assert [row["role"] for row in rows] == roles
        assert [row.get("reasoning_content") for row in rows if row["role"] == "assistant"][-1] == "Hm."
        assert rows[: len(before.messages) - 1] == before.extra["messages"][: len(before.messages) - 1]


async def test_rounds_are_written_as_text_where_a_later_native_reply_comes_to_nothing() -> None:
    backend = ScriptedBackend([FIND, CONVERT, [Chunk(finish_reason="stop")], "5 EUR."])
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        (call,) = (await answer_of(engine, asked())).calls
        await answer_of(engine, asked(QUESTION, *told(call)))
    messages = backend.requests[-1].messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert not any(message.tool_calls for message in messages)
    assert f'<invoke name="{DESCRIBE}">' in messages[2].content


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("Other words.", {}),
    (QUESTION, {"tools": [*FUNCTIONS, function("secret", ABOUT)]}),
]


@pytest.mark.parametrize(("question", "fields"), OTHERS, ids=["other words", "other tools"])
async def test_another_conversation_with_the_same_ids_gets_no_hidden_round(question: str, fields: dict[str, Any]) -> None:
    """A server may give each first call the same id."""
    backend = ScriptedBackend([FIND, CONVERT, DONE])
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        (call,) = (await answer_of(engine, asked())).calls
        await answer_of(engine, {**asked(question, *told(call)), **fields})
    after = backend.requests[-1]
    assert [message.role for message in after.messages] == ["user", "assistant", "tool"]
    assert "convert_currency" in sent(after), "it was called"


async def test_a_caller_may_have_called_a_tool_of_our_name() -> None:
    call = {"id": "c", "type": "function", "function": {"name": DESCRIBE, "arguments": '{"names": 3}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    backend = ScriptedBackend([DONE])
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        answer = await answer_of(engine, asked(QUESTION, said, {"role": "tool", "tool_call_id": "c", "content": "x"}))
    assert answer.text == "5 EUR."


async def test_all_tools_of_a_caller_are_sent_unchanged_where_there_is_room() -> None:
    backend = ScriptedBackend([native(text="Hi.", finish="stop")])
    async with Engine(backend, mode="native", tool_tokens=100_000) as engine:
        await answer_of(engine, asked())
    assert backend.requests[0].extra["tools"] == FUNCTIONS
    assert len(backend.requests[0].tools) == COUNT + 2


async def test_the_log_says_once_that_some_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "xmlcall.proxy")
    backend = ScriptedBackend([native(text="Hi.", finish="stop")] * 2)
    async with Engine(backend, mode="native", tool_tokens=LITTLE) as engine:
        for _ in range(2):
            await ask_engine(engine, asked())
    assert sum("202 tools: those that fit are sent" in record.getMessage() for record in caplog.records) == 1
