"""An MCP server over HTTP that fails in one way, as a process: python failing_http.py MODE [SIZE]; its URL is printed.

`MODE` is an HTTP status, with seconds of `Retry-After` after a comma (`429,1`), or a key of `CALLS`. A call of a tool is met
with it; with `start:` before it, each request is. Written on bare sockets, so that it can break HTTP, too.
"""

import asyncio
import gzip
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000
Writer = asyncio.StreamWriter
PIECE = b"x" * 65536


def head(status: int = 200, type_: str = "application/json", **headers: object) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\ncontent-type: {type_}\r\nconnection: close\r\n{lines}\r\n".encode()


def result(request: dict[str, Any], value: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}).encode()


def text(request: dict[str, Any], value: str) -> bytes:
    return result(request, {"content": [{"type": "text", "text": value}]})


async def send(writer: Writer, *pieces: bytes) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()


async def hang(request: dict[str, Any], writer: Writer) -> None:
    await asyncio.sleep(3600)


async def cut_body(request: dict[str, Any], writer: Writer) -> None:
    body = text(request, "whole")
    await send(writer, head(content_length=len(body)), body[:-20])


async def cut_sse(request: dict[str, Any], writer: Writer) -> None:
    await send(writer, head(type_="text/event-stream"), b"event: message\r\ndata: " + text(request, "whole")[:-20])


async def slow(request: dict[str, Any], writer: Writer) -> None:
    body = text(request, "slowly")
    await send(writer, head(content_length=len(body)))
    for byte in body:
        await send(writer, bytes([byte]))
        await asyncio.sleep(1)


async def big_body(request: dict[str, Any], writer: Writer) -> None:
    body = text(request, "x" * SIZE)
    await send(writer, head(content_length=len(body)), body)


async def big_event(request: dict[str, Any], writer: Writer) -> None:
    await send(writer, head(type_="text/event-stream"), b"event: message\r\ndata: ", text(request, "x" * SIZE), b"\r\n\r\n")


async def endless_body(request: dict[str, Any], writer: Writer) -> None:
    await send(writer, head())
    while True:
        await send(writer, PIECE)


async def endless_error(request: dict[str, Any], writer: Writer) -> None:
    await send(writer, head(500))
    while True:
        await send(writer, PIECE)


async def flood(request: dict[str, Any], writer: Writer) -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "busy, busy"}}
    event = f"event: message\r\ndata: {json.dumps(notice)}\r\n\r\n".encode()
    await send(writer, head(type_="text/event-stream"))
    while True:
        await send(writer, event * 100)


async def bomb(request: dict[str, Any], writer: Writer) -> None:
    body = gzip.compress(text(request, "x" * SIZE), 9)
    await send(writer, head(content_length=len(body), content_encoding="gzip"), body)


async def reconnects(request: dict[str, Any], writer: Writer) -> None:
    """End the stream before the answer, with the invitation to ask at once for the rest of it."""
    await send(writer, head(type_="text/event-stream"), b"id: 1\r\nretry: 0\r\ndata:\r\n\r\n")


CALLS: dict[str, Callable[[dict[str, Any], Writer], Awaitable[None]]] = {
    "hang": hang,
    "cut_body": cut_body,
    "cut_sse": cut_sse,
    "slow": slow,
    "big_body": big_body,
    "big_event": big_event,
    "endless_body": endless_body,
    "endless_error": endless_error,
    "flood": flood,
    "bomb": bomb,
    "reconnects": reconnects,
}
INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "failing", "version": "1"}}
TOOLS = [
    {
        "name": "echo",
        "description": "Echo.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
]
RESULTS: dict[str, dict[str, Any]] = {"initialize": INFO, "tools/list": {"tools": TOOLS}}


async def answer(method: str, request: dict[str, Any], writer: Writer, mode: str) -> None:
    always, mode = mode.startswith("start:"), mode.removeprefix("start:")
    name = request.get("method", "")
    if method == "POST" and (always or name == "tools/call"):
        status, _, retry_after = mode.partition(",")
        if status.isdecimal():
            await send(writer, head(int(status), **({"retry_after": retry_after} if retry_after else {})))
        else:
            await CALLS[mode](request, writer)
    elif method != "POST" and mode == "reconnects":
        await reconnects(request, writer)
    elif name not in RESULTS:
        await send(writer, head(405 if method != "POST" else 202 if "id" not in request else 400))
    else:
        body = result(request, RESULTS[name])
        await send(writer, head(content_length=len(body), mcp_session_id="one"), body)


async def main(mode: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await answer(lines[0].split()[0], json.loads(body or b"{}"), writer, mode)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
