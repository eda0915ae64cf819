"""BFCL's right calls, and mutations of them that a judge must tell apart."""

import json
import random
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xmlcall.bench.bfcl import AST_CATEGORIES, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.judge import Call
from xmlcall.bench.subjects import oracle_calls

VALUES: tuple[Any, ...] = (None, True, 0, 5, 5.0, 2.5, "", "a", "A-1, b", [], ["a"], [1, 2], [[]], {}, {"a": 1}, [{"a": 1}], [{}])


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


def drawn(wheel: Path, each: int) -> Iterator[tuple[Sequence[Call], Case, Any]]:
    """Yield for every case with answers its right calls, and so many mutations of them, with BFCL's own form of its tools."""
    randomly = random.Random(20261121)
    for category in AST_CATEGORIES:
        for case, functions in zip(read_cases(wheel, category), functions_of(wheel, category), strict=True):
            calls = oracle_calls(case)
            yield calls, case, functions
            for _ in range(each):
                yield mutations(calls, randomly), case, functions
