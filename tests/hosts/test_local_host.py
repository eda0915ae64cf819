"""`LocalHost`: Python functions as tools."""

import asyncio
import contextvars
import datetime
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from xmlcall.errors import ToolHostProtocolError, ToolHostUnavailable, UsageError
from xmlcall.hosts.base import Host
from xmlcall.hosts.local import LocalHost
from xmlcall.types.calls import MISSING, ImageContent, TextContent, ToolResult


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Pair:
    left: str
    right: datetime.date


def add(a: int, b: Annotated[int, Field(description="The second")] = 1) -> int:
    """Add two numbers."""
    return a + b


async def greet(name: str) -> str:
    """Greet someone."""
    await asyncio.sleep(0)
    return f"Hello {name}"


def typed(point: Point, unit: Literal["cm", "m"] = "cm", on: datetime.date | None = None) -> str:
    return f"{type(point).__name__} {point.x} {unit} {type(on).__name__}"


def pair() -> Pair:
    return Pair(left="ü", right=datetime.date(2026, 11, 21))


def picture() -> ToolResult:
    return ToolResult(content=(ImageContent(data="AA==", mime_type="image/png"),))


def nothing() -> None: ...


def unspeakable() -> object:
    return object()


def fail() -> str:
    raise ValueError("the moon is wrong")


def fail_silently() -> str:
    raise KeyError


def stop() -> str:
    raise StopIteration("no more")


def leave() -> str:
    sys.exit("goodbye")


async def fail_later() -> str:
    await asyncio.sleep(0)
    raise TimeoutError("the moon is late")


def text(value: str) -> tuple[TextContent, ...]:
    return (TextContent(text=value),)


async def call(function: Callable[..., Any], timeout: float | None = None, **arguments: Any) -> ToolResult:
    host: Host = LocalHost([function])
    async with host:
        return await host.call(function.__name__, arguments, timeout)


async def test_functions_are_listed_with_their_schema() -> None:
    async with LocalHost([add, greet], name="mine") as host:
        tools = await host.tools()
    assert [(tool.name, tool.description) for tool in tools] == [("add", "Add two numbers."), ("greet", "Greet someone.")]
    assert tools[0].input_schema["properties"]["b"]["description"] == "The second"
    assert tools[0].input_schema["required"] == ["a"]
    assert (host.name, host.instructions, host.notices, host.changed.is_set()) == ("mine", "", (), False)


@pytest.mark.parametrize(
    ("function", "arguments", "content", "structured"),
    [
        (add, {"a": 2, "b": 3}, text("5"), 5),
        (add, {"a": 2}, text("3"), 3),
        (add, {"a": "2"}, text("3"), 3),  # a value arrives typed
        (greet, {"name": "Ann"}, text("Hello Ann"), MISSING),
        (typed, {"point": {"x": 4}, "unit": "m", "on": "2026-11-21"}, text("Point 4 m date"), MISSING),
        (pair, {}, text('{"left": "ü", "right": "2026-11-21"}'), {"left": "ü", "right": "2026-11-21"}),
        (nothing, {}, text("null"), None),
        (picture, {}, (ImageContent(data="AA==", mime_type="image/png"),), MISSING),
    ],
)
async def test_what_a_function_returns(function: Any, arguments: dict[str, Any], content: Any, structured: Any) -> None:
    assert await call(function, **arguments) == ToolResult(content=content, structured_content=structured)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (fail, {}, "the moon is wrong"),
        (fail_later, {}, "the moon is late"),
        (fail_silently, {}, "KeyError"),
        (stop, {}, "no more"),
        (leave, {}, "goodbye"),
        (unspeakable, {}, "JSON cannot hold"),
        (add, {"a": "two"}, "valid integer"),
        (add, {}, "required"),
        (add, {"a": 1, "c": 2}, "Unexpected keyword"),
    ],
)
async def test_an_exception_is_an_error_result_for_the_model(function: Any, arguments: dict[str, Any], words: str) -> None:
    result = await call(function, **arguments)
    assert result.is_error
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert words in block.text


async def test_a_function_runs_beside_the_loop_in_the_context_of_its_caller() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def where() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {variable.get()}"

    assert (await call(where)).content == text("False set")


async def test_functions_run_side_by_side_and_within_their_time() -> None:
    def nap() -> str:
        time.sleep(0.3)
        return "rested"

    async def doze() -> str:
        await asyncio.sleep(30)
        return "never"

    async with LocalHost([nap, doze]) as host:
        started = time.monotonic()
        await asyncio.gather(*(host.call("nap", {}) for _ in range(5)))
        assert time.monotonic() - started < 1.2
        for name in ("nap", "doze"):
            with pytest.raises(ToolHostUnavailable, match=rf"local: '{name}' did not return within 0\.05 s"):
                await host.call(name, {}, timeout=0.05)


def test_a_function_that_hangs_does_not_keep_the_program() -> None:
    script = """
import asyncio, time
from xmlcall.errors import ToolHostUnavailable
from xmlcall.hosts.local import LocalHost
def hang() -> None:
    time.sleep(60)
async def main() -> None:
    async with LocalHost([hang]) as host:
        try:
            await host.call("hang", {}, timeout=0.05)
        except ToolHostUnavailable:
            print("in time")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("in time\n", "")


async def test_a_name_that_does_not_exist_or_exists_twice() -> None:
    async with LocalHost([add]) as host:
        with pytest.raises(ToolHostProtocolError, match="no function is named 'nope'"):
            await host.call("nope", {})
    with pytest.raises(UsageError, match="two functions are named 'add'"):
        LocalHost([add, add])
