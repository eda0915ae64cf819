"""One call's body: the tokens after its opening tag -> events and, at its end, a RawCall.

The difficulty is where a value ends, because values are raw text and may hold markup themselves. The rules (docs/design.md,
section 4) look at the token that follows, white space aside:

* `</parameter>` ends the value before a parameter's opener, the call's end or the reply's end; else it is text.
* `</invoke>` ends the call before another call, the wrapper's end or the reply's end, or where no wrapper was opened; else text.
* Inner pairs that balance are text. A declared sibling's opener that was not given yet is held (FORK) until it is known whether
  reading it as text would leave the parameter unclosed; if so it begins that sibling.
* Where a value ended without its closing tag although it holds structural tags, where a closer was doubled, or where an
  undeclared opener followed a closer, two readings differ: the call gets the issue `ambiguous`, and never runs.

Tokens whose meaning is open wait in `_pending`; everything else is emitted at once. When a fork is decided, one pass matches its
openers with its closers and its tokens are read again with that knowledge, so that none is held twice: the cost is linear.
"""

import enum
from collections import deque
from collections.abc import Callable

from .events import Event, Markup, Repaired, ToolCallEnd, ToolCallStart
from .scanner import Mode, Token
from .types import Issue, RawArgument, RawCall, Repair
from .value import Value

__all__ = ["CallReader"]


class State(enum.Enum):
    """Where in a call's body the next token stands."""

    CALL = "between parameters"
    VALUE = "in a value"
    CDATA = "in a CDATA section"
    CDATA_END = "after a CDATA section"
    CLOSER = "after a </parameter> that may be text"
    CALL_CLOSE = "after a </invoke> that may be text"
    BLOCK_CLOSE = "after a </function_calls> in an open value"
    FORK = "after a sibling's opener that may be text"


# (state, token kind) -> method; what is missing falls to the state's row of _OTHERWISE.
_TABLE = {
    (State.CALL, "text"): "_between",
    (State.CALL, "parameter_open"): "_open",
    (State.CALL, "parameter_close"): "_stray",
    (State.CALL, "call_close"): "_end_here",
    (State.CALL, "call_open"): "_end_unclosed",
    (State.CALL, "block_open"): "_repeated_block",
    (State.CALL, "block_close"): "_end_unclosed",
    (State.CALL, "end"): "_end_unclosed",
    (State.VALUE, "parameter_open"): "_opener_in_value",
    (State.VALUE, "parameter_close"): "_closer_in_value",
    (State.VALUE, "call_open"): "_count",
    (State.VALUE, "call_close"): "_call_close_in_value",
    (State.VALUE, "block_open"): "_count",
    (State.VALUE, "block_close"): "_block_close_in_value",
    (State.VALUE, "cdata_open"): "_cdata_in_value",
    (State.VALUE, "end"): "_truncate",
    (State.CDATA, "cdata_close"): "_end_cdata",
    (State.CDATA, "end"): "_truncate",
    (State.CDATA_END, "text"): "_after_cdata",
    (State.CDATA_END, "cdata_open"): "_cdata_in_value",
    (State.CDATA_END, "parameter_close"): "_hold_closer",
    (State.CDATA_END, "end"): "_truncate",
    (State.CLOSER, "parameter_open"): "_close_value",
    (State.CLOSER, "parameter_close"): "_hold",
    (State.CLOSER, "call_close"): "_call_close_after_closer",
    (State.CLOSER, "call_open"): "_close_value",
    (State.CLOSER, "block_close"): "_close_value",
    (State.CLOSER, "end"): "_close_value",
    (State.CALL_CLOSE, "call_open"): "_end_pending",
    (State.CALL_CLOSE, "block_open"): "_end_pending",
    (State.CALL_CLOSE, "block_close"): "_end_pending",
    (State.CALL_CLOSE, "end"): "_end_pending",
    (State.BLOCK_CLOSE, "end"): "_truncate",
    (State.FORK, "parameter_open"): "_fork_opens",
    (State.FORK, "parameter_close"): "_fork_closes",
    (State.FORK, "call_open"): "_fork_opens",
    (State.FORK, "call_close"): "_fork_closes",
    (State.FORK, "block_open"): "_fork_opens",
    (State.FORK, "block_close"): "_fork_closes",
    (State.FORK, "end"): "_decide_fork",
}
_OTHERWISE = {
    State.CALL: "_between",
    State.VALUE: "_text",
    State.CDATA: "_text",
    State.CDATA_END: "_text_after_cdata",
    State.CLOSER: "_pending_is_text",
    State.CALL_CLOSE: "_pending_is_text",
    State.BLOCK_CLOSE: "_pending_is_text",
    State.FORK: "_hold_in_fork",
}
_WAITING = frozenset({State.CLOSER, State.CALL_CLOSE, State.BLOCK_CLOSE})  # white space waits with them
_AFTER_CALL = frozenset({"call_open", "block_open", "block_close", "end"})


class CallReader:
    """Reads one call.

    Args:
        index: the call's number in the reply.
        opener: its opening tag.
        declared: the tool's parameter names; None if any name is possible.
        wrapped: whether a wrapper was opened around it.
        emit: where events go.
    """

    def __init__(
        self, *, index: int, opener: Token, declared: frozenset[str] | None, wrapped: bool, emit: Callable[[Event], None]
    ) -> None:
        self._index = index
        self._opener = opener
        self._declared = declared
        self._wrapped = wrapped
        self._emit = emit
        self._state = State.CALL
        self._queue: deque[Token] = deque()
        self._pending: list[Token] = []
        self._value: Value
        self._arguments: list[RawArgument] = []
        self._names: set[str] = set()
        self._unclosed: set[int] | None = None  # once a fork is decided: openers (by offset) without a closer
        self._fork_end: int | None = None  # position in _pending of a </invoke> that may end the call
        self._fork_depth: dict[str, int] = {}
        self._source: list[str] = []
        self._dropping = False  # text stands between two parameters
        self._between_text: list[str] = []
        self._issues: list[Issue] = []
        self._repairs: list[Repair] = []
        self._cut = False
        self._done = False
        emit(ToolCallStart(index=index, name=opener.attributes["name"], span=opener.span))
        self._check_style(opener, {"name"})

    @property
    def mode(self) -> Mode:
        """What the scanner should look for next."""
        return Mode.CDATA if self._state is State.CDATA else Mode.VALUE

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
        if self._opener.text.endswith("/>"):
            self._finish(self._opener.end, self._opener.end)
        return self._done

    def _step(self, token: Token) -> None:
        if self._state in _WAITING and token.kind == "text" and not token.text.strip():
            self._pending.append(token)
            return
        method = _TABLE.get((self._state, token.kind)) or _OTHERWISE[self._state]
        getattr(self, method)(token)

    # Between parameters.

    def _between(self, token: Token) -> None:
        blank = 0 if self._dropping else len(token.text) - len(token.text.lstrip())
        middle = token.start + blank
        if blank:
            self._emit(Markup(kind="space", span=(token.start, middle)))
        if middle < token.end:
            self._dropping = True
            self._between_text.append(token.text[blank:])
            self._emit(Markup(kind="dropped", span=(middle, token.end)))

    def _open(self, token: Token) -> None:
        self._value = Value(index=self._index, opener=token, emit=self._emit)
        self._check_style(token, {"name", "type"})
        self._state = State.VALUE
        self._dropping = False
        if token.text.endswith("/>"):
            self._store()

    def _stray(self, token: Token) -> None:
        self._emit(Markup(kind="stray", span=token.span))
        self._repair("stray-tag", token.span)

    def _repeated_block(self, token: Token) -> None:
        self._emit(Markup(kind="block_open", span=token.span))
        self._repair("repeated-block", token.span)

    # In a value.

    def _text(self, token: Token) -> None:
        self._value.add(token)

    def _count(self, token: Token) -> None:
        self._value.open[_part(token)] += 1
        self._value.add(token)

    def _balances(self, token: Token) -> bool:
        """Read a closer as text if an inner opener of its kind is open."""
        if not self._value.open[_part(token)]:
            return False
        self._value.open[_part(token)] -= 1
        self._value.add(token)
        return True

    def _opener_in_value(self, token: Token) -> None:
        name = token.attributes["name"]
        sibling = (self._declared is None or name in self._declared) and name not in self._names and name != self._value.name
        if not sibling or self._value.open["parameter"]:
            self._count(token)
        elif self._unclosed is None:
            self._fork_depth = {"parameter": 1, "call": 0, "block": 0}
            self._hold(token, State.FORK)
        elif self._value.opener.start in self._unclosed:
            self._store_unclosed(token.start)
            self._open(token)
        else:
            self._count(token)

    def _closer_in_value(self, token: Token) -> None:
        if not self._balances(token):
            self._hold(token, State.CLOSER)

    def _call_close_in_value(self, token: Token) -> None:
        if self._balances(token):
            return
        self._hold(token, State.CALL_CLOSE)
        if not self._wrapped:
            self._end_pending(None)

    def _block_close_in_value(self, token: Token) -> None:
        if not self._balances(token):
            self._hold(token, State.BLOCK_CLOSE)

    def _cdata_in_value(self, token: Token) -> None:
        if self._state is State.CDATA_END or self._value.blank:
            self._value.begin_cdata(token)
            self._state = State.CDATA
        else:
            self._value.add(token)

    def _end_cdata(self, token: Token) -> None:
        self._value.end_cdata(token)
        self._state = State.CDATA_END

    def _after_cdata(self, token: Token) -> None:
        blank = len(token.text) - len(token.text.lstrip())
        self._value.skip(blank)
        if blank < len(token.text):
            self._text_after_cdata(Token("text", token.text[blank:], token.start + blank))

    def _text_after_cdata(self, token: Token) -> None:
        """A section followed by more: was the section markup or part of the value?"""
        self._doubt("the value is the CDATA section alone", "the section's markup is part of a longer value")
        self._state = State.VALUE
        self._queue.appendleft(token)

    # Tokens that wait.

    def _hold(self, token: Token, state: State | None = None) -> None:
        self._pending.append(token)
        self._state = state or self._state

    def _hold_closer(self, token: Token) -> None:
        self._hold(token, State.CLOSER)

    def _pending_is_text(self, token: Token) -> None:
        if self._value.verbatim:
            self._doubt("the value is the CDATA section alone", "the section is part of a longer value")
        for held in self._pending:
            self._value.add(held)
        self._pending = []
        self._state = State.VALUE
        self._queue.appendleft(token)

    def _call_close_after_closer(self, token: Token) -> None:
        self._hold(token, State.CALL_CLOSE)
        if not self._wrapped:
            self._end_pending(None)

    def _close_value(self, token: Token) -> None:
        """The held closer was structural: `token` is not part of the value."""
        self._release_closer()
        self._queue.appendleft(token)
        name = token.attributes.get("name") if token.kind == "parameter_open" else None
        if name is not None and self._declared is not None and name not in self._declared:
            self._doubt(f"{name!r} is a parameter of its own", f"the markup of {name!r} is part of the value before it")

    def _release_closer(self) -> None:
        closers = [held for held in self._pending if held.kind == "parameter_close"]
        for held in self._pending[: 1 if closers else 0]:
            argument = self._value.close()
            self._keep(argument)
            self._emit(Markup(kind="parameter_close", span=held.span))
        for held in self._pending[1 if closers else 0 :]:
            self._emit(Markup(kind="space" if held.kind == "text" else "stray", span=held.span))
        if len(closers) > 1:
            self._doubt("the value ends at the first closing tag", "the value holds the first closing tag")
        self._pending = []
        self._state = State.CALL

    def _end_pending(self, token: Token | None) -> None:
        """The held `</invoke>` was structural; what was held after it, and `token`, are not part of the call."""
        at = next(place for place, held in enumerate(self._pending) if held.kind == "call_close")
        closer, after = self._pending[at], self._pending[at + 1 :]
        self._pending = self._pending[:at]
        if self._pending:
            self._release_closer()
        else:
            self._store_unclosed(closer.start)
        self._queue.extendleft(reversed([*after, *([token] if token else [])]))
        self._finish(closer.start, closer.end)

    # A sibling's opener that may be text.

    def _hold_in_fork(self, token: Token) -> None:
        if self._fork_end is not None and token.text.strip():
            self._fork_end = None
        self._pending.append(token)

    def _fork_opens(self, token: Token) -> None:
        if self._fork_end is not None and token.kind in _AFTER_CALL:
            self._decide_fork(token)
            return
        self._fork_depth[_part(token)] += 1
        self._hold_in_fork(token)

    def _fork_closes(self, token: Token) -> None:
        if self._fork_end is not None and token.kind in _AFTER_CALL:
            self._decide_fork(token)
            return
        part = _part(token)
        self._hold_in_fork(token)
        if self._fork_depth[part]:
            self._fork_depth[part] -= 1
        elif part == "parameter":
            self._fork_is_text()
        elif part == "call" and self._wrapped:
            self._fork_end = len(self._pending)
        else:
            self._pending.pop()
            self._decide_fork(token)

    def _fork_is_text(self) -> None:
        """Its pairs balance and one more closer has come: that one is the parameter's own."""
        *inner, closer = self._pending
        for held in inner:
            self._value.add(held)
        self._pending, self._fork_end = [], None
        self._hold(closer, State.CLOSER)

    def _decide_fork(self, token: Token) -> None:
        """The call has ended and the parameter would be unclosed: read the held tokens again, siblings first."""
        openers: list[int] = []
        for held in self._pending:
            if held.kind == "parameter_open":
                openers.append(held.start)
            elif held.kind == "parameter_close" and openers:
                openers.pop()
        self._unclosed = {*openers, self._value.opener.start}
        self._queue.extendleft(reversed([*self._pending, token]))
        self._pending, self._fork_end = [], None
        self._state = State.VALUE

    # Ends.

    def _store(self) -> None:
        self._keep(self._value.close())
        self._state = State.CALL

    def _keep(self, argument: RawArgument) -> None:
        self._arguments.append(argument)
        self._names.add(argument.name)

    def _store_unclosed(self, offset: int) -> None:
        self._repair("unclosed-parameter", (offset, offset))
        if self._value.tags:
            self._doubt_tags()
        self._store()

    def _doubt_tags(self) -> None:
        first = self._value.tags[0].text
        before = self._value.before_first_tag
        self._doubt(f"{self._value.name} ends before {first}: {_tail(before)}", f"{self._value.name} holds {first} as text")

    def _truncate(self, token: Token) -> None:
        for held in self._pending:
            self._value.add(held)
        self._pending = []
        self._store()
        self._issue_truncated(f"the value of {self._value.name!r} has no end")
        self._finish(token.start, token.start)

    def _end_here(self, token: Token) -> None:
        self._finish(token.start, token.end)

    def _end_unclosed(self, token: Token) -> None:
        if self._arguments and not (self._cut and token.kind == "end"):
            self._repair("unclosed-call", (token.start, token.start))
        else:
            self._issue_truncated("the call has no end")
        if token.kind != "end":
            self._queue.appendleft(token)
        self._finish(token.start, token.start)

    def _finish(self, start: int, end: int) -> None:
        stray = "".join(self._between_text).strip()
        if stray:
            message = f"Only <parameter> elements may stand in a call, found text: {_tail(stray)}"
            self._issues.append(Issue(code="malformed-value", got=_tail(stray), message=message))
        text = (self._opener.text + "".join(self._source))[: end - self._opener.start]
        raw = RawCall(
            index=self._index,
            name=self._opener.attributes["name"],
            arguments=tuple(self._arguments),
            text=text,
            span=(self._opener.start, end),
            complete=all(issue.code != "truncated-call" for issue in self._issues),
            issues=tuple(self._issues),
            repairs=tuple(self._repairs),
        )
        self._emit(ToolCallEnd(raw=raw, span=(start, end)))
        self._done = True

    # Books.

    def _check_style(self, opener: Token, expected: set[str]) -> None:
        written_as_asked = f'name="{opener.attributes["name"]}"' in opener.text
        if not (written_as_asked and opener.attributes.keys() <= expected):
            self._repair("attribute-style", opener.span)

    def _repair(self, code: str, span: tuple[int, int]) -> None:
        self._repairs.append(Repair(code=code, span=span))
        self._emit(Repaired(code=code, span=span))

    def _doubt(self, *readings: str) -> None:
        message = f"The call can be read in two ways: {readings[0]}; or {readings[1]}."
        path = f"$.{self._value.name}"
        self._issues.append(Issue(code="ambiguous", path=path, message=message, readings=readings))

    def _issue_truncated(self, reason: str) -> None:
        message = f"The reply ended inside the call: {reason}."
        self._issues.append(Issue(code="truncated-call", message=message))


def _part(token: Token) -> str:
    return token.kind.partition("_")[0]


def _tail(text: str, limit: int = 120) -> str:
    return repr(text if len(text) <= limit else f"...{text[-limit:]}")
