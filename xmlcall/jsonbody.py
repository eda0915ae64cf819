"""A call written as JSON in a wrapper: `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`.

Whether it is a call is known when it has ended, because the name may stand anywhere in it; until then its tokens are held. The
wrapper's closer ends it unless it stands in a JSON string. Where the reply ends inside a string (a quote was not escaped), the
first closer is taken after all, and from then on closers in strings count, so that no text is held twice: the cost is linear.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import regex

from . import jsonish
from .dialects import Dialect
from .events import Event, Markup, Repaired, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from .scanner import Mode, Token
from .types import Issue, RawArgument, RawCall, Repair

__all__ = ["JsonReader"]

_ARGUMENTS = ("arguments", "parameters", "args", "input")
_NAME = regex.compile(r'"name"\s*:\s*"([^"\\]{1,128})"')
_SPECIAL = regex.compile(r'["\\{}\[\]]')


class _Extent:
    """Finds the end of a JSON value in pieces of text, by brackets outside of strings."""

    def __init__(self) -> None:
        self.in_string = False
        self.done = False
        self._depth = 0
        self._escaped_until = -1

    def feed(self, text: str) -> int:
        """Read a piece; return how much of it belongs to the value."""
        skip = 1 if self._escaped_until == 0 else 0
        self._escaped_until = -1
        for match in _SPECIAL.finditer(text, skip):
            if match.start() < skip:
                continue
            mark = match.group()
            if mark == "\\":
                skip = match.end() + 1 if self.in_string else skip
            elif mark == '"':
                self.in_string = not self.in_string
            elif not self.in_string and self._close(mark):
                return match.end()
        if skip > len(text):
            self._escaped_until = 0
        return len(text)

    def _close(self, bracket: str) -> bool:
        self._depth += 1 if bracket in "{[" else -1
        self.done = self._depth <= 0
        return self.done


class JsonReader:
    """Reads one call.

    Args:
        index: the call's number in the reply.
        held: what was held before the JSON, the wrapper's opener among it.
        dialect: the wire format.
        plain_closers: the wrapper's closer ends the call even in a string.
    """

    def __init__(self, *, index: int, held: list[Token], dialect: Dialect, plain_closers: bool = False) -> None:
        self.held = held
        self.body: list[Token] = []
        self.closer: Token | None = None
        self.fell_back = False
        self._space: list[Token] = []  # between the JSON and the closer
        self._index = index
        self._dialect = dialect
        self._plain_closers = plain_closers
        self._extent = _Extent()
        self._first_closer: int | None = None
        self._truncated = False

    @property
    def mode(self) -> Mode:
        """What the scanner should look for next."""
        return Mode.VALUE

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
        """Behind the JSON only white space may stand before the closer."""
        blank = len(token.text) - len(token.text.lstrip())
        if blank:
            self._space.append(Token("text", token.text[:blank], token.start))
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
        return [*self.body, *self._space, *([self.closer] if self.closer else [])]

    def raw_call(self) -> RawCall:
        """Return the call as written."""
        text = "".join(part.text for part in self.body)
        start = self.body[0].start
        span = (start, start + len(text))
        name, arguments, issues, repairs = self._content(text.strip(), span)
        complete = not self._truncated
        return RawCall(
            index=self._index,
            name=name,
            arguments=arguments,
            dialect=self._dialect.name,
            text=text,
            span=span,
            complete=complete,
            issues=issues,
            repairs=repairs,
        )

    def _content(
        self, text: str, span: tuple[int, int]
    ) -> tuple[str, tuple[RawArgument, ...], tuple[Issue, ...], tuple[Repair, ...]]:
        found = _NAME.search(text)
        guess = found.group(1) if found else ""
        if self._truncated:
            issue = Issue(code="truncated-call", message="The reply ended inside the call: its JSON has no end.")
            return guess, (), (issue,), ()
        read = jsonish.read(text, kinds={"object"}, complete=True)
        if isinstance(read, jsonish.Unreadable):
            message = f"The call is no JSON: at character {read.position} {read.expected} was expected, {read.got} came."
            return guess, (), (Issue(code=read.code, message=message),), ()
        call = _named(read.value)
        if call is None:
            message = 'Expected {"name": "...", "arguments": {...}}.'
            return guess, (), (Issue(code="malformed-value", message=message),), ()
        arguments = tuple(_argument(key, value, span) for key, value in call[1].items())
        return call[0], arguments, (), tuple(Repair(code=repair.code, span=span) for repair in read.repairs)

    def events(self, raw: RawCall, markup: Callable[[], Iterator[tuple[str, Token]]]) -> Iterator[Event]:
        """Yield the events of the call.

        Args:
            raw: from `raw_call`.
            markup: yields what is held before the JSON, each part with the kind of markup that it is.
        """
        for kind, part in markup():
            yield Markup(kind=kind, span=part.span)
        start, end = raw.span
        yield ToolCallStart(index=raw.index, name=raw.name, span=(start, start))
        yield from (Repaired(code=repair.code, span=repair.span) for repair in raw.repairs)
        yield ToolArgumentDelta(index=raw.index, parameter="", text=raw.text, span=raw.span)
        yield ToolCallEnd(raw=raw, span=(end, end))
        yield from (Markup(kind="space", span=part.span) for part in self._space)
        if self.closer is not None:
            yield Markup(kind="block_close", span=self.closer.span)


def _named(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return name and arguments of a call object; OpenAI's form has them in `function`, arguments as a string of JSON."""
    value = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    arguments: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
    if isinstance(arguments, str):
        read = jsonish.read(arguments, kinds={"object"}, complete=True)
        arguments = read.value if isinstance(read, jsonish.Reading) else None
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _argument(name: str, value: Any, span: tuple[int, int]) -> RawArgument:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return RawArgument(name=name, text=text, value=value, span=span)
