"""State that the parser's parts share: where in a reply or a call the next token is, and what is known so far.

The parts are functions of such a state and a token, as the rules of markdown-it are functions of its state. `prose.py`,
`call_start.py` and `parser.py` read a reply; `tag_call.py` reads a call that is written in tags. Two tables select the function
that reads a token: `REPLY_TABLE` in `parser.py` and `CALL_TABLE` in `tag_call.py`.

Places are strings, because every token is looked up in the tables and a plain enum hashes slowly.
"""

import enum
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ..dialects import Dialect
from ..tools.catalog import Catalog
from ..types.calls import Span
from ..types.events import Event, Markup, Repaired
from .call_builder import CallDraft
from .scanner import ScanMode, Scanner, Token
from .value_text import Value

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
