"""Tolerant JSON: strict first, then named repairs, else a failure that states what was expected.

Strategy: `json` reads valid text; the repairing reader (`machine`, `strings`) is used only if that fails.

Invariants: valid JSON is returned unchanged and without a repair. The exceptions would silently make a wrong call: a key given
twice with different values, NaN and Infinity, numbers beyond a double, more than `MAX_DEPTH` levels. No text raises. If two
repairs give different values and nothing decides between them, the text is refused. A text that may be cut is never completed.

Cost: linear in the text; nothing recurses over it except `json`, and only after the depth was counted.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..types.calls import MISSING, Repair, is_of_type
from .machine import MAX_DEPTH, JsonMachine, finite
from .strings import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReading:
    """A value, and the tolerances that were needed to read it, in the order of the text."""

    value: Any
    repairs: tuple[Repair, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(repair.code for repair in self.repairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Why a text has no reading, for the model's feedback."""

    position: int
    expected: str
    got: str
    code: str = "malformed-value"  # `malformed-value`, or `ambiguous` where there are two readings (a code of `errors.ISSUES`)


def refused(refusal: Refused, text: str) -> Unreadable:
    """Return the failure that a reader raised."""
    got = text[refusal.position : refusal.position + 30] or "the end of the text"
    return Unreadable(position=refusal.position, expected=refusal.expected, got=got, code=refusal.code)


def read(text: str, *, kinds: Collection[str] | None = None, complete: bool = False) -> JsonReading | Unreadable:
    """Read JSON as language models write it; brackets missing at its end are added only if it is not cut (`complete`).

    If types are wanted (`kinds`, of JSON Schema), a string that contains JSON of such a type is read as that, unless `string` is
    among them.
    """
    value = strict(text)
    found = JsonReading(value=value) if value is not MISSING else _tolerant(text, complete)
    if kinds is None or "string" in kinds or isinstance(found, Unreadable) or not isinstance(found.value, str):
        return found
    return _decoded_twice(found, text, kinds, complete)


def strict(text: str) -> Any:
    """Return the value of valid JSON; MISSING if the text is invalid, has a key twice, or is nested too deeply."""
    if _depth(text) > MAX_DEPTH:
        return MISSING
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return MISSING


_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def _depth(text: str) -> int:
    """Return an upper bound of the levels that a strict reader enters before it ends or fails."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        bracket = found.group()
        depth += (bracket in ("[", "{")) - (bracket in ("]", "}"))
        deepest = max(deepest, depth)
    return deepest


def refuse_constant(constant: str) -> Any:
    """Refuse NaN and Infinity, which are Python's."""
    raise ValueError(f"{constant} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")  # the tolerant reading says which one and where, if the values differ
    return found


# Made once: to make it takes as long as to read a number.
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=finite, object_pairs_hook=_unique)


def _decoded_twice(outer: JsonReading, text: str, kinds: Collection[str], complete: bool) -> JsonReading:
    """Read the JSON inside a string; a string without JSON of a wanted kind stays."""
    inner = read(outer.value, complete=complete)
    if isinstance(inner, Unreadable) or not is_of_type(inner.value, kinds):
        return outer
    span = (0, len(text))  # offsets inside the string are not offsets in the text
    codes = ["json-double-encoding", *inner.codes]
    return JsonReading(value=inner.value, repairs=(*outer.repairs, *(Repair(code=code, span=span) for code in codes)))


def _tolerant(text: str, complete: bool) -> JsonReading | Unreadable:
    machine = JsonMachine(text, complete)
    try:
        value = machine.run()
    except Refused as refusal:
        return refused(refusal, text)
    return JsonReading(value=value, repairs=tuple(machine.repairs))
