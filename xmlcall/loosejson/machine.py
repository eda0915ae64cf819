"""The second reading of tolerant JSON: a pushdown machine over tokens, driven by one table.

Rows are (state, token) -> action; a missing row is a failure. The machine never goes back and never tries two ways: every repair
is a row, or a token that the text itself decides. The stack is a list, so that no depth of nesting recurses.

Cost: linear; each token is read once, and a closer at the end checks `MAX_DEPTH` frames at most.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..types.calls import MISSING, Repair, Span
from .strings import QUOTES, Context, Refused, read_string

MAX_DEPTH = 64
"""Levels of arrays and objects that are read; later steps recurse over values."""

_LITERALS = {"true": True, "false": False, "null": None}
_PYTHON_LITERALS = {"True": True, "False": False, "None": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_BARE_KEY = re.compile(r"(?:[^\W\d]|\$)[\w$-]*")
_FENCE = re.compile(r"```(?:json\b|\w*[ \t]*\r?\n)?")
_SKIPPED = re.compile(
    r"(?P<comment>(?://|(?:\A|(?<=\n))[ \t]*+\#)[^\n]*+(?P<end>\n|\Z)|/\*.*?\*/)|(?P<space>[ \t\r]++|\n)|(?P<odd>[^\S \t\r\n]++)",
    re.DOTALL,
)
_TOKEN = re.compile(
    rf"(?P<open>[{{\[(])|(?P<close>[}}\])])|(?P<comma>,)|(?P<colon>:)|(?P<string>[{QUOTES}])|(?P<bare>[\w$.+-]++)"
)
CLOSERS = {"{": "}", "[": "]", "(": ")"}
_CONTEXTS: dict[str, Context] = {"root": "root", "value": "member"}

_EXPECTED = {
    "root": "a JSON value",
    "first item": "a JSON value or the end of the array",
    "item": "a JSON value",
    "value": "a JSON value",
    "first key": "a key in double quotes or the end of the object",
    "key": "a key in double quotes",
    "colon": "a colon after the key",
    "next item": "a comma or the end of the array",
    "next member": "a comma or the end of the object",
    "done": "nothing after the value",
}


@dataclass(slots=True)
class Frame:
    """A bracket that is not closed yet."""

    opener: str
    start: int
    items: list[Any] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    key_start: int = 0
    commas: int = 0
    closer: str = ""

    def __post_init__(self) -> None:
        """Set the usual closer."""
        self.closer = self.closer or CLOSERS[self.opener]

    def put(self, value: Any) -> None:
        """Add a value, of the last key in an object."""
        if self.opener == "{":
            self.members[self.key] = value
        else:
            self.items.append(value)

    @property
    def value(self) -> Any:
        """The object or list as read so far."""
        return self.members if self.opener == "{" else self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseCall:
    """A call as a text states it."""

    name: str  # the tool's name, as written; "" if something before the text names it
    arguments: Mapping[str, Any]
    # Name -> the text of a value written without quotes, for a schema that requires a string.
    texts: Mapping[str, str] = field(default_factory=dict)
    positional: Sequence[Any] = ()  # the values without a name, which come first
    repairs: tuple[str, ...] = ()  # the codes of what was tolerated


class JsonMachine:
    """Read one text. Each action gets the span of its token, and moves the position on if the token is longer."""

    def __init__(self, text: str, complete: bool) -> None:
        self.repairs: list[Repair] = []
        self._text = text
        self._complete = complete
        self._position, self._end = 0, len(text)
        self._tail = 0  # only closers follow from here
        self._last_comma: Span = (0, 0)
        self._state = "root"
        self._stack: list[Frame] = []
        self._value: Any = MISSING

    def run(self) -> Any:
        """Return the value; `repairs` then has the tolerances that were needed."""
        self._unwrap()
        self._tail = len(self._text[: self._end].rstrip(" \t\r\n}])"))
        while True:
            self._skip()
            found = _TOKEN.match(self._text, self._position, self._end)
            token = str(found.lastgroup) if found else "end" if self._position == self._end else "other"
            if token == "end" and self._state == "done":
                codes = [repair.code for repair in self.repairs]
                if is_movable(self._value, codes.count("json-missing-closer"), codes.count("json-extra-closer")):
                    raise Refused(self._end, "as many closing brackets as opening ones, each in its place", "ambiguous")
                return self._value
            action = _TABLE[self._state].get(token)
            if action is None:
                raise Refused(self._position, _EXPECTED[self._state])
            start, self._position = self._position, found.end() if found else self._end
            action(self, (start, self._position))

    def _repair(self, code: str, span: Span) -> None:
        self.repairs.append(Repair(code=code, span=span))

    def _unwrap(self) -> None:
        if self._text.startswith("\ufeff"):
            self._position = 1
            self._repair("json-byte-order-mark", (0, 1))
        start = self._position + len(self._text[self._position :]) - len(self._text[self._position :].lstrip())
        end = len(self._text.rstrip())
        fence = _FENCE.match(self._text, start)
        if fence and self._text.endswith("```", fence.end(), end):
            self._repair("json-code-fence", (start, end))
            self._position, self._end = fence.end(), end - 3

    def _skip(self) -> None:
        while found := _SKIPPED.match(self._text, self._position, self._end):
            if found.lastgroup != "space":
                # A line comment that takes the rest of the text may have taken members with it.
                if found.group("end") == "" and self._state != "done":
                    raise Refused(found.start(), "a line end after the comment", "ambiguous")
                self._repair("json-white-space" if found.lastgroup == "odd" else "json-comment", found.span())
            self._position = found.end()

    def _put(self, value: Any) -> None:
        if not self._stack:
            self._value, self._state = value, "done"
            return
        frame = self._stack[-1]
        if frame.opener == "{" and frame.key in frame.members and not _same(frame.members[frame.key], value):
            raise Refused(frame.key_start, "one value for a key that is given twice", "ambiguous")
        frame.put(value)
        self._state = "next member" if frame.opener == "{" else "next item"

    def _literal(self, span: Span) -> None:
        word = self._text[slice(*span)]
        if number := _NUMBER.fullmatch(word):
            try:
                self._put(finite(word) if number["fraction"] else int(word))
            except ValueError as error:  # Python's limit of digits, or infinity
                raise Refused(span[0], "a number that a double or an integer of 4300 digits can hold") from error
        elif word in _LITERALS:
            self._put(_LITERALS[word])
        elif word in _PYTHON_LITERALS:
            self._repair("json-python-literal", span)
            self._put(_PYTHON_LITERALS[word])
        else:
            raise Refused(span[0], _EXPECTED[self._state])

    def _string(self, span: Span) -> None:
        self._put(self._read_string(span, _CONTEXTS.get(self._state, "element")))

    def _read_string(self, span: Span, context: Context) -> str:
        token = read_string(self._text, span[0], self._end, context)
        for code in token.repairs:
            self._repair(code, (span[0], token.end))
        self._position = token.end
        return token.value

    def _open(self, span: Span) -> None:
        if len(self._stack) == MAX_DEPTH:
            raise Refused(span[0], f"at most {MAX_DEPTH} levels")
        opener = self._text[span[0]]
        if opener == "(":
            self._repair("json-tuple", span)
        self._stack.append(Frame(opener, span[0]))
        self._state = "first key" if opener == "{" else "first item"

    def _key(self, span: Span) -> None:
        self._named(self._read_string(span, "key"), span)

    def _bare_key(self, span: Span) -> None:
        word = self._text[slice(*span)]
        if not _BARE_KEY.fullmatch(word) or word in _LITERALS or word in _PYTHON_LITERALS:
            raise Refused(span[0], _EXPECTED[self._state])
        self._repair("json-unquoted-key", span)
        self._named(word, span)

    def _named(self, key: str, span: Span) -> None:
        self._stack[-1].key, self._stack[-1].key_start = key, span[0]
        self._state = "colon"

    def _colon(self, span: Span) -> None:
        self._state = "value"

    def _comma(self, span: Span) -> None:
        self._state = "key" if self._stack[-1].opener == "{" else "item"
        self._last_comma = span

    def _missing_comma(self, span: Span) -> None:
        """Read a member after a member, or an object after an object: white space or a bracket stands for the comma."""
        before = self._text[span[0] - 1]
        if self._stack[-1].opener == "{":
            action, fits = self._key, before in " \t\r\n}])"
        else:  # [1 2] and ["a" "b"] may be one value, [[1] [0]] an index
            action, fits = self._open, self._text[span[0]] == "{" and isinstance(self._stack[-1].items[-1], dict)
        if not fits:
            raise Refused(span[0], _EXPECTED[self._state])
        self._repair("json-missing-comma", (span[0], span[0]))
        action(span)

    def _close(self, span: Span) -> None:
        closer = self._text[span[0]]
        if closer != self._stack[-1].closer:
            self._close_wrongly(closer, span)
        else:
            self._pop()

    def _pop(self) -> None:
        frame = self._stack.pop()
        if frame.opener == "(" and len(frame.items) == 1 and self._state != "item":
            raise Refused(frame.start, "[ and ] around an array", "ambiguous")  # Python: (1) is 1, (1,) is a tuple
        self._put(frame.value)

    def _close_after_comma(self, span: Span) -> None:
        if self._text[span[0]] != self._stack[-1].closer:
            raise Refused(span[0], _EXPECTED[self._state])
        self._repair("json-trailing-comma", self._last_comma)
        self._close(span)

    def _close_wrongly(self, closer: str, span: Span) -> None:
        """Read a closer that does not fit. If only closers follow, every way to correct them gives the same value."""
        if not self._complete or span[0] < self._tail or not self._state.startswith("next"):
            raise Refused(span[0], _EXPECTED[self._state])
        if all(closer != frame.closer for frame in self._stack):
            self._extra_closer(span)
            return
        while closer != self._stack[-1].closer:
            self._add_closer(span)
        self._pop()

    def _extra_closer(self, span: Span) -> None:
        if self._text[span[0]] != "}" or not (self._stack or isinstance(self._value, dict | list)):
            raise Refused(span[0], _EXPECTED[self._state])  # an opener may be missing; a `{` cannot, it would need its key
        self._repair("json-extra-closer", span)

    def _finish(self, span: Span) -> None:
        if not self._complete:
            raise Refused(span[0], _EXPECTED[self._state])
        while self._stack:
            self._add_closer(span)

    def _add_closer(self, span: Span) -> None:
        self._repair("json-missing-closer", (span[0], span[0]))
        self._pop()


def finite(digits: str) -> float:
    """Read a number with a fraction or an exponent."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond a double")
    return number


def is_movable(value: Any, missing: int, surplus: int) -> bool:
    """Say whether the closer that is missing or surplus could also be missing or surplus elsewhere, with another value.

    A missing one may belong after an earlier entry, where the rest fits into an outer container of the same kind, as in
    `{"a": {"b": 1, "c": 2}`; a surplus one may close too early, as in `{"a": {"b": 1}, "c": 2}}`. Only what closes last matters.
    """
    kinds: list[type] = []
    while (missing or surplus) and isinstance(value, dict | list) and value:
        entries = list(value.values() if isinstance(value, dict) else value)
        outer = kinds[-missing:] if missing and len(entries) > 1 else []
        earlier = {type(entry) for entry in entries[:-1]} & {dict, list} if surplus else set()
        if type(value) in {*outer, *earlier} or (surplus > 1 and earlier):
            return True
        kinds.append(type(value))
        value = entries[-1]
    return False


def _same(first: Any, second: Any) -> bool:
    """Compare as JSON: 1 is neither true nor 1.0."""
    return type(first) is type(second) and json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


_Action = Callable[[JsonMachine, Span], None]
_M = JsonMachine
_VALUES: dict[str, _Action] = {"open": _M._open, "string": _M._string, "bare": _M._literal}
_KEYS: dict[str, _Action] = {"string": _M._key, "bare": _M._bare_key}
_NEXT: dict[str, _Action] = {"comma": _M._comma, "close": _M._close, "end": _M._finish}

_TABLE: dict[str, dict[str, _Action]] = {
    "root": _VALUES,
    "first item": {**_VALUES, "close": _M._close},
    "item": {**_VALUES, "close": _M._close_after_comma},
    "value": _VALUES,
    "first key": {**_KEYS, "close": _M._close},
    "key": {**_KEYS, "close": _M._close_after_comma},
    "colon": {"colon": _M._colon},
    "next item": {**_NEXT, "open": _M._missing_comma},
    "next member": {**_NEXT, "string": _M._missing_comma},
    "done": {"close": _M._extra_closer},
}
