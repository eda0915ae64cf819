"""Name the tests of what was changed: `pytest $(python tests/changed.py)`, or `make quick`.

Changed is what differs from the last commit, new files included; if nothing does, what the last commit changed. For a test file
that is the file. For a module of the package it is the tests of its folder, or of these the ones with its name if there are any.
Import layers, style and the parser's corpus come with all. `--explain` says which file led to which tests.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_layers.py", "tests/test_style.py", "tests/parsing/test_parser_corpus.py")
# Folders of the pure core: the tests that most often break with them.
NEAR = {
    "types": ("parsing", "binding"),
    "dialects": ("dialects", "parsing", "prompting"),
    "schema": ("schema", "binding"),
    "tools": ("binding", "prompting"),
    "parsing": ("parsing", "binding"),
    "binding": ("binding", "agent/test_dependent_calls.py"),
    "prompts": ("prompting",),
}
CORE = ("loosejson", "schema", "binding", "parsing", "dialects", "prompting")  # where nothing of the package was changed


def changed_files() -> list[str]:
    """Return the files that differ from the last commit, or that it changed."""
    status = _git("status", "--porcelain", "--untracked-files=all", "--no-renames")
    return [line[3:] for line in status] or _git("diff", "--name-only", "HEAD~1")


def relevant_to(file: str) -> list[str]:
    """Return the test files and folders that look at a file; none if nothing does."""
    path = Path(file)
    if path.parts[0] == "tests":
        return [file] if path.name.startswith("test_") else _beside(path)
    if path.parts[0] == "prompts":
        return _existing(NEAR["prompts"])
    if path.parts[0] != "xmlcall" or len(path.parts) < 3:
        return []
    folder = path.parts[1]
    named = [test for test in (ROOT / "tests" / folder).rglob("test_*.py") if f"_{path.stem}_" in f"{test.stem}_"]
    if folder not in NEAR and named:
        return sorted(str(test.relative_to(ROOT)) for test in named)
    return _existing(NEAR.get(folder, (folder,)))


def _beside(path: Path) -> list[str]:
    """Return the folder of a file that tests use; what all of them use names none."""
    return [str(Path(*path.parts[:2]))] if len(path.parts) > 2 and _has_tests(path.parts[1]) else []


def _has_tests(folder: str) -> bool:
    return any((ROOT / "tests" / folder).glob("test_*.py"))


def _existing(names: Iterable[str]) -> list[str]:
    return [f"tests/{name}" for name in names if (ROOT / "tests" / name).exists()]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    """Print the tests, each once."""
    found = {file: [test for test in relevant_to(file) if (ROOT / test).exists()] for file in changed_files()}
    if "--explain" in sys.argv:
        for file, tests in found.items():
            print(f"{file}: {' '.join(tests) or 'none'}")
        return
    chosen = dict.fromkeys(test for tests in found.values() for test in tests)
    print(*(chosen or _existing(CORE)), *ALWAYS)


if __name__ == "__main__":
    main()
