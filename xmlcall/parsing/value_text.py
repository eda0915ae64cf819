r"""The text of one parameter: which characters are value, and which are markup at its edges.

One newline at either end of a value is markup (`\n` or `\r\n`), unless the format defines values exactly. White space before a
CDATA section is markup in every format. So up to 64 characters of white space at the start wait for what follows, and a trailing
newline waits for more text. Everything else is emitted as it arrives, unchanged.

An element with a parameter's name may be pretty-printed: its value is a line of its own, indented one step deeper than the
closing tag. Then the indentation is layout, too, and the argument excludes it.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import regex

from ..dialects import Dialect
from ..loosejson.reader import refuse_constant
from ..text_forms import unescaped
from ..types.calls import MISSING, RawArgument
from ..types.events import Event, Markup, ToolArgumentDelta
from .scanner import Token

_MAX_LEAD = 64
_MAX_INDENTED = 2000  # characters of a pretty-printed line
_ONE_LINE = regex.compile(r"([ \t]+)(\S(?:[^\n]*\S)?)[ \t]*\r?\n([ \t]+)")


class Value:
    """The value between a parameter's opener and its closer."""

    def __init__(self, *, index: int, opener: Token, dialect: Dialect, emit: Callable[[Event], None]) -> None:
        self.name = opener.attributes.get("name", "")
        self.is_body = opener.kind == "body_open"  # all arguments as one JSON object
        self.opener = opener
        self.tags: list[Token] = []  # structural tags that were read as text
        self.before_first_tag = ""
        self.open: Counter[str] = Counter()  # tags read as text, by pair
        self.open_parameters = 0  # those of parameters
        self._is_json = dialect.json_mark is not None and dialect.json_mark.is_on(opener.attributes)
        self._is_string = dialect.string_mark is not None and dialect.string_mark.is_on(opener.attributes)
        self._is_exact = dialect.is_exact and (self._is_string or dialect.string_mark is None)
        self._entities = dialect.entities
        self._index = index
        self._emit = emit
        self._parts: list[str] = []
        self._held = ""
        self._position = opener.end
        self._at_start = True
        self._on_own_line = False
        self.verbatim = False
        if opener.text:
            emit(Markup(kind="parameter_open", span=opener.span))

    @property
    def text(self) -> str:
        """The part of the value that is certain so far."""
        return "".join(self._parts)

    @property
    def last_said(self) -> str:
        """The last piece that is not blank, with the white space after it; "" if all is blank."""
        pieces = [self._held]
        for part in reversed(self._parts):
            if pieces[-1].strip():
                break
            pieces.append(part)
        return "".join(reversed(pieces)) if pieces[-1].strip() else ""

    @property
    def blank(self) -> bool:
        """Whether there is only a little white space so far, so that a CDATA section may still begin."""
        return self._at_start

    def count(self, token: Token) -> None:
        """Read an opener or closer as text and remember it, so that inner pairs balance."""
        step = -1 if token.kind.endswith("_close") else 1
        self.open[token.pair] += step
        self.open_parameters += step if token.kind.startswith("parameter") else 0
        self.add(token)

    def add(self, token: Token) -> None:
        """Read a token as text of the value."""
        if token.pair:
            if not self.tags:
                self.before_first_tag = "".join(self._parts) + self._held
            self.tags.append(token)
        self._add(token.text)

    def _add(self, text: str) -> None:
        if self.verbatim:
            self._send(text)
            return
        text = self._held + text
        self._held = ""
        if self._at_start and len(text) <= _MAX_LEAD and not text.strip():
            self._held = text
            return
        if self._at_start:
            self._at_start, before = False, len(text)
            text = self._leave_out_newline(text)
            self._on_own_line = len(text) < before
        keep = len(text) - self._trailing(text, more=True)
        self._send(text[:keep])
        self._held = text[keep:]

    def _leave_out_newline(self, text: str) -> str:
        """Return a text without the newline at its start that is markup."""
        length = 0 if self._is_exact else 2 if text.startswith("\r\n") else int(text.startswith("\n"))
        self._mark("newline", length)
        return text[length:]

    def _trailing(self, text: str, *, more: bool) -> int:
        r"""Return the length of the trailing newline, which may be markup; if more text may come, a lone `\r` may become one."""
        return 2 if text.endswith("\r\n") else int(text.endswith("\n") or (more and text.endswith("\r")))

    def _send(self, text: str) -> None:
        if not text:
            return
        span = (self._position, self._position + len(text))
        types = {"is_json": self._is_json, "is_string": self._is_string}
        self._emit(ToolArgumentDelta(index=self._index, parameter=self.name, text=text, span=span, **types))
        self._parts.append(text)
        self._position = span[1]

    def _mark(self, kind: str, length: int) -> None:
        if length:
            self._emit(Markup(kind=kind, span=(self._position, self._position + length)))
            self._position += length

    def begin_cdata(self, token: Token) -> None:
        """Begin a CDATA section, whose text is taken verbatim."""
        self._mark("space", len(self._held))
        self._held = ""
        self._at_start = False
        self.verbatim = True
        self._mark("cdata", len(token.text))

    def end_cdata(self, token: Token) -> None:
        self._mark("cdata", len(token.text))

    def skip(self, length: int) -> None:
        """Leave out white space after a CDATA section."""
        self._mark("space", length)

    def close(self, *, has_closer: bool = True) -> RawArgument:
        """Settle the edges and return the argument; without a closing tag, a newline at its end is layout in every format."""
        if self._at_start:
            self._held = self._leave_out_newline(self._held)
        is_data = self._is_exact and has_closer
        keep = len(self._held) - (0 if is_data else self._trailing(self._held, more=False))
        tail = self._held[keep:]
        self._send(self._held[:keep])
        self._mark("newline", len(tail))
        text = unescaped("".join(self._parts)) if self._entities else "".join(self._parts)
        if has_closer and self._on_own_line and " " in self.opener.pair and len(text) <= _MAX_INDENTED:
            line = _ONE_LINE.fullmatch(text)
            text = line[2] if line and len(line[3]) < len(line[1]) <= 2 * len(line[3]) else text
        value = _json_value(text) if self._is_json else text if self._is_string else MISSING
        return RawArgument(name=self.name, text=text, value=value, span=(self.opener.end, self._position))


def _json_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return MISSING
