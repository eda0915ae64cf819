"""Finds where a value of brackets ends, while it is still being written: JSON, Python, or Gemma's objects.

Strings are skipped. A bracket counts whatever its kind, because what is wrong inside is said by whoever reads the value; here it
only has to be found. Cost: one search for the next special character, whatever lies between.
"""

from collections.abc import Mapping
from typing import Final

import regex

from ..dialects import Body
from .scanner import Token

__all__ = ["Extent"]

_JSON: Final = regex.compile(r'["\\{}\[\]]')
_PYTHON: Final = regex.compile(r"[\"'\\{}\[\]()#\n]")
_GEMMA: Final = regex.compile(r"[\"'\\{}\[\]()]")
_SPECIAL: Final[Mapping[Body, "regex.Pattern[str]"]] = {Body.PYTHON: _PYTHON, Body.LINES: _PYTHON, Body.GEMMA: _GEMMA}
_OPENING: Final = "{[("
_BEGIN: Final = frozenset("{[(,:=")  # before a value


class Extent:
    """Counts brackets.

    Attributes:
        done: the value has ended.
        depth: brackets that are open.
        in_string: how the open string ends; "" outside of strings.
    """

    def __init__(self, body: Body = Body.JSON) -> None:
        self.in_string = ""
        self.done = False
        self.depth = 0
        self._special = _SPECIAL.get(body, _JSON)
        self._goes_on = body is Body.LINES  # until its wrapper ends
        self._raw_marks = body is Body.GEMMA
        self._is_round = False  # parentheses stand around all of it, and count
        self._last = ""  # the last character that is no white space
        self._in_comment = False
        self._escaped = False  # the next character belongs to an escape

    def feed(self, token: Token) -> int:
        """Read a piece; return how much of it belongs to the value."""
        if token.kind == "quote" and not self._in_comment and self._marks(token.text):
            return len(token.text)
        return self.text(token.text)

    def _marks(self, mark: str) -> bool:
        """Read what may begin or end a string; say whether it does."""
        if self._escaped or self.in_string not in ("", mark):
            return False
        self.in_string = "" if self.in_string else mark
        return True

    def text(self, text: str) -> int:
        """Read text without marks; return how much of it belongs to the value."""
        skip = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        for match in self._special.finditer(text, skip):
            if match.start() < skip:
                continue
            found = match.group()
            if self._in_comment or found in "#\n":
                self._in_comment = not self.in_string and (found == "#" or (self._in_comment and found != "\n"))
            elif found == "\\":
                escapes = self.in_string and not (self._raw_marks and len(self.in_string) > 1)
                skip = match.end() + 1 if escapes else skip
            elif found in "\"'":
                if found == self.in_string or not self._raw_marks or found == '"' or self._before(text, match.start()) in _BEGIN:
                    self._quote(found)
            elif not self.in_string and self._count(found):
                return match.end()
        self._escaped = self._escaped or skip > len(text)
        self._last = self._before(text, len(text)) if self._raw_marks else ""
        return len(text)

    def _before(self, text: str, end: int) -> str:
        """Return the last character before a place that is no white space: an apostrophe in a word begins no string."""
        while end and text[end - 1].isspace():
            end -= 1
        return text[end - 1] if end else self._last

    def _quote(self, quote: str) -> None:
        if not self.in_string:
            self.in_string = quote
        elif self.in_string == quote:
            self.in_string = ""

    def _count(self, bracket: str) -> bool:
        if self._raw_marks and bracket in "()":
            self._is_round = self._is_round or not self.depth
            if not self._is_round:
                return False
        self.depth += 1 if bracket in _OPENING else -1
        self.done = self.depth <= 0 and not self._goes_on
        return self.done
