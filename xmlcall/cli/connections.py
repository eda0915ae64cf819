"""Limits connections whose caller is not known yet: how long they may be silent, and how many there may be.

uvicorn waits forever for the head of a first request, and accepts as many connections as there are files. A process without a
free file can neither accept another connection nor reach its model server, and asyncio logs each failure. So there are fewer
connections than files: each answer needs a second one, to the model server. If there are too many, those that wait for the rest
of a request are closed, the oldest first.

A chunk of a body costs far more than its bytes, and a body may be one byte a chunk. So such a body is read in small pieces, and
not read further once its request is answered: a caller without a key is refused before the body has arrived.
"""

import asyncio
import itertools
from typing import Any, Final

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..systems import open_files

HEAD_SECONDS: Final = 20.0  # for the head of a request, from its first byte or the beginning of the connection
ACCEPTED_AT_ONCE: Final = 16  # connections, before the first of them can be closed
RESERVED_FILES: Final = 96  # for programs of servers, records, and what is accepted at once
LEAST: Final = 16  # connections, whatever the limit of files is
_PIECE: Final = 4096  # bytes read at once of a body that may be hundreds of chunks
_BUFFER: Final = memoryview(bytearray(1 << 18))  # shared by all connections: what is read into it is copied immediately
_TURNS: Final = itertools.count()  # the order in which connections began to wait; clocks are too coarse
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


def most_connections() -> int:
    """Return how many connections there may be, given the process's limit of open files."""
    files = open_files()
    return 1 << 20 if files is None else max(LEAST, (files - RESERVED_FILES) // 2)


class Corked:
    """A transport that sends what is written in one round of the event loop as one packet: each costs as much as a token."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()


class CallerConnection(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's connection, which does not wait forever; created by uvicorn."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turn = next(_TURNS)
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the caller has to send something: its request is incomplete, and no answer has begun."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, if there is room for one more."""
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        if len(self.connections) > most_connections() and not self._make_room():
            transport.write(_BUSY)
            transport.close()
            return
        self._time_head()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: a large one only for a body that is not chunked."""
        is_body = self.cycle is not None and self.cycle.more_body and not self._is_chunked
        return _BUFFER if is_body else _BUFFER[:_PIECE]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_BUFFER[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Read what arrived; a head that is incomplete after its time limit is given up."""
        super().data_received(data)
        if self.cycle is not None:
            ends_here = [CLOSE_HEADER] if self.cycle.more_body and self._is_chunked else []
            self.cycle.default_headers = [*self.server_state.default_headers, *ends_here]
        self._time_head()

    @property
    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_head()

    def on_response_complete(self) -> None:
        """Wait for the next request, or continue with one already received."""
        self._turn = next(_TURNS)
        super().on_response_complete()
        self._time_head()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest, other than this one; say whether there is one."""
        others = (each for each in self.connections if isinstance(each, CallerConnection) and each is not self)
        waiting = [each for each in others if each.is_waiting and not each.transport.is_closing()]
        if waiting:
            min(waiting, key=lambda each: each._turn).transport.abort()
        return bool(waiting)

    def _time_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
