"""A tool's input schema as a tree of parameters, and example arguments: what a prompt shows of a tool.

Everything that a model needs stays: type, enum, ranges, default, description, item types, nested objects, alternatives, `$ref`
resolved. Depth is bounded, so a schema that contains itself ends in the word `object`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..schema.references import resolve
from ..schema.unions import ParameterRule, branches_of, rules_of, values_of
from ..schema.validation import describe
from ..types.calls import MISSING, Tool

__all__ = [
    "ShownParameter",
    "alternatives_of",
    "example_arguments",
    "invented_arguments",
    "parameters_of",
    "placeholder",
    "rules_for",
]

_MAX_LEVELS = 5
_MOST_PLACES = 8  # of a tuple
_MAX_PARTS = 16  # schemas of one name, in as many alternatives
_UNIONS = ("anyOf", "oneOf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParameter:
    """One parameter as a prompt shows it.

    Args:
        name: as the model must write it.
        kind: its type and limits in words.
        required: whether it must be given.
        description: the schema's, on one line.
        default: MISSING if there is none.
        children: the fields of an object, of an array's items or of an alternative.
        rules: what is asked of the children together.
    """

    name: str
    kind: str
    required: bool
    description: str
    default: Any
    children: tuple["ShownParameter", ...]
    rules: tuple[ParameterRule, ...] = ()


def parameters_of(tool: Tool) -> tuple[ShownParameter, ...]:
    """Return a tool's parameters, in the schema's order."""
    return tuple(_fields(tool.input_schema, tool.input_schema, _MAX_LEVELS, ()))


def rules_for(tool: Tool) -> tuple[ParameterRule, ...]:
    """Return what a tool asks of its parameters together, such as one of two."""
    return rules_of(tool.input_schema, tool.input_schema)


def alternatives_of(tool: Tool) -> list[frozenset[str]]:
    """Return what each alternative of a tool's parameters needs, such as one of two; none where there are none."""
    found = ([frozenset(each.required) for each in branches_of(tool.input_schema, key, tool.input_schema)] for key in _UNIONS)
    return next((each for each in found if len(each) > 1), [])


@dataclass(slots=True)
class _Field:
    """What is declared of a name: its schemas, of which those of alternatives hold one at a time, and where they stand."""

    parts: list[Any]
    of_union: bool
    above: tuple[int, ...] = ()


def _fields(schema: Any, root: Mapping[str, Any], levels: int, above: tuple[int, ...]) -> Iterator[ShownParameter]:
    """Yield the fields of an object schema and of its branches, each name once; none for a schema that contains this one."""
    found: dict[str, _Field] = {}
    for each in _objects(schema, root, levels):
        if id(each.properties) in above:
            continue
        for name, part in each.properties.items():
            known = found.setdefault(name, _Field([part], each.of_union))
            known.above += (id(each.properties),)
            if known.of_union and each.of_union and part not in known.parts[:_MAX_PARTS]:
                known.parts.append(part)
    needed = _required(schema, root, levels)
    for name, known in found.items():
        yield _parameter(name, _of_parts(known.parts[:_MAX_PARTS], root), name in needed, root, levels, (*above, *known.above))


def _of_parts(parts: list[Any], root: Mapping[str, Any]) -> Any:
    """Return the schema of a field that alternatives declare, each in its way."""
    if len(parts) == 1:
        return parts[0]
    about = {key: parts[0][key] for key in ("description", "title") if isinstance(parts[0], Mapping) and key in parts[0]}
    values = [values_of(part, root) for part in parts]
    if all(values):
        return {**about, "enum": list({json.dumps(each, default=str): each for part in values for each in part}.values())}
    return {**about, "anyOf": parts}


def _required(schema: Any, root: Mapping[str, Any], levels: int) -> frozenset[str]:
    """Return the names that an object must have, whichever of its alternatives it is."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return frozenset()
    own = schema.get("required")
    found = frozenset(name for name in (own if isinstance(own, list) else ()) if isinstance(name, str))
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found |= _required(part, root, levels - 1)
    for key in _UNIONS:
        if branches := branches_of(schema, key, root):
            found |= frozenset.intersection(*(frozenset(branch.required) for branch in branches))
    return found


@dataclass(frozen=True, slots=True)
class _Object:
    """The properties that an object schema or one of its branches declares."""

    properties: Mapping[str, Any]
    of_union: bool


def _objects(schema: Any, root: Mapping[str, Any], levels: int, of_union: bool = False) -> Iterator[_Object]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return
    if isinstance(properties := schema.get("properties"), Mapping):
        yield _Object(properties, of_union)
    for branch in (schema[key] for key in ("then", "else") if key in schema):
        yield from _objects(branch, root, levels - 1, of_union)
    for key in ("allOf", *_UNIONS):
        for branch in schema[key] if isinstance(schema.get(key), list) else ():
            yield from _objects(branch, root, levels - 1, of_union or key in _UNIONS)


def _parameter(
    name: str, part: Any, required: bool, root: Mapping[str, Any], levels: int, above: tuple[int, ...]
) -> ShownParameter:
    schema = resolve(part, root)
    schema = schema if isinstance(schema, Mapping) else {}
    description = schema.get("description") or schema.get("title") or ""
    inner = _inner(schema, root)
    return ShownParameter(
        name=name,
        kind=describe(schema, root),
        required=required,
        description=" ".join(str(description).split()),
        default=schema.get("default", MISSING),
        children=tuple(_fields(inner, root, levels - 1, above)),
        rules=rules_of(inner, root) if levels > 1 else (),
    )


def _inner(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Go through arrays to their items: those are the fields that the model has to write."""
    for _ in range(_MAX_LEVELS):
        items = resolve(schema["items"], root) if "items" in schema else None
        if not isinstance(items, Mapping):
            return schema
        schema = items
    return schema


def example_arguments(tool: Tool, *, unsaid: str = "") -> dict[str, Any]:
    """Make arguments that show how a call to this tool looks.

    Args:
        tool: the tool.
        unsaid: what stands for each optional parameter; "" if none is shown.

    Returns:
        Its required parameters, or its first one if none is required; values come from the schema's own examples, enum and
        default where it has them.
    """
    required = {name: value for name, (value, _) in _examples(tool).items()}
    if not unsaid:
        return required
    return {part.name: required.get(part.name, unsaid) for part in parameters_of(tool)}


def invented_arguments(tool: Tool) -> dict[str, tuple[Any, list[str | int | float]]]:
    """Return the invented values of `example_arguments`: those that neither the schema nor every tool has (such as true).

    Args:
        tool: the tool.

    Returns:
        ShownParameter -> its value, and what is invented in it.
    """
    return {name: found for name, found in _examples(tool).items() if found[1]}


def placeholder(name: str) -> str:
    """Return the words that stand for a text in examples.

    Args:
        name: of the parameter or field.
    """
    return f"{name} value"


def _examples(tool: Tool) -> dict[str, tuple[Any, list[str | int | float]]]:
    root = tool.input_schema
    schemas = _first_parts(root, root, _MAX_LEVELS)
    needed = _required(root, root, _MAX_LEVELS) | _required_first(root, root, _MAX_LEVELS)
    parameters = [part.name for part in parameters_of(tool)]
    chosen = [name for name in parameters if name in needed] or parameters[:1]
    found = {}
    for name in chosen:
        if name in schemas:
            example = _Example(tool.input_schema)
            found[name] = (example.of(schemas[name], name, _MAX_LEVELS), example.invented)
    return found


def _first_parts(schema: Any, root: Mapping[str, Any], levels: int) -> dict[str, Any]:
    """Return what an object schema or the first of its branches declares of each name."""
    found: dict[str, Any] = {}
    for each in _objects(schema, root, levels):
        for name, part in each.properties.items():
            found.setdefault(name, part)
    return found


def _required_first(schema: Any, root: Mapping[str, Any], levels: int) -> frozenset[str]:
    """Return what the first alternatives of an object schema need, by which one call of the tool is right."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return frozenset()
    found = [frozenset(branches[0].required) for key in _UNIONS if (branches := branches_of(schema, key, root))]
    parts = schema["allOf"][:_MAX_PARTS] if isinstance(schema.get("allOf"), list) else []
    return frozenset().union(*found, *(_required_first(part, root, levels - 1) for part in parts))


# Type -> example value; numbers differ from what schemas often use as limits (0, 1, 100).
_EXAMPLES: dict[str, Any] = {"integer": 3, "number": 2.5, "boolean": True, "null": None, "object": {}, "array": []}


class _Example:
    """Makes one example value.

    Args:
        root: the tool's schema.

    Attributes:
        invented: values in it that are not the schema's.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.invented: list[str | int | float] = []
        self._root = root

    def of(self, part: Any, name: str, levels: int) -> Any:
        schema = resolve(part, self._root)
        if not isinstance(schema, Mapping) or levels == 0:
            return self._invent(placeholder(name))
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        if isinstance(schema.get("properties"), Mapping) and any(isinstance(schema.get(key), list) for key in _UNIONS):
            return self._of_alternatives(schema, levels)
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.of(schema[key][0], name, levels - 1)
        return self._of_type(schema, name, levels)

    def _of_alternatives(self, schema: Mapping[str, Any], levels: int) -> dict[str, Any]:
        needed = _required(schema, self._root, levels) | _required_first(schema, self._root, levels)
        parts = _first_parts(schema, self._root, levels)
        return {name: self.of(part, name, levels - 1) for name, part in parts.items() if name in needed}

    def _of_type(self, schema: Mapping[str, Any], name: str, levels: int) -> Any:
        kind = schema.get("type", "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        kind = kind if isinstance(kind, str) else "string"  # a schema from elsewhere may have anything there
        if kind == "array":
            first = schema.get("prefixItems")
            parts = first if isinstance(first, list) and first else [schema.get("items", {})]
            return [self.of(part, name, levels - 1) for part in parts[:_MOST_PLACES]]
        if kind == "object":
            required = schema.get("required") or ()
            properties = schema.get("properties") or {}
            return {key: self.of(properties[key], key, levels - 1) for key in required if key in properties}
        if kind in ("integer", "number"):
            return self._number_of(schema, kind)
        return _EXAMPLES[kind] if kind in _EXAMPLES else self._invent(placeholder(name))

    def _number_of(self, schema: Mapping[str, Any], kind: str) -> Any:
        """Stay within the limits, if there are any."""
        value = _EXAMPLES[kind]
        low, high = schema.get("minimum"), schema.get("maximum")
        if isinstance(low, (int, float)) and value < low:
            return low
        return high if isinstance(high, (int, float)) and value > high else self._invent(value)

    def _invent(self, value: Any) -> Any:
        self.invented.append(value)
        return value
