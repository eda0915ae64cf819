"""Do call thresholds hold on questions that they were not measured on? `python benchmarks/threshold.py`

Writes results/threshold.md from the log-odds of questions that were recorded in November 2026; no model is needed. A threshold
comes from the tuning half of BFCL's core questions (results/threshold.jsonl) and is applied to the report half
(results/threshold-report.jsonl).
"""

import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roc import area

from xmlcall.bench.probe import KEEP, threshold_of
from xmlcall.bench.stats import wilson

RESULTS = Path(__file__).parent / "results"
SHARES = (1.0, 0.975, 0.95, 0.9)


def rows_of(name: str) -> dict[str, list[dict[str, Any]]]:
    """Read kept log-odds, by model."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in (RESULTS / name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows.setdefault(row["model"], []).append(row)
    return rows


def share(values: Sequence[bool]) -> str:
    """Write a count with its Wilson 95 % interval."""
    low, high = wilson(sum(values), len(values))
    return f"{sum(values)}/{len(values)} [{100 * low:.0f}-{100 * high:.0f}]"


def sides(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the log-odds of the questions that need a tool, and of the others."""
    calls = [row["log_odds"] for row in rows if row["needs_tool"]]
    return calls, [row["log_odds"] for row in rows if not row["needs_tool"]]


def table(tuning: Sequence[Mapping[str, Any]], reported: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write what the thresholds that keep a share of the tuning half's calls do to both halves."""
    lines = [
        f"Area under the ROC curve: {area(*sides(tuning)):.3f} (tuning half), {area(*sides(reported)):.3f} (report half).",
        "",
        "| keep | threshold | tuning: calls kept | refused rightly | report: calls kept | refused rightly |",
        "|---|---|---|---|---|---|",
    ]
    for wanted in SHARES:
        threshold = threshold_of(*sides(tuning), wanted)
        cells = []
        for half in (tuning, reported):
            calls, others = sides(half)
            cells += [share([value > threshold for value in calls]), share([value <= threshold for value in others])]
        mark = " (taken)" if wanted == KEEP else ""
        lines.append(f"| {100 * wanted:g} %{mark} | {threshold:g} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Write the page."""
    tuning, reported = rows_of("threshold.jsonl"), rows_of("threshold-report.jsonl")
    written = f"{datetime.date.today()}, xmlcall {version('xmlcall')}, {platform.system()} {platform.machine()}"
    lines = [
        "# Call thresholds on questions that they were not measured on",
        "",
        f"Written by `python benchmarks/threshold.py`, {written}: Q4_K_M, llama.cpp b11549,",
        "bfcl-core, seed 7, 80 questions that need a tool and 20 that need none in each half; Wilson 95 % intervals in percent.",
        "The server is that of bfcl-core.md. `keep` is the share of the tuning half's calls that the threshold may not lose.",
    ]
    for model, rows in tuning.items():
        lines += ["", f"## {model}", "", *table(rows, reported[model])]
    (RESULTS / "threshold.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
