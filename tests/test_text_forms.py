"""The forms of a text are those of Python, but for what makes Python raise or takes it minutes."""

import html
import time
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Message, Tool
from xmlcall.agent.flows import even
from xmlcall.binding.echo import skeletons
from xmlcall.binding.spellings import atoms
from xmlcall.text_forms import normalized, unescaped
from xmlcall.turn.asking import Asking
from xmlcall.turn.opening import begin_turn
from xmlcall.turn.sync_driver import run_turn
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

MARKS = "\u0300\u0301\u0315\u0327\u3099\u0f71\u0f73\uff9e"
DIGITS = "1" * 5000


@given(st.text(alphabet="&#x0189;amplt a", max_size=60) | st.text())
def test_entities_are_those_of_html(text: str) -> None:
    assert unescaped(text) == html.unescape(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a&#{DIGITS};b", "a\ufffdb"),
        (f"&#{DIGITS}", "\ufffd"),
        (f"&#{'0' * 5000}38;", "&"),
        (f"&#{'0' * 5000}", "\ufffd"),
        (f"&#x{DIGITS};", "\ufffd"),
        (f"&#{DIGITS}&#38;", "\ufffd&"),
    ],
    ids=range(6),
)
def test_a_number_of_any_length_stands_for_a_character(text: str, expected: str) -> None:
    assert unescaped(text) == expected


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFKD"])
@given(st.text(alphabet=st.characters(exclude_characters="\ufdfa\ufdfb") | st.sampled_from(MARKS), max_size=30))
def test_forms_are_those_of_unicode(form: Any, text: str) -> None:
    assert normalized(form, text) == unicodedata.normalize(form, text)


def test_of_more_marks_than_a_language_has_the_first_are_kept() -> None:
    assert normalized("NFKD", "a" + "\u0315" * 40 + "b") == "a" + "\u0315" * 30 + "b"


def test_no_text_becomes_many_times_as_long() -> None:
    assert normalized("NFKD", "\u00e9\ufdfa\ufdfb\uff21") == "e\u0301\ufdfa\ufdfbA"


@pytest.mark.parametrize("read", [skeletons, even, atoms, lambda text: normalized("NFC", text)], ids=range(4))
@pytest.mark.parametrize("unit", ["\u0315\u0300", "a\u0315\u0300", "\u0f73", "\uff9e\u0300", "&#1", "&#0"])
def test_work_grows_with_the_text(unit: str, read: Any) -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        read("a" + unit * (count // len(unit)))
        return time.process_time() - began

    assert min(seconds(48_000) for _ in range(2)) < 0.1 + 9 * max(seconds(12_000), 0.002)  # by the square 16 times


@given(
    before=st.sampled_from(["", "&#", "&#x", "0x", "0b", "-", "1e", "1.", "\\u00", "#", "$", "12:", "2024-", "1,"]),
    digit=st.sampled_from("019a"),
    length=st.integers(4_301, 6_000),
    after=st.sampled_from(["", ";", ".0", "e5", " km", "%", "]"]),
)
def test_long_numbers_raise_nothing_wherever_others_write(before: str, digit: str, length: int, after: str) -> None:
    text = before + digit * length + after
    schema = {"properties": {"a": {"enum": ["x", text], "default": text, "minimum": text}, "b": {"$ref": f"#/allOf/{text}"}}}
    tool = Tool(name="f", description=text, input_schema=schema | {"allOf": [{}]})
    replies = iter([f'<function_calls><invoke name="f"><parameter name="a">{text}</parameter></invoke></function_calls>'])

    def stream(request: CompletionRequest) -> Iterator[Chunk]:
        yield Chunk(text=next(replies, "Done."), top_logprobs=((text, -0.1), ("<", -3.0)), finish_reason="stop")

    server = Capabilities(server="llama.cpp", most_logprobs=20, continues=True)
    for offered in ([Tool(name="f", description=text)], [tool]):
        talk = [Message(role="user", content=text)]
        turn = begin_turn(talk, [*offered, Tool(name="g")], asking=Asking(call_threshold=0.0), server=server)
        assert run_turn(turn, stream, lambda call: text).reason
