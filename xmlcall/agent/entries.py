"""What stands in a result as an entry of its own: it was listed there, and not only spoken of.

A server lists in JSON or in values of Python, where each string without white space is an entry, unless its key says that it is a
text. Or it lists in lines that all have one form: names with or without bullets, keys with values, rows of a table; a first line
may say what follows. A single line of another form makes all of it a text, in which nothing is an entry. Else a name on a line of
its own would be one, in an issue that anybody may write.

Not seen: whoever writes a whole result can write a list.

Cost: linear.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Final

from .destinations import even, is_text

__all__ = ["entries_of"]

_HEADLINE: Final = re.compile(r"\A\s{0,20}[^\n]{1,200}:[ \t]{0,20}\r?\n")
_PIECE: Final = re.compile(
    r"\s*(?:\"(?P<double>[^\"\\]*(?:\\.[^\"\\]*)*)\"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'|[\[\]{}(),]|(?P<colon>:)"
    r"|[-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?|(?:true|false|null|none)\b|[a-z_.]{1,40}(?=\())",
    re.IGNORECASE | re.DOTALL,
)
_BULLET: Final = re.compile(r"^(?:[-*•+]|[0-9]{1,4}[.)]|\[[\w ]{1,10}\])\s+|^(?:commit|branch|id|path|file|name)\s+(?=\S+$)")
_FIRST_CELL: Final = re.compile(r"[|,;\t]|\s{2}|:\s|\s[-–—]\s")
_KEYED: Final = re.compile(r"(?:[^\W_]{1,30}[ _]){0,2}(?P<key>[^\W_]{1,30}):\s+(?P<value>\S.*)")
_OF_KEYS: Final = (
    "account assignee author branch channel commit email file group guest host id key login mail member name number owner path "
    "phone project recipient repo repository role room slug team url user username"
)
_KEYS: Final = frozenset(_OF_KEYS.split())
_MARKS: Final = "\"'`()<>[]{}*_ "


def entries_of(result: str) -> frozenset[str]:
    """Return the entries of a result, even and in small letters.

    Args:
        result: its text as it came; what is made even before may have quotes that it did not have.
    """
    body = _HEADLINE.sub("", result, count=1)
    strings = [*_strings(body)]
    if not strings:
        found = _listed(body)
    elif len(strings) == 1:  # a result that is a text, as servers put it into an object
        found = [] if is_text(strings[0][0]) else _listed(strings[0][1].replace("\\n", "\n"))
    else:
        found = [text for key, text in strings if not is_text(key) and _is_name(text)]
    return frozenset(even(entry).lower().strip(_MARKS) for entry in found)


def _strings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the strings of JSON, or of values of Python, each with the key before it; of what was cut, those before the cut."""
    key, last, place = "", None, 0
    if text.lstrip()[:1] not in ("[", "{", "("):
        return
    while piece := _PIECE.match(text, place):
        place = piece.end()
        if piece["colon"] and last is not None:
            key, last = last, None
        elif not piece["colon"]:
            if last is not None:
                yield key, last
            last = piece["double"] if piece["double"] is not None else piece["single"]
    if last is not None:
        yield key, last


def _is_name(text: str) -> bool:
    return bool(text) and not re.search(r"\s", text)


def _listed(text: str) -> Iterable[str]:
    """Return the entries of lines, if all of them have one form."""
    lines = [line for each in text.splitlines() if (line := each.strip())]
    bare = [_BULLET.sub("", line) for line in lines]
    if all(map(_is_name, bare)):
        return bare
    keyed = [match for line in bare if (match := _KEYED.fullmatch(line))]
    if len(keyed) == len(bare):
        return [match["value"] for match in keyed if match["key"].lower() in _KEYS and _is_name(match["value"])]
    if all(line != whole for line, whole in zip(bare, lines, strict=True)):
        return [_FIRST_CELL.split(line, maxsplit=1)[0] for line in bare]
    tables = (_cells([*filter(None, rows)], mark) for mark in "|\t;," if (rows := _rows(text, mark)))
    columns = [re.split(r"\s{2,}", line) for line in lines]
    return next(filter(None, tables), None) or _cells(columns, "  ")


def _rows(text: str, mark: str) -> list[list[str]]:
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(keepends=True), delimiter=mark)]
    except csv.Error:  # a cell that is too long for the reader
        return []


def _cells(rows: list[list[str]], mark: str) -> list[str]:
    """Return the cells of a table that may be names, if it is one: prose has commas, too, but not behind one word each time."""
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return []
    if len(rows) == 1:
        return rows[0] if all(map(_is_name, rows[0])) else []
    if mark in ",;" and not all(_is_name(row[0]) for row in rows):
        return []
    return [cell for row in rows for head, cell in zip(rows[0], row, strict=True) if not is_text(head) and _is_name(cell)]
