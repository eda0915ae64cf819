"""Descriptions by servers as plain text of limited length: no model reads what the user cannot see.

Text can be hidden in characters without a glyph: tags (U+E0000), variation selectors, zero-width characters, marks that reorder
the text around them. They are removed, and so are control characters and terminal escapes. Emoji, Persian, Hindi and Arabic
need some of these characters. They are kept in such text, one at a time, so that no run of them remains:

| character | is kept |
|---|---|
| tab, line feed | always |
| zero-width joiner | between emoji, and after a letter of a script that joins (Arabic to Sinhala) |
| zero-width non-joiner | between letters of these scripts |
| variation selector 15, 16 | after a symbol, digit, `#` or `*` |
| variation selector 17 to 256 | after a Chinese character |
| marks of direction (U+200E, U+200F, U+061C) | in a text with letters that run from right to left |
| tags | in the flags of England, Scotland and Wales |

Sources: UAX 9 (direction), UTS 51 (emoji sequences), UTS 37 (ideographic variations). Cost: linear.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...text_forms import INVISIBLE

INSTRUCTIONS: Final = 16_000  # the most characters of a server's instructions, and of a tool's description
_LIMITS: Final[Mapping[str, int]] = {"title": 200, "description": INSTRUCTIONS}
_OF_PARAMETER: Final[Mapping[str, int]] = {"title": 200, "description": 4000, "$comment": 4000}
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "example"})
_DEPTH: Final = 64  # as deep as a schema may be

_JOINS: Final = "\u0600-\u08ff\u0900-\u0dff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufefc"
_SYMBOL: Final = r"#*0-9\u00a9\u00ae\u203c\u2049\u2122-\u3299\U0001f000-\U0001faff"
_HAN: Final = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PICTURE: Final = "\u2190-\u2bff\U0001f000-\U0001faff"
_FLAG: Final = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f" for name in ("gbeng", "gbsct", "gbwls")
)
_KEPT: Final = re.compile(
    rf"{_FLAG}"
    rf"|(?<=[{_JOINS}])\u200c(?=[{_JOINS}])"
    rf"|(?<=[{_JOINS}])\u200d(?![\u200b-\u200f])"
    rf"|(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))\u200d(?=[{_PICTURE}])"
    rf"|(?<=[{_SYMBOL}])[\ufe0e\ufe0f]"
    rf"|(?<=[{_HAN}])[\U000e0100-\U000e01ef]"
)
_DIRECTION: Final = frozenset("\u200e\u200f\u061c")
# Marks of Arabic, Syriac and Kaithi numbers and verses: of the category of invisible ones, and visible.
_VISIBLE: Final = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_BRAILLE_SPACE: Final = "\u2800"  # between letters of Braille
_ESCAPE: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\)?")


def plain_text(text: str, most: int) -> tuple[str, str]:
    """Remove what is hidden from a text and cut it; return it, marked if anything was taken away, and what was, as a clause."""
    even = text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    seen, count = _without_hidden(_ESCAPE.sub("\x1b", even))
    parts = [f"{count} hidden {'character was' if count == 1 else 'characters were'} removed"] if count else []
    if len(seen) > most:
        parts.append(f"{len(seen) - most:,} more characters were left out")
        seen = seen[:most]
    mark = ", and ".join(parts)
    return (f"{seen} [{mark}]" if mark else seen), mark


def hides(text: str) -> bool:
    """Return whether a value has invisible characters, except control characters, which a value may need."""
    hidden = (char for piece, may_stay in _pieces(text) if not may_stay for char in piece if _is_odd(char))
    return any(unicodedata.category(char) != "Cc" for char in hidden)


def _without_hidden(text: str) -> tuple[str, int]:
    if not any(map(_is_odd, text)):
        return text, 0
    hidden = 0
    kept: list[str] = []
    for piece, may_stay in _pieces(text):
        found = piece if may_stay else "".join(char for char in piece if not _is_odd(char))
        hidden += len(piece) - len(found)
        kept.append(found)
    return "".join(kept), hidden


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Cut a text into pieces, each with whether its odd characters may stay."""
    is_leftwards = any(unicodedata.bidirectional(char) in ("R", "AL") for char in text if char not in _DIRECTION)
    for sequence, stays in _sequences(text):
        if stays or not is_leftwards:
            yield sequence, stays
        else:
            yield from ((piece, piece in _DIRECTION) for piece in re.split("([\u200e\u200f\u061c])", sequence) if piece)


def _sequences(text: str) -> Iterator[tuple[str, bool]]:
    start = 0
    for match in _KEPT.finditer(text):
        yield text[start : match.start()], False
        yield match[0], True
        start = match.end()
    yield text[start:], False


def _is_odd(char: str) -> bool:
    """Return whether a character has no glyph of its own and is not ordinary white space."""
    if char in "\t\n" or " " <= char <= "~" or char in _VISIBLE:
        return False
    is_hidden = INVISIBLE.match(char) is not None and char != _BRAILLE_SPACE
    return is_hidden or unicodedata.category(char) in ("Cc", "Cf", "Cs") or ord(char) & 0xFFFE == 0xFFFE


def plain_tool(tool: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Make the titles and descriptions of a tool and its parameters plain; return also a sentence about what was removed."""
    changes: list[str] = []
    found = tool | {
        key: _plain_noted(tool[key], most, key, changes) for key, most in _LIMITS.items() if isinstance(tool.get(key), str)
    }
    annotations = tool.get("annotations")
    if isinstance(annotations, dict) and isinstance(annotations.get("title"), str):
        found["annotations"] = annotations | {"title": _plain_noted(annotations["title"], _LIMITS["title"], "title", changes)}
    if "inputSchema" in tool:
        found["inputSchema"] = _plain_schema(tool["inputSchema"], changes, _DEPTH)
    name = f"{tool.get('name')!r:.80}"
    return found, [f"What the tool {name} says of itself was changed: {'; '.join(dict.fromkeys(changes))}."] if changes else []


def _plain_noted(text: str, most: int, key: str, changes: list[str]) -> str:
    plain, what = plain_text(text, most)
    if what:
        changes.append(f"{key}: {what}")
    return plain


def _plain_schema(node: Any, changes: list[str], depth: int) -> Any:
    """Make the words of a schema plain; names and values stay as they are, because a call has to repeat them."""
    if depth == 0:
        return node
    if isinstance(node, list):
        return [_plain_schema(each, changes, depth - 1) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value
        if key in _VALUES
        else _plain_noted(value, _OF_PARAMETER[key], key, changes)
        if key in _OF_PARAMETER and isinstance(value, str)
        else _plain_schema(value, changes, depth - 1)
        for key, value in node.items()
    }


def hidden_value(schema: Any) -> str:
    """Return a name or value of a schema that hides characters, escaped; "" if there is none."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            if hides(node):
                return f"{node!a:.80}"
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            stack += node
            stack += node.values()
    return ""
