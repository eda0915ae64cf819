"""Lines of the log that anybody can cause, without a key, as often as they like: counted instead of written."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["CountedLines", "counted_lines"]

SECONDS: Final = 60.0
MOST: Final = 20  # of a kind in that time
_KINDS: Final = 1000
_REFUSED: Final = (401, 403, 431)
_LOGGERS: Final = ("asyncio", "uvicorn.error", "xmlcall.proxy")


class CountedLines(logging.Filter):
    """Lets a number of lines of each kind pass in a minute, and counts the others; the next one that passes tells how many."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line is written."""
        kind = _kind(record)
        if kind is None:
            return True
        now = time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        left_out = 0
        if now - begun >= SECONDS:
            begun, count, left_out = now, 0, max(0, count - MOST)
        if len(self._seen) >= _KINDS:
            self._seen.clear()
        self._seen[kind] = begun, count + 1
        if left_out:
            record.msg = f"{record.msg} (and {left_out} more like this one before)"
        elif count == MOST - 1:
            record.msg = f"{record.msg} (more like this one are counted for a minute)"
        return count < MOST


def _kind(record: logging.LogRecord) -> tuple[object, ...] | None:
    """Return what is the same in lines that say the same; None for those that only who has a key can cause."""
    words = str(record.msg).partition("\n")[0]
    if record.levelno >= logging.WARNING:
        return record.name, words
    statuses = [each for each in (record.args if isinstance(record.args, tuple) else ()) if each in _REFUSED]
    return (record.name, words, statuses[0]) if statuses else None


@contextmanager
def counted_lines() -> Iterator[None]:
    """Count lines in the place of writing too many of them, as long as a server runs."""
    counted, loggers = CountedLines(), [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(counted)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(counted)
