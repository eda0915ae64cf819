"""An MCP server of 2026-07-28 with resources, prompts and all kinds of content: `python library.py [--http] [--mute]`.

What is asked to be completed is written to the file COMPLETED, if that is set; `slow` is completed after a minute. With
`--mute` nothing is completed.
"""

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("library", log_level="WARNING")
notes = {"text": "first"}

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@server.resource("note://today", title="Today", description="What was noted.", mime_type="text/plain")
def today() -> str:
    return notes["text"]


@server.resource("data://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\x01\x02"


@server.resource("book://{title}/{chapter}", description="A chapter.")
def chapter(title: str, chapter: str) -> str:
    return f"{title}, chapter {chapter}"


@server.prompt(title="Summarize a book")
def summarize(title: str, style: str = "short") -> str:
    """Ask for a summary."""
    return f"Summarize {title}, {style}."


TITLES = ["Emma", "Ulysses", "War and Peace", "It's \x1b[2J"]


def note_asked(path: str, line: str) -> None:
    with open(path, "a") as file:
        file.write(line)


async def complete(reference: Any, argument: types.CompletionArgument, context: Any) -> types.Completion:
    if path := os.environ.get("COMPLETED"):
        note_asked(path, f"{argument.name}={argument.value}\n")
    if argument.value == "slow":
        await asyncio.sleep(60)
    given = (context.arguments if context and context.arguments else {}).get("title", "")
    known = (
        [f"{given}short", "long", "lively"] if argument.name == "style" else ["Emma", "Ulysses", "War and Peace", "It's \x1b[2J"]
    )
    return types.Completion(values=[value for value in known if value.startswith(argument.value)])


if "--mute" not in sys.argv:
    server.completion()(complete)  # type: ignore[no-untyped-call]  # the SDK's


@server.tool()
async def note(text: str, context: Context) -> str:
    """Change the note."""
    notes["text"] = text
    await context.notify_resource_updated("note://today")
    return "noted"


@server.tool()
def list_books() -> list[str]:
    """List the books."""
    return ["Emma", "Ulysses"]


@server.tool()
def describe() -> types.CallToolResult:
    """Say something in words, and something else as data."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text="Two books.")], structured_content={"count": 2, "shelf": "A"}
    )


@server.tool()
def cover() -> types.CallToolResult:
    """Show a cover: a picture for all, a remark for each."""
    return types.CallToolResult(
        content=[
            types.ImageContent(type="image", data=PICTURE, mime_type="image/png"),
            types.TextContent(type="text", text="for the person", annotations=types.Annotations(audience=["user"])),
            types.TextContent(type="text", text="for the model", annotations=types.Annotations(audience=["assistant"])),
        ]
    )


@server.tool()
def long_text(lines: int) -> str:
    """Return many lines."""
    return "\n".join(f"line {number} of the long text" for number in range(1, lines + 1))


if __name__ == "__main__":
    if "--http" in sys.argv:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
            uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
    else:
        server.run("stdio")
