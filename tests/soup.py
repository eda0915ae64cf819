"""Pieces of markup of every dialect, tools to match, and what must hold for any text made of them (docs/design.md, section 4)."""

import itertools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmlcall import Catalog, Parser, Repaired, Reply, ToolCall, coalesce, parse
from xmlcall.dialects import Body, Dialect
from xmlcall.types.events import Event, ToolCallEnd, ToolCallStart

_READ: dict[str, Any] = tomllib.loads((Path(__file__).parent / "corpus" / "soup.toml").read_text(encoding="utf-8"))
PIECES: list[str] = [*_READ["text"], " " * 70, " " * 300, "\ud800"]
PROPERTIES = {
    "a": {"type": "string"},
    "b": {"type": "integer"},
    "c": {"type": ["string", "null", "array"]},
    "d": {"type": "array", "items": {"type": "string"}},
    "e": {},
}
TOOLS = Catalog([{"name": "f", "inputSchema": {"type": "object", "properties": PROPERTIES}}])
JSON: list[str] = _READ["json"]
BODIES = {Body.JSON: JSON, Body.KEYED: [*JSON, '{"f": {"a": "x"}}'], Body.OBJECT: JSON, Body.GEMMA: _READ["gemma"]}
BODIES |= dict.fromkeys((Body.PYTHON, Body.LINES), _READ["python"])
COMMON = [piece for piece in PIECES if not piece.startswith(("<i", "<p", "</i", "</p", "<f", "</f"))]


def pieces_of(dialect: Dialect) -> list[str]:
    """The tags of one dialect for tools f and g and parameters a, b, c and one undeclared, and pieces of any text."""
    written = dialect.written
    parameters = ["a", "b", "zzz"]
    names = {"call_open": "fg", "call_close": "fg", "parameter_open": parameters, "parameter_close": parameters}
    tags = [tag.replace("{name}", name) for kind, tag in written.items() for name in names.get(kind, "-")]
    if dialect.name_after:
        tags += ["<tool_call>f\n", "<tool_call>", "f", " g "]
    written_marks = [mark.written for mark in (dialect.json_mark, dialect.string_mark) if mark]
    marked = [tag.replace("{name}", "c") for tag in written_marks]
    return [*tags, *marked, *COMMON, *BODIES.get(dialect.body, []), *_READ["marks"].get(dialect.name, [])]


def read(chunks: list[str], tools: Any, reason: str, reasoning_open: bool = False) -> list[Event]:
    """Return the coalesced events of a text in pieces."""
    parser = Parser(tools, reasoning_open=reasoning_open)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return coalesce([*events, *parser.close(reason)])


def cut(text: str, places: Sequence[int]) -> list[str]:
    """Return the text cut at these places."""
    return [text[start:end] for start, end in itertools.pairwise([0, *sorted(places), len(text)])]


def check_tiles(events: Sequence[Event], text: str) -> None:
    """Assert that the spans of events follow each other through a text and point at what they say."""
    position = 0
    for event in events:
        if not isinstance(event, Repaired):
            assert event.span[0] == position
            position = event.span[1]
        if hasattr(event, "text"):
            assert text[slice(*event.span)] == event.text
    assert position == len(text)


def check_places(reply: Reply, text: str) -> None:
    """Assert that each call stands in the text where it says."""
    for call in reply.calls:
        is_unread = any(issue.code == "unread-call" for issue in call.raw.issues)  # its text stays text; it stands after
        assert call.raw.text in text if is_unread else text[slice(*call.raw.span)] == call.raw.text


def check_invariants(text: str, places: Sequence[int], tools: Any, reason: str, reasoning_open: bool = False) -> None:
    """Assert what must hold for any text, however it is cut."""
    whole = read([text], tools, reason, reasoning_open)
    assert read(cut(text, places), tools, reason, reasoning_open) == whole
    assert read(list(text), tools, reason, reasoning_open) == whole
    check_tiles(whole, text)
    starts = [(event.index, event.name) for event in whole if isinstance(event, ToolCallStart)]
    raws = [event.raw for event in whole if isinstance(event, ToolCallEnd)]
    assert starts == [(raw.index, raw.name) for raw in raws]
    assert [raw.index for raw in raws] == list(range(len(raws)))
    reply = parse(text, tools, finish_reason=reason, reasoning_open=reasoning_open)
    check_places(reply, text)
    for call in reply.calls:
        assert not isinstance(call, ToolCall) or (call.raw.complete and not call.raw.issues)
