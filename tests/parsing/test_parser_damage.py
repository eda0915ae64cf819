"""The damage that small models and servers do to calls, in every wire format: what runs is what was meant, or nothing runs."""

from collections.abc import Iterator
from typing import Any

import pytest
import regex
from profiles import is_deep

from xmlcall import Catalog, ToolCall, parse
from xmlcall.dialects import DIALECTS, Body, Dialect
from xmlcall.dialects.dialect import with_tools
from xmlcall.dialects.write import write

PROPERTIES = {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}, "force": {"type": "boolean"}}
CATALOG = Catalog(
    [
        {"name": "edit", "inputSchema": {"type": "object", "properties": PROPERTIES, "additionalProperties": False}},
        {"name": "ping", "inputSchema": {"type": "object", "properties": {}}},
    ]
)
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("edit", {"path": "src/a.py (new), say \u201chi\u201d", "lines": [3, 14], "force": True}),
    ("edit", {"path": "b"}),
    ("ping", {}),
]
ENDS = ("block_close", "call_close", "parameter_close", "quote", "list_close")


def tags_in(text: str, row: Dialect, kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the places of the tags of some kinds."""
    tags = with_tools(row, CATALOG.names()).tags
    found = (match.span() for kind in kinds if kind in tags for match in regex.finditer(tags[kind], text))
    return sorted({place for place in found if place[0] < place[1]})


def damaged(text: str, row: Dialect) -> Iterator[tuple[str, str]]:
    """Yield texts with the reason for which their reply ended."""
    for start, end in tags_in(text, row, ENDS):
        yield text[:start] + text[end:], "stop"
    for start, end in tags_in(text, row, ("block_open", "call_open", "parameter_open", *ENDS)):
        yield text[:end] + text[start:], "stop"
    signs = [at for at, character in enumerate(text if row.body is not Body.TAGS else "") if character in "{}[]()\"'"]
    for at in signs if is_deep() else signs[::2]:
        yield text[:at] + text[at + 1 :], "stop"
        yield text[: at + 1] + text[at:], "stop"
    for fence in ("```", "```json", "```xml", "```python"):
        yield f"{fence}\n{text}\n```", "stop"
    yield from ((text[:at], "length") for at in range(0, len(text), 1 if is_deep() else 11))


# What a lost or doubled character makes of a value that has no other reading: nobody can tell that it was not meant.
def is_unnoticeable(arguments: dict[str, Any], meant: dict[str, Any]) -> bool:
    """Say whether only the text of a string is another."""
    return arguments.keys() == meant.keys() and all(
        arguments[name] == meant[name] or (name == "path" and isinstance(arguments[name], str)) for name in meant
    )


@pytest.mark.sweep
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_wrong_call_is_read_in_a_damaged_reply(dialect: str) -> None:
    row = DIALECTS[dialect]
    text = write(CALLS, CATALOG, row)
    meant: list[dict[str, Any]] = [{"name": name, **arguments} for name, arguments in CALLS]
    assert [{"name": call.name, **call.arguments} for call in parse(text, CATALOG).calls if isinstance(call, ToolCall)] == meant
    wrong = []
    for reply, reason in damaged(text, row):
        for call in parse(reply, CATALOG, finish_reason=reason).calls:
            if not isinstance(call, ToolCall):
                continue
            found = {"name": call.name, **call.arguments}
            if not any(found == each or is_unnoticeable(found, each) for each in meant):
                wrong.append((found, reply))
    assert wrong == []
