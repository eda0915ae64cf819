"""One call's body: the tokens after its opening tag -> events and, at its end, a RawCall.

Between parameters stand white space, their tags, or one JSON object with all arguments; all else is dropped, and is an issue.
How a value is read and ended is in `value_reader.py`; the transitions of both are `CALL_TABLE` of `states.py`.
"""

from ..types.events import Markup
from .scanner import Mode, Token
from .states import CALL_OTHERWISE, CALL_TABLE, CallState
from .value_reader import ValueReader

__all__ = ["CallReader"]

# White space waits with what waits.
_WAITING = frozenset({CallState.CLOSER, CallState.WRONG_CLOSER, CallState.CALL_CLOSE, CallState.BLOCK_CLOSE})


class CallReader(ValueReader):
    """Reads one call: made like a ValueReader, fed with `take` and ended with `finish`."""

    @property
    def mode(self) -> Mode:
        """What the scanner should look for next."""
        return Mode.CDATA if self._state is CallState.CDATA else Mode.VALUE

    def take(self, token: Token) -> list[Token] | None:
        """Read a token.

        Returns:
            None while the call goes on; once it has ended, the tokens after it, still to be read.
        """
        self._source.append(token.text)
        self._queue.append(token)
        while self._queue and not self._done:
            self._step(self._queue.popleft())
        if self._done:
            return list(self._queue)
        self._unclosed = None
        return None

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """End the call at the end of the reply.

        Args:
            offset: length of the reply.
            cut: whether the reply was cut, so that an open call must not run.

        Returns:
            The tokens after the call, still to be read.
        """
        self._cut = cut
        rest = self.take(Token("end", "", offset)) or []
        return [token for token in rest if token.kind != "end"]

    def self_closing(self) -> bool:
        """End the call at once if its opening tag ends in `/>`; say whether."""
        if self._draft.opener.text.endswith("/>"):
            self._finish(self._draft.opener.end, self._draft.opener.end)
        return self._done

    def _step(self, token: Token) -> None:
        if self._state in _WAITING and token.kind == "text" and not token.text.strip():
            self._pending.append(token)
            return
        method = CALL_TABLE.get((self._state, token.kind)) or CALL_OTHERWISE[self._state]
        getattr(self, method)(token)

    # Between parameters.

    def _between(self, token: Token) -> None:
        blank = 0 if self._dropping else len(token.text) - len(token.text.lstrip())
        middle = token.start + blank
        if blank:
            self._emit(Markup(kind="space", span=(token.start, middle)))
        if token.text.startswith("{", blank) and not self._dropping and not self._draft.given:
            self._open_body(Token("body_open", "", middle))
            self._text(Token("text", token.text[blank:], middle))
        elif middle < token.end:
            self._dropping = True
            self._between_text.append(token.text[blank:])
            self._emit(Markup(kind="dropped", span=(middle, token.end)))

    def _stray(self, token: Token) -> None:
        self._emit(Markup(kind="stray", span=token.span))
        self._draft.repair("stray-tag", token.span)

    def _list_close(self, token: Token) -> None:
        self._emit(Markup(kind="block_close", span=token.span))

    def _repeated_block(self, token: Token) -> None:
        self._emit(Markup(kind="block_open", span=token.span))
        self._draft.repair("repeated-block", token.span)

    # Ends.

    def _truncate(self, token: Token) -> None:
        """The reply ends in a value; a body may be complete all the same."""
        whole = not self._pending and not self._cut
        for held in self._pending:
            self._value.add(held)
        self._pending = []
        if not self._value.is_body:
            self._store()
            self._draft.truncated(f"the value of {self._value.name!r} has no end")
        else:
            body = self._value.close()
            if whole and self._draft.keep_body(body, closed=False):
                self._draft.repair("unclosed-call", token.span)
            else:
                self._draft.truncated("the arguments have no end")
        self._finish(token.start, token.start)

    def _end_here(self, token: Token) -> None:
        if token.pair != self._draft.opener.pair:
            self._draft.repair("wrong-closer", token.span)
        self._finish(token.start, token.end)

    def _end_unclosed(self, token: Token) -> None:
        if self._draft.given and not (self._cut and token.kind == "end"):
            self._draft.repair("unclosed-call", (token.start, token.start))
        else:
            self._draft.truncated("the call has no end")
        if token.kind != "end":
            self._queue.appendleft(token)
        self._finish(token.start, token.start)

    def _finish(self, start: int, end: int) -> None:
        self._draft.end(self._source, "".join(self._between_text).strip(), (start, end))
        self._done = True
