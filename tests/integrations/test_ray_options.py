"""What `xmlcall bench` says of `--on ray` before it asks Ray; no cluster runs."""

import sys
from pathlib import Path

import pytest
from cli_harness import run_here

RUNS = Path(__file__).parents[2] / "benchmarks" / "results" / "runs"
NOWHERE = "http://127.0.0.1:9/v1"

APART = {
    "several servers without Ray": (["--model", NOWHERE, "--server", NOWHERE], "--on ray"),
    "a stand-in on Ray": (["--model", "oracle", "--on", "ray"], "stand-in"),
}


@pytest.mark.parametrize(("options", "told"), APART.values(), ids=APART)
def test_what_does_not_go_together_is_refused(options: list[str], told: str, tmp_path: Path) -> None:
    done = run_here("bench", "run", *options, "--out", tmp_path / "run")
    assert (done.returncode, told in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()


def test_without_ray_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")  # without it a command sets variables of this process
    monkeypatch.setitem(sys.modules, "ray", None)
    done = run_here("bench", "rescore", RUNS / "talk-final-1.5b", "--on", "ray")
    assert (done.returncode, "pip install 'xmlcall[ray]'" in done.stderr) == (2, True)
