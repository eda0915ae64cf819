"""A schema as alternatives of one kind each: references followed, `anyOf`, `oneOf` and `allOf` taken apart.

What cannot be held by a grammar is not held, and told: `Loosened` gathers the places. Nothing is ever held that the schema does
not say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..schema.references import resolve
from ..schema.validation import types_of
from ..types.calls import MISSING

__all__ = ["ANYTHING", "ENUMERATED", "Loosened", "branches"]

ANYTHING: Final = "anything"
ENUMERATED: Final = "enum"
MOST: Final = 64  # alternatives of a value
DEEPEST: Final = 16  # levels of alternatives
Branch = tuple[str, Mapping[str, Any]]
"""One of JSON's types, `ANYTHING` or `ENUMERATED`, and the schema."""

_NOTES: Final = frozenset(
    """$anchor $comment $defs $id $ref $schema contentEncoding contentMediaType contentSchema default definitions deprecated
    description example examples format nullable readOnly title writeOnly""".split()  # noqa: SIM905
)
# What a grammar holds of each kind; what else stands in the schema is loosened.
_HELD: Final = {
    "string": frozenset({"pattern", "minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
# What says something of one kind only: without a meaning for the others.
_OF_KIND: Final = {
    "string": frozenset({"pattern", "minLength", "maxLength"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "array": frozenset(
        """items minItems maxItems prefixItems additionalItems uniqueItems contains minContains maxContains
        unevaluatedItems""".split()  # noqa: SIM905
    ),
    "object": frozenset(
        """properties required additionalProperties patternProperties propertyNames minProperties maxProperties dependencies
        dependentRequired dependentSchemas unevaluatedProperties""".split()  # noqa: SIM905
    ),
}
_ALL_KINDS: Final = {keyword: kind for kind, keywords in _OF_KIND.items() for keyword in keywords}


@dataclass(slots=True)
class Loosened:
    """What a grammar does not hold, each once: `get_weather.days: multipleOf`."""

    found: dict[str, None] = field(default_factory=dict)

    def note(self, path: str, what: str) -> None:
        """Note what is not held, and where."""
        self.found[f"{path}: {what}"] = None

    def note_keywords(self, path: str, kind: str, schema: Mapping[str, Any]) -> None:
        """Note the keywords of a schema of one kind that a grammar does not hold."""
        number = "number" if kind == "integer" else kind
        for keyword in schema.keys() - _NOTES - {"type", "enum", "const"} - _HELD.get(kind, frozenset()):
            if _ALL_KINDS.get(keyword, number) == number or kind == ANYTHING:
                self.note(path, keyword)


def branches(schema: Any, root: Mapping[str, Any], path: str, loosened: Loosened) -> list[Branch]:
    """Return the alternatives of a schema; together they admit all that it does.

    Args:
        schema: a part of `root`.
        root: a tool's whole input schema.
        path: of the value, for what is told.
        loosened: what is not held is noted there.
    """
    found: list[Branch] = []
    for branch in _branches(schema, root, path, loosened, DEEPEST):
        if len(found) == MOST:
            loosened.note(path, "more alternatives than are told apart")
            return [(ANYTHING, {})]
        found.append(branch)
    return found


def _branches(schema: Any, root: Mapping[str, Any], path: str, loosened: Loosened, depth: int) -> Iterator[Branch]:
    schema = resolve(schema, root)
    if schema is False or schema is MISSING:
        return
    if not isinstance(schema, Mapping) or not depth:
        yield ANYTHING, {}
        return
    if "const" in schema or isinstance(schema.get("enum"), list):
        yield ENUMERATED, schema
        return
    for key in ("allOf", "anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            parts = [resolve(part, root) for part in schema[key]]
            rest = {name: value for name, value in schema.items() if name != key}
            for together in _combined(key, rest, parts, path, loosened):
                yield from _branches(together, root, path, loosened, depth - 1)
            return
    kinds = types_of(schema) or (ANYTHING,)
    for kind in kinds if "number" not in kinds else (kind for kind in kinds if kind != "integer"):
        loosened.note_keywords(path, kind, schema)
        yield kind, schema


def _combined(key: str, rest: Mapping[str, Any], parts: list[Any], path: str, loosened: Loosened) -> Iterator[Any]:
    """Yield the schemas of which one has to hold: of `allOf` all in one, of the others each with what stands beside them."""
    if key == "allOf":
        whole: Any = rest
        for part in parts:
            whole = _merged(whole, part, path, loosened)
        yield whole
        return
    if key == "oneOf" and not _exclude_each_other(parts):
        loosened.note(path, "oneOf")
    for part in parts:
        yield _merged(rest, part, path, loosened)


def _exclude_each_other(parts: list[Any]) -> bool:
    kinds = [kind for part in parts for kind in (types_of(part) or ("",))]
    return "" not in kinds and len({*kinds}) == len(kinds) and not {"integer", "number"} <= {*kinds}


def _merged(one: Any, other: Any, path: str, loosened: Loosened) -> Any:
    """Return a schema for which both have to hold."""
    if one is False or other is False or MISSING in (one, other):
        return False
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one if isinstance(one, Mapping) else other
    merged = dict(one)
    for keyword, value in other.items():
        if keyword not in merged or keyword in _NOTES or merged[keyword] == value:
            merged[keyword] = value
        elif keyword in _MERGERS:
            merged[keyword] = _MERGERS[keyword](merged[keyword], value)
        else:
            loosened.note(path, f"allOf with two of {keyword}")
    return merged


def _types(one: Any, other: Any) -> Any:
    these, others = (value if isinstance(value, list) else [value] for value in (one, other))
    shared = [kind for kind in these if kind in others or (kind == "integer" and "number" in others)]
    return shared + [kind for kind in others if kind == "integer" and "number" in these and kind not in shared]


def _properties(one: Any, other: Any) -> Any:
    shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys() if one[name] != other[name]}
    return {**one, **other, **shared}


_MERGERS: Final[dict[str, Any]] = {
    "type": _types,
    "properties": _properties,
    "required": lambda one, other: [*one, *(name for name in other if name not in one)],
    "allOf": lambda one, other: [*one, *other],
    "minimum": max,
    "maximum": min,
    "minLength": max,
    "maxLength": min,
    "minItems": max,
    "maxItems": min,
}
