"""Lines end between words, whatever the cuts; Markdown is shown as what it means, and changes nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xmlcall.cli.wrapping import Wrapping, wrapped

BOLD, DIM, NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[22m"


def whole(text: str, *, styled: bool = False, width: int = 20) -> str:
    wrapping = Wrapping(width, styled=styled)
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


STYLED = [
    ("so **bold** it", f"so {BOLD}bold{NORMAL} it"),
    ("**two words**, yes", f"{BOLD}two words{NORMAL}, yes"),
    ("这是**重要**的", f"这是{BOLD}重要{NORMAL}的"),
    ("2**3 and 2 ** 3", "2**3 and 2 ** 3"),
    ("**never\nclosed", f"{BOLD}never{NORMAL}\nclosed"),
    ("**never closed", f"{BOLD}never closed{NORMAL}"),
    ("# Head\ntext", f"{BOLD}# Head{NORMAL}\ntext"),
    ("#hash", "#hash"),
    ("- one\n* two\n1. three", "• one\n• two\n1. three"),
    ("```py\nx ** 2 **y**\n```\nend", f"{DIM}```py\nx ** 2 **y**\n```{NORMAL}\nend"),
    ("```\nx", f"{DIM}```\nx{NORMAL}"),
    ("(**x**).", f"({BOLD}x{NORMAL})."),
]


@pytest.mark.parametrize(("text", "shown"), STYLED)
def test_markdown_is_shown_as_what_it_means(text: str, shown: str) -> None:
    assert whole(text, styled=True) == shown


PIECES = st.lists(
    st.sampled_from(["word ", "a", " ", "\n", "**", "中文", "，", "- ", "```", "# ", "é", "x" * 30, "1. ", "\t", "."]),
    max_size=30,
)


@given(PIECES, st.booleans())
def test_it_is_the_same_whole_and_in_pieces(pieces: list[str], styled: bool) -> None:
    wrapping = Wrapping(20, styled=styled)
    assert "".join(map(wrapping.feed, pieces)) + wrapping.close() == whole("".join(pieces), styled=styled)


@given(PIECES)
def test_nothing_but_white_space_changes(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(whole(text).split()) == "".join(text.split())


@given(st.lists(st.sampled_from(["word", "wo", "中", "long-word", "ü"]), max_size=40))
def test_no_line_is_too_wide(words: list[str]) -> None:
    assert all(cell_len(line) <= 20 for line in whole(" ".join(words)).split("\n"))


@given(PIECES)
def test_styles_end(pieces: list[str]) -> None:
    shown = whole("".join(pieces), styled=True)
    assert shown.rfind(NORMAL) >= max(shown.rfind(BOLD), shown.rfind(DIM))


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
    wrapping = Wrapping(80, styled=True)
    shown = "".join(wrapping.feed(text[at : at + 7]) for at in range(0, len(text), 7)) + wrapping.close()
    assert len(shown) < 20 * len(text) + 100
    assert not re.search(r"\S", text) or shown
