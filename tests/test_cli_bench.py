"""`xmlcall bench` as a person uses it, with stand-ins."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def bench(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xmlcall", "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, ways in (("oracle", ("xml", "native")), ("mutator", ("xml",))):
        options = [each for way in ways for each in ("--way", way)]
        done = bench("run", "--model", name, "--suite", "smoke", *options, "--out", folder / name)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert f"xmlcall bench report {folder / name}" in done.stdout
    return folder


def test_a_report_as_json(runs: Path) -> None:
    done = bench("report", runs / "oracle", "--json", "--fail-under", "task_correct=1")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["metrics"]["task_correct"] == {"count": 50, "total": 50, "low": 0.9287, "high": 1.0}
    assert set(report["ways"]) == {"xml", "native"}
    for key in ("commit", "command", "prompts", "xmlcall", "settings", "cases"):
        assert report["run"][key]


def test_a_report_for_people(runs: Path) -> None:
    table = bench("report", runs / "mutator").stdout
    assert "call_correct" in table
    assert "unknown_tool 8" in table
    markdown = bench("report", runs / "oracle", runs / "mutator", "--markdown").stdout
    assert markdown.count("| call_correct |") == 2
    assert "| call_correct | 100.0 % [91-100]  40/40 | 100.0 % [91-100]  40/40 |" in markdown


def test_gates(runs: Path) -> None:
    done = bench("report", runs / "mutator", "--fail-under", "call_correct=0.9")
    assert done.returncode == 1
    assert "xml: call_correct is 0.400 (16/40), expected at least 0.9" in done.stderr
    assert bench("report", runs / "mutator", "--fail-under", "beauty=1").returncode == 2


def test_two_runs_compared(runs: Path) -> None:
    done = bench("compare", f"{runs}/oracle:xml", runs / "mutator", "--json", "--max-drop", "2")
    assert done.returncode == 1
    assert "call_correct fell from 40 to 16 of 40" in done.stderr
    assert json.loads(done.stdout)["metrics"]["call_correct"]["only_first"] == 24
    shown = bench("compare", f"{runs}/oracle:native", runs / "mutator").stdout
    assert "only B is right: none" in shown
    wrong = bench("compare", runs / "oracle", runs / "mutator")
    assert wrong.returncode == 2
    assert "expected RUN:WAY" in wrong.stderr


def test_a_case_is_shown(runs: Path) -> None:
    shown = bench("show", runs / "mutator", "smoke-en-01").stdout
    for part in ("--- system", "--- user", "the reply of round 1", "read as", "===== expected", "verdict:"):
        assert part in shown
    assert bench("show", runs / "mutator", "nothing").returncode == 2


def test_a_run_is_judged_again(runs: Path) -> None:
    assert bench("rescore", runs / "mutator").stdout == "50 replies judged again, 0 changed\n"
    assert bench("rescore", runs / "mutator", "--json").stdout == "[]\n"


def test_a_run_is_not_made_twice(runs: Path) -> None:
    before = (runs / "oracle" / "replies.jsonl").read_bytes()
    done = bench("run", "--model", "oracle", "--suite", "smoke", "--way", "xml", "--way", "native", "--out", runs / "oracle")
    assert done.returncode == 0
    assert (runs / "oracle" / "replies.jsonl").read_bytes() == before
    other = bench("run", "--model", "oracle", "--suite", "smoke", "--out", runs / "oracle")
    assert other.returncode == 2
    assert "another configuration" in other.stderr


@pytest.mark.parametrize("wrong", [["--way", "telepathy"], ["--suite", "nothing"], ["--limit", "0"]])
def test_wrong_options(tmp_path: Path, wrong: list[str]) -> None:
    done = bench("run", "--model", "oracle", "--out", tmp_path / "run", *wrong)
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()
