"""A model is asked for calls in any wire format: they are read, and what came of them goes back in it."""

from typing import Any

import pytest
from profiles import covering
from proxy_harness import ADD, ask, body, texts

from xmlcall import LocalHost, Message, ToolCall, ToolLoop, UsageError, parse
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.prompting.format import PromptFormat
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.events import CallFinished, LoopEvent

TOOLS = Catalog([ADD])


def adding(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def called(dialect: str, **arguments: Any) -> str:
    return write([("add", arguments)], TOOLS, DIALECTS[dialect])


def calls_in(text: str, dialect: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in parse(text, TOOLS, dialect=dialect).calls if isinstance(call, ToolCall)]


async def run(dialect: str, replies: list[str], chunk_size: int | None) -> tuple[list[LoopEvent], list[list[Message]]]:
    backend = ScriptedBackend(replies, chunk_size=chunk_size)
    async with ToolLoop(backend, [LocalHost([adding])], policy=["*"], dialect=dialect) as loop:
        events = [event async for event in loop.run([Message(role="user", content="1 + 2?")])]
    return events, [list(request.messages) for request in backend.requests]


@pytest.mark.sweep
@pytest.mark.parametrize(("dialect", "chunk_size"), covering(DIALECTS, [None, 1]))
async def test_the_loop_speaks_every_format(dialect: str, chunk_size: int | None) -> None:
    tools, row, format = Catalog([{**ADD["function"], "name": "adding"}]), DIALECTS[dialect], PromptFormat(dialect=dialect)
    wrong, right = (f"So.\n{write([('adding', {'a': a, 'b': 2})], tools, row)}" for a in ("many", 1))
    events, asked = await run(dialect, [wrong, f"{right}\nThe result is 99.", "It is 3."], chunk_size)
    assert [event.result.content[0].text for event in events if isinstance(event, CallFinished)] == ["3"]  # type: ignore[union-attr]
    assert f"reply with a {format.block} block" in asked[0][-1].content
    example = parse(asked[0][0].content, tools, dialect=dialect).calls
    assert [call.name for call in example] == ["adding"]
    offered = tools if dialect == "react" else ()  # words of every day: only the name of a tool makes them a call
    feedback = parse(asked[1][-1].content, offered, dialect=dialect).calls if dialect != "tool_name" else ()
    assert [call.name for call in feedback] == ["adding"] * (dialect != "tool_name")
    assert asked[2][-1].content.startswith(row.results.write([("adding", "3", False)]).text)
    assert parse(asked[2][-1].content, tools).calls == ()
    assert asked[2][-2].content == right
    assert [call.arguments for call in parse(right, tools).calls if isinstance(call, ToolCall)] == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_proxy_speaks_every_format(dialect: str) -> None:
    backend = ScriptedBackend([f"Well.\n{called(dialect, a=1, b=2)}"])
    function = {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "3 + 4?"},
        {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "7"},
        {"role": "user", "content": "1 + 2?"},
    ]
    turn = await ask(backend, body(*history, tools=[ADD]), dialect=dialect)
    assert [(call.name, call.arguments) for call in turn.calls] == [("add", {"a": 1, "b": 2})]
    system, _, said, told = (content for _, content in texts(backend))
    assert calls_in(said, dialect) == [("add", {"a": 3, "b": 4})]
    assert len(calls_in(system, dialect)) == 1
    assert told.startswith(DIALECTS[dialect].results.write([("add", "7", False)]).text)


async def test_a_call_that_does_not_run_is_told_in_the_language_of_the_prompt() -> None:
    backend = ScriptedBackend([write([("adding", {"a": 1, "b": 2})], Catalog(), DIALECTS["qwen"]), "好。"])
    async with ToolLoop(backend, [LocalHost([adding])], dialect="qwen", lang="zh") as loop:
        await loop.ask("1 + 2?")
    assert "没有执行：用户没有允许使用这个工具。" in backend.requests[-1].messages[-1].content


async def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown dialect 'nope'; known: auto, tool_name"):
        ToolLoop(ScriptedBackend([]), dialect="nope")
    with pytest.raises(UsageError, match="expected one wire format to ask a model for, got 'auto'"):
        ToolLoop(ScriptedBackend([]), dialect="auto")
    with pytest.raises(UsageError, match="only --ask dialect=FILE and `parse` read a file"):
        PromptFormat(dialect="/etc/own.toml")
