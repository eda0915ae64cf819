"""Two calls in one reply, where the second needs what the first returns, or does not; in the loop and in the proxy."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from profiles import covering
from proxy_harness import ask, ask_engine, block, body

from xmlcall import Answer, CallHeld, CallStarted, LocalHost, Message, RepairPolicy, Tool, ToolLoop, ToolResult, parse
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.base import OnProgress
from xmlcall.proxy.engine.engine import Engine
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import TextContent

Call = tuple[str, dict[str, Any]]

CORPUS = tomllib.loads((Path(__file__).parents[1] / "corpus/dependent_calls.toml").read_text(encoding="utf-8"))
CASES, READY = CORPUS["case"], CORPUS["ready"]
CHUNK_SIZES = (None, 1, 7)
TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def call_of(table: Mapping[str, Any]) -> Call:
    arguments = dict(table)
    return arguments.pop("tool"), arguments


def tool_of(call: Call) -> Tool:
    name, arguments = call
    properties = {key: {"type": TYPES[type(value)]} for key, value in arguments.items()}
    return Tool(name=name, input_schema={"type": "object", "properties": properties, "required": list(properties)})


def written(*calls: Call) -> str:
    shown = [
        (name, {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()})
        for name, arguments in calls
    ]
    return block(*shown)


class Fixed(LocalHost):
    """Tools with one answer."""

    def __init__(self, tools: list[Tool], answer: str) -> None:
        super().__init__([])
        self._listed, self._answer = tuple({tool.name: tool for tool in tools}.values()), answer

    async def tools(self) -> tuple[Tool, ...]:
        self.changed.clear()
        return self._listed

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        return ToolResult(content=(TextContent(text=self._answer),))


async def in_loop(
    request: str, tools: list[Call], result: str, replies: list[str], chunk_size: int | None = None, **options: Any
) -> tuple[list[Any], ScriptedBackend]:
    backend = ScriptedBackend(replies, chunk_size=chunk_size)
    async with ToolLoop(backend, [Fixed([tool_of(call) for call in tools], result)], policy=["*"], **options) as loop:
        return [event async for event in loop.run([Message(role="user", content=request)])], backend


def ran(events: list[Any]) -> list[Call]:
    return [(event.call.name, event.call.arguments) for event in events if isinstance(event, CallStarted)]


def held(events: list[Any]) -> list[tuple[str, list[str]]]:
    return [(event.call.name, list(event.paths)) for event in events if isinstance(event, CallHeld)]


def calls_of(case: Mapping[str, Any]) -> tuple[Call, Call, Call, Call]:
    """Return the first call, the second as invented and as it is right, and the second of the twin."""
    first, invented, real = (call_of(case[name]) for name in ("first", "invented", "real"))
    return first, invented, real, call_of(case.get("twin", case["real"]))


by_request = pytest.mark.parametrize("case", CASES, ids=lambda case: case["request"][:30])


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "chunk_size"), covering(CASES, CHUNK_SIZES))
async def test_a_call_with_an_invented_value_waits_for_the_result(case: dict[str, Any], chunk_size: int | None) -> None:
    first, invented, real, _ = calls_of(case)
    replies = [f"Well.\n{written(first, invented)}", written(real), "Done."]
    events, backend = await in_loop(case["request"], [first, real], case["result"], replies, chunk_size)
    assert ran(events) == [first, real]
    assert held(events) == [(invented[0], case["waits"])]
    asked = backend.requests[1].messages
    assert parse(asked[-2].content, Catalog([tool_of(first), tool_of(real)])).calls[0].name == first[0]
    assert invented[0] not in asked[-2].content, "a model repeats what its history shows"
    assert f'<invoke name="{invented[0]}">' in asked[-1].content
    assert "..." in asked[-1].content
    assert events[-1].stop_reason == "end"


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "chunk_size"), covering(CASES, CHUNK_SIZES))
async def test_two_calls_that_are_ready_run(case: dict[str, Any], chunk_size: int | None) -> None:
    first, _, _, second = calls_of(case)
    events, _ = await in_loop(case["said"], [first, second], case["result"], [written(first, second), "Done."], chunk_size)
    assert ran(events) == [first, second]
    assert held(events) == []


@pytest.mark.parametrize("case", READY, ids=lambda case: case["request"][:30])
async def test_what_a_model_writes_by_itself_runs(case: dict[str, Any]) -> None:
    calls = [call_of(case["first"]), call_of(case["second"])]
    events, _ = await in_loop(case["request"], calls, "ok", [written(*calls), "Done."])
    assert ran(events) == calls
    assert held(events) == []


def offered(*calls: Call) -> list[dict[str, Any]]:
    tools = {tool.name: tool for tool in map(tool_of, calls)}.values()
    return [{"type": "function", "function": {"name": tool.name, "parameters": tool.input_schema}} for tool in tools]


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "chunk_size"), covering(CASES, CHUNK_SIZES))
async def test_a_caller_gets_what_is_ready(case: dict[str, Any], chunk_size: int | None) -> None:
    first, invented, real, _ = calls_of(case)
    backend = ScriptedBackend([written(first, invented), written(real)], chunk_size=chunk_size)
    tools = offered(first, real)
    async with Engine(backend, mode="xml") as engine:
        answer = await ask_engine(engine, body(case["request"], tools=tools))
        assert [(call.name, call.arguments) for call in answer.calls] == [first]
        assert answer.finish_reason == "tool_calls"
        made = answer.calls[0]
        function = {"name": made.name, "arguments": json.dumps(made.arguments)}
        said = {"role": "assistant", "content": None, "tool_calls": [{"id": made.id, "type": "function", "function": function}]}
        told = {"role": "tool", "tool_call_id": made.id, "content": case["result"]}
        answer = await ask_engine(engine, body(case["request"], said, told, tools=tools))
    assert [(call.name, call.arguments) for call in answer.calls] == [real]
    assert invented[0] not in backend.requests[1].messages[-2].content


@by_request
@pytest.mark.parametrize("chunk_size", [None, 1])
async def test_a_caller_gets_both_calls_that_are_ready(case: dict[str, Any], chunk_size: int | None) -> None:
    first, _, _, second = calls_of(case)
    backend = ScriptedBackend([written(first, second)], chunk_size=chunk_size)
    answer = await ask(backend, body(case["said"], tools=offered(first, second)))
    assert [(call.name, call.arguments) for call in answer.calls] == [first, second]


def today() -> str:
    """Return the date."""
    return "2024-03-05"


@pytest.mark.parametrize("chunk_size", [None, 3])
async def test_the_proxys_own_calls_run_before_the_callers_that_wait(chunk_size: int | None) -> None:
    invented, real = (("appointments", {"date": date}) for date in ("2023-10-05", "2024-03-05"))
    backend = ScriptedBackend([written(("today", {}), invented), written(real)], chunk_size=chunk_size)
    hosts = [LocalHost([today], name="clock")]
    data = body("Show the appointments of today.", tools=offered(real))
    answer = await ask(backend, data, hosts=hosts, allowed=["*"])
    assert [(call.name, call.arguments) for call in answer.calls] == [real]
    assert "2023-10-05" not in backend.requests[1].messages[-1].content


LOOK, CANCEL = ("look", {"what": "orders"}), ("cancel", {"order_id": "12345"})
ASKED = "Look at my orders and cancel the last one."


async def test_a_call_that_is_written_again_after_the_results_runs() -> None:
    events, _ = await in_loop(ASKED, [LOOK, CANCEL], "none", [written(LOOK, CANCEL), written(CANCEL), "Done."])
    assert ran(events) == [LOOK, CANCEL]


async def test_a_tools_calls_wait_once() -> None:
    other = ("cancel", {"order_id": "99999"})
    events, _ = await in_loop(ASKED, [LOOK, CANCEL], "none", [written(LOOK, CANCEL), written(LOOK, other), "Done."])
    assert ran(events) == [LOOK, LOOK, other]
    assert len(held(events)) == 1


async def test_calls_after_one_that_waits_are_not_asked_for_in_vain() -> None:
    """The reply ends there: what the model would write on costs time, and nothing of it runs."""
    again = written(LOOK, CANCEL, ("look", {"what": "bills"}))
    events, backend = await in_loop(ASKED, [LOOK, CANCEL], "none", [again, "Done."], 5)
    assert ran(events) == [LOOK]
    assert backend.closed_early[0]


async def test_nothing_waits_in_the_last_reply() -> None:
    events, _ = await in_loop(ASKED, [LOOK, CANCEL], "none", [written(LOOK, CANCEL)], repair=RepairPolicy(max_replies=1))
    assert ran(events) == [LOOK, CANCEL]


async def test_a_value_of_an_earlier_turn_is_known() -> None:
    backend = ScriptedBackend([written(LOOK, CANCEL), "Done."])
    before = [Message(role="user", content="Which one is it?"), Message(role="assistant", content="It is 12345.")]
    async with ToolLoop(backend, [Fixed([tool_of(LOOK), tool_of(CANCEL)], "ok")], policy=["*"]) as loop:
        events = [event async for event in loop.run([*before, Message(role="user", content=ASKED)])]
    assert ran(events) == [LOOK, CANCEL]
    assert isinstance(events[-1], Answer)


@pytest.mark.parametrize(
    ("schema", "waits"),
    [
        ({"type": "string"}, True),
        ({"type": "string", "enum": ["12345", "678"]}, False),
        ({"type": "string", "default": "12345"}, False),
        ({"type": "string", "examples": ["12345"]}, False),
        ({"type": "string", "description": "Such as 12345."}, False),
    ],
)
async def test_a_value_that_the_schema_has_is_ready(schema: dict[str, Any], waits: bool) -> None:
    cancel = Tool(name="cancel", input_schema={"type": "object", "properties": {"order_id": schema}, "required": ["order_id"]})
    backend = ScriptedBackend([written(LOOK, CANCEL), "Done."])
    async with ToolLoop(backend, [Fixed([tool_of(LOOK), cancel], "ok")], policy=["*"]) as loop:
        events = [event async for event in loop.run([Message(role="user", content=ASKED)])]
    assert bool(held(events)) == waits
