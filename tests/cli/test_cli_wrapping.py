"""Lines end between words, whatever the cuts, and nothing else changes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xmlcall.cli.wrapping import Wrapping, wrapped


def whole(text: str, *, width: int = 20) -> str:
    wrapping = Wrapping(width)
    return wrapping.feed(text) + wrapping.close()


BROKEN = [
    ("short", "short"),
    ("a line of words that is longer", "a line of words that\nis longer"),
    ("12345678901234567890 x", "12345678901234567890\nx"),
    ("an " + "x" * 30 + " end", "an\n" + "x" * 30 + "\nend"),
    ("kept\n\n  code(  1)\n", "kept\n\n  code(  1)\n"),
    ("中文没有空格，所以每个字都是一个词。", "中文没有空格，所以每\n个字都是一个词。"),
    ("一二三四五六七八九十。", "一二三四五六七八九\n十。"),  # no line begins with a mark
    ("- an item that goes on and on", "- an item that goes\n  on and on"),
    ("12. an item that goes on", "12. an item that\n    goes on"),
    ("```\na very long line of code = here\n```\nend", "```\na very long line of code = here\n```\nend"),
]


@pytest.mark.parametrize(("text", "shown"), BROKEN)
def test_lines_are_broken_between_words(text: str, shown: str) -> None:
    assert whole(text) == shown


PIECES = st.lists(
    st.sampled_from(["word ", "a", " ", "\n", "**", "中文", "，", "- ", "```", "# ", "é", "x" * 30, "1. ", "\t", "."]),
    max_size=30,
)


@given(PIECES)
def test_it_is_the_same_whole_and_in_pieces(pieces: list[str]) -> None:
    wrapping = Wrapping(20)
    assert "".join(map(wrapping.feed, pieces)) + wrapping.close() == whole("".join(pieces))


@given(PIECES)
def test_nothing_but_white_space_changes(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(whole(text).split()) == "".join(text.split())


@given(st.lists(st.sampled_from(["word", "wo", "中", "long-word", "ü"]), max_size=40))
def test_no_line_is_too_wide(words: list[str]) -> None:
    assert all(cell_len(line) <= 20 for line in whole(" ".join(words)).split("\n"))


def test_text_is_shown_word_by_word() -> None:
    wrapping = Wrapping(40)
    assert [wrapping.feed(piece) for piece in ("Once ", "upon", " a ti", "me 中", "文")] == [
        "Once",
        "",
        " upon a",
        " time",
        " 中",
    ]
    assert wrapping.end_word() == "文"
    assert wrapping.close() == ""


def test_a_label_stands_before_further_lines() -> None:
    shown = wrapped("a line of many words\nand more", 29, indent=9)
    assert shown == "a line of many words\n         and more"
    assert wrapped("a line of very many words", 29, indent=9) == "a line of very many\n         words"


@pytest.mark.parametrize("text", ["x" * 300_000, "**" * 150_000, " " * 300_000, "中" * 100_000, "，" * 100_000, "a " * 100_000])
@pytest.mark.timeout(10)
def test_wrapping_takes_linear_time(text: str) -> None:
    wrapping = Wrapping(80)
    shown = "".join(wrapping.feed(text[at : at + 7]) for at in range(0, len(text), 7)) + wrapping.close()
    assert len(shown) < 20 * len(text) + 100
    assert not re.search(r"\S", text) or shown
