"""What is shown while something takes long: on a terminal and elsewhere."""

import asyncio
import io
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from rich.console import Console

from xmlcall.cli.waiting import DownloadBar, OpeningStatus, RunBar, SlowStatus
from xmlcall.cli.words import speaker
from xmlcall.models import known as models
from xmlcall.models.sources import Progress

MB = 1_000_000


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    kind: dict[str, Any] = {
        "force_terminal": terminal,
        "force_interactive": terminal,
        "width": 100,
        "_environ": {"TERM": "xterm"},
    }
    return Console(file=file, markup=False, highlight=False, soft_wrap=True, **kind), file


def step(done: int, note: str = "") -> Progress:
    return Progress(done=done * MB, total=491 * MB, note=note)


def test_a_download_is_a_bar_on_a_terminal_and_leaves_nothing_behind() -> None:
    to, file = console(terminal=True)
    with closing(DownloadBar(to, "tiny[bold]")) as bar:
        for done in (0, 100, 200, 491):
            bar(step(done))
            assert bar.active == (done < 491)
    drawn = file.getvalue()
    assert "fetching tiny[bold]" in drawn
    assert "491.0/491.0 MB" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is erased


def test_a_download_is_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    to, file = console(terminal=False)
    with closing(DownloadBar(to, "tiny")) as bar:
        for done in range(250):
            now[0] += 0.125
            bar(step(done))
    assert file.getvalue().splitlines() == [
        "fetching tiny: 0 of 491 MB",
        "fetching tiny: 80 of 491 MB",
        "fetching tiny: 160 of 491 MB",
        "fetching tiny: 240 of 491 MB",
    ]


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("qwen2.5-coder-0.5b", ["491 MB", "49 s at 10 MB/s", "0.9 GB of memory"]),
        ("qwen2.5-coder-1.5b", ["1117 MB", "112 s at 10 MB/s", "2.1 GB of memory", "--model local (491 MB, 0.9 GB of memory)"]),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_model_needs_is_said_once_before_its_download(name: str, needs: list[str], terminal: bool) -> None:
    to, file = console(terminal=terminal)
    with closing(DownloadBar(to, name)) as bar:
        for done in (0, 100):
            bar(step(done))
    [line] = [line for line in file.getvalue().splitlines() if "once" in line]
    assert file.getvalue().index(line) < file.getvalue().index("fetching")
    assert [part for part in (name, str(models.folder()), *needs) if part not in line] == []


@pytest.mark.parametrize("terminal", [True, False])
def test_notes_are_lines_and_those_that_count_seconds_are_rare(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    to, file = console(terminal=terminal)
    with closing(DownloadBar(to, "tiny")) as bar:
        for second in range(25):
            now[0] += 1
            bar(step(0, f"another process is fetching: waiting ({second} s)"))
        bar(step(0, "example.com\x1b[2J failed"))
    notes = [line for line in file.getvalue().splitlines() if "waiting" in line or "failed" in line]
    assert len(notes) == 4
    assert r"example.com\u001b[2J failed" in notes[-1]


async def test_a_status_appears_only_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    to, file = console(terminal=True)
    status = SlowStatus(to, speaker("en"))
    status.start("quick")
    await asyncio.sleep(0.01)
    status.stop()
    assert file.getvalue() == ""
    status.start("slow [b]", after=0)
    await asyncio.sleep(0.2)
    status.stop()
    status.stop()
    assert "slow [b]" in file.getvalue()
    assert "quick" not in file.getvalue()


@pytest.mark.parametrize(("line", "shown"), [(True, "slow ...\n"), (False, "")])
async def test_without_a_terminal_a_status_is_a_line_or_nothing(line: bool, shown: str) -> None:
    to, file = console(terminal=False)
    status = SlowStatus(to, speaker("en"), line=line)
    status.start("slow", after=0)
    await asyncio.sleep(0.01)
    status.stop()
    assert file.getvalue() == shown


async def test_opening_shows_the_download_and_then_that_it_loads() -> None:
    to, file = console(terminal=True)
    opening = OpeningStatus(to, speaker("en"))
    opening.model = "tiny\x1b[2J"
    steps = map(step, (0, 100, 491))
    async with opening:
        download = threading.Thread(target=lambda: [*map(opening.progress, steps)])
        download.start()
        await asyncio.sleep(0.2)
        download.join()
    opening.progress(step(5))  # too late: nothing more is drawn
    await asyncio.sleep(0)
    drawn = file.getvalue()
    assert "\x1b[2J" not in drawn
    assert 0 < drawn.index("fetching tiny") < drawn.index("491.0/491.0 MB") < drawn.index("Loading tiny")
    assert "5.0/491.0 MB" not in drawn


@pytest.mark.parametrize(("lang", "shown"), [("en", "Loading the model ..."), ("zh", "正在加载模型 ...")])
async def test_a_model_whose_name_is_not_known_loads_in_words_of_one_language(lang: str, shown: str) -> None:
    to, file = console(terminal=False)
    opening = OpeningStatus(to, speaker(lang))
    async with opening:
        opening.progress(step(491))
        await asyncio.sleep(0.1)
    assert file.getvalue().splitlines()[-1] == shown


def test_a_run_says_how_long_it_takes_after_its_first_replies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies of an earlier start count, but not for the pace."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with RunBar(90) as bar:
        bar.advance(19, is_new=False)
        for _ in range(10):
            now[0] += 6.0
            bar.advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "xmlcall: 22 of 90 replies, about 7 min left",
        "xmlcall: 28 of 90 replies, about 6 min left",
    ]
