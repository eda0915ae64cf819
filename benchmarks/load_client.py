"""The load of `proxy_load.py`: questions over raw connections, whose answers cost this process as little as can be."""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from scripted_upstream import MODEL, WORD, Script, question

__all__ = ["asked", "connected", "load", "request_of"]

CATALOG: Final = Path(__file__).resolve().parent.parent / "xmlcall" / "bench" / "catalog.json"
ANSWER_SECONDS: Final = 300.0  # a proxy that cannot keep up is slow, not wrong


def tools() -> list[dict[str, Any]]:
    """Return nine tools of real servers, and the one that scripted calls name."""
    text = {"type": "string"}
    note = {"type": "object", "properties": {"title": text, "text": text}, "required": ["title", "text"]}
    real = json.loads(CATALOG.read_text(encoding="utf-8"))["tools"][:9]
    rows = [*real, {"name": "write_note", "description": "Write a note.", "inputSchema": note}]
    names = {"name": "name", "description": "description", "inputSchema": "parameters"}
    return [{"type": "function", "function": {names[key]: row[key] for key in names}} for row in rows]


class Connection(asyncio.Protocol):
    """A connection that asks one question at a time and looks at bytes no more than it has to.

    Attributes:
        first: seconds from the question to the first word of the last answer.
        words: of the last answer.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None

    def ask(self, request: bytes) -> asyncio.Future[None]:
        """Send a question; the future is done when the answer is whole."""
        assert self.transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._tail, self._head, self._left, self.words, self.first = b"", b"", -1, 0, 0.0
        self._asked = time.perf_counter()
        self.transport.write(request)
        return self._answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError(f"the server hung up after {self.words} words"))

    def close(self) -> None:
        """Hang up."""
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._left < 0 and not (data := self._body(data)):
            return
        seen = self._tail + data
        self.words += seen.count(_WORD) - self._tail.count(_WORD)
        if self.words and not self.first:
            self.first = time.perf_counter() - self._asked
        self._tail = seen[-len(_LAST) + 1 :]
        self._left -= len(data)
        if (self._left == 0 or seen.endswith(_LAST)) and self._answered and not self._answered.done():
            self._answered.set_result(None)

    def _body(self, data: bytes) -> bytes:
        """Read the head; return what follows it."""
        self._head += data
        head, end, body = self._head.partition(b"\r\n\r\n")
        if not end:
            return b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"expected an answer, got {self._head[:300]!r}")
        _, given, length = head.lower().partition(b"\r\ncontent-length:")
        self._left = int(length.split(b"\r\n")[0]) if given else sys.maxsize
        return body


_WORD: Final = WORD.encode()
_LAST: Final = b"\r\n0\r\n\r\n"  # of a chunked answer


async def connected(url: str) -> Connection:
    """Open a connection."""
    address = urlsplit(url)
    _, connection = await asyncio.get_running_loop().create_connection(Connection, address.hostname or "", address.port or 80)
    return connection


async def asked(connection: Connection, request: bytes, script: Script) -> None:
    """Ask, and check the answer."""
    await asyncio.wait_for(connection.ask(request), ANSWER_SECONDS)
    if connection.words != script.tokens:
        raise SystemExit(f"expected {script.tokens} words, got {connection.words}")


def request_of(url: str, script: Script, *, with_tools: bool, stream: bool = True) -> bytes:
    """Write the bytes of a question."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": question(script)}], "stream": stream}
    content = json.dumps(body | ({"tools": tools()} if with_tools else {})).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def load(url: str, request: bytes, script: Script, *, workers: int, each: int, spread: float = 0.0) -> list[float]:
    """Ask from several connections at once.

    Args:
        each: questions a connection asks, one after the other.
        spread: seconds over which connections begin.

    Returns:
        The times to the first token, in seconds; without those of each connection's first question, when others are not open yet.
    """
    firsts: list[float] = []

    async def work(number: int) -> None:
        await asyncio.sleep(spread * (number + random.random()) / workers)
        connection = await connected(url)
        for turn in range(each):
            await asked(connection, request, script)
            firsts.extend([connection.first] if turn else [])
            if connection.transport is None or connection.transport.is_closing():
                connection = await connected(url)
        connection.close()

    await asyncio.gather(*(work(number) for number in range(workers)))
    return firsts
