r"""Signs in a value that a tag around it is damaged, so that the value holds more than the model meant.

A tag that lost a character is text, and text belongs to the value. The value is closed properly after all, or the next opener
ends it, so only what it holds tells:

| place | sign | example |
|---|---|---|
| start | the rest of the value's own opener | `<parameter=query="x">`, which ends at its second `=` |
| after a closer | a piece of an opener, or a tag with a name that is not given | `</parameter>\n<paramter=lang>\nde` |
| end, where no closer came | a closer of something that the value did not open | `a.md</parameter\n<parameter=body>` |

The example of a whole call in a value has no such sign. Cost: linear in the value; everything else is bounded.
"""

import functools

import regex

from ..dialects import Dialect
from ..dialects.dialect import alternation, element

_OPENER_AS_VALUE = regex.compile(r"[^<>\n]*+(?<=[^<>\s])>[^\S\n]*+(?=\n|\Z)")
_LAST_CLOSER = regex.compile(r"</\s?([^<>\s/]{1,60})[^<>\n]{0,8}>?\s*\Z")
_REACH = 200  # characters after a closer, or at the end


def damaged_tag(text: str, opener: str, dialect: Dialect, missing: frozenset[str], name: str, *, has_closer: bool) -> str:
    """Return the piece of a value that seems to be a damaged tag; `missing`: names not given so far, `name`: an element's."""
    closer, head, tail = _patterns(dialect, name)
    starts = (_OPENER_AS_VALUE if opener.endswith("=") else tail).match(text)
    if starts or (not has_closer and (ends := _last_closer(text, dialect, name))):
        return starts[0] if starts else ends
    for closed in closer.finditer(text):
        after = text[closed.end() : closed.end() + _REACH]
        if found := head.match(after) or _named(missing).match(after):
            return closed[0] + found[0]
    return ""


def _last_closer(text: str, dialect: Dialect, name: str) -> str:
    """Return the closer at a text's end that the text did not open, or the value's own without its bracket."""
    lost = dialect.written.get("parameter_close", "").replace("{name}", name)[1:]
    found = _LAST_CLOSER.search(text, max(0, len(text) - _REACH))
    if found and f"<{found[1]}".lower() not in text.lower():
        return found[0]
    return lost if text.rstrip().endswith(lost) else ""


@functools.lru_cache(maxsize=256)
def _patterns(dialect: Dialect, name: str) -> tuple["regex.Pattern[str]", "regex.Pattern[str]", "regex.Pattern[str]"]:
    """Return patterns for a closer of the value, the beginning of an opener that is none, and an opener's end before a value."""
    closer = element(regex.escape(name), closing=True) if name else dialect.tags.get("parameter_close", "(?!)")
    opener = dialect.tags.get("parameter_open", "(?!)")
    head, _, tail = dialect.written.get("parameter_open", "").partition("{name}")
    head = regex.escape(regex.split(r"[=\s]", head, maxsplit=1)[0])
    *_, end = ["", *regex.findall(r"<[^<>/]+>", tail)]
    either = "|".join(filter(None, (head if len(head) > 1 else "", regex.escape(end))))
    starts = rf"\s*+(?!{opener})(?:{either or '(?!)'})"
    return regex.compile(closer), regex.compile(starts), regex.compile(rf"[^\w<]{{0,8}}{regex.escape(end)}" if end else "(?!)")


@functools.lru_cache(maxsize=256)
def _named(names: frozenset[str]) -> "regex.Pattern[str]":
    """Return a pattern for the rest of a line up to a parameter's name, if the line looks like a tag that has it."""
    words = r"(?:[^\w\n]{0,4}\b\w{1,24}\b){0,3}?[^\w\n]{0,4}"
    return regex.compile(rf"\s*+{words}\b(?:{alternation(names) or '(?!)'})\b[\"']?\s{{0,2}}(?:/?>|<|(?:type|string)=)")
