"""The samples of BFCL by which settings are chosen and reported: what is in them, and that no case serves both."""

import json
from collections import Counter
from pathlib import Path

import pytest

from xmlcall.bench.bfcl import bfcl_wheel, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.store import open_file
from xmlcall.bench.suites import SUITES, cases_of
from xmlcall.errors import BackendUnavailable

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CORE = ("simple_python", "multiple", "parallel", "parallel_multiple")
SIZES = {
    "bfcl-tuning": dict.fromkeys(CORE, 30) | {"live_simple": 20, "live_multiple": 40, "irrelevance": 40, "live_irrelevance": 20},
    "bfcl-report": dict.fromkeys((*CORE, "irrelevance"), 60),
}


@pytest.fixture(scope="module")
def suites() -> dict[str, list[Case]]:
    try:
        return {name: cases_of(name) for name in (*SIZES, "bfcl-core", "bfcl-fs200")}
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")


def ids(cases: list[Case]) -> set[str]:
    return {case.id for case in cases}


def recorded_ids() -> dict[str, set[str]]:
    """Return the ids that each recorded file names, but those of runs of the report suite, which are there to be reported."""
    runs = {
        folder for folder in RESULTS.glob("runs/*") if json.loads((folder / "run.json").read_text())["suite"] != "bfcl-report"
    }
    named: dict[str, set[str]] = {}
    for file in RESULTS.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        named[file.name] = {str(row.get("id") or row.get("case")) for row in rows}
    for folder in runs:
        with open_file(folder, "cases.jsonl") as lines:
            named[f"runs/{folder.name}"] = {json.loads(line)["id"] for line in lines}
    return named


@pytest.mark.parametrize("suite", SIZES)
def test_sizes_by_category(suites: dict[str, list[Case]], suite: str) -> None:
    cases = suites[suite]
    assert Counter(case.category for case in cases) == SIZES[suite]
    assert len(ids(cases)) == len(cases) == sum(SIZES[suite].values())
    assert Counter(case.expects for case in cases) == {"calls": len(cases) - 60, "no_call": 60}


def test_no_case_serves_two_ends(suites: dict[str, list[Case]]) -> None:
    tuning, report, formats = (ids(suites[name]) for name in ("bfcl-tuning", "bfcl-report", "bfcl-fs200"))
    assert not tuning & report
    assert not tuning & formats
    assert not report & formats
    assert report < ids(suites["bfcl-core"])


def test_no_recorded_run_has_asked_a_case_of_the_report_suite(suites: dict[str, list[Case]]) -> None:
    report, named = ids(suites["bfcl-report"]), recorded_ids()
    assert {file: sorted(asked & report) for file, asked in named.items() if asked & report} == {}
    assert {"named.jsonl", "repair.jsonl", "runs/bfcl-core-0.5b"} <= named.keys()
    core = ids(suites["bfcl-core"])
    assert sum(bool(asked & core) for asked in named.values()) > 10  # ids are where this test looks for them


def test_default_samples_of_core_are_left_out_of_the_report_suite(suites: dict[str, list[Case]]) -> None:
    report = ids(suites["bfcl-report"])
    for seed in (1, 7):
        assert not report & ids(cases_of("bfcl-core", limit=200, seed=seed))


@pytest.mark.parametrize("suite", SIZES)
def test_the_first_part_of_a_sample_is_a_sample(suites: dict[str, list[Case]], suite: str) -> None:
    """Categories take turns, so that a run that is stopped has asked all kinds."""
    smallest = min(SIZES[suite].values())
    first = suites[suite][: smallest * len(SIZES[suite])]
    assert Counter(case.category for case in first) == dict.fromkeys(SIZES[suite], smallest)
    assert cases_of(suite) == suites[suite]


def test_cases_are_bfcls_own(suites: dict[str, list[Case]]) -> None:
    for suite in SIZES:
        originals = {case.id: case for category in SIZES[suite] for case in read_cases(bfcl_wheel(), category)}
        assert all(originals[case.id] == case for case in suites[suite])


def test_help_tells_how_many_cases_there_are() -> None:
    for suite, sizes in SIZES.items():
        summary = SUITES[suite][1]
        assert summary.startswith(str(sum(sizes.values())))
        assert "60 need no call" in summary
