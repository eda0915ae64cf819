"""Servers that fail, as real processes: what is told of each, in bounded time and memory, and what is tried again."""

import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.started import ProcessFiles, printed_url, until
from turn_harness import add

from xmlcall.errors import FailureReason, ToolHostError, ToolHostUnavailable
from xmlcall.hosts.local import LocalHost
from xmlcall.hosts.mcp import host as mcp_host
from xmlcall.hosts.mcp import messages
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.messages import Flood, TooLarge, lines
from xmlcall.hosts.router import Router
from xmlcall.hosts.server import HttpServer, StdioServer
from xmlcall.prompting.format import PromptFormat
from xmlcall.prompting.results import failure
from xmlcall.types.calls import TextContent

SERVERS = Path(__file__).parents[1] / "servers"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits a test can reach at once."""
    monkeypatch.setattr("xmlcall.hosts.mcp.transport.LEAVE_SECONDS", 0.2)
    monkeypatch.setattr("xmlcall.hosts.mcp.transport.KILL_SECONDS", 0.2)
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", MIB)
    monkeypatch.setattr("xmlcall.hosts.mcp.transport.MAX_MESSAGE_BYTES", MIB)
    monkeypatch.setattr(messages, "_MAX_UNASKED", 500)
    monkeypatch.setattr(mcp_host, "PAUSES", (0.0, 0.05, 0.05, 15.0))


def stdio(mode: str, directory: Path, *size: str, **fields: Any) -> StdioServer:
    env = ProcessFiles(directory).env
    return StdioServer(
        name="srv", command=sys.executable, args=("-I", str(SERVERS / "hostile.py"), mode, *size), env=env, **fields
    )


@contextlib.contextmanager
def http(mode: str, size: int = 3 * MIB, **fields: Any) -> Iterator[HttpServer]:
    with printed_url(str(SERVERS / "failing_http.py"), mode, str(size)) as (url, _):
        yield HttpServer(name="srv", url=url, **fields)


async def failed(host: McpHost, timeout: float = 20.0) -> ToolHostError:
    with pytest.raises(ToolHostError) as caught:
        await host.call("echo", {"text": "hi"}, timeout=timeout)
    return caught.value


@pytest.mark.parametrize(
    ("mode", "timeout", "reason", "words"),
    [
        ("die_in_call", 20, "unknown", "segmentation fault"),
        ("endless_line", 20, "too_large", "a message of more than 1 MiB"),
        ("huge", 20, "too_large", "a message of more than 1 MiB"),
        ("flood", 20, "unknown", "500 unrequested messages within a minute"),
        ("flood_garbage", 20, "unknown", "500 unrequested messages within a minute"),
        ("flood_stderr", 0.5, "timeout", "standard error: EEE"),
    ],
)
async def test_a_process_that_fails_in_a_call(
    mode: str, timeout: float, reason: FailureReason, words: str, tmp_path: Path
) -> None:
    async with McpHost(stdio(mode, tmp_path)) as host:
        error = await failed(host, timeout)
        assert error.reason == reason
        assert words in str(error)
        if mode != "flood_stderr":  # which never reads again
            assert [tool.name for tool in await host.tools()] == ["echo"]


@pytest.mark.parametrize(("mode", "size"), [("not_utf8", ""), ("many_lines", "100")])
async def test_what_is_not_mcp_does_not_cost_the_answer(mode: str, size: str, tmp_path: Path) -> None:
    async with McpHost(stdio(mode, tmp_path, *([size] if size else []))) as host:
        assert (await host.call("echo", {})).content == (TextContent(text="still here"),)


@pytest.mark.parametrize(
    ("mode", "timeout", "reason", "words"),
    [
        ("401", 20, "not_run", 'HTTP 401; sign in by "xmlcall login srv --mcp FILE", or give it a token'),
        ("403", 20, "not_run", "HTTP 403"),
        ("404", 20, "not_run", "no longer knows the session"),
        ("429,1", 20, "not_run", "it asks to wait 1 s; it was not done"),
        ("429,Mon, 01 Jan 99999999999 00:00:00 GMT", 20, "not_run", "it is busy; try again later; it was not done"),
        ("429,nan", 20, "not_run", "HTTP 429 while running 'echo'; it is busy; try again later; it was not done"),
        ("500", 20, "unknown", "HTTP 500 while running 'echo'; see its log; it is not known whether it was done"),
        ("503,3600", 20, "unknown", "it asks to wait 3600 s"),
        ("hang", 0.3, "timeout", "no answer within 0.3 s"),
        ("slow", 0.3, "timeout", "no answer within 0.3 s"),
        ("cut_body", 20, "unknown", "the answer was cut while running 'echo'"),
        ("cut_sse", 20, "unknown", "SSE stream ended without a response"),
        ("reconnects", 0.5, "timeout", "no answer within 0.5 s"),
        ("big_body", 20, "too_large", "more than 1 MiB"),
        ("big_event", 20, "too_large", "1048576 byte limit"),
        ("bomb", 20, "too_large", "more than 1 MiB"),
        ("endless_body", 20, "too_large", "more than 1 MiB"),
        ("endless_error", 20, "unknown", "HTTP 500 while running 'echo'; see its log"),
        ("flood", 20, "unknown", "500 unrequested messages within a minute"),
    ],
)
async def test_an_http_server_that_fails_in_a_call(mode: str, timeout: float, reason: FailureReason, words: str) -> None:
    with http(mode) as server:
        async with McpHost(server) as host:
            error = await failed(host, timeout)
            assert error.reason == reason
            assert words in str(error)
            assert [tool.name for tool in await host.tools()] == ["echo"]


# The HTTP client does not close a socket on which TLS failed; it is collected here, and not in another test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
async def test_tls_that_fails_is_told() -> None:
    with http("200") as server:
        tls = HttpServer(name="srv", url=server.url.replace("http:", "https:"))
        with pytest.raises(ToolHostUnavailable, match=r"srv: .*https://127\.0\.0\.1") as caught:
            await McpHost(tls, connect_timeout=0.5).__aenter__()
    assert caught.value.reason == "not_run"
    del caught
    gc.collect()


@pytest.mark.parametrize(("trust", "calls"), [(False, 1), (True, 2)])
async def test_a_call_is_repeated_only_where_a_trusted_server_says_that_it_may_be(
    trust: bool, calls: int, tmp_path: Path
) -> None:
    files = ProcessFiles(tmp_path)
    async with McpHost(stdio("harmless_die", tmp_path, trust=trust)) as host:
        assert [tool.name for tool in await host.tools()] == ["echo", "plain"]
        await failed(host)
        assert files.received().count('"tools/call"') == calls
        with pytest.raises(ToolHostUnavailable):
            await host.call("plain", {})
        assert files.received().count('"tools/call"') == calls + 1  # without a hint never


async def test_a_server_that_dies_of_each_call_is_left_alone_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ProcessFiles(tmp_path)
    async with McpHost(stdio("die_in_call", tmp_path)) as host:
        for _ in range(4):
            assert (await failed(host)).reason == "unknown"
        assert host.changed.is_set()
        error = await failed(host)
        assert error.reason == "not_run"
        assert "it failed 4 times in a row, and is not restarted for 15 s" in str(error)
        with pytest.raises(ToolHostUnavailable, match="is not restarted"):
            await host.tools()
        assert len(files.pids()) == 4
        monkeypatch.setattr(mcp_host, "PAUSES", (0.0,))
        assert len(await host.tools()) == 1


async def test_a_router_drops_the_tools_of_a_server_that_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.hosts.router.PAUSES", (0.1,))
    bad, good = McpHost(stdio("die_in_call", tmp_path)), LocalHost([add], name="good")
    async with Router([bad, good]) as router:
        assert [tool.name for tool in await router.tools()] == ["echo", "add"]
        for _ in range(4):
            with pytest.raises(ToolHostError):
                await router.call("echo", {})
        await until(router.changed.is_set, "the news")
        assert [tool.name for tool in await router.tools()] == ["add"]
        assert any("is not restarted" in notice for notice in router.notices)
        router.changed.clear()
        monkeypatch.setattr(mcp_host, "PAUSES", (0.0,))
        await until(router.changed.is_set, "its return")
        assert [tool.name for tool in await router.tools()] == ["echo", "add"]


async def test_a_server_that_answers_nothing_three_times_is_started_again(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path)
    async with McpHost(stdio("hang_call", tmp_path)) as host:
        for starts in (1, 1, 1, 2):
            assert (await failed(host, 0.1)).reason == "timeout"
            assert len(files.pids()) == starts


async def test_a_storm_of_notices_asks_for_the_list_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_MAX_UNASKED", 50_000)
    async with Router([McpHost(stdio("storm", tmp_path, "2000"))]) as router:
        await router.tools()
        await router.call("echo", {})
        for _ in range(3):
            await router.tools()
    assert ProcessFiles(tmp_path).received().count('"tools/list"') <= 4


async def test_many_servers_start_side_by_side_and_bad_ones_stop_none(tmp_path: Path) -> None:
    """Those that start slowly keep their time: only the one that hangs has a short one."""
    bad = [stdio(mode, tmp_path) for mode in ("exit", "hang")]
    good = [stdio("many_tools", tmp_path, "25") for _ in range(4)]
    named = [StdioServer(name=f"s{n}", command=one.command, args=one.args, env=one.env) for n, one in enumerate([*bad, *good])]
    hosts = [McpHost(one, connect_timeout=0.5 if one.name == "s1" else 20) for one in named]
    async with Router(hosts, patience=5) as router:
        assert len(await router.tools()) == 100
        assert {notice.partition(":")[0] for notice in router.notices} == {"s0", "s1"}


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_cut_wherever_the_pieces_end() -> None:
    assert [line async for line in lines(pieces(b"a", b"b\nc\n\nd", b"", b"e\nunfinished"))] == [b"ab", b"c", b"", b"de"]


async def test_a_line_without_end_is_not_held() -> None:
    with pytest.raises(TooLarge):
        assert [line async for line in lines(pieces(*[b"x" * 65536] * 17))] == []


def test_messages_spread_over_time_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_FLOOD_SECONDS", 0.0)
    flood = Flood()
    for _ in range(2000):
        flood.add()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["not_run", "timeout", "unknown", "unreadable", "too_large", "error"])
def test_the_model_is_told_each_kind_of_failure(kind: FailureReason, lang: str) -> None:
    told = failure(kind, PromptFormat(lang=lang), said="the moon")
    assert told
    assert "\n" not in told
    assert ("the moon" in told) == (kind == "error")
