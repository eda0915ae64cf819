"""Where the value of a parameter ends, and what waits until that is known.

Values are raw text and may hold markup themselves. The rules (docs/design.md, section 4) look at the token that follows, white
space aside:

* `</parameter>` ends the value before a parameter's opener, the call's end or the reply's end; else it is text.
* `</invoke>` ends the call before another call, the wrapper's end or the reply's end, or where no wrapper was opened; else text.
* Inner pairs that balance are text. A declared sibling's opener that was not given yet is held (FORK) until it is known whether
  reading it as text would leave the parameter unclosed; if so it begins that sibling.
* Where a value ended without its closing tag although it holds structural tags, where a closer was doubled, or where an
  undeclared opener followed a closer, two readings differ: the call gets the issue `ambiguous`, and never runs.
* A parameter's opener may also be an element of its name (`<content>`). In a value that `<parameter>` began, such elements are
  text; in a value that an element began, only a closer of the same name ends it.

Tokens whose meaning is open wait in `_pending` or in a Fork; everything else is emitted at once. When a fork is decided, its
tokens are read again with the knowledge of which openers have closers, so that none is held twice: the cost is linear.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from ..dialects import Dialect, is_escaped
from ..tools.names import match_name
from ..types.events import Event, Markup
from .call_builder import CallDraft
from .scanner import Token
from .states import CallState
from .value_end import Fork, Verdict
from .value_text import Value

__all__ = ["ValueReader"]

_CLOSER_NAMES = frozenset({"param", "parameter", "parameters", "params"})  # in lower case; models write all of them


class ValueReader(ABC):
    """The methods of `CALL_TABLE` for what stands in a value or waits after it.

    Args:
        index: the call's number in the reply.
        opener: its opening tag.
        dialect: the wire format.
        declared: the tool's parameter names; None if any name is possible.
        wrapped: whether a wrapper was opened around it.
        emit: where events go.
    """

    def __init__(
        self,
        *,
        index: int,
        opener: Token,
        dialect: Dialect,
        declared: frozenset[str] | None,
        wrapped: bool,
        emit: Callable[[Event], None],
    ) -> None:
        self._index = index
        self._declared = declared
        self._wrapped = wrapped
        self._emit = emit
        self._draft = CallDraft(index=index, opener=opener, dialect=dialect, declared=declared, emit=emit)
        self._state = CallState.CALL
        self._queue: deque[Token] = deque()
        self._pending: list[Token] = []
        self._value: Value
        self._unclosed: set[int] | None = None  # once a fork is decided: openers (by offset) without a closer
        self._fork: Fork
        self._dropping = False  # text stands between two parameters
        self._between_text: list[str] = []
        self._source: list[str] = []  # the texts of the tokens after the opener
        self._cut = False
        self._done = False

    def _open(self, token: Token) -> None:
        self._value = Value(index=self._index, opener=token, dialect=self._draft.dialect, emit=self._emit)
        self._draft.check_style(token)
        self._state = CallState.VALUE
        self._dropping = False
        if token.text.endswith("/>"):
            self._store()

    def _open_body(self, token: Token) -> None:
        self._value = Value(index=self._index, opener=token, dialect=self._draft.dialect, emit=self._emit)
        self._state = CallState.VALUE

    def _store(self, *, has_closer: bool = True) -> None:
        argument = self._value.close(has_closer=has_closer)
        if self._draft.dialect.open_entities and not self._value.verbatim and is_escaped(argument.text):
            self._draft.doubt_entities(self._value)
        if self._value.is_body:
            self._draft.keep_body(argument)
        else:
            self._draft.keep(argument)
        self._state = CallState.CALL

    def _store_unclosed(self, offset: int) -> None:
        if self._value.opener.text:
            self._draft.repair("unclosed-parameter", (offset, offset))
            if self._value.tags:
                self._draft.doubt_end(self._value)
        self._store(has_closer=False)

    def _text(self, token: Token) -> None:
        self._value.add(token)

    def _count(self, token: Token) -> None:
        self._value.count(token)

    def _balances(self, token: Token) -> bool:
        """Read a closer as text if an inner opener of its kind is open."""
        if not self._value.open[token.pair]:
            return False
        self._value.count(token)
        return True

    def _other_tag_in_value(self, token: Token) -> None:
        """Hold `</content>` for the parameter `content`, in any case, and misspellings of `</parameter>`; all else is text."""
        name = token.text.strip("</> \t\r\n").lower()
        if name == self._value.name.lower() or (name in _CLOSER_NAMES and not self._value.is_body):
            self._hold(token, CallState.WRONG_CLOSER)
        else:
            self._value.add(token)

    def _opener_after_wrong_closer(self, token: Token) -> None:
        name, closer = token.attributes["name"], self._pending[0]
        is_again = name == self._value.name and closer.text.startswith("</")  # given twice, which binding reports
        if (is_again or self._is_new_sibling(name)) and (not _is_element(token) or _is_element(self._value.opener)):
            self._close_value(token)
        else:
            self._pending_is_text(token)

    def _opener_after_closer(self, token: Token) -> None:
        """After `</parameter>` an element counts only if it is a parameter that was not given yet: it may well be the value's."""
        if _is_element(token) and not _is_element(self._value.opener) and not self._is_new_sibling(token.attributes["name"]):
            self._pending_is_text(token)
        else:
            self._close_value(token)

    def _is_new_sibling(self, name: str) -> bool:
        declared = self._declared is None or name in self._declared
        return declared and name not in self._draft.names and name != self._value.name

    def _opener_in_value(self, token: Token) -> None:
        value = self._value
        if value.is_body or (_is_element(token) and not _is_element(value.opener)):
            value.add(Token("text", token.text, token.start))
        elif token.attributes["name"] == value.name and not value.open_parameters:
            self._hold(token, CallState.WRONG_CLOSER)
        elif not self._is_new_sibling(token.attributes["name"]) or value.open_parameters:
            self._count(token)
        elif self._unclosed is None:
            self._fork = Fork(token, value=value.opener, call=self._draft.opener, wrapped=self._wrapped)
            self._state = CallState.FORK
        elif value.opener.start in self._unclosed:
            self._store_unclosed(token.start)
            self._open(token)
        else:
            self._count(token)

    def _closer_in_value(self, token: Token) -> None:
        own = self._value.opener.pair
        if self._balances(token):
            return
        if token.pair == own:
            self._hold(token, CallState.CLOSER)
        elif own:
            self._other_tag_in_value(token)
        else:
            self._value.add(token)

    def _call_close_in_value(self, token: Token) -> None:
        if self._balances(token):
            return
        if token.pair == self._draft.opener.pair:
            self._hold_call_close(token)
        else:
            self._value.add(token)

    def _block_close_in_value(self, token: Token) -> None:
        if not self._balances(token):
            self._hold(token, CallState.BLOCK_CLOSE)

    def _cdata_in_value(self, token: Token) -> None:
        if self._state is CallState.CDATA_END or self._value.blank:
            self._value.begin_cdata(token)
            self._state = CallState.CDATA
        else:
            self._value.add(token)

    def _end_cdata(self, token: Token) -> None:
        self._value.end_cdata(token)
        self._state = CallState.CDATA_END

    def _after_cdata(self, token: Token) -> None:
        blank = len(token.text) - len(token.text.lstrip())
        self._value.skip(blank)
        if blank < len(token.text):
            self._text_after_cdata(Token("text", token.text[blank:], token.start + blank))

    def _text_after_cdata(self, token: Token) -> None:
        """A section followed by more: was the section markup or part of the value?"""
        self._draft.doubt(self._value, "the value is the CDATA section alone", "the section's markup is part of a longer value")
        self._state = CallState.VALUE
        self._queue.appendleft(token)

    # Tokens that wait.

    def _hold(self, token: Token, state: CallState | None = None) -> None:
        self._pending.append(token)
        self._state = state or self._state

    def _hold_closer(self, token: Token) -> None:
        self._hold(token, CallState.CLOSER)

    def _pending_is_text(self, token: Token) -> None:
        if self._value.verbatim:
            self._draft.doubt(self._value, "the value is the CDATA section alone", "the section is part of a longer value")
        for held in self._pending:
            (self._value.count if held.kind == "parameter_open" else self._value.add)(held)
        self._pending = []
        self._state = CallState.VALUE
        self._queue.appendleft(token)

    def _hold_call_close(self, token: Token) -> None:
        self._hold(token, CallState.CALL_CLOSE)
        if not self._wrapped:
            self._end_pending()

    def _close_value(self, token: Token) -> None:
        """The held closer was structural: `token` is not part of the value."""
        self._release_closer()
        self._queue.appendleft(token)
        name = token.attributes.get("name") if token.kind == "parameter_open" else None
        if name is None or self._declared is None or name in self._declared:
            return
        if match_name(name, self._declared - self._draft.names) is None:
            self._draft.doubt_name(self._value, name)

    def _release_closer(self) -> None:
        closer, *after = self._pending
        if closer.kind != "parameter_close" or closer.pair != self._value.opener.pair:
            self._draft.wrong_closer(self._value, closer)
        else:
            self._draft.check_closer(closer)
        self._store()
        self._emit(Markup(kind="parameter_close", span=closer.span))
        for held in after:
            self._emit(Markup(kind="space" if held.kind == "text" else "stray", span=held.span))
        if any(held.kind == "parameter_close" for held in after):
            self._draft.doubt(self._value, "the value ends at the first closing tag", "the value holds the first closing tag")
        self._pending = []
        self._state = CallState.CALL

    def _end_pending(self, *following: Token) -> None:
        """The held `</invoke>` was structural; what was held after it, and what follows, are not part of the call."""
        at = next(place for place, held in enumerate(self._pending) if held.kind == "call_close")
        closer, after = self._pending[at], self._pending[at + 1 :]
        self._pending = self._pending[:at]
        if self._pending:
            self._release_closer()
        else:
            self._store_unclosed(closer.start)
        self._queue.extendleft(reversed([*after, *following]))
        self._end_here(closer)

    # A sibling's opener that may be text.

    def _in_fork(self, token: Token) -> None:
        verdict = self._fork.take(token)
        if verdict is Verdict.TEXT:
            *inner, closer = self._fork.held
            for held in inner:
                self._value.add(held)
            self._hold(closer, CallState.CLOSER)
        elif verdict is Verdict.SIBLING:
            self._unclosed = {*self._fork.unclosed(), self._value.opener.start}
            self._queue.extendleft(reversed([*self._fork.held, token]))
            self._state = CallState.VALUE

    @abstractmethod
    def _end_here(self, token: Token) -> None:
        """End the call at its closing tag."""


def _is_element(token: Token) -> bool:
    """Say whether a tag has the name of a parameter as its own: `<content>`."""
    return " " in token.pair
