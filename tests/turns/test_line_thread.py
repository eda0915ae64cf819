"""Finished turns in a file, written by a thread: nobody waits for the disk, and a full one ends nothing."""

import json
import logging
import threading
import time
from pathlib import Path

import pytest
from turn_harness import turn_from_json

from xmlcall.turns import lines as turn_lines
from xmlcall.turns.builder import TurnBuilder
from xmlcall.turns.lines import LineThread
from xmlcall.turns.record import TurnRecord
from xmlcall.turns.recorder import Recorder


def finished(number: int) -> TurnBuilder:
    turn = TurnBuilder(id=f"t{number}", source="proxy", question="Hi")
    turn.end("end", answer="Hello")
    return turn


def test_each_finished_turn_is_a_line(tmp_path: Path) -> None:
    said: list[str] = []
    lines = LineThread(tmp_path / "turns.jsonl", said.append)
    recorder = Recorder(most_turns=1, keep=lines.append)
    for _ in range(20):
        turn = recorder.begin(question="Hi")
        turn.end("end")
        recorder.done(turn)
    lines.close()
    written = (tmp_path / "turns.jsonl").read_text().splitlines()
    assert len({turn_from_json(json.loads(line)).id for line in written}) == 20
    assert (tmp_path / "turns.jsonl").stat().st_mode & 0o777 == 0o600
    assert said == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_once() -> None:
    said: list[str] = []
    lines = LineThread(Path("/dev/full"), said.append)
    for number in range(5):
        lines.append(finished(number))
    lines.close()
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_it_is_told_again_when_some_could_be_written_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    lines = LineThread(tmp_path / "turns.jsonl", said.append)
    append = lines._file.append

    def refused(turn: TurnRecord) -> None:
        if turn.id != "t2":
            raise OSError(28, "No space left on device")
        append(turn)

    monkeypatch.setattr(lines._file, "append", refused)
    for number in range(5):
        lines.append(finished(number))
    lines.close()
    assert len(said) == 2
    assert len((tmp_path / "turns.jsonl").read_text().splitlines()) == 1


def test_a_disk_that_is_slow_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_lines, "MOST_WAITING", 3)
    said: list[str] = []
    lines, waits = LineThread(tmp_path / "turns.jsonl", said.append), threading.Event()
    monkeypatch.setattr(lines._file, "append", lambda turn: waits.wait(10))
    begun = time.monotonic()
    for number in range(50):
        lines.append(finished(number))
    assert time.monotonic() - begun < 5
    assert said == [f"turns are not written to {lines.path}: they come faster than they can be written; "
                    "it is tried again with each that ends"]  # fmt: skip
    lines.close(0.1)  # and the end of the program does not wait for long
    waits.set()


def test_a_turn_that_cannot_be_written_is_logged_and_the_next_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, broken = LineThread(tmp_path / "turns.jsonl"), finished(0)

    def fails() -> TurnRecord:
        raise RuntimeError("broken")

    monkeypatch.setattr(broken, "record", fails)
    with caplog.at_level(logging.ERROR):
        lines.append(broken)
        lines.append(finished(1))
        lines.close()
    assert "a turn could not be recorded" in caplog.text
    assert len((tmp_path / "turns.jsonl").read_text().splitlines()) == 1
