"""Which values of a call nobody said: neither the conversation nor the tool's schema has them.

A string is said where it stands in a text, or where most of its words do; a number where its digits or its word do. Lists and
objects are said where everything in them is. What would have to be computed or known ("Asia/Tokyo" for Tokyo) counts as unsaid.

Cost: linear in the texts and in the values.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..types.tool import Tool

__all__ = ["unsaid"]

_WORD: Final = re.compile(r"[^\W_]+")
_NUMBER: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SMALL: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_NUMBER_WORDS: Final[Mapping[str, float]] = {
    **{word: float(number) for number, word in enumerate(_SMALL)},
    "a": 1.0,
    "an": 1.0,
    "once": 1.0,
    "first": 1.0,
    "twice": 2.0,
    "second": 2.0,
    "third": 3.0,
    "half": 0.5,
    "hundred": 100.0,
}
_MOST: Final = 0.8  # of a string's words
_FOUND_IN: Final = ("enum", "const", "default", "examples", "example", "description", "title")


def unsaid(arguments: Mapping[str, Any], tool: Tool | None, texts: Iterable[str]) -> frozenset[str]:
    """Return the parameters of a call that hold a value which nobody said.

    Args:
        arguments: of the call.
        tool: that is called; None if its schema is not known.
        texts: of the conversation.
    """
    said = "\n".join(texts)
    return frozenset(name for name, value in arguments.items() if not _is_said(value, "\n".join([said, *_told_of(tool, name)])))


def _told_of(tool: Tool | None, name: str) -> Iterator[str]:
    """Yield what a tool says of itself and of a parameter, whose schema may be nested."""
    if tool is None:
        return
    yield tool.description
    properties = tool.input_schema.get("properties")
    stack = [properties.get(name)] if isinstance(properties, Mapping) else []
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, Mapping):
            yield from (json.dumps(node[key], ensure_ascii=False, default=repr) for key in _FOUND_IN if key in node)
            stack += [each for key, each in node.items() if key not in _FOUND_IN]


def _is_said(value: Any, text: str) -> bool:
    words, numbers = set(_WORD.findall(text.casefold())), set(_numbers(text))
    for leaf in _leaves(value):
        if isinstance(leaf, int | float):
            if abs(leaf) not in numbers and abs(leaf) / 100 not in numbers and abs(leaf) * 100 not in numbers:  # 5 % is 0.05
                return False
        elif leaf.strip().casefold() not in text.casefold():
            own = _WORD.findall(leaf.casefold())
            if sum(word in words or _as_number(word) in numbers for word in own) < _MOST * len(own):
                return False
    return True


def _leaves(value: Any) -> Iterator[str | int | float]:
    """Yield the strings and numbers in a value; true, false, null and what is empty anybody may choose."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, Mapping):
            stack += each.values()
        elif isinstance(each, list | tuple):
            stack += each
        elif isinstance(each, str | int | float) and not isinstance(each, bool) and each != "":
            yield each


def _numbers(text: str) -> Iterator[float]:
    yield from (float(number.replace(",", "")) for number in _NUMBER.findall(text))
    yield from (_NUMBER_WORDS[word] for word in _WORD.findall(text.casefold()) if word in _NUMBER_WORDS)


def _as_number(word: str) -> float | None:
    return float(word) if word.isascii() and word.isdigit() else _NUMBER_WORDS.get(word)
