"""The servers and the client of examples/mcp/ work as they are, over their real transports."""

import contextlib
import json
import re
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proxy_harness import block
from servers.node import node_server
from servers.run_server import free_port

import xmlcall
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.config import parse_servers
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer
from xmlcall.types.calls import TextContent, ToolResult

EXAMPLES = Path(__file__).parents[1] / "examples" / "mcp"
PAGES = EXAMPLES / "pages"
MCP_1 = Path(sys.prefix) / "mcp1"
"""Where `make test-full` puts version 1 of the MCP SDK."""


class Case(NamedTuple):
    """A call of an example, and what its result has to hold."""

    server: str
    tool: str
    arguments: dict[str, Any]
    told: str
    sdk: int = 2


MULTIPLY = {"operation": "multiply", "a": 17, "b": 23}
CASES = [
    *(Case("calculator.py", "calculate", MULTIPLY, "391", sdk) for sdk in (1, 2)),
    *(Case("calculator.py", "analyze_text", {"text": "one two\nthree"}, '"words": 3', sdk) for sdk in (1, 2)),
    Case("calculator.py", "calculate", {"operation": "divide", "a": 1, "b": 0}, "cannot divide by zero"),
    Case("calculator_lowlevel.py", "calculate", MULTIPLY, "391"),
    Case("calculator_lowlevel.py", "calculate", {"operation": "divide", "a": 1, "b": 0}, "cannot divide by zero"),
    Case("calculator_lowlevel_1x.py", "calculate", MULTIPLY, "391", 1),
    Case("weather_sse.py", "get_alerts", {"state": "tx"}, "Flood watch for Houston"),
    Case("weather_sse.py", "get_alerts", {"state": "NY"}, "no alerts for NY"),
    Case("weather_sse.py", "get_forecast", {"latitude": 40.0, "longitude": -75.5}, "New York: rain"),
    Case("web_search_http.py", "web_search", {"query": "price of a ticket", "max_results": 1}, "https://example.org/visitors"),
    Case("web_search_http.py", "web_search", {"query": "桂花拿铁多少钱", "max_results": 1}, "https://example.org/咖啡馆"),
    Case("docs_server.py", "retrieve_docs", {"query": "Who knows about backups?", "count": 1}, "4417"),
    Case("docs_server.py", "retrieve_docs", {"query": "星期几休息", "count": 1}, "星期一休息"),
    Case("docs_server.py", "index_docs", {}, "4 documents: backups, greenhouse, visitors, 咖啡馆"),
]
HTTP = {"weather_sse.py": "sse", "web_search_http.py": "mcp"}
"""Examples that listen on a port -> the path of their endpoint."""


@contextlib.contextmanager
def started(name: str, sdk: int = 2) -> Iterator[ServerConfig]:
    if name not in HTTP:
        env = {"PYTHONPATH": str(MCP_1)} if sdk == 1 else {}
        yield StdioServer(name="example", command=sys.executable, args=(str(EXAMPLES / name), str(PAGES)), env=env)
        return
    port = free_port()
    with subprocess.Popen([sys.executable, str(EXAMPLES / name), str(port)], stderr=subprocess.DEVNULL) as child:
        try:
            wait_for(port)
            path = HTTP[name]
            transport: Any = "sse" if path == "sse" else "http"
            yield HttpServer(name="example", url=f"http://127.0.0.1:{port}/{path}", transport=transport)
        finally:
            child.kill()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError("the example did not listen")


def text_of(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def test_every_example_is_called() -> None:
    servers = {case.server for case in CASES}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*servers, "client.py", "text_index.py"}


IN_BRIEF = ("calculator.py", 2)


@pytest.mark.parametrize(
    ("name", "sdk"),
    [
        pytest.param(*each, marks=[] if each == IN_BRIEF else pytest.mark.full)
        for each in sorted({(case.server, case.sdk) for case in CASES})
    ],
)
async def test_an_example_answers(name: str, sdk: int) -> None:
    if sdk == 1 and not MCP_1.is_dir():
        pytest.skip("version 1 of the MCP SDK is not there; `make test-full` installs it")
    with started(name, sdk) as server:
        async with xmlcall.McpHost(server) as host:
            listed = {tool.name for tool in await host.tools()}
            for case in CASES:
                if (case.server, case.sdk) == (name, sdk):
                    assert case.tool in listed
                    assert case.told in text_of(await host.call(case.tool, case.arguments)), case


async def test_the_search_gives_structured_results() -> None:
    with started("web_search_http.py") as server:
        async with xmlcall.McpHost(server) as host:
            await host.tools()
            found = (await host.call("web_search", {"query": "tomatoes"})).structured_content
    assert found["result"][0]["title"] == "greenhouse"


def test_the_client_answers_with_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = ScriptedBackend([block(("calculate", MULTIPLY)), "It is 391."])
    servers = tmp_path / "servers.json"
    server = {"command": sys.executable, "args": [str(EXAMPLES / "calculator.py")]}
    servers.write_text(json.dumps({"mcpServers": {"calculator": server}}), encoding="utf-8")
    monkeypatch.setattr(xmlcall, "connect", lambda model: backend)
    monkeypatch.setattr(sys, "argv", ["client.py", str(servers), "What is 17 times 23?"])
    runpy.run_path(str(EXAMPLES / "client.py"), run_name="__main__")
    assert capsys.readouterr().out == "It is 391.\n"
    assert "391" in str(backend.requests[1].messages[-1].content)


def installed(server: ServerConfig, folder: Path) -> ServerConfig:
    """Start what is installed here where the configuration would fetch it."""
    assert isinstance(server, StdioServer)
    if server.command == "uvx":
        name, *args = server.args
        program = [str(Path(sys.executable).with_name(name)), *args]
    else:
        short = re.sub(".*/server-", "", server.args[1])
        program = node_server(short, *(str(folder) if argument == "." else argument for argument in server.args[2:]))
    return StdioServer(name=server.name, command=program[0], args=tuple(program[1:]), env={"MEMORY_FILE_PATH": str(folder / "m")})


@pytest.mark.full
@pytest.mark.parametrize(("file", "count"), [("fifty_tools.json", 50), ("hundred_tools.json", 95)])
async def test_six_real_servers_in_one_configuration(file: str, count: int, tmp_path: Path) -> None:
    configured = parse_servers((EXAMPLES / file).read_text(encoding="utf-8"), {}, source=file)
    assert len(configured) == 6
    hosts = [xmlcall.McpHost(installed(server, tmp_path)) for server in configured.values()]
    backend = ScriptedBackend([block(("echo", {"message": "found"})), "It says found."])
    async with xmlcall.ToolLoop(backend, hosts, policy=["everything.echo"]) as loop:
        while len(answered := {loop.router.origin(tool.name)[0].name for tool in await loop.catalog()}) < 6:
            await loop.router.changed.wait()
        assert answered == set(configured)
        assert len(await loop.catalog()) >= count
        answer = await loop.ask("Echo the word found.")
    assert answer.text == "It says found."
    assert "Echo: found" in str(answer.messages)
