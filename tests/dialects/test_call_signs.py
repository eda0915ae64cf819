"""By which fragments of text the formats are known."""

import pytest
from counted import count_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples, scaled
from soup import PIECES, pieces_of

from xmlcall import parse, render
from xmlcall.dialects import DIALECTS, select
from xmlcall.dialects.call_signs import attempts_call, opening_places

TOOLS = [{"name": "f", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}]
ROWS = select("auto")
PLACES = opening_places(ROWS, ["f"])
WITH_TAGS = [name for name, row in DIALECTS.items() if row.written]


def inert(text: str) -> str:
    places = {*PLACES(text)}
    return "".join(f"&#{ord(char)};" if at in places else char for at, char in enumerate(text))


@pytest.mark.parametrize("dialect", WITH_TAGS)
def test_a_written_call_is_found_and_made_inert(dialect: str) -> None:
    text = render([{"name": "f", "arguments": {"a": "x"}}], TOOLS, dialect=dialect)
    assert attempts_call(text, ROWS, ["f"])
    assert {call.raw.dialect for call in parse(f"x {inert(text)}", TOOLS).calls} <= {"json"}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *(piece for name in WITH_TAGS for piece in pieces_of(DIALECTS[name]))]), max_size=30))
def test_no_call_as_tags_is_read_in_inert_text(pieces: list[str]) -> None:
    assert {call.raw.dialect for call in parse(f"x {inert(''.join(pieces))}", TOOLS).calls} <= {"json"}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('Say <invoke name="f"> now', "<"),
        ("cut: <invoke", "<"),
        ("cut: &lt;invoke name=", "&"),
        ("[TOOL_CALLS][{", "["),
        ("<|tool_call>", "<"),
        ("<\u200binvoke name='f'>", "<"),
        ("<\uff5cDSML\uff5cinvoke", "<"),
        ("<other:invoke name='f'>", "<"),
        ("</parameter >", "<"),
        ("<f>", "<"),
    ],
)
def test_fragments_that_may_begin_a_tag(text: str, first: str) -> None:
    assert [text[at] for at in PLACES(text)] == [first]


@pytest.mark.parametrize(
    "text",
    ["a < b && c", "<b>bold</b>", "Dear <name>, usage: run <arguments>", "&lt;b&gt;", "[1, 2]", "<invoker>", "x</b>", "<g>"],
)
def test_text_without_fragments(text: str) -> None:
    assert not attempts_call(text, ROWS, ["f"])


def test_json_is_an_attempt_by_both_its_keys_in_formats_as_json_alone() -> None:
    call = '{"name": "g", "arguments": {"a": 1}}'
    assert attempts_call(call, ROWS)
    assert not attempts_call(call, select("qwen"))
    assert not attempts_call('{"name": "Rome", "population": 5}', ROWS)


@pytest.mark.sweep
def test_fragments_without_end_are_read_in_time_that_grows_with_them() -> None:
    """With the square of their length these would not end."""
    for piece in ("<", "<invoke-name=", "<a b='", "&lt;", "[", '{"name": '):
        assert PLACES(piece * scaled(100_000)) == []
        assert not attempts_call(piece * scaled(100_000), ROWS)


@pytest.mark.parametrize("piece", ["<", "</", "<|", "<a", "[", "{", "`", "&", "a", "<f>"])
def test_a_text_of_marks_is_read_with_little_work_for_each(piece: str) -> None:
    """A result may have two million of them."""
    text = piece * 2_000
    assert count_calls(lambda: PLACES(text)) < 7 * len(text) + 1_000
