"""A declared sibling's opener inside a value: text, or the beginning of that sibling because the value's closer is missing?

Everything after the opener is held until one more closer than openers has come (then the pairs balance, the opener was text and
that closer is the value's own), or until the call ends (then reading it as text would leave the value unclosed, so it begins the
sibling). Cost: one step a token, and one pass over what is held.
"""

import enum

from .scanner import Token

__all__ = ["Fork", "Verdict"]

_OPENS = {"parameter_open": "parameter", "call_open": "call", "block_open": "block"}
_CLOSES = {"parameter_close": "parameter", "call_close": "call", "block_close": "block"}
_AFTER_CALL = frozenset({"call_open", "block_open", "block_close"})


class Verdict(enum.Enum):
    """What the opener was."""

    TEXT = "text of the value"
    SIBLING = "the next parameter"


class Fork:
    """The tokens from a doubtful opener on.

    Args:
        opener: the sibling's opening tag.
        wrapped: whether the call stands in a wrapper, so that a `</invoke>` counts only before what may follow a call.
    """

    def __init__(self, opener: Token, *, wrapped: bool) -> None:
        self.held = [opener]
        self._wrapped = wrapped
        self._open = {"parameter": 1, "call": 0, "block": 0}
        self._call_may_have_ended = False

    def take(self, token: Token) -> Verdict | None:
        """Read a token.

        Returns:
            TEXT: the token, held as the last, is the value's own closer. SIBLING: the token ended the call and is not held, but a
            `</invoke>` before it may be. None: not decided, the token is held.
        """
        if token.kind == "end" or (self._call_may_have_ended and token.kind in _AFTER_CALL):
            return Verdict.SIBLING
        if token.text.strip():
            self._call_may_have_ended = False
        if token.kind in _CLOSES:
            return self._close(token)
        if token.kind in _OPENS:
            self._open[_OPENS[token.kind]] += 1
        self.held.append(token)
        return None

    def _close(self, token: Token) -> Verdict | None:
        part = _CLOSES[token.kind]
        if not self._open[part]:
            if part == "block" or (part == "call" and not self._wrapped):
                return Verdict.SIBLING
            self.held.append(token)
            self._call_may_have_ended = part == "call"
            return Verdict.TEXT if part == "parameter" else None
        self._open[part] -= 1
        self.held.append(token)
        return None

    def unclosed(self) -> set[int]:
        """Return the offsets of the parameter openers that no closer balances."""
        openers: list[int] = []
        for token in self.held:
            if token.kind == "parameter_open":
                openers.append(token.start)
            elif token.kind == "parameter_close" and openers:
                openers.pop()
        return set(openers)
