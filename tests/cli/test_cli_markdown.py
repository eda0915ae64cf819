"""Markdown on a terminal while it comes: what is shown is what was written, whatever the cuts."""

import asyncio
import io
import re
from typing import Any

import pyte
import pytest
from counted import count_calls
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from xmlcall.cli.markdown import MarkdownStream, shows_markdown

WIDTH, HEIGHT = 60, 20


def console(**given: Any) -> Console:
    options: dict[str, Any] = {"force_terminal": True, "color_system": "standard", "width": WIDTH, "height": HEIGHT} | given
    return Console(file=io.StringIO(), markup=False, emoji=False, highlight=False, _environ={"TERM": "xterm"}, **options)


def written(pieces: list[str], *, drawn: bool = True) -> str:
    """What the terminal is sent; a drawing between two pieces if wanted."""

    async def show() -> str:
        to = console()
        stream = MarkdownStream(to, "quiet for {} s".format)
        for piece in pieces:
            stream.feed(piece)
            if drawn and stream._timer:
                stream._draw()
        stream.end()
        assert isinstance(to.file, io.StringIO)
        return to.file.getvalue()

    return asyncio.run(show())


def screen(sent: str) -> list[str]:
    """What a person sees in the end, lines that scrolled away included."""
    shown = pyte.HistoryScreen(WIDTH, HEIGHT, history=10_000)
    shown.set_mode(pyte.modes.LNM)
    pyte.Stream(shown).feed(sent)
    above = ["".join(line[at].data for at in range(WIDTH)) for line in shown.history.top]
    return [line.rstrip() for line in [*above, *shown.display]]


def seen(text: str, size: int = 7) -> str:
    return "\n".join(screen(written([text[at : at + size] for at in range(0, len(text), size)]))).rstrip()


SHOWN = [
    ("# Head\ntext", "Head\n\ntext"),
    ("so **bold** and `code`", "so bold and code"),
    ("- one\n- two\n  - three", " • one\n • two\n    • three"),
    ("7. seven\n8. eight", "7. seven\n8. eight"),
    ("one line\nanother", "one line\nanother"),
    ("```py\nif x:\n\n    y = 1\n\n```\nend", "```py\nif x:\n\n    y = 1\n\n```\n\nend"),
    ("```\nnever closed", "```\nnever closed"),
    ("~~~\n```\n~~~", "~~~\n```\n~~~"),
    ("| a | b |\n|---|---|\n| long | c |", " a     b\n ───────\n long  c"),
    ("[a link](http://example.com/x)", "a link (http://example.com/x)"),
    ("a <b>tag</b> and <script>x</script>", "a <b>tag</b> and <script>x</script>"),
    ("<div>\nblock\n</div>", "<div>\nblock\n</div>"),
    ("![alt](http://x.y/z)", "!alt (http://x.y/z)"),
    ("[note]: http://example.com", "[note]: http://example.com"),
    ("a\n\n\n\nb", "a\n\nb"),
    ("x [red]y[/red] :smile:", "x [red]y[/red] :smile:"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_markdown_is_shown_as_what_it_means(text: str, shown: str, size: int) -> None:
    assert seen(text, size) == shown


@pytest.mark.parametrize(
    "attack", ["\x1b]0;title\x07", "\x1b[2J", "\x9b2J", "&#27;[2J", "&#x9b;2J", "&#x202e;", "\u202e", "\x07"]
)
@pytest.mark.parametrize("form", ["{}", "`{}`", "```{}\nx\n```", "```\n{}\n```", "[{}](http://x/{})", "| {} |\n|---|\n| {} |"])
def test_control_characters_are_never_obeyed(attack: str, form: str) -> None:
    sent = written([f"before {form.replace('{}', attack)} after", "\n"])
    ours = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AK]|\r")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", ours.sub("", sent))


MARKS = ["word ", "Wort", "\n", "\n\n", "- ", "1. ", "    ", "  ", "> ", "# ", "```", "```py\n", "**", "`", "|", "|--|--|\n"]
MARKS += ["[a](b)", "~~", "中文", "***", "<b>", "---\n"]
PIECES = st.lists(st.sampled_from(MARKS), max_size=25)


@given(PIECES)
def test_no_word_is_lost_or_shown_twice(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = "".join(screen(written(pieces)))
    for word in ("Wort", "中"):
        assert shown.count(word) == text.count(word), text


@given(PIECES)
def test_it_is_the_same_whole_and_in_pieces(pieces: list[str]) -> None:
    assert screen(written(pieces)) == screen(written(["".join(pieces)], drawn=False))


def test_a_long_answer_scrolls() -> None:
    code = "".join(f"line_{number} = {number}\n" for number in range(100))
    items = "".join(f"- item {number}\n" for number in range(60))
    shown = seen(f"Begin.\n\n```python\n{code}```\n\n{items}\nEnd.", 40).splitlines()
    assert [line for line in shown if line.startswith("line_")] == code.splitlines()
    assert [line for line in shown if "item" in line] == [f" • item {number}" for number in range(60)]
    assert (shown[0], shown[-1]) == ("Begin.", "End.")


UNITS = ["x", "> ", "- ", "*", "`", "[", "a|", "\n", "```\n", "  - a\n", "中", "<", "&#27;", "1. "]


def calls(text: str) -> int:
    return count_calls(lambda: written([text[at : at + 97] for at in range(0, len(text), 97)], drawn=False))


@pytest.mark.parametrize("unit", UNITS)
def test_work_grows_with_the_text(unit: str) -> None:
    small, large = (calls(unit * (size // len(unit))) for size in (1_000, 2_000))
    assert large < 2.5 * small + 200


@pytest.mark.full
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.timeout(20)
def test_long_and_odd_texts_take_bounded_work(unit: str) -> None:
    text = unit * (60_000 // len(unit))
    assert len(written([text[at : at + 997] for at in range(0, len(text), 997)], drawn=False)) < 30 * len(text)


def test_where_markdown_is_not_shown() -> None:
    assert shows_markdown(console())
    assert not shows_markdown(console(width=30))
    assert not shows_markdown(console(no_color=True))
    assert not shows_markdown(console(force_terminal=False))
    assert not shows_markdown(Console(force_terminal=True, _environ={"TERM": "dumb"}))
