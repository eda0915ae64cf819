"""A store in Redis, or in a server that speaks as it does (Valkey), for all replicas of the proxy.

A server that is gone must not hold up answers: each question has a second, the connection to it included, and none is asked
twice. What came of it otherwise is a `StoreError`. A connection that broke is made anew with the next question.

The address may hold a password; no message of this module says more of it than the host and the port.
"""

import asyncio
import logging
import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from ...errors import UsageError
from .store import BYTES_LIMIT, StoreError

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisStore"]

SECONDS: Final = 1.0
"""For an answer."""

CONNECTIONS: Final = 32
SCHEMES: Final = frozenset({"redis", "rediss"})

# In one step for all replicas, and with any version: `EXPIRE NX` is known from Redis 7 on.
_ADD: Final = """
local sum = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return sum
"""

log = logging.getLogger("xmlcall.proxy")


class RedisStore:
    """A store that replicas share (see `Store`). Open it with `async with`.

    Args:
        url: `redis://[[user]:password@]host[:port][/number]`; `rediss://` encrypts.
        prefix: of all keys, so that others can use the same server.
        seconds: for an answer.

    Raises:
        UsageError: no such address, or the package `redis` lacks.
    """

    def __init__(self, url: str, *, prefix: str = "xmlcall:", seconds: float = SECONDS) -> None:
        self.address = _shown(url)
        self._url, self._prefix, self._seconds = url, prefix, seconds
        self._redis = self._connected()
        self._is_open = False

    def _connected(self) -> "Redis":
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise UsageError("a shared store needs the package redis: pip install 'xmlcall[redis]'") from error
        times = {"timeout": self._seconds, "socket_timeout": self._seconds, "socket_connect_timeout": self._seconds}
        retry = Retry(NoBackoff(), 0)
        try:
            pool = BlockingConnectionPool.from_url(self._url, max_connections=CONNECTIONS, retry=retry, **times)
        except (TypeError, ValueError):
            raise _no_address() from None  # the message may hold the password
        return Redis.from_pool(pool)

    async def __aenter__(self) -> Self:
        """Open the store; a server that does not answer yet is told in the log."""
        self._is_open = True
        try:
            await self._asked("PING")
        except StoreError as error:
            log.warning("%s; it is asked again with each request", error)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the connections."""
        self._is_open = False
        await self._redis.aclose()

    async def get(self, key: str) -> bytes | None:
        """Return a value (see `Store`); what is no text, or too large, is not known.

        Raises:
            StoreError: the server failed.
        """
        value = await self._asked("GETRANGE", self._prefix + key, 0, BYTES_LIMIT)
        return value if isinstance(value, bytes) and 0 < len(value) <= BYTES_LIMIT else None

    async def put(self, key: str, value: bytes, *, seconds: float) -> None:
        """Keep a value (see `Store`).

        Raises:
            StoreError: the server failed.
        """
        await self._asked("SET", self._prefix + key, value, "PX", _milliseconds(seconds))

    async def add(self, key: str, amount: int, *, seconds: float) -> int:
        """Add to a sum (see `Store`).

        Raises:
            StoreError: the server failed; whether the sum has grown is not known.
        """
        total = await self._asked("EVAL", _ADD, 1, self._prefix + key, amount, _milliseconds(seconds))
        if not isinstance(total, int):
            raise StoreError(f"the store at {self.address} has no number where a sum should be")
        return total

    async def _asked(self, *command: str | bytes | int) -> Any:
        """Return the server's answer; None where the key has a value of another type."""
        from redis.exceptions import RedisError

        if not self._is_open:
            raise UsageError(f"the store at {self.address} is not open: use it inside `async with`")
        try:
            async with asyncio.timeout(self._seconds):
                return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError, UnicodeError) as error:
            if str(error).startswith("WRONGTYPE"):
                return None
            raise StoreError(f"the store at {self.address} failed ({type(error).__name__})") from None


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))


def _shown(url: str) -> str:
    """Return the host and the port of an address, and nothing else of it.

    Raises:
        UsageError: it is no address of a Redis.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        raise _no_address() from None
    if parts.scheme not in SCHEMES or not host:
        raise _no_address()
    return f"{host}:{port}"


def _no_address() -> UsageError:
    return UsageError("expected the address of a store as redis://host:port, or rediss://user:password@host:port/number")
