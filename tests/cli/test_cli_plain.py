"""What is shown is safe to show: terminal escapes, control characters, JSON."""

import json
import re
import sys
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import xmlcall
from xmlcall.cli.plain import PlainStream, json_text, plain, shortened, to_json, visible
from xmlcall.errors import XmlcallError
from xmlcall.text_forms import INVISIBLE, RANGES
from xmlcall.types.calls import MISSING, RawArgument, RawCall
from xmlcall.types.events import Repaired

PLAIN = [
    ("a\tb\nc", "a\tb\nc"),
    ("\x1b[1;31mred\x1b[0m", "red"),
    ("\x9b31mred", "red"),
    ("\x1b]0;title\x07shown", "shown"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x9d0;title\x9cshown", "shown"),
    ("\x1b]0;never closed", "]0;never closed"),
    ("\x1b[2", "[2"),
    ("\x1bcreset\x1b(B", "reset"),
    ("over\rwritten\b\x7f\x00", "overwritten"),
    ("two\r\nlines", "two\nlines"),
    ("abc\u202edef\u2066", "abcdef"),
    ("العربية 中文 👩‍👩‍👧", "العربية 中文 👩‍👩‍👧"),
]


@pytest.mark.parametrize(("text", "shown"), PLAIN)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


PIECES = st.lists(
    st.sampled_from(["\x1b", "[", "]", "31", "m", "\x07", "\\", "\r", "\n", "\x9b", "\x9c", "\x9d", "P", "(", "text "])
)


@given(st.lists(PIECES.map("".join), max_size=6))
def test_a_stream_is_as_plain_as_the_whole_text_however_it_is_cut(pieces: list[str]) -> None:
    stream = PlainStream()
    shown = "".join(map(stream.feed, pieces)) + stream.close()
    assert shown == plain("".join(pieces))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_a_stream_waits_for_the_end_of_an_escape_within_limits() -> None:
    stream = PlainStream()
    assert stream.feed("\x1b]0;" + "x" * 200) == ""
    assert stream.feed("x" * 100).startswith("]0;xxx")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 中文", "plain text, 中文"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[31m\x7f\x9b", r"\u001b[31m\u007f\u009b"),
        ("\u202e\u200b\ud800", r"\u202e\u200b\ud800"),
        ("\U000e0041", r"\udb40\udc41"),
        ("\u115f\u1160\u2800\u3164\uffa0", r"\u115f\u1160\u2800\u3164\uffa0"),
        ("a\ufe0f\U000e0100\U000e01ef", r"a\ufe0f\udb40\udd00\udb40\uddef"),
        ("\u034f\u180f\u17b4\u2066\ufff9", r"\u034f\u180f\u17b4\u2066\ufff9"),
    ],
)
def test_visible_drops_nothing_and_shows_everything(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_all_that_unicode_lets_programs_ignore_is_shown_also_by_the_page() -> None:
    ignorable = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    every = (chr(code) for code in range(sys.maxunicode + 1))
    assert [char for char in every if ignorable.match(char) and not INVISIBLE.match(char)] == []
    page = (Path(xmlcall.__file__).parent / "ui" / "static" / "visible.js").read_text(encoding="utf-8")
    told = re.findall(r"\\u\{(\w+)\}(?:-\\u\{(\w+)\})?", page.partition("const INVISIBLE")[2].partition("\n")[0])
    assert tuple((int(first, 16), int(last or first, 16)) for first, last in told) == RANGES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("one\n", "one"),
        ("1\n2\n3", "1\n2\n3"),
        ("1\n2\n3\n4", "1\n2\n3\n... (1 more line)"),
        ("1\n2\n3\n4\n5", "1\n2\n3\n... (2 more lines)"),
        ("x" * 12, "xxxxxxxxxx... (12 characters)"),
        ("\x1b[1mx\x1b[0m", "x"),
    ],
)
def test_shortened(text: str, shown: str) -> None:
    assert shortened(text, lines=3, width=10) == shown


def test_json_names_the_types_and_leaves_out_what_is_missing() -> None:
    raw = RawCall(index=0, name="f", arguments=(RawArgument(name="a", text="1"), RawArgument(name="b", text="2", value=2)))
    assert to_json(raw)["arguments"] == [
        {"type": "RawArgument", "name": "a", "text": "1", "span": [0, 0]},
        {"type": "RawArgument", "name": "b", "text": "2", "value": 2, "span": [0, 0]},
    ]
    assert to_json(Repaired(code="stray-tag", span=(1, 2))) == {"type": "Repaired", "code": "stray-tag", "span": [1, 2]}
    assert raw.arguments[0].value is MISSING


def test_json_for_people_is_json_and_safe_on_a_terminal() -> None:
    value = {"text": "中文\x1b[31m\x9b\x7f\u202e\ud800\n", "numbers": [float("nan"), float("-inf"), 1.5]}
    text = json_text(value)
    assert "中文" in text
    assert re.fullmatch(r"[\n\x20-\x7e中文]*", text)
    assert json.loads(text) == value | {"numbers": ["nan", "-inf", 1.5]}


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    value: list[object] = []
    for _ in range(2000):
        value = [value]
    with pytest.raises(XmlcallError, match="nested too deeply"):
        json_text(value)


@pytest.mark.parametrize(
    "text", ["\x9d" * 200_000, "\x1b]" * 200_000, "\x1b[" * 200_000, "\x1b" + " " * 200_000, "\x9b1;" * 200_000]
)
@pytest.mark.timeout(5)
def test_plain_takes_linear_time(text: str) -> None:
    stream = PlainStream()
    assert "\x1b" not in plain(text) + stream.feed(text) + stream.close()
