"""Makes texts and values by models, tools and servers safe for a terminal, and readable for people.

A text cannot move the cursor, recolour the screen or hide what follows. There are three ways, and none raises. `plain` is for
text of several lines, `PlainStream` for the same text in pieces. `visible` is for what a person has to judge (arguments, names,
commands): nothing is dropped, and everything unprintable is written as an escape. `json_text` writes values as JSON: a dataclass
is an object with its fields, and with the name of its class under `type`.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..errors import XmlcallError
from ..text_forms import INVISIBLE
from ..types.calls import MISSING, InvalidCall, Tool, ToolCall

# ECMA-48: control sequences, control strings that are closed, and the other escapes. A string ends at any control character, so
# that the search is linear; one that is not closed loses its ESC only.
_SEQUENCE = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*"
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*"
_OTHER = r"\x1b(?:[0-OQ-WYZ\\`-~]|[ -/]+[0-~])"
_ESCAPE = re.compile(rf"{_SEQUENCE}[@-~]|{_STRING}(?:\x07|\x1b\\|\x9c)|{_OTHER}")
_UNFINISHED = re.compile(rf"(?:\r|\x1b[ -/]*|{_SEQUENCE}|{_STRING}\x1b?)\Z")
# Control characters but tab and line feed, and the marks that reorder the text around them (Unicode UAX 9).
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HELD = 256  # characters of an unfinished escape that a stream waits for
# What JSON leaves as it is and a terminal would act on, or UTF-8 cannot hold; it can occur in strings only.
_UNSAFE = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Drop terminal escapes and control characters; line feeds and tabs stay."""
    return _CONTROL.sub("", _ESCAPE.sub("", text.replace("\r\n", "\n")))


class PlainStream:
    """`plain` for text that comes in pieces, whatever the cuts."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Take the next piece; give what is safe to show by now."""
        text = self._held + text
        match = _UNFINISHED.search(text)
        start = match.start() if match and len(match[0]) <= _HELD else len(text)
        self._held = text[start:]
        return plain(text[:start])

    def close(self) -> str:
        held, self._held = self._held, ""
        return plain(held)


def visible(text: str) -> str:
    """Write a text on one line, with JSON escapes for all that has no glyph of its own; nothing is dropped."""
    if text.isprintable() and not INVISIBLE.search(text):
        return text
    return "".join(char if char.isprintable() and not INVISIBLE.match(char) else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def title_of(tool: Tool) -> str:
    """Return a tool's title on one short line; older servers put it into the annotations (MCP 2025-11-25, Tool)."""
    title = tool.title or (tool.annotations or {}).get("title")
    return shortened(visible(title.strip()), lines=1, width=60) if isinstance(title, str) and title.strip() else ""


def shortened(text: str, *, lines: int, width: int) -> str:
    """Make a text fit into a few lines of the terminal; what is left out is counted."""
    rows = plain(text).strip().splitlines() or [""]
    kept = [_cut(row, width) for row in rows[:lines]]
    more = len(rows) - lines
    return "\n".join(kept + [f"... ({more} more line{'s' if more > 1 else ''})"] * (more > 0))


def fenced(text: str, language: str = "") -> str:
    """Put a text into a fence of Markdown that ends where the text ends, whatever is in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def to_json(value: Any) -> Any:
    """Turn a reply, an event or a part of one into a JSON value, without MISSING fields; inf and nan become their names."""
    if is_dataclass(value):
        named = [(part.name, getattr(value, part.name)) for part in fields(value) if part.repr]
        return {"type": type(value).__name__} | {name: to_json(part) for name, part in named if part is not MISSING}
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Write a value as JSON for people and programs: every script readable, nothing in it that a terminal would act on."""
    try:
        text = json.dumps(to_json(value), ensure_ascii=False, indent=indent)
    except RecursionError as error:
        raise XmlcallError("a value of the model or a server is nested too deeply to be written as JSON") from error
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def arguments_text(call: ToolCall | InvalidCall, *, width: int | None = None) -> str:
    """Write arguments as in a call, on one line; longer values are cut to a width."""
    if isinstance(call, InvalidCall):
        values = {each.name: visible(each.text) for each in call.raw.arguments}
    else:
        values = {name: visible(json_text(value, indent=None)) for name, value in call.arguments.items()}
    return ", ".join(f"{visible(name)}={_cut(value, width)}" for name, value in values.items())


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[:width]}... ({len(text)} characters)"
