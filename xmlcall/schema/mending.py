"""Repairs a schema by translating or dropping unusable parts, so that one odd keyword does not make a tool uncallable.

Real servers and clients send `"type": "INTEGER"`, JavaScript patterns, draft 3's `"required": true`, OpenAPI's `nullable`, and
external references. A table has a rule for each keyword (`_READERS`); combinations of keywords are corrected afterwards
(`_TOGETHER`). The result is read as 2020-12, or as the later draft that `$schema` names.

Invariants: a schema without oddities stays the same object. A repaired schema only ever admits more values. In some places a part
that admits more makes the whole admit less (`not`, `if`, `oneOf`, `additionalProperties` beside `patternProperties`); there the
whole keyword is dropped, too. No JSON value raises, and time is linear. A schema that is too deep stays unchanged, and
`check_schema` refuses it.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import regex

from ..types.calls import MISSING, is_of_type
from .references import DATA, LISTS, MAPS, MAX_DEPTH, SINGLES, Places, deeper_than, usable_pattern

_PASSES: Final = 3  # a reference may have led to what was left out
_MAX_NOTES: Final = 8
_MAX_PATH: Final = 200
_MAX_SHOWN: Final = 60  # characters of a name or value in a note
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$id", "$schema"}
)
_WRAPPED: Final = ("$ref", "allOf", "oneOf", "anyOf")

Schema = dict[str, Any]


def mended(schema: Mapping[str, Any], *, is_object: bool = True) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Mend a schema by others: of a tool's arguments, its result, or a form; return it, with notes for people about the changes.

    A schema in which nothing is odd is returned itself. With `is_object`, its values become objects, whatever it says.
    """
    if deeper_than(MAX_DEPTH, schema):
        return schema, ()
    notes: list[str] = []
    for _ in range(_PASSES):
        mender = _Mender(schema)
        found = mender.whole(schema) if is_object else mender.schema(schema, "$")
        if not mender.notes:
            break
        schema = found
        notes += mender.notes
    rest = len(notes) - _MAX_NOTES
    return schema, (*notes[:_MAX_NOTES], *([f"{rest} more"] if rest > 0 else ()))


def sentence(name: str, notes: tuple[str, ...]) -> str:
    """Say that a tool's schema was changed."""
    return f"The tool {name[:80]!r} is offered with a changed schema: {'; '.join(notes)}."


_Reader = Callable[[Any], Any]

# -- the values that single keywords may have -------------------------------------------------------------------------

# A reader takes a keyword's value and returns what can be used: the same object if that is the value itself, another one if it
# can be translated, MISSING if nothing can be made of it. Shapes are those of the meta-schema of 2020-12.

# Names of types by people, Python, C and OpenAPI; Google's are JSON's in capitals.
_TYPES: Final = {
    word: words.split()[0]
    for words in (
        *("string str text", "integer int int32 int64 long", "number float double decimal", "boolean bool"),
        *("null none nonetype", "array list tuple", "object dict map"),
    )
    for word in words.split()
}
_NUMBER = regex.compile(r"-?\d{1,15}(\.\d{1,15})?")
_WORDS: Final = {"true": True, "false": False}
# Addresses that `urljoin` takes: references are read from `$id`, and `$schema` is looked up.
_ADDRESS = regex.compile(r"[\w:/.?=&%+~@-]+#?")
_ANCHOR = regex.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_OLD_DRAFT = regex.compile(r"json-schema\.org/draft-0[1-4]\b")


def _type_named(name: Any) -> Any:
    """Return JSON's name of a type, MISSING if a name means none."""
    return _TYPES.get(name.strip().casefold(), MISSING) if isinstance(name, str) else MISSING


def _type(value: Any) -> Any:
    """Read a type or several; a name that is unknown, such as `any`, leaves no limit."""
    if isinstance(value, str):
        kinds = [_type_named(part) for part in value.split("|")]
    elif isinstance(value, list):
        kinds = ["null" if part is None else _type_named(part) for part in value]
    else:
        return MISSING
    if not kinds or MISSING in kinds:
        return MISSING
    kinds = list(dict.fromkeys(kinds))
    found = kinds[0] if isinstance(value, str) and len(kinds) == 1 else kinds
    return value if found == value else found


def _number(value: Any) -> Any:
    if isinstance(value, str) and _NUMBER.fullmatch(text := value.strip()):
        return float(text) if "." in text else int(text)
    is_number = (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and math.isfinite(value))
    return value if is_number else MISSING


def _flag(value: Any) -> Any:
    if isinstance(value, str):
        return _WORDS.get(value.strip().casefold(), MISSING)
    return value if isinstance(value, bool) else MISSING


def _kept_if(is_usable: Callable[[Any], Any]) -> _Reader:
    return lambda value: value if is_usable(value) else MISSING


def _number_if(is_usable: Callable[[Any], bool]) -> _Reader:
    return lambda value: number if (number := _number(value)) is not MISSING and is_usable(number) else MISSING


def _matching(form: regex.Pattern[str]) -> _Reader:
    return _kept_if(lambda value: isinstance(value, str) and form.fullmatch(value))


def _pattern(value: Any) -> Any:
    found = usable_pattern(value) if isinstance(value, str) else None
    return MISSING if found is None else found


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _dependent(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return MISSING
    found = {name: needed for name, needed in value.items() if _are_names(needed)}
    return value if len(found) == len(value) else found


def _each(reader: _Reader, names: str) -> dict[str, _Reader]:
    return dict.fromkeys(names.split(), reader)


_READERS: Final[dict[str, _Reader]] = {
    "type": _type,
    "enum": _kept_if(lambda value: isinstance(value, list) and value),
    "pattern": _pattern,
    "examples": lambda value: value if isinstance(value, list) else MISSING if isinstance(value, Mapping | None) else [value],
    "multipleOf": _number_if(lambda number: number > 0),
    "dependentRequired": _dependent,
    # Drafts up to 4 are left out: their keywords are translated.
    "$schema": _kept_if(lambda value: isinstance(value, str) and _ADDRESS.fullmatch(value) and not _OLD_DRAFT.search(value)),
    "$id": _matching(_ADDRESS),
    **_each(_number, "minimum maximum"),
    # In draft 4 they are booleans about the inclusive limits; that is corrected afterwards.
    **_each(lambda value: value if isinstance(value, bool) else _number(value), "exclusiveMinimum exclusiveMaximum"),
    **_each(
        _number_if(lambda number: number >= 0 and number == int(number)),
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    ),
    **_each(_flag, "uniqueItems deprecated readOnly writeOnly"),
    **_each(_kept_if(lambda value: isinstance(value, str)), "title description $comment format contentEncoding contentMediaType"),
    **_each(_matching(_ANCHOR), "$anchor $dynamicAnchor"),
    **_each(_kept_if(lambda value: False), "$vocabulary $recursiveRef $recursiveAnchor"),
}
"""Reader of each keyword, except keywords that hold schemas, `required` and references, which need more than their value."""


def _spelled(value: Any, kinds: list[str]) -> Any:
    """Return the number or boolean that a string spells, if it is of one of these types; else MISSING."""
    if not isinstance(value, str):
        return MISSING
    return next((read for read in (_number(value), _flag(value)) if read is not MISSING and is_of_type(read, kinds)), MISSING)


# -- a walk through a schema ------------------------------------------------------------------------------------------


class _Mender:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.notes: list[str] = []  # what was changed
        self.losses = 0  # limits that were left out
        self.places = Places(root)

    def note(self, path: str, value: Any, became: Any = MISSING, *, is_loss: bool = True) -> None:
        """Note a change. A note without a result says that something was left out, mostly a limit."""
        self.losses += became is MISSING and is_loss
        outcome = "left out" if became is MISSING else f"read as {_shown(became)}"
        self.notes.append(f"{path[-_MAX_PATH:]} {_shown(value)} {outcome}")

    def whole(self, root: Mapping[str, Any]) -> Schema:
        found = self.schema(root, "$")
        kinds = found.get("type", "object")
        if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
            self.note("$.type", kinds, "object")
            found["type"] = "object"
        return found

    def schema(self, node: Mapping[str, Any], path: str) -> Schema:
        found: Schema = {}
        loosened = []
        for key, value in node.items():
            before = self.losses
            kept = self._keyword(key, value, f"{path}.{str(key)[:_MAX_SHOWN]}")
            if kept is not MISSING:
                found[key] = kept
            if self.losses > before and key in _LOOSENED:
                loosened.append(_LOOSENED[key])
        for loosen in loosened:
            loosen(found)
        for rule in _TOGETHER:
            rule(self, node, found, path)
        return found

    def _keyword(self, key: str, value: Any, path: str) -> Any:
        if key in _READERS:
            return self._read(_READERS[key], value, path, is_loss=key not in _ANNOTATIONS)
        for keys, mend in _STRUCTURES:
            if key in keys:
                return mend(self, key, value, path)
        return value if key in DATA or key == "required" else self._unknown(value, path)

    def _read(self, reader: Callable[[Any], Any], value: Any, path: str, *, is_loss: bool = True) -> Any:
        found = reader(value)
        if found is not value:
            self.note(path, value, found, is_loss=is_loss)
        return found

    def named(self, key: str, value: Any, path: str) -> Any:
        """Mend schemas by name. Properties stay declared, whatever their schema is."""
        members = _by_name(value) if key == "properties" else value
        if not isinstance(members, Mapping):
            self.note(path, value)
            return MISSING
        if members is not value:
            self.note(path, value, list(members))
        found = {}
        for name, member in members.items():
            place = f"{path}.{str(name)[:_MAX_SHOWN]}"
            kept = member if key == "dependencies" and _are_names(member) else self.one(member, place)
            written = self._read(_pattern, name, place) if key == "patternProperties" else name
            if written is not MISSING and (kept is not MISSING or key == "properties"):
                found[written] = {} if kept is MISSING else kept
        return found

    def listed(self, key: str, value: Any, path: str) -> Any:
        """Mend a list of schemas. An entry that is not a schema is dropped from alternatives; elsewhere it admits anything."""
        members = value if isinstance(value, list) else [value] if isinstance(value, Mapping) else []
        if not members:
            self.note(path, value)
            return MISSING
        if members is not value:
            self.note(path, value, members)
        kept = [self.one(member, f"{path}[{number}]") for number, member in enumerate(members)]
        if key == "prefixItems":
            return [{} if member is MISSING else member for member in kept]
        return [member for member in kept if member is not MISSING] or MISSING

    def single(self, key: str, value: Any, path: str) -> Any:
        """Mend the schema of a keyword. Before 2020-12 the schema of `items` may also be a list."""
        return (
            self.listed("prefixItems", value, path)
            if key == "items" and isinstance(value, list) and value
            else self.one(value, path)
        )

    def one(self, value: Any, path: str) -> Any:
        """Mend a schema, or what replaces one: the name of a type, or the word for a boolean."""
        if isinstance(value, bool):
            return value
        if isinstance(value, Mapping):
            return self.schema(value, path)
        kind = _type_named(value)
        found = {"type": kind} if kind is not MISSING else _flag(value)
        self.note(path, value, found)
        return found

    def reference(self, key: str, value: Any, path: str) -> Any:
        """Keep a reference that leads to a schema inside this one."""
        found = self.places.local(value) if isinstance(value, str) else None
        if found is None or found != value:
            self.note(path, value, MISSING if found is None else found)
        return MISSING if found is None else found

    def dynamic(self, key: str, value: Any, path: str) -> Any:
        """Keep a dynamic reference that has an anchor."""
        if self.places.is_dynamic(value):
            return value
        self.note(path, value)
        return MISSING

    def _unknown(self, value: Any, path: str) -> Any:
        """Mend schemas in unknown keywords to which references lead."""
        if isinstance(value, list):
            return [self._unknown(each, path) for each in value]
        if not isinstance(value, Mapping):
            return value
        if id(value) in self.places.referenced:
            return self.schema(value, path)
        return {key: self._unknown(each, path) for key, each in value.items()}


_STRUCTURES: Final[tuple[tuple[frozenset[str], Callable[[_Mender, str, Any, str], Any]], ...]] = (
    (MAPS, _Mender.named),
    (LISTS, _Mender.listed),
    (SINGLES, _Mender.single),
    (frozenset({"$ref"}), _Mender.reference),
    (frozenset({"$dynamicRef"}), _Mender.dynamic),
)


def _by_name(members: Any) -> Any:
    """Read properties that are a list of schemas with their names in them; return anything else unchanged."""
    if not isinstance(members, list) or not all(
        isinstance(member, Mapping) and isinstance(member.get("name"), str) for member in members
    ):
        return members
    return {member["name"]: {key: value for key, value in member.items() if key != "name"} for member in members}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, Mapping | list) else _outline(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _outline(value: Any) -> str:
    """Write the beginning of a list or object, which may be of any size."""
    first = list(value)[:4]
    inner = ", ".join(json.dumps(each, ensure_ascii=False) if isinstance(each, str) else "..." for each in first)
    return f"[{inner}]" if isinstance(value, list) else f"{{{inner}}}"


# -- where admitting more in a part admits less in the whole -----------------------------------------------------------


def _without(*keys: str) -> Callable[[Schema], None]:
    def leave_out(found: Schema) -> None:
        for key in keys:
            found.pop(key, None)

    return leave_out


def _any_of(found: Schema) -> None:
    """Ask for one branch or more, not for exactly one."""
    branches = found.pop("oneOf", None)
    if branches and "anyOf" in found:
        found["allOf"] = [*found.get("allOf", ()), {"anyOf": branches}]
    elif branches:
        found["anyOf"] = branches


_LOOSENED: Final[dict[str, Callable[[Schema], None]]] = {
    "not": _without("not"),
    "if": _without("if", "then", "else"),
    "oneOf": _any_of,
    "patternProperties": _without("additionalProperties", "unevaluatedProperties"),
}


# -- what several keywords mean together -------------------------------------------------------------------------------


def _exclusive(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Read draft 4's `exclusiveMinimum: true`, which is about `minimum`."""
    for key, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(given := found.get(key), bool):
            del found[key]
            if given and limit in found:
                found[key] = found.pop(limit)
            mender.note(f"{path}.{key}", given, found.get(key, MISSING), is_loss=given)


def _tuple(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Read a list of schemas in `items` as `prefixItems`, unless `$schema` names a draft that allows it."""
    items = found.get("items")
    if isinstance(items, list) and not mender.places.has_tuples:
        mender.note(f"{path}.items", items, "prefixItems")
        del found["items"]
        found["prefixItems"] = items
        if (rest := found.pop("additionalItems", MISSING)) is not MISSING:
            found["items"] = rest


def _required(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """List the required names, those that draft 3 marks inside properties included; declare those that are not declared."""
    given = node.get("required")
    properties = _by_name(node.get("properties"))
    parts = properties.items() if isinstance(properties, Mapping) else ()
    marked = [name for name, part in parts if isinstance(part, Mapping) and _flag(part.get("required")) is True]
    listed = (
        given if isinstance(given, list) else [given] if isinstance(given, str) and given in found.get("properties", ()) else []
    )
    names = list(dict.fromkeys(name for name in (*listed, *marked) if isinstance(name, str)))
    if found.get("additionalProperties") is False and "properties" in found:
        names = [name for name in names if name in mender.places.declared]
    if names != given and ("required" in node or names):
        mender.note(f"{path}.required", given, names)
        found.pop("required", None)
        found |= {"required": names} if names else {}
    by_rule = "patternProperties" in found or isinstance(found.get("additionalProperties"), Mapping)
    known = found.get("properties", {})
    if missing := [name for name in names if name not in mender.places.declared and name not in known and not by_rule]:
        mender.note(f"{path}.properties", missing, "any value")
        found["properties"] = {**known, **{name: {} for name in missing}}


def _kinds(found: Schema) -> list[str]:
    kinds = found.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _item_values(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Move listed values of an array to its items, if these values are not arrays."""
    values, items = found.get("enum", []), found.get("items", {})
    if found.get("type") != "array" or not values or any(isinstance(value, list) for value in values):
        return
    mender.note(f"{path}.enum", found.pop("enum"), "those of items")
    if isinstance(items, Mapping) and not {"enum", "const", "$ref"} & items.keys():
        found["items"] = {**items, "enum": values}


def _values(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Read listed values that spell the type, if none has it. If others are left, the values count and the type is dropped."""
    for key in ("enum", "const"):
        kinds = _kinds(found)
        values = [] if key not in found else found["enum"] if key == "enum" else [found["const"]]
        if not kinds or not values or any(is_of_type(value, kinds) for value in values):
            continue
        read = [_spelled(value, kinds) for value in values]
        if MISSING in read:
            mender.note(f"{path}.type", found.pop("type"))
        if any(value is not MISSING for value in read):
            kept = [value if each is MISSING else each for value, each in zip(values, read, strict=True)]
            found[key] = kept if key == "enum" else kept[0]
            mender.note(f"{path}.{key}", node[key], found[key])


def _nullable(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Read OpenAPI's `nullable` as null among the types and the values, or as an alternative."""
    if _flag(found.get("nullable")) is not True:
        return
    mender.note(f"{path}.nullable", found.pop("nullable"), "null")
    if kinds := _kinds(found):
        found["type"] = list(dict.fromkeys([*kinds, "null"]))
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "enum" in found and None not in found["enum"]:
        found["enum"] = [*found["enum"], None]
    if wrapped := {key: found.pop(key) for key in _WRAPPED if key in found}:
        branches = wrapped["anyOf"] if wrapped.keys() == {"anyOf"} else [wrapped]
        found["anyOf"] = [*branches, {"type": "null"}]


def _default(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Read a default that spells its type, and leave out a default of another type. Null means that there is no default."""
    kinds = _kinds(found)
    if found.get("default") is None or not kinds or is_of_type(found["default"], kinds):
        return
    read = _spelled(found.pop("default"), kinds)
    found |= {"default": read} if read is not MISSING else {}
    mender.note(f"{path}.default", node["default"], read, is_loss=False)


def _address(mender: _Mender, node: Mapping[str, Any], found: Schema, path: str) -> None:
    """Leave out an address inside, from which references would be read."""
    if path != "$" and "$id" in found and mender.places.referenced:
        mender.note(f"{path}.$id", found.pop("$id"), is_loss=False)


_TOGETHER: Final = (_address, _exclusive, _tuple, _required, _item_values, _values, _nullable, _default)
