"""`benchmarks/sampling.py`: the table of greedy and recommended sampling, with stand-ins whose score is known."""

import json
import sys
from pathlib import Path

import pytest
import sampling

Capture = pytest.CaptureFixture[str]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sampling.py", *words])
    sampling.main()


@pytest.mark.parametrize(
    ("model", "words", "row"),
    [
        ("oracle", ["--suite", "ordinary", "--limit", "4"], "| ordinary | 4/4 [51-100] | 4.0/4 (4 to 4) | +0.0 [+0.0 to +0.0] |"),
        ("oracle", ["--suite", "talk", "--limit", "1"], " to 4) | +0.0 [+0.0 to +0.0] |"),
        ("mutator", ["--suite", "smoke", "--limit", "10"], "| smoke | 6/10 [31-83] | 6.0/10 (6 to 6) | +0.0 [+0.0 to +0.0] |"),
    ],
)
def test_stand_ins_score_the_same_with_both(
    tmp_path: Path, model: str, words: list[str], row: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run(monkeypatch, "--model", model, "--out", str(tmp_path), "--seeds", "1", *words)
    assert capsys.readouterr().out.splitlines()[-1].endswith(row)
    settings = {path.parent.name: json.loads(path.read_text())["settings"] for path in tmp_path.glob("*/run.json")}
    suite = words[1]
    assert {name: (each.get("sampling"), each.get("temperature"), each["seed"]) for name, each in settings.items()} == {
        f"{suite}-greedy": (None, 0.0, 1),
        f"{suite}-seed-1": ("recommended", None, 1),
    }


def test_a_row_counts_each_case_once() -> None:
    greedy = {"a": True, "b": False, "c": True, "d": False, "unanswered": True}
    seeded = [{"a": True, "b": True, "c": True, "d": False}, {"a": True, "b": False, "c": False, "d": False}]
    assert sampling.row("x", greedy, seeded) == "| x | 2/4 [15-85] | 2.0/4 (1 to 3) | +0.0 [-40.0 to +40.0] |"
    better = [{"a": True, "b": True, "c": True, "d": True}] * 3
    assert sampling.row("x", greedy, better).endswith("| 4.0/4 (4 to 4) | +50.0 [-6.6 to +106.6] |")


def test_at_least_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "--model", "oracle", "--out", str(tmp_path), "--seeds", "0")
    assert "--seeds: expected at least 1, got 0" in capsys.readouterr().err
