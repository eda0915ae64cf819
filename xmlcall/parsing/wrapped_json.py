"""A call written as JSON in a wrapper: `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`.

Whether it is a call is known when it has ended, because the name may stand anywhere in it; until then its tokens are held. The
wrapper's closer ends it unless it stands in a JSON string. Where the reply ends inside a string (a quote was not escaped), the
first closer is taken after all, and from then on closers in strings count, so that no text is held twice: the cost is linear.
"""

from ..dialects import Dialect
from ..loosejson.extent import Extent
from ..types.calls import RawCall
from .json_call import calls_of
from .scanner import Mode, Token

__all__ = ["JsonReader"]


class JsonReader:
    """Reads one call.

    Args:
        index: the call's number in the reply.
        dialect: the wire format.
        plain_closers: the wrapper's closer ends the call even in a string.
    """

    mode = Mode.VALUE

    def __init__(self, *, index: int, dialect: Dialect, plain_closers: bool = False) -> None:
        self.body: list[Token] = []
        self.space: list[Token] = []  # between the JSON and the closer
        self.closer: Token | None = None
        self.fell_back = False
        self._index = index
        self._dialect = dialect
        self._plain_closers = plain_closers
        self._extent = Extent()
        self._first_closer: int | None = None
        self._truncated = False

    def take(self, token: Token) -> list[Token] | None:
        """Read a token; return None while the call goes on, else the tokens after it."""
        if token.kind == "block_close":
            if not self._extent.in_string or self._plain_closers:
                self.closer = token
                return []
            self._first_closer = len(self.body) if self._first_closer is None else self._first_closer
        if self._extent.done:
            return self._after(token)
        used = self._extent.feed(token.text)
        self.body.append(token if used == len(token.text) else Token("text", token.text[:used], token.start))
        rest = Token("text", token.text[used:], token.start + used)
        return self._after(rest) if rest.text else None

    def _after(self, token: Token) -> list[Token] | None:
        """Behind the JSON only white space may stand before the closer, and closing brackets too many."""
        blank = len(token.text) - len(token.text.lstrip(" \t\r\n}]"))
        if blank:
            self.space.append(Token("text", token.text[:blank], token.start))
        return [Token(token.kind, token.text[blank:], token.start + blank)] if blank < len(token.text) else None

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """End the call at the end of the reply; return the tokens that are still to be read."""
        if self._extent.done:
            return []
        if self._first_closer is None:
            self._truncated = True
            return []
        at, tokens = self._first_closer, self.body
        self.body, self.closer, self.fell_back = tokens[:at], tokens[at], True
        return tokens[at + 1 :]

    def tokens(self) -> list[Token]:
        """Return everything that was read."""
        return [*self.body, *self.space, *([self.closer] if self.closer else [])]

    def calls(self) -> list[RawCall]:
        """Return the call as written, or all of them if the wrapper holds an array."""
        text = "".join(part.text for part in self.body)
        start = self.body[0].start
        span = (start, start + len(text))
        return calls_of(text, span, index=self._index, dialect=self._dialect.name, complete=not self._truncated)
