"""Pieces of the patterns by which tags are recognised.

Every quantifier is bounded, so that a tag has one greatest length: a finished tag and an unfinished one are refused by the same
rule, and the answer does not depend on how the stream was cut. Patterns have no groups.
"""

from collections.abc import Iterable

import regex

__all__ = ["ARGUMENTS", "ATTRIBUTES", "INVISIBLE", "NAMES", "SPACE", "alternation", "bare_json", "element", "is_escaped", "tag"]

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"  # characters of no width; they come from the web pages that models learnt from
_Z = rf"[{INVISIBLE}]?"
_S = rf"[\s{INVISIBLE}]"
SPACE = rf"{_S}{{0,16}}"

# Name, then a value in double, single, curly or full-width quotes, or bare.
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\uff02", "\uff02"), ("\u201d", "\u201d"))
_QUOTED = "|".join(f"{opening}[^{closing}<>]{{0,256}}{closing}" for opening, closing in _QUOTES)
_BARE = r"[^\s\"'<>=/\u2018\u2019\u201c\u201d\uff02]{1,256}"
_ATTRIBUTE = rf"{_S}{{1,16}}[A-Za-z_:][\w:.\-]{{0,31}}{_S}{{0,4}}={_S}{{0,4}}(?:{_QUOTED}|{_BARE})"
ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{1,6}}{SPACE}"

# The keys that models use in calls as JSON.
NAMES = ("name", "tool", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def tag(pattern: str, rest: str = SPACE, end: str = ">") -> str:
    """Return the pattern of a tag: any case, zero-width characters allowed around its parts.

    Args:
        pattern: everything up to the attributes, for example `</invoke`; a slash is kept apart from what follows.
        rest: pattern of what stands before the end.
        end: pattern of the end.
    """
    start = "</" if pattern.startswith("</") else "<"
    name = pattern[len(start) :]
    return f"(?i:{start[0]}{_Z}{start[1:]}{_Z}{name}{_Z}){rest}{end}"


def element(names: str, closing: bool = False) -> str:
    """Return the pattern of an element of one of these names, an alternation, without attributes."""
    return f"</{SPACE}(?:{names}){SPACE}>" if closing else f"<(?:{names}){SPACE}/?>"


def bare_json(wrappers: tuple[str, ...]) -> str:
    """Return the pattern of the first of a JSON object, or array of them, that is a call: up to its name, which is checked next.

    The name comes first, or after `id` and `type`, or in `function` (OpenAI's form); arguments may come first, too, and then the
    name is known at the end only.

    Args:
        wrappers: elements that may stand around it.
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


_ENTITY = r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"
_ESCAPED = regex.compile(rf"[^&<>]*+(?:{_ENTITY}[^&<>]*+)++")


def is_escaped(text: str) -> bool:
    """Say whether a text holds entities and none of the characters for which they stand."""
    return _ESCAPED.fullmatch(text) is not None


def alternation(names: Iterable[str]) -> str:
    """Return an alternation of names as they stand."""
    return "|".join(regex.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
