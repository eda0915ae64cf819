"""Text that repeats without end (tests/parsing/runaway.toml), whole and in chunks."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from xmlcall.parsing.repetition import Runaway

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).with_name("runaway.toml")).read_text(encoding="utf-8"))["case"]


def text_of(case: dict[str, Any]) -> str:
    units = (case["unit"].replace("{n}", str(n)).replace("{square}", str(n * n)) for n in range(1, case["times"] + 1))
    return "".join([case.get("before", ""), *units])


def found(text: str, sizes: list[int]) -> tuple[int | None, int, int]:
    """Feed a text in chunks of these sizes, again and again."""
    watch, at, turn = Runaway(), 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        said = watch.feed(text[at : at + size])
        assert said == (watch.end is not None)
        at, turn = at + size, turn + 1
    return watch.end, watch.start, watch.period


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_text_is_ended_where_it_repeats_without_end(case: dict[str, Any]) -> None:
    text, before = text_of(case), len(case.get("before", ""))
    end, start, period = found(text, [len(text)])
    assert (end is not None) is case["stops"]
    if end is not None:
        assert end - before <= case["within"]
        assert before - period < start <= before
        if "{n}" not in case["unit"]:
            assert period == len(case["unit"])
    for sizes in ([1], [7], [3, 64, 1]):
        assert found(text, sizes) == (end, start, period)


PIECES = ["a", "ab ", "The same line.\n", "Item number {}\n", "x" * 90, "\n", "是的。", "| 1 | 2 |\n"]


@settings(max_examples=examples(150), deadline=None)
@given(
    parts=st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 120)), max_size=5),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
)
def test_chunks_do_not_matter(parts: list[tuple[str, int]], sizes: list[int]) -> None:
    text = "".join(piece.replace("{}", str(n)) for piece, times in parts for n in range(times))
    whole = found(text, [max(len(text), 1)])
    assert found(text, sizes) == whole
    end, start, period = whole
    if end is not None and "Item" not in text[start:end]:
        assert text[start : end - period] == text[start + period : end]


def test_memory_is_bounded() -> None:
    watch = Runaway()
    for number in range(20_000):
        watch.feed(f"{number * number} and so on ")
    assert sum(len(value) for value in vars(watch).values() if isinstance(value, str)) < 5000
