"""The programs of examples/engines/ say what they do, in the newest release of each engine."""

import subprocess
import sys
from pathlib import Path

import pytest
from engines.fetch import RELEASES, folder_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "engines"
NEWEST = dict(reversed(RELEASES))  # the last one of each name counts


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {f"{engine}_parser.py" for engine in NEWEST}


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", NEWEST)
def test_an_example(engine: str) -> None:
    folder = folder_of(engine, NEWEST[engine])
    if not folder.exists():
        pytest.skip(f"no files of {engine} {NEWEST[engine]}: python tests/engines/fetch.py")
    program = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from engines.fetch import folder_of
from engines.stand_ins import prepare
prepare({engine!r}, folder_of({engine!r}, {NEWEST[engine]!r}))
runpy.run_path({str(EXAMPLES / f"{engine}_parser.py")!r}, run_name="__main__")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert "".join(line.removeprefix("text: ").strip("'") for line in lines if line.startswith("text")) == "Let me look."
    assert lines[-2:] == ["call: get_weather ", 'call:  {"city": "Oslo", "days": 3}']
