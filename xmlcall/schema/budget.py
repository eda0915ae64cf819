"""Bounds the work that a schema may cost by its written size, however much its references expand it.

A part with many references counts each time that a walk reaches it: forty alternatives that each lead to the next forty are sixty
million parts after five levels, in a schema of seven kilobytes. So each walk through a schema has a depth, and its steps are
counted. If there are too many, the walk is repeated with less depth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, Final, TypeVar

CHARACTERS: Final = 16
"""How many characters of a text count as one step."""

KEYS: Final = 16
"""How many keys of an object are copied in one step."""

_LEAST: Final = 2_000  # steps, whatever the size
_EACH: Final = 4  # steps for each part that is written
_MOST: Final = 20_000  # a microsecond or two each; a larger schema is refused for its calls

_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)

T = TypeVar("T")
Level = TypeVar("Level")


class TooMuchWork(Exception):
    """A schema takes more steps than it may."""


def spend(steps: int = 1) -> None:
    """Count steps, where anybody counts."""
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise TooMuchWork


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Count the steps inside; a limit inside another one counts for itself."""
    token = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(token)


def as_deep_as_pays(schema: Mapping[str, Any], levels: Sequence[Level], walk: Callable[[Level], T], otherwise: T) -> T:
    """Walk through a schema as deep as stays in proportion to its size. Inside another such walk that one counts."""
    if _left.get() is not None:
        return walk(levels[0])
    steps = min(_LEAST + _EACH * size_of(schema, _MOST), _MOST)
    for level in levels:
        try:
            with at_most(steps):
                return walk(level)
        except TooMuchWork:
            continue
    return otherwise


def size_of(value: Any, enough: float = inf) -> int:
    """Count the parts of a JSON value; a long text counts as several."""
    size, stack = 0, [value]
    while stack and size < enough:
        node = stack.pop()
        size += 1 + (len(node) // CHARACTERS if isinstance(node, str) else 0)
        if isinstance(node, Mapping):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return size
