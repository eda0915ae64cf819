"""A backend that asks again when the model server failed before it said anything.

| What came in place of a reply                 | Asked again? |
| --------------------------------------------- | ------------ |
| no connection, or one that broke              | yes: one that was kept open may be closed just when it is used again |
| an answer that is not in the server's format  | yes: a server that dies behind a gateway leaves half an answer, or none |
| status 408, 429, 502, 503                     | yes: the server loads its model, is full, or is started anew |
| silence as long as was allowed; status 504    | no: it would be waited for as long again |
| every other status; a prompt that is too long | no: the same request is refused in the same way |
| anything, once the reply has begun            | no: what was passed on cannot be taken back |

How often, and after which pauses, the caller says (`Patience`). A server that names a pause (`Retry-After`) is not asked before
it is over; if that is longer than the caller waits, its refusal comes out at once. How far a prompt is read is no reply yet.
"""

from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final, Self

from ..errors import BackendError, BackendStatusError, ContextOverflow
from ..types.completion import CompletionRequest
from .base import Around, Backend, Capabilities, Relayed, Relaying, Tries
from .http import TIMED_OUT

__all__ = ["Patience", "Retrying", "may_pass"]

_PASSING: Final = frozenset({408, 429, 502, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a caller waits; by default somebody who waits for an answer."""

    pauses: tuple[float, ...] = (0.1, 0.5, 2.0)
    longest: float = 10.0

    def pause(self, error: BackendError, tried: int) -> float | None:
        """Return the seconds until a request is tried again; None if it is not to be."""
        if tried > len(self.pauses) or not may_pass(error):
            return None
        named = (error.retry_after or 0.0) if isinstance(error, BackendStatusError) else 0.0
        return max(self.pauses[tried - 1], named) if named <= self.longest else None


def may_pass(error: BackendError) -> bool:
    """Say whether the same request may succeed in a moment."""
    if isinstance(error, BackendStatusError):
        return error.status_code in _PASSING and not isinstance(error, ContextOverflow)
    return not isinstance(error.__cause__, TIMED_OUT)


class Retrying(Around):
    """A backend with further tries.

    Args:
        on_retry: told before each further try how many seconds the last one and the pause behind it took.
    """

    def __init__(
        self, backend: Backend, patience: Patience | None = None, *, on_retry: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self.inner = backend
        self._patience = patience or Patience()
        self._on_retry = on_retry

    @property
    def model(self) -> str:
        """The model's name."""
        return self.inner.model

    @property
    def capabilities(self) -> Capabilities:
        """What the server said of itself when it was opened."""
        return self.inner.capabilities

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    def tries(self, request: CompletionRequest) -> Tries:
        """Return how a request is made."""
        return _Retried(self.inner, request, self._patience, self._wait)

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Pass a request on as it is (see `Relaying`); an answer with a status is an answer, and is passed on as any other."""
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
    """A request with further tries."""

    def __init__(
        self,
        backend: Backend,
        request: CompletionRequest,
        patience: Patience,
        wait: Callable[[float, float], Awaitable[None]],
    ) -> None:
        super().__init__(backend, request)
        self._patience, self._wait = patience, wait
        self._tried, self._started = 1, monotonic()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Wait, if it may pass."""
        if begun or (pause := self._patience.pause(error, self._tried)) is None:
            return error
        await self._wait(pause, self._started)
        self._tried, self._started = self._tried + 1, monotonic()
        return None
