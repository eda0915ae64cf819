"""A declared sibling's opener inside a value: text, or the beginning of that sibling because the value's closer is missing?

Everything after the opener is held until one more closer than openers has come (then the pairs balance, the opener was text and
that closer is the value's own), or until the call ends (then reading it as text would leave the value unclosed, so it begins the
sibling). Cost: one step a token, and one pass over what is held.
"""

import enum
from collections import Counter

from .scanner import Token

__all__ = ["Fork", "Verdict"]

_AFTER_CALL = frozenset({"call_open", "block_open", "block_close"})


class Verdict(enum.Enum):
    """What the opener was."""

    TEXT = "text of the value"
    SIBLING = "the next parameter"


class Fork:
    """The tokens from a doubtful opener on.

    Args:
        opener: the sibling's opening tag.
        value: the opening tag of the value that it stands in.
        call: the opening tag of the call.
        wrapped: whether the call stands in a wrapper, so that a `</invoke>` counts only before what may follow a call.
    """

    def __init__(self, opener: Token, *, value: Token, call: Token, wrapped: bool) -> None:
        self.held = [opener]
        self._value = value
        self._call = call
        self._wrapped = wrapped
        self._open = Counter({opener.pair: 1})
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
        if token.pair and token.kind.endswith("_close"):
            return self._close(token)
        if token.pair:
            self._open[token.pair] += 1
        self.held.append(token)
        return None

    def _close(self, token: Token) -> Verdict | None:
        if self._open[token.pair]:
            self._open[token.pair] -= 1
            self.held.append(token)
            return None
        ends_call = token.pair == self._call.pair
        if token.pair == "block" or (ends_call and not self._wrapped):
            return Verdict.SIBLING
        self.held.append(token)
        self._call_may_have_ended = ends_call
        return Verdict.TEXT if token.pair == self._value.pair else None

    def unclosed(self) -> set[int]:
        """Return the offsets of the parameter openers that no closer balances."""
        openers: dict[str, list[int]] = {}
        for token in self.held:
            if token.kind == "parameter_open":
                openers.setdefault(token.pair, []).append(token.start)
            elif token.kind == "parameter_close" and openers.get(token.pair):
                openers[token.pair].pop()
        return {offset for offsets in openers.values() for offset in offsets}
