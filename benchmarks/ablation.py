"""What each lever against needless calls and made up values does: `python benchmarks/ablation.py qwen2.5-coder-1.5b --out DIR`.

The tuning halves of `ordinary` (a sample) and `needed` are asked with all levers, with none, and with each one left out. A lever
is left out by putting a neutral value in place of one of the package's constants or functions. Left out alone, it is asked only
about the cases in which it can have changed anything; the answers to the others are those of the run with all levers.
"""

import argparse
import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from xmlcall.bench import suites
from xmlcall.bench.report import judged
from xmlcall.bench.stats import mcnemar, wilson
from xmlcall.bench.store import read_run
from xmlcall.cli import main as command
from xmlcall.turn.attempts import RepairPolicy
from xmlcall.turn.tool_need import DOUBT, USUAL_NUMBER

SUITES: Final = {"ordinary": 78, "needed": 72}
cases_of = suites.cases_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lever:
    """A lever: how it is left out, and in which cases of the run with all levers it can have changed anything."""

    about: str
    took_part: Callable[[Row], bool]
    neutral: Mapping[str, Any]
    asked: tuple[str, ...] = ()


def need_of(row: Row) -> Row:
    """Return what was decided about the case's only turn."""
    return row["outcome"]["turns"][0].get("need") or {"log_odds": 0.0, "number": None, "threshold": 0.0, "tool": ""}


def score(row: Row) -> float:
    """Return how far the case is above the threshold."""
    need = need_of(row)
    number = USUAL_NUMBER if need["number"] is None else min(max(need["number"], -1.0), 6.0)
    return float(need["log_odds"] + number - need["threshold"])


def was_asked_again(row: Row) -> bool:
    """Say whether the model wrote more than one reply, or was stopped in the first."""
    turn = row["outcome"]["turns"][0]
    return len(turn["replies"]) > 1 or (score(row) > 0 and not turn["calls"])


def number_decides(row: Row) -> bool:
    """Say whether the usual number in place of the second opinion would decide otherwise."""
    need = need_of(row)
    usual = float(need["log_odds"]) + USUAL_NUMBER
    return (usual > float(need["threshold"])) != (score(row) > 0)


LEVERS: Final = {
    "decision": Lever("a threshold decides whether a tool is needed", lambda row: True, {}, ("--ask", "call_threshold=off")),
    "number": Lever(
        "the number of the tool as a second opinion",
        number_decides,
        {"xmlcall.turn.tool_need.LEAST_NUMBER": USUAL_NUMBER, "xmlcall.turn.tool_need.MOST_NUMBER": USUAL_NUMBER},
    ),
    "doubt": Lever(
        "in doubt the call itself decides",
        lambda row: 0 < score(row) <= DOUBT,
        {"xmlcall.turn.tool_need.DOUBT": 0.0},
    ),
    "finding": Lever(
        "a tool that writes is no choice for who asks to find something out",
        lambda row: not need_of(row)["tool"] and score(row) > 0,
        {"xmlcall.turn.tool_need.only_asks_to_find": lambda words, tool: False},
    ),
    "unoffered": Lever(
        "what needs no tool is answered without the tool prompt",
        lambda row: score(row) <= 0 or was_asked_again(row),
        {"xmlcall.turn.turn_setup.READ_AGAIN": -1},
    ),
    "unsaid": Lever(
        "a value that appears nowhere in the conversation is asked for or looked up",
        was_asked_again,
        {"xmlcall.bench.runner.RepairPolicy": lambda **_: RepairPolicy()},
    ),
}
ARMS: Final = {"all": (), "none": tuple(LEVERS), **{f"without {name}": (name,) for name in LEVERS}}


def play(folder: Path, suite: str, model: str, without: Collection[str], only: Collection[str] | None) -> None:
    """Ask a suite's cases, or only some of them, without some of the levers."""

    def chosen(*args: Any, **options: Any) -> Sequence[Any]:
        return [case for case in cases_of(*args, **options) if only is None or case.id in only]

    asked = [word for name in without for word in LEVERS[name].asked]
    given = ["--limit", str(SUITES[suite]), "--half", "tuning", "--ask", "max_tokens=200", "--model", model, "--out", str(folder)]
    with ExitStack() as stack:
        stack.enter_context(patch("xmlcall.bench.suites.cases_of", chosen))
        for name in without:
            for place, value in LEVERS[name].neutral.items():
                stack.enter_context(patch(place, value))
        if code := command(["bench", "run", "--suite", suite, *given, *asked]):
            raise SystemExit(code)


def verdicts(folder: Path) -> dict[str, bool]:
    """Return for each case of a run whether it is right."""
    [each] = asyncio.run(judged(read_run(folder))).values()
    return {verdict.case.id: verdict.is_right for verdict in each}


def arm(out: Path, model: str, suite: str, name: str) -> dict[str, bool]:
    """Play an arm, or what is left of it, and return the verdict of every case."""
    folder, whole = out / f"{suite}-{name.replace(' ', '-')}", out / f"{suite}-all"
    only, before = None, dict[str, bool]()
    if name.startswith("without"):
        lever = LEVERS[name.removeprefix("without ")]
        only, before = {row["case"] for row in read_run(whole).replies if lever.took_part(row)}, verdicts(whole)
        if not only:
            return before
    play(folder, suite, model, ARMS[name], only)
    return before | verdicts(folder)


def line(name: str, found: Mapping[str, bool], base: Mapping[str, bool]) -> str:
    """Compare an arm with all levers."""
    right, total = sum(found.values()), len(found)
    low, high = wilson(right, total)
    lost, gained = (sum(one[case] > other[case] for case in base) for one, other in ((base, found), (found, base)))
    share = f"{right} of {total} [{low:.0%}-{high:.0%}]"
    return share if name == "all" else f"{share}; -{lost} +{gained}, p = {mcnemar(lost, gained):.2g}"


def main() -> None:
    """Play every arm and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; taken up again if it exists")
    parser.add_argument("--arm", action="append", choices=ARMS, help="only these, besides all (may be repeated)")
    options = parser.parse_args()
    print(f"| levers | {' | '.join(SUITES)} |\n|{'---|' * (1 + len(SUITES))}")
    base = {suite: arm(options.out, options.model, suite, "all") for suite in SUITES}
    for name in dict.fromkeys(["all", *(options.arm or ARMS)]):
        cells = [
            line(name, base[suite] if name == "all" else arm(options.out, options.model, suite, name), base[suite])
            for suite in SUITES
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
