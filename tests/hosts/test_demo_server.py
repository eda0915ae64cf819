"""The demo server: exact answers, and the same tools on the SDK's low-level server."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from mcp.server.mcpserver.exceptions import ToolError

from xmlcall.hosts import demo_server as demo
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.router import Router
from xmlcall.hosts.server import StdioServer
from xmlcall.types.calls import MISSING, TextContent, Tool

LOWLEVEL = str(Path(__file__).parents[1] / "servers" / "lowlevel.py")
HOSTS = {"demo": ("-m", "xmlcall.hosts.demo_server"), "lowlevel": (LOWLEVEL,)}


@pytest.mark.parametrize(
    ("operation", "a", "b", "result"),
    [
        ("multiply", 1234, 5678, "7006652"),
        ("add", 1, 2, "3"),
        ("add", 0.1, 0.2, "0.30000000000000004"),
        ("subtract", 2**70, 1, "1180591620717411303423"),  # no float on the way
        ("divide", 6, 3, "2"),
        ("divide", 1, 4, "0.25"),
        ("divide", 2**70, 2, "590295810358705651712"),
        ("divide", -7, 2, "-3.5"),
        ("multiply", 2.0, 3, "6.0"),
        ("multiply", True, 3, "3"),
    ],
)
def test_the_calculator_is_exact(operation: Any, a: Any, b: Any, result: str) -> None:
    assert demo.calculator(operation, a, b) == result


@pytest.mark.parametrize(
    ("operation", "a", "b", "words"),
    [
        ("divide", 1, 0, "division by zero"),
        ("divide", 0.0, 0.0, "division by zero"),
        ("multiply", 1e308, 10, "too large"),
        ("add", 10**400, 0.5, "too large"),
        ("divide", 10**400 + 1, 2, "too large"),
        ("add", float("nan"), 1, "too large"),
    ],
)
def test_the_calculator_says_what_it_cannot_do(operation: Any, a: Any, b: Any, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        demo.calculator(operation, a, b)


@pytest.mark.parametrize("location", ["Paris", "paris", " PARIS ", "Paris, France", "巴黎", " 巴黎市", "巴黎，法国"])
def test_the_weather_knows_a_place_however_it_is_written(location: str) -> None:
    assert demo.get_weather(location).location == "Paris"


def test_the_weather_of_an_unknown_place_lists_the_known_ones_in_both_languages() -> None:
    with pytest.raises(ToolError, match=r"'Atlantis'; known places: Berlin \(柏林\), .*Tokyo \(东京\)"):
        demo.get_weather("Atlantis")


def test_each_place_of_the_weather_has_a_chinese_name() -> None:
    chinese = ("柏林", "开罗", "伦敦", "纽约", "巴黎", "悉尼", "东京")
    assert {demo.get_weather(name).location for name in chinese} == {report.location for report in demo.WEATHER.values()}


def test_the_text_analyzer_counts() -> None:
    assert demo.text_analyzer("Grüß dich,\n Welt ") == "17 characters, 3 words"


def test_wrong_use_of_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xmlcall.hosts.demo_server", "--http", "x"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "PORT" in done.stderr


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router() -> AsyncIterator[Router]:
    servers = [StdioServer(name=name, command=sys.executable, args=args) for name, args in HOSTS.items()]
    async with Router([McpHost(server) for server in servers]) as router:
        await router.tools()
        yield router


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("calculator", {"operation": "multiply", "a": 1234, "b": 5678}),
        ("calculator", {"operation": "divide", "a": 1, "b": 3}),
        ("calculator", {"operation": "divide", "a": 1, "b": 0}),
        ("text_analyzer", {"text": "a b c"}),
        ("get_weather", {"location": "Tokyo"}),
        ("get_weather", {"location": "Atlantis"}),
    ],
)
async def test_both_servers_give_the_same_answers(router: Router, tool: str, arguments: dict[str, Any]) -> None:
    high = await router.call(f"demo__{tool}", arguments)
    low = await router.call(f"lowlevel__{tool}", arguments)
    assert high.is_error == low.is_error
    assert high.structured_content == low.structured_content
    assert (high.structured_content is MISSING) == (tool != "get_weather" or high.is_error)
    (high_block,), (low_block,) = high.content, low.content
    assert isinstance(high_block, TextContent)
    assert isinstance(low_block, TextContent)
    if high.structured_content is MISSING:
        assert high_block.text.removeprefix(f"Error executing tool {tool}: ") == low_block.text


SAMPLES: dict[str, list[dict[str, Any]]] = {
    "calculator": [
        {"operation": "add", "a": 1, "b": 2},
        {"operation": "add", "a": 1.5, "b": 2},
        {"operation": "power", "a": 1, "b": 2},
        {"operation": "add", "a": "1", "b": 2},
        {"operation": "add", "a": 1},
        {},
    ],
    "text_analyzer": [{"text": ""}, {"text": 1}, {}],
    "get_weather": [{"location": "Paris"}, {"location": None}, {}],
}


@pytest.mark.asyncio(loop_scope="module")
async def test_both_servers_accept_the_same_arguments(router: Router) -> None:
    tools: dict[str, Tool] = {tool.name: tool for tool in await router.tools()}
    verdicts = {
        host: [
            Draft202012Validator(tools[f"{host}__{name}"].input_schema).is_valid(sample)
            for name, samples in SAMPLES.items()
            for sample in samples
        ]
        for host in HOSTS
    }
    assert verdicts["demo"] == verdicts["lowlevel"]
    assert verdicts["demo"] == [True, True, False, False, False, False, True, False, False, True, False, False]
    weather = tools["demo__get_weather"].output_schema
    assert weather is not None
    assert set(weather["required"]) == {"location", "temperature", "condition", "humidity"}


@pytest.mark.asyncio(loop_scope="module")
async def test_every_parameter_is_described_for_a_small_model(router: Router) -> None:
    for tool in await router.tools():
        if tool.name.startswith("demo__"):
            assert tool.description.endswith(".")
            assert all(schema["description"] for schema in tool.input_schema["properties"].values())
