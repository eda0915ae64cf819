"""State that the parser's parts share: where in a reply or a call the next token is, and what is known so far.

The parts are functions of such a state and a token, as the rules of markdown-it are functions of its state. `prose.py`,
`call_start.py` and `parser.py` read a reply; `tag_call.py` reads a call that is written in tags. Two tables select the function
that reads a token: `REPLY_TABLE` in `parser.py` and `CALL_TABLE` in `tag_call.py`.

Places are strings, because every token is looked up in the tables and a plain enum hashes slowly.
"""

import enum
import functools
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import regex

from ..dialects import Dialect
from ..dialects.dialect import ZERO_WIDTH
from ..loosejson import reader as jsonish
from ..loosejson.reader import refuse_constant
from ..text_forms import unescaped
from ..tools.catalog import Catalog
from ..types.calls import MISSING, Issue, RawArgument, RawCall, Repair, Span
from ..types.events import Event, Markup, Repaired, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from .json_call import arguments_of, unreadable
from .scanner import ScanMode, Scanner, Token, has_hidden_in_name

# -- which characters of a value are markup ----------------------------------------------------------------------------
# The text of one parameter: which characters are value, and which are markup at its edges.
#
# One newline at either end of a value is markup (`\n` or `\r\n`), unless the format defines values exactly. White space before
# a CDATA section is markup in every format. So up to 64 characters of white space at the start wait for what follows, and a
# trailing newline waits for more text. Everything else is emitted as it arrives, unchanged.
#
# An element with a parameter's name may be pretty-printed: its value is a line of its own, indented one step deeper than the
# closing tag. Then the indentation is layout, too, and the argument excludes it.


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


# -- what a call is made of --------------------------------------------------------------------------------------------


# Attributes of a call that say nothing about its arguments.
_ATTRIBUTES = frozenset({"name", "id", "call_id", "tool_call_id", "type", "index", "xmlns"})


@dataclass(slots=True, eq=False)
class CallDraft:
    """What is known of a call so far."""

    index: int  # the call's number in the reply
    opener: Token
    dialect: Dialect
    declared: frozenset[str] | None  # the tool's parameter names; None if any name is possible
    emit: Callable[[Event], None]
    names: set[str] = field(default_factory=set)  # parameters given so far
    given: bool = False  # whether any was given, or a body
    _arguments: list[RawArgument] = field(default_factory=list)
    _issues: list[Issue] = field(default_factory=list)
    _repairs: list[Repair] = field(default_factory=list)
    _complete: bool = True

    def __post_init__(self) -> None:
        """Emit the call's start."""
        name, span = self.opener.attributes["name"], self.opener.span
        self.emit(ToolCallStart(index=self.index, name=name, span=span, dialect=self.dialect.name))
        self.check_style(self.opener)

    def keep(self, argument: RawArgument) -> None:
        """Add a parameter."""
        self._arguments.append(argument)
        self.names.add(argument.name)
        self.given = True

    def keep_body(self, body: RawArgument, *, closed: bool = True) -> bool:
        """Add all parameters, given as one JSON object; return False if neither a tag nor its last bracket ended it."""
        read = jsonish.read(body.text, kinds={"object"}, complete=closed)
        if isinstance(read, jsonish.Unreadable) and not closed:
            return False
        self.given = True
        if not self.dialect.json_body:
            self.repair("json-body", (body.span[0], body.span[0]))
        if isinstance(read, jsonish.Unreadable):
            self._issues.append(unreadable(read))
            return True
        for code in read.codes:
            self.repair(code, body.span)
        values = {} if read.value is None else read.value
        if not isinstance(values, dict):
            self._issues.append(unreadable(jsonish.Unreadable(position=0, expected="an object", got=body.text.strip()[:30])))
            return True
        for argument in arguments_of(values, body.span):
            self.keep(argument)
        return True

    def check_style(self, opener: Token) -> None:
        """Note an opener that is not written as the format asks."""
        element = " " in opener.pair
        if element and opener.kind == "parameter_open" and not self.dialect.parameter_elements:
            self.repair("parameter-element", opener.span)
        if element or self.dialect.tool_elements:
            return
        words = _words(self.dialect.written.get(opener.kind, ""))
        is_named = not words or any(word in opener.text for word in words)
        if not self._is_whole(opener) or not is_named or any(character in opener.text for character in ZERO_WIDTH):
            self.repair("tag-style", opener.span)
        if has_hidden_in_name(opener, self.dialect):
            self.repair("parameter-name" if opener.kind == "parameter_open" else "tool-name", opener.span)
        if self.dialect.name_in_tag:
            return
        written_as_asked = f'name="{opener.attributes["name"]}"' in opener.text
        known = {"name", self.dialect.json_mark.attribute if self.dialect.json_mark else "name"}
        if not (written_as_asked and opener.attributes.keys() <= known):
            self.repair("attribute-style", opener.span)
        self._check_attributes(opener)

    def _check_attributes(self, opener: Token) -> None:
        """Refuse arguments that are written as attributes, because dropping them would change the call."""
        lost = opener.attributes.keys() - _ATTRIBUTES
        if opener.kind == "parameter_open":
            lost &= {"value"}
        elif self.declared is not None:
            lost &= self.declared
        for name in sorted(lost):
            tag = _tail(opener.text)
            message = f"A value stands between <parameter> tags, found the attribute {name!r} in {tag}"
            self._issues.append(Issue(code="malformed-value", path=f"$.{name}", got=tag, message=message))

    def _is_whole(self, opener: Token) -> bool:
        """Say whether the tag ends in its bracket, and whether GLM's key has its closer."""
        if self.dialect.name_after:
            return opener.kind == "call_open" or "</" in opener.text
        return opener.text.endswith(self.dialect.written.get(opener.kind, "").rpartition("{name}")[2][-1:])

    def check_closer(self, closer: Token) -> None:
        """Note a closer that is not written as the format asks."""
        words = _words(self.dialect.written.get("parameter_close", ""))
        is_named = not words or any(word in closer.text for word in words)
        if " " not in closer.pair and (not is_named or any(character in closer.text for character in ZERO_WIDTH)):
            self.repair("wrong-closer", closer.span)

    def repair(self, code: str, span: tuple[int, int]) -> None:
        """Note a tolerance."""
        self._repairs.append(Repair(code=code, span=span))
        self.emit(Repaired(code=code, span=span))

    def doubt(self, name: str, *readings: str, message: str = "") -> None:
        """Note that the call can be read in two ways at a parameter, so it will not run."""
        message = message or f"The call can be read in two ways: {readings[0]}; or {readings[1]}."
        self._issues.append(Issue(code="ambiguous", path=f"$.{name}", message=message, readings=readings))

    def doubt_parameter(self, value: Value, name: str, *, is_declared: bool) -> None:
        """Note that a parameter is in or after a value: it may be one, or be text of the value, perhaps closed too late."""
        message = f"The tool has no parameter {name!r}. Leave it out; markup in a value goes into a CDATA section."
        readings = f"{name!r} is a parameter of its own", f"the markup of {name!r} is part of the value of {value.name!r}"
        self.doubt(value.name if is_declared else name, *readings, message="" if is_declared else message)

    def doubt_entities(self, name: str) -> None:
        """Note that a value is written in entities throughout: they may stand for the characters or be text."""
        message = f"Does `&lt;` in {name!r} mean `<`? Write the character, or put the whole value into a CDATA section."
        self.doubt(name, "the entities stand for characters", "the entities are text", message=message)

    def wrong_closer(self, value: Value, closer: Token) -> None:
        """Note a closing tag of another name; it may be text if the value itself opened that tag."""
        self.repair("wrong-closer", closer.span)
        if f"<{closer.text.strip('</> ')}".lower() in value.text.lower():
            self.doubt(value.name, f"{closer.text} ends the value", f"{closer.text} belongs to the value, which has no end")

    def doubt_end(self, value: Value) -> None:
        """Note that a value without a closing tag contains tags that may have been its end."""
        name, first = value.name, value.tags[0].text
        self.doubt(name, f"{name} ends before {first}: {_tail(value.before_first_tag)}", f"{name} holds {first} as text")

    def truncated(self, reason: str) -> None:
        """Note that the reply ended inside the call."""
        self._complete = False
        self._issues.append(Issue(code="truncated-call", message=f"The reply ended inside the call: {reason}."))

    def end(self, source: Sequence[str], stray: str, closer: tuple[int, int]) -> None:
        """Emit the call; `source` has the texts of the tokens after the opener, at least up to the call's end."""
        if stray:
            message = f"Only <parameter> elements may stand in a call, found text: {_tail(stray)}"
            self._issues.append(Issue(code="malformed-value", got=_tail(stray), message=message))
        start = self.opener.start
        raw = RawCall(
            index=self.index,
            name=self.opener.attributes["name"],
            dialect=self.dialect.name,
            arguments=tuple(self._arguments),
            text=(self.opener.text + "".join(source))[: closer[1] - start],
            span=(start, closer[1]),
            complete=self._complete,
            issues=tuple(self._issues),
            repairs=tuple(self._repairs),
        )
        self.emit(ToolCallEnd(raw=raw, span=closer))


def _tail(text: str, limit: int = 120) -> str:
    return repr(text if len(text) <= limit else f"...{text[-limit:]}")


@functools.cache
def _words(tags: str) -> tuple[str, ...]:
    """Return the names of tags as they are written, without their prefix."""
    return tuple(regex.findall(r"(?:<|&lt;)/?(?:\w+:|\uff5c\w+\uff5c)?(\w+)", tags))


# -- where the next token is -------------------------------------------------------------------------------------------


BREAK = "\0"
"""Marks, in the kept end of a text, a place where markup was removed."""

P = TypeVar("P", bound=str)
S = TypeVar("S")


def table(*rows: tuple[P, str, Callable[[S, Token], None]]) -> dict[tuple[P, str], Callable[[S, Token], None]]:
    """Return rows by place and kind of token; the kinds of a row are separated by blanks."""
    return {(place, kind): read for place, kinds, read in rows for kind in kinds.split()}


class Place(enum.StrEnum):
    """Where in a reply the next token is."""

    PROSE = "text for the person"
    CODE = "inline code"
    REASONING = "between reasoning tags"
    OPENING = "after a fence line, a wrapper or a call's opener that may be text"
    BLOCK = "between the calls of a wrapper"
    CALL = "in a call"


class CallReader(Protocol):
    """Reads one call, from its first token to its end."""

    mode: ScanMode
    """What the scanner should look for next."""

    def take(self, token: Token) -> list[Token] | None:
        """Read a token; return None while the call continues, else the tokens after the call, which are still to be read."""
        ...

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """End the call at the end of the reply; if the reply was cut, an open call must not run."""
        ...


@dataclass(slots=True, eq=False)
class ProseState:
    """What is known of the text around the next token; it decides whether a tag is markup or quoted."""

    after_call: bool = False  # only white space since a call or its wrapper ended
    has_text: bool = False  # there is text for the person
    line_blank: bool = True  # only white space since the last newline
    code_ticks: int = 0  # back-ticks that opened the current inline code
    fence: int = 0  # back-ticks of the open fence
    fence_dropped: bool = False  # the open fence is around calls and left out of the text
    quoted: bool = False  # the last call is in quotes or in an element for code
    has_result: bool = False  # the model began a result, which only the server writes
    last: list[str] = field(default_factory=list)  # the end of the text since a call or code, in pieces


@dataclass(slots=True, eq=False)
class ReplyState:
    """What is known of a reply so far."""

    catalog: Catalog
    dialects: Mapping[str, Dialect]  # by name; those that the parser recognizes
    scanner: Scanner
    place: Place
    depth: int  # of the nesting of reasoning
    thinks_in: str | None = None  # the format whose mark opened the reasoning, "" for a tag; None if the template opened it
    thinks_tag: str = ""  # the tag that opened the reasoning; "" if the template opened it
    events: list[Event] = field(default_factory=list)
    queue: deque[Token] = field(default_factory=deque)  # tokens to read before the scanner's next one
    prose: ProseState = field(default_factory=ProseState)
    left_over: list[Token] = field(default_factory=list)  # marks and closers that are text, unless the reply ends with them
    held: list[Token] = field(default_factory=list)  # tokens that may open a call: in OPENING, and while a call in JSON is read
    no_json_before: int = 0  # JSON that starts before this offset was read once and is text
    looks_into_thoughts: bool = True  # whether to search reasoning for a lost call
    thoughts: list[str] = field(default_factory=list)  # the end of the open reasoning, in pieces
    wrapper: str = ""  # dialect of the open wrapper
    block_text: bool = False  # there is text between the calls of this wrapper
    reader: CallReader | None = None
    calls: int = 0  # begun so far
    in_sentence: bool = False  # the current call began after text on its line, and so did its wrapper
    doubt_from: int | None = None  # index of the first event of such calls, which wait for what follows on the line
    after_doubt: str = ""  # the white space after those calls, so far
    plain_closers: bool = False  # closers count even in strings of a body
    seen: set[str] = field(default_factory=set)  # dialects whose markup was read: their other marks count from then on

    @property
    def outside(self) -> Place:
        """The place to return to after quotation, reasoning or a call."""
        return Place.BLOCK if self.wrapper else Place.PROSE

    def declares(self, name: str) -> bool:
        """Say whether a name means exactly one tool, in whatever spelling; without tools, every name does."""
        return not len(self.catalog) or self.catalog.meant_by(name) is not None

    def positional(self, name: str, named: Mapping[str, Any], values: Sequence[Any]) -> Mapping[str, Any] | None:
        """Name the positional values of a call, by the order of the tool's parameters; None if several readings remain.

        Only one remains if there are as many values as parameters not given by name, or as required ones among these, which must
        be declared first.
        """
        tool = self.catalog.get(self.catalog.meant_by(name) or name)
        properties = tool.input_schema.get("properties") if tool else None
        if tool is None or not isinstance(properties, dict):
            return None
        open_ones = [each for each in properties if each not in named]
        required = [each for each in open_ones if each in tool.input_schema.get("required", ())]
        if len(values) != len(open_ones) and required != open_ones[: len(values)]:
            return None
        return {**dict(zip(open_ones, values, strict=False)), **named}

    def markup(self, kind: str, token: Token) -> None:
        """Emit a token that is neither text nor value."""
        if token.dialect:
            self.seen.add(token.dialect)
        if self.prose.last and self.prose.last[-1] != BREAK:
            self.prose.last.append(BREAK)
        self.events.append(Markup(kind=kind, span=token.span))

    def repair(self, code: str, span: Span) -> None:
        """Emit an event for a tolerance that was used."""
        self.events.append(Repaired(code=code, span=span))

    def leave_call(self, rest: list[Token], *, found: bool = True) -> None:
        """Continue after a call; the tokens after it are read again, as prose instead of a value."""
        self.reader = None
        self.scanner.only()
        self.scanner.unread("".join(token.text for token in (*rest, *self.queue)))
        self.queue.clear()
        self.place = self.outside
        if found:
            self.prose.after_call, self.prose.line_blank = True, True
            self.prose.last.clear()


class CallPlace(enum.StrEnum):
    """Where in a call's body the next token is."""

    CALL = "between parameters"
    VALUE = "in a value"
    CDATA = "in a CDATA section"
    CDATA_END = "after a CDATA section"
    CLOSER = "after a </parameter> that may be text"
    WRONG_CLOSER = "after a closing tag that may stand for </parameter>"
    CALL_CLOSE = "after a </invoke> that may be text"
    AFTER_CALL = "in text after a </invoke> that may have ended the call"
    BLOCK_CLOSE = "after a </function_calls> in an open value"
    FORK = "after a sibling's opener that may be text"


@dataclass(slots=True, eq=False)
class Fork:
    """The tokens from a sibling's opener onward, which may be text or may begin the sibling."""

    held: list[Token]
    open: Counter[str]  # tags opened since then, by pair
    call_may_have_ended: bool = False


@dataclass(slots=True, eq=False)
class CallState:
    """What is known of a call in tags so far."""

    draft: CallDraft
    wrapped: bool  # whether a wrapper was opened around it
    value: Value = field(init=False)  # the current or last one
    place: CallPlace = CallPlace.CALL
    queue: deque[Token] = field(default_factory=deque)
    pending: list[Token] = field(default_factory=list)  # tokens whose meaning is open
    fork: Fork = field(init=False)  # in place FORK
    unclosed: set[int] | None = None  # once a fork is decided: openers (by offset) without a closer
    outer_closers: set[int] = field(default_factory=set)  # offsets of closers that follow those of the siblings inside
    source: list[str] = field(default_factory=list)  # the texts of the tokens after the opener
    dropped: list[str] = field(default_factory=list)  # the texts between parameters; there should be none
    dropping: bool = False  # the last token was between two parameters and was not white space
    cut: bool = False  # the reply was cut
    done: bool = False
