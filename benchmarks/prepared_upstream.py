"""A model server that costs next to nothing: it writes bytes that were prepared, over asyncio's transports, many tokens at once.

    python benchmarks/prepared_upstream.py    # prints its address

It speaks as much of OpenAI's API as `xmlcall serve --ask mode=xml` asks for: `/v1/models` and streamed chat completions. What a
reply is stands in the question, as with `scripted_upstream.py`; `burst` is the number of tokens that go out in one write. `GET
/counts` says what is open. It checks nothing and is no HTTP server for anybody else.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from scripted_upstream import MODEL, Script, Target, ending_of, event_of, running, texts_of

__all__ = ["Flow", "prepared", "prepared_upstream"]

_FLOW: Final = re.compile(rb"SCRIPT (\{.*?\})", re.DOTALL)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST: Final = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Script):
    """What one reply is.

    Args:
        burst: tokens that go out in one write; `pace` is then the time between two writes.
    """

    burst: int = 1


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=100)
def prepared(asked: bytes) -> tuple[float, tuple[bytes, ...]]:
    """Prepare a reply.

    Args:
        asked: a flow as JSON.

    Returns:
        The pace, and what is written at once. Without a pace everything between two bursts is one write less.
    """
    flow = Flow(**json.loads(asked))
    events = [event_of({"content": text}) for text in texts_of(flow)]
    bursts = [_chunk(b"".join(events[at : at + flow.burst])) for at in range(0, len(events), flow.burst)]
    bursts[0] = _HEAD + _chunk(event_of({"role": "assistant", "content": ""})) + bursts[0]
    bursts[-1] += _chunk(ending_of(flow.tokens)) + _LAST
    return flow.pace, tuple(bursts)


class Connection(asyncio.Protocol):
    """One connection of a proxy: one question at a time."""

    open: set["Connection"] = set()  # noqa: RUF012 - of all
    generating = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._asked, self._next = transport, b"", None
        self.open.add(self)

    _next: asyncio.TimerHandle | None

    def connection_lost(self, error: Exception | None) -> None:
        self.open.discard(self)
        if self._next is not None:
            self._next.cancel()
            self._over()

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, end, body = self._asked.partition(b"\r\n\r\n")
        if not end:
            return
        length = _LENGTH.search(head)
        if length is None or len(body) >= int(length[1]):
            self._asked = b""
            self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        if path != "/v1/chat/completions":
            self._transport.write(_json(_PAGES[path]()) if path in _PAGES else _json({"error": "not found"}, b"404 Not Found"))
        elif found := _FLOW.search(body.replace(b'\\"', b'"')):
            pace, bursts = prepared(found[1])
            Connection.generating += 1
            self._write(pace, bursts, 0)
        else:
            self._transport.write(_json({"error": "no script"}, b"400 Bad Request"))

    def _write(self, pace: float, bursts: tuple[bytes, ...], at: int) -> None:
        """Write a burst, and the others in their time."""
        self._transport.write(bursts[at])
        if at + 1 == len(bursts):
            self._over()
        else:
            self._next = asyncio.get_running_loop().call_later(pace, self._write, pace, bursts, at + 1)

    def _over(self) -> None:
        self._next = None
        Connection.generating -= 1


def _json(data: Mapping[str, Any], status: bytes = b"200 OK") -> bytes:
    body = json.dumps(data).encode()
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


_PAGES: Final[dict[str, Callable[[], Mapping[str, Any]]]] = {
    "/v1/models": lambda: {"object": "list", "data": [{"id": MODEL, "object": "model"}]},
    "/counts": lambda: {"open": Connection.generating, "connections": len(Connection.open) - 1},  # not that of this question
}


def prepared_upstream() -> contextlib.AbstractContextManager[Target]:
    """Run it as a process of its own."""
    return running("direct", [sys.executable, __file__])


async def serve() -> None:
    """Serve until killed."""
    # By its full name: asyncio sends without delay (TCP_NODELAY) only where the socket says that it is TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(Connection, sock=listener, backlog=4096)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
