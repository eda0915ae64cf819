"""A JSON value that a model wrote as a call -> name and arguments.

The forms: `{"name": ..., "arguments": {...}}`, the arguments also as `parameters`, `args`, `input` or as a string of JSON; the
name also as `tool`, `tool_name` or `function`; OpenAI's `{"type": "function", "function": {...}}`; several of them in an array
or in `tool_calls`.
"""

import json
from collections.abc import Iterator
from typing import Any

import regex

from ..dialects import ARGUMENTS, NAMES
from ..loosejson import reader as jsonish
from ..types.calls import Issue, RawArgument, RawCall, Repair, Span
from ..types.events import Event, Repaired, ToolArgumentDelta, ToolCallEnd, ToolCallStart

__all__ = ["arguments_of", "calls_of", "events_of", "name_in", "unreadable"]

_NAME = regex.compile(rf"[\"'](?:{'|'.join(NAMES)})[\"']\s*:\s*(?:\"([^\"\\]{{1,128}})\"|'([^'\\]{{1,128}})')")
_OTHERS = frozenset({"id", "type", "index", "call_id", "tool_call_id"})  # say nothing about what is to be called
_EXPECTED = 'Expected {"name": "...", "arguments": {...}}.'


def name_in(text: str) -> str:
    """Return what is probably the name in the text of a call that cannot be read, or ""."""
    found = _NAME.search(text)
    return (found.group(1) or found.group(2)) if found else ""


def unreadable(read: jsonish.Unreadable) -> Issue:
    """Return the issue of a call whose JSON has two readings or none."""
    message = f"The call is no JSON: at character {read.position} {read.expected} was expected, {read.got} came."
    return Issue(code=read.code, message=message)


def arguments_of(values: dict[str, Any], span: Span) -> Iterator[RawArgument]:
    """Yield the arguments of an object.

    Args:
        values: name -> JSON value.
        span: of the whole object; the places of its members are not known.
    """
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield RawArgument(name=name, text=text, value=value, span=span)


def calls_of(text: str, span: Span, *, index: int, dialect: str, complete: bool) -> list[RawCall]:
    """Read the calls in a JSON text.

    Args:
        text: the JSON, with nothing around it.
        span: where it stands; every call has it, because the places of an array's members are not known.
        index: number of the first call in the reply.
        dialect: the wire format.
        complete: False if the reply ended inside.

    Returns:
        One call an object; what cannot be read is one call with an issue.
    """

    def call(
        number: int,
        name: str,
        arguments: dict[str, Any],
        issues: tuple[Issue, ...] = (),
        repairs: tuple[Repair, ...] = (),
    ) -> RawCall:
        return RawCall(
            index=index + number,
            name=name,
            arguments=tuple(arguments_of(arguments, span)),
            dialect=dialect,
            text=text,
            span=span,
            complete=complete,
            issues=issues,
            repairs=repairs,
        )

    if not complete:
        issue = Issue(code="truncated-call", message="The reply ended inside the call: its JSON has no end.")
        return [call(0, name_in(text), {}, (issue,))]
    read = jsonish.read(text.strip(), kinds={"object", "array"}, complete=True)
    if isinstance(read, jsonish.Unreadable):
        return [call(0, name_in(text), {}, (unreadable(read),))]
    repairs = tuple(Repair(code=repair.code, span=span) for repair in read.repairs)
    found = [_named(value) for value in _objects(read.value)]
    if not found or None in found:
        return [call(0, name_in(text), {}, (Issue(code="malformed-value", message=_EXPECTED),))]
    calls = []
    for number, (name, arguments, liberties) in enumerate(each for each in found if each is not None):
        inner = tuple(Repair(code=code, span=span) for code in liberties)
        calls.append(call(number, name, arguments, (), inner if number else (*repairs, *inner)))
    return calls


def _objects(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    return value if isinstance(value, list) else [value]


def _named(value: Any) -> tuple[str, dict[str, Any], list[str]] | None:
    """Return name, arguments and liberties of a call object; None if it is none, or holds more, which would be lost."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        if value.keys() - {"function", *_OTHERS}:
            return None
        value = value["function"]
    if not isinstance(value, dict):
        return None
    names = [key for key in NAMES if isinstance(value.get(key), str)]
    keys = [key for key in ARGUMENTS if key in value]
    if len(names) != 1 or not value[names[0]] or len(keys) > 1 or value.keys() - {*names, *keys, *_OTHERS}:
        return None
    arguments: Any = value[keys[0]] if keys else {}
    liberties: list[str] = []
    if isinstance(arguments, str):
        read = jsonish.read(arguments, kinds={"object"}, complete=True)
        arguments = read.value if isinstance(read, jsonish.Reading) else None
        liberties = [repair.code for repair in read.repairs] if isinstance(read, jsonish.Reading) else []
    return (value[names[0]], arguments, liberties) if isinstance(arguments, dict) else None


def events_of(calls: list[RawCall]) -> Iterator[Event]:
    """Yield the events of calls that `calls_of` found in one text: the first has the text, the others are at its end."""
    for number, raw in enumerate(calls):
        start, end = raw.span
        place = end if number else start
        yield ToolCallStart(index=raw.index, name=raw.name, span=(place, place), dialect=raw.dialect)
        yield from (Repaired(code=repair.code, span=repair.span) for repair in raw.repairs)
        if not number:
            yield ToolArgumentDelta(index=raw.index, parameter="", text=raw.text, span=raw.span)
        yield ToolCallEnd(raw=raw, span=(end, end))
