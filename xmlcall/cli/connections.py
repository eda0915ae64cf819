"""Connections before anybody knows who calls: how long they may say nothing, and how many there may be.

uvicorn waits without end for the head of a first request, and takes as many connections as there are files. A process without a
free file neither takes another connection nor reaches its model server, and asyncio logs each that it cannot take. So there are
fewer connections than files: each answer needs a second one, to the model server. Where there are too many, those that wait for
the rest of a request are closed, the oldest first.
"""

import asyncio
import itertools
import resource
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ACCEPTED_AT_ONCE", "Connection", "most_connections"]

HEAD_SECONDS: Final = 20.0  # for the head of a request, from its first byte or the beginning of the connection
ACCEPTED_AT_ONCE: Final = 16  # before the first of them can be closed
RESERVED_FILES: Final = 96  # for programs of servers, records, and what is accepted at once
LEAST: Final = 16  # connections, whatever the limit of files is
_TURNS: Final = itertools.count()  # in which connections began to wait; clocks are coarse
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


def most_connections() -> int:
    """Return how many connections there may be, by the process's limit of files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(LEAST, (files - RESERVED_FILES) // 2) if files != resource.RLIM_INFINITY else 1 << 20


class Connection(H11Protocol):
    """uvicorn's connection, with an end to waiting; made by uvicorn."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turn = next(_TURNS)
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is the caller's turn to say something: of a request not all is here, and nothing was answered."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, if there is room for one more."""
        super().connection_made(transport)
        if len(self.connections) > most_connections() and not self._make_room():
            transport.write(_BUSY)
            transport.close()
            return
        self._time_head()

    def data_received(self, data: bytes) -> None:
        """Read what came; what of a head is not here within its time never will be."""
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        super().connection_lost(exc)
        self._forget_head()

    def on_response_complete(self) -> None:
        """Wait for the next request, or go on with one that is here already."""
        self._turn = next(_TURNS)
        super().on_response_complete()
        self._time_head()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest, this one aside; say whether there is one."""
        others = (each for each in self.connections if isinstance(each, Connection) and each is not self)
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
