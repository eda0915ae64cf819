r"""Finds the end of a string in tolerant JSON, and decodes the string.

The first unescaped quote ends a string, as in JSON, unless the text after it cannot follow a string. Then the quote is literal,
because a model forgot to escape it. Only values are read like this; a key ends at its first quote.

What decides is the text ahead, white space and comments aside: `strong` (the enclosing value continues or ends there), `weak` (a
comma or a bracket, but nothing that fits comes after it), `member` (a key and a colon: a comma is missing), `colon`, `quote`, or
plain text. Literal quotes come in pairs (`say "hi" now`), inside a word or after one (`it's`, `5" pipe`). Where an end would
leave a pair open, where two strings touch, or where a quote is none of these, there are two readings and the string is refused.

Escapes: a string is either escaped or raw. An invalid escape (`\d`) keeps its backslash, but next to a valid one (`\d` and
`\n`, as in `C:\data\new`) either reading would be a guess.

Cost: linear. A look ahead ends at the next quote but two, or after 64 characters of a key; nothing else is read twice.
"""

import json
import re
from dataclasses import dataclass
from typing import Literal

Context = Literal["root", "member", "element", "key"]

QUOTES = "\"'“”„‘’"
"""The characters that can open a string."""

_CLOSERS = {'"': '"', "'": "'", "“": "“”", "”": "“”", "„": "“”", "‘": "‘’", "’": "‘’"}
_STYLES = {"'": "json-single-quotes", **dict.fromkeys("“”„‘’", "json-curly-quotes")}
_STOPS = {closers: re.compile(rf"[\\{closers}]") for closers in set(_CLOSERS.values())}

_GAP = rf"(?:\s++|(?://|\#)[^\n{QUOTES}]*+\n|/\*[^*{QUOTES}]*+\*/)*+"
_QUOTED_KEY = r"""(?:"[^"\\]{0,64}+"|'[^'\\]{0,64}+'|[“”„][^“”„\\]{0,64}+[“”])"""
_KEY = rf"(?:{_QUOTED_KEY}|[^\W\d][\w$-]{{0,64}}+)"
_VALUE = rf"(?:[{QUOTES}{{\[(\-\d]|(?:true|false|null|True|False|None)\b)"
_AFTER_CLOSER = rf"{_GAP}(?:[,\]}})]|\Z)"
_NEVER = r"(?!)"

# Context -> what surely follows a string there, and what may.
_FOLLOWING = {
    "root": (rf"{_GAP}\Z", _NEVER),
    "member": (rf"{_GAP}(?:,{_GAP}{_KEY}{_GAP}:|,?+{_GAP}\}}{_AFTER_CLOSER}|\Z)", rf"{_GAP}[,}}]"),
    "element": (rf"{_GAP}(?:,{_GAP}{_VALUE}|,?+{_GAP}[\])]{_AFTER_CLOSER}|\Z)", rf"{_GAP}[,\])]"),
}
_AHEAD = {
    context: re.compile(
        rf"(?P<strong>{strong})|(?P<weak>{weak})|(?P<colon>{_GAP}:)"
        rf"|(?P<member>\s{_GAP}{_QUOTED_KEY}{_GAP}:)|(?P<quote>{_GAP}[{QUOTES}])"
    )
    for context, (strong, weak) in _FOLLOWING.items()
}

# (what is ahead of a quote, a pair of literal quotes is open) -> what the quote is. A missing row: the string is refused.
_VERDICTS = {
    ("strong", False): "end",
    ("weak", False): "end",
    ("weak", True): "literal",
    ("member", False): "end",
    ("quote", True): "literal",
    ("key", True): "literal",  # JSON inside the string: {"body": "{"k": 1}"}
    ("text", False): "literal",
    ("text", True): "literal",
}

# Escapes of other languages that JSON lacks: they may be raw text or a character, and nothing decides which.
_ESCAPE = r"""\\(?:
    (?P<valid> ["\\/bfnrt] | u[0-9a-fA-F]{4} )
  | (?P<apostrophe> ' )
  | (?P<foreign> x[0-9a-fA-F]{2} | U[0-9a-fA-F]{8} | u\{ | [\r\n“”„‘’] )
  | (?P<invalid> . )
)"""
_ESCAPES = re.compile(_ESCAPE, re.DOTALL | re.VERBOSE)
_TO_REWRITE = re.compile(_ESCAPE + r'|(?P<quote>")', re.DOTALL | re.VERBOSE)
_CONTROL = re.compile(r"[\x00-\x1f]")


class Refused(Exception):
    """Carries a failure to the entry point of its reader, never further: position, issue code, what was expected."""

    def __init__(self, position: int, expected: str, code: str = "malformed-value") -> None:
        super().__init__(position, expected, code)
        self.position = position
        self.expected = expected
        self.code = code


@dataclass(frozen=True, slots=True)
class StringToken:
    """A string as read: its value, the offset after it, the repair codes."""

    value: str
    end: int
    repairs: tuple[str, ...]


def read_string(text: str, start: int, end: int, context: Context) -> StringToken:
    """Read the string that opens at `start`; refuse it if it does not end, or can be read in two ways."""
    close, literal = _find_end(text, start, end, context)
    value, repairs = _decode(text[start + 1 : close], text[start], start)
    codes = [_STYLES[text[start]]] if text[start] in _STYLES else []
    codes += ["json-inner-quote"] if literal else []
    codes += ["json-control-character"] if _CONTROL.search(text, start, close) else []
    return StringToken(value, close + 1, (*codes, *repairs))


def _find_end(text: str, start: int, end: int, context: Context) -> tuple[int, bool]:
    """Return the offset of the closing quote, and whether quotes before it were read as literal."""
    stop = _STOPS[_CLOSERS[text[start]]]
    position, braces, pair, literal = start + 1, 0, False, False
    while found := stop.search(text, position, end):
        at = found.start()
        braces += text.count("{", position, at) - text.count("}", position, at)
        position = at + 1
        if text[at] == "\\":
            position += 1
            continue
        if context == "key":
            return at, False
        following = _AHEAD[context].match(text, position, end)
        ahead = str(following.lastgroup) if following else "text"
        if ahead == "colon" and braces > 0:
            ahead = "key"
        if ahead == "member" and literal:
            ahead = "quote"  # two repairs at one place are one too many
        verdict = _VERDICTS.get((ahead, pair))
        if verdict is None:
            raise _two_readings(at)
        if verdict == "end":
            return at, literal
        pair = _pair_after(text, start, at, pair, context)
        literal = True
    raise Refused(start, "a closing quote for the string that starts here")


def _pair_after(text: str, start: int, at: int, pair: bool, context: Context) -> bool:
    """Say whether a pair of literal quotes is open after the one at `at`."""
    before, after = text[at - 1 : at] if at - 1 > start else "", text[at + 1 : at + 2]
    if before.isalnum() and (after.isalnum() or not pair):
        return pair  # an apostrophe, or inches
    comma = before == "," and context == "element"  # "yes," in prose, the next element in an array
    closes = pair and not before.isspace() and not after.isalnum() and not comma
    if closes or (not pair and not after.isspace()):
        return not pair
    raise _two_readings(at)


def _two_readings(at: int) -> Refused:
    return Refused(at, r"\" for a quote inside a string, or what can follow the end of the string", "ambiguous")


def _decode(body: str, quote: str, start: int) -> tuple[str, tuple[str, ...]]:
    """Rewrite the body of a string as JSON and let the standard library decode it."""
    if "\\" not in body and '"' not in body:
        return body, ()
    kinds: dict[str, int] = {}
    for escape in _ESCAPES.finditer(body):
        kind = "own quote" if escape.group() == f"\\{quote}" else str(escape.lastgroup)
        kinds[kind] = kinds.get(kind, 0) + 1
    if not _one_reading(kinds, body):
        raise Refused(start, r"every backslash written as \\", "ambiguous")
    repairs = [code for kind, code in _ESCAPE_REPAIRS.items() if kind in kinds]
    return json.loads(f'"{_TO_REWRITE.sub(_rewrite, body)}"', strict=False), tuple(repairs)


_ESCAPE_REPAIRS = {"apostrophe": "json-escaped-apostrophe", "invalid": "json-invalid-escape"}


def _one_reading(kinds: dict[str, int], body: str) -> bool:
    if "foreign" in kinds or ("invalid" in kinds and kinds.keys() & {"valid", "apostrophe"}):
        return False
    # Among bare apostrophes an escaped one may be code ('it\'s'), where the backslash counts.
    return "apostrophe" not in kinds or kinds["apostrophe"] == body.count("'")


def _rewrite(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "quote" | "invalid":
            return f"\\{found.group()}"
        case "apostrophe":
            return "'"
    return found.group()
