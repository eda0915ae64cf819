"""Reads calls in a notation of their own: JSON, Python, or Gemma's objects.

*In a wrapper* (`<tool_call>{"name": "f", ...}</tool_call>`, `[TOOL_CALLS][{...}]`, `<|python_start|>[f(a=1)]<|python_end|>`) the
name may be anywhere in the body. So its tokens are held until the body has ended, which decides whether it is a call. A wrapper
may contain several values. *After a tag that names the tool* (`<|tool_call>call:f{...}<tool_call|>`) there is one object.

A value ends at its last bracket (`Extent`) or at a closing tag outside its strings. If the reply ends inside a string (because a
quote was not escaped), the first closing tag in it ends the value after all. From then on closing tags in strings count, so that
no text is held twice and the cost is linear. The closing tag itself may be missing, because for many models it is the token at
which the server stops.

*Without a wrapper* (`BareCall`): `{"name": "f", "arguments": {...}}` or `[f(a=1)]` at the start of a line, or a call whose mark
was lost, `f[ARGS]{...}`. A quoted example must not run. So the text is a call only if its first key is one of a few, its name is
declared, and a newline, the reply's end, a fence's end or another object follows it (docs/design.md, section 4, invariants 2 and
7). The text is held until that is known. If it is no call, the parser reads the text after the first key again, without treating
JSON in it as a call, so that no text is held twice.
"""

from collections.abc import Iterator
from dataclasses import replace

import regex

from ..dialects import Body, Dialect
from ..dialects.dialect import ARGUMENTS
from ..types.calls import Issue, RawCall, Repair
from ..types.events import Event, Markup, Repaired, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from .json_call import Extent, calls_of, events_of, name_in
from .scanner import ScanMode, Token, has_hidden_in_name
from .states import ReplyState

_WHITE = " \t\r\n"
_RUNS = regex.compile(r"\s+|\S+")  # white space is separate, however the stream was cut
_ENDS = frozenset({"block_close", "call_close", "message_close", "call_open", "fence_close"})

# What may follow an object: white space, surplus closing brackets, a separator; then the character that decides.
_FOLLOW = regex.compile(r"(?P<space>[ \t]{0,64}(?:[\]}]{1,4}[ \t]{0,64})?(?:[,;][ \t]{0,64})?)(?P<next>.)?", regex.DOTALL)
_AFTER = frozenset({"json_open", "lost_open", "call_open", "block_open", "ticks", "turn_end", "mark", "special"})
_WRAPPER = regex.compile(r"<(\w+)>\s*")
_ARGUMENT_KEY = regex.compile(rf"[\"'](?:{'|'.join(ARGUMENTS)})[\"']\s*:")


class _Value:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.tokens: list[Token] = []
        self.extent = Extent(body)
        self.is_whole = True

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    @property
    def span(self) -> tuple[int, int]:
        return (self.tokens[0].start, self.tokens[-1].end)


class BodyCall:
    def __init__(self, reply: ReplyState, row: Dialect, *, opener: Token | None = None, body: Body | None = None) -> None:
        self.mode = ScanMode.VALUE
        self.row = row
        self.opener = opener
        self.closer: Token | None = None
        self.fell_back = False
        self._index = reply.calls
        self._positional = reply.positional
        self._body = body or row.body
        self._plain_closers = reply.plain_closers
        self._values: list[_Value] = []
        self._between: list[Token] = []  # white space, separators and surplus brackets, in the order of the text
        self._gap: Token | None = None  # a separator that waits for what follows
        self._is_open = False  # in a value
        self._first_closer: int | None = None
        self._cut = False

    def take(self, token: Token) -> list[Token] | None:
        """Read a token; return None while the body continues, else the tokens after it."""
        if token.kind in _ENDS and self._may_end(token):
            return self._end(token)
        return self._in_value(token) if self._is_open else self._outside(token)

    def _may_end(self, token: Token) -> bool:
        if not self._is_open or self._plain_closers:
            return True
        value = self._values[-1]
        if not value.extent.in_string:
            return token.kind != "call_open" or self.opener is not None
        if self._first_closer is None and token.kind not in ("call_open", "fence_close"):
            self._first_closer = len(value.tokens)
        return False

    def _end(self, token: Token) -> list[Token] | None:
        if token.kind == "fence_close" and self.opener is not None and self._values:  # around the object
            self._between.append(token)
            return None
        self._is_open = False
        gap = [self._gap] if self._gap else []
        if token.kind == ("block_close" if self.opener is None else "call_close") or token.kind == "message_close":
            self._between += gap
            self.closer = token
            return []
        return [*gap, token]

    def _in_value(self, token: Token) -> list[Token] | None:
        value = self._values[-1]
        used = value.extent.feed(token)
        value.tokens.append(token if used == len(token.text) else Token("text", token.text[:used], token.start))
        if not value.extent.done:
            return None
        self._is_open = False
        rest = Token("text", token.text[used:], token.start + used)
        return self._outside(rest) if rest.text else None

    def _outside(self, token: Token) -> list[Token] | None:
        """Read a token outside a value: before the first one only white space is skipped, later also `}`, `]` and separators."""
        if self._gap:
            token, self._gap = Token("text", self._gap.text + token.text, self._gap.start), None
        allowed = f"{_WHITE}}}]" if self._values else _WHITE
        rest = token.text.lstrip(allowed)
        blank = len(token.text) - len(rest)
        self._between += (Token("text", run[0], token.start + run.start()) for run in _RUNS.finditer(token.text, 0, blank))
        return self._next(Token(token.kind, rest, token.start + blank)) if rest else None

    def _next(self, token: Token) -> list[Token] | None:
        """Read what follows a value: another value, or text that no longer belongs to the body."""
        is_separator = bool(self._values) and token.text[0] in ",;"
        following = token.text[1:].lstrip(_WHITE) if is_separator else token.text
        if self._values and not following and self.opener is None:
            self._gap = token
            return None
        # Another value may follow after a separator, or in a wrapper that has a closing tag.
        may_go_on = self.opener is None and following[0] in "{[" and (is_separator or "block_close" in self.row.tags)
        if self._values and not may_go_on:
            return [token]
        if self.opener is not None and following[0] not in ("{(" if self._body is Body.GEMMA else "{"):
            return [token]
        before = len(token.text) - len(following)
        if before:
            self._between.append(Token("text", token.text[:before], token.start))
        self._values.append(_Value(_notation(self._body, following)))
        self._is_open = True
        return self._in_value(Token(token.kind, following, token.start + before))

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """End the body at the end of the reply; return the tokens that are still to be read."""
        gap, self._gap = [self._gap] if self._gap else [], None
        self._cut = cut
        if not self._is_open:
            return gap
        value = self._values[-1]
        if self._first_closer is not None:
            at, tokens = self._first_closer, value.tokens
            value.tokens, self.closer, self.fell_back = tokens[:at], tokens[at], True
            return tokens[at + 1 :]
        value.is_whole = value.body is Body.LINES and not cut and not value.extent.depth and not value.extent.in_string
        return []

    def tokens(self) -> list[Token]:
        """Return everything that was read after the opener, in the order of the text."""
        parts = [*(token for value in self._values for token in value.tokens), *self._between]
        return sorted([*parts, *([self.closer] if self.closer else [])], key=lambda token: token.start)

    def calls(self) -> list[RawCall]:
        """Return the calls as written, each with its span."""
        if self.opener is not None:
            return [self._named_call(self.opener)]
        found: list[RawCall] = []
        for value in self._values:
            found += calls_of(
                value.text,
                value.span,
                index=self._index + len(found),
                dialect=self.row.name,
                complete=value.is_whole,
                body=value.body,
                positional=self._positional,
            )
        return found

    def _named_call(self, opener: Token) -> RawCall:
        name = opener.attributes["name"]
        tokens = [opener, *self.tokens()]
        end = max(token.end for token in tokens if token.text.strip(_WHITE) or token not in self._between)
        text = "".join(token.text for token in tokens)[: end - opener.start]
        span = (opener.start, end)
        named = (Repair(code="tool-name", span=opener.span),) if has_hidden_in_name(opener, self.row) else ()
        if not self._values:
            is_whole = self.closer is not None and not self._cut
            issues = () if is_whole else (Issue(code="truncated-call", message="The reply ended before the call's arguments."),)
            bare = RawCall(index=self._index, name=name, dialect=self.row.name, complete=is_whole, issues=issues)
            return replace(bare, text=text, span=span, repairs=named)
        value = self._values[0]
        [call] = calls_of(
            value.text, value.span, index=self._index, dialect=self.row.name, complete=value.is_whole, body=value.body, head=name
        )
        return replace(call, name=name, text=text, span=span, repairs=(*named, *call.repairs))

    def events(self, calls: list[RawCall]) -> Iterator[Event]:
        yield from self._named_events(calls[0]) if self.opener is not None else self._wrapped_events(calls)
        if first := next((token for token in self._between if token.text.strip(f"{_WHITE},;`")), None):
            yield Repaired(code="json-extra-closer", span=(first.start, first.start + 1))  # the stream cuts the others

    def _wrapped_events(self, calls: list[RawCall]) -> Iterator[Event]:
        gaps = list(self._between)
        for value in self._values:
            while gaps and gaps[0].start < value.tokens[0].start:
                yield _space(gaps.pop(0))
            yield from events_of([call for call in calls if call.span == value.span])
        yield from map(_space, gaps)
        if self.closer is not None:
            yield Markup(kind="block_close", span=self.closer.span)

    def _named_events(self, call: RawCall) -> Iterator[Event]:
        assert self.opener is not None
        yield ToolCallStart(index=call.index, name=call.name, span=self.opener.span, dialect=call.dialect)
        yield from (Repaired(code=repair.code, span=repair.span) for repair in call.repairs)
        values = {value.tokens[0].start: value for value in self._values}
        for token in self.tokens():
            if token.start in values:
                value = values[token.start]
                yield ToolArgumentDelta(index=call.index, parameter="", text=value.text, span=value.span)
            elif token in self._between and token.start < call.span[1]:
                yield _space(token)
        end = self.closer.span if self.closer else (call.span[1], call.span[1])
        yield ToolCallEnd(raw=call, span=end)
        yield from (_space(token) for token in self._between if token.start >= call.span[1])


def _space(token: Token) -> Markup:
    return Markup(kind="space" if not token.text.strip() else "dropped", span=token.span)


def _notation(body: Body, text: str) -> Body:
    """Return the notation of a value that begins with this text: Python may be a list or one call a line."""
    if body not in (Body.PYTHON, Body.LINES):
        return body
    return Body.PYTHON if text.startswith("[") else Body.LINES


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
