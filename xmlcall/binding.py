"""A call as written + its tool -> a call with typed arguments, or every mistake in it.

Strategy: read each value strictly, as the schema says (the text itself where a string is admitted, else its JSON value), then
validate the whole with JSON Schema. A declared string is never touched. All issues of a call come at once, so that a model can
mend them in one go. Nothing raises on any text.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import jsonish, xmlvalue
from .catalog import Catalog, Tools
from .references import MAX_DEPTH, resolve
from .schema import describe, find_issues, validator_of
from .types import MISSING, InvalidCall, Issue, RawArgument, RawCall, Repair, Tool, ToolCall

__all__ = ["admits_string", "bind", "property_schema"]

_NEAREST = 3
_WRAPPERS = frozenset({"arguments", "parameters", "args", "input", "properties"})
_BRANCHES = ("allOf", "anyOf", "oneOf")


def bind(raw_call: RawCall, tools: Tools) -> ToolCall | InvalidCall:
    """Check a call against its tool and type its arguments.

    Args:
        raw_call: as the parser read it.
        tools: what was offered; empty means unknown: the arguments stay as written.

    Returns:
        A ToolCall whose arguments satisfy the tool's schema, or an InvalidCall with every issue.
    """
    catalog = Catalog.of(tools)
    tool = catalog.get(raw_call.name)
    if tool is None and len(catalog):
        return _invalid(raw_call, (*raw_call.issues, _unknown(raw_call.name, catalog.names())))
    arguments, issues, repairs = _read(raw_call.arguments, tool, raw_call.complete)
    if (inner := _unwrapped(raw_call, arguments, catalog)) is not None:
        argument = raw_call.arguments[0]
        repairs = [Repair(code="arguments-wrapper", span=argument.span, path=f"$.{argument.name}")]
        arguments, issues = inner, []
    if tool is not None and raw_call.complete:
        broken = {issue.path for issue in issues}
        found = find_issues(validator_of(catalog, tool), arguments)
        issues += [issue for issue in found if issue.path not in broken]
    issues = [*raw_call.issues, *issues]
    if issues or not raw_call.complete:
        return _invalid(raw_call, tuple(issues))
    return ToolCall(
        id=_id(raw_call), name=raw_call.name, arguments=arguments, repairs=(*raw_call.repairs, *repairs), raw=raw_call
    )


def _unwrapped(raw_call: RawCall, arguments: dict[str, Any], catalog: Catalog) -> dict[str, Any] | None:
    """Return the members of an only argument such as `arguments` that the tool does not have, if it has all of the members."""
    declared = catalog.parameters(raw_call.name)
    if declared is None or len(raw_call.arguments) != 1 or not raw_call.complete:
        return None
    name = raw_call.arguments[0].name
    if name not in _WRAPPERS or name in declared:
        return None
    value = arguments.get(name)
    if isinstance(value, str):
        read = jsonish.read(value, kinds={"object"}, complete=True)
        value = read.value if isinstance(read, jsonish.Reading) else None
    return value if isinstance(value, dict) and value and value.keys() <= declared else None


def _id(raw_call: RawCall) -> str:
    return f"call_{raw_call.index}"


def _invalid(raw_call: RawCall, issues: tuple[Issue, ...]) -> InvalidCall:
    return InvalidCall(id=_id(raw_call), name=raw_call.name, issues=issues, raw=raw_call)


def _unknown(name: str, known: tuple[str, ...]) -> Issue:
    nearest = difflib.get_close_matches(name, known, n=_NEAREST, cutoff=0.4) or known[:_NEAREST]
    expected = " or ".join(nearest)
    return Issue(code="unknown-tool", expected=expected, got=name, message=f"There is no tool {name!r}. The nearest: {expected}.")


# A value, the mistake in it, the liberties taken with it.
Read = tuple[Any, Issue | None, tuple[Repair, ...]]


def _read(written: Iterable[RawArgument], tool: Tool | None, complete: bool) -> tuple[dict[str, Any], list[Issue], list[Repair]]:
    arguments: dict[str, Any] = {}
    issues: list[Issue] = []
    repairs: list[Repair] = []
    for argument in written:
        value, issue, liberties = _value(argument, tool, complete)
        repairs += liberties
        path = f"$.{argument.name}" if argument.name else "$"
        if issue is not None:
            issues.append(issue)
        if argument.name in arguments and arguments[argument.name] != value:
            message = f"The parameter {argument.name!r} was given twice with different values."
            issues.append(Issue(code="duplicate-argument", path=path, got=_short(argument.text), message=message))
        if argument.name:
            arguments.setdefault(argument.name, value)
    return arguments, issues, repairs


def _value(argument: RawArgument, tool: Tool | None, complete: bool) -> Read:
    if argument.value is not MISSING:
        if _deeper_than(MAX_DEPTH, argument.value):
            reason = f"it is nested deeper than {MAX_DEPTH} levels"
            return None, _malformed(f"$.{argument.name}", "JSON", argument.text, reason), ()
        return argument.value, None, ()
    if not argument.name:  # a native call whose arguments as a whole are no JSON object
        return None, _malformed("$", "a JSON object with the arguments", argument.text, "it is not one"), ()
    if tool is None:
        return argument.text, None, ()
    schema = property_schema(tool.input_schema, argument.name)
    if admits_string(schema, tool.input_schema):
        return argument.text, None, ()
    return _json_value(argument, schema, tool.input_schema, complete)


def _json_value(argument: RawArgument, schema: Any, root: Mapping[str, Any], complete: bool) -> Read:
    """Read JSON, broken JSON by named repairs; where a scalar is none, the validator says what was expected."""
    read = jsonish.read(argument.text, kinds=_kinds(schema, root), complete=complete)
    path = f"$.{argument.name}"
    if isinstance(read, jsonish.Reading):
        return read.value, None, tuple(Repair(code=repair.code, span=argument.span, path=path) for repair in read.repairs)
    if argument.text.lstrip().startswith("<") and (nodes := xmlvalue.read(argument.text)):
        repair = Repair(code="xml-elements", span=argument.span, path=path)
        return _of_elements(nodes, schema, root), None, (repair,)
    if not argument.text.lstrip().startswith(("[", "{")):
        return argument.text, None, ()
    reason = f"at character {read.position} {read.expected} was expected, {read.got} came"
    return argument.text, _malformed(path, describe(schema, root), argument.text, reason, read.code), ()


def _of_elements(nodes: tuple[xmlvalue.Node, ...], schema: Any, root: Mapping[str, Any]) -> Any:
    """Make of XML elements what the schema asks for: an array of their contents, or an object with their names."""
    schema = resolve(schema, root)
    kinds = _kinds(schema, root) or {"object", "array"}
    names = {node.name for node in nodes}
    if "array" in kinds and (len(names) == 1 or "object" not in kinds):
        items = schema.get("items", True) if isinstance(schema, Mapping) else True
        return [_of_element(node, items, root) for node in nodes]
    found: dict[str, list[xmlvalue.Node]] = {}
    for node in nodes:
        found.setdefault(node.name, []).append(node)
    return {name: _of_group(group, _member_schema(schema, name), root) for name, group in found.items()}


def _of_group(group: list[xmlvalue.Node], schema: Any, root: Mapping[str, Any]) -> Any:
    """Make one member of the elements of one name: several are an array."""
    if len(group) == 1:
        return _of_element(group[0], schema, root)
    items = resolve(schema, root)
    items = items.get("items", True) if isinstance(items, Mapping) else True
    return [_of_element(node, items, root) for node in group]


def _of_element(node: xmlvalue.Node, schema: Any, root: Mapping[str, Any]) -> Any:
    if node.children:
        return _of_elements(node.children, schema, root)
    if admits_string(schema, root):
        return node.text
    read = jsonish.read(node.text, kinds=_kinds(schema, root), complete=True)
    return read.value if isinstance(read, jsonish.Reading) else node.text


def _member_schema(schema: Any, name: str) -> Any:
    return property_schema(schema, name) if isinstance(schema, Mapping) else True


def _kinds(schema: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON types that a schema names; None if it does not."""
    schema = resolve(schema, root)
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    return frozenset(kinds if isinstance(kinds, list) else [kinds]) if kinds else None


def _deeper_than(levels: int, value: Any) -> bool:
    """Say whether a JSON value is nested deeper; what validates, shows or stores it recurses."""
    layer = [value]
    for _ in range(levels):
        layer = [
            child
            for node in layer
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not layer:
            return False
    return any(isinstance(node, (dict, list)) and node for node in layer)


def _malformed(path: str, expected: str, text: str, reason: str, code: str = "malformed-value") -> Issue:
    message = f"Expected JSON for {expected}, got text that cannot be read as JSON: {reason}."
    return Issue(code=code, path=path, expected=expected, got=_short(text), message=message)


def _short(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def property_schema(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema that an object schema declares for a property.

    Args:
        schema: a tool's whole input schema.
        name: the property.

    Returns:
        The first declaration found in `properties`, there or in a branch; else `additionalProperties`; else True (any value).
    """
    found = next(_declarations(schema, name, schema, depth=8), MISSING)
    if found is not MISSING:
        return found
    return schema.get("additionalProperties", True)


def _declarations(schema: Any, name: str, root: Mapping[str, Any], depth: int) -> Iterator[Any]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or depth == 0:
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        yield properties[name]
    for key in _BRANCHES:
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else ():
            yield from _declarations(branch, name, root, depth - 1)
    for key in ("then", "else"):
        yield from _declarations(schema.get(key), name, root, depth - 1)


def admits_string(schema: Any, root: Mapping[str, Any], depth: int = 8) -> bool:
    """Say whether a schema has room for a string, so that text is read as it stands.

    Args:
        schema: a part of `root`.
        root: the whole schema, for `$ref`.
        depth: levels of alternatives that are followed.
    """
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or depth == 0:
        return schema is not False
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(schema.get("enum"), list):
        return any(isinstance(value, str) for value in schema["enum"])
    kinds = schema.get("type")
    if kinds is not None and "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and not any(admits_string(branch, root, depth - 1) for branch in branches):
            return False
    parts = schema.get("allOf")
    return all(admits_string(part, root, depth - 1) for part in parts) if isinstance(parts, list) else True
