"""Pieces of the patterns that recognize tags.

Every quantifier is bounded, so that a tag has a maximum length: the same rule rejects finished and unfinished tags, and the
result does not depend on how the stream was cut. Patterns have no groups. The characters that may begin a match are found by
partial matching with the pattern itself, so that they need not be stated a second time.
"""

import functools
import re
from collections.abc import Iterable

import regex

ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"  # characters of no width; they come from the web pages that models learnt from
_Z = rf"[{ZERO_WIDTH}]?"
_S = rf"[\s{ZERO_WIDTH}]"
SPACE = rf"{_S}{{0,16}}"

# Name, then a value in double, single, curly or full-width quotes, or bare.
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\uff02", "\uff02"), ("\u201d", "\u201d"))
_QUOTED = "|".join(f"{opening}[^{closing}<>]{{0,256}}{closing}" for opening, closing in _QUOTES)
_BARE = r"[^\s\"'<>=/\u2018\u2019\u201c\u201d\uff02]{1,256}"
_ATTRIBUTE = rf"{_S}{{1,16}}[A-Za-z_:][\w:.\-]{{0,31}}{_S}{{0,4}}={_S}{{0,4}}(?:{_QUOTED}|{_BARE})"
ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{1,6}}{SPACE}"

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]*\}|.", re.DOTALL)  # a piece of a pattern

# The keys that models use in calls as JSON.
NAMES = ("name", "tool", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def tag(pattern: str, rest: str = SPACE, end: str = ">") -> str:
    """Return the pattern of a tag such as `</invoke`: any case, zero-width characters allowed around its parts."""
    start = "</" if pattern.startswith("</") else "<"
    name = pattern[len(start) :]
    return f"(?i:{start[0]}{_Z}{start[1:]}{_Z}{name}{_Z}){rest}{end}"


def element(names: str, closing: bool = False) -> str:
    """Return the pattern of an element without attributes; `names` is an alternation of its names."""
    return f"</{SPACE}(?:{names}){SPACE}>" if closing else f"<(?:{names}){SPACE}/?>"


def bare_json(wrappers: tuple[str, ...]) -> str:
    """Return the pattern for the beginning of a JSON call, or an array of them, up to its name, which is checked next.

    The name comes first, or after `id` and `type`, or in `function` (OpenAI's form). Arguments may come first, too; the name is
    then known only at the end.
    """
    quote = r"[\"']"
    string = r"(?:\"[^\"\\<>]{1,128}\"|'[^'\\<>]{1,128}')"
    colon = rf"{quote}\s{{0,4}}:\s{{0,16}}"
    wrapper = rf"(?:<(?i:{'|'.join(wrappers)})>\s{{0,32}})?"
    before = rf"(?:{quote}(?:id|type){colon}{string}\s{{0,16}},\s{{0,32}}){{0,2}}"
    named = rf"(?:{quote}function{colon}\{{\s{{0,32}})?{quote}(?:{'|'.join(NAMES)}){colon}{string}"
    arguments = rf"{quote}(?:{'|'.join(ARGUMENTS)}){colon}\{{"
    listed = rf"(?:{quote}tool_calls{colon}\[\s{{0,32}}\{{\s{{0,32}})?"
    return rf"{wrapper}(?:\[\s{{0,32}})?\{{\s{{0,32}}{listed}{before}(?:{named}|{arguments})"


PYTHON_LIST = r"\[\s{0,8}[^\W\d][\w.\-]{0,127}\("
"""The beginning of a list of Python calls, up to the bracket after the first name."""

_ENTITY = r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
_ESCAPED = regex.compile(rf"[^&<>]*+(?:{_ENTITY}[^&<>]*+)++")


def is_escaped(text: str) -> bool:
    """Say whether a text contains entities but none of the characters that they mean."""
    return _ESCAPED.fullmatch(text) is not None


_READ_ATTRIBUTE = regex.compile(
    r"""\s([\w:.\-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|[\u201c\u201d]([^\u201d]*)\u201d|\u2018([^\u2019]*)\u2019"""
    r"""|\uff02([^\uff02]*)\uff02|([^\s"'<>=/\u2018\u2019\u201c\u201d\uff02]+))"""
)


def attributes_of(tag: str, name_in_tag: str) -> dict[str, str]:
    """Return the attributes of an opener, with keys in lower case; of a repeated attribute, the first value."""
    found: dict[str, str] = {}
    if name_in_tag:
        name = regex.search(name_in_tag, tag)
        if name is None:
            return {}
        found["name"] = name.group(1)
    for key, *values in _READ_ATTRIBUTE.findall(tag):
        found.setdefault(key.lower(), "".join(values))  # one of them matched
    return found


OTHER = ""  # in sets of characters: those beyond ASCII that the pattern does not name
EXOTIC = ("\u00e9", "\u0416", "\u4e2d", "\ue000", "\U0001f600")  # samples of these
WHITE = "".join(each for each in map(chr, range(0x3001)) if each.isspace())
_ASCII = "".join(map(chr, range(128)))
_CODE = regex.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


@functools.lru_cache(maxsize=512)
def first_characters(source: str) -> list[str]:
    """Return the characters that may begin a match of a pattern, sorted.

    Characters beyond ASCII are found only if the pattern names them.
    """
    pattern = regex.compile(source)
    return [each for each in _known(source) if pattern.match(each, partial=True)]


def second_characters(source: str, first: str) -> frozenset[str]:
    """Return the characters that may follow the first ones of a match; `OTHER` stands for those that it does not name."""
    pattern = regex.compile(source)
    found = {each for each in _known(source) if pattern.match(first + each, partial=True)}
    return frozenset(found | {OTHER} if any(pattern.match(first + each, partial=True) for each in EXOTIC) else found)


@functools.lru_cache(maxsize=512)
def _known(source: str) -> tuple[str, ...]:
    coded = (chr(int("".join(digits), 16)) for digits in _CODE.findall(source) if int("".join(digits), 16) <= 0x10FFFF)
    return tuple(sorted({*_ASCII, *WHITE, *source, *coded} - {*EXOTIC}))


_SAMPLES = (" ", "\n", "\x1f", "0", "a", "Z", "_", "-", "~", *EXOTIC)  # one or more of each class of characters


@functools.lru_cache(maxsize=2048)
def going_on(source: str, start: str, more: int) -> str:
    """Return a pattern for what may follow the first letters of a match, or the end of the text so far.

    Everyday words begin with such letters, too, so more than one letter has to be checked: `more`, unless any character may
    follow.
    """
    pattern = regex.compile(source)
    known = {*source, *source.swapcase()}
    following = {each for each in (*known, *_SAMPLES) if pattern.match(start + each, partial=True)}
    if not more or not following or following - known:
        return ""
    parts = [regex.escape(each) + going_on(source, start + each, more - 1) for each in sorted(following)]
    return rf"(?:{'|'.join(parts)}|\Z)"


def certain_part(source: str) -> str:
    """Return the longest text that every match contains, judging by the pattern's outermost level; "" if there is none."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(source):
        depth += (token == "(") - (token == ")")
        is_literal = not depth and token not in "()" and (len(token) == 1 or (token[0] == "\\" and not token[1].isalnum()))
        if token == "|" and not depth:
            return ""
        if token[0] in "?*+{":
            parts[-1] = parts[-1][:-1]
        parts[-1:] = [parts[-1] + token[-1]] if is_literal and token not in "?*+" else [parts[-1], ""]
    return max(parts, key=len)


def alternation(names: Iterable[str]) -> str:
    return "|".join(regex.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
