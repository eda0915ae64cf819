"""The parser's invariants over tag soup (docs/design.md, section 4)."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from xmlcall import Parser, Repaired, ToolCall, UsageError, coalesce, parse, render
from xmlcall.dialects import DIALECTS, Dialect
from xmlcall.events import Event

import pytest  # isort: skip

PIECES = [
    "<function_calls>",
    "</function_calls>",
    '<invoke name="f">',
    '<invoke name="g">',
    '<invoke name="f"/>',
    "<invoke name='f' id=1>",
    "</invoke>",
    '<parameter name="a">',
    '<parameter name="b">',
    '<parameter name="zzz">',
    '<parameter name="c" type="json">',
    "</parameter>",
    "<![CDATA[",
    "]]>",
    "<think>",
    "</think>",
    "`",
    "```",
    "```xml\n",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " ",
    " " * 70,
    " " * 300,
    "x",
    "<",
    "</",
    "<function_cal",
    "</a>",
    "</param>",
    "<a>",
    "&lt;",
    "1",
    "]",
    "\ud800",
    "\x00",
    "日本",
    "<f>",
    "</f>",
    "<a>",
    "</a>",
    "<b>",
    "</b>",
    "<parameter>",
    "\ufeff",
    "\u200b",
    "<INVOKE NAME=\u201cf\u201d>",
    "</PARAMETER>",
    "<par\u200bameter name='a'>",
    '<param name="a">',
    '{"a": "x"}',
    "{",
    "[",
    '{"name": "f", "arguments": {',
    '{"arguments": {',
    '{"name": "f", "arguments": {"a": "x"}}',
    "<tools>",
    "</tools>",
    ", ",
    "}",
]
TOOLS = [
    {
        "name": "f",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "integer"},
                "c": {"type": ["string", "null", "array"]},
                "d": {"type": "array", "items": {"type": "string"}},
                "e": {},
            },
        },
    }
]
JSON = [
    '{"name": "f", "arguments": {',
    '{"name": "g"}',
    '"a": "',
    '"',
    "\\",
    "{",
    "}",
    "}}",
    "[",
    ": ",
    '{"name": "f", "arguments": {"a": "x"}}',
]
COMMON = [piece for piece in PIECES if not piece.startswith(("<i", "<p", "</i", "</p", "<f", "</f"))]


def pieces_of(dialect: Dialect) -> list[str]:
    """The tags of one dialect for tools f and g and parameters a, b, c and one undeclared, and pieces of any text."""
    written = dialect.written
    parameters = ["a", "b", "zzz"]
    names = {"call_open": "fg", "call_close": "fg", "parameter_open": parameters, "parameter_close": parameters}
    tags = [tag.replace("{name}", name) for kind, tag in written.items() for name in names.get(kind, "-")]
    if dialect.name_after:
        tags += ["<tool_call>f\n", "<tool_call>", "f", " g "]
    return [*tags, dialect.json_written.replace("{name}", "c"), *COMMON, *(JSON if dialect.is_json else [])]


soup = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
dialect_soup = st.sampled_from(list(DIALECTS.values())).flatmap(
    lambda dialect: st.lists(st.sampled_from(pieces_of(dialect)), max_size=30)
)
mixed_soup = st.lists(st.sampled_from([piece for dialect in DIALECTS.values() for piece in pieces_of(dialect)]), max_size=30)
any_soup = st.one_of(soup, dialect_soup.map("".join), mixed_soup.map("".join))
catalogs = st.sampled_from([(), TOOLS])
reasons = st.sampled_from(["stop", "length"])


def read(chunks: list[str], tools: object, reason: str) -> list[Event]:
    parser = Parser(tools)  # type: ignore[arg-type]
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return coalesce([*events, *parser.close(reason)])


@settings(max_examples=600, deadline=None)
@given(text=any_soup, tools=catalogs, reason=reasons, data=st.data())
def test_chunk_invariance_and_conservation(text: str, tools: object, reason: str, data: st.DataObject) -> None:
    whole = read([text], tools, reason)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    chunks = [text[start:end] for start, end in itertools.pairwise([0, *places, len(text)])]
    assert read(chunks, tools, reason) == whole
    assert read(list(text), tools, reason) == whole
    spans = [event.span for event in whole if not isinstance(event, Repaired)]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert (spans[-1][1] if spans else 0) == len(text)


@settings(max_examples=300, deadline=None)
@given(text=any_soup, tools=catalogs)
def test_nothing_unfinished_runs(text: str, tools: object) -> None:
    for call in parse(text, tools, finish_reason="length").calls:  # type: ignore[arg-type]
        assert not isinstance(call, ToolCall) or call.raw.complete


values = st.fixed_dictionaries(
    {},
    optional={
        "a": any_soup,
        "b": st.integers(),
        "c": st.one_of(st.none(), soup, st.lists(soup, max_size=2)),
        "d": st.lists(soup, max_size=3),
        "e": st.one_of(soup, st.integers(), st.booleans(), st.dictionaries(soup, soup, max_size=2)),
    },
)


@settings(max_examples=300, deadline=None)
@given(arguments=st.lists(values, min_size=1, max_size=3))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_round_trip(dialect: str, arguments: list[dict[str, object]]) -> None:
    calls = [{"name": "f", "arguments": each} for each in arguments]
    try:
        text = render(calls, TOOLS, dialect=dialect)
    except UsageError:
        strings = {"a", "b", "d"}  # the others may be read as another string where the dialect has no mark for JSON
        assert not DIALECTS[dialect].json_written
        assert any(set(each) - strings for each in arguments)
        return
    reply = parse(text, TOOLS)
    assert [call.arguments for call in reply.calls if isinstance(call, ToolCall)] == arguments
    assert {call.raw.dialect for call in reply.calls} == {dialect}
    assert reply.repairs == ()


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    reply = parse(text)
    assert reply.text == text or "<" in text or "`" in text


def test_what_render_refuses() -> None:
    for call in (
        {"name": 'a"b', "arguments": {}},
        {"name": "f", "arguments": {"a<b": "x"}},
        {"name": "f", "arguments": {"b": 1e999}},
    ):
        with pytest.raises(UsageError):
            render([call])


def test_wrong_use() -> None:
    parser = Parser()
    with pytest.raises(UsageError, match="takes str, got bytes"):
        parser.feed(b"x")  # type: ignore[arg-type]
    parser.close()
    with pytest.raises(UsageError, match="closed"):
        parser.feed("x")
    with pytest.raises(UsageError, match="closed"):
        parser.close()
    with pytest.raises(UsageError, match="unknown dialect"):
        Parser(dialect="nope")


@pytest.mark.parametrize(
    "piece", ["<", "<invoke name=", '<invoke name="f">', '<parameter name="a">', "</parameter>", "`", "```\n"]
)
@pytest.mark.parametrize("before", ["", '<function_calls><invoke name="f"><parameter name="a">'])
def test_work_grows_with_the_text_alone(piece: str, before: str) -> None:
    """Count events, not seconds: twice the text, at most a little over twice the work."""
    import sys

    def work(count: int) -> int:
        calls = 0

        def count_call(frame: object, kind: str, argument: object) -> None:
            nonlocal calls
            calls += kind == "call"

        sys.setprofile(count_call)
        try:
            parse(before + piece * count)
        finally:
            sys.setprofile(None)
        return calls

    small, large = work(300), work(600)
    assert large < 2.5 * small + 200
