"""A model gets a thread for each core that is free: within affinity and control groups, beside what other programs do."""

import os
from pathlib import Path
from typing import Any

import pytest

from xmlcall.backends.gguf import free_threads


def machine(root: Path, cores: int, files: dict[str, str], *, siblings: int = 1) -> Path:
    for number in range(cores * siblings):
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings").write_text(f"{number % cores:x}\n")
    for name, text in files.items():
        path = root / {"load": "proc/loadavg", "group": "proc/self/cgroup", "quota": "sys/fs/cgroup/app/cpu.max"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


IDLE, BUSY, FULL = "0.35 0.6 1.2 1/155 9\n", "2.04 0.6 1.2 3/155 9\n", "9.9 9 9 9/155 9\n"
STARTED, PAST = "0.35 0.6 1.2 5/155 9\n", "5.1 0.6 1.2 1/155 9\n"
GROUP = "0::/app\n"


@pytest.mark.parametrize(
    ("cores", "usable", "files", "threads"),
    [
        (8, 8, {"load": IDLE}, None),
        (8, 2, {"load": IDLE}, 2),  # llama.cpp itself does not look at the affinity
        (8, 8, {"load": BUSY}, 6),
        (8, 4, {"load": BUSY}, 4),  # two of the others are busy
        (8, 8, {"load": FULL}, 4),  # half, so that a loaded machine still answers
        (2, 2, {"load": BUSY}, 1),
        (1, 1, {"load": FULL}, None),
        (8, 8, {"load": STARTED}, None),  # for a moment only, as servers that start beside the model
        (8, 8, {"load": PAST}, None),  # for example what an installation left of the average
        (8, 8, {"load": IDLE, "group": GROUP, "quota": "250000 100000\n"}, 3),
        (8, 8, {"load": IDLE, "group": GROUP, "quota": "max 100000\n"}, None),
        (8, 8, {"load": IDLE, "group": GROUP, "quota": "20000 100000\n"}, 1),
        (8, 8, {}, None),  # no /proc
    ],
)
def test_threads_are_the_free_cores(
    cores: int, usable: int, files: dict[str, Any], threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(usable)}, raising=False)
    assert free_threads(machine(tmp_path, cores, files)) == threads


def test_two_threads_of_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    assert free_threads(machine(tmp_path, 4, {"load": BUSY}, siblings=2)) == 2


def test_other_systems_leave_it_to_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert free_threads(machine(tmp_path, 8, {"load": FULL})) is None
