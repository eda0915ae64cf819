"""The suites by name, and samples of them.

A sample takes the same number of cases from each category, drawn with a seed. One half is for tuning a prompt and the other for
reporting, so that published numbers contain no case that a prompt was fitted to. Cases of different categories alternate, so the
first part of a run is a sample, too.
"""

import hashlib
import json
import random
import string
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from .bfcl import AST_CATEGORIES, bfcl_wheel, read_cases
from .case import Case, case_to_json, read_data
from .own_suites import catalog_cases, long_cases, needed_cases, ordinary_cases, smoke_cases, talk_cases, wire_cases

Half = Literal["tuning", "report", "all"]

_CORE = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
_TUNING = {
    **dict.fromkeys(("simple_python", "multiple", "parallel", "parallel_multiple"), 30),
    "live_simple": 20,
    "live_multiple": 40,
    "irrelevance": 40,
    "live_irrelevance": 20,
}
_REPORT = dict.fromkeys(_CORE, 60)
_TUNING_SEED, _REPORT_SEED, _EARLIER_SEEDS = 7, 2611, (1, 7)
_LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance")


def _bfcl(categories: Iterable[str]) -> list[Case]:
    wheel = bfcl_wheel()
    return [case for category in categories for case in _category(wheel, category)]


@cache
def _category(wheel: Path, category: str) -> tuple[Case, ...]:
    """Read a category once: samples are drawn from what others leave."""
    return tuple(read_cases(wheel, category))


def _format_sensitivity() -> list[Case]:
    with zipfile.ZipFile(bfcl_wheel()) as archive:
        wanted = json.loads(archive.read("bfcl_eval/data/BFCL_v4_format_sensitivity.json"))
    ids = {each for category in wanted.values() for each in category}
    return [case for case in _bfcl(AST_CATEGORIES) if case.id in ids]


def _drawn(sizes: Mapping[str, int], seed: int, without: Collection[str]) -> list[Case]:
    """Draw this many cases of each category, none of them in `without`; the categories alternate."""
    left = {category: [case for case in _bfcl([category]) if case.id not in without] for category in sizes}
    drawn = [sample(cases, limit=sizes[category], seed=seed) for category, cases in left.items()]
    return [case for row in zip_longest(*drawn) for case in row if case is not None]


def _tuning() -> list[Case]:
    """Return the cases that decide settings: from bfcl-core and real users, without those on which BFCL compares formats."""
    return _drawn(_TUNING, _TUNING_SEED, {case.id for case in _format_sensitivity()})


def _report() -> list[Case]:
    """Return 300 cases that decided no setting: none was asked before, and BFCL compares formats on none of them."""
    earlier = [case for seed in _EARLIER_SEEDS for case in sample(_bfcl(_CORE), limit=200, seed=seed)]
    asked = {f"{category}_{number}" for category, numbers in read_data("bfcl")["asked"].items() for number in numbers}
    return _drawn(_REPORT, _REPORT_SEED, asked | {case.id for case in (*earlier, *_tuning(), *_format_sensitivity())})


SUITES: dict[str, tuple[Callable[[], list[Case]], str]] = {
    "ordinary": (ordinary_cases, "176 requests that need no tool, each with two of nine catalogs on offer; half in Chinese"),
    "needed": (needed_cases, "144 requests that need a tool of one of the catalogs; half in Chinese"),
    "talk": (talk_cases, "64 conversations with five MCP servers, half of them in Chinese; judged turn by turn"),
    "smoke": (smoke_cases, "50 cases of our own, half of them in Chinese"),
    "wire": (wire_cases, "values that are hard to carry, judged to the last character"),
    "bfcl-fs200": (_format_sensitivity, "the 200 cases that BFCL compares formats on"),
    "bfcl-core": (lambda: _bfcl(_CORE), "BFCL's simple, multiple and parallel questions, and irrelevant ones; 1,240"),
    "bfcl-tuning": (_tuning, "240 of BFCL's questions, by which settings are chosen; 60 need no call"),
    "bfcl-report": (_report, "300 others of bfcl-core, to report what was chosen; 60 need no call"),
    "bfcl-live": (lambda: _bfcl(_LIVE), "BFCL's questions of real users; 2,251"),
    "catalog": (catalog_cases, "the right tool among 1, 10, 50, 100 and 200 real ones; 200"),
    "long": (long_cases, "the same calls at turn 1, 5, 10, 20 and 40 of a conversation, with 10 and 50 tools; 320"),
}
"""Name -> how to get its cases, and a line about it."""

_BLOCKS: dict[str, Callable[[Case], Any]] = {
    "long": lambda case: case.category,
    "ordinary": lambda case: case.servers,
    "needed": lambda case: case.servers,
}
"""Suite -> what identifies cases with the same long prompt: they are asked in a row, so that it stays in the server's cache."""


def cases_of(suite: str, *, limit: int | None = None, seed: int = 1, half: Half = "all") -> list[Case]:
    if suite not in SUITES:
        raise UsageError(f"unknown suite {suite!r}; known: {', '.join(SUITES)}")
    drawn = sample(SUITES[suite][0](), limit=limit, seed=seed, half=half)
    if suite not in _BLOCKS:
        return drawn
    of, blocks = _BLOCKS[suite], dict.fromkeys(map(_BLOCKS[suite], drawn))
    return [case for block in blocks for case in drawn if of(case) == block]


def sample(cases: Iterable[Case], *, limit: int | None = None, seed: int = 1, half: Half = "all") -> list[Case]:
    """Draw cases, the same number of each category as far as there are enough, in turns.

    A larger limit draws those of a smaller one and more. A half is every other case of a category, unless a case says its half.
    """
    cases = [case for case in cases if half == "all" or case.half in ("", half)]
    by_category: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_category[case.category].append(case)
    for category, of_category in by_category.items():
        # Without its number, so that the sizes of `catalog` are asked the same questions.
        random.Random(f"{seed} {category.rstrip(string.digits)}").shuffle(of_category)
    turns = [case for row in zip_longest(*by_category.values()) for case in row if case is not None][:limit]
    if half == "all":
        return turns
    chosen: list[Case] = []
    seen: dict[str, int] = defaultdict(int)
    for case in turns:
        if case.half or seen[case.category] % 2 == (half == "report"):
            chosen.append(case)
        seen[case.category] += 1
    return chosen


def fingerprint(cases: Iterable[Case]) -> str:
    """Hash cases, to show whether two runs asked the same."""
    text = json.dumps([case_to_json(case) for case in cases], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
