"""Describes a schema in words: which values it admits, and which rules concern several parameters together.

The words are used in prompts and in issues of wrong values. A union of objects is shown as its alternatives, each as
`(action: "get", id, limit?)`: required names, fixed values, and with `?` the names that only some alternatives have. The list of
parameters states which values each one admits.

Cost: branches, their parts and their depth are bounded. A schema that is larger is shown in part.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from .references import CHARACTERS, KEYS, as_deep_as_pays, resolve, spend

UNIONS: Final = ("anyOf", "oneOf")
_MAX_BRANCHES: Final = 16
_MAX_PARTS: Final = 16
_MAX_LEVELS: Final = 4
_MAX_VALUES: Final = 4
_ONE_OF: Final = {
    "uniqueItems": "a list without repeated items",
    "minProperties": "at least {} fields",
    "maxProperties": "at most {} fields",
    "minContains": "a list with at least {} such items",
    "maxContains": "a list with at most {} such items",
}

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

_MAX_PLACES = 8  # most places of a tuple that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRule:
    """A rule about several parameters together."""

    # `one` or `any` of several alternatives; the second `with` the first; `not` this, or not all of it `together`.
    kind: Literal["one", "any", "with", "not", "together"]
    parts: tuple[str, ...]  # the alternatives; or what is given and what it needs; or what must not be


@dataclass(frozen=True, slots=True)
class UnionBranch:
    """An object that a union admits: the schemas of its properties, and the names of the required ones."""

    properties: Mapping[str, Any]
    required: tuple[str, ...]


def rules_of(schema: Any, root: Mapping[str, Any], levels: int = _MAX_LEVELS) -> tuple[ParameterRule, ...]:
    """Return the rules of an object schema about several properties together."""
    found = tuple(dict.fromkeys(_rules(schema, root, levels)))[:_MAX_PARTS]
    spend(sum(len(text) for rule in found for text in rule.parts) // CHARACTERS)
    return found


def _rules(schema: Any, root: Mapping[str, Any], levels: int) -> Iterator[ParameterRule]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or not levels:
        return
    for key in UNIONS:
        branches = branches_of(schema, key, root)
        if len(branches) == 1:
            only = next((part for part in schema[key][:_MAX_BRANCHES] if _branch(part, root)), None)
            yield from _rules(only, root, levels - 1)
        elif texts := _alternatives(branches, root):
            is_one = key == "oneOf" or any(branch.properties for branch in branches)  # objects of their own exclude each other
            yield ParameterRule(kind="one" if is_one else "any", parts=texts)
    yield from _conditions(schema, root)
    for part in _list_at(schema, "allOf"):
        yield from _rules(part, root, levels - 1)


def _conditions(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[ParameterRule]:
    for key in ("dependentRequired", "dependencies"):
        needs = schema.get(key)
        for name, needed in list(needs.items())[:_MAX_PARTS] if isinstance(needs, Mapping) else ():
            if isinstance(needed, list) and needed:
                yield ParameterRule(kind="with", parts=(str(name), ", ".join(map(str, needed[:_MAX_PARTS]))))
    condition, needed = _shape(schema.get("if"), root), schema.get("then")
    if condition and (then := _branch(needed, root)) and then.required:
        yield ParameterRule(kind="with", parts=(condition, ", ".join(then.required[:_MAX_PARTS])))
    if refused := _branch(schema.get("not"), root):
        yield ParameterRule(kind="together" if len(refused.required) > 1 else "not", parts=(_write(refused, root, frozenset()),))


def branches_of(schema: Any, key: str, root: Mapping[str, Any], levels: int = _MAX_LEVELS) -> list[UnionBranch]:
    """Return the objects among the branches of a union, including those of a union inside it."""
    return list(itertools.islice(_branches(schema, key, root, levels), _MAX_BRANCHES))


def _branches(schema: Any, key: str, root: Mapping[str, Any], levels: int) -> Iterator[UnionBranch]:
    for part in _list_at(schema, key) if levels else ():
        found = resolve(part, root)
        inner = [each for each in UNIONS if isinstance(found, Mapping) and each in found and not found.keys() & {"properties"}]
        if inner and not found.keys() & {"required", "allOf"}:
            yield from _branches(found, inner[0], root, levels - 1)
        elif branch := _branch(found, root):
            yield branch


def _branch(schema: Any, root: Mapping[str, Any], levels: int = _MAX_LEVELS) -> UnionBranch | None:
    """Return what an object schema says about its properties; None if it says nothing about any."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or not levels:
        return None
    properties = schema.get("properties")
    found = dict(properties) if isinstance(properties, Mapping) else {}
    required = [name for name in _list_at(schema, "required") if isinstance(name, str)]
    for part in _list_at(schema, "allOf"):
        if below := _branch(part, root, levels - 1):
            spend((len(found) + len(below.properties)) // KEYS)
            found = {**below.properties, **found}
            required += below.required
    return UnionBranch(found, tuple(dict.fromkeys(required))) if found or required else None


def _list_at(schema: Any, key: str) -> list[Any]:
    value = schema.get(key) if isinstance(schema, Mapping) else None
    return value[:_MAX_BRANCHES] if isinstance(value, list) else []


def _alternatives(branches: list[UnionBranch], root: Mapping[str, Any]) -> tuple[str, ...]:
    common = frozenset.intersection(*(frozenset(branch.properties) for branch in branches)) if branches else frozenset()
    texts = tuple(dict.fromkeys(_write(branch, root, common) for branch in branches))
    return texts if len(texts) > 1 else ()


def _shape(schema: Any, root: Mapping[str, Any]) -> str:
    """Write what an object schema names, such as `(action: "get", id)`; "" if it names nothing."""
    branch = _branch(schema, root)
    return _write(branch, root, frozenset()) if branch else ""


def _write(branch: UnionBranch, root: Mapping[str, Any], common: frozenset[str]) -> str:
    """Write a branch without the optional names that all branches share: the list of parameters has those."""
    names = dict.fromkeys((*branch.properties, *branch.required))
    parts = []
    for name in names:
        schema = branch.properties.get(name)
        fixed = describe(schema, root) if 0 < len(values_of(schema, root)) <= _MAX_VALUES else ""
        if name in branch.required or fixed or name not in common:
            mark = "" if name in branch.required else "?"
            parts.append(f"{name}{mark}{f': {fixed}' if fixed else ''}")
    more = ["..."] if len(parts) > _MAX_PARTS else []
    return f"({', '.join(parts[:_MAX_PARTS] + more)})"


def values_of(schema: Any, root: Mapping[str, Any]) -> list[Any]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping):
        return []
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else []


def branch_meant(value: Any, branches: list[Any], root: Mapping[str, Any]) -> int | None:
    """Return the place of the one branch that a wrong value was meant for, None if that is not certain.

    It is the only one whose fixed values the object has; else the only one for objects, or for lists.
    """
    if isinstance(value, list):
        return _only(place for place, part in enumerate(branches) if "array" in _kinds(part, root))
    if not isinstance(value, Mapping):
        return None
    fitting = [place for place, part in enumerate(branches) if _has_fixed(value, _branch(part, root), root)]
    if fitting:
        return _only(fitting)
    return _only(place for place, part in enumerate(branches) if not (kinds := _kinds(part, root)) or "object" in kinds)


def _only(places: Iterable[int]) -> int | None:
    found = list(places)
    return found[0] if len(found) == 1 else None


def _kinds(schema: Any, root: Mapping[str, Any]) -> list[Any]:
    schema = resolve(schema, root)
    if schema is False:
        return [None]  # admits nothing, so no object either
    kinds = schema.get("type", []) if isinstance(schema, Mapping) else []
    return kinds if isinstance(kinds, list) else [kinds]


def _has_fixed(value: Mapping[str, Any], branch: UnionBranch | None, root: Mapping[str, Any]) -> bool:
    """Say whether an object has values that a branch fixes, and no other in their places."""
    if branch is None:
        return False
    fixed = {name: found for name, part in branch.properties.items() if name in value and (found := values_of(part, root))}
    return bool(fixed) and all(value[name] in found for name, found in fixed.items())


def unmet(value: Any, branches: list[Any], root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each property to which every branch gives fixed values other than the object's, with the allowed values."""
    found = [branch for part in branches if (branch := _branch(part, root))]
    if not isinstance(value, Mapping) or not found:
        return
    for name in found[0].properties:
        values = [values_of(branch.properties.get(name), root) for branch in found]
        known = [each for part in values for each in part]
        if name in value and all(values) and value[name] not in known:
            yield name, describe({"enum": known[:_MAX_PARTS]}, root)


def asked_by(keyword: str, value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return what a keyword requires, in words; "" if the description of its whole schema says it."""
    if keyword in _ONE_OF:
        return _ONE_OF[keyword].format(value)
    if keyword in UNIONS:
        texts = _alternatives(branches_of(schema, keyword, root), root)
        return f"{'exactly one' if keyword == 'oneOf' else 'one'} of {' or '.join(texts)}" if texts else ""
    if keyword == "not":
        branch = _branch(value, root)
        together = branch is not None and len(branch.required) > 1 and not branch.properties
        return f"not all of {_shape(value, root)} together" if together else f"no {_shape(value, root) or describe(value, root)}"
    if keyword == "contains":
        return f"a list with an item that is {describe(value, root)}"
    return ""


def describe(schema: Any, root: Mapping[str, Any], depth: int = 4) -> str:
    """Say in a few words which values a schema admits: `integer, at least 1`, `array of string`."""
    written = schema if isinstance(schema, Mapping) else {}
    return as_deep_as_pays(written, range(depth, -1, -1), lambda levels: _describe(schema, root, levels), "any value")


def _describe(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolve(schema, root)
    if schema is False:
        return "no value"
    if not isinstance(schema, Mapping) or depth == 0:
        return "any value"
    limits = {key: schema[key] for key in RANGES if key in schema}
    limits = {key: limit if isinstance(limit, str) else json.dumps(limit, ensure_ascii=False) for key, limit in limits.items()}
    ranges = [RANGES[key].format(limit) for key, limit in limits.items()]
    text = ", ".join([_kind(schema, root, depth), *ranges])
    spend(len(text) // CHARACTERS)
    return text


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            is_object = schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
            texts = [_describe(branch, root, depth - 1) for branch in schema[key] if branch is not False] or ["no value"]
            return " or ".join(dict.fromkeys("object" if is_object and each == "any value" else each for each in texts))
    kinds = schema.get("type", "object" if "properties" in schema else "any value")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(_array(schema, root, depth) if kind == "array" else str(kind) for kind in kinds)


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    first = schema.get("prefixItems")
    if isinstance(first, list) and first:
        texts = [_describe(each, root, depth - 1) for each in first[:_MAX_PLACES]]
        goes_on = len(first) > _MAX_PLACES or isinstance(schema.get("items"), Mapping)
        return f"array of ({', '.join([*texts, *(['...'] if goes_on else [])])})"
    return f"array of {_describe(schema['items'], root, depth - 1)}" if "items" in schema else "array"
