"""References inside a JSON Schema (`$ref`, `$defs`, `$anchor`), resolved without fetching anything."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..types.calls import MISSING
from .budget import KEYS, spend

__all__ = ["MAX_DEPTH", "declared", "deeper_than", "nodes", "pointed", "resolve"]

MAX_DEPTH = 64
"""Levels of a schema, and steps of a chain of references, that are followed."""

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_SINGLE_BRANCHES: Final = ("then", "else")


def nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object inside a JSON value, without recursion."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow local `$ref`s until a schema without one.

    Returns:
        The schema pointed to, with sibling keywords such as `description` kept; MISSING for a dead end or a circle.
    """
    spend()
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        target = pointed(root, schema["$ref"])
        if not isinstance(target, Mapping):
            return target if isinstance(target, bool) else MISSING
        if len(schema) > 1:
            spend(1 + (len(target) + len(schema)) // KEYS)
            target = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        schema = target
    return MISSING


def declared(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the `properties` of a schema and of its branches (JSON Schema 2020-12, core, section 10.2), each once, in order."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(properties := part.get("properties"), Mapping):
            yield properties
        reference = part.get("$ref")
        target = pointed(root, reference) if isinstance(reference, str) and reference != "#" else None
        listed = [branch for key in _BRANCHES if isinstance(part.get(key), list) for branch in part[key]]
        stack += reversed([target, *listed, *(part.get(key) for key in _SINGLE_BRANCHES)])
        if reference == "#":
            stack.append(root)


def pointed(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a reference points to, MISSING if nothing.

    Args:
        reference: `#`, `#/...` or `#anchor`; `#` is the root without a reference of its own.
    """
    if reference == "#":
        return {key: value for key, value in root.items() if key != "$ref"}
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(node):
            node = node[int(key)]
        else:
            return _anchored(root, reference)
    return node


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """A schema by its identity, since it has no hash."""

    schema: Mapping[str, Any]

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and other.schema is self.schema


@functools.lru_cache(maxsize=64)
def _anchors(whole: _Whole) -> Mapping[str, Any]:
    """Find the anchors of a schema once: a look for each reference would be quadratic."""
    found: dict[str, Any] = {}
    for node in nodes(whole.schema):
        if isinstance(name := node.get("$anchor"), str):
            found.setdefault(name, node)
    return found


def _anchored(root: Mapping[str, Any], reference: str) -> Any:
    name = reference.removeprefix("#")
    return _anchors(_Whole(root)).get(name, MISSING) if name else MISSING


def deeper_than(levels: int, value: Any) -> bool:
    """Say whether a JSON value is nested deeper; what validates, shows or stores it recurses."""
    layer = [value]
    for _ in range(levels):
        layer = [
            child
            for node in layer
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not layer:
            return False
    return any(isinstance(node, (dict, list)) and node for node in layer)
