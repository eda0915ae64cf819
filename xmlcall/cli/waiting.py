"""Shows on standard error that something takes long: a bar for a download or a run of questions, else a status line.

Without a terminal, a download prints a line every ten seconds, and a status prints one line or none. A terminal has room for only
one of them, so starting one stops the other.
"""

import asyncio
import re
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from ..errors import BackendError
from ..models import known as models
from ..models.known import KnownModel
from ..models.sources import Progress
from .exits import complain
from .plain import visible
from .words import Say

SLOW_SECONDS = 2.0  # after these, a line says what the program waits for
_LINE_SECONDS = 10.0  # between two lines without a terminal, and between two notes that differ only in a number
_USUAL_RATE = 10_000_000  # bytes a second, for estimating how long a download takes
_RUN_LINE_SECONDS = 30.0  # between two lines of progress of a run
_FEW = 3  # replies after which a run says for the first time how long it takes


def error_console() -> Console:
    """Make a console on standard error that takes text as it is: no markup, no emoji codes, no wrapping of its own."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


class DownloadBar:
    """Shows a download's progress; it is the callback. It appears with the first step and is erased at the end."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, visible(name)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console, transient=True)
        self._known = models.KNOWN.get(name)
        self._last_note = ""
        self._last_time = {"line": -_LINE_SECONDS, "note": -_LINE_SECONDS}
        self.active = False

    def __call__(self, step: Progress) -> None:
        if self._known is not None:
            self._print(needs_of(self._known))
            self._known = None
        if step.note:
            self._note(visible(step.note))
        if self._console.is_terminal:
            self._draw(step)
        elif self._due("line"):
            self._print(f"fetching {self._name}: {step.done / 1e6:.0f} of {step.total / 1e6:.0f} MB")
        self.active = step.done < step.total

    def close(self) -> None:
        self.active = False
        if self._bar.live.is_started:
            self._bar.stop()

    def _draw(self, step: Progress) -> None:
        if not self._bar.tasks:
            self._bar.add_task(f"fetching {self._name}", total=step.total, completed=step.done)
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=step.done)  # rich draws ten times a second, however often it is updated

    def _note(self, note: str) -> None:
        """Print a note as a line; one that only counts seconds is not repeated every second."""
        wording = re.sub(r"\d+", "0", note)
        if wording != self._last_note:
            self._last_note, self._last_time["note"] = wording, -_LINE_SECONDS
        if self._due("note"):
            self._print(note)

    def _due(self, what: str) -> bool:
        due = time.monotonic() - self._last_time[what] >= _LINE_SECONDS
        if due:
            self._last_time[what] = time.monotonic()
        return due

    def _print(self, line: str) -> None:
        self._console.print(Text(line, style="dim"))


def needs_of(model: KnownModel) -> str:
    """Say how large a download is, before it begins."""
    smaller = models.KNOWN[models.DEFAULT_MODEL]
    parts = [
        f"{model.name} is fetched once: {model.size / 1e6:.0f} MB on the disk, in {models.folder()}",
        f"{model.size / _USUAL_RATE:.0f} s at {_USUAL_RATE / 1e6:.0f} MB/s; it takes about {model.memory / 1e9:.1f} GB of memory",
    ]
    if model.size > smaller.size:
        parts.append(f"a smaller one: --model local ({smaller.size / 1e6:.0f} MB, {smaller.memory / 1e9:.1f} GB of memory)")
    return "; ".join(parts)


class SlowStatus:
    """A status line that appears once something has taken two seconds; from the thread of a running event loop."""

    def __init__(self, console: Console, say: Say, *, line: bool = False) -> None:
        self._console, self._say, self._line = console, say, line
        self._status = console.status(self)
        self._timer: asyncio.TimerHandle | None = None
        self._text = self.begun = ""
        self._since = 0.0

    def start(self, text: str, *, after: float = SLOW_SECONDS) -> None:
        self.stop()
        self._text = self.begun = text
        self._since = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(after, self._show)

    def update(self, text: str) -> None:
        """Change what the status says, if it is shown or about to be."""
        self._text = text

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._status.stop()

    def __rich__(self) -> Text:  # for each drawing
        seconds = int(time.monotonic() - self._since)
        return Text(self._say("elapsed", text=self._text, seconds=seconds), style="dim", no_wrap=True, overflow="ellipsis")

    def _show(self) -> None:
        if self._console.is_terminal:
            self._status.start()
        elif self._line:
            self._console.print(Text(f"{self._text} ...", style="dim"))


class OpeningStatus:
    """Shows what happens while a model and its servers open: the download's bar, then `Loading MODEL`."""

    def __init__(self, console: Console, say: Say) -> None:
        self.model = ""  # the caller sets it before entering this, if it is known
        self._console, self._say = console, say
        self._status = SlowStatus(console, say, line=True)
        self._over = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._bar = DownloadBar(self._console, self.model)
        self._status.start(self._loading())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._over = True
        self._status.stop()
        self._bar.close()

    def progress(self, step: Progress) -> None:
        """Take a step of the download, in any thread."""
        self._loop.call_soon_threadsafe(self._show, step)

    def _show(self, step: Progress) -> None:
        if self._over:
            return
        self._status.stop()
        self._bar(step)
        if not self._bar.active:
            self._bar.close()
            self._status.start(self._loading(), after=0)

    def _loading(self) -> str:
        return self._say("loading", model=visible(self.model)) if self.model else self._say("loading_unnamed")


class RunBar:
    """The progress of a run on standard error: a bar with the remaining time, or without a terminal a line now and then."""

    def __init__(self, total: int, what: str = "replies") -> None:
        self._console = error_console()
        columns = (
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._progress = Bar(*columns, console=self._console, disable=not self._console.is_terminal, transient=True)
        self._task = self._progress.add_task("", total=total)
        self._total, self._what = total, what
        self._answered, self._since_line, self._shown_at = 0, 0, time.monotonic()
        self._said_how_long = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def advance(self, answered: int, is_new: bool = True) -> None:
        self._answered += answered
        self._since_line += answered * is_new
        self._progress.advance(self._task, answered)
        seconds = time.monotonic() - self._shown_at
        is_first = not self._said_how_long and self._since_line >= _FEW and seconds > _LINE_SECONDS
        if not self._console.is_terminal and self._since_line and (is_first or seconds > _RUN_LINE_SECONDS):
            # Assume that the rest continues at the pace since the last line.
            minutes = (self._total - self._answered) * seconds / self._since_line / 60
            complain(f"{self._answered} of {self._total} {self._what}, about {max(round(minutes), 1)} min left")
            self._since_line, self._shown_at, self._said_how_long = 0, time.monotonic(), True

    def failed(self, case: Any, way: Any, error: BackendError) -> None:
        complain(f"{case.id} ({way.name}): {error}")
