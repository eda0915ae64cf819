"""A store of bytes and sums: of this process, or of all replicas (`redis.py`).

Values and sums are forgotten after a time. Nothing in a store decides what a model is shown of the caller's own words: those come
with every request.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from ...errors import XmlcallError

__all__ = ["MemoryStore", "Store", "StoreError"]

BYTES_LIMIT: Final = 16_000_000
SUMS_LIMIT: Final = 10_000


class StoreError(XmlcallError):
    """A store that replicas share did not answer in time, or refused. What is wanted then is for the caller to decide."""


class Store(Protocol):
    """Values and sums by key. One that is reached through a network may fail with a `StoreError`."""

    async def get(self, key: str) -> bytes | None:
        """Return a value; None if it is not known, or not any more.

        Raises:
            StoreError: the store failed.
        """

    async def put(self, key: str, value: bytes, *, seconds: float) -> None:
        """Keep a value.

        Args:
            key: of it.
            value: in place of one that there is.
            seconds: after which it is forgotten.

        Raises:
            StoreError: the store failed.
        """

    async def add(self, key: str, amount: int, *, seconds: float) -> int:
        """Add to a sum, at once for all replicas; return the sum with it.

        Args:
            key: of the sum, which begins at 0.
            amount: may be below 0, or 0 to ask.
            seconds: after the sum's beginning, when it is forgotten.

        Raises:
            StoreError: the store failed; whether the sum has grown is not known.
        """


class MemoryStore:
    """The store of one process; the oldest values go first.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._sums: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._size = 0

    async def get(self, key: str) -> bytes | None:
        """Return a value (see `Store`)."""
        until, value = self._values.get(key, (0.0, b""))
        return value if until > self._clock() else None

    async def put(self, key: str, value: bytes, *, seconds: float) -> None:
        """Keep a value (see `Store`)."""
        self._forget(key)
        self._values[key] = (self._clock() + seconds, value)
        self._size += len(value)
        while self._size > BYTES_LIMIT:
            self._forget(next(iter(self._values)))

    def _forget(self, key: str) -> None:
        _, value = self._values.pop(key, (0.0, b""))
        self._size -= len(value)

    async def add(self, key: str, amount: int, *, seconds: float) -> int:
        """Add to a sum (see `Store`)."""
        now = self._clock()
        until, total = self._sums.get(key, (0.0, 0))
        if until <= now:
            self._sums.pop(key, None)
            until, total = now + seconds, 0
        self._sums[key] = (until, total + amount)
        while len(self._sums) > SUMS_LIMIT:
            self._sums.popitem(last=False)
        return total + amount
