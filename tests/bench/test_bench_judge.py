"""The judge beside BFCL's official checker, on its ground truths and on mutations of them."""

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest
from bfcl_mutations import drawn
from bfcl_official import official_judge
from profiles import is_deep

from xmlcall.bench.bfcl import bfcl_wheel
from xmlcall.bench.judge import judge
from xmlcall.errors import BackendUnavailable


@pytest.fixture(scope="session")
def wheel() -> Path:
    try:
        return bfcl_wheel()
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")


@pytest.mark.sweep
def test_the_judge_agrees_with_the_official_checker(wheel: Path, tmp_path: Path) -> None:
    official = official_judge(wheel, tmp_path)
    seen: Counter[str] = Counter()
    step = 1 if is_deep() else 7
    for calls, case, functions in itertools.islice(drawn(wheel, each=5), 0, None, step):
        expected = official(calls, functions, case.answers, case.category)
        got = judge(calls, case.tools, case.answers, case.category)
        assert got == re.sub(r"^\w*function_checker\w*:", "", expected), (case.id, calls, expected)
        seen[got] += 1
    assert seen.total() > 14_000 / step
    assert seen[""] > 3_000 / step
    assert len(seen) > 12
