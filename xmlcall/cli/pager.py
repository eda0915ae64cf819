"""A text that may be longer than the screen: on a terminal it comes in pages, elsewhere whole.

No pager program is run: the text comes from servers, and a pager may act on it in ways that nobody here controls.
"""

import shutil
import sys

from .lines import LineReader, is_interactive
from .wrapping import wrapped

__all__ = ["page"]


async def page(text: str) -> None:
    """Print a text; on a terminal, Enter shows the next page and any other line ends it."""
    columns, rows = shutil.get_terminal_size()
    if not (is_interactive() and sys.stdout.isatty()):
        print(text, flush=True)
        return
    lines = [row for line in text.split("\n") for row in wrapped(line, columns).split("\n")]
    size = max(rows - 1, 5)
    answers = LineReader(sys.stdin.fileno())
    for start in range(0, len(lines), size):
        print("\n".join(lines[start : start + size]), flush=True)
        if start + size < len(lines):
            print(f"-- {start + size} / {len(lines)} (Enter) --", end=" ", file=sys.stderr, flush=True)
            if await answers.line() != "":
                return
