"""A calculator and a text analyser on FastMCP: xmlcall chat --mcp examples/mcp/calculator.py

The same file runs under version 1 of the MCP SDK, where the class is FastMCP, and under version 2, where it is MCPServer.
"""

from typing import Literal

try:
    from mcp.server import MCPServer  # version 2
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[attr-defined, no-redef]  # version 1

server = MCPServer("calculator")


@server.tool()
def calculate(operation: Literal["add", "subtract", "multiply", "divide"], a: float, b: float) -> float | str:
    """Do arithmetic with two numbers."""
    if operation == "divide" and b == 0:
        return "cannot divide by zero"
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else 0.0}[operation]


@server.tool()
def analyze_text(text: str) -> dict[str, int]:
    """Count the characters, words and lines of a text."""
    return {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}


if __name__ == "__main__":
    server.run()
