"""A bare HTTP server on loopback whose answers the test writes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Request", "initialized", "raw_answer", "raw_http", "reply"]


@dataclass
class Request:
    """One HTTP request; `body` is {} if there was none."""

    method: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Answer:
    """One HTTP answer, its body as JSON between `prefix` and `suffix`; `after` seconds late."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    prefix: str = ""
    suffix: str = ""
    after: float = 0.0


def reply(request: Request, result: dict[str, Any], **headers: str) -> Answer:
    """Answer a JSON-RPC request."""
    return Answer(headers=headers, body={"jsonrpc": "2.0", "id": request.body["id"], "result": result})


def initialized(request: Request, **headers: str) -> Answer:
    """Answer `initialize` as a server of 2025-06-18."""
    info = {"name": "raw", "version": "1"}
    return reply(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}, **headers)


@asynccontextmanager
async def raw_http(handler: Callable[[Request], Awaitable[Answer]]) -> AsyncIterator[str]:
    """Serve with `handler`; gives the URL. Answers that are still to come at the end are not given."""
    ended = asyncio.Event()
    running: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            running.add(task)
            task.add_done_callback(running.discard)
        try:
            answer = await handler(await _read(reader))
            if answer.after:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), answer.after)
            text = "" if answer.body is None else json.dumps(answer.body)
            content = f"{answer.prefix}{text}{answer.suffix}".encode()
            headers = {"content-type": "application/json", "connection": "close"} | answer.headers
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {answer.status} X\r\n{head}content-length: {len(content)}\r\n\r\n".encode() + content)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        ended.set()
        await asyncio.gather(*running)


@asynccontextmanager
async def raw_answer(answer: bytes) -> AsyncIterator[str]:
    """Answer every connection with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method=head[0].split()[0], headers=headers, body=json.loads(body or b"{}"))
