"""A tool's input schema as a tree of parameters, and example arguments: what a prompt shows of a tool.

Everything that a model needs stays: type, enum, ranges, default, description, item types, nested objects, alternatives, `$ref`
resolved. Depth is bounded, so a schema that contains itself ends in the word `object`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..schema.references import resolve
from ..schema.validation import describe
from ..types.calls import MISSING, Tool

__all__ = ["ShownParameter", "example_arguments", "invented_arguments", "parameters_of", "placeholder"]

_MAX_LEVELS = 5


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
    """

    name: str
    kind: str
    required: bool
    description: str
    default: Any
    children: tuple["ShownParameter", ...]


def parameters_of(tool: Tool) -> tuple[ShownParameter, ...]:
    """Return a tool's parameters, in the schema's order."""
    return tuple(_fields(tool.input_schema, tool.input_schema, _MAX_LEVELS, ()))


def _fields(schema: Any, root: Mapping[str, Any], levels: int, above: tuple[int, ...]) -> Iterator[ShownParameter]:
    """Yield the fields of an object schema and of its branches, each name once; none for a schema that contains this one."""
    seen: set[str] = set()
    for properties, required in _objects(schema, root, levels):
        if id(properties) in above:
            continue
        for name, part in properties.items():
            if name not in seen:
                seen.add(name)
                yield _parameter(name, part, name in required, root, levels, (*above, id(properties)))


def _objects(schema: Any, root: Mapping[str, Any], levels: int) -> Iterator[tuple[Mapping[str, Any], Any]]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping):
        yield properties, required if isinstance(required, list) else ()
    branches = [schema[key] for key in ("then", "else") if key in schema]
    for key in ("allOf", "anyOf", "oneOf"):
        branches += schema[key] if isinstance(schema.get(key), list) else ()
    for branch in branches:
        yield from _objects(branch, root, levels - 1)


def _parameter(
    name: str, part: Any, required: bool, root: Mapping[str, Any], levels: int, above: tuple[int, ...]
) -> ShownParameter:
    schema = resolve(part, root)
    schema = schema if isinstance(schema, Mapping) else {}
    description = schema.get("description") or schema.get("title") or ""
    return ShownParameter(
        name=name,
        kind=describe(schema, root),
        required=required,
        description=" ".join(str(description).split()),
        default=schema.get("default", MISSING),
        children=tuple(_fields(_inner(schema, root), root, levels - 1, above)),
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
    parameters = [(part.name, part.required) for part in parameters_of(tool)]
    chosen = [name for name, required in parameters if required] or [name for name, _ in parameters[:1]]
    schemas = {
        name: part
        for properties, _ in reversed(list(_objects(tool.input_schema, tool.input_schema, _MAX_LEVELS)))
        for name, part in properties.items()
    }
    found = {}
    for name in chosen:
        if name in schemas:
            example = _Example(tool.input_schema)
            found[name] = (example.of(schemas[name], name, _MAX_LEVELS), example.invented)
    return found


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
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.of(schema[key][0], name, levels - 1)
        return self._of_type(schema, name, levels)

    def _of_type(self, schema: Mapping[str, Any], name: str, levels: int) -> Any:
        kind = schema.get("type", "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        kind = kind if isinstance(kind, str) else "string"  # a schema from elsewhere may have anything there
        if kind == "array":
            return [self.of(schema.get("items", {}), name, levels - 1)]
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
