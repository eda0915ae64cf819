"""What the linter cannot hold: lengths, and names that say nothing."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from structure import LONG, Function, length

ROOT = Path(__file__).parents[1]
LONG_MODULE = 800
LOOKING = {"endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rfind", "rpartition", "startswith"}
EMPTY_NAMES = {"base_utils", "common", "helper", "helpers", "misc", "util", "utilities", "utils"}


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in path.parts]


PACKAGE, PROGRAMS = files("xmlcall"), files("benchmarks", "examples", "tests")


class Found(NamedTuple):
    """What is looked for in a file: classes, long functions, calls that read our own words, handlers, of them those that pass."""

    classes: list[str]
    long: list[str]
    readings: int
    handlers: int
    silent: list[str]


@cache
def found(path: Path) -> Found:
    """Parse a file once for all tests."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = [(node.name, length(node)) for node in nodes if isinstance(node, Function)]
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]
    return Found(
        [node.name for node in nodes if isinstance(node, ast.ClassDef)],
        [f"{path.name}: {name}, {lines} lines" for name, lines in functions if lines > LONG],
        sum(map(_reads_our_words, nodes)),
        len(handlers),
        [f"{path.name}, line {node.lineno}" for node in handlers if _is_silent(node)],
    )


@pytest.mark.parametrize("paths", [PACKAGE, PROGRAMS], ids=["the package", "tests and programs"])
def test_no_function_is_long(paths: list[Path]) -> None:
    assert [told for path in paths for told in found(path).long] == []


def test_no_module_is_long() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE}
    assert [f"{path.name}: {count} lines" for path, count in lines.items() if count > LONG_MODULE] == []


def test_names_of_modules_say_what_is_in_them() -> None:
    assert [str(path) for path in PACKAGE if {path.stem, path.parent.name} & EMPTY_NAMES] == []


def test_the_name_of_a_class_stands_once() -> None:
    counted = Counter(name for path in PACKAGE for name in found(path).classes)
    assert len(counted) > 500
    assert [name for name, count in counted.items() if count > 1] == []


def test_our_own_words_are_read_out_of_a_text_in_one_place() -> None:
    """What a message was written from stands beside its text (`Message.written`); only `dialects/write.py` has to look for it.

    Counted are calls of `result_form_of` and `.places`, which read the marks around results, and calls that look for something in
    a message's `.content` or a prompt's `.system`: its methods of `LOOKING`. `leaks` reads marks in what a model wrote.
    """
    readings = {path.relative_to(ROOT).as_posix(): count for path in PACKAGE if (count := found(path).readings)}
    assert readings == {"xmlcall/dialects/write.py": 6, "xmlcall/prompting/leaks.py": 1}


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
    assert sum(found(path).handlers for path in PACKAGE)
    assert [told for path in PACKAGE for told in found(path).silent] == []


def _is_silent(handler: ast.ExceptHandler) -> bool:
    name = ast.unparse(handler.type) if handler.type else None
    return name in (None, "Exception", "BaseException") and isinstance(handler.body[0], ast.Pass)
