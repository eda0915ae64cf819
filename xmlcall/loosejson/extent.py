"""Where a JSON value ends, in pieces of text: by brackets outside of strings."""

import regex

__all__ = ["Extent"]

_SPECIAL = regex.compile(r'["\\{}\[\]]')


class Extent:
    """Finds the end of a JSON object or array. Strings stand in double quotes; a bracket in other quotes counts."""

    def __init__(self) -> None:
        self.in_string = False
        self.done = False
        self.depth = 0
        self._escaped = False  # the next character belongs to an escape

    def feed(self, text: str) -> int:
        """Read a piece; return how much of it belongs to the value."""
        skip = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        for match in _SPECIAL.finditer(text, skip):
            if match.start() < skip:
                continue
            mark = match.group()
            if mark == "\\":
                skip = match.end() + 1 if self.in_string else skip
            elif mark == '"':
                self.in_string = not self.in_string
            elif not self.in_string and self._count(mark):
                return match.end()
        self._escaped = self._escaped or skip > len(text)
        return len(text)

    def _count(self, bracket: str) -> bool:
        self.depth += 1 if bracket in "{[" else -1
        self.done = self.depth <= 0
        return self.done
