"""What a prompt shows of a tool: its input schema as a tree of parameters, and example arguments.

Everything that a model needs is kept: type, enum, ranges, default, description, item types, nested objects, alternatives,
resolved `$ref`s. Depth is bounded, so a schema that contains itself ends in the word `object`.

Cost: proportional to the size of the written schema. If references make a schema expand to much more, fewer levels are shown; if
even its first level is too much, its tool is shown by name and description only.
"""

import functools
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from ..loosejson import reader as jsonish
from ..schema.references import CHARACTERS, MAX_DEPTH, as_deep_as_pays, covering, declared, resolve, size_of, spend
from ..schema.validation import is_valid
from ..schema.words import UNIONS, ParameterRule, branches_of, describe, rules_of, values_of
from ..types.calls import MISSING, Tool
from .catalog import Catalog

_MAX_LEVELS = 5
_MAX_WORDS = 4  # levels of one parameter that are described in its own words
_DEPTHS = tuple((levels, min(levels, _MAX_WORDS)) for levels in range(_MAX_LEVELS, 0, -1))
_MOST_PLACES = 8  # most places of a tuple that are described
_MAX_PARTS = 16  # schemas of one name, in as many alternatives
T = TypeVar("T")
_LEAST_BRANCHES = 2  # levels of alternatives whose names are shown, at any depth
_IDS = 64  # how many copied members of a set count as one step


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParameter:
    """One parameter as a prompt shows it; its children are the fields of an object, of items or of an alternative."""

    name: str
    kind: str
    required: bool
    description: str
    default: Any
    children: tuple["ShownParameter", ...]
    rules: tuple[ParameterRule, ...] = ()


def _once(work: Callable[[Tool], T]) -> Callable[[Tool], T]:
    """Cache a function's result for each tool, by identity, because a schema has no hash."""
    known: dict[int, T] = {}

    @functools.wraps(work)
    def done(tool: Tool) -> T:
        if id(tool) not in known:
            known[id(tool)] = work(tool)
            weakref.finalize(tool, known.pop, id(tool), None).atexit = False
        return known[id(tool)]

    return done


@_once
def parameters_of(tool: Tool) -> tuple[ShownParameter, ...]:
    root = tool.input_schema
    return as_deep_as_pays(root, _DEPTHS, lambda depths: tuple(_fields(root, _WholeSchema(root, depths[1]), depths[0])), ())


@_once
def rules_for(tool: Tool) -> tuple[ParameterRule, ...]:
    """Return a tool's rules that concern several parameters, such as one of two."""
    root = tool.input_schema
    return as_deep_as_pays(root, range(_MAX_WORDS, 0, -1), lambda levels: rules_of(root, root, levels), ())


@_once
def alternatives_of(tool: Tool) -> list[frozenset[str]]:
    """Return the parameters that each alternative of a tool's schema requires; empty if it has no alternatives."""
    root = tool.input_schema

    def found(levels: int) -> list[frozenset[str]]:
        each = ([frozenset(branch.required) for branch in branches_of(root, key, root, levels)] for key in UNIONS)
        return next((needed for needed in each if len(needed) > 1), [])

    return as_deep_as_pays(root, range(_MAX_WORDS, 0, -1), found, [])


@dataclass(frozen=True, slots=True)
class _WholeSchema:
    """A tool's schema, and how many levels of a parameter are described in its own words."""

    root: Mapping[str, Any]
    words: int


@dataclass(slots=True)
class _Field:
    """The declarations of a name: its schemas (of alternatives, one applies at a time), and the `properties` that hold them."""

    parts: list[Any]
    of_union: bool
    above: set[int]


def _fields(schema: Any, whole: _WholeSchema, levels: int, above: frozenset[int] = frozenset()) -> Iterator[ShownParameter]:
    """Yield the fields of an object schema and of its branches, each name once; none for a schema that contains this one."""
    if not levels:
        return
    found: dict[str, _Field] = {}
    for properties, of_union in _objects(schema, whole.root, levels):
        if id(properties) in above:
            continue
        spend(len(properties))
        for name, part in properties.items():
            known = found.setdefault(name, _Field([part], of_union, set()))
            known.above.add(id(properties))
            if known.of_union and of_union and part not in known.parts[:_MAX_PARTS]:
                known.parts.append(part)
    needed = _required(schema, whole.root, levels)
    for name, known in found.items():
        spend((len(above) + len(known.above)) // _IDS)
        part = _of_parts(known.parts[:_MAX_PARTS], whole.root)
        yield _parameter(name, part, name in needed, whole, levels, above | known.above)


def _of_parts(parts: list[Any], root: Mapping[str, Any]) -> Any:
    """Return one schema for a field that several alternatives declare differently."""
    if len(parts) == 1:
        return parts[0]
    about = {key: parts[0][key] for key in ("description", "title") if isinstance(parts[0], Mapping) and key in parts[0]}
    values = [values_of(part, root) for part in parts]
    spend(sum(map(len, values)))
    if all(values):
        return {**about, "enum": list({json.dumps(each, default=str): each for part in values for each in part}.values())}
    return {**about, "anyOf": parts}


def _required(schema: Any, root: Mapping[str, Any], levels: int, seen: set[int] | None = None) -> frozenset[str]:
    """Return the names that an object must have, whichever alternative it follows."""
    seen = set() if seen is None else seen
    part, schema = schema, resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0 or id(part) in seen:
        return frozenset()
    seen.add(id(part))
    own = schema.get("required")
    found = frozenset(name for name in (own if isinstance(own, list) else ()) if isinstance(name, str))
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found |= _required(part, root, levels - 1, seen)
        spend(len(found) // _IDS)
    for key in UNIONS:
        if branches := branches_of(schema, key, root):
            found |= frozenset.intersection(*(frozenset(branch.required) for branch in branches))
    return found


def _objects(schema: Any, root: Mapping[str, Any], levels: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the properties that a schema and its branches declare, each once, in order, and whether a union's branch does."""
    seen: set[int] = set()
    stack = [(schema, max(levels, _LEAST_BRANCHES), False)]
    while stack:
        part, left, of_union = stack.pop()
        schema = resolve(part, root)
        if not isinstance(schema, Mapping) or not left or id(part) in seen:
            continue
        seen.add(id(part))
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and id(properties) not in seen:
            seen.add(id(properties))
            yield properties, of_union
        below = [(schema[key], left - 1, of_union) for key in ("then", "else") if key in schema]
        for key in ("allOf", *UNIONS):
            branches = schema[key] if isinstance(schema.get(key), list) else ()
            below += [(branch, left - 1, of_union or key in UNIONS) for branch in branches]
        spend(len(below))
        stack += reversed(below)


def _parameter(name: str, part: Any, required: bool, whole: _WholeSchema, levels: int, above: frozenset[int]) -> ShownParameter:
    root, schema = whole.root, resolve(part, whole.root)
    schema = schema if isinstance(schema, Mapping) else {}
    description = str(schema.get("description") or schema.get("title") or "")
    default = schema.get("default", MISSING)
    spend(len(description) // CHARACTERS + _size(default))
    inner = _inner(schema, root)
    return ShownParameter(
        name=name,
        kind=describe(schema, root, whole.words),
        required=required,
        description=" ".join(description.split()),
        default=default,
        children=tuple(_fields(inner, whole, levels - 1, above)),
        rules=rules_of(inner, root, whole.words) if levels > 1 else (),
    )


def _inner(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the schema inside arrays, that of their items, because the model has to write those fields."""
    for _ in range(_MAX_LEVELS):
        items = resolve(schema["items"], root) if "items" in schema else None
        if not isinstance(items, Mapping):
            return schema
        schema = items
    return schema


def example_arguments(tool: Tool, *, unsaid: str = "") -> dict[str, Any]:
    """Return a tool's required parameters, or its first one, with values from its schema where that has some."""
    required = {name: value for name, (value, _) in _examples(tool).items()}
    if not unsaid:
        return required
    return {part.name: required.get(part.name, unsaid) for part in parameters_of(tool)}


def invented_arguments(tool: Tool) -> dict[str, tuple[Any, list[str | int | float]]]:
    """Return the invented values of `example_arguments`: those neither from the schema nor common to all tools (such as true)."""
    return {name: found for name, found in _examples(tool).items() if found[1]}


def placeholder(name: str) -> str:
    """Return the text that examples use as a parameter's string value."""
    return f"{name} value"


@_once
def _examples(tool: Tool) -> dict[str, tuple[Any, list[str | int | float]]]:
    names = [part.name for part in parameters_of(tool)]
    return as_deep_as_pays(tool.input_schema, range(_MAX_LEVELS, 0, -1), partial(_examples_of, tool.input_schema, names), {})


def _examples_of(root: Mapping[str, Any], names: list[str], levels: int) -> dict[str, tuple[Any, list[str | int | float]]]:
    schemas = _first_parts(root, root, levels)
    needed = _required(root, root, levels) | _required_first(root, root, levels)
    chosen = [name for name in names if name in needed] or names[:1]
    found = {}
    for name in chosen:
        if name in schemas:
            example = _Example(root)
            found[name] = (example.of(schemas[name], name, levels), example.invented)
    return found


def _first_parts(schema: Any, root: Mapping[str, Any], levels: int) -> dict[str, Any]:
    """Return the first schema that an object schema or its branches declare for each name."""
    found: dict[str, Any] = {}
    for properties, _ in _objects(schema, root, levels):
        spend(len(properties))
        found |= {name: part for name, part in properties.items() if name not in found}
    return found


def _required_first(schema: Any, root: Mapping[str, Any], levels: int) -> frozenset[str]:
    """Return the names that the first alternatives of an object schema require, so that the example is a valid call."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return frozenset()
    found = [frozenset(branches[0].required) for key in UNIONS if (branches := branches_of(schema, key, root))]
    parts = schema["allOf"][:_MAX_PARTS] if isinstance(schema.get("allOf"), list) else []
    return frozenset().union(*found, *(_required_first(part, root, levels - 1) for part in parts))


# Type -> example value; numbers differ from what schemas often use as limits (0, 1, 100).
_EXAMPLES: dict[str, Any] = {"integer": 3, "number": 2.5, "boolean": True, "null": None, "object": {}, "array": []}


class _Example:
    """Makes one example value; `invented` has the values in it that do not come from the schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.invented: list[str | int | float] = []
        self._root = root

    def of(self, part: Any, name: str, levels: int) -> Any:
        schema = resolve(part, self._root)
        if not isinstance(schema, Mapping) or levels == 0:
            return self._invent(placeholder(name))
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                return _own(schema[key][0])
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return _own(schema[key])
        if isinstance(schema.get("properties"), Mapping) and any(isinstance(schema.get(key), list) for key in UNIONS):
            needed = _required(schema, self._root, levels) | _required_first(schema, self._root, levels)
            parts = _first_parts(schema, self._root, levels)
            return {name: self.of(each, name, levels - 1) for name, each in parts.items() if name in needed}
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.of(schema[key][0], name, levels - 1)
        return self._of_type(schema, name, levels)

    def _of_type(self, schema: Mapping[str, Any], name: str, levels: int) -> Any:
        kind = schema.get("type", "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        kind = kind if isinstance(kind, str) else "string"  # an untrusted schema may have anything here
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
        value = _EXAMPLES[kind]
        low, high = schema.get("minimum"), schema.get("maximum")
        if isinstance(low, (int, float)) and value < low:
            return low
        return high if isinstance(high, (int, float)) and value > high else self._invent(value)

    def _invent(self, value: Any) -> Any:
        self.invented.append(value)
        return value


def _own(value: Any) -> Any:
    """Return a value from the schema, and count the cost of writing it."""
    spend(_size(value))
    return value


def _size(value: Any) -> int:
    return size_of(value) if isinstance(value, str | list | Mapping) else 0


# -- parameters --------------------------------------------------------------------------------------------------------
# What a tool's input schema declares for one parameter, and which value a text for it means by the schema alone.
#
# The first is looked up once for each Catalog. The second is the strict reading, without any liberty:
#
# | the schema admits | the text is read as |
# |---|---|
# | a string and nothing else | itself |
# | a string and something else | its value as plain JSON, if that fits another type; else itself |
# | no string | JSON: `bind.py` |
#
# So `null` for `string or null` is null, and `02134`, which is not a JSON number, stays a string. If nothing is declared, every
# type is admitted. A text of plain JSON has exactly one type, and its value either fits a schema or does not, so no choice
# remains. The same rule decides which values `write` has to mark.
#
# One text means no value: `null` or `None` for an optional parameter whose schema neither admits null nor mentions that word.
# Models whose prompt asks for every parameter in a call write it so.


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
