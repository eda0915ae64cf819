r"""Python calls as language models write them -> names and values: `[f(a="x", n=3), g()]`, or a call a line.

Nothing is evaluated. What is read are literals: strings with the escapes of Python, numbers, True, False and None (and JSON's
true, false, null), lists, tuples, dictionaries whose keys are strings. A call may be inside `print(...)`,
assigned to a variable (`r = f()`), or prefixed with `default_api`, the module of Gemini's prompts; comments are skipped. A
literal dictionary, `f(**{"a b": 1})`, may have parameters that Python cannot name. Everything else is refused with its place: an
expression, an attribute, a walrus, bytes, a set, two strings that touch (which is more often a quote that was not escaped).

A line end in a string of single quotes is kept, which Python would refuse: models do not escape it.

Cost: linear in the text; nesting is a list, so that no depth recurses.
"""

import re
import unicodedata
from dataclasses import replace
from typing import Any

import regex

from .machine import CLOSERS, MAX_DEPTH, Frame, LooseCall, finite
from .strings import Refused

_TOKEN = regex.compile(  # `regex` matches letters of any script, with their marks, and `re` does not
    r"""(?P<space>(?:\s|\\\r?\n)++|\#[^\n]*+)
      | (?P<prefix>[A-Za-z]{0,2})(?P<quote>'{3}|"{3}|'|")
      | (?P<number>(?:\d|\.\d)(?:[eE][+-]|[\w.])*+)
      | (?P<name>[^\W\d][\w\-]*+(?:\.[^\W\d][\w\-]*+)*+)
      | (?P<mark>\*\*|[\[\](){},:=;+\-])
      | (?P<end>\Z)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ZEROS = re.compile(r"0+[0-9]|0[0-9]{0,14}[89][0-9]{0,14}")  # as on a clock; as octal it is equal or invalid
_STRING_ENDS = {
    quote: re.compile(rf"(?:[^\\{quote[0]}]|\\.|{quote[0]}(?!{quote[1:]}))*+{quote}", re.DOTALL) for quote in ("'''", '"""')
} | {quote: re.compile(rf"(?:[^\\{quote}]|\\.)*+{quote}", re.DOTALL) for quote in "'\""}
_ESCAPE = re.compile(
    r"\\(?:(?P<line>\r?\n)|(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|N\{(?P<named>[^}]{1,64})\}|(?P<one>.))",
    re.DOTALL,
)
_CHARACTERS = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MODULE = "default_api."
_MORE = object()  # returned instead of a value: the next value belongs to an open bracket


def read_python(text: str) -> list[LooseCall]:
    """Read a text of calls; the first one has the repairs of all. `texts` has the numbers that begin with a zero."""
    reader = _PythonReader(text)
    found = reader.calls()
    return [replace(found[0], repairs=tuple(reader.repairs)), *found[1:]] if found else []


class _PythonReader:
    def __init__(self, text: str) -> None:
        self.repairs: list[str] = []
        self._text = text
        self._position = 0
        self._kind = self._word = ""
        self._start = 0
        self._advance()

    def calls(self) -> list[LooseCall]:
        found: list[LooseCall] = []
        while self._kind != "end":
            if found and (self._is(";") or self._is(",")):
                self._advance()
            elif self._is("["):
                found += self._list()
            else:
                found.append(self._statement())
        return found

    def _list(self) -> list[LooseCall]:
        self._advance()
        found = []
        while not self._is("]"):
            found.append(self._call())
            if not self._is("]"):
                self._expect(",", "a comma or the end of the list")
        self._advance()
        return found

    def _statement(self) -> LooseCall:
        name = self._name("a call")
        if not self._is("="):
            return self._arguments_of(name)
        self._advance()
        return self._call()

    def _call(self) -> LooseCall:
        return self._arguments_of(self._name("a call"))

    def _arguments_of(self, name: str) -> LooseCall:
        self._expect("(", "an opening bracket after the name")
        if name == "print" and self._kind == "name" and self._text[self._position : self._position + 1] == "(":
            inner = self._call()
            self._expect(")", "the end of print(...)")
            return inner
        named: dict[str, Any] = {}
        positional: list[Any] = []
        texts: dict[str, str] = {}
        while not self._is(")"):
            self._argument(named, positional, texts)
            if not self._is(")"):
                self._expect(",", "a comma or the end of the call")
        self._advance()
        return LooseCall(name=name.removeprefix(_MODULE), arguments=named, positional=tuple(positional), texts=texts)

    def _argument(self, named: dict[str, Any], positional: list[Any], texts: dict[str, str]) -> None:
        if self._kind == "name" and self._word not in _WORDS:
            start, name = self._start, self._name("a parameter")
            self._expect("=", "an equals sign after the parameter")
            if name in named:
                raise Refused(start, "a parameter once", "ambiguous")
            if self._kind == "number" and _ZEROS.fullmatch(self._word):
                named[name], texts[name] = int(self._word), self._word
                self.repairs.append("number-format")
                self._advance()
            else:
                named[name] = self._value()
        elif self._is("**"):
            self._spread(named)
        elif named:
            raise Refused(self._start, "a parameter with its name")
        else:
            positional.append(self._value())

    def _spread(self, named: dict[str, Any]) -> None:
        """Read `**{"a b": 1}`: parameters whose names Python cannot write."""
        start = self._start
        self._advance()
        if not self._is("{"):
            raise Refused(start, "a dictionary after the two stars")
        members = self._value()
        if members.keys() & named.keys():
            raise Refused(start, "a parameter once", "ambiguous")
        named.update(members)

    def _name(self, what: str) -> str:
        if self._kind != "name":
            raise Refused(self._start, what)
        name = self._word
        self._advance()
        return name

    def _value(self) -> Any:
        stack: list[Frame] = []
        while True:
            is_bracket = self._kind == "mark" and self._word in CLOSERS
            value = self._open(stack) if is_bracket else self._scalar()
            while stack and value is not _MORE:
                value = self._place(value, stack)
            if value is not _MORE:
                return value

    def _open(self, stack: list[Frame]) -> Any:
        """Open a bracket; return its value if it is empty, else that a value of it comes next."""
        if len(stack) == MAX_DEPTH:
            raise Refused(self._start, f"at most {MAX_DEPTH} levels")
        frame = Frame(self._word, self._start)
        self._advance()
        if self._is(frame.closer):
            self._advance()
            return frame.value
        stack.append(frame)
        self._key(frame)
        return _MORE

    def _place(self, value: Any, stack: list[Frame]) -> Any:
        """Put a value into the innermost bracket; return that one's value if it ends here."""
        frame = stack[-1]
        frame.put(value)
        closer = frame.closer
        if self._is(","):
            frame.commas += 1
            self._advance()
            if not self._is(closer):
                self._key(frame)
                return _MORE
        if not self._is(closer):
            raise Refused(self._start, f"a comma or {closer}")
        self._advance()
        if frame.opener == "(" and frame.commas:
            self.repairs.append("json-tuple")
        stack.pop()
        is_group = frame.opener == "(" and len(frame.items) == 1 and not frame.commas
        return frame.items[0] if is_group else frame.value  # (1) is 1, (1,) is a tuple

    def _key(self, frame: Frame) -> None:
        if frame.opener != "{":
            return
        start, key = self._start, self._scalar()
        if not isinstance(key, str) or not self._is(":"):
            raise Refused(start, "a key in quotes and a colon")
        if key in frame.members:
            raise Refused(start, "a key once", "ambiguous")
        frame.key = key
        self._advance()

    def _scalar(self) -> Any:
        start, kind, word = self._start, self._kind, self._word
        if kind == "string":
            self._advance()
            if self._kind == "string":
                raise Refused(self._start, "a comma between two strings", "ambiguous")
            return word
        if kind == "name" and word in _WORDS:
            self._advance()
            return _WORDS[word]
        sign = word if kind == "mark" and word in "+-" else ""
        if sign:
            self._advance()
        if self._kind != "number":
            raise Refused(start, "a literal: a string, a number, True, False, None, a list or a dictionary")
        number = self._number(self._word)
        self._advance()
        return -number if sign == "-" else number

    def _number(self, word: str) -> int | float:
        is_float = re.search(r"[.eE]", word) and word[:2].lower() != "0x"
        try:
            number = finite(word) if is_float else int(word, 0)
            str(number)  # raises beyond 4,300 digits: Python reads these in hexadecimal, but cannot write them
        except ValueError as error:
            raise Refused(self._start, "a number as Python writes it, within a double") from error
        return number

    def _is(self, mark: str) -> bool:
        return self._kind == "mark" and self._word == mark

    def _expect(self, mark: str, what: str) -> None:
        if not self._is(mark):
            raise Refused(self._start, what)
        self._advance()

    def _advance(self) -> None:
        """Read the next token; a string's word is its value."""
        while True:
            found = _TOKEN.match(self._text, self._position)
            assert found  # `other` takes any character
            self._start, self._position = found.span()
            self._kind, self._word = str(found.lastgroup), found[0]
            if self._kind == "quote":
                self._kind, self._word = "string", self._string(found["prefix"].lower(), found["quote"])
            if self._kind != "space":
                return

    def _string(self, prefix: str, quote: str) -> str:
        if prefix not in ("", "r", "u"):
            raise Refused(self._start, "a string without a prefix such as b or f")
        found = _STRING_ENDS[quote].match(self._text, self._position)
        if found is None:
            raise Refused(self._start, "the end of the string")
        self._position = found.end()
        content = found[0][: -len(quote)]
        if len(quote) == 1 and "\n" in content:
            self.repairs.append("json-control-character")
        if prefix == "r" or "\\" not in content:
            return content
        unescaped = _ESCAPE.sub(self._unescape, content)  # two escapes of UTF-16 stand for one character, as in JSON
        return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), unescaped)

    def _unescape(self, found: "re.Match[str]") -> str:
        kind, text = str(found.lastgroup), str(found[str(found.lastgroup)])
        if kind == "line":
            return ""
        if kind == "one":
            if text in "xuUN":
                raise Refused(self._start, f"an escape \\{text} as Python writes it")
            return _CHARACTERS.get(text, f"\\{text}")
        try:
            return unicodedata.lookup(text) if kind == "named" else chr(int(text, 8 if kind == "octal" else 16))
        except (KeyError, ValueError, OverflowError) as error:
            raise Refused(self._start, "an escape of a character that exists") from error
