"""Text for a terminal while it comes: lines end between words, and the plainest Markdown is shown as what it means.

Only the word that is being written is held back. A Chinese, Japanese or Korean character is a word by itself, with the closing
marks behind it. Shown as what they mean: headings and `**bold**` (bold), `-` and `*` before an item of a list (a dot; its further
lines are indented), fences (what is inside is dim and never broken). Everything else stays as written, tables and inline code
too. Every style ends at its line's end, so a mark without its partner does no harm.
"""

import re
from typing import Final

from rich.cells import cell_len

__all__ = ["Wrapping", "wrapped"]

_WIDE: Final = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
_CLOSING: Final = "、。，．！？：；）」』】》〉”’…"
_PIECE = re.compile(rf"\n|[ \t]+|[{_WIDE}{_CLOSING}][{_CLOSING}]*|[^\s{_WIDE}{_CLOSING}]+[{_CLOSING}]*|\s")
_HELD = re.compile(rf"(?:[{_WIDE}{_CLOSING}]|[^\s{_WIDE}{_CLOSING}]+)[{_CLOSING}]*\Z")
_MARKED = re.compile(r"\A[(\[\"']*\*\*(?=\S)|(?<=\S)\*\*(?=[)\].,:;!?\"'、。，！？：；）]*\Z)|\A\*\*\Z")
_HEADING = re.compile(r"#{1,6}\Z")
_ITEM = re.compile(r"[-*+•]\Z|\d{1,3}[.)]\Z")
_MAX_WORD: Final = 400  # characters that are held back; a longer word is shown as it comes
_BOLD, _DIM, _NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[22m"


class Wrapping:
    """Breaks lines between words, whatever the cuts.

    Args:
        width: cells of a line.
        styled: show Markdown as what it means; it needs a terminal that knows bold.
    """

    def __init__(self, width: int, *, styled: bool = False) -> None:
        self._width, self._styled = max(width, 20), styled
        self._held = ""  # the end of what came: a word that may go on
        self._space = ""  # before the next word
        self._begin_line()
        self._is_code = False

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
        """Give the rest; nothing is bold or dim afterwards."""
        rest = self.end_word()
        end = _NORMAL if self._is_bold or (self._is_code and self._styled) else ""
        self._begin_line()
        self._is_code, self._space = False, ""
        return rest + end

    def _begin_line(self) -> None:
        self._column = self._indent = 0
        self._is_first = True  # no word yet
        self._is_bold = False

    def _piece(self, piece: str) -> str:
        if piece == "\n":
            end = _NORMAL if self._is_bold else ""
            space, self._space = (self._space, "") if self._is_code else ("", "")
            self._begin_line()
            return f"{space}{end}\n"
        if piece.isspace():
            self._space += piece
            return ""
        if self._is_first and piece.startswith("```"):
            self._is_code = not self._is_code
            self._is_first = False
            mark = (_DIM + piece if self._is_code else piece + _NORMAL) if self._styled else piece
            return self._after_space(mark, len(piece))
        if self._is_code:
            self._is_first = False
            return self._after_space(piece, 0)
        return self._word(piece)

    def _word(self, word: str) -> str:
        is_first, self._is_first = self._is_first, False
        if is_first and _ITEM.match(word):
            self._indent = cell_len(self._space + word) + 1
            return self._after_space("•" if self._styled and len(word) == 1 else word, cell_len(word))
        if is_first and self._styled and _HEADING.match(word):
            self._is_bold = True
            return self._after_space(_BOLD + word, len(word))
        shown, bare = self._marked(word) if self._styled else (word, word)
        cells = cell_len(bare)
        if self._column > self._indent and self._column + cell_len(self._space) + cells > self._width:
            self._space, self._column = "", self._indent
            return f"\n{' ' * self._indent}{self._after_space(shown, cells)}"
        return self._after_space(shown, cells)

    def _after_space(self, shown: str, cells: int) -> str:
        space, self._space = self._space, ""
        self._column += cell_len(space) + cells
        return space + shown

    def _marked(self, word: str) -> tuple[str, str]:
        """Return a word with its `**` made bold, and the same without any marks."""

        def switch(match: re.Match[str]) -> str:
            opens = not self._is_bold
            if opens and match[0] == word and self._space:  # `2 ** 3`
                return match[0]
            self._is_bold = opens
            return match[0].replace("**", _BOLD if opens else _NORMAL)

        shown = _MARKED.sub(switch, word)
        return shown, shown.replace(_BOLD, "").replace(_NORMAL, "")


def wrapped(text: str, width: int, indent: int = 0) -> str:
    """Break a whole text between words.

    Args:
        text: without escapes.
        width: cells of a line.
        indent: cells that stand before every line, the first excepted: its label.
    """
    rows = []
    for line in text.split("\n"):
        wrapping = Wrapping(width - indent)
        rows += (wrapping.feed(line) + wrapping.close()).split("\n")
    return ("\n" + " " * indent).join(rows)
