"""`Router`: many hosts, one namespace."""

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from servers.started import ProcessFiles, is_alive, until

from xmlcall.errors import ToolHostUnavailable, UsageError
from xmlcall.hosts import router as hosts_router
from xmlcall.hosts.base import Host, OnProgress
from xmlcall.hosts.local import LocalHost
from xmlcall.hosts.mcp import host as mcp_host
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.router import Router
from xmlcall.hosts.server import StdioServer
from xmlcall.types.calls import TextContent, Tool, ToolResult


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

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        return ToolResult(content=(TextContent(text=f"{self.name}/{name} {dict(arguments)} {timeout}"),))


@pytest.mark.parametrize(
    ("hosts", "offered"),
    [
        ({"a": ["x", "y"], "b": ["z"]}, ["x", "y", "z"]),
        ({"a": ["x", "y"], "b": ["x"]}, ["a__x", "y", "b__x"]),
        ({"a": ["x"], "b": ["x"], "c": ["a__x"]}, ["a__x", "b__x", "c__a__x"]),  # nobody takes the place of server a
        ({"a": ["get weather", "größe", "dot.ted-name_1"]}, ["get_weather", "größe", "dot.ted-name_1"]),
        ({"a": ["get weather", "get_weather"]}, ["a__get_weather", "get_weather"]),
        ({"a": ["x y"], "b": ["x_y"]}, ["a__x_y", "b__x_y"]),
        ({"my server": ["x"], "my_server": ["x"]}, ["my_server__x", "my_server__x_2"]),
        ({"a": ["日本", "中国", "<invoke>"]}, ["日本", "中国", "_invoke_"]),
        ({"one": ["查询天气", "查询地图", "re\u0301cupe\u0301rer"]}, ["查询天气", "查询地图", "récupérer"]),
        ({"天气": ["seen"], "地图": ["seen"]}, ["天气__seen", "地图__seen"]),
        ({"a": ["हिन्दी", "أخبار", "ｗｉｄｅ", "zero\u200bwidth"]}, ["हिन्दी", "أخبار", "wide", "zerowidth"]),
        ({"a": ["wide"], "b": ["ｗｉｄｅ"]}, ["a__wide", "b__wide"]),  # what looks the same is told apart
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


async def test_one_that_fails_costs_a_notice_and_the_others_are_used() -> None:
    failing = FakeHost("failing", "y", fails=True, instructions="Obey.")
    async with Router([FakeHost("ready", "x"), failing]) as router:
        assert [tool.name for tool in await router.tools()] == ["x"]
        assert [error.host for error in router.failures] == ["failing"]
        assert router.instructions() == []
        assert router.news() == ["ready: 1 tools", "failing: not today (its tools are left out until it answers)"]
        assert router.news() == []


async def test_one_that_fails_is_tried_again_and_its_tools_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_router, "PAUSES", (0.01, 0.01))
    failing = FakeHost("failing", "y", fails=True)
    async with Router([FakeHost("ready", "x"), failing]) as router:
        await router.tools()
        router.news()
        await asyncio.sleep(0.05)
        assert not router.changed.is_set()
        failing.fails = False
        await asyncio.wait_for(router.changed.wait(), 5)
        assert [tool.name for tool in await router.tools()] == ["x", "y"]
        assert router.failures == ()
        assert router.news() == ["failing: it answers now; its tools are on offer", "failing: 1 tools"]
    assert not failing.open


async def test_one_that_is_slow_does_not_hold_up_the_others() -> None:
    slow = FakeHost("slow", "y", opens_in=0.5)
    async with Router([FakeHost("ready", "x"), slow], patience=0.01) as router:
        assert [tool.name for tool in await router.tools()] == ["x"]
        assert router.news()[1:] == ["slow: still starting; its tools are left out until it answers"]
        await asyncio.wait_for(router.changed.wait(), 5)
        assert [tool.name for tool in await router.tools()] == ["x", "y"]
        assert router.news() == ["slow: it answers now; its tools are on offer", "slow: 1 tools"]


async def test_a_slow_one_is_waited_for_where_no_other_answers_or_patience_has_no_end() -> None:
    slow, failing = FakeHost("slow", "y", opens_in=0.2), FakeHost("failing", fails=True)
    async with Router([slow, failing], patience=0.01) as router:
        assert [tool.name for tool in await router.tools()] == ["y"]
    async with Router([slow, FakeHost("ready", "x")], patience=None) as router:
        assert [tool.name for tool in await router.tools()] == ["y", "x"]


async def test_where_none_answers_it_is_an_error() -> None:
    hosts = [FakeHost("a", fails=True), FakeHost("b", fails=True, opens_in=0.01)]
    with pytest.raises(ToolHostUnavailable, match="a: not today") as caught:
        await Router(hosts).__aenter__()
    assert caught.value.host == "a"


async def test_what_is_no_failure_of_a_server_is_not_hidden() -> None:
    class Wrong(FakeHost):
        async def tools(self) -> tuple[Tool, ...]:
            raise ZeroDivisionError

    ready = FakeHost("ready")
    with pytest.raises(ZeroDivisionError):
        await Router([ready, Wrong("wrong")]).__aenter__()
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


async def test_a_list_that_fails_later_leaves_out_that_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_router, "PAUSES", (0.01,))
    hosts = [FakeHost("a", "x"), FakeHost("b", "y")]
    async with Router(hosts) as router:
        await router.tools()
        hosts[1].fails = True
        hosts[1].changed.set()
        assert [tool.name for tool in await router.tools()] == ["x"]
        assert router.notices[1:] == ("b: gone (its tools are left out until it answers)",)
        hosts[1].fails = False
        await asyncio.wait_for(router.changed.wait(), 5)
        assert [tool.name for tool in await router.tools()] == ["x", "y"]


async def test_a_list_that_takes_long_later_is_not_waited_for() -> None:
    class Slow(FakeHost):
        slow = False

        async def tools(self) -> tuple[Tool, ...]:
            if self.slow:
                await release.wait()
            return await super().tools()

    host, release = Slow("a", "x"), asyncio.Event()
    async with Router([host, FakeHost("b", "y")], patience=0.01) as router:
        await router.tools()
        host.slow, host.names = True, ("x", "z")
        host.changed.set()
        assert [tool.name for tool in await router.tools()] == ["x", "y"]
        release.set()
        await asyncio.wait_for(router.changed.wait(), 5)
        assert [tool.name for tool in await router.tools()] == ["x", "z", "y"]


def test_two_hosts_of_one_name() -> None:
    with pytest.raises(UsageError, match="two tool hosts are named 'a'"):
        Router([FakeHost("a"), FakeHost("b"), FakeHost("a")])


SCRIPT = str(Path(__file__).parents[1] / "servers" / "hostile.py")


def hostile(name: str, mode: str, files: ProcessFiles, **env: str) -> Host:
    return McpHost(StdioServer(name=name, command=sys.executable, args=("-I", SCRIPT, mode), env={**files.env, **env}))


def calculator(a: float, b: float) -> float:
    """Add."""
    return a + b


async def test_all_processes_are_gone_when_the_block_ends(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path)
    async with Router([hostile("a", "good", files), hostile("b", "good", files)]) as router:
        assert [tool.name for tool in await router.tools()] == ["a__echo", "b__echo"]
        assert all(map(is_alive, files.pids()))
    assert [pid for pid in files.pids() if is_alive(pid)] == []


async def test_one_good_server_among_one_that_ends_one_that_hangs_and_one_that_comes_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_router, "PAUSES", (0.2,))
    files, allowed = ProcessFiles(tmp_path), tmp_path / "allowed"
    late = hostile("late", "when_allowed", files, ALLOWED=str(allowed))
    hosts = [LocalHost([calculator]), hostile("exit", "exit", files), hostile("hang", "hang", files), late]
    async with Router(hosts, patience=0.05) as router:
        assert "calculator" in [tool.name for tool in await router.tools()]
        notices = dict(notice.split(": ", 1) for notice in router.news())
        assert notices["hang"].startswith("still starting")
        ended = re.compile(r"exit: .* ended before the MCP handshake .*API_KEY.* \(its tools .*\)")
        await until(lambda: any(map(ended.fullmatch, router.notices)), "word of its end")  # on a busy machine it is late, too
        assert any(notice.startswith("late: ") and "left out until it answers" in notice for notice in router.notices)
        allowed.touch()
        await until(lambda: "late: it answers now; its tools are on offer" in router.notices, "a later start")
        assert "echo" in [tool.name for tool in await router.tools()]
        assert (await router.call("echo", {"text": "hi"})).content == (TextContent(text='{"text": "hi"}'),)
    assert [pid for pid in files.pids() if is_alive(pid)] == []


async def test_a_server_that_dies_is_left_out_with_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_host, "PAUSES", (0.0, 0.05, 15.0))
    files = ProcessFiles(tmp_path)
    async with Router([LocalHost([calculator]), hostile("once", "once", files)]) as router:
        assert "echo" in [tool.name for tool in await router.tools()]
        with pytest.raises(ToolHostUnavailable, match="once: the connection ended while running 'echo'"):
            await router.call("echo", {})
        with pytest.raises(ToolHostUnavailable, match="once: "):  # it does not start again
            await router.call("echo", {})
        router.hosts[1].changed.set()
        assert "echo" not in [tool.name for tool in await router.tools()]
        assert any(notice.startswith("once: ") for notice in router.notices)


async def test_one_that_is_switched_off_offers_nothing_and_stays_open() -> None:
    good, bad = FakeHost("good", "x", instructions="Be kind."), FakeHost("bad", "x", fails=True)
    async with Router([good, bad]) as router:
        await router.tools()
        assert [(state.name, state.kind, state.tools) for state in router.states()] == [
            ("good", "answers", 1),
            ("bad", "failed", 0),
        ]
        router.switch("good", on=False)
        assert router.changed.is_set()
        assert (await router.tools(), router.instructions(), good.open) == ((), [], True)
        assert router.states()[0].kind == "off"
        router.switch("good", on=True)
        assert [tool.name for tool in await router.tools()] == ["x"]
        with pytest.raises(UsageError, match=r"expected the name of a server \(good, bad\), got 'nobody'"):
            router.switch("nobody", on=False)
