"""The body of a call in a notation of its own (JSON, Python, Gemma's) -> names and arguments, and the RawCalls made of them.

The forms of JSON: `{"name": ..., "arguments": {...}}`, the arguments also as `parameters`, `args`, `input` or as JSON in a
string; the name also as `tool`, `tool_name` or `function`; OpenAI's `{"type": "function", "function": {...}}`; several in an
array or in `tool_calls`; and `{"name of the tool": {...}}` in the formats that write it so.

`Extent` finds the end of such a body while it is still being written. It skips strings. Brackets of all kinds count alike,
because only the end has to be found here; mistakes inside are reported when the value is read. Cost: one search for each special
character, whatever is between them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import regex

from ..dialects import Body
from ..dialects.dialect import ARGUMENTS, NAMES
from ..loosejson import reader as jsonish
from ..loosejson.gemma import read_gemma
from ..loosejson.machine import LooseCall, is_movable
from ..loosejson.python import read_python
from ..loosejson.strings import Refused
from ..types.calls import Issue, RawArgument, RawCall, Repair, Span
from ..types.events import Event, Repaired, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from .scanner import Token

_NAME = regex.compile(rf"[\"'](?:{'|'.join(NAMES)})[\"']\s*:\s*(?:\"([^\"\\]{{1,128}})\"|'([^'\\]{{1,128}})')")
_PYTHON_NAME = regex.compile(r"(?:\A|[\s\[=(])(?:default_api\.)?([^\W\d][\w.\-]{0,127})\(")
_OTHERS = frozenset({"id", "type", "index", "call_id", "tool_call_id"})  # irrelevant to the call
_EXPECTED = 'Expected {"name": "...", "arguments": {...}}.'

Positional = Callable[[str, Mapping[str, Any], Sequence[Any]], Mapping[str, Any] | None]
"""Names positional values: (tool, named values, positional values) -> all values by name; None if several readings remain."""

_JSON: Final = regex.compile(r'["\\{}\[\]]')
_PYTHON: Final = regex.compile(r"[\"'\\{}\[\]()#\n]")
_GEMMA: Final = regex.compile(r"[\"'\\{}\[\]()]")
_SPECIAL: Final[Mapping[Body, "regex.Pattern[str]"]] = {Body.PYTHON: _PYTHON, Body.LINES: _PYTHON, Body.GEMMA: _GEMMA}
_OPENING: Final = "{[("
_BEGIN: Final = frozenset("{[(,:=")  # before a value


_IS_PYTHON: Final = regex.compile(r"\[?\s*(?:[^\W\d]|#)")
_NOTATIONS: Final = {Body.PYTHON: "Python", Body.LINES: "Python", Body.GEMMA: "object"}  # JSON if not listed
_UNNAMED: Final = Issue(code="malformed-value", message="Each argument needs the name of its parameter, as in f(name=value).")


def name_in(text: str) -> str:
    """Return the probable name of a call that cannot be read, or ""."""
    found = _NAME.search(text)
    if found:
        return found.group(1) or found.group(2)
    python = _PYTHON_NAME.search(text)
    return python.group(1) if python else ""


def unreadable(read: jsonish.Unreadable, notation: str = "JSON") -> Issue:
    """Return the issue of a call whose body has two readings or none."""
    message = f"The call is no {notation}: at character {read.position} {read.expected} was expected, {read.got} came."
    return Issue(code=read.code, message=message)


def arguments_of(values: Mapping[str, Any], span: Span, texts: Mapping[str, str] | None = None) -> Iterator[RawArgument]:
    """Yield the arguments of an object, each with the span of all, because the places of members are unknown."""
    for name, value in values.items():
        text = value if isinstance(value, str) else (texts or {}).get(name) or json.dumps(value, ensure_ascii=False)
        yield RawArgument(name=name, text=text, value=value, span=span)


# A body -> the calls that it states. A text in a wrapper may be JSON or Python, whatever the format asks for; its beginning
# decides.


def _read_body(text: str, body: Body) -> Sequence[LooseCall] | jsonish.Unreadable:
    """Read a body; return no calls if it is a value other than a call."""
    text = text.strip()
    if body is Body.GEMMA or (body is not Body.OBJECT and _IS_PYTHON.match(text)):
        try:
            return (read_gemma if body is Body.GEMMA else read_python)(text)
        except Refused as refusal:
            return jsonish.refused(refusal, text)
    read = jsonish.read(text, kinds={"object"} if body is Body.OBJECT else {"object", "array"}, complete=True)
    if isinstance(read, jsonish.Unreadable):
        return _closed_call(text) or read
    if body is Body.OBJECT:
        return [LooseCall(name="", arguments=read.value, repairs=read.codes)] if isinstance(read.value, dict) else []
    values = read.value
    if isinstance(values, dict) and isinstance(values.get("tool_calls"), list):
        values = values["tool_calls"]
    values = values if isinstance(values, list) else [values]
    named = [_named(value) or (_keyed(value) if body is Body.KEYED else None) for value in values]
    found = [each for each in named if each is not None]
    if len(found) < len(named) or not found:
        return []
    return [replace(found[0], repairs=(*read.codes, *found[0].repairs)), *found[1:]]


def _closed_call(text: str) -> Sequence[LooseCall]:
    """Read a call that lacks its last brackets: closed earlier, an argument would be outside the arguments."""
    for missing in (1, 2):
        call = _named(jsonish.strict(text + "}" * missing))
        if call is not None and not is_movable(call.arguments, missing, 0):
            return [replace(call, repairs=("json-missing-closer",) * missing + call.repairs)]
    return []


def _named(value: Any) -> LooseCall | None:
    """Return the call that an object states; None if it states none, or has other members, which would be lost."""
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
    arguments = {} if arguments is None or arguments == "" else arguments  # a call without arguments
    liberties: tuple[str, ...] = ()
    if isinstance(arguments, str):
        read = jsonish.read(arguments, kinds={"object"}, complete=True)
        if isinstance(read, jsonish.Unreadable):
            return None
        arguments, liberties = read.value, read.codes
    return LooseCall(name=value[names[0]], arguments=arguments, repairs=liberties) if isinstance(arguments, dict) else None


def _keyed(value: Any) -> LooseCall | None:
    """Return the call that an object with the tool's name as its only key states, else None."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    [(name, arguments)] = value.items()
    return LooseCall(name=name, arguments=arguments) if isinstance(arguments, dict) else None


def calls_of(
    text: str,
    span: Span,
    *,
    index: int,
    dialect: str,
    complete: bool,
    body: Body = Body.JSON,
    head: str = "",
    positional: Positional = lambda _, named, values: None if values else named,
) -> list[RawCall]:
    """Return the calls in a body, each with the body's span; a body that cannot be read gives one call with an issue."""

    def call(found: LooseCall, number: int = 0, issue: Issue | None = None) -> RawCall:
        arguments, codes = found.arguments, found.repairs
        if found.positional:
            named = positional(found.name, arguments, found.positional)
            issue = _UNNAMED if named is None else None
            arguments, codes = named or {}, (*codes, "positional-argument")
        return RawCall(
            index=index + number,
            name=head or found.name,
            arguments=tuple(arguments_of(arguments, span, found.texts)),
            dialect=dialect,
            text=text,
            span=span,
            complete=complete,
            issues=(issue,) if issue else (),
            repairs=tuple(Repair(code=code, span=span) for code in codes),
        )

    notation = _NOTATIONS.get(body, "JSON")
    if not complete:
        issue = Issue(code="truncated-call", message=f"The reply ended inside the call: its {notation} has no end.")
    elif isinstance(read := _read_body(text, body), jsonish.Unreadable):
        issue = unreadable(read, "Python" if _IS_PYTHON.match(text.strip()) else notation)
    elif read:
        return [call(found, number) for number, found in enumerate(read)]
    else:
        issue = Issue(code="malformed-value", message=_EXPECTED)
    return [call(LooseCall(name=name_in(text), arguments={}), issue=issue)]


def events_of(calls: list[RawCall], opener: Span | None = None) -> Iterator[Event]:
    """Yield the events of calls that `calls_of` found in one text: the first has the text, the others are empty at its end.

    The text of a call whose tag named the tool begins after this opener.
    """
    for number, raw in enumerate(calls):
        start, end = raw.span
        begun = opener or ((end, end) if number else (start, start))
        yield ToolCallStart(index=raw.index, name=raw.name, span=begun, dialect=raw.dialect)
        yield from (Repaired(code=repair.code, span=repair.span) for repair in raw.repairs)
        if not number:
            yield ToolArgumentDelta(index=raw.index, parameter="", text=raw.text[begun[1] - start :], span=(begun[1], end))
        yield ToolCallEnd(raw=raw, span=(end, end))


class Extent:
    """Counts brackets."""

    def __init__(self, body: Body = Body.JSON) -> None:
        self.in_string = ""  # the mark that ends the open string; "" outside strings
        self.done = False  # whether the value has ended
        self.depth = 0  # number of open brackets
        self._special = _SPECIAL.get(body, _JSON)
        self._goes_on = body is Body.LINES  # the value continues until its wrapper ends
        self._raw_marks = body is Body.GEMMA
        self._is_round = False  # parentheses surround the whole value, so they count as brackets
        self._last = ""  # the last character other than white space
        self._in_comment = False
        self._escaped = False  # the next character belongs to an escape

    def feed(self, token: Token) -> int:
        """Read a piece; return how much of it belongs to the value."""
        is_mark = token.kind == "quote" and not self._in_comment and not self._escaped
        if is_mark and self.in_string in ("", token.text):  # it begins or ends a string
            self.in_string = "" if self.in_string else token.text
            return len(token.text)
        return self.text(token.text)

    def text(self, text: str) -> int:
        """Read text without marks; return how much of it belongs to the value."""
        skip = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        for match in self._special.finditer(text, skip):
            if match.start() < skip:
                continue
            found = match.group()
            if self._in_comment or found in "#\n":
                self._in_comment = not self.in_string and (found == "#" or (self._in_comment and found != "\n"))
            elif found == "\\":
                escapes = self.in_string and not (self._raw_marks and len(self.in_string) > 1)
                skip = match.end() + 1 if escapes else skip
            elif found in "\"'":
                is_quote = found in (self.in_string, '"') or not self._raw_marks or self._before(text, match.start()) in _BEGIN
                if is_quote and self.in_string in ("", found):
                    self.in_string = "" if self.in_string else found
            elif not self.in_string and self._count(found):
                return match.end()
        self._escaped = self._escaped or skip > len(text)
        self._last = self._before(text, len(text)) if self._raw_marks else ""
        return len(text)

    def _before(self, text: str, end: int) -> str:
        """Return the last character before a place other than white space: an apostrophe in a word does not begin a string."""
        while end and text[end - 1].isspace():
            end -= 1
        return text[end - 1] if end else self._last

    def _count(self, bracket: str) -> bool:
        if self._raw_marks and bracket in "()":
            self._is_round = self._is_round or not self.depth
            if not self._is_round:
                return False
        self.depth += 1 if bracket in _OPENING else -1
        self.done = self.depth <= 0 and not self._goes_on
        return self.done
