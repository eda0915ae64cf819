r"""Patterns of schemas as expressions: those that need no look at what stands around them.

What is read: characters, classes, `.`, `\d`, `\w`, `\s` as ECMA-262 has them, groups, alternatives, and counts. What is not
(looks ahead and behind, back references, `\p{...}`, anchors inside, long counts) makes the whole pattern unknown, and the caller
loosens the value. A pattern that is not anchored may stand anywhere in the text.
"""

from typing import Final

from .expressions import (
    NO_CHARACTER,
    Characters,
    Expression,
    both,
    characters,
    choice,
    complement,
    repeat,
    sequence,
    without,
)

__all__ = ["FORMATS", "MOST_TIMES", "expression_of"]

MOST_TIMES: Final = 64  # what is counted in a pattern, a string or an array
LONGEST: Final = 1_000  # characters of a pattern
DEEPEST: Final = 20  # levels of groups

_DAY: Final = r"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_BYTE: Final = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_CLOCK: Final = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_DATE: Final = rf"([1-9]\d\d\d-{_DAY}|[1-9]\d(0[48]|[2468][048]|[13579][26])-02-29)"

FORMATS: Final = {
    "date": f"^{_DATE}$",
    "time": f"^{_CLOCK}$",
    "date-time": rf"^{_DATE}T{_CLOCK}(\.\d{{1,6}})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv4": rf"^{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}$",
    "email": r"^[^@\s]+@[^@\s]+$",
}
"""Format of JSON Schema -> what it admits here; a date's year has four digits, and a leap day none in a century's year."""

_DIGITS: Final = characters(("0", "9"))
_WORD: Final = characters(("0", "9"), ("a", "z"), ("A", "Z"), "_")
_SPACE: Final = characters(" \t\n\r\f\v\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff", ("\u2000", "\u200a"))
_CLASSES: Final = {
    "d": _DIGITS,
    "D": complement(_DIGITS),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": complement(_SPACE),
}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_NO_LITERAL: Final = frozenset("()[]{}?*+|^$")


class _Unknown(Exception):
    """The pattern has something that is not read here."""


def expression_of(pattern: str, plain: Characters) -> Expression | None:
    """Return the texts that a pattern fits.

    Args:
        pattern: of a schema.
        plain: the characters that the text may have.

    Returns:
        None where the pattern has something that is not read here, or needs other characters.
    """
    if len(pattern) > LONGEST:
        return None
    body = pattern.removeprefix("^")
    is_end = body.endswith("$") and (len(body) - len(body[:-1].rstrip("\\"))) % 2 == 1
    body, anything = body[:-1] if is_end else body, repeat(plain)
    reader = _Reader(body, plain)
    try:
        found = reader.alternatives(0)
        if reader.at < len(body) or ((is_end or pattern != body) and reader.has_bare_alternatives):
            return None
    except _Unknown:
        return None
    return sequence("" if pattern.startswith("^") else anything, found, "" if is_end else anything)


class _Reader:
    """A pattern while it is read, by recursive descent."""

    def __init__(self, pattern: str, plain: Characters) -> None:
        self.at = 0
        self.has_bare_alternatives = False  # `^a|b$` anchors each of them at one end only
        self._pattern = pattern
        self._plain = plain

    def alternatives(self, depth: int) -> Expression:
        """Read alternatives up to the end of their group."""
        if depth > DEEPEST:
            raise _Unknown
        options = [self._parts(depth)]
        while self._takes("|"):
            self.has_bare_alternatives = self.has_bare_alternatives or not depth
            options.append(self._parts(depth))
        return choice(*options)

    def _parts(self, depth: int) -> Expression:
        parts: list[Expression] = []
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            parts.append(self._counted(self._one(depth)))
        return sequence(*parts)

    def _takes(self, text: str) -> bool:
        found = self._pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def _next(self) -> str:
        if self.at == len(self._pattern):
            raise _Unknown
        self.at += 1
        return self._pattern[self.at - 1]

    def _one(self, depth: int) -> Expression:
        if self._takes("("):
            if self._pattern.startswith("?", self.at) and not self._takes("?:"):
                raise _Unknown
            inner = self.alternatives(depth + 1)
            if not self._takes(")"):
                raise _Unknown
            return inner
        return self._usable(self._class())

    def _usable(self, these: Characters) -> Characters:
        """Return those that the text may have; a pattern that needs another one is not read here."""
        found = both(these, self._plain)
        if found == NO_CHARACTER:
            raise _Unknown
        return found

    def _class(self) -> Characters:
        if self._takes("["):
            return self._listed()
        if self._takes("."):
            return complement(characters("\n\r\u2028\u2029"))
        character = self._next()
        if character == "\\":
            return self._escaped()
        if character in _NO_LITERAL:
            raise _Unknown
        return characters(character)

    def _escaped(self) -> Characters:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            return characters(_CONTROLS[character])
        if character in "xu":
            digits = "".join(self._next() for _ in range(2 if character == "x" else 4))
            if not all(each in "0123456789abcdefABCDEF" for each in digits):
                raise _Unknown
            return characters(chr(int(digits, 16)))
        if character.isalnum():
            raise _Unknown
        return characters(character)

    def _listed(self) -> Characters:
        is_rest, found = self._takes("^"), NO_CHARACTER
        while not self._takes("]"):
            first = self._member()
            if self._pattern.startswith("-", self.at) and not self._pattern.startswith("-]", self.at):
                self.at += 1
                first = _between(first, self._member())
            found = complement(without(complement(found), first))
        return complement(found) if is_rest else found

    def _member(self) -> Characters:
        character = self._next()
        if character == "[" or (character == "&" and self._pattern.startswith("&", self.at)):  # sets inside sets
            raise _Unknown
        return self._escaped() if character == "\\" else characters(character)

    def _counted(self, part: Expression) -> Expression:
        for mark, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._takes(mark):
                return self._checked(repeat(part, least, most))
        if self._takes("{"):
            end = self._pattern.find("}", self.at)
            low, comma, high = self._pattern[self.at : max(end, self.at)].partition(",")
            self.at = end + 1
            if end < 0 or not _is_count(low) or not (_is_count(high) or not high):
                raise _Unknown
            most = int(high) if high else None if comma else int(low)
            if most is not None and most < int(low):
                raise _Unknown
            return self._checked(repeat(part, int(low), most))
        return part

    def _checked(self, counted: Expression) -> Expression:
        """Refuse a count of a count, such as `a+?`: it says how greedy it is, or is a mistake."""
        if self.at < len(self._pattern) and self._pattern[self.at] in "*+?{":
            raise _Unknown
        return counted


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MOST_TIMES


def _between(first: Characters, last: Characters) -> Characters:
    (low, _), (high, _) = first.ranges[0], last.ranges[0]
    if (
        len(first.ranges) != 1
        or len(last.ranges) != 1
        or (low, low) != first.ranges[0]
        or (high, high) != last.ranges[0]
        or high < low
    ):
        raise _Unknown
    return characters((chr(low), chr(high)))
