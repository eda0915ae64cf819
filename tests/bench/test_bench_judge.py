"""The judge beside BFCL's official checker, on its ground truths and on mutations of them."""

import json
import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bfcl_official import official_judge

from xmlcall.bench.bfcl import AST_CATEGORIES, read_cases
from xmlcall.bench.data import bfcl_wheel
from xmlcall.bench.judge import Call, judge
from xmlcall.bench.oracle import oracle_calls
from xmlcall.errors import BackendUnavailable

VALUES: tuple[Any, ...] = (None, True, 0, 5, 5.0, 2.5, "", "a", "A-1, b", [], ["a"], [1, 2], [[]], {}, {"a": 1}, [{"a": 1}], [{}])


@pytest.fixture(scope="session")
def wheel() -> Path:
    try:
        return bfcl_wheel()
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")


def functions_of(wheel: Path, category: str) -> list[Any]:
    with zipfile.ZipFile(wheel) as archive:
        lines = archive.read(f"bfcl_eval/data/BFCL_v4_{category}.json").decode().splitlines()
    return [json.loads(line)["function"] for line in lines if line]


def mutated(value: Any, randomly: random.Random) -> Any:
    """A value that differs a little, or wholly."""
    match value:
        case str() if randomly.random() < 0.5:
            return randomly.choice([value.upper(), f" {value}.", value.replace("'", '"'), f"{value}x", ""])
        case bool():
            return randomly.choice([not value, int(value), str(value)])
        case int() | float() if randomly.random() < 0.6:
            return randomly.choice([float(value), int(value), value + 1, str(value)])
        case list() if value and randomly.random() < 0.7:
            index = randomly.randrange(len(value))
            changed = [*value[:index], mutated(value[index], randomly), *value[index + 1 :]]
            return randomly.choice([changed, value[:-1], [*value, value[0]], list(reversed(value))])
        case dict() if value and randomly.random() < 0.7:
            key = randomly.choice(list(value))
            without = {name: each for name, each in value.items() if name != key}
            return randomly.choice([{**value, key: mutated(value[key], randomly)}, without, {**value, "else": 1}])
    return randomly.choice(VALUES)


def mutations(calls: Sequence[Call], randomly: random.Random) -> list[Call]:
    """Calls with one or two things changed: a value, a parameter, a name, their number, their order."""
    changed = [(name, dict(arguments)) for name, arguments in calls]
    for _ in range(randomly.choice([1, 1, 2])):
        index = randomly.randrange(len(changed))
        name, arguments = changed[index]
        match randomly.choice(["value", "value", "value", "left out", "added", "name", "dropped", "twice", "order"]):
            case "value" if arguments:
                key = randomly.choice(list(arguments))
                arguments[key] = mutated(arguments[key], randomly)
            case "left out" if arguments:
                del arguments[randomly.choice(list(arguments))]
            case "added":
                arguments[randomly.choice(["unit", "else"])] = randomly.choice(VALUES)
            case "name":
                changed[index] = (name.replace(".", "_") + randomly.choice(["", "x"]), arguments)
            case "dropped" if len(changed) > 1:
                del changed[index]
            case "twice":
                changed.append(changed[index])
            case "order":
                randomly.shuffle(changed)
    return [*changed]


def drawn(wheel: Path, each: int) -> Iterator[tuple[str, Sequence[Call], Any, Any]]:
    randomly = random.Random(20261121)
    for category in AST_CATEGORIES:
        for case, functions in zip(read_cases(wheel, category), functions_of(wheel, category), strict=True):
            calls = oracle_calls(case)
            yield case.id, calls, case, functions
            for _ in range(each):
                yield case.id, mutations(calls, randomly), case, functions


def test_the_judge_agrees_with_the_official_checker(wheel: Path, tmp_path: Path) -> None:
    official = official_judge(wheel, tmp_path)
    seen: Counter[str] = Counter()
    for case_id, calls, case, functions in drawn(wheel, each=5):
        expected = official(calls, functions, case.answers, case.category)
        got = judge(calls, case.tools, case.answers, case.category)
        assert got == re.sub(r"^\w*function_checker\w*:", "", expected), (case_id, calls, expected)
        seen[got] += 1
    assert seen.total() > 14_000
    assert seen[""] > 3_000
    assert len(seen) > 12
