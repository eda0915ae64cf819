"""`bench rescore --on ray` gives what it gives without, and says what is missing."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_harness import environment, run_here
from rescore_all import unpacked

RUNS = Path(__file__).parents[2] / "benchmarks" / "results" / "runs"
JUDGED = ("probe-1.5b-xml-list-threshold-off", "tuning-constrained-0.5b")
HAS_RAY_DATA = all(importlib.util.find_spec(name) for name in ("ray", "pandas", "pyarrow"))
# 0: Ray looks for no address but loopback
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class Rows:
    """A data set of Ray's, played by a list."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def map(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> "Rows":
        return Rows([change(row) for row in self._rows])

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Play Ray by a few lines; return with what it is started."""
    started: list[dict[str, Any]] = []
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")  # without it a command sets variables of this process
    errors = SimpleNamespace(RayError=type("RayError", (Exception,), {}))
    ray = SimpleNamespace(init=lambda **given: started.append(given), shutdown=lambda: None, exceptions=errors)
    context = SimpleNamespace(execution_options=SimpleNamespace(preserve_order=False), enable_progress_bars=True)
    data = SimpleNamespace(
        DataContext=SimpleNamespace(get_current=lambda: context), from_items=lambda items, *, override_num_blocks: Rows(items)
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    return started


def copies(folder: Path) -> list[Path]:
    """Unpack recorded runs, so that their scores may be written."""
    for name in JUDGED:
        unpacked(RUNS / name, folder / name)
    return [folder / name for name in JUDGED]


def damaged(run: Path) -> Path:
    """Damage a line of a run."""
    file = run / "replies.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[20] = lines[20].replace('"rounds"', '"round"')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run


def test_a_map_over_runs_gives_their_verdicts(played: list[dict[str, Any]], tmp_path: Path) -> None:
    here, there = copies(tmp_path / "here"), copies(tmp_path / "there")
    alone, mapped = run_here("bench", "rescore", *here), run_here("bench", "rescore", *there, "--on", "ray")
    assert (mapped.returncode, len(played)) == (0, 1)
    assert mapped.stdout.replace(str(tmp_path / "there"), str(tmp_path / "here")) == alone.stdout
    assert [(run / "scores.json").read_bytes() for run in there] == [(run / "scores.json").read_bytes() for run in here]


def test_a_damaged_line_is_named_as_without_ray(played: list[dict[str, Any]], tmp_path: Path) -> None:
    run = damaged(copies(tmp_path)[0])
    said = [run_here("bench", "rescore", run, *on) for on in ((), ("--on", "ray"))]
    assert said[0].returncode == said[1].returncode == 1
    assert "replies.jsonl, line 21 is damaged" in said[0].stderr
    assert said[0].stderr.splitlines()[-1] == said[1].stderr.splitlines()[-1]


def test_what_is_no_run_is_told_before_ray_starts(played: list[dict[str, Any]], tmp_path: Path) -> None:
    done = run_here("bench", "rescore", tmp_path, "--on", "ray")
    assert (done.returncode, "expected the folder of a run" in done.stderr, played) == (2, True, [])


def test_without_ray_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "ray", None)
    done = run_here("bench", "rescore", RUNS / "talk-final-1.5b", "--on", "ray")
    assert (done.returncode, "[ray]'" in done.stderr) == (2, True)


@pytest.mark.full  # starts Ray
@pytest.mark.timeout(180)
@pytest.mark.skipif(not HAS_RAY_DATA, reason="Ray Data is not installed: pip install 'xmlcall[ray]'")
def test_ray_data_gives_the_same_verdicts(tmp_path: Path) -> None:
    here, there = copies(tmp_path / "here"), copies(tmp_path / "there")
    alone = run_here("bench", "rescore", *here, "--json")
    code, said = on_ray("bench", "rescore", *map(str, there), "--on", "ray", "--json", home=tmp_path)
    assert (code, json.loads(said)) == (0, json.loads(alone.stdout.replace("/here/", "/there/")))
    assert [(run / "scores.json").read_bytes() for run in there] == [(run / "scores.json").read_bytes() for run in here]


def on_ray(*command: str, home: Path) -> tuple[int, str]:
    """Run a command that starts Ray, away from other clusters of this machine, and end all that it started."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "xmlcall", *command],
            env=environment(home, {**QUIET, "RAY_TMPDIR": folder}),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=150)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said
