"""The judge beside BFCL's official checker, on its ground truths and on mutations of them."""

import re
from collections import Counter
from pathlib import Path

import pytest
from bfcl_mutations import drawn
from bfcl_official import official_judge

from xmlcall.bench.data import bfcl_wheel
from xmlcall.bench.judge import judge
from xmlcall.errors import BackendUnavailable


@pytest.fixture(scope="session")
def wheel() -> Path:
    try:
        return bfcl_wheel()
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")


def test_the_judge_agrees_with_the_official_checker(wheel: Path, tmp_path: Path) -> None:
    official = official_judge(wheel, tmp_path)
    seen: Counter[str] = Counter()
    for calls, case, functions in drawn(wheel, each=5):
        expected = official(calls, functions, case.answers, case.category)
        got = judge(calls, case.tools, case.answers, case.category)
        assert got == re.sub(r"^\w*function_checker\w*:", "", expected), (case.id, calls, expected)
        seen[got] += 1
    assert seen.total() > 14_000
    assert seen[""] > 3_000
    assert len(seen) > 12
