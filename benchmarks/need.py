"""What tells a message that needs a tool from one that needs none, and which tool? `python benchmarks/need.py`

Writes results/need.md; no model is needed here. Of the tuning half of the suite `talk`, results/need.jsonl has each turn but
those on which a tool may be called or not:

    alone          log-odds that a reply to the message after the tool prompt, without the conversation, begins with a call
    with_previous  the same for the person's two last messages in one
    moved          how far the message moved the choice of a tool, in nats, which counted until 2026-11-25

and results/tools.jsonl each turn that needs a tool: `wanted`, and for each tool the log-probability of its name in a begun call,
after the conversation with right calls so far, after the message alone, and after "Thanks!". 2,000 candidates a token.

results/named.jsonl has the same turns with one tool on offer (the one that is wanted, or any of the conversation's), and
questions of BFCL's tuning half that come with one tool: `alone`, and `named`, how surely a begun call names
it, which counted until 2026-11-25.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roc import area

from xmlcall.bench.ways import kept_odds

RESULTS = Path(__file__).parent / "results"
FOLLOW_UP = "follow-up"
ASKED: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "the message alone": lambda row: row["alone"],
    "with the person's message before": lambda row: row["with_previous"],
    "the larger of the two": lambda row: max(row["alone"], row["with_previous"]),
    "the message alone, and how far it moves the choice": lambda row: (
        kept_odds({"log_odds": row["alone"], "moved": row["moved"]}) or 0.0
    ),
}
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
AFTER = {"the conversation": 0, "the message alone": 1}
HABIT = 2


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


def chosen_rightly(rows: list[dict[str, Any]], place: int, part: float) -> int:
    """Return how many turns get a tool that they ask for, with a part of the habit taken off."""
    best = (max(row["names"], key=lambda name: row["names"][name][place] - part * row["names"][name][HABIT]) for row in rows)
    return sum(name in row["wanted"] for row, name in zip(rows, best, strict=True))


def choices(rows: list[dict[str, Any]]) -> list[str]:
    """Write the table of what taking off a habit does."""
    lines = [
        f"| {name} | " + " | ".join(str(chosen_rightly(rows, place, part)) for part in PARTS) + " |"
        for name, place in AFTER.items()
    ]
    parts = " | ".join(f"{part:g} of the habit" for part in PARTS)
    head = [f"| right tool of {len(rows)}, asked after | {parts} |", "|---" * (len(PARTS) + 1) + "|"]
    return ["", *head, *lines]


def one_tool(rows: list[dict[str, Any]]) -> list[str]:
    """Write the table of what the only tool's name tells."""
    lines = ["", "| one tool on offer | area | with its name | best split | with its name |", "|---|---|---|---|---|"]
    for suite in dict.fromkeys(row["suite"] for row in rows):
        of_suite = [row for row in rows if row["suite"] == suite]
        sides = [[row for row in of_suite if row["needs_tool"] is side] for side in (True, False)]
        cells = [[[odds(row) for row in side] for side in sides] for odds in (alone, with_name)]
        areas = [f"{area(*each):.3f}" for each in cells]
        splits = [f"{best_split(*each)[0]} of {len(of_suite)}" for each in cells]
        lines.append(f"| {suite} | {' | '.join(areas + splits)} |")
    return lines


def alone(row: Mapping[str, Any]) -> float:
    """Return the log-odds of a call."""
    return float(row["alone"])


def with_name(row: Mapping[str, Any]) -> float:
    """Return what is held against the threshold."""
    return kept_odds({"log_odds": row["alone"], "named": row["named"]}) or 0.0


def rows_of(name: str) -> list[dict[str, Any]]:
    """Read a file of rows."""
    return [json.loads(text) for text in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Write the page."""
    rows, tools, named = (rows_of(name) for name in ("need.jsonl", "tools.jsonl", "named.jsonl"))
    lines = [
        "# Which messages need a tool, and which",
        "",
        "Written by `python benchmarks/need.py` from `need.jsonl`, `tools.jsonl` and `named.jsonl`: the tuning half of `talk`,",
        "and of `bfcl-core` where it is named, Q4_K_M,",
        "llama.cpp b11549 built for this CPU, Linux x86_64, 2 cores, 2026-11-22. The area under the ROC curve (0.5 is chance),",
        "the same for follow-ups alone, and how many turns the best threshold decides rightly. Below, how often the right tool",
        "is the best one, with more and less of the model's habit taken off.",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row for row in rows if row["model"] == model]
        lines += ["", f"## {model}", "", "| asked about | area | follow-ups | best split | at |", "|---|---|---|---|---|"]
        lines += [line(name, of_model, odds) for name, odds in ASKED.items()]
        lines += choices([row for row in tools if row["model"] == model])
        lines += one_tool([row for row in named if row["model"] == model])
    (RESULTS / "need.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
