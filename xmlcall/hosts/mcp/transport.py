"""The three MCP transports, opened from a server's configuration, and what is heard of a server besides MCP.

Time limits: a connection has none of its own. A server may stay silent between two calls for hours, and with the SDK's read
limit of 300 seconds an idle event stream would end the session; each request is bounded by its caller instead.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TextIO

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from ..config import HttpServer, ServerConfig, StdioServer
from .limits import MAX_MESSAGE_BYTES, HttpTroubles
from .oauth import SignIn, authorization
from .stdio import open_process

__all__ = ["PeerLog", "open_transport"]

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)
_KEPT_BYTES = 8192
_PIPE_BYTES = 1 << 16
_STDERR_PAUSE = 0.01
_QUOTED_LINES = 5
_LINE = 500  # characters of each: what is to be done stands at the end of an error
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Streams = tuple[Any, Any]


class PeerLog:
    """What a server did besides speaking MCP, kept short, to be quoted in errors."""

    def __init__(self) -> None:
        self._stderr = b""
        self._noise = ""
        self.http_status: int | None = None
        self.sign_in = ""  # why signing in failed
        self.troubles = HttpTroubles()

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what a process wrote to standard error."""
        self._stderr = (self._stderr + data)[-_KEPT_BYTES:]

    def add_noise(self, error: Exception) -> None:
        """Keep the first item that the SDK could not read as a message."""
        if self._noise or not isinstance(error, ValidationError):
            return
        item = str(error.errors(include_url=False, include_context=False)[0]["input"])[:400]
        self._noise = _plain(item).strip()[:80]

    def describe(self) -> str:
        """Say what was heard, as sentences that follow an error; "" if nothing."""
        lines = [line.strip()[:_LINE] for line in _plain(self._stderr.decode(errors="replace")).splitlines() if line.strip()]
        noise = f" It printed text that is not MCP on its standard output: {self._noise!r}." if self._noise else ""
        return noise + (f" Its last lines on standard error: {' | '.join(lines[-_QUOTED_LINES:])}" if lines else "")


def _plain(text: str) -> str:
    """Drop terminal escapes and control characters, line feeds excepted."""
    return _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\t", " "))


def open_transport(server: ServerConfig, log: PeerLog, sign_in: SignIn) -> AbstractAsyncContextManager[Streams]:
    """Open the streams to a server; what is heard besides MCP goes to `log`.

    Args:
        server: to which one; HTTP servers by Streamable HTTP unless the configuration says `sse`.
    """
    if isinstance(server, StdioServer):
        return _stdio(server, log)
    http = _http_client(server, log, sign_in)
    return _sse(server, http) if server.transport == "sse" else _http(server, http)


@asynccontextmanager
async def _stdio(server: StdioServer, log: PeerLog) -> AsyncIterator[Streams]:
    with _stderr_to(log) as pipe:
        async with open_process(server, pipe) as streams:
            yield streams


@contextmanager
def _stderr_to(log: PeerLog) -> Iterator[TextIO]:
    """Give a pipe whose last bytes are kept: standard error is bounded, never on our terminal, and hardly ever blocks the server.

    One that fills the pipe is read 100 times a second, or it would keep our loop busy for ever.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    pause: asyncio.TimerHandle | None = None

    def drain() -> bool:
        try:
            data = os.read(reading, _PIPE_BYTES)
        except BlockingIOError:
            return False
        log.add_stderr(data)
        return bool(data)

    def attend() -> None:
        nonlocal pause
        if drain():
            loop.remove_reader(reading)
            pause = loop.call_later(_STDERR_PAUSE, loop.add_reader, reading, attend)

    loop.add_reader(reading, attend)
    try:
        with os.fdopen(writing, "w") as pipe:
            yield pipe
    finally:
        if pause is not None:
            pause.cancel()
        loop.remove_reader(reading)
        for _ in range(16):  # the rest of its output, but not all that a grandchild may still write
            if not drain():
                break
        os.close(reading)


@asynccontextmanager
async def _http(server: HttpServer, http: httpx2.AsyncClient) -> AsyncIterator[Streams]:
    async with http, streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES) as streams:
        yield streams


@asynccontextmanager
async def _sse(server: HttpServer, http: httpx2.AsyncClient) -> AsyncIterator[Streams]:
    async with sse_client(server.url, httpx_client_factory=lambda *_, **__: http) as streams:
        yield streams


def _http_client(server: HttpServer, log: PeerLog, sign_in: SignIn) -> httpx2.AsyncClient:
    """Make the HTTP client; the SDK loses the status of a refusal, so it is noted on the way."""

    async def note(response: httpx2.Response) -> None:
        log.http_status = response.status_code if response.status_code >= 400 else None

    return httpx2.AsyncClient(
        headers=dict(server.headers),
        timeout=_HTTP_TIMEOUT,
        event_hooks={"response": [note, log.troubles.watch]},
        auth=authorization(server, sign_in, log),
    )
