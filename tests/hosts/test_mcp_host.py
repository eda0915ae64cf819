"""`McpHost` with well-behaved servers: three transports, two eras, two SDKs; lists, results, restarts, and no process left."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers.node import node_server
from servers.raw_http import Answer, Request, initialized, raw_http, reply
from servers.run_server import free_port
from servers.started import DEMO, ProcessFiles, demo_server, everything_server, is_alive, printed_url, until

from xmlcall.errors import ToolHostError, ToolHostUnavailable
from xmlcall.hosts.base import Host
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer
from xmlcall.types.calls import EmbeddedResource, ImageContent, ResourceLink, TextContent, ToolResult

pytestmark = pytest.mark.usefixtures("no_tasks_left")

SERVERS = Path(__file__).parents[1] / "servers"


def hostile(mode: str, directory: Path, **fields: Any) -> StdioServer:
    env = ProcessFiles(directory).env
    return StdioServer(name="srv", command=sys.executable, args=("-I", str(SERVERS / "hostile.py"), mode), env=env, **fields)


def text_of(result: ToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.fixture(scope="module")
def over_sse() -> Iterator[HttpServer]:
    """The demo server over the older HTTP+SSE, which some tests share."""
    with demo_server("sse") as server:
        assert isinstance(server, HttpServer)
        yield server


@pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.full), "sse"])
async def test_the_demo_server_over_each_transport(transport: str, over_sse: HttpServer) -> None:
    with contextlib.nullcontext(over_sse) if transport == "sse" else demo_server(transport) as server:
        host: Host = McpHost(server)
        async with host:
            assert [tool.name for tool in await host.tools()] == ["calculator", "text_analyzer", "get_weather"]
            product = await host.call("calculator", {"operation": "multiply", "a": 1234, "b": 5678})
            assert product == ToolResult(content=(TextContent(text="7006652"),))
            failed = await host.call("calculator", {"operation": "divide", "a": 1, "b": 0})
            assert failed.is_error
            assert "division by zero" in text_of(failed)
            weather = await host.call("get_weather", {"location": "Paris"})
            assert weather.structured_content["condition"] == "partly cloudy"
            assert "calculator" in host.instructions
            assert host.notices == ()


@pytest.mark.full
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_server_everything_over_each_transport(transport: str) -> None:
    with everything_server(transport) as server:
        async with McpHost(server) as host:
            tools = {tool.name: tool for tool in await host.tools()}
            assert {"echo", "get-sum", "get-structured-content"} <= tools.keys()
            assert tools["get-structured-content"].output_schema is not None
            assert ("simulate-research-query" in tools) == (host.notices == ())
            assert text_of(await host.call("echo", {"message": "hi"})) == "Echo: hi"
            image = await host.call("get-tiny-image", {})
            assert any(isinstance(block, ImageContent) and block.mime_type == "image/png" for block in image.content)
            links = await host.call("get-resource-links", {"count": 2})
            assert sum(isinstance(block, ResourceLink) for block in links.content) == 2
            resource = await host.call("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
            assert any(isinstance(block, EmbeddedResource) and block.text for block in resource.content)
            structured = await host.call("get-structured-content", {"location": "New York"})
            assert set(structured.structured_content) == {"temperature", "conditions", "humidity"}


@pytest.mark.full
async def test_the_filesystem_server_and_its_filters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    command, *args = node_server("filesystem", str(tmp_path))
    server = StdioServer(
        name="fs", command=command, args=tuple(args), include_tools=("read_*", "list_directory"), exclude_tools=("read_media*",)
    )
    async with McpHost(server) as host:
        names = {tool.name for tool in await host.tools()}
        assert names == {"read_file", "read_text_file", "read_multiple_files", "list_directory"}
        assert text_of(await host.call("read_text_file", {"path": str(tmp_path / "a.txt")})) == "hello"
        assert (await host.call("read_text_file", {"path": "/etc/passwd"})).is_error


@pytest.mark.full
async def test_calls_run_side_by_side() -> None:
    with everything_server("stdio") as server:
        async with McpHost(server) as host:
            wait = {"duration": 0.5, "steps": 1}
            started = asyncio.get_running_loop().time()
            await asyncio.gather(*(host.call("trigger-long-running-operation", wait) for _ in range(5)))
            assert asyncio.get_running_loop().time() - started < 1.5


async def test_the_child_gets_a_bare_environment_and_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_SECRET", "do not leak")
    program = "import os; print(sorted(os.environ.items()), file=open(os.environ['TO'], 'w'))"
    server = StdioServer(name="env", command=sys.executable, args=("-I", "-c", program), env={"TO": str(tmp_path / "env")})
    with pytest.raises(ToolHostUnavailable, match="ended before the MCP handshake"):
        await McpHost(server).__aenter__()
    environment = (tmp_path / "env").read_text()
    assert f"('TO', '{tmp_path / 'env'}')" in environment
    assert "MY_SECRET" not in environment


async def test_a_tool_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[float, float | None, str]] = []
    async with McpHost(hostile("telling", tmp_path)) as host:
        await host.tools()
        await host.call("echo", {}, progress=lambda *progress: told.append(progress))
    assert told == [(3, 10, "page\x1b[31m 3")]


async def test_a_change_is_heard_on_2025_by_push(tmp_path: Path) -> None:
    async with McpHost(hostile("changed", tmp_path)) as host:
        assert len(await host.tools()) == 1
        assert not host.changed.is_set()
        await host.call("echo", {})
        await asyncio.wait_for(host.changed.wait(), 5)
        assert [tool.name for tool in await host.tools()] == ["echo", "grown"]
        assert not host.changed.is_set()


@pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.full)])
async def test_a_change_is_heard_on_2026_by_listening(transport: str) -> None:
    changing = str(SERVERS / "changing.py")
    with contextlib.ExitStack() as stack:
        server: ServerConfig = StdioServer(name="changing", command=sys.executable, args=(changing,))
        if transport == "http":
            server = HttpServer(name="changing", url=stack.enter_context(printed_url(changing, "--http"))[0])
        async with McpHost(server) as host:
            assert len(await host.tools()) == 1
            assert not host.changed.is_set()
            for _ in range(50):  # the subscription may not stand at once
                await host.call("grow", {})
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(host.changed.wait(), 0.2)
                    break
            assert host.changed.is_set()
            assert [tool.name for tool in await host.tools()] == ["grow", "grown"]


async def test_the_process_is_gone_after_the_block_after_an_error_and_after_a_cancellation(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path)
    async with McpHost(hostile("good", tmp_path)):
        assert is_alive(files.pids()[-1])
    with contextlib.suppress(ZeroDivisionError):
        async with McpHost(hostile("good", tmp_path)):
            _ = 1 / 0

    async def use(mode: str) -> None:
        async with McpHost(hostile(mode, tmp_path)) as host:
            await host.call("echo", {})

    async def arrived(message: str, number: int) -> None:
        await until(lambda: files.received().count(message) == number, message)

    for mode, message, number in (("hang_call", "tools/call", 1), ("hang", "initialize", 4)):  # in a call, in the handshake
        task = asyncio.create_task(use(mode))
        await arrived(f'"{message}"', number)
        cancelled = time.monotonic()
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()  # an impatient person
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - cancelled < 8
    assert [pid for pid in files.pids() if is_alive(pid)] == []
    assert len(files.pids()) == 4


def test_the_process_is_gone_when_the_loop_ends_around_an_open_host(tmp_path: Path) -> None:
    async def forget() -> None:
        await McpHost(hostile("good", tmp_path)).__aenter__()

    asyncio.run(forget())
    assert [pid for pid in ProcessFiles(tmp_path).pids() if is_alive(pid)] == []


async def test_a_server_that_has_died_is_started_again_by_the_next_request(tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path)
    async with McpHost(hostile("die_after_call", tmp_path)) as host:
        first = await host.call("echo", {})
        await until(lambda: not is_alive(files.pids()[0]), "the first process to end")
        await asyncio.sleep(0.1)
        second = await host.call("echo", {})
        assert text_of(first).startswith("pid ")
        assert text_of(second).startswith("pid ")
        assert first != second
        assert host.changed.is_set()
    assert len(files.pids()) == 2


@pytest.mark.full
async def test_an_http_server_that_vanishes_and_comes_back() -> None:
    port = str(free_port())
    with printed_url("-m", "xmlcall.hosts.demo_server", "--http", port) as (url, process):
        host = McpHost(HttpServer(name="web", url=url))
        async with host:
            await host.tools()
            process.kill()
            process.wait()
            with pytest.raises(ToolHostUnavailable, match=r"web: .*(while running 'text_analyzer'|cannot reach)"):
                await host.call("text_analyzer", {"text": "a"})
            with pytest.raises(ToolHostUnavailable, match=r"web: cannot reach http://127\.0\.0\.1:\d+: "):
                await host.call("text_analyzer", {"text": "a"})
            with printed_url("-m", "xmlcall.hosts.demo_server", "--http", port):
                assert text_of(await host.call("text_analyzer", {"text": "a b"})) == "3 characters, 2 words"


async def test_a_forgotten_session_is_renewed_and_the_call_repeated_once() -> None:
    sessions = iter(("one", "two", "three"))
    known: set[str] = set()
    calls: list[str] = []

    async def handler(request: Request) -> Answer:
        session = request.headers.get("mcp-session-id", "")
        if request.method != "POST" or "id" not in request.body:
            return Answer(status=405 if request.method == "GET" else 202)
        if request.body["method"] == "initialize":
            known.add(new := next(sessions))
            return initialized(request, **{"mcp-session-id": new})
        if request.body["method"] != "tools/call":
            return Answer(status=400)
        calls.append(session)
        return reply(request, {"content": []}) if session in known else Answer(status=404)

    async with raw_http(handler) as url, McpHost(HttpServer(name="web", url=url)) as host:
        known.clear()
        assert await host.call("any", {}) == ToolResult()
        assert calls == ["one", "two"]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_half_a_surrogate_pair_over_http_costs_one_character(is_stream: bool) -> None:
    events = {"content-type": "text/event-stream"}

    async def handler(request: Request) -> Answer:
        if request.method != "POST" or "id" not in request.body:
            return Answer(status=405 if request.method == "GET" else 202)
        if request.body["method"] != "tools/call":
            return initialized(request) if request.body["method"] == "initialize" else Answer(status=400)
        answer = reply(request, {"content": [{"type": "text", "text": "a\ud800 \U0001f600"}]})
        return replace(answer, headers=events, prefix="data: ", suffix="\n\n") if is_stream else answer

    async with raw_http(handler) as url, McpHost(HttpServer(name="web", url=url, timeout=5)) as host:
        assert text_of(await host.call("any", {})) == "a\ufffd \U0001f600"


@pytest.mark.parametrize("result", [None, "plain", 7])
async def test_a_result_that_is_no_object_over_http_is_an_error_at_once(result: Any) -> None:
    async def handler(request: Request) -> Answer:
        if request.method != "POST" or "id" not in request.body:
            return Answer(status=405 if request.method == "GET" else 202)
        if request.body["method"] != "tools/call":
            return initialized(request) if request.body["method"] == "initialize" else Answer(status=400)
        return reply(request, result)

    async with raw_http(handler) as url, McpHost(HttpServer(name="web", url=url, timeout=5)) as host:
        with pytest.raises(ToolHostError, match="outside the protocol while running 'any': it is no JSON-RPC message, or its"):
            await host.call("any", {})


@pytest.mark.parametrize(
    ("status", "transport", "advice"),
    [
        (401, "http", '"headers"'),
        (403, "sse", '"headers"'),
        (404, "http", '"type": "sse"'),
        (405, "http", '"url"'),
        (503, "sse", "up?"),
    ],
)
async def test_a_refusal_names_the_http_status_and_hides_the_path(status: int, transport: Any, advice: str) -> None:
    async def refuse(request: Request) -> Answer:
        return Answer(status=status)

    async with raw_http(refuse) as url:
        server = HttpServer(name="web", url=f"{url}/s3cret?key=s3cret", headers={"K": "s3cret"}, transport=transport)
        with pytest.raises(ToolHostUnavailable) as caught:
            await McpHost(server).__aenter__()
    message = str(caught.value)
    assert f"answered HTTP {status}" in message
    assert advice in message
    assert "s3cret" not in message


@pytest.mark.parametrize("status", [400, 404, 405, 403, 503])
async def test_the_older_http_sse_is_tried_where_the_first_post_is_refused(status: int) -> None:
    asked = []

    async def refuse(request: Request) -> Answer:
        asked.append(request.method)
        return Answer(status=status)

    async with raw_http(refuse) as url:
        with pytest.raises(ToolHostUnavailable, match=f"HTTP {status}"):
            await McpHost(HttpServer(name="web", url=url)).__aenter__()
    assert ("GET" in asked) is (status in (400, 404, 405))


async def test_a_server_of_the_older_http_sse_needs_no_type(over_sse: HttpServer) -> None:
    async with McpHost(replace(over_sse, transport="either")) as host:
        assert "calculator" in {tool.name for tool in await host.tools()}
    with pytest.raises(ToolHostUnavailable, match='needs "type": "sse"'):
        await McpHost(replace(over_sse, transport="http")).__aenter__()


async def test_a_header_that_cannot_be_sent_does_not_show() -> None:
    async with raw_http(lambda request: initialized(request)) as url:  # type: ignore[arg-type,return-value]
        with pytest.raises(ToolHostUnavailable, match="LocalProtocolError") as caught:
            await McpHost(HttpServer(name="web", url=url, headers={"K": "s3cret\nx"})).__aenter__()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_http_server_that_cannot_be_reached_or_hangs(transport: Any) -> None:
    server = HttpServer(name="web", url=f"http://127.0.0.1:{free_port()}/s3cret", transport=transport)
    with pytest.raises(ToolHostUnavailable, match=r"^web: cannot reach http://127\.0\.0\.1:\d+: ((?!s3cret).)*$"):
        await McpHost(server).__aenter__()

    async def hang(request: Request) -> Answer:
        return Answer(after=30)

    async with raw_http(hang) as url:
        with pytest.raises(ToolHostUnavailable, match=r"web: no MCP handshake with http://127.* within 0\.3 s"):
            await McpHost(HttpServer(name="web", url=url, transport=transport), connect_timeout=0.3).__aenter__()


async def test_an_http_call_has_a_limit_and_an_error_names_the_status() -> None:
    async def handler(request: Request) -> Answer:
        if request.method != "POST" or "id" not in request.body:
            return Answer(status=405 if request.method == "GET" else 202)
        if request.body["method"] == "initialize":
            return initialized(request)
        slow = request.body["method"] == "tools/call" and request.body["params"]["name"] == "slow"
        return Answer(status=429) if not slow else Answer(after=30)

    async with raw_http(handler) as url, McpHost(HttpServer(name="web", url=url)) as host:
        with pytest.raises(ToolHostUnavailable, match=r"HTTP 429 while running 'busy'.*busy; try again later") as caught:
            await host.call("busy", {})
        assert caught.value.reason == "not_run"
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.2 s"):
            await host.call("slow", {}, timeout=0.2)


async def test_leaving_an_http_session_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.connection._CLOSE_SECONDS", 0.2)
    deleted = asyncio.Event()

    async def handler(request: Request) -> Answer:
        if request.method == "DELETE":
            deleted.set()
            return Answer(after=30)
        if request.method == "POST" and request.body.get("method") == "initialize":
            return initialized(request, **{"mcp-session-id": "one"})
        return Answer(status=405 if request.method == "GET" else 202 if "id" not in request.body else 400)

    async with raw_http(handler) as url:
        async with McpHost(HttpServer(name="web", url=url)):
            left = time.monotonic()
        assert deleted.is_set()
        assert time.monotonic() - left < 3


async def test_a_large_result_arrives_over_http_and_ends_the_older_sse(over_sse: HttpServer) -> None:
    text = "x " * 700_000  # past the SDK's 1 MiB for one event
    event = "event: message\r\ndata: "

    async def handler(request: Request) -> Answer:
        if request.method != "POST" or "id" not in request.body:
            return Answer(status=405 if request.method == "GET" else 202)
        if request.body["method"] == "initialize":
            return initialized(request)
        answer = reply(request, {"content": [{"type": "text", "text": text}]})
        return Answer(headers={"content-type": "text/event-stream"}, body=answer.body, prefix=event, suffix="\r\n\r\n")

    async with raw_http(handler) as url, McpHost(HttpServer(name="web", url=url)) as host:
        assert text_of(await host.call("any", {})) == text
    async with McpHost(over_sse) as host:
        with pytest.raises(ToolHostUnavailable, match="exceeded the 1048576 byte limit"):
            await host.call("get_weather", {"location": text})
        assert not (await host.call("text_analyzer", {"text": "a"})).is_error  # connected again


async def test_a_host_that_is_not_open_says_so() -> None:
    with pytest.raises(ToolHostUnavailable, match="demo: not connected"):
        await McpHost(DEMO).tools()


async def test_all_errors_name_their_host() -> None:
    with pytest.raises(ToolHostError) as caught:
        await McpHost(StdioServer(name="gone", command="no-such-command-anywhere")).__aenter__()
    assert caught.value.host == "gone"
    assert "'no-such-command-anywhere' was not found" in str(caught.value)
