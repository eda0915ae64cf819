"""Random values that a JSON Schema admits, with strings made to be mistaken for markup, JSON or other types."""

import random
from collections.abc import Mapping
from typing import Any

from soup import COMMON, JSON, PIECES, pieces_of

from xmlcall.dialects import DIALECTS
from xmlcall.schema.references import resolve

HOSTILE = [*PIECES, *COMMON, *JSON, *(piece for dialect in DIALECTS.values() for piece in pieces_of(dialect))]
WORDS = ["x", "a b", "", " ", "\n", "null", "true", "5", "1.0", "[1]", "{}", "é", "日本", "\u202e", "🙂", "a,b", "'", '"', "\t"]


def any_value(rng: random.Random, depth: int = 2) -> Any:
    """Return any JSON value."""
    kinds = ["string", "integer", "number", "boolean", "null", *(["array", "object"] if depth else [])]
    return value_of({"type": rng.choice(kinds)}, {}, rng, depth)


def value_of(schema: Any, root: Mapping[str, Any], rng: random.Random, depth: int = 5) -> Any:
    """Return a value that a schema probably admits; the caller validates it."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or not schema:
        return any_value(rng, min(depth, 1))
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            rest, branch = {k: v for k, v in schema.items() if k != key}, rng.choice(schema[key])
            return value_of({**rest, **branch} if isinstance(branch, Mapping) else rest, root, rng, depth)
    kind = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else None)
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    return _MAKERS[kind](schema, root, rng, depth) if kind in _MAKERS else any_value(rng, min(depth, 1))


def _string(schema: Any, root: Any, rng: random.Random, depth: int) -> str:
    if schema.get("format") == "date":
        return f"20{rng.randint(10, 99)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}"
    text = "".join(rng.choice(rng.choice([HOSTILE, WORDS])) for _ in range(rng.randint(0, 5)))
    while len(text) < schema.get("minLength", 0):
        text += rng.choice("abc")
    return text[: schema.get("maxLength", len(text))]


def _integer(schema: Any, root: Any, rng: random.Random, depth: int) -> int:
    low = int(schema.get("minimum", schema.get("exclusiveMinimum", -1000) + 1 if "exclusiveMinimum" in schema else -1000))
    return rng.randint(low, max(low, int(schema.get("maximum", schema.get("exclusiveMaximum", low + 2001) - 1))))


def _number(schema: Any, root: Any, rng: random.Random, depth: int) -> Any:
    return (
        _integer(schema, root, rng, depth)
        if rng.random() < 0.5
        else _integer(schema, root, rng, depth) + rng.choice([0.25, 1e-9])
    )


def _array(schema: Any, root: Any, rng: random.Random, depth: int) -> list[Any]:
    least = schema.get("minItems", 0)
    count = rng.randint(least, max(least, min(schema.get("maxItems", least + 3), least + 3))) if depth or least else 0
    return [value_of(schema.get("items", {}), root, rng, depth - 1) for _ in range(count)]


def _object(schema: Any, root: Any, rng: random.Random, depth: int) -> dict[str, Any]:
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    wanted = [name for name in properties if name in required or (depth and rng.random() < 0.6)]
    found = {name: value_of(properties[name], root, rng, depth - 1) for name in wanted}
    more = schema.get("additionalProperties", not properties)
    if more and depth and not properties:
        found |= {name: value_of(more, root, rng, depth - 1) for name in rng.sample(["a", "b c", "d", "e<"], rng.randint(0, 2))}
    return found


_MAKERS: dict[Any, Any] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda schema, root, rng, depth: rng.random() < 0.5,
    "null": lambda schema, root, rng, depth: None,
    "array": _array,
    "object": _object,
}
