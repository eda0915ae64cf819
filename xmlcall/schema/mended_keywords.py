"""The values that single keywords of a JSON Schema may have, and how other values are read.

A reader takes a keyword's value and returns what can be used: the same object if that is the value itself, another one if it can
be translated, MISSING if nothing can be made of it. Shapes are those of the meta-schema of 2020-12.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import regex

from ..types.calls import MISSING
from .keywords import usable_pattern

Reader = Callable[[Any], Any]

# Names of types by people, Python, C and OpenAPI; Google's are JSON's in capitals.
_TYPES: Final = {kind: kind for kind in ("string", "integer", "number", "boolean", "null", "array", "object")} | {
    "str": "string",
    "text": "string",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "none": "null",
    "nonetype": "null",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "map": "object",
}
_NUMBER = regex.compile(r"-?\d{1,15}(\.\d{1,15})?")
_WORDS: Final = {"true": True, "false": False}
# Addresses that `urljoin` takes: references are read from `$id`, and `$schema` is looked up.
_ADDRESS = regex.compile(r"[\w:/.?=&%+~@-]+#?")
_ANCHOR = regex.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_OLD_DRAFT = regex.compile(r"json-schema\.org/draft-0[1-4]\b")


def type_named(name: Any) -> Any:
    """Return JSON's name of a type, MISSING if a name means none."""
    return _TYPES.get(name.strip().casefold(), MISSING) if isinstance(name, str) else MISSING


def _type(value: Any) -> Any:
    """Read a type or several; a name that is unknown, such as `any`, leaves no limit."""
    if isinstance(value, str):
        kinds = [type_named(part) for part in value.split("|")]
    elif isinstance(value, list):
        kinds = ["null" if part is None else type_named(part) for part in value]
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


def _limit(value: Any) -> Any:
    """Read an exclusive limit. In draft 4 it is a boolean about the inclusive limit; that is corrected afterwards."""
    return value if isinstance(value, bool) else _number(value)


def _positive(value: Any) -> Any:
    number = _number(value)
    return number if number is not MISSING and number > 0 else MISSING


def _count(value: Any) -> Any:
    number = _number(value)
    return number if number is not MISSING and number >= 0 and number == int(number) else MISSING


def flag(value: Any) -> Any:
    """Return a boolean, or the one that a word means; otherwise MISSING."""
    if isinstance(value, str):
        return _WORDS.get(value.strip().casefold(), MISSING)
    return value if isinstance(value, bool) else MISSING


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else MISSING


def _matching(form: regex.Pattern[str]) -> Reader:
    return lambda value: value if isinstance(value, str) and form.fullmatch(value) else MISSING


def pattern(value: Any) -> Any:
    """Return a pattern as `regex` has it, MISSING if there is none."""
    found = usable_pattern(value) if isinstance(value, str) else None
    return MISSING if found is None else found


def _draft(value: Any) -> Any:
    """Leave out a `$schema` that names draft 4 or an earlier one: their keywords are translated."""
    return value if isinstance(value, str) and _ADDRESS.fullmatch(value) and not _OLD_DRAFT.search(value) else MISSING


def _enum(value: Any) -> Any:
    return value if isinstance(value, list) and value else MISSING


def _examples(value: Any) -> Any:
    return value if isinstance(value, list) else MISSING if isinstance(value, Mapping) or value is None else [value]


def are_names(value: Any) -> bool:
    """Say whether a value is a list of names, each of them once."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _dependent(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return MISSING
    found = {name: needed for name, needed in value.items() if are_names(needed)}
    return value if len(found) == len(value) else found


def _leave_out(value: Any) -> Any:
    return MISSING


def _each(reader: Reader, names: str) -> dict[str, Reader]:
    return dict.fromkeys(names.split(), reader)


READERS: Final[dict[str, Reader]] = {
    "type": _type,
    "enum": _enum,
    "pattern": pattern,
    "examples": _examples,
    "multipleOf": _positive,
    "dependentRequired": _dependent,
    "$schema": _draft,
    "$id": _matching(_ADDRESS),
    **_each(_number, "minimum maximum"),
    **_each(_limit, "exclusiveMinimum exclusiveMaximum"),
    **_each(_count, "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains"),
    **_each(flag, "uniqueItems deprecated readOnly writeOnly"),
    **_each(_text, "title description $comment format contentEncoding contentMediaType"),
    **_each(_matching(_ANCHOR), "$anchor $dynamicAnchor"),
    **_each(_leave_out, "$vocabulary $recursiveRef $recursiveAnchor"),
}
"""By keyword; the keywords that hold schemas, `required` and the references need more than their value to be read."""


def fits(value: Any, kinds: list[str]) -> bool:
    """Say whether a JSON value is of one of these types."""
    return any(_IS[kind](value) for kind in kinds)


def spelled(value: Any, kinds: list[str]) -> Any:
    """Return the number or boolean that a string spells, if it is of one of these types; else MISSING."""
    if not isinstance(value, str):
        return MISSING
    return next((read for read in (_number(value), flag(value)) if read is not MISSING and fits(read, kinds)), MISSING)


_IS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
}
