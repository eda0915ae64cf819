"""By which fragments of text a format is known: for text that must not read as a call, and for replies that mean to make one.

A fragment is a tag as its row's pattern reads it, or the beginning of a tag as the row writes it (`<invoke`, `[TOOL_CALLS]`), so
that a tag which was cut is known, too. JSON has no tags; a call as JSON is known by its two keys.

Cost: linear in the text, because every pattern of a row has a greatest length.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping

import regex

from .dialect import Dialect, with_tools
from .tag_patterns import ARGUMENTS, NAMES, first_characters

__all__ = ["attempts_call", "call_marks", "opening_pattern"]

_FOREIGN = ("<tool>", "<tools>")  # elements that models make up around JSON: part of a pattern, and no tags of a row
_HEAD = regex.compile(r"(?:&lt;|[^\w\s{])/?[^\s<>&={}\[\]\"]*")  # a written tag up to the end of its name
_JSON_KEYS = (
    regex.compile(rf'"(?:{"|".join(NAMES)})"\s*:\s*"'),
    regex.compile(rf'"(?:{"|".join((*ARGUMENTS, "tool_input"))})"\s*:'),
)
_PYTHON_LIST = regex.compile(r"(?m)^[ \t]{0,16}\[\s{0,8}[^\W\d][\w.\-]{0,127}\((?:\s{0,8}\w{1,128}\s{0,4}=(?!=)|\*\*\{|\)\])")
_ANY_NAME = r"[\w.\-]{1,128}"
_NO_SIGN = frozenset({"json_open", "quote", "fence_close", "name_end", "mark"})  # mean nothing alone
# `<arguments>`: words of a manual just as well; marks of thoughts and of messages stand in replies without a call.
_EVERYDAY = frozenset({"body_open", "list_close", "reasoning_open", "reasoning_close", "text_open", "message_close", "special"})


def opening_pattern(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> "regex.Pattern[str]":
    """Return the pattern of one character, the first of what may be a tag: `<`, `&` of `&lt;`, or what else a format has.

    To make a text inert, replace each match, for example by its entity. Calls as JSON alone begin with what any JSON begins
    with; no pattern makes them inert.

    Args:
        dialects: the formats, for example `select("auto")`.
        names: of the tools, for formats in which a tool's name is a tag.
    """
    return _compiled(tuple(_fragments(dialects, tuple(names))), ahead=True)


def attempts_call(text: str, dialects: Iterable[Dialect], names: Iterable[str] = ()) -> bool:
    """Say whether a text holds a fragment of a call, whole or broken: looser than the parser, nothing may run because of it.

    Args:
        text: what a model said, without its thoughts.
        dialects: the formats, for example `select("auto")`.
        names: of the tools, for formats in which a tool's name is a tag.
    """
    rows = tuple(dialects)
    fragments = dict.fromkeys(_fragments(rows, tuple(names), without=_EVERYDAY))
    # Apart, since the many that hold no name of a tool need to be compiled once, and not for each list of tools.
    fixed = tuple(each for each in _fragments(rows, (), without=_EVERYDAY) if each in fragments)
    named = tuple(each for each in fragments if each not in frozenset(fixed))
    if any(_compiled(part, ahead=False).search(text) for part in (fixed, named) if part):
        return True
    if any(row.is_python for row in rows) and _PYTHON_LIST.search(text):
        return True
    return any(row.is_json for row in rows) and all(key.search(text) for key in _JSON_KEYS)


def call_marks(dialects: Iterable[Dialect], names: Iterable[str] = ()) -> str:
    """Return a pattern of the marks of formats that mean a call for certain.

    Args:
        dialects: the formats.
        names: of the tools, for formats in which a tool's name is a tag.
    """
    return "|".join(dict.fromkeys(_fragments(dialects, tuple(names), without=_EVERYDAY)))


def _fragments(dialects: Iterable[Dialect], names: tuple[str, ...], without: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield patterns: first the beginnings of tags, which are found fast, then whole tags."""
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
    # A name before the mark is left out: any word may be one, and the mark alone is as certain.
    yield from (mark.removeprefix("{tools}").replace("{tools}", _ANY_NAME) for mark in lost)


@functools.lru_cache(maxsize=64)
def _compiled(fragments: tuple[str, ...], *, ahead: bool) -> "regex.Pattern[str]":
    anything = "|".join(dict.fromkeys(fragments))
    return regex.compile(rf"(?:{_guarded(dict.fromkeys(fragments))})(?s:.)" if ahead else anything)


def _guarded(fragments: Iterable[str]) -> str:
    """Return a pattern of the place before any fragment: what begins with a mark is not tried at each letter of a prose."""
    firsts = {each: first_characters(each) for each in fragments}
    words = [each for each, found in firsts.items() if any(first.isalnum() or first.isspace() for first in found)]
    marks = [each for each in firsts if each not in words]
    return "|".join(_at_one_of(firsts, group) for group in (marks, words) if group)


def _at_one_of(firsts: Mapping[str, Iterable[str]], group: Iterable[str]) -> str:
    characters = "".join(map(regex.escape, sorted({each for fragment in group for each in firsts[fragment]})))
    return rf"(?=[{characters}])(?={'|'.join(group)})"
