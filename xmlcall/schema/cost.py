"""How much work one value can be for a schema, so that a small schema cannot stop a program.

Keywords such as `allOf` apply schemas to the same value, and references make a tree of doublings out of a few lines: 40
definitions, each of which refers to the next one twice, are 2^40 steps for `jsonschema`. So the steps for one value are counted
before a schema is used. A shared part counts each time that it would run. The value itself bounds the steps into members and
items.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .references import MAX_DEPTH, nodes, pointed

__all__ = ["MAX_STEPS", "costs_too_much"]

MAX_STEPS: Final = 5_000
"""Of one value at one place; real schemas have tens."""

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")


def costs_too_much(schema: Mapping[str, Any]) -> bool:
    """Say whether some value could need more than MAX_STEPS at one place."""
    known: dict[int, int] = {}
    return any(_steps(node, schema, known, MAX_DEPTH) > MAX_STEPS for node in nodes(schema))


def _steps(node: Any, root: Mapping[str, Any], known: dict[int, int], levels: int) -> int:
    """Count the schemas that one schema applies to a value; a circle, or a chain that is too long, counts as too many."""
    if not isinstance(node, Mapping):
        return 0
    if levels == 0:
        return MAX_STEPS + 1
    if id(node) not in known:
        known[id(node)] = MAX_STEPS + 1  # in a circle: until it is known
        known[id(node)] = min(1 + sum(_steps(part, root, known, levels - 1) for part in _applied(node, root)), MAX_STEPS + 1)
    return known[id(node)]


def _applied(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema applies to the same value (JSON Schema 2020-12, core, section 10.2)."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        yield root if reference == "#" else pointed(root, reference)  # the same object each time, or counts would be lost
    for key in _LISTS:
        yield from node[key] if isinstance(node.get(key), list) else ()
    for key in _SINGLE:
        yield node.get(key)
    dependent = node.get("dependentSchemas")
    yield from dependent.values() if isinstance(dependent, Mapping) else ()
