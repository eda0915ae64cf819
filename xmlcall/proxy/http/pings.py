"""Pings: what a stream says where the model says nothing for long, so that no client and no router gives it up.

A timer of the event loop, and no task that sleeps: nearly no answer needs a ping. A task that is cancelled at each answer's end
also leaves an error whose traceback holds the whole request in a cycle, 25 KB each, for the garbage collector to find (measured).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

__all__ = ["BEGIN_SECONDS", "PING_SECONDS", "Pings"]

BEGIN_SECONDS: Final = 10.0  # of silence before a stream begins without an event
PING_SECONDS: Final = 15.0


class Pings:
    """Pings of one stream, from the block's beginning to its end."""

    def __init__(self, send: Callable[[], Awaitable[None]]) -> None:
        self._send, self._wait = send, BEGIN_SECONDS
        self._sending: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self.spoken()
        self._timer = asyncio.get_running_loop().call_later(self._wait, self._look)
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def spoken(self) -> None:
        """Note that the stream has said something."""
        self._last = time.monotonic()

    def _look(self) -> None:
        left = self._wait - (time.monotonic() - self._last)
        if left <= 0:
            self._wait = left = PING_SECONDS
            self.spoken()
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._ping())
        self._timer = asyncio.get_running_loop().call_later(left, self._look)

    async def _ping(self) -> None:
        with suppress(asyncio.CancelledError):
            await self._send()
            self.spoken()
        self._sending = None
