"""Finished turns, appended to a file by a thread of its own: whoever finishes one never waits for a disk.

Turns wait in a queue of bounded length. Where a disk is slower than the turns come, or full, turns are left out of the file; that
is said once, and again only after some could be written in between. Nothing here ends the program.
"""

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .builder import TurnBuilder
from .lines import LineFile

__all__ = ["LineThread"]

MOST_WAITING: Final = 2000
"""Turns in the queue; each holds its text."""
CLOSE_SECONDS: Final = 5.0  # for turns that wait when the program ends

log = logging.getLogger("xmlcall.turns")


class LineThread:
    """Appends turns to a file of JSON lines."""

    def __init__(self, path: Path, say: Callable[[str], None] = log.warning) -> None:
        self.path = path
        self._file = LineFile(path)
        self._say = say
        self._is_said = False
        self._waiting: queue.Queue[TurnBuilder | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="xmlcall-record", daemon=True)
        self._thread.start()

    def append(self, turn: TurnBuilder) -> None:
        """Have a turn written; returns at once."""
        try:
            self._waiting.put_nowait(turn)
        except queue.Full:
            self._complain("they come faster than they can be written")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what waits, and end the thread."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            self._complain("the program ends")
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (turn := self._waiting.get()) is not None:
            try:
                self._file.append(turn.record())
                self._is_said = False
            except OSError as error:
                self._complain(error.strerror or str(error))
            except Exception:
                log.exception("a turn could not be recorded")

    def _complain(self, why: str) -> None:
        if not self._is_said:
            self._is_said = True
            self._say(f"turns are not written to {self.path}: {why}; it is tried again with each that ends")
