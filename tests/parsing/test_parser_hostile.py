"""Inputs made to break a parser: huge, deep, and of every kind of character."""

import sys
import tracemalloc
import unicodedata
from collections.abc import Callable
from functools import partial

import pytest
from counted import count_calls
from profiles import covering
from soup import TOOLS, pieces_of, read

from xmlcall import InvalidCall, Parser, ToolCall, parse
from xmlcall.dialects import DIALECTS
from xmlcall.schema.references import MAX_DEPTH

MEGABYTE = 1_000_000
DEPTH = 20_000  # twenty times what Python's stack takes
CALL = '<function_calls><invoke name="f"><parameter name="a">{}</parameter></invoke></function_calls>'


def peak_of(run: Callable[[], object]) -> int:
    """Return the most memory, in bytes, that a run had at once."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Megabytes of prose, and the most of memory. Ten of what is read fast; of what is a token every few characters so much that it
# would not fit if each token left an object behind.
PROSE = [
    *[("A line of prose, 3 < 4.\n", 10, 6), ("<", 10, 6), ("\x00", 10, 6), ("\ud800", 10, 6)],
    *[("&lt;", 0.1, 1.5), ("<think>", 0.1, 0.7), pytest.param("```\nx\n```\n", 0.1, 1.3, marks=pytest.mark.full)],
]


@pytest.mark.parametrize(("piece", "megabytes", "most"), PROSE)
def test_prose_is_not_kept(piece: str, megabytes: float, most: float) -> None:
    chunk = piece * (MEGABYTE // 100 // len(piece))

    def run() -> None:
        parser = Parser(TOOLS)
        for _ in range(int(100 * megabytes)):
            parser.feed(chunk)
        parser.close()

    Parser(TOOLS).feed(chunk)  # what is loaded on first use
    assert peak_of(run) < most * MEGABYTE


@pytest.mark.parametrize("value", ["x" * 10 * MEGABYTE, "a < b && c\n" * MEGABYTE, "\n" * 10 * MEGABYTE, "]]" * 5 * MEGABYTE])
def test_an_argument_of_ten_megabytes_is_kept_a_few_times(value: str) -> None:
    reply = parse(CALL.format(value), TOOLS)
    assert len(reply.calls[0].raw.arguments[0].text) >= len(value) - 2
    assert peak_of(lambda: parse(CALL.format(value), TOOLS)) < 12 * len(value)


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * DEPTH,
        CALL.format("<b>" * DEPTH),
        CALL.format('<parameter name="a">' * DEPTH),
        CALL.format('<parameter name="a">' * DEPTH + "</parameter>" * DEPTH),
        "<f>" + "<a>" * DEPTH + "</a>" * DEPTH + "</f>",
        CALL.replace('name="a"', 'name="d"').format("[" * DEPTH + "]" * DEPTH),
        CALL.replace('name="a"', 'name="d"').format("<i>" * DEPTH + "</i>" * DEPTH),
        '{"name": "f", "arguments": ' + '{"a": ' * DEPTH + "}" * (DEPTH + 1),
        '{"name": "f", "arguments": ' + "[" * DEPTH,
        "<tool_call>" + "[" * DEPTH + "</tool_call>",
        "<think>" * DEPTH,
    ],
    ids=lambda text: text[:60],
)
def test_depth_neither_recurses_nor_raises(text: str) -> None:
    reply = parse(text, TOOLS)
    for call in reply.calls:
        assert isinstance(call, InvalidCall) or call.arguments["a"]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(("depth", "valid"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_the_depth_that_is_read(depth: int, valid: bool) -> None:
    tools = [{"name": "f", "inputSchema": {"type": "object", "properties": {"a": {"type": "array"}}}}]
    for text in (CALL.format(nested(depth)), CALL.format("<item>" * depth + "x" + "</item>" * depth)):
        call = parse(text, tools).calls[0]
        assert isinstance(call, ToolCall) is valid


def test_every_category_of_characters_passes_unchanged() -> None:
    every: dict[str, str] = {}
    for code in range(sys.maxunicode + 1):
        every.setdefault(unicodedata.category(chr(code)), chr(code))
    assert len(every) == 30
    text = "|".join(every.values())
    assert parse(text, TOOLS).text == text
    call = parse(CALL.format(text), TOOLS).calls[0]
    assert isinstance(call, ToolCall)
    assert call.arguments == {"a": text}


@pytest.mark.parametrize(
    "value",
    [
        '<!DOCTYPE v [<!ENTITY e SYSTEM "file:///etc/passwd">]><v>&e;</v>',
        '<!ENTITY a "b">&a;&a;&a;',
        '<?xml-stylesheet href="http://example.org/"?>',
        '<x xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/passwd"/></x>',
    ],
)
def test_entities_and_references_are_text(value: str) -> None:
    for name in ("a", "e"):
        call = parse(CALL.replace('name="a"', f'name="{name}"').format(value), TOOLS).calls[0]
        assert isinstance(call, ToolCall)
        assert call.arguments == {name: value}
    assert isinstance(parse(CALL.replace('name="a"', 'name="d"').format(value), TOOLS).calls[0], InvalidCall)


MARKS = ("<", "{", "&", "`", "[")
PIECES = sorted({piece for dialect in DIALECTS.values() for piece in pieces_of(dialect) if piece.startswith(MARKS)})
BEFORE = {
    "prose": "",
    "a value": '<function_calls><invoke name="f"><parameter name="a">',
    "an element": "<f><a>",
    "JSON": '{"arguments": {',
}


@pytest.mark.sweep
@pytest.mark.parametrize(("piece", "place"), covering(PIECES, BEFORE))
def test_work_grows_with_the_text_alone(piece: str, place: str) -> None:
    """Count calls, not seconds: twice the text, at most a little over twice the work."""

    texts = [BEFORE[place] + piece * count for count in (60, 120)]
    read([texts[1]], TOOLS, "stop")  # compiles the patterns
    small, large = (count_calls(partial(read, [text], TOOLS, "stop"), is_known=True) for text in texts)
    assert large < 2.5 * small + 200
