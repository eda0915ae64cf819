"""Retries a request if the model server failed before any part of the reply arrived.

| Instead of a reply                            | Retried?     |
| --------------------------------------------- | ------------ |
| no connection, or one that broke              | yes: a kept connection may be closed just when it is used again |
| an answer that is not in the server's format  | yes: a server that dies behind a gateway leaves half an answer or none |
| the same, to a request with native tools      | no: mlx-lm ends a reply this way if it cannot read a call; the turn asks again |
| status 408, 429, 502, 503                     | yes: the server is loading its model, busy, or restarting |
| timeout; status 504                           | no: the wait would be as long again |
| every other status; a prompt that is too long | no: the same request would be refused again |
| anything, once the reply has begun            | no: output that was passed on cannot be taken back |

The caller sets the number of retries and the pauses (`Patience`). If the server names a pause (`Retry-After`), the request is not
retried earlier; if that is longer than the caller waits, the error is raised at once. Progress of the prompt does not count as a
reply.
"""

from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

import httpx2

from ..errors import BackendError, BackendProtocolError, BackendStatusError, ContextOverflow
from ..types.completion import CompletionRequest
from .base import Around, Backend, KeptOpen, Relayed, Relaying, Tries

_PASSING: Final = frozenset({408, 429, 502, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a caller waits; the defaults suit a user who waits for an answer."""

    pauses: tuple[float, ...] = (0.1, 0.5, 2.0)
    longest: float = 10.0

    def pause(self, error: BackendError, tried: int) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if tried > len(self.pauses) or not may_pass(error):
            return None
        named = (error.retry_after or 0.0) if isinstance(error, BackendStatusError) else 0.0
        return max(self.pauses[tried - 1], named) if named <= self.longest else None


def may_pass(error: BackendError) -> bool:
    """Say whether the same request may soon succeed."""
    if isinstance(error, BackendStatusError):
        return error.status_code in _PASSING and not isinstance(error, ContextOverflow)
    return not isinstance(error.__cause__, httpx2.TimeoutException)


class Retrying(Around, KeptOpen):
    """A backend that retries failed requests; `on_retry` gets the seconds that an attempt and the pause after it took."""

    def __init__(
        self, backend: Backend, patience: Patience | None = None, *, on_retry: Callable[[float], None] = lambda seconds: None
    ) -> None:
        super().__init__(backend)
        self.inner = backend
        self._patience = patience or Patience()
        self._on_retry = on_retry

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.inner.__aexit__(*error)

    def tries(self, request: CompletionRequest) -> Tries:
        return _Retried(self.inner, request, self._patience, self._wait)

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Forward a request unchanged (see `Relaying`); an answer with an error status is passed on like any other."""
        if not isinstance(self.inner, Relaying):
            raise TypeError(f"{type(self.inner).__name__} relays nothing")
        async with AsyncExitStack() as stack:
            for tried in range(1, len(self._patience.pauses) + 2):
                started = monotonic()
                try:
                    relayed = await stack.enter_async_context(self.inner.relay(method, path, content))
                    break
                except BackendError as error:
                    if (pause := self._patience.pause(error, tried)) is None:
                        raise
                await self._wait(pause, started)
            yield relayed

    async def _wait(self, pause: float, started: float) -> None:
        await sleep(pause)
        self._on_retry(monotonic() - started)


class _Retried(Tries):
    def __init__(
        self, backend: Backend, request: CompletionRequest, patience: Patience, wait: Callable[[float, float], Awaitable[None]]
    ) -> None:
        super().__init__(backend, request)
        self._patience, self._wait = patience, wait
        self._tried, self._started = 1, monotonic()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Wait, if the request may succeed later."""
        is_lost_call = bool(self._request.tools) and isinstance(error, BackendProtocolError)
        if begun or is_lost_call or (pause := self._patience.pause(error, self._tried)) is None:
            return error
        await self._wait(pause, self._started)
        self._tried, self._started = self._tried + 1, monotonic()
        return None
