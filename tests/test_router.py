"""`Router`: many hosts, one namespace."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from servers.started import ProcessFiles, is_alive

from xmlcall.config import StdioServer
from xmlcall.errors import ToolHostUnavailable, UsageError
from xmlcall.hosts.base import Host
from xmlcall.hosts.mcp import McpHost
from xmlcall.hosts.router import Router
from xmlcall.types import TextContent, Tool, ToolResult


class FakeHost:
    """A host of named tools; each answers with its host's name and its own."""

    def __init__(self, name: str, *tools: str, fails: bool = False, opens_in: float = 0.0, instructions: str = "") -> None:
        self.name, self.names, self.fails, self.opens_in = name, tools, fails, opens_in
        self.instructions = instructions
        self.notices: tuple[str, ...] = (f"{len(tools)} tools",) if tools else ()
        self.changed = asyncio.Event()
        self.open = False

    async def __aenter__(self) -> Self:
        await asyncio.sleep(self.opens_in)
        if self.fails:
            raise ToolHostUnavailable(f"{self.name}: not today", host=self.name)
        self.open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open = False

    async def tools(self) -> tuple[Tool, ...]:
        if self.fails:
            raise ToolHostUnavailable(f"{self.name}: gone", host=self.name)
        self.changed.clear()
        return tuple(Tool(name=name, description=f"{self.name}/{name}") for name in self.names)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        return ToolResult(content=(TextContent(text=f"{self.name}/{name} {dict(arguments)} {timeout}"),))


@pytest.mark.parametrize(
    ("hosts", "offered"),
    [
        ({"a": ["x", "y"], "b": ["z"]}, ["x", "y", "z"]),
        ({"a": ["x", "y"], "b": ["x"]}, ["a__x", "y", "b__x"]),
        ({"a": ["x"], "b": ["x"], "c": ["a__x"]}, ["a__x", "b__x", "c__a__x"]),  # nobody takes the place of server a
        ({"a": ["get weather", "größe", "dot.ted-name_1"]}, ["get_weather", "gr__e", "dot.ted-name_1"]),
        ({"a": ["get weather", "get_weather"]}, ["a__get_weather", "get_weather"]),
        ({"a": ["x y"], "b": ["x_y"]}, ["a__x_y", "b__x_y"]),
        ({"my server": ["x"], "my_server": ["x"]}, ["my_server__x", "my_server__x_2"]),
        ({"a": ["日本", "中国", "<invoke>"]}, ["__", "a____", "_invoke_"]),
        ({"a": ["x y", "x.y", "x/y", "x:y"]}, ["x_y", "x.y", "a__x_y", "a__x_y_2"]),
        ({"a": []}, []),
        ({}, []),
    ],
)
async def test_names_are_unique_and_spellable_and_lead_back(hosts: dict[str, list[str]], offered: list[str]) -> None:
    fakes = [FakeHost(name, *tools) for name, tools in hosts.items()]
    async with Router(fakes) as router:
        tools = await router.tools()
        assert [tool.name for tool in tools] == offered
        for tool in tools:
            result = await router.call(tool.name, {"k": 1}, 2.5)
            assert result.content == (TextContent(text=f"{tool.description} {{'k': 1}} 2.5"),)
            host, name = router.origin(tool.name)
            assert f"{host.name}/{name}" == tool.description


async def test_a_tool_that_was_not_listed() -> None:
    async with Router([FakeHost("a", "x"), FakeHost("b", "x")]) as router:
        await router.tools()
        with pytest.raises(UsageError, match="no tool named 'x'"):
            await router.call("x", {})


async def test_instructions_and_notices_name_their_host() -> None:
    async with Router([FakeHost("a", "x", instructions="Be kind."), FakeHost("b")]) as router:
        assert router.instructions() == [("a", "Be kind.")]
        assert router.notices == ("a: 1 tools",)


async def test_hosts_open_at_once() -> None:
    started = asyncio.get_running_loop().time()
    async with Router([FakeHost(str(number), opens_in=0.2) for number in range(5)]):
        assert asyncio.get_running_loop().time() - started < 0.9


async def test_when_one_fails_to_open_the_others_are_closed() -> None:
    ready, slow, failing = FakeHost("ready"), FakeHost("slow", opens_in=30), FakeHost("failing", fails=True, opens_in=0.05)
    with pytest.raises(ToolHostUnavailable, match="failing: not today") as caught:
        await Router([ready, slow, failing]).__aenter__()
    assert caught.value.host == "failing"
    assert not ready.open


async def test_a_change_of_any_host_is_a_change() -> None:
    hosts = [FakeHost("a", "x"), FakeHost("b", "y")]
    async with Router(hosts) as router:
        await router.tools()
        assert not router.changed.is_set()
        for host in hosts:
            host.changed.set()
            await asyncio.wait_for(router.changed.wait(), 1)
            await router.tools()
            await asyncio.sleep(0)
            assert not router.changed.is_set()


async def test_a_list_that_fails_is_to_be_asked_again() -> None:
    hosts = [FakeHost("a", "x"), FakeHost("b", "y")]
    async with Router(hosts) as router:
        await router.tools()
        hosts[1].fails = True
        with pytest.raises(ToolHostUnavailable, match="b: gone"):
            await router.tools()
        assert router.changed.is_set()
        hosts[1].fails = False
        assert len(await router.tools()) == 2


def test_two_hosts_of_one_name() -> None:
    with pytest.raises(UsageError, match="two tool hosts are named 'a'"):
        Router([FakeHost("a"), FakeHost("b"), FakeHost("a")])


async def test_all_processes_are_gone_when_one_server_does_not_start_and_when_the_block_ends(tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "servers" / "hostile.py")
    files = ProcessFiles(tmp_path)

    def server(name: str, mode: str) -> Host:
        return McpHost(StdioServer(name=name, command=sys.executable, args=("-I", script, mode), env=files.env))

    async with Router([server("a", "good"), server("b", "good")]) as router:
        assert [tool.name for tool in await router.tools()] == ["a__echo", "b__echo"]
        assert all(map(is_alive, files.pids()))
    with pytest.raises(ToolHostUnavailable, match="bad: "):
        await Router([server("good", "good"), server("slow", "hang"), server("bad", "exit")]).__aenter__()
    assert [pid for pid in files.pids() if is_alive(pid)] == []
