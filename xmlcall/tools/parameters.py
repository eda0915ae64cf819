"""What a tool's input schema declares for one parameter, and which value a text for it means by the schema alone.

The first is looked up once for each Catalog. The second is the strict reading, without any liberty:

| the schema admits | the text is read as |
|---|---|
| a string and nothing else | itself |
| a string and something else | its value as plain JSON, if that fits another type; else itself |
| no string | JSON: `bind.py` |

So `null` for `string or null` is null, and `02134`, which is not a JSON number, stays a string. If nothing is declared, every
type is admitted. A text of plain JSON has exactly one type, and its value either fits a schema or does not, so no choice remains.
The same rule decides which values `write` has to mark.

One text means no value: `null` or `None` for an optional parameter whose schema neither admits null nor mentions that word.
Models whose prompt asks for every parameter in a call write it so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..loosejson import reader as jsonish
from ..schema.keywords import covering
from ..schema.references import MAX_DEPTH, declared, resolve
from ..schema.validation import is_valid
from ..types.calls import MISSING, Tool
from .catalog import Catalog

WORDS_FOR_NULL: Final = ("null", "None")
"""The words that models write for no value, in a text without a mark of its type."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter: its schema, whether the schema admits a string, and the JSON types that it names."""

    schema: Any
    admits_string: bool
    kinds: frozenset[str] | None

    @property
    def is_plain_string(self) -> bool:
        """Whether only a string is admitted, so that every text is one."""
        return self.kinds == frozenset({"string"})


def parameter_of(catalog: Catalog, tool: Tool, name: str) -> Parameter:
    known = catalog.declarations.get((tool.name, name))
    if known is None:
        schema = catalog.declaration(tool.name, name)
        schema = _by_rule(tool.input_schema, name) if schema is MISSING else schema
        known = Parameter(schema, admits_string(schema, tool.input_schema), _kinds(schema, tool.input_schema))
        if name in (catalog.parameters(tool.name) or ()):  # a model may invent any number of others
            catalog.declarations[tool.name, name] = known
    return known


def _kinds(schema: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    schema = resolve(schema, root)
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    named = frozenset(kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str))
    return named or None


def property_schema(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema that an object schema declares for a property: its first declaration, in the schema or in a branch.

    Without one, the `patternProperties` that match the name count, else `additionalProperties`, else any value is allowed (True).
    """
    found = next((properties[name] for properties in declared(schema, schema) if name in properties), MISSING)
    return _by_rule(schema, name) if found is MISSING else found


def _by_rule(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property that is not declared by name."""
    patterns = schema.get("patternProperties")
    found = covering(name, patterns) if isinstance(patterns, Mapping) else []
    if found:
        return found[0] if len(found) == 1 else {"allOf": found}
    return schema.get("additionalProperties", True)


def admits_string(schema: Any, root: Mapping[str, Any]) -> bool:
    """Say whether a schema admits a string, so that text is read unchanged."""
    return _admits_string(schema, root, {}, MAX_DEPTH)


def _admits_string(schema: Any, root: Mapping[str, Any], known: dict[int, bool], depth: int) -> bool:
    """Check one part of a schema, each part only once; a part that contains itself is assumed to admit a string."""
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


def other_than_string(text: str, schema: Any, validator: Any) -> Any:
    """Return the value of a text as plain JSON, if it is not a string and its schema admits it; else MISSING."""
    if isinstance(validator, str):
        return MISSING
    value = jsonish.strict(text)
    return MISSING if value is MISSING or isinstance(value, str) or not is_valid(validator, value, schema) else value


def read_text(text: str, parameter: Parameter, tool: Tool, catalog: Catalog) -> Any:
    """Return the value of a parameter's text: the text itself, or the value of another type that fits."""
    if parameter.is_plain_string:
        return text
    other = other_than_string(text, parameter.schema, catalog.validator(tool.name))
    return text if other is MISSING else other


def says_nothing(value: Any, name: str, tool: Tool, catalog: Catalog) -> bool:
    """Say whether a value, as JSON or as text without a mark of its type, only states that its parameter has none."""
    word = value.strip() if isinstance(value, str) else value
    if (word is not None and word not in WORDS_FOR_NULL) or not may_be_left_out(name, tool, catalog):
        return False
    schema = resolve(parameter_of(catalog, tool, name).schema, tool.input_schema)
    validator = catalog.validator(tool.name)
    admits_null = isinstance(validator, str) or is_valid(validator, None, schema)  # also if it cannot be checked
    return not admits_null and not (word and _names(schema, word))


def may_be_left_out(name: str, tool: Tool, catalog: Catalog) -> bool:
    """Say whether a tool declares a parameter and does not require it."""
    return name in (catalog.parameters(tool.name) or ()) and not is_required(name, tool)


def is_required(name: str, tool: Tool) -> bool:
    """Say whether a tool's schema always requires a parameter."""
    required = tool.input_schema.get("required")
    return isinstance(required, list) and name in required


def _names(schema: Any, word: str) -> bool:
    """Say whether a schema lists a word, or mentions it in quotes."""
    if not isinstance(schema, Mapping):
        return False
    listed = [schema.get("const"), schema.get("default")]
    listed += [each for key in ("enum", "examples") if isinstance(schema.get(key), list) for each in schema[key]]
    about = str(schema.get("description") or "")
    return word in [each for each in listed if isinstance(each, str)] or any(f"{mark}{word}{mark}" in about for mark in "\"'`")


def needs_mark(value: Any, text: str, name: str, tool: Tool | None, catalog: Catalog) -> bool:
    """Say whether a value's type must be written beside its text, which alone would be read as another type."""
    parameter = parameter_of(catalog, tool, name) if tool else None
    if parameter is not None and not parameter.admits_string:
        return False
    if tool and isinstance(value, str) and says_nothing(text, name, tool, catalog):
        return True
    read = read_text(text, parameter, tool, catalog) if tool and parameter else text
    return isinstance(read, str) != isinstance(value, str)
