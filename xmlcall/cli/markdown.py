"""Shows a model's Markdown on a terminal as it arrives.

The text is cut into blocks: a paragraph, a list, a table, a fence of code. A block that has ended is not printed again, so the
screen scrolls as with any other output. The last block may still change (a row makes a table's columns wider, a mark makes words
bold), so it is in a live region, which is redrawn ten times a second at most and never has more rows than the screen: a longer
block shows only its end until it is complete. Lines of code never change, so each is printed when it has ended, as one line:
copied from the screen, it is the code.

The text is hostile input. Control characters are dropped before it is read, and again from what was read, since `&#27;` is a
character, too. Nothing of a reply is hidden: HTML, images and definitions of links stay as written, and a link shows its
address. What rich would show wrongly (deep nesting, a narrow terminal) is shown as it was written. A block that has become long
is ended, so each character is read a bounded number of times.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from .plain import PlainStream, plain
from .waiting import SLOW_SECONDS

_EVERY: Final = 0.1  # seconds between two drawings
_LONGEST: Final = 8000  # characters of a block that is not complete
_DIM: Final = Style(dim=True)
_DEEPEST: Final = 12  # levels of tokens: about five of lists within lists
_NARROWEST: Final = 40  # columns
_THEME: Final = "ansi_dark"  # the terminal's own colours, on its own background
_FENCE: Final = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)\Z")

_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["image", "reference"])

Rows = list[list[Segment]]


def answer_console() -> Console:
    return Console(markup=False, emoji=False, highlight=False)


def shows_markdown(console: Console) -> bool:
    """Say whether a terminal can show styles and a region that changes; NO_COLOR asks for plain text."""
    can_style = console.is_terminal and console.color_system is not None and not console.no_color
    return can_style and not console.is_dumb_terminal and console.width >= _NARROWEST


class MarkdownStream:
    """Shows Markdown in pieces; from the thread of a running event loop.

    If no text arrives, the line that `waiting` returns for the elapsed seconds is shown below the text.
    """

    def __init__(self, console: Console, waiting: Callable[[int], str]) -> None:
        self._console, self._waiting = console, waiting
        self._plain = PlainStream()
        self._open = ""  # the text of the last block
        self._code: _Code | None = None  # the fence that is open
        self._is_first = True
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._drawn = self._fed = 0.0

    def feed(self, text: str) -> None:
        self._open += self._plain.feed(text)
        self._fed = time.monotonic()
        if self._timer is None and self._open.strip():
            due = max(self._drawn + _EVERY - time.monotonic(), 0) if self._live else _EVERY
            self._timer = asyncio.get_running_loop().call_later(due, self._draw)
        if len(self._open) > 2 * _LONGEST:
            self._draw()

    def end(self) -> None:
        """Print the rest; what follows begins a new text."""
        self._open += self._plain.close()
        self._stop_timer()
        if self._open.strip() or self._code:
            self._print_complete()
            self._show(())
            if self._code:
                self._print_code(self._open, is_last=True)
            elif _is_opening(self._open.strip("\n")):
                self._begin_code(self._open)
            elif self._open.strip():
                self._print_block(self._open)
        if self._live is not None:
            self._live.stop()
        self._live, self._code, self._open, self._is_first = None, None, "", True

    def _stop_timer(self) -> None:
        for timer in (self._timer, self._slow):
            if timer is not None:
                timer.cancel()
        self._timer = self._slow = None

    def _draw(self) -> None:
        """Print what is complete, and show the rest in the live region; if nothing comes, say so from time to time."""
        self._stop_timer()
        self._drawn = time.monotonic()
        quiet = self._drawn - self._fed
        self._slow = asyncio.get_running_loop().call_later(1.0 if quiet >= SLOW_SECONDS else SLOW_SECONDS, self._draw)
        self._print_complete()
        rows = self._code.rows(self._console, self._open) if self._code else _block_rows(self._console, self._open)
        gap: Rows = [] if self._is_first or self._code or not rows else [[]]
        note = [[Segment(self._waiting(int(quiet)), _DIM)]] if quiet >= SLOW_SECONDS else []
        self._show(_joined([*[*gap, *rows][-max(self._console.height - 3, 1) :], *note]))

    def _show(self, segments: Iterable[Segment]) -> None:
        if self._live is None:
            options: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
            self._live = Live(console=self._console, transient=True, vertical_overflow="crop", **options)
            self._live.start()
        self._live.update(Segments(segments), refresh=True)

    def _print_complete(self) -> None:
        """Print blocks, and lines of code, until the rest may still change."""
        while True:  # each round takes something from the text, or ends
            if self._code:
                lines, newline, rest = self._open.rpartition("\n")
                lines, rest = (self._open, "") if len(rest) > _LONGEST else (lines + newline, rest)
                if not lines:
                    return
                self._open = self._print_code(lines) + rest
                if self._code:
                    return
            elif end := _first_end(self._open):
                block, self._open = self._open[:end], self._open[end:]
                self._begin_code(block) if _FENCE.fullmatch(block.strip("\n")) else self._print_block(block)
            else:
                return

    def _begin_code(self, opening: str) -> None:
        self._gap()
        self._code = _Code(opening.strip("\n"))
        self._console.print(Text(opening.strip("\n"), style="dim"), soft_wrap=True)

    def _print_code(self, lines: str, *, is_last: bool = False) -> str:
        """Print lines of code; return the text after the end of the fence."""
        assert self._code is not None
        code, closing, rest = self._code.cut(lines)
        for line in self._code.take(code):
            self._console.print(line, soft_wrap=True)
        if closing:
            self._console.print(Text(closing, style="dim"), soft_wrap=True)
        if closing or is_last:
            self._code = None
        return rest

    def _print_block(self, block: str) -> None:
        if rows := _block_rows(self._console, block):
            self._gap()
            self._console.print(Segments(_joined(rows)), end="")

    def _gap(self) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False


class _Code:
    def __init__(self, opening: str) -> None:
        match = _FENCE.fullmatch(opening)
        assert match is not None
        mark, info = match["mark"], match["info"].split()
        self._closing = re.compile(rf"^ {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$", re.MULTILINE)
        self._syntax = Syntax("", info[0] if info else "text", theme=_THEME, background_color="default")
        self._before = ""  # lines that were printed, as far as they matter for colours

    def cut(self, lines: str) -> tuple[str, str, str]:
        """Return the code, the closing fence if it is there, and the text after that."""
        if match := self._closing.search(lines):
            return lines[: match.start()], match[0], lines[match.end() :].removeprefix("\n")
        return lines, "", ""

    def take(self, code: str) -> list[Text]:
        """Return lines to print; they are read with those before them, because a string may have begun there."""
        if not code:
            return []
        shown = self._lines(self._before + code)[self._before.count("\n") :]
        self._before = self._before + code if len(self._before) + len(code) < _LONGEST else ""
        return shown

    def rows(self, console: Console, line: str) -> Rows:
        return console.render_lines(self._lines(self._before + line)[-1], pad=False) if line else []

    def _lines(self, code: str) -> list[Text]:
        if len(code) > 2 * _LONGEST:  # a lexer may take long for a line without end
            return [Text(line) for line in code.removesuffix("\n").split("\n")]
        code = code.removesuffix("\n")
        count = code.count("\n") + 1  # a lexer may add a line at the end, or drop empty ones
        return [*self._syntax.highlight(code).split("\n", allow_blank=True), *(Text() for _ in range(count))][:count]


def _first_end(text: str) -> int:
    """Return where the first block ends, once another one follows it or it is an opening fence; 0 while it may continue."""
    start = len(text) - len(text.lstrip("\n"))
    line, newline, _ = text[start:].partition("\n")
    if newline and _is_opening(line):
        return start + len(line) + 1
    tops = [token for token in _parsed(text[: 2 * _LONGEST]) if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.splitlines(keepends=True)
    fence = next((token.map[0] for token in tops[:2] if token.type == "fence" and token.map), 0)
    if fence or len(tops) > 1:
        assert tops[-1].map is not None
        following = tops[1].map[0] if len(tops) > 1 and tops[1].map else fence
        # A line that is not complete may still turn out to be words of the paragraph before it, as "```x" in "```x```".
        may_go_on = following == len(lines) - 1 and not text.endswith("\n") and lines[following - 1].strip()
        return 0 if may_go_on else sum(map(len, lines[:following]))
    if len(text) <= _LONGEST:
        return 0
    cut = max(text.rfind("\n", 0, _LONGEST), text.rfind(" ", 0, _LONGEST)) + 1
    return cut or _LONGEST


def _is_opening(line: str) -> bool:
    match = _FENCE.fullmatch(line)
    return match is not None and not (match["mark"][0] == "`" and "`" in match["info"])


def _parsed(text: str) -> list[Token]:
    tokens = _PARSER.parse(text)
    for token in chain.from_iterable((top, *(top.children or ())) for top in tokens):
        token.content = plain(token.content)
        if "href" in token.attrs:
            token.attrs["href"] = plain(str(token.attrs["href"]))
        if token.type == "softbreak":  # a model that ends a line means it
            token.type = "hardbreak"
    return tokens


def _block_rows(console: Console, text: str) -> Rows:
    """Return a block as rows of the screen, without white space at their ends."""
    if not text.strip():
        return []
    tokens = _parsed(text)
    is_plain = max((token.level for token in tokens), default=0) > _DEEPEST or len(tokens) == 0
    shown: RenderableType = Text(text.strip("\n")) if is_plain else _Markdown(tokens)
    rows = [_stripped(row) for row in console.render_lines(shown, pad=False)]
    while rows and not rows[-1]:
        rows.pop()
    while rows and not rows[0]:
        del rows[0]
    return rows


def _stripped(row: list[Segment]) -> list[Segment]:
    row = list(row)
    while row and not row[-1].text.strip():
        row.pop()
    if row:
        row[-1] = Segment(row[-1].text.rstrip(), row[-1].style)
    return row


def _joined(rows: Rows) -> list[Segment]:
    return [segment for row in rows for segment in (*row, Segment.line())]


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = {}  # none is centred


class _NestedCode(CodeBlock):
    """Code inside of a list or a quotation, on the terminal's own background; text after its fence is shown, too."""

    opening = ""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_NestedCode":
        block = cls(token.info.partition(" ")[0] or "text", markdown.code_theme)
        block.opening = plain(f"{token.markup}{token.info}".rstrip())
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.opening:
            yield Text(self.opening, style="dim")
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme=_THEME, background_color="default", word_wrap=True)


class _Item(ListItem):
    """An item whose number is followed by a dot."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 2
        rows = console.render_lines(self.elements, options.update(width=options.max_width - width), style=self.style)
        for at, row in enumerate(rows):
            yield Segment(f"{number}. ".rjust(width) if at == 0 else " " * width)
            yield from row
            yield Segment.line()


class _Markdown(Markdown):
    """Markdown of tokens that were read elsewhere."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _NestedCode,
        "code_block": _NestedCode,
        "list_item_open": _Item,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = tokens
