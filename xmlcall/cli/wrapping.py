"""Wraps streamed text between words for a terminal.

Only the word that is being written is held back. A Chinese, Japanese or Korean character is a word of its own, with the closing
marks after it. Further lines of a list item are indented, and code in a fence is never broken; nothing else changes.
"""

import re
from typing import Final

from rich.cells import cell_len

_WIDE: Final = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
_CLOSING: Final = "、。，．！？：；）」』】》〉”’…"
_PIECE = re.compile(rf"\n|[ \t]+|[{_WIDE}{_CLOSING}][{_CLOSING}]*|[^\s{_WIDE}{_CLOSING}]+[{_CLOSING}]*|\s")
_HELD = re.compile(rf"(?:[{_WIDE}{_CLOSING}]|[^\s{_WIDE}{_CLOSING}]+)[{_CLOSING}]*\Z")
_ITEM = re.compile(r"[-*+•]\Z|\d{1,3}[.)]\Z")
_MAX_WORD: Final = 400  # characters that are held back; a longer word is shown as it comes


class Wrapping:
    """Breaks lines between words, whatever the cuts."""

    def __init__(self, width: int) -> None:
        self._width = max(width, 20)
        self._held = ""  # the end of the text so far: a word that may continue
        self._space = ""  # before the next word
        self._is_code = False
        self._begin_line()

    def feed(self, text: str) -> str:
        """Take the next piece; give what can be shown by now."""
        text = self._held + text
        match = _HELD.search(text[-_MAX_WORD:])
        end = len(text) - len(match[0]) if match and (match.start() or len(text) <= _MAX_WORD) else len(text)
        self._held = text[end:]
        return "".join(map(self._piece, _PIECE.findall(text[:end])))

    def end_word(self) -> str:
        """Give the word that is held back; white space follows it."""
        held, self._held = self._held, ""
        return "".join(map(self._piece, _PIECE.findall(held)))

    def close(self) -> str:
        rest = self.end_word()
        self._begin_line()
        self._is_code, self._space = False, ""
        return rest

    def _begin_line(self) -> None:
        self._column = self._indent = 0
        self._is_first = True  # no word yet

    def _piece(self, piece: str) -> str:
        if piece == "\n":
            space, self._space = (self._space if self._is_code else ""), ""
            self._begin_line()
            return f"{space}\n"
        if piece.isspace():
            self._space += piece
            return ""
        is_first, self._is_first = self._is_first, False
        if is_first and piece.startswith("```"):
            self._is_code = not self._is_code
        elif is_first and _ITEM.match(piece):
            self._indent = cell_len(self._space + piece) + 1
        elif not self._is_code and self._column > self._indent and self._column + cell_len(self._space + piece) > self._width:
            self._space, self._column = f"\n{' ' * self._indent}", 0
        shown, self._space = self._space + piece, ""
        self._column += cell_len(shown.removeprefix("\n"))
        return shown


def wrapped(text: str, width: int, indent: int = 0) -> str:
    wrapping = Wrapping(width - indent)
    lines = (wrapping.feed(line) + wrapping.close() for line in text.split("\n"))
    return "\n".join(lines).replace("\n", "\n" + " " * indent)
