"""The fragments of text that identify a format, for text that must not read as a call and for replies that attempt one.

A fragment is a tag as its row's pattern reads it, or the beginning of a tag as the row writes it (`<invoke`, `[TOOL_CALLS]`), so
that a truncated tag is recognized, too. JSON has no tags; a call in JSON is recognized by its two keys.

Cost: linear in the text, because every pattern of a row has a maximum length and only a few of the hundreds are tried at one
place.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import regex

from .dialect import Dialect, with_tools
from .tag_patterns import ARGUMENTS, NAMES, OTHER, first_characters, second_characters

_FOREIGN = ("<tool>", "<tools>")  # elements that models invent around JSON: part of a pattern, not tags of a row
_HEAD = regex.compile(r"(?:&lt;|[^\w\s{])/?[^\s<>&={}\[\]\"]*")  # a written tag up to the end of its name
_JSON_KEYS = (
    regex.compile(rf'"(?:{"|".join(NAMES)})"\s*:\s*"'),
    regex.compile(rf'"(?:{"|".join((*ARGUMENTS, "tool_input"))})"\s*:'),
)
_PYTHON_LIST = regex.compile(r"(?m)^[ \t]{0,16}\[\s{0,8}[^\W\d][\w.\-]{0,127}\((?:\s{0,8}\w{1,128}\s{0,4}=(?!=)|\*\*\{|\)\])")
_FEW = 4  # fragments that are simply tried in turn
_DEEPEST = 3  # characters that distinguish them
_ANY_NAME = r"[\w.\-]{1,128}"
_NO_SIGN = frozenset({"json_open", "quote", "fence_close", "name_end", "mark"})  # mean nothing alone
# `<arguments>` may be a word of a manual; marks of reasoning and of messages occur in replies without a call.
_EVERYDAY = frozenset({"body_open", "list_close", "reasoning_open", "reasoning_close", "text_open", "message_close", "special"})


def opening_places(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> Callable[[str], list[int]]:
    """Return a function that finds each character that may begin a tag: `<`, the `&` of `&lt;`, or another one of a format.

    To make a text inert, replace these characters, for example by their entities. Bare JSON calls are not found, because they
    begin like any JSON. The names are those of the tools, for formats in which a tool's name is a tag.
    """
    openers = [_openers(part) for part in _parts(tuple(dialects), tuple(names))]
    return lambda text: sorted({at for branches, candidates in openers for at in _places(branches, candidates, text)})


def attempts_call(text: str, dialects: Iterable[Dialect], names: Iterable[str] = ()) -> bool:
    """Say whether a text contains a fragment of a call, whole or broken; it is too loose to run anything because of it."""
    rows = tuple(dialects)
    if any(_compiled(part).search(text) for part in _parts(rows, tuple(names), without=_EVERYDAY)):
        return True
    if any(row.is_python for row in rows) and _PYTHON_LIST.search(text):
        return True
    return any(row.is_json for row in rows) and all(key.search(text) for key in _JSON_KEYS)


def call_marks(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> str:
    """Return a pattern for the marks of formats that certainly mean a call."""
    return "|".join(dict.fromkeys(_fragments(dialects, tuple(names), without=_EVERYDAY)))


def _parts(dialects: tuple[Dialect, ...], names: tuple[str, ...], without: frozenset[str] = frozenset()) -> list[tuple[str, ...]]:
    """Return the fragments, those without a tool's name apart: they are compiled once instead of for each list of tools."""
    fragments = dict.fromkeys(_fragments(dialects, names, without))
    fixed = dict.fromkeys(each for each in _fragments(dialects, (), without) if each in fragments)
    named = tuple(each for each in fragments if each not in fixed)
    return [part for part in (tuple(fixed), named) if part]


def _fragments(dialects: Iterable[Dialect], names: tuple[str, ...], without: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield patterns: first the beginnings of tags, which are fast to find, then whole tags."""
    rows = tuple(with_tools(row, names) for row in dialects)
    heads = {
        match[0]
        for row in rows
        for kind, tag in row.written.items()
        if kind not in without | _NO_SIGN and (match := _HEAD.match(tag))
    }
    yield from (rf"(?i:{regex.escape(head)})(?![\w\-])" for head in sorted(heads) if any(map(str.isalnum, head)))
    yield from map(regex.escape, _FOREIGN)
    yield from (tag for row in rows for kind, tag in row.tags.items() if kind not in without | _NO_SIGN)
    lost = (row.lost_mark for row in rows if row.lost_mark and "call_open" not in row.tags)
    # A name before the mark is omitted, because any word may be one and the mark alone is as certain.
    yield from (mark.removeprefix("{tools}").replace("{tools}", _ANY_NAME) for mark in lost)


@functools.lru_cache(maxsize=1024)
def _compiled(fragments: tuple[str, ...]) -> "regex.Pattern[str]":
    return regex.compile("|".join(dict.fromkeys(fragments)))


# In a text of nothing but `<`, each of the hundreds of fragments would be tried at each place. So their first three characters
# distinguish them, and only the few that remain are tried.


@dataclass(frozen=True)
class _Branch:
    """Fragments with the same first characters, split by the next one if there are many; `others` if no fragment names it."""

    fragments: tuple[str, ...]
    following: Mapping[str, "_Branch"]
    others: "_Branch | None" = None

    @functools.cached_property
    def pattern(self) -> "regex.Pattern[str]":
        """A pattern for any of the fragments, compiled on first use."""
        return _compiled(self.fragments)


@functools.lru_cache(maxsize=64)
def _openers(fragments: tuple[str, ...]) -> tuple[Mapping[str, _Branch], re.Pattern[str]]:
    """Return fragments by their first character, and a pattern for the places where one may begin."""
    groups: dict[str, list[str]] = {}
    for each in fragments:
        for first in first_characters(each):
            groups.setdefault(first, []).append(each)
    branches = {first: _branch(tuple(group), first) for first, group in groups.items()}
    return branches, re.compile("|".join(re.escape(first) + _ahead(branch) for first, branch in branches.items()))


def _branch(fragments: tuple[str, ...], start: str) -> _Branch:
    """Split fragments by what may follow their first characters; anything may follow a fragment that may end there."""
    if len(start) > 1 and (len(fragments) <= _FEW or len(start) >= _DEEPEST):
        return _Branch(fragments, {})
    seconds = {each: second_characters(each, start) for each in fragments}
    whole = {each for each in fragments if _compiled((each,)).match(start)}
    following = {}
    for char in frozenset().union(*seconds.values()) - {OTHER}:
        group = tuple(each for each in fragments if each in whole or _compiled((each,)).match(start + char, partial=True))
        following[char] = _branch(group, start + char)
    others = tuple(each for each in fragments if each in whole or OTHER in seconds[each])
    return _Branch(fragments, following, _Branch(others, {}) if others else None)


def _ahead(branch: _Branch) -> str:
    """Return a lookahead for the distinguishing characters that may follow; "" if anything may."""
    if branch.others or not branch.following:
        return ""
    alike: dict[str, str] = {}
    for char, below in sorted(branch.following.items()):
        ahead = _ahead(below)
        alike[ahead] = alike.get(ahead, "") + re.escape(char)
    return f"(?={'|'.join(f'[{each}]{ahead}' for ahead, each in alike.items())})"


def _places(branches: Mapping[str, _Branch], candidates: re.Pattern[str], text: str) -> Iterator[int]:
    for found in candidates.finditer(text):
        at, depth = found.start(), 1
        branch: _Branch | None = branches[text[at]]
        while branch and branch.following:
            branch, depth = branch.following.get(text[at + depth : at + depth + 1], branch.others), depth + 1
        if branch and branch.pattern.match(text, at):
            yield at
