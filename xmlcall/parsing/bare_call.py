"""A call without a wrapper: `{"name": "f", "arguments": {...}}` or `[f(a=1)]` at the start of a line.

This module also reads a call whose mark was lost: `f[ARGS]{...}`. A quoted example must not run. So the text is a call only if
its first key is one of a few, its name is declared, and a newline, the reply's end, a fence's end or another object follows it
(docs/design.md, section 4, invariants 2 and 7). The text is held until that is known. If it is no call, the parser reads the text
after the first key again, without treating JSON in it as a call, so that no text is held twice.
"""

from collections.abc import Iterator
from dataclasses import replace

import regex

from ..dialects.tag_patterns import ARGUMENTS
from ..types.calls import RawCall
from ..types.events import Event
from .json_call import Extent, calls_of, events_of, name_in
from .scanner import ScanMode, Token
from .states import ReplyState

# What may follow an object: white space, surplus closing brackets, a separator; then the character that decides.
_FOLLOW = regex.compile(r"(?P<space>[ \t]{0,64}(?:[\]}]{1,4}[ \t]{0,64})?(?:[,;][ \t]{0,64})?)(?P<next>.)?", regex.DOTALL)
_AFTER = frozenset({"json_open", "lost_open", "call_open", "block_open", "ticks", "turn_end", "mark", "special"})
_WRAPPER = regex.compile(r"<(\w+)>\s*")
_ARGUMENT_KEY = regex.compile(rf"[\"'](?:{'|'.join(ARGUMENTS)})[\"']\s*:")


class BareCall:
    """Reads one object, array, or list of Python calls; its opener is the text up to the name."""

    def __init__(self, reply: ReplyState, opener: Token) -> None:
        wrapper = _WRAPPER.match(opener.text)
        length = wrapper.end() if wrapper else 0
        self._opener = opener
        self._found = False  # whether the text that follows confirms the call
        self._tag = 0  # length of the wrapper's closer in what follows
        self._index = reply.calls
        self._dialect = reply.dialects[opener.dialect]
        self._declared = reply.declares
        self._positional = reply.positional
        self._unread = reply.scanner.unread
        self._closer = regex.compile(rf"\s{{0,64}}</(?i:{wrapper.group(1)})\s{{0,4}}>") if wrapper else None
        self._start = opener.start + length
        self._json = [opener.text[length:]]
        self._after = ""
        self._complete = True
        self._extent = Extent(self._dialect.body)
        self._name = opener.attributes.get("name", "")  # set if only the mark was lost, and the object follows
        if self._name:
            self._start, self._json = opener.end, []
        self._extent.text("".join(self._json))
        # Brackets that may be missing at the reply's end: those around name and arguments, but not those of the arguments.
        self._spare = self._extent.depth - "".join(self._json).endswith("{")
        self.mode = ScanMode.PROSE if self._extent.done else ScanMode.VALUE if self._name else ScanMode.TEXT

    def take(self, token: Token) -> list[Token] | None:
        """Read a token; return None until the call is decided, else the tokens that are still to be read."""
        if self._extent.done:
            return self._follow(token)
        used = self._extent.feed(token)
        self._json.append(token.text[:used])
        if used < len(token.text):
            self._unread(token.text[used:])
        if self._extent.done:
            self.mode = ScanMode.PROSE
        return None

    def _follow(self, token: Token) -> list[Token] | None:
        if token.kind != "text":
            return self._decide(token.kind in _AFTER or token.kind.endswith("_close"), token.text)
        self._after += token.text
        closer = self._closer.match(self._after, partial=True) if self._closer else None
        if closer is not None:
            return None if closer.partial else self._decide(True, tag=closer.end())
        following = _FOLLOW.fullmatch(self._after) or _FOLLOW.match(self._after)
        next_character = following["next"] if following else None
        return self._decide(next_character in ("\r", "\n")) if next_character else None

    def _decide(self, found: bool, more: str = "", tag: int = 0) -> list[Token]:
        self._found = found
        self._after += more
        self._tag = tag
        return []

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """Decide at the end of the reply; return the tokens that are still to be read."""
        if self._extent.done:
            return self._decide(True)
        text = "".join(self._json)
        if self._name:
            self._complete = False
            return self._decide(True)
        if self._dialect.is_python:
            self._complete = False
            return self._decide(self._declared(name_in(text)))
        outer = self._extent.depth <= self._spare and not self._extent.in_string and text.rstrip().endswith("}")
        self._complete = outer and not cut
        return self._decide(self._complete or self._declared(name_in(text)))

    def calls(self) -> list[RawCall]:
        """Return the calls; none if it is text after all."""
        text = "".join(self._json)
        if not self._found or not (self._name or self._dialect.is_python or _ARGUMENT_KEY.search(text)):
            return []
        span = (self._start, self._start + len(text))
        calls = calls_of(
            text,
            span,
            index=self._index,
            dialect=self._dialect.name,
            complete=self._complete,
            body=self._dialect.body,
            head=self._name,
            positional=self._positional,
        )
        if self._name:
            start, written = self._opener.start, self._opener.text + text
            return [replace(call, text=written, span=(start, start + len(written))) for call in calls]
        issues = [issue.code for call in calls if call.complete for issue in call.issues]
        if self._dialect.is_python and set(issues) - {"ambiguous"}:  # other Python: a comprehension, a list of expressions
            return []
        return calls if any(self._declared(call.name) for call in calls) else []

    def events(self, calls: list[RawCall]) -> Iterator[Event]:
        """Return the events of the calls."""
        return events_of(calls, self._opener.span if self._name else None)

    @property
    def end(self) -> int:
        """Offset after the JSON."""
        return self._start + sum(map(len, self._json))

    def before(self) -> Iterator[Token]:
        """Yield the opening tag of the call's own wrapper, if it has one."""
        length = self._start - self._opener.start
        if length and not self._name:
            yield Token("block_open", self._opener.text[:length], self._opener.start)

    def after(self) -> Iterator[tuple[str, Token]]:
        """Yield the closing tag of that wrapper, or surplus brackets and a comma, with the kind of markup."""
        length = self._tag or self._dropped()
        if length:
            yield "block_close" if self._tag else "dropped", Token("markup", self._after[:length], self.end)

    def _dropped(self) -> int:
        following = _FOLLOW.match(self._after)
        return len(following["space"]) if following and following["space"].strip() else 0

    def rest(self, found: bool) -> list[Token]:
        """Return what is still to be read: everything after the opener if no call was found."""
        if not found:
            return [Token("text", "".join(self._json)[self._opener.end - self._start :] + self._after, self._opener.end)]
        length = self._tag or self._dropped()
        return [Token("text", self._after[length:], self.end + length)]
