"""Text in pieces -> tokens with absolute offsets.

The parser pulls one token at a time, because its state decides what can be a token (a back-tick counts in prose but not in a
value). The scanner finds the next character that can start a token; all before it is text. At that character it tries the
patterns of the mode with `regex`'s partial matching: no match means that the character is text, a partial match means that more
text is needed, and a full match is a token.

Invariants: the joined texts of the tokens are the input; only the boundaries between text tokens depend on the chunks; the text
held back is shorter than the longest tag. Cost: linear, because one search checks each character and, if it can start a tag, one
bounded match.
"""

import enum
import functools
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import regex

from ..dialects import Dialect
from ..dialects.dialect import (
    OTHER,
    ZERO_WIDTH,
    OddTag,
    attributes_of,
    certain_part,
    element_tags,
    first_characters,
    going_on,
    odd_tags,
    second_characters,
)


class ScanMode(enum.StrEnum):
    """What can be a token here."""

    PROSE = "prose"
    CODE = "code"
    VALUE = "value"
    CDATA = "cdata"
    TEXT = "text"


class Token(NamedTuple):  # one for each piece of a stream: a tuple takes a third of the time of a frozen dataclass
    """A piece of the reply: `text`, a tag of a dialect, or one of the kinds of `_COMMON`."""

    kind: str
    text: str
    start: int
    attributes: Mapping[str, str] = MappingProxyType({})
    dialect: str = ""
    pair: str = ""  # shared by an opener and its closer: `parameter`, plus the name if the closer repeats it

    @property
    def end(self) -> int:
        """Offset after the last character."""
        return self.start + len(self.text)

    @property
    def span(self) -> tuple[int, int]:
        """Start and end."""
        return (self.start, self.start + len(self.text))


_REASONING = "think|thinking|reasoning|seed:think"
# The words between `<|` and `|>` with which families end a turn or begin the next. A row's own marks take priority.
_ROLES = (
    "im_end|im_start|im_sep|end|eot|eot_id|eom|eom_id|eod|end_of_text|end_of_turn|end_of_role|start_of_role|endoftext|endofturn|"
    "eos|return|user|assistant|system|observation|ipython|hy_eos|role_end|END_OF_TURN_TOKEN|START_OF_TURN_TOKEN|CHATBOT_TOKEN"
)
TURN_END = (
    rf"<\|(?:{_ROLES})\|>|<[\uff5c|](?:User|Assistant|end[\u2581_]of[\u2581_]sentence)[\uff5c|]>|\[e~\[|\[\|endofturn\|\]|</s>|<eos>"
    r"|<(?:end|start)_of_turn>|<end_of_utterance>|<turn\|>|<seed:eos>"
)

# Token kinds outside the dialects. A run of back-ticks is cut at 64, so that every token but text has a maximum length.
_COMMON = {
    "reasoning_open": rf"<(?i:{_REASONING})>",
    "reasoning_close": rf"</(?i:{_REASONING})>",
    "turn_end": TURN_END,
    "ticks": r"`{1,64}",
    "blank_line": r"\n[ \t]{0,64}\r?\n",
    "cdata_open": r"<!\[CDATA\[",
    "cdata_close": r"\]\]>",
    "other_tag": r"</\s{0,4}[A-Za-z_][\w.\-]{0,63}\s{0,4}>|<param(?:eter)?>",
}

# Mode -> the common kinds that count, and whether the dialects' tags do.
_MODES: dict[ScanMode, tuple[tuple[str, ...], bool]] = {
    ScanMode.PROSE: (("reasoning_open", "reasoning_close", "turn_end", "ticks"), True),
    ScanMode.CODE: (("ticks", "blank_line"), False),
    ScanMode.VALUE: (("cdata_open", "other_tag"), True),
    ScanMode.CDATA: (("cdata_close",), False),
    ScanMode.TEXT: ((), False),
}

# Mode -> the dialects' tags that are text there: marks of strings outside values; marks of reasoning and messages inside them.
_NOT_IN: dict[ScanMode, frozenset[str]] = {
    **dict.fromkeys(ScanMode, frozenset({"quote", "fence_close"})),
    ScanMode.VALUE: frozenset({"reasoning_open", "reasoning_close", "text_open", "mark", "special"}),
}
_NAMED = frozenset({"call_open", "parameter_open", "lost_open"})
_AHEAD = 4  # letters of a word that may begin a token
_SENTENCE_ENDS = frozenset(".!?:;)]}>\"'\u3002\uff01\uff1f\uff1a\uff09\u201d")
_REACH = 512  # characters from the beginning of a call without its mark to the part that identifies it
_VISIBLE = {ord(character): None for character in ZERO_WIDTH}


class Scanner:
    """A pull scanner over the tags of some dialects."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        self._dialects = {dialect.name: dialect for dialect in dialects}
        self._all = _patterns(tuple(self._dialects.values()))
        self._patterns = self._all
        self._odd: tuple[OddTag, ...] = ()
        self._odd_of: dict[tuple[str, frozenset[str]], tuple[OddTag, ...]] = {}  # a reply may call a large tool many times
        self._buffer = ""
        self._position = 0
        self._offset = 0
        self._line = ""  # the last character before the position, as `_line_until` has it
        self._closed = False

    def feed(self, chunk: str) -> None:
        """Add text."""
        self._offset += self._position
        self._buffer = self._buffer[self._position :] + chunk
        self._position = 0

    def close(self) -> None:
        """Declare the end of the text, which releases what was held back."""
        self._closed = True

    def only(self, *dialects: str, elements: Iterable[str] = (), names: Iterable[str] = (), own: str = "") -> None:
        """Recognize only the tags of these dialects, as inside a call; those of all dialects if none is given."""
        if not dialects:
            self._odd, self._patterns = (), self._all
            return
        rows = tuple(self._dialects[name] for name in dialects)
        own, declared = own or dialects[0], frozenset(names)
        if (own, declared) not in self._odd_of:
            self._odd_of[own, declared] = odd_tags(self._dialects[own], declared)
        self._odd = self._odd_of[own, declared]
        named = tuple((f"odd__{own}", tag.pattern) for tag in self._odd)
        self._patterns = _patterns(rows, element_tags(elements, rows[0].before_tags), named)

    def unread(self, text: str) -> None:
        """Take back the last characters that were read, so that they are read again."""
        self._line = ""
        if len(text) <= self._position:
            self._position -= len(text)
            return
        self._offset += self._position - len(text)
        self._buffer = text + self._buffer[self._position :]
        self._position = 0

    def next(self, mode: ScanMode) -> Token | None:
        """Return the next token, or None if more text is needed (or, once closed, at the end)."""
        start = self._position
        if start == len(self._buffer):
            return None
        trigger, lost, patterns = self._patterns[mode]
        found = trigger.search(self._buffer, start) if trigger else None
        end = found.start() if found else len(self._buffer)
        # `_Lost.place` checks this, too. But nearly all pieces of a stream are within a line, and a method call costs a tenth
        # of their time.
        is_within = self._line and self._line not in _SENTENCE_ENDS and end - start <= _REACH
        if lost and not (is_within and lost.later.search(self._buffer, start, end) is None):
            end = min(end, lost.place(self._buffer, start, end, self._line))
        if end > start:
            return self._text(end, keeps_line=lost is not None)
        match = self._match(patterns, start)
        if match is None:
            return self._text(start + 1)
        if match.partial or (match.end() == len(self._buffer) and match.lastgroup == "ticks" and not self._closed):
            return None
        return self._tag(match)

    def _match(self, patterns: tuple["_Alternatives", ...], start: int) -> Any:
        """Return the first match of a whole tag, else of the beginning of a tag, else None."""
        partial, beginning = None, self._buffer[start : start + 2]
        for alternatives in patterns:
            pattern = alternatives.beginning(beginning)
            match = pattern.match(self._buffer, start, partial=not self._closed) if pattern else None
            if match is not None and match.partial:
                if self._odd and alternatives is patterns[0]:  # it takes priority over a shorter tag, however the stream was cut
                    return match
                partial = partial or match
            elif match is not None and match.end() > start:  # a lookahead alone is not a tag
                return match
        return partial

    def _line_until(self, end: int) -> str:
        """Return the last character of the line that ends here: "" if the line is blank, "_" if blanks follow its text."""
        at = end
        while at > self._position and self._buffer[at - 1].isspace() and self._buffer[at - 1] != "\n":
            at -= 1
        last = self._buffer[at - 1] if at > self._position else self._line
        return "" if last in ("", "\n") else last if at == end else "_"

    def _text(self, end: int, keeps_line: bool = True) -> Token:
        text, start = self._buffer[self._position : end], self._position
        if keeps_line:  # else a tag comes before the next text in which lines count
            last = text[-1]
            self._line = last if not last.isspace() else self._line_until(end)
        self._position = end
        return Token("text", text, self._offset + start)

    def _tag(self, match: Any) -> Token:
        kind, _, dialect = match.lastgroup.partition("__")
        text = match.group()
        kind, attributes, pair = self._meaning(kind, text, dialect)
        if kind in _NAMED and not attributes.get("name"):
            return self._text(match.end())
        self._position, self._line = match.end(), ""
        return Token(kind, text, self._offset + match.start(), attributes, dialect, pair)

    def _meaning(self, kind: str, text: str, dialect: str) -> tuple[str, Mapping[str, str], str]:
        if kind == "odd":
            tag = next(tag for tag in self._odd if regex.fullmatch(tag.pattern, text))
            return tag.kind, tag.attributes, tag.pair
        part = kind.partition("_")[0]
        if part == "element" or (part == "call" and self._dialects[dialect].tool_elements):
            part = "parameter" if part == "element" else part
            name = text.removeprefix(self._dialects[dialect].before_tags).translate(_VISIBLE).strip("</> \t\r\n")
            return f"{part}_{kind.partition('_')[2]}", {"name": name}, f"{part} {name}"
        part = "parameter" if part == "body" else part
        attributes = attributes_of(text.translate(_VISIBLE), self._dialects[dialect].name_in_tag) if kind in _NAMED else {}
        return kind, attributes, part if dialect and part != "list" else ""


def has_hidden_in_name(opener: Token, dialect: Dialect) -> bool:
    """Say whether a tag's name was written with zero-width characters, which were removed."""
    if opener.text.isascii() or opener.text.translate(_VISIBLE) == opener.text:
        return False
    return attributes_of(opener.text, dialect.name_in_tag).get("name") != opener.attributes["name"]


_Groups = tuple[tuple[str, str], ...]


class _Lost:
    """Finds where a call without its mark may begin: first on its line, after a tag, or glued to the end of a sentence.

    Elsewhere its first letters are everyday words, and a stream would wait at each of them. A long text is searched only if it
    holds an identifying part of such a call; else only its end is, where that part may still arrive.
    """

    def __init__(self, sources: tuple[str, ...]) -> None:
        words = "|".join(_starts(sources))
        self._parts = tuple(certain_part(source) for source in sources)
        self._reach = max(_REACH, *map(len, sources))  # the patterns contain names of tools
        self._first = re.compile(rf"([^\S\n]*)({words})")
        self.later = re.compile(rf"(?:\n[^\S\n]*|[{_escaped(_SENTENCE_ENDS)}])({words})")

    def place(self, text: str, start: int, end: int, line: str) -> int:
        """Return the offset of the first such place, or the end; `line` is the last character before on the same line."""
        if end - start > self._reach and not any(text.find(part, start) >= 0 for part in self._parts):
            return self.place(text, end - self._reach, end, "_")
        found = self._first.match(text, start, end) if not line or line in _SENTENCE_ENDS else None
        if found and not (line and found[1]):
            return found.start(2)
        later = self.later.search(text, start, end)
        return later.start(1) if later else end


class _Alternatives:
    """Patterns of tags of one rank. Only those that may begin as the text does are tried, and the first match counts.

    Nearly all begin with `<`, and a stream tries them again with each piece of a tag. So filtering by the second character saves
    a quarter of the time of a call.
    """

    def __init__(self, groups: _Groups) -> None:
        self._groups = groups
        self._of: dict[str, Any] = {}  # for at most two ASCII characters each

    def beginning(self, text: str) -> Any:
        """Return the pattern of those that may begin with one or two characters, or None."""
        if text not in self._of:
            if not text.isascii():
                return _compiled(_alternation(self._groups))
            groups = tuple(group for group in self._groups if _compiled(group[1]).match(text, partial=True))
            self._of[text] = _compiled(_alternation(groups)) if groups else None
        return self._of[text]


class _Patterns(dict[ScanMode, tuple[Any, _Lost | None, tuple[_Alternatives, ...]]]):
    """Mode -> what finds the places to try, and the patterns to try there, in order; compiled on first use."""

    def __init__(self, groups: _Groups, of_tools: _Groups, odd: _Groups) -> None:
        self._groups = groups
        self._odd = odd
        self._of_tools = of_tools

    def __missing__(self, mode: ScanMode) -> tuple[Any, _Lost | None, tuple[_Alternatives, ...]]:
        common, with_tags = _MODES[mode]
        kinds = tuple((kind, _COMMON[kind]) for kind in common)
        groups = tuple((group, tag) for group, tag in self._groups if group.partition("__")[0] not in _NOT_IN[mode])
        lost = tuple(each for each in (*self._of_tools, *groups) if each[0].startswith("lost_open"))
        parts = (self._odd, self._of_tools, (*groups, *kinds)) if with_tags else (kinds,)
        rest = [tuple(each for each in part if each not in lost) for part in parts]
        of_lost = tuple(tag for _, tag in lost) if with_tags else ()
        ranks = (*rest[:1], lost, *rest[1:]) if with_tags else rest  # tags that are known as a whole precede all others
        sources = tuple(_alternation(rank) for rank in rest if rank)
        self[mode] = _trigger(sources), _lost(of_lost) if of_lost else None, tuple(_alternatives(rank) for rank in ranks if rank)
        return self[mode]


@functools.lru_cache(maxsize=256)
def _patterns(dialects: tuple[Dialect, ...], elements: _Groups = (), odd: _Groups = ()) -> _Patterns:
    """Return the patterns of some dialects. Those with tools' names are separate, because each set of tools needs its own."""
    tags = [(row, kind, tag) for row in dialects for kind, tag in row.tags.items()]
    groups = tuple((f"{kind}__{row.name}", tag) for row, kind, tag in tags if not _is_of_tools(row, kind))
    of_tools = tuple((f"{kind}__{row.name}", tag) for row, kind, tag in tags if _is_of_tools(row, kind))
    named = tuple((f"{kind}__{dialects[0].name}", tag) for kind, tag in elements)
    return _combined(groups, (*named, *of_tools), odd)  # elements come first, see `dialect.with_tools`


def _is_of_tools(row: Dialect, kind: str) -> bool:
    return row.tool_elements or (kind == "lost_open" and bool(row.lost_mark))


_combined = functools.lru_cache(maxsize=256)(_Patterns)
_alternatives = functools.lru_cache(maxsize=256)(_Alternatives)  # most ranks stay the same when the tools change
_lost = functools.lru_cache(maxsize=256)(_Lost)


@functools.lru_cache(maxsize=512)
def _compiled(source: str) -> Any:
    return regex.compile(source, cache_pattern=False)  # cached here; `regex`'s own cache is for all others


def _alternation(groups: _Groups) -> str:
    return "|".join(f"(?P<{group}>{source})" for group, source in groups)  # the first that matches counts


@functools.lru_cache(maxsize=256)
def _trigger(sources: tuple[str, ...]) -> Any:
    """Return a pattern for the characters that may begin a token, unless the next rules it out; `re` finds these faster."""
    starts = _starts(sources)
    return re.compile("|".join(starts)) if starts else None


def _starts(sources: tuple[str, ...]) -> list[str]:
    starts: dict[str, frozenset[str]] = {}
    words: list[str] = []
    for source in sources:
        characters, of_words = _starts_of(source)
        for first, following in characters:
            starts[first] = starts.get(first, frozenset()) | following
        words += of_words
    return [*(re.escape(first) + _before(following) for first, following in starts.items()), *dict.fromkeys(words)]


@functools.lru_cache(maxsize=512)  # most patterns stay the same when the tools change
def _starts_of(source: str) -> tuple[list[tuple[str, frozenset[str]]], list[str]]:
    """Return the characters that may begin a match, each with those that may follow, and patterns for words that may begin it."""
    characters, words = [], []
    for first in first_characters(source):
        if first.isalpha() and first.isascii() and (ahead := going_on(source, first, _AHEAD)):
            words.append(f"{first}(?={ahead})")
        else:
            characters.append((first, second_characters(source, first)))
    return characters, words


def _before(following: frozenset[str]) -> str:
    """Return a pattern for what must follow: one of these characters, or the end of the text so far."""
    if OTHER not in following:
        return rf"(?=[{_escaped(following)}]|\Z)"
    never = {chr(code) for code in range(128)} - following
    return f"(?![{_escaped(never)}])" if never else ""


def _escaped(characters: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))
