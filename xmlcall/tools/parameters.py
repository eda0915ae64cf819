"""What a tool's input schema says about one parameter, found once a Catalog."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..schema.keywords import covering
from ..schema.references import MAX_DEPTH, declared, resolve
from ..types.calls import MISSING, Tool
from .catalog import Catalog

__all__ = ["Parameter", "admits_string", "parameter_of", "property_schema"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter: its schema, whether that has room for a string, and the JSON types that it names."""

    schema: Any
    admits_string: bool
    kinds: frozenset[str] | None

    @property
    def is_plain_string(self) -> bool:
        """Whether nothing but a string is admitted, so that every text is one."""
        return self.kinds == frozenset({"string"})


def parameter_of(catalog: Catalog, tool: Tool, name: str) -> Parameter:
    """Return a tool's parameter: its schema and its types."""
    known = catalog.declarations.get((tool.name, name))
    if known is None:
        schema = catalog.declaration(tool.name, name)
        schema = _by_rule(tool.input_schema, name) if schema is MISSING else schema
        known = Parameter(schema, admits_string(schema, tool.input_schema), _kinds(schema, tool.input_schema))
        if name in (catalog.parameters(tool.name) or ()):  # a model may invent any number of others
            catalog.declarations[tool.name, name] = known
    return known


def _kinds(schema: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON types that a schema names; None if it does not."""
    schema = resolve(schema, root)
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    named = frozenset(kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str))
    return named or None


def property_schema(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema that an object schema declares for a property.

    Returns:
        The first declaration found in `properties`, there or in a branch; else what `patternProperties` say of the name; else
    """
    found = next((properties[name] for properties in declared(schema, schema) if name in properties), MISSING)
    return _by_rule(schema, name) if found is MISSING else found


def _by_rule(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property that is not declared by its name."""
    patterns = schema.get("patternProperties")
    found = covering(name, patterns) if isinstance(patterns, Mapping) else []
    if found:
        return found[0] if len(found) == 1 else {"allOf": found}
    return schema.get("additionalProperties", True)


def admits_string(schema: Any, root: Mapping[str, Any]) -> bool:
    """Say whether a schema has room for a string, so that text is read as it stands."""
    return _admits_string(schema, root, {}, MAX_DEPTH)


def _admits_string(schema: Any, root: Mapping[str, Any], known: dict[int, bool], depth: int) -> bool:
    """Say so of a part, each part once; one that contains itself has room, as far as is known."""
    part, schema = schema, resolve(schema, root)
    if not isinstance(schema, Mapping) or depth == 0:
        return schema is not False
    if id(part) not in known:
        known[id(part)] = True
        known[id(part)] = _has_room(schema, root, known, depth)
    return known[id(part)]


def _has_room(schema: Mapping[str, Any], root: Mapping[str, Any], known: dict[int, bool], depth: int) -> bool:
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(schema.get("enum"), list):
        return any(isinstance(value, str) for value in schema["enum"])
    kinds = schema.get("type")
    if kinds is not None and "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and not any(_admits_string(branch, root, known, depth - 1) for branch in branches):
            return False
    parts = schema.get("allOf")
    return all(_admits_string(part, root, known, depth - 1) for part in parts) if isinstance(parts, list) else True
