"""How many calls and plain answers a threshold finds: `python benchmarks/doubt.py`, without a model.

`results/doubt.jsonl` has what two models said of requests from the tuning halves of `ordinary` and `needed`, each message asked
about alone: the log-odds of a call, and of the tool's number. The turns of `talk` are those of the run `talk-tuning-strict-1.5b`.
The second table has the decisions of runs that are kept, each at its own threshold: as they were, and with the usual number in
place of the second opinion. The last line counts answers of all kept runs that say the model has no access.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from xmlcall.bench.own_suites import talk_cases
from xmlcall.bench.store import read_run
from xmlcall.turn.tool_need import ToolNeed
from xmlcall.turn.turn_setup import says_no_access
from xmlcall.types.completion import Usage

RESULTS = Path(__file__).parent / "results"
THRESHOLDS = {"1.5b": (1.5, 2.0, 2.4, 3.0, 3.7), "0.5b": (-3.0, -2.6, -2.0, -1.2)}

RUNS = (
    "ordinary-stands-1.5b",
    "needed-last-1.5b",
    "talk-asks-1.5b",
    "talk-tuning-words-1.5b",
    "ordinary-kept-0.5b",
    "needed-kept-0.5b",
    "talk-kept-0.5b",
)

Decision = tuple[bool, float]  # whether a tool is needed, and the score


def suites(model: str) -> list[Decision]:
    """Return what a model said of requests of `ordinary` and `needed`."""
    rows = map(json.loads, (RESULTS / "doubt.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["needs_tool"], row["log_odds"] + row["number"]) for row in rows if row["model"] == model]


def talk(run: str) -> Iterator[Decision]:
    """Yield what was decided in the turns of a run, where it is known whether they need a tool."""
    cases = {case.id: case for case in talk_cases()}
    for reply in read_run(RESULTS / "runs" / run).replies:
        for turn, played in zip(cases[reply["case"]].turns, reply["outcome"]["turns"], strict=True):
            if (need := played.get("need")) and not turn.get("may"):
                yield bool(turn.get("tools")), need["log_odds"] + (need["number"] or 0)


def found(decisions: Iterable[Decision], threshold: float) -> str:
    """Say how many calls and how many plain answers are found."""
    sides = {needs: [score > threshold for is_needed, score in decisions if is_needed == needs] for needs in (True, False)}
    return f"{sum(sides[True])} of {len(sides[True])} | {sides[False].count(False)} of {len(sides[False])}"


def needs(run: str) -> Iterator[tuple[bool, ToolNeed]]:
    """Yield whether a turn of a run needs a tool, and what was decided."""
    cases = {case.id: case for case in talk_cases()}
    for reply in read_run(RESULTS / "runs" / run).replies:
        played = reply["outcome"]["turns"]
        told = cases[reply["case"]].turns if run.startswith("talk") else [{"tools": run.startswith("needed")}]
        for turn, each in zip(told, played, strict=True):
            if (need := each.get("need")) and not turn.get("may"):
                facts = {name: need[name] for name in ("log_odds", "number", "threshold")}
                yield bool(turn.get("tools")), ToolNeed(usage=Usage(), **facts)


def right(decisions: Iterable[tuple[bool, ToolNeed]]) -> str:
    """Count the right decisions."""
    found = [is_needed == need.needs_tool for is_needed, need in decisions]
    return f"{sum(found)} of {len(found)}"


def print_second_opinions() -> None:
    """Print how many decisions of each run are right with the second opinion, and without it."""
    print("\n| run | right with the number | without |\n|---|---|---|")
    for run in RUNS:
        asked = list(needs(run))
        print(f"| {run} | {right(asked)} | {right((each, replace(need, number=None)) for each, need in asked)} |")


def print_no_access() -> None:
    """Count the turns up to the first that is wrong, those without a call, and of these the answers that say "no access"."""
    turns, plain, said = 0, 0, list[bool]()
    for folder in sorted((RESULTS / "runs").iterdir()):
        for outcome in (reply.get("outcome") or {} for reply in read_run(folder).replies):
            failed = outcome.get("failed_turn")
            for place, turn in enumerate((outcome.get("turns") or [])[: None if failed is None else failed + 1]):
                if not (told := turn.get("need")):
                    continue
                facts = {"number": None, **{name: told[name] for name in told if name in ("log_odds", "number", "threshold")}}
                need = ToolNeed(usage=Usage(), **facts)
                turns, plain = turns + 1, plain + (not need.needs_tool)
                if not need.needs_tool and (need.number or 0) > 0 and not turn["calls"] and says_no_access(turn["replies"][0]):
                    said.append(not outcome["valid"] and failed == place)
    print(f"\n{plain} of {turns} turns without tools; {len(said)} say no access though a tool was chosen, {sum(said)} are wrong")


def main() -> None:
    """Print a table for each model, that of the second opinion, and how many answers say no access."""
    for model, thresholds in THRESHOLDS.items():
        columns = {"needed | ordinary": suites(model)}
        if model == "1.5b":
            columns["talk: tool needed | none"] = list(talk("talk-tuning-strict-1.5b"))
        print(f"\n| {model}: threshold | {' | '.join(columns)} |")
        for threshold in thresholds:
            print(f"| {threshold} | {' | '.join(found(decisions, threshold) for decisions in columns.values())} |")
    print_second_opinions()
    print_no_access()


if __name__ == "__main__":
    main()
