"""A text in which nothing opens a call, in any wire format: what may open one follows from the rows.

Strategy: only the first character of what may be markup of a call is written as an entity: `<` as `&lt;`, the `&` of a tag that
is written with entities itself as `&amp;`, and the bracket of what may be a call
without any mark as `&#123;` or `&#91;`. All else stays as
it is, so that a model can read the text and quote from it.

The order counts, because an entity can complete a tag of the format that is written with entities: `<invoke name="f"&gt;` is one
once its `<` was replaced. So these tags are looked for again, then JSON.

Cost: linear. Each place where markup can begin is looked at a few times, and every pattern of a row has a greatest length.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Final

import regex

from . import DIALECTS, NAMES, opening_pattern

__all__ = ["inert"]

_ENTITIES: Final = {"<": "&lt;", "&": "&amp;"}
_BRACKETS: Final = regex.compile(r"[{\[]")
_NAME_AT_END: Final = regex.compile(rf"(?:[\"'](?:{'|'.join(NAMES)})[\"']\s*:\s*(?:\"([^\"]*)\"|'([^']*)')|\[\s*([\w.\-]+)\()\Z")


def inert(text: str, names: Iterable[str], declared: Callable[[str], bool]) -> str:
    """Return a text in which nothing opens a call.

    Args:
        text: anybody's.
        names: of the tools, for the formats in which a call is an element of the tool's name.
        declared: says whether a name, in whatever spelling, means a tool.
    """
    text = _openers(tuple(names)).sub(_entity, text)
    return _without_bare_calls(_completed().sub("&amp;lt;", text), declared)


@functools.lru_cache(maxsize=64)
def _openers(names: tuple[str, ...]) -> "regex.Pattern[str]":
    return opening_pattern(DIALECTS.values(), names)


def _entity(found: "regex.Match[str]") -> str:
    return _ENTITIES.get(found[0], f"&#{ord(found[0])};")


@functools.cache
def _completed() -> "regex.Pattern[str]":
    """Return the pattern of the entity in which a whole tag begins, of the formats that are written with entities."""
    tags = [tag for row in DIALECTS.values() if row.entities for tag in row.tags.values()]
    return regex.compile(rf"(?=(?:{'|'.join(tags)}))&lt;")


def _without_bare_calls(text: str, declared: Callable[[str], bool]) -> str:
    """Write the bracket of what may be a call as an entity; where arguments come first, its name is not known yet."""
    parts, done = [], 0
    for bracket in _BRACKETS.finditer(text):
        at = bracket.start()
        if (opener := _bare_openers().match(text, at)) and _may_be_call(opener[0], declared):
            parts += [text[done:at], f"&#{ord(bracket[0])};"]
            done = at + 1
    return "".join([*parts, text[done:]])


def _may_be_call(opener: str, declared: Callable[[str], bool]) -> bool:
    name = _NAME_AT_END.search(opener)
    return name is None or declared(name[1] or name[2] or name[3])


@functools.cache
def _bare_openers() -> "regex.Pattern[str]":
    return regex.compile("|".join(row.tags["json_open"] for row in DIALECTS.values() if "json_open" in row.tags))
