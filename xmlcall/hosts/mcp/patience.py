"""Limits the time of a call: the limit restarts with each progress report, and is paused while the user or a model is asked.

A server that reports progress forever is limited, too: in total a call may take `MOST` times its limit (MCP 2025-11-25,
lifecycle: clients SHOULD enforce a maximum timeout, regardless of progress). Time in which we ask the user or a model on behalf
of the server does not count.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final, Self

__all__ = ["MOST", "CallPatience"]

MOST: Final = 10.0
"""How many times its limit a call may take in total."""


class CallPatience:
    """Limits one call; `async with` raises TimeoutError past the limit, and may be entered again for another try."""

    def __init__(self, limit: float, *, may_ask: bool = True) -> None:
        self.limit, self.may_ask = limit, may_ask
        self._left = limit * MOST  # of the whole, up to `_since`
        self._since = 0.0
        self._resting = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._since = _now()
        self._reset()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._spend()
        await self._timeout.__aexit__(*raised)

    def renew(self) -> None:
        """Restart the limit, because the server has reported progress."""
        self._spend()
        if not self._resting:
            self._reset()

    @property
    def seconds(self) -> float:
        """The limit that has run out, for a message: the total, or the one between two reports."""
        return self.limit * MOST if self._left <= 0 else self.limit

    @property
    def is_over(self) -> bool:
        """Whether the limit has run out."""
        return self._timeout.expired()

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Pause the limit while the user or a model is asked; pauses may overlap."""
        self._spend()
        self._resting += 1
        self._timeout_at(None)
        try:
            yield
        finally:
            self._since = _now()
            self._resting -= 1
            if not self._resting:
                self._reset()

    def _spend(self) -> None:
        """Subtract the time since the last check from the total."""
        now = _now()
        if not self._resting:
            self._left -= now - self._since
        self._since = now

    def _reset(self) -> None:
        self._timeout_at(_now() + min(self.limit, max(self._left, 0.0)))

    def _timeout_at(self, when: float | None) -> None:
        with contextlib.suppress(RuntimeError):  # it has run out already, or the call has just ended
            self._timeout.reschedule(when)


def _now() -> float:
    return asyncio.get_running_loop().time()
