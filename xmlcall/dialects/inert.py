"""A text in which nothing opens a call, in any wire format: what may open one follows from the rows.

Strategy: only the first character of what would open a call is written as an entity: `<` as `&lt;`, the `&` of a tag that is
written with entities itself as `&amp;`, and the brace of an object that is a call as JSON as `&#123;`. All else stays as it is,
so that a model can read the text and quote from it. A call needs the opener of a wrapper or of its own; its other tags say
nothing alone and stay.

The order counts, because an entity can complete a tag of the format that is written with entities: `<invoke name="f"&gt;` has
become one when its `<` was replaced. So tags with `<` come first, tags with `&` second, and JSON last.

Cost: linear. Each place where an opener can begin is looked at once, and every pattern of a row has a greatest length.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import regex

from . import DIALECTS, with_tools

__all__ = ["inert"]

_OPENERS: Final = ("block_open", "call_open")
_ENTITIES: Final = {"<": "&lt;", "&": "&amp;", "{": "&#123;"}
_NAME_AT_END: Final = regex.compile(r"(?:name|function|tool|tool_name)[\"']\s*:\s*(?:\"([^\"]*)\"|'([^']*)')\Z")


def inert(text: str, names: Iterable[str], declared: Callable[[str], bool]) -> str:
    """Return a text in which nothing opens a call.

    Args:
        text: anybody's.
        names: of the tools, for the formats in which a call is an element of the tool's name.
        declared: says whether a name, in whatever spelling, means a tool.
    """
    of_rows, of_tools = _tags(()), _tags(tuple(names))
    for first in "<&":
        text = _replaced(text, first, of_rows[first], of_tools[first])
    return _without_json(text, declared)


def _replaced(text: str, first: str, *patterns: Any) -> str:
    """Write the first character of each tag as an entity."""
    return "".join(_pieces(text, first, lambda at: any(pattern.match(text, at) for pattern in patterns)))


def _without_json(text: str, declared: Callable[[str], bool]) -> str:
    """Write the brace of each object that may be a call as an entity; where arguments come first, its name is not known yet."""

    def is_call(at: int) -> bool:
        opener = _json().match(text, at)
        name = _NAME_AT_END.search(opener[0]) if opener else None
        return opener is not None and (name is None or declared(name[1] or name[2]))

    return "".join(_pieces(text, "{", is_call))


def _pieces(text: str, first: str, opens: Callable[[int], bool]) -> Iterable[str]:
    done = 0
    at = text.find(first)
    while at >= 0:
        if opens(at):
            yield text[done:at]
            yield _ENTITIES[first]
            done = at + 1
        at = text.find(first, at + 1)
    yield text[done:]


@functools.lru_cache(maxsize=64)
def _tags(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the openers of all rows by their first character; with names, only those that depend on the tools."""
    rows = [with_tools(row, names) for row in DIALECTS.values() if row.tool_elements == bool(names)]
    tags = [tag for row in rows for kind, tag in row.tags.items() if kind in _OPENERS]
    entity = [tag for tag in tags if tag.startswith("&")]
    return {"<": _any_of([tag for tag in tags if tag not in entity]), "&": _any_of(entity)}


def _any_of(patterns: list[str]) -> Any:
    return regex.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")


@functools.cache
def _json() -> Any:
    return _any_of([row.tags["json_open"] for row in DIALECTS.values() if "json_open" in row.tags])
