"""Indexes a conversation incrementally, so that each of its calls can be compared with the messages before it.

A conversation grows at its end, and its messages never change. So the index is kept with the messages it was built from, and if a
longer conversation begins with the same messages, only the rest is read. The few most recently used conversations are kept.

An entry is a name that a result lists, rather than mentions in running text. A server may list names in JSON or as Python values:
there, each string without white space is an entry, unless its key says that it is a text. Or it may list them in lines of one
form: names with or without bullets, keys with values, or rows of a table; the first line may be a heading. A single line of
another form makes the whole result a text without entries. Otherwise a name on a line of its own would count, even in an issue
that anybody can write.

Known limit: whoever controls a whole result can write a list.

The cost is linear in the messages that were not read before.
"""

import csv
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ..binding.provenance import SaidIndex
from ..dialects.replies import said_by_whom
from ..text_forms import INVISIBLE
from ..types.calls import Message
from .destinations import even, is_text, tokens

TURNS: Final = re.compile("[0-9][A-Za-z]+[0-9]|[A-Za-z][0-9]+[A-Za-z]")  # letters and digits that alternate, as in keys
_KEPT: Final = 4  # conversations, in this process
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{8,}")
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|[bfnrt/\"\\])")  # of JSON
_BLANKS: Final = dict.fromkeys("bfnrt", " ")
_HIDDEN: Final = re.compile(f"{INVISIBLE.pattern}{{8,}}")  # longer than what emoji need

_HEADLINE: Final = re.compile(r"\A\s{0,20}[^\n]{1,200}:[ \t]{0,20}\r?\n")
_PIECE: Final = re.compile(
    r"\s*(?:\"(?P<double>[^\"\\]*(?:\\.[^\"\\]*)*)\"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'|[\[\]{}(),]|(?P<colon>:)"
    r"|[-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?|(?:true|false|null|none)\b|[a-z_.]{1,40}(?=\())",
    re.IGNORECASE | re.DOTALL,
)
_BULLET: Final = re.compile(r"^(?:[-*•+]|[0-9]{1,4}[.)]|\[[\w ]{1,10}\])\s+|^(?:commit|branch|id|path|file|name)\s+(?=\S+$)")
_FIRST_CELL: Final = re.compile(r"[|,;\t]|\s{2}|:\s|\s[-–—]\s")
_KEYED: Final = re.compile(r"(?:[^\W_]{1,30}[ _]){0,2}(?P<key>[^\W_]{1,30}):\s+(?P<value>\S.*)")
_OF_KEYS: Final = (
    "account assignee author branch channel commit email file group guest host id key login mail member name number owner path "
    "phone project recipient repo repository role room slug team url user username"
)
_KEYS: Final = frozenset(_OF_KEYS.split())
_MARKS: Final = "\"'`()<>[]{}*_ "


@dataclass(frozen=True)
class ToldResult:
    """A result, with properties that are computed on demand."""

    tool: str
    raw: str

    @cached_property
    def text(self) -> str:
        """The text, normalized and in lower case; also without JSON escapes if it has any, because one may precede a name."""
        plain = _ESCAPE.sub(_unescaped, self.raw)
        return even(self.raw if plain == self.raw else f"{self.raw}\n{plain}").lower()

    @cached_property
    def hides(self) -> bool:
        """Whether it contains characters that only a model sees."""
        return _HIDDEN.search(self.raw) is not None

    @cached_property
    def keys(self) -> str:
        """The runs of letters and digits that may belong to a key, without dashes and underscores, separated by spaces."""
        runs = (re.sub("[_-]", "", match[0]) for match in _KEY.finditer(self.raw))
        return " ".join(run for run in runs if TURNS.search(run))

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names that it lists as entries, not in running text."""
        return entries_of(self.raw)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape["code"], 16)) if escape["code"] else _BLANKS.get(escape[0][1], escape[0][1])


@dataclass(slots=True)
class _MessageIndex:
    """A conversation as far as it was read."""

    messages: list[Message] = field(default_factory=list)
    index: SaidIndex = field(default_factory=SaidIndex)
    own: str = ""  # the text of the user and the program, normalized and in lower case
    own_words: set[str] = field(default_factory=set)
    own_run: str = ""
    results: list[ToldResult] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)

    def begins(self, conversation: Sequence[Message]) -> bool:
        """Say whether a conversation continues the one that was read."""
        return len(self.messages) <= len(conversation) and all(map(_is_same, self.messages, conversation))

    def read(self, conversation: Sequence[Message]) -> None:
        """Read the new messages."""
        start, own = len(self.messages), [self.own]
        for place, role, tool, text in said_by_whom(conversation[start:], self.called):
            self.index.add_said(start + place, role, tool, text)
            if tool is not None:
                self.results.append(ToldResult(tool, text))
            elif role in ("user", "system"):
                own.append(even(text).lower())
        self.messages += conversation[start:]
        runs = [*tokens("\n".join(own[1:]))]
        self.own = "\n".join(own)
        self.own_words.update(runs)
        self.own_run += "".join(runs)


def _is_same(one: Message, other: Message) -> bool:
    """Say whether two messages are equal, including the calls known to be in their text."""
    return one is other or (one == other and one.written == other.written)


_known: OrderedDict[int, _MessageIndex] = OrderedDict()


def told_in(conversation: Sequence[Message]) -> _MessageIndex:
    """Return the index of a conversation; only new messages are read."""
    fitting = [index for index in [*_known.values()] if index.begins(conversation)]
    index = max(fitting, key=lambda index: len(index.messages), default=_MessageIndex())
    if _known.pop(id(index), None) is None:  # another thread is reading it
        index = _MessageIndex()
    index.read(conversation)
    _known[id(index)] = index
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return index


def entries_of(result: str) -> frozenset[str]:
    """Return the entries of a raw result, normalized and in lower case; normalizing it first could add quotes."""
    body = _HEADLINE.sub("", result, count=1)
    strings = [*_strings(body)]
    if not strings:
        found = _listed(body)
    elif len(strings) == 1:  # a text that the server wrapped in an object
        found = [] if is_text(strings[0][0]) else _listed(strings[0][1].replace("\\n", "\n"))
    else:
        found = [text for key, text in strings if not is_text(key) and _is_name(text)]
    return frozenset(even(entry).lower().strip(_MARKS) for entry in found)


def _strings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the strings of JSON or Python values, each with the key before it; if the text was cut, those before the cut."""
    key, last, place = "", None, 0
    if text.lstrip()[:1] not in ("[", "{", "("):
        return
    while piece := _PIECE.match(text, place):
        place = piece.end()
        if piece["colon"] and last is not None:
            key, last = last, None
        elif not piece["colon"]:
            if last is not None:
                yield key, last
            last = piece["double"] if piece["double"] is not None else piece["single"]
    if last is not None:
        yield key, last


def _is_name(text: str) -> bool:
    return bool(text) and not re.search(r"\s", text)


def _listed(text: str) -> Iterable[str]:
    """Return the entries of a text whose lines all have the same form."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    bare = [_BULLET.sub("", line) for line in lines]
    if all(map(_is_name, bare)):
        return bare
    keyed = [match for line in bare if (match := _KEYED.fullmatch(line))]
    if len(keyed) == len(bare):
        return [match["value"] for match in keyed if match["key"].lower() in _KEYS and _is_name(match["value"])]
    if all(line != whole for line, whole in zip(bare, lines, strict=True)):
        return [_FIRST_CELL.split(line, maxsplit=1)[0] for line in bare]
    tables = (_cells([*filter(None, rows)], mark) for mark in "|\t;," if (rows := _rows(text, mark)))
    columns = [re.split(r"\s{2,}", line) for line in lines]
    return next(filter(None, tables), None) or _cells(columns, "  ")


def _rows(text: str, mark: str) -> list[list[str]]:
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(keepends=True), delimiter=mark)]
    except csv.Error:  # a cell that is too long for the reader
        return []


def _cells(rows: list[list[str]], mark: str) -> list[str]:
    """Return the cells of a table that may be names; prose has commas, too, but not each time after a single word."""
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return []
    if len(rows) == 1:
        return rows[0] if all(map(_is_name, rows[0])) else []
    if mark in ",;" and not all(_is_name(row[0]) for row in rows):
        return []
    return [cell for row in rows for head, cell in zip(rows[0], row, strict=True) if not is_text(head) and _is_name(cell)]
