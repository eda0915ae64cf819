"""The parser's invariants over tag soup (docs/design.md, section 4)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soup import PIECES, TOOLS, check_invariants, pieces_of

from xmlcall import Parser, ToolCall, UsageError, parse, render
from xmlcall.dialects import DIALECTS

soup = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
dialect_soup = st.sampled_from(list(DIALECTS.values())).flatmap(
    lambda dialect: st.lists(st.sampled_from(pieces_of(dialect)), max_size=30)
)
mixed_soup = st.lists(st.sampled_from([piece for dialect in DIALECTS.values() for piece in pieces_of(dialect)]), max_size=30)
any_soup = st.one_of(soup, dialect_soup.map("".join), mixed_soup.map("".join))
catalogs = st.sampled_from([(), TOOLS])
reasons = st.sampled_from(["stop", "length"])


@settings(max_examples=600, deadline=None)
@given(text=any_soup, tools=catalogs, reason=reasons, reasoning_open=st.booleans(), data=st.data())
def test_any_soup_cut_anywhere(text: str, tools: object, reason: str, reasoning_open: bool, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=40))
    check_invariants(text, places, tools, reason, reasoning_open)


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
