"""How much a key may use: requests and tokens in any minute.

A sliding window holds what was taken in the last minute, and from whom. A request takes its place in it before the model is
asked: one request, and as many tokens as it may come to need. Both are taken in one step or not at all, so that callers who come
at once cannot slip through together. When the answer is over, the tokens that it took in truth stand in place of those.

Invariants: what stands in a window is never more than the limit when a request is let in; a request that is refused leaves
nothing behind. Where the window is kept is behind `Windows`: in this process, or wherever all replicas see it.

Cost: some hundred bytes for each request of the last minute and key, no more than the limit allows.
"""

import asyncio
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..formats.contract import ApiError
from .keys import Caller

__all__ = ["MINUTE", "Limits", "LocalWindows", "Place", "Want", "Windows"]

MINUTE: Final = 60.0  # seconds
_MOST_TRIES: Final = 3  # of a store that does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a request takes of one window.

    Args:
        window: its name, such as `requests of NAME`.
        amount: to take.
        limit: of the window.
    """

    window: str
    amount: int
    limit: int


class Windows(Protocol):
    """Where windows are kept."""

    async def take(self, place: str, wants: Sequence[Want]) -> tuple[Want, float] | None:
        """Take all that is wanted in one step, or nothing.

        Args:
            place: a name for what is taken, of which there is no other.
            wants: each of another window.

        Returns:
            None if it was taken; else a window that is too full, and in how many seconds it will have room.
        """

    async def settle(self, place: str, window: str, amount: int) -> None:
        """Change how much was taken.

        Args:
            place: as it was taken.
            window: in which.
            amount: in truth; what left the window already stays outside.
        """


class LocalWindows:
    """Windows in the memory of this process.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[str, OrderedDict[str, tuple[float, int]]] = {}
        self._sums: dict[str, int] = {}

    async def take(self, place: str, wants: Sequence[Want]) -> tuple[Want, float] | None:
        """Take all that is wanted (see `Windows.take`); nothing is awaited, so nobody comes between."""
        now = self._clock()
        full = [(want, wait) for want in wants if (wait := self._wait(want, now)) > 0]
        if full:
            return max(full, key=lambda each: each[1])
        for want in wants:
            self._taken[want.window][place] = (now, want.amount)
            self._sums[want.window] += want.amount
        return None

    async def settle(self, place: str, window: str, amount: int) -> None:
        """Change how much was taken (see `Windows.settle`)."""
        taken = self._taken.get(window, OrderedDict())
        if place in taken:
            at, before = taken[place]
            taken[place] = (at, amount)
            self._sums[window] += amount - before

    def _wait(self, want: Want, now: float) -> float:
        """Return in how many seconds there is room; 0 if there is."""
        taken = self._taken.setdefault(want.window, OrderedDict())
        used = self._sums.setdefault(want.window, 0)
        while taken and (first := next(iter(taken.values())))[0] <= now - MINUTE:
            taken.popitem(last=False)
            used -= first[1]
        self._sums[want.window] = used
        over = used + want.amount - want.limit
        if over <= 0:
            return 0.0
        freed = itertools.accumulate(amount for _, amount in taken.values())
        ends = (at + MINUTE for (at, _), sum_so_far in zip(taken.values(), freed, strict=True) if sum_so_far >= over)
        return next(ends, now + MINUTE) - now or 0.001
