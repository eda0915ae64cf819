"""The programs of benchmarks/ that tell about the code itself run, and count what they say they count."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structure

ROOT = Path(__file__).parents[1]


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "benchmarks" / program), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.full
def test_the_figures_of_the_structure() -> None:
    done = run("structure.py", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["now"]
    assert found["modules"] == len([*(ROOT / "xmlcall").rglob("*.py")])
    assert found["functions over 60 lines"] == 0
    assert 0 < found["changes of module for a call"] < found["Python calls for a call"]
    assert found["lines of code"] < found["lines"]
    assert run("structure.py", "--write").returncode == 2


TOP = '''from dataclasses import dataclass


@dataclass
class C:
    a: int
    b: int


def f(a, *b, c=1):
    """Doc.

    More.
    """
    from ..mid import two
    text = """

    """
    return text
'''
PACKAGE = {
    "__init__.py": '"""Doc."""\n\nfrom .top.one import f as f\n',
    "low.py": '"""Doc."""\n\nX = 1  # a\n\n# alone\n',
    "mid/__init__.py": "",
    "mid/two.py": "from ..low import X\nfrom xmlcall.mid import three\n",
    "mid/three.py": "",
    "top/one.py": TOP,
}


def test_what_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"xmlcall/{name}": text for name, text in PACKAGE.items()}
    for name, text in {**files, "tests/test_a.py": "x\n", "docs/a.md": "a\nb\nc\n", "docs/b.md": "b\n"}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(structure, "traced", lambda tree: (1, 2))
    assert structure.figures(tmp_path) == {
        "modules in the root": 2,
        "rooms": 3,
        "arrows between rooms": 2,
        "floors of imports": 3,
        "modules": 6,
        "lines": 29,
        "lines of code": 15,
        "changes of module for a call": 1,
        "Python calls for a call": 2,
        "lines of the turn": 0,
        "median lines of a function": 10,
        "functions over 60 lines": 0,
        "longest function": "10 (top.one.f)",
        "most parameters": "3 (top.one.f)",
        "most fields": "2 (top.one.C)",
        "lines of docstrings": 6,
        "lines with a comment, %": 6,
        "modules of fewer than 60 lines": 4,
        "modules with one importer": 4,
        "worst words": 0,
        "lines of tests": 1,
        "pages of docs": 2,
        "lines of the longest page": 3,
    }


@pytest.mark.full
def test_a_run_is_judged_again() -> None:
    """By this checkout's code, so that nothing changes; a checkout without history has no other code to judge by."""
    smoke = ROOT / "benchmarks" / "results" / "runs" / "smoke-0.5b"
    done = run("rescore_all.py", str(smoke), "--against", "HEAD", "--json")
    if "not a git repository" in done.stderr:
        pytest.skip("needs the history of the project")
    assert done.returncode in (0, 1), done.stderr
    assert isinstance(json.loads(done.stdout), list)
