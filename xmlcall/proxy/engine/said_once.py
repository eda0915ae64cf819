"""What the log of a server tells once, in words of which nobody else chooses signs or sizes."""

import logging
from collections import deque
from typing import Final
from urllib.parse import quote

from ...prompting.fit_context import Fitted

__all__ = ["NOTES_LIMIT", "SaidOnce"]

NOTES_LIMIT: Final = 100  # of what was mended that are told
_SHOWN: Final = " :;,.\"'_-()$[]{}/#"  # in the log, besides letters and digits

log = logging.getLogger("xmlcall.proxy")


class SaidOnce:
    """Tells whoever runs the proxy."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._cuts: deque[tuple[int, int, int]] = deque(maxlen=NOTES_LIMIT)

    def note(self, note: str) -> None:
        """Log what was put right in a request, the first time."""
        if note not in self._said and len(self._said) < NOTES_LIMIT:
            self._said.add(note)
            log.info("%s", quote(note, safe=_SHOWN, errors="replace"))

    def cut(self, fitted: Fitted) -> None:
        """Tell that a prompt was cut, once for each cut; without names, which others chose."""
        told = len(fitted.cuts), sum(cut.left_out for cut in fitted.cuts), fitted.left_out
        if told not in self._cuts:
            self._cuts.append(told)
            what = "to fit the model's context: %d results lack %d characters, %d of the oldest messages are left out"
            log.info(what, *told)
