"""What the linter cannot hold: lengths, and names that say nothing."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from structure import LONG, Function, length

ROOT = Path(__file__).parents[1]
LONG_MODULE = 800
LOOKING = {"endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rfind", "rpartition", "startswith"}
EMPTY_NAMES = {"base_utils", "common", "helper", "helpers", "misc", "util", "utilities", "utils"}


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in path.parts]


PACKAGE, PROGRAMS = files("xmlcall"), files("benchmarks", "examples", "tests")


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


@pytest.mark.parametrize("paths", [PACKAGE, PROGRAMS], ids=["the package", "tests and programs"])
def test_no_function_is_long(paths: list[Path]) -> None:
    told = [
        f"{path.name}: {node.name}, {length(node)} lines" for path in paths for node in functions(path) if length(node) > LONG
    ]
    assert told == []


def test_no_module_is_long() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE}
    assert [f"{path.name}: {count} lines" for path, count in lines.items() if count > LONG_MODULE] == []


def test_names_of_modules_say_what_is_in_them() -> None:
    assert [str(path) for path in PACKAGE if {path.stem, path.parent.name} & EMPTY_NAMES] == []


def test_our_own_words_are_read_out_of_a_text_in_one_place() -> None:
    """What a message was written from stands beside its text (`Message.written`); only `dialects/replies.py` has to look for it.

    Counted are calls of `result_form_of` and `.places`, which read the marks around results, and calls that look for something in
    a message's `.content` or a prompt's `.system`: its methods of `LOOKING`. `leaks` reads marks in what a model wrote.
    """
    found = Counter(
        path.name for path in PACKAGE for node in ast.walk(ast.parse(path.read_text("utf-8"))) if _reads_our_words(node)
    )
    assert found == {"replies.py": 6, "leaks.py": 1}


def _reads_our_words(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if not isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func) == "result_form_of"
    text = node.func.value
    is_ours = isinstance(text, ast.Attribute) and text.attr in ("content", "system")
    return node.func.attr == "places" or (is_ours and node.func.attr in LOOKING)


def test_no_failure_is_passed_over_in_silence() -> None:
    """`except Exception: pass`, or one that names no exception at all."""
    handlers = [
        (path.name, node)
        for path in PACKAGE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
    ]
    names = {None, "Exception", "BaseException"}
    silent = [
        f"{name}, line {node.lineno}"
        for name, node in handlers
        if (ast.unparse(node.type) if node.type else None) in names and isinstance(node.body[0], ast.Pass)
    ]
    assert handlers
    assert silent == []
