"""The demo MCP server: a calculator, a text analyzer and a weather report.

    python -m xmlcall.hosts.demo_server                 over standard input and output, as MCP clients start it
    python -m xmlcall.hosts.demo_server --http 8000     Streamable HTTP on http://127.0.0.1:8000/mcp
    python -m xmlcall.hosts.demo_server --sse 8000      the older HTTP+SSE on http://127.0.0.1:8000/sse

Port 0 takes a free one; the address is printed once it can be reached. The descriptions are written for small models: one
plain sentence, one example each.
"""

import argparse
import math
import operator
import re
import socket
from collections.abc import Callable
from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field, WithJsonSchema

Number = int | float


class Weather(BaseModel):
    """A weather report."""

    location: str = Field(description="The place that the report is for")
    temperature: float = Field(description="Degrees Celsius")
    condition: str = Field(description="What the sky looks like")
    humidity: int = Field(description="Percent")


WEATHER = {
    report.location.lower(): report
    for report in (
        Weather(location="Berlin", temperature=11.5, condition="cloudy", humidity=72),
        Weather(location="Cairo", temperature=31, condition="sunny", humidity=24),
        Weather(location="London", temperature=9, condition="light rain", humidity=88),
        Weather(location="New York", temperature=15, condition="sunny", humidity=51),
        Weather(location="Paris", temperature=13.5, condition="partly cloudy", humidity=66),
        Weather(location="Sydney", temperature=22, condition="sunny", humidity=58),
        Weather(location="Tokyo", temperature=18, condition="light rain", humidity=79),
    )
}

_CHINESE = {
    "柏林": "berlin",
    "开罗": "cairo",
    "伦敦": "london",
    "纽约": "new york",
    "巴黎": "paris",
    "悉尼": "sydney",
    "东京": "tokyo",
}

_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}


def calculator(
    operation: Annotated[
        Literal["add", "subtract", "multiply", "divide"], Field(description='What to do with the numbers, such as "multiply"')
    ],
    # Integers stay integers, whatever their size: a plain float would make 7006652.0 of 1234 * 5678.
    a: Annotated[Number, WithJsonSchema({"type": "number"}), Field(description="The first number, such as 12.5")],
    b: Annotated[Number, WithJsonSchema({"type": "number"}), Field(description="The second number, such as 3")],
) -> str:
    """Calculate with two numbers: add, subtract, multiply or divide them. Use it for every calculation."""
    if operation == "divide" and b == 0:
        raise ToolError("division by zero is not possible")
    if operation == "divide" and isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return str(a // b)
    try:
        result = _OPERATIONS[operation](a, b)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ToolError("the result is too large")
    return str(result)


def text_analyzer(text: Annotated[str, Field(description="The text to look at, as it is")]) -> str:
    """Count the characters and the words of a text."""
    return f"{len(text)} characters, {len(text.split())} words"


def get_weather(location: Annotated[str, Field(description='The name of a city, such as "Paris"')]) -> Weather:
    """Get the current weather of a city."""
    name = re.split("[,，]", location)[0].strip().lower().removesuffix("市")
    report = WEATHER.get(_CHINESE.get(name, name))
    if report is None:
        known = ", ".join(f"{WEATHER[name].location} ({chinese})" for chinese, name in _CHINESE.items())
        raise ToolError(f"there is no weather for {location!r}; known places: {known}")
    return report


def build_server() -> MCPServer:
    """Make the server; it sets up logging, so importing this module does not."""
    server = MCPServer(
        "xmlcall-demo",
        instructions="Use calculator for sums, text_analyzer for counting, get_weather for the weather.",
        log_level="WARNING",
    )
    server.tool(structured_output=False)(calculator)
    server.tool(structured_output=False)(text_analyzer)
    server.tool()(get_weather)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m xmlcall.hosts.demo_server", description="The demo MCP server of xmlcall.")
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument("--http", type=int, metavar="PORT", help="serve Streamable HTTP on 127.0.0.1")
    transport.add_argument("--sse", type=int, metavar="PORT", help="serve the older HTTP+SSE on 127.0.0.1")
    options = parser.parse_args()
    server = build_server()
    if options.http is not None:
        _serve(server.streamable_http_app(), options.http, "/mcp")
    elif options.sse is not None:
        _serve(server.sse_app(), options.sse, "/sse")
    else:
        server.run("stdio")


def _serve(app: Callable[..., object], port: int, path: str) -> None:
    """Serve on a socket that listens before its address is printed, so that a reader of it can connect at once."""
    import uvicorn

    with socket.create_server(("127.0.0.1", port)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
