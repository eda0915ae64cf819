"""`McpHost` with servers that misbehave: each gives one clear error or notice, loses nothing else, and leaves no process."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from servers.started import ProcessFiles, is_alive, until

from xmlcall.errors import ToolHostError, ToolHostProtocolError, ToolHostUnavailable
from xmlcall.hosts.mcp.filter import ORIGINAL, Filter
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.messages import Halves
from xmlcall.hosts.server import StdioServer
from xmlcall.types.calls import OtherContent, TextContent

HOSTILE = Path(__file__).parents[1] / "servers" / "hostile.py"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK gives a process 2 s to leave by itself and 2 s more after SIGTERM."""
    monkeypatch.setattr("xmlcall.hosts.mcp.transport.LEAVE_SECONDS", 0.2)
    monkeypatch.setattr("xmlcall.hosts.mcp.transport.KILL_SECONDS", 0.2)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ProcessFiles]:
    """What the server leaves behind: after every test, no process."""
    files = ProcessFiles(tmp_path)
    yield files
    assert files.pids()
    assert [pid for pid in files.pids() if is_alive(pid)] == []


def server(mode: str, files: ProcessFiles, **fields: Any) -> StdioServer:
    return StdioServer(name="srv", command=sys.executable, args=("-I", str(HOSTILE), mode), env=files.env, **fields)


async def listed(mode: str, files: ProcessFiles, **fields: Any) -> tuple[list[str], tuple[str, ...]]:
    async with McpHost(server(mode, files, **fields)) as host:
        return [tool.name for tool in await host.tools()], host.notices


@pytest.mark.parametrize(
    ("mode", "timeout", "kind", "parts"),
    [
        ("garbage", 1.5, ToolHostUnavailable, ["no MCP handshake", "within 1.5 s", "not MCP", "'Starting up'"]),
        ("exit", 30, ToolHostUnavailable, ["ended before the MCP handshake", "Traceback: no API key | set API_KEY"]),
        pytest.param("hang", 0.9, ToolHostUnavailable, ["no MCP handshake", "within 0.9 s"], marks=pytest.mark.full),
        ("stubborn", 0.9, ToolHostUnavailable, ["no MCP handshake", "within 0.9 s"]),
        pytest.param("family", 0.9, ToolHostUnavailable, ["no MCP handshake", "within 0.9 s"], marks=pytest.mark.full),
        ("refuses", 30, ToolHostProtocolError, ["the handshake was refused", "not today"]),
        ("strange_version", 30, ToolHostProtocolError, ["outside the protocol", "1999-01-01"]),
        ("start_null", 30, ToolHostProtocolError, ["its result is null, not an object"]),
    ],
)
async def test_a_server_that_does_not_connect(
    mode: str, timeout: float, kind: type[ToolHostError], parts: list[str], files: ProcessFiles, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        await McpHost(server(mode, files), connect_timeout=timeout).__aenter__()
    message = str(caught.value)
    assert message.startswith("srv: ")
    assert [part for part in parts if part not in message] == []
    assert "\x1b" not in message
    assert message.count("\n") <= 1
    assert caught.value.host == "srv"
    assert capfd.readouterr() == ("", "")  # nothing of it on our terminal


async def test_a_server_that_dies_of_an_unknown_message_is_met_with_initialize(files: ProcessFiles) -> None:
    assert await listed("old", files) == (["echo"], ())
    assert len(files.pids()) == 2


async def test_a_server_that_ignores_unknown_messages(files: ProcessFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)  # 10 s
    assert await listed("deaf", files) == (["echo"], ())
    assert len(files.pids()) == 1


@pytest.mark.parametrize(
    ("mode", "names", "notices"),
    [
        ("malformed", ["echo", "typeless"], ["'no_schema'", "no name", "not even", "'numbered'", "second tool named 'echo'"]),
        (
            "broken_schema",
            ["echo", "bad_type", "bad_pattern", "network", "draft7"],
            [
                "'bad_type' is offered with a changed schema: $.properties.a.type \"strin\" left out.",
                '$.properties.a.minLength "1" read as 1.',
                '$.properties.a.$ref "https://example.com/schema.json" left out.',
            ],
        ),
        ("tasks", ["echo"], ["'slow' was left out: it can only run as a background task"]),
        ("cosmetics", ["echo"], []),
        ("number_cursor", ["echo"], ["nextCursor is not a string"]),
        ("repeated_cursor", ["echo", "other"], ["repeats a page"]),
        ("empty_cursor", ["page_None", "page_"], []),
        ("never_ending", ["echo"], ["A second tool named 'echo'", "stopped after 100 pages"]),
    ],
)
async def test_a_bad_list_costs_only_what_is_bad(mode: str, names: list[str], notices: list[str], files: ProcessFiles) -> None:
    found, told = await listed(mode, files)
    assert found == names
    assert len(told) == len(notices)
    assert [part for part in notices if not any(part in notice for notice in told)] == []


async def test_notices_are_bounded(files: ProcessFiles) -> None:
    names, notices = await listed("many_malformed", files)
    assert names == ["echo"]
    assert len(notices) == 21
    assert notices[-1].startswith("80 more tools")


@pytest.mark.parametrize("mode", ["many", "ever_new"])
async def test_too_many_tools_are_refused_with_the_way_out(
    mode: str, files: ProcessFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.host.MOST_TOOLS", 50)
    async with McpHost(server(mode, files)) as host:
        with pytest.raises(ToolHostProtocolError, match=r'more than the 50 tools.*"includeTools"'):
            await host.tools()
        assert not (await host.call("tool_7", {})).is_error


def test_a_page_is_cut_before_its_tools_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.filter.MOST_TOOLS", 5)
    page = {"tools": [{"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(1000)]}
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result=page)
    noise: list[Exception] = []
    filter_ = Filter(lambda name: name != "tool_0", noise.append, lambda: None, lambda method: None)
    filter_.sent(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))
    filter_.received(SessionMessage(answer))
    assert [tool["name"] for tool in answer.result["tools"]] == [f"tool_{number}" for number in range(1, 7)]
    assert answer.result["_meta"][ORIGINAL]["tools"] == page["tools"][1:7]


@pytest.mark.parametrize("result", [{"tools": [{"name": "x"}]}, {"content": []}, {"tools": "x"}])
def test_answers_to_other_requests_are_not_touched(result: dict[str, Any]) -> None:
    filter_ = Filter(lambda name: True, lambda error: None, lambda: None, lambda method: None)
    filter_.sent(JSONRPCRequest(jsonrpc="2.0", id=1, method="server/discover"))
    filter_.sent(JSONRPCRequest(jsonrpc="2.0", id=2, method="tools/call"))
    filter_.sent(JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 2}))
    for number in (1, 2, 3):
        answer = JSONRPCResponse(jsonrpc="2.0", id=number, result=dict(result))
        filter_.received(SessionMessage(answer))
        assert answer.result == result


async def test_filters_come_first_so_that_few_of_many_can_be_chosen(files: ProcessFiles) -> None:
    names, _ = await listed("many", files, include_tools=("tool_99?", "tool_5"), exclude_tools=("tool_990",))
    assert names == ["tool_5", *(f"tool_{number}" for number in range(991, 1000))]


async def test_a_list_that_is_none_and_a_list_that_never_comes(files: ProcessFiles) -> None:
    async with McpHost(server("no_list", files)) as host:
        with pytest.raises(ToolHostProtocolError, match=r"outside the protocol while listing its tools: tools"):
            await host.tools()
    async with McpHost(server("hang_list", files, timeout=0.2)) as host:
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.2 s while listing its tools"):
            await host.tools()


async def test_a_call_that_hangs_ends_at_its_limit_and_the_server_is_told(files: ProcessFiles) -> None:
    async with McpHost(server("hang_call", files, timeout=0.2)) as host:
        for limit in (None, 0.1):
            with pytest.raises(
                ToolHostUnavailable, match=r"srv: no answer within 0\.[12] s while running 'echo'.*milliseconds.*not known"
            ):
                await host.call("echo", {}, timeout=limit)
        await until(lambda: files.received().count("notifications/cancelled") == 2, "both cancellations")
        assert len(await host.tools()) == 1  # the server goes on
    assert len(files.pids()) == 1


@pytest.mark.parametrize(
    ("mode", "code", "words"), [("rpc_error", -32042, "the moon is wrong"), ("own_32000", -32000, "quota exceeded")]
)
async def test_a_json_rpc_error_keeps_its_code(mode: str, code: int, words: str, files: ProcessFiles) -> None:
    async with McpHost(server(mode, files)) as host:
        with pytest.raises(ToolHostProtocolError, match=f"error {code} while running 'echo': {words}") as caught:
            await host.call("echo", {})
        assert (caught.value.code, caught.value.reason) == (code, "error")
        with pytest.raises(ToolHostProtocolError, match=words):  # the connection stands
            await host.call("echo", {})
    assert len(files.pids()) == 1


async def test_unknown_blocks_are_kept(files: ProcessFiles) -> None:
    async with McpHost(server("odd_blocks", files)) as host:
        result = await host.call("echo", {})
    assert result.content == (
        OtherContent(raw={"type": "hologram", "voxels": 3}),
        OtherContent(raw={"type": "text"}),
        TextContent(text="kept"),
        OtherContent(raw={"value": 7}),
    )
    assert not result.is_error


async def test_a_result_without_content_is_kept(files: ProcessFiles) -> None:
    async with McpHost(server("no_content", files)) as host:
        result = await host.call("echo", {})
    assert (result.content, result.structured_content) == ((), {"a": 1})


async def test_a_result_that_breaks_its_output_schema_is_kept(files: ProcessFiles) -> None:
    async with McpHost(server("ill_typed", files)) as host:
        (tool,) = await host.tools()
        result = await host.call("typed", {})
    assert tool.output_schema is not None
    assert tool.output_schema["required"] == ["n"]
    assert (result.content, result.structured_content) == ((TextContent(text="n is many"),), {"n": "many"})
    assert files.received().count("tools/list") == 1


@pytest.mark.parametrize(
    ("mode", "text"), [("half_pair", "a \ufffd b \U0001f600 \\ud800"), ("raw_control", "a\tb"), ("result_text", "plain")]
)
async def test_a_result_that_the_sdk_cannot_read_is_kept(mode: str, text: str, files: ProcessFiles) -> None:
    async with McpHost(server(mode, files, timeout=5)) as host:
        assert (await host.call("echo", {})).content == (TextContent(text=text),)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("result_null", "outside the protocol while running 'echo': its result is null, not an object"),
        ("result_number", "its result is 7, not an object"),
        ("result_missing", "it has no result"),
        ("error_text", "error -32603 while running 'echo': out of ink"),
        ("error_code_text", "out of ink"),
        ("error_empty", "its error is not an object with a message"),
    ],
)
async def test_an_answer_that_holds_no_result_is_an_error_at_once(mode: str, words: str, files: ProcessFiles) -> None:
    async with McpHost(server(mode, files, timeout=5)) as host:
        with pytest.raises(ToolHostProtocolError, match=words):
            await host.call("echo", {})
    assert len(files.pids()) == 1


async def test_half_a_surrogate_pair_in_arguments_costs_one_character(files: ProcessFiles) -> None:
    async with McpHost(server("good", files)) as host:
        (block,) = (await host.call("echo", {"text": "a\ud800\ud83d\ude00", "\udc00": ["\udc00"]})).content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == {"text": "a\ufffd\U0001f600", "\ufffd": ["\ufffd"]}


async def test_a_list_of_null_is_an_error_at_once(files: ProcessFiles) -> None:
    async with McpHost(server("list_null", files, timeout=5)) as host:
        with pytest.raises(ToolHostProtocolError, match="while listing its tools: its result is null"):
            await host.tools()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize(
    ("json_text", "mended"),
    [
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\uDE00\ud83d"', r'"\ufffd\ufffd"'),
        (r'"\\ud800 \\\ud800 \n\u0041"', r'"\\ud800 \\\ufffd \n\u0041"'),
        (r'"\ud83d\u0041\ud83dx"', r'"\ufffd\u0041\ufffdx"'),
        ("\\ud83d", r"\ufffd"),
        ("\\ud83", "\\ud83"),
    ],
)
def test_halves_of_pairs_are_replaced_wherever_a_stream_is_cut(json_text: str, mended: str, size: int) -> None:
    halves, data = Halves(), json_text.encode()
    pieces = [halves.mend(data[start : start + size]) for start in range(0, len(data), size)]
    assert b"".join([*pieces, halves.rest()]) == mended.encode()


async def test_a_kind_of_result_that_does_not_exist_is_a_protocol_error(files: ProcessFiles) -> None:
    async with McpHost(server("unknown_result", files)) as host:
        with pytest.raises(ToolHostProtocolError, match=r"outside the protocol.*resultType"):
            await host.call("echo", {})


async def test_a_huge_result_is_cut_with_a_note(files: ProcessFiles) -> None:
    async with McpHost(server("huge", files)) as host:
        first, note = (await host.call("echo", {})).content
    assert isinstance(first, TextContent)
    assert isinstance(note, TextContent)
    assert len(first.text) == 2_000_000
    assert note.text == "[text cut: 3000000 characters came, 2000000 is the limit]"


async def test_text_that_is_not_mcp_between_two_messages_does_no_harm(
    files: ProcessFiles, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    async with McpHost(server("chatty", files)) as host:
        for _ in range(2):
            assert (await host.call("echo", {})).content == (TextContent(text="still here"),)
    assert capfd.readouterr() == ("", "")


@pytest.mark.full
def test_nothing_is_printed_where_no_logging_is_set_up(files: ProcessFiles) -> None:
    script = f"""
import asyncio
from xmlcall.hosts.config import StdioServer
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.messages import Halves
server = StdioServer(name="srv", command={sys.executable!r}, args=("-I", {str(HOSTILE)!r}, "chatty"), env={files.env!r})
async def main():
    async with McpHost(server) as host:
        print((await host.call("echo", {{}})).content[0].text)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("still here\n", "")


async def test_arguments_arrive_as_they_are(files: ProcessFiles) -> None:
    arguments = {"text": "ü\u2028</parameter>\x00", "deep": {"list": [1, 2.5, None, True, {"a": []}]}, "big": 2**70}
    async with McpHost(server("good", files)) as host:
        (block,) = (await host.call("echo", arguments)).content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == arguments
