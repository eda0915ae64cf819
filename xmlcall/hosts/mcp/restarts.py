"""When a server that has died is started again, and when a request that failed is made again."""

import time
from typing import Final

__all__ = ["LONGEST_WAIT", "PAUSES", "Restarts"]

PAUSES: Final = (0.0, 1.0, 4.0, 15.0, 60.0)
"""Seconds before a start, after the first, second ... death in a row; the last one repeats."""

LONGEST_WAIT: Final = 5.0
"""Seconds that a request waits for a start, or for a server that is busy; where it would be longer, the request fails at once."""


class Restarts:
    """Counts the deaths of a server between two calls that it answered. Answering a list is not enough: many die of a call."""

    def __init__(self) -> None:
        self.deaths = 0
        self._died_at = 0.0

    def died(self) -> None:
        """Count a connection that ended by itself, or could not be opened."""
        self.deaths += 1
        self._died_at = time.monotonic()

    def answered(self) -> None:
        """Forget the deaths: a call was answered."""
        self.deaths = 0

    @property
    def wait(self) -> float:
        """Seconds until the server may be started again."""
        if not self.deaths:
            return 0.0
        pause = PAUSES[min(self.deaths, len(PAUSES)) - 1]
        return max(0.0, self._died_at + pause - time.monotonic())
