"""References inside a JSON Schema (`$ref`, `$defs`, `$anchor`), resolved without fetching anything."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..types.calls import MISSING

__all__ = ["MAX_DEPTH", "deeper_than", "nodes", "pointed", "resolve"]

MAX_DEPTH = 64
"""Levels of a schema, and steps of a chain of references, that are followed."""


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

    Args:
        schema: a part of `root`.
        root: the whole schema that `#/...` points into.

    Returns:
        The schema pointed to, with sibling keywords such as `description` kept; MISSING for a dead end or a circle.
    """
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        target = pointed(root, schema["$ref"])
        if not isinstance(target, Mapping):
            return target if isinstance(target, bool) else MISSING
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **siblings}
    return MISSING


def pointed(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a reference points to, MISSING if nothing.

    Args:
        root: the whole schema.
        reference: `#`, `#/...` or `#anchor`; `#` is the root without a reference of its own.
    """
    if reference == "#":
        return {key: value for key, value in root.items() if key != "$ref"}
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isascii() and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return _anchored(root, reference)
    return node


def _anchored(root: Mapping[str, Any], reference: str) -> Any:
    name = reference.removeprefix("#")
    return next((node for node in nodes(root) if name and name == node.get("$anchor")), MISSING)


def deeper_than(levels: int, value: Any) -> bool:
    """Say whether a JSON value is nested deeper; what validates, shows or stores it recurses.

    Args:
        levels: that are allowed.
        value: as `json` reads it.
    """
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
