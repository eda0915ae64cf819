"""Checks whether a JSON Schema is usable, and whether a value is valid under it.

`jsonschema` validates: as 2020-12, or as draft-07 and others if `$schema` names them. References are resolved only inside the
schema; a `$ref` to the network is refused when the tool is listed and never fetched (MCP 2026-07-28, tools: hosts MUST NOT
fetch). Size and depth of a schema are bounded, because both `jsonschema` and this module recurse over it.

The work for one value is bounded, too, so that a small schema cannot stall a program. Keywords such as `allOf` apply schemas to
the same value, and references turn a few lines into a tree of doublings: 40 definitions, each of which refers to the next one
twice, are 2^40 steps for `jsonschema`. So the steps for one value are counted before a schema is used, and a shared part counts
each time that it would run. The value itself bounds the steps into members and items.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..types.calls import JSON_TYPES, MISSING, Issue
from .mending import mended
from .references import (
    KEYS,
    MAX_DEPTH,
    Places,
    TooMuchWork,
    at_most,
    is_covered,
    limited,
    nodes,
    pointed,
    resolve,
    spend,
    usable_pattern,
    with_time_limit,
)
from .words import asked_by, branch_meant, describe, unmet

MAX_NODES = 20_000
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
_EACH_ISSUE = 8  # steps to write the value
_TOLD = 20_000  # steps to describe the issues of one value; those after them state only their place

_MAX_UNIONS = 4  # nested unions whose meant branch is described
_MAX_TOLD = 16  # branches of one

# JSON Schema keyword -> issue code; every other keyword is an invalid value.
_CODES = {"type": "wrong-type", "required": "missing-argument", "additionalProperties": "unexpected-argument"}

MAX_STEPS: Final = 5_000
"""Of one value at one place; real schemas have tens."""

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")


def check_schema(schema: Any) -> str | None:
    """Say why a schema cannot be used for a tool's arguments."""
    if not isinstance(schema, Mapping):
        return f"the schema is not a JSON object but {_short(schema)}"
    problem = _too_large(schema) or _bad_reference(schema) or _unbounded(schema)
    if problem or has_nothing_odd(schema):
        return problem
    from jsonschema.exceptions import SchemaError

    try:
        _class_for(schema).check_schema(schema, format_checker=_formats())
    except SchemaError as error:
        return f"the schema is not valid JSON Schema: {_short(error.message)} at {error.json_path}"
    except Exception as error:  # a broken `pattern` or a hostile meta-schema reference surfaces as many types
        return f"the schema cannot be compiled: {type(error).__name__}: {_short(str(error))}"
    return None


def has_nothing_odd(schema: Mapping[str, Any]) -> bool:
    """Say whether a schema needs no mending and so is valid; this is 20 times as fast as a check against the metaschema."""
    return "$schema" not in schema and mended(schema)[0] is schema


@functools.cache
def _formats() -> Any:
    """Return the formats that count in a schema: a pattern is one that `regex` can read."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checks("regex")(lambda value: not isinstance(value, str) or usable_pattern(value) == value)
    return checker


def _too_large(schema: Any) -> str | None:
    """Bound depth and size without recursion."""
    stack, nodes = [(schema, 1)], 0
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            return f"the schema is nested deeper than {MAX_DEPTH} levels"
        if nodes > MAX_NODES:
            return f"the schema has more than {MAX_NODES} parts"
        children = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
        stack.extend((child, depth + 1) for child in children if isinstance(child, (Mapping, list)))
    return None


def _bad_reference(schema: Mapping[str, Any]) -> str | None:
    for node in Places(schema).schemas:
        reference = node.get("$ref")
        if not isinstance(reference, str):
            continue
        if not reference.startswith("#"):
            return f"$ref {_short(reference)} points outside the schema, and nothing is fetched"
        if resolve(node, schema) is MISSING:
            return f"$ref {_short(reference)} leads nowhere or in a circle"
    return None


def _unbounded(schema: Mapping[str, Any]) -> str | None:
    """Refuse what cannot be checked in bounded time: two keywords whose patterns cannot be stopped, and doubling references."""
    patterned = any("patternProperties" in node for node in nodes(schema))
    if patterned and any("unevaluatedProperties" in node for node in nodes(schema)):
        return "patternProperties and unevaluatedProperties in one schema cannot be checked in bounded time"
    known: dict[int, int] = {}
    if any(_steps(node, schema, known, MAX_DEPTH) > MAX_STEPS for node in nodes(schema)):
        return f"the schema applies more than {MAX_STEPS} schemas to one value, or itself without end"
    return None


def _class_for(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


def compiled(schema: Mapping[str, Any]) -> Any:
    """Return a validator for a schema; a string with the reason if the schema cannot be used."""
    if problem := check_schema(schema):
        return problem
    try:
        return _validator(schema)
    except Exception as error:  # of many types, as above: `referencing` walks through keywords that no draft of the schema has
        return f"the schema cannot be compiled: {type(error).__name__}: {_short(str(error))}"


def compiled_as_mended(schema: Any) -> Any:
    """Return a validator for a schema that no catalog has mended, of a result or an answer, as `compiled` does."""
    return compiled(mended(schema, is_object=False)[0] if isinstance(schema, Mapping) else schema)


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import FormatChecker
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    of = specification_with(str(schema.get("$schema", "")), default=DRAFT202012).create_resource(schema)
    address = of.id() or ""
    # Crawled once, because `referencing` would otherwise search for all anchors at each reference to one.
    registry: Any = Registry().with_resource(address, of).crawl()
    make = with_time_limit(_class_for(schema))
    return make(schema, registry=registry, format_checker=FormatChecker(), _resolver=registry.resolver(base_uri=address))


def find_issues(validator: Any, value: Any) -> tuple[Issue, ...]:
    """List every way in which a value breaks its schema, outermost first; empty if the value is valid."""
    found = issues_or_reason(validator, value)
    return (Issue(code="invalid-value", message=found),) if isinstance(found, str) else found


def issues_or_reason(validator: Any, value: Any) -> tuple[Issue, ...] | str:
    """List every way in which a value breaks its schema, or say why that cannot be known."""
    from jsonschema.exceptions import relevance

    try:
        with limited():
            errors = sorted(validator.iter_errors(value), key=relevance, reverse=True)
            return tuple(_each_issue(errors, validator.schema))
    except Exception as error:  # a broken schema that `check_schema` did not recognise surfaces as many types
        return f"The tool's schema cannot be evaluated ({type(error).__name__})."


def _each_issue(errors: list[Any], root: Mapping[str, Any]) -> Iterable[Issue]:
    found: dict[Issue, None] = {}
    with at_most(_TOLD):
        for error in errors:
            try:
                found |= dict.fromkeys(_issues(error, root))
            except TooMuchWork:
                code = _CODES.get(error.validator, "invalid-value")
                found[Issue(code=code, path=error.json_path, message="It is not what the schema asks for.")] = None
    return found


def is_valid(validator: Any, value: Any, schema: Any) -> bool:
    """Say whether a value satisfies a part of a validator's schema; one that cannot be evaluated admits nothing."""
    try:
        with limited():
            return bool(validator.evolve(schema=schema).is_valid(value))
    except Exception:  # as in `issues_or_reason`
        return False


def types_of(schema: Any) -> tuple[str, ...]:
    """Return the JSON types that a schema names, or to which its keywords apply."""
    if not isinstance(schema, Mapping):
        return ()
    kinds = schema.get("type")
    if kinds is None:
        return tuple(kind for key, kind in (("properties", "object"), ("items", "array")) if key in schema)
    return tuple(kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str) and kind in JSON_TYPES)


def _issues(error: Any, root: Mapping[str, Any], depth: int = _MAX_UNIONS) -> Iterator[Issue]:
    if error.validator == "required":
        names = error.validator_value if isinstance(error.validator_value, list) else [error.path[-1]]
        yield from (_missing(error, name, root) for name in names if name not in error.instance)
    elif error.validator == "additionalProperties" and error.validator_value is False:
        declared = error.schema.get("properties", {})
        extra = (name for name in error.instance if name not in declared and not is_covered(name, error.schema))
        yield from (_unexpected(error, name, declared) for name in extra)
    elif error.validator in ("dependentRequired", "dependencies") and isinstance(error.instance, dict):
        yield from _dependent(error, root)
    elif error.validator in ("oneOf", "anyOf") and depth:
        yield from _of_union(error, root, depth)
    else:
        yield _broken(error, root)


def _of_union(error: Any, root: Mapping[str, Any], depth: int) -> Iterator[Issue]:
    """Describe what is wrong with the branch that was meant, if that is known; else list the branches."""
    branches = error.validator_value[:_MAX_TOLD]
    meant = branch_meant(error.instance, branches, root)
    # A branch that is `false` gives an error without a path.
    below = [each for each in error.context if each.relative_schema_path and each.relative_schema_path[0] == meant]
    if below:
        for each in below:
            yield from _issues(each, root, depth - 1)
        return
    wrong = list(unmet(error.instance, branches, root))
    for name, expected in wrong:
        got = _short(error.instance[name])
        message = f"Expected {expected}, got {got}."
        yield Issue(code="invalid-value", path=f"{error.json_path}.{name}", expected=expected, got=got, message=message)
    if not wrong:
        yield _broken(error, root)


def _dependent(error: Any, root: Mapping[str, Any]) -> Iterator[Issue]:
    for name, needed in error.validator_value.items():
        for other in needed if name in error.instance and isinstance(needed, list) else ():
            if other not in error.instance:
                yield Issue(
                    code="missing-argument",
                    path=f"{error.json_path}.{other}",
                    expected=describe(error.schema.get("properties", {}).get(other, {}), root),
                    message=f"The parameter {other!r} is required where {name!r} is given.",
                )


def _missing(error: Any, name: str, root: Mapping[str, Any]) -> Issue:
    expected = describe(error.schema.get("properties", {}).get(name, {}), root)
    path = error.json_path if error.validator_value is True else f"{error.json_path}.{name}"  # in draft 3 at the property
    return Issue(code="missing-argument", path=path, expected=expected, message=f"The parameter {name!r} is required.")


def _unexpected(error: Any, name: str, declared: Mapping[str, Any]) -> Issue:
    spend(1 + len(declared) // KEYS)
    known = ", ".join(declared) or "none"
    return Issue(
        code="unexpected-argument",
        path=f"{error.json_path}.{name}",
        expected=f"one of: {known}",
        got=name,
        message=f"There is no parameter {name!r}. Known: {known}.",
    )


def _broken(error: Any, root: Mapping[str, Any]) -> Issue:
    spend(_EACH_ISSUE)
    expected = asked_by(error.validator, error.validator_value, error.schema, root) or describe(error.schema, root)
    got = _short(error.instance)
    return Issue(
        code=_CODES.get(error.validator, "invalid-value"),
        path=error.json_path,
        expected=expected,
        got=got,
        message=f"Expected {expected}, got {got}.",
    )


def _short(value: Any, limit: int = 120) -> str:
    """Write the beginning of a value as JSON without encoding the rest, because each error writes its value."""
    if isinstance(value, str):
        text = json.dumps(value[: limit + 1], ensure_ascii=False)
        return text if len(text) <= limit else f"{text[:limit]}... ({len(value)} characters)"
    text = ""
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > limit:
            return f"{text[:limit]}..."
    return text


def _steps(node: Any, root: Mapping[str, Any], known: dict[int, int], levels: int) -> int:
    """Count the schemas that one schema applies to a value; a circle, or a chain that is too long, counts as too many."""
    if not isinstance(node, Mapping):
        return 0
    if levels == 0:
        return MAX_STEPS + 1
    if id(node) not in known:
        known[id(node)] = MAX_STEPS + 1  # the value inside a circle, until the number is known
        known[id(node)] = min(1 + sum(_steps(part, root, known, levels - 1) for part in _applied(node, root)), MAX_STEPS + 1)
    return known[id(node)]


def _applied(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema applies to the same value (JSON Schema 2020-12, core, section 10.2)."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        yield root if reference == "#" else pointed(root, reference)  # the same object each time, or counts would be lost
    for key in _LISTS:
        yield from node[key] if isinstance(node.get(key), list) else ()
    for key in _SINGLE:
        yield node.get(key)
    dependent = node.get("dependentSchemas")
    yield from dependent.values() if isinstance(dependent, Mapping) else ()
