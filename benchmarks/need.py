"""What tells a message that needs a tool from one that needs none? `python benchmarks/need.py`

Writes results/need.md from the log-odds in results/need.jsonl: of a call as the first token of a reply, on the tuning half of the
suite `talk` without the turns on which a tool may be called or not. Each message was asked about behind the tool prompt alone,
and once more together with the person's message before it; 2,000 candidates a token. No model is needed here.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xmlcall.bench.stats import area

RESULTS = Path(__file__).parent / "results"
FOLLOW_UP = "follow-up"
ASKED: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "the message alone": lambda row: row["alone"],
    "with the person's message before": lambda row: row["with_previous"],
    "the larger of the two": lambda row: max(row["alone"], row["with_previous"]),
}


def best_split(needed: list[float], others: list[float]) -> tuple[int, float]:
    """Return how many turns the best threshold decides rightly, and that threshold."""
    thresholds = sorted([min(needed + others) - 1, *needed, *others])
    return max((sum(odds > limit for odds in needed) + sum(odds <= limit for odds in others), limit) for limit in thresholds)


def line(name: str, rows: list[dict[str, Any]], odds: Callable[[Mapping[str, Any]], float]) -> str:
    """Write a row of the table."""
    needed, others = ([odds(row) for row in rows if row["needs_tool"] is side] for side in (True, False))
    follow_ups = [odds(row) for row in rows if row["needs_tool"] and row["kind"] == FOLLOW_UP]
    right, limit = best_split(needed, others)
    return f"| {name} | {area(needed, others):.3f} | {area(follow_ups, others):.3f} | {right} of {len(rows)} | {limit:g} |"


def main() -> None:
    """Write the page."""
    rows = [json.loads(text) for text in (RESULTS / "need.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [
        "# Which messages need a tool",
        "",
        "Written by `python benchmarks/need.py` from `need.jsonl`: the tuning half of `talk`, Q4_K_M, llama.cpp b11549 built for",
        "this CPU, Linux x86_64, 2 cores, 2026-11-22. The area under the ROC curve (0.5 is chance), the same for follow-ups",
        "alone, and how many turns the best threshold decides rightly.",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row for row in rows if row["model"] == model]
        lines += ["", f"## {model}", "", "| asked about | area | follow-ups | best split | at |", "|---|---|---|---|---|"]
        lines += [line(name, of_model, odds) for name, odds in ASKED.items()]
    (RESULTS / "need.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
