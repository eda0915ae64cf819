"""What a schema admits, in a few words: for prompts, and for what is told of a wrong value."""

import json
from collections.abc import Mapping
from typing import Any

from .budget import CHARACTERS, as_deep_as_pays, spend
from .references import resolve

__all__ = ["RANGES", "describe"]

RANGES = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
    "minItems": "length at least {}",
    "maxItems": "length at most {}",
    "pattern": "matching {}",
    "format": "format {}",
}
"""Keyword -> its words; `{}` is the keyword's value."""


_MAX_PLACES = 8  # of a tuple that are told


def describe(schema: Any, root: Mapping[str, Any], depth: int = 4) -> str:
    """Say in a few words which values a schema admits.

    Returns:
        For example `integer, at least 1`, `"celsius" or "fahrenheit"`, `array of string`.
    """
    written = schema if isinstance(schema, Mapping) else {}
    return as_deep_as_pays(written, range(depth, -1, -1), lambda levels: _described(schema, root, levels), "any value")


def _described(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolve(schema, root)
    if schema is False:
        return "no value"
    if not isinstance(schema, Mapping) or depth == 0:
        return "any value"
    ranges = [words.format(_plain(schema[key])) for key, words in RANGES.items() if key in schema]
    told = ", ".join([_kind(schema, root, depth), *ranges])
    spend(len(told) // CHARACTERS)
    return told


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            is_object = schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
            told = [_described(branch, root, depth - 1) for branch in schema[key] if branch is not False] or ["no value"]
            return " or ".join(dict.fromkeys("object" if is_object and each == "any value" else each for each in told))
    kinds = schema.get("type", "object" if "properties" in schema else "any value")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(_array(schema, root, depth) if kind == "array" else str(kind) for kind in kinds)


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    first = schema.get("prefixItems")
    if isinstance(first, list) and first:
        told = [_described(each, root, depth - 1) for each in first[:_MAX_PLACES]]
        goes_on = len(first) > _MAX_PLACES or isinstance(schema.get("items"), Mapping)
        return f"array of ({', '.join([*told, *(['...'] if goes_on else [])])})"
    return f"array of {_described(schema['items'], root, depth - 1)}" if "items" in schema else "array"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
