"""Temperature 0 beside the sampling that the makers recommend: `python benchmarks/sampling.py --model URL --out DIR`

Asks the suites `ordinary`, `needed` and `talk` once with `--ask sampling=greedy`, and with `--ask sampling=recommended` once
for each seed; prints how many answers are right, and the difference. The same command goes on with runs that were stopped.
Further options are those of `xmlcall bench run`. The server needs room for a conversation of `talk`:

    llama-server -m MODEL.gguf -c 49152 -np 3
    python benchmarks/sampling.py --model http://127.0.0.1:8080/v1 --out runs --seeds 5 --concurrency 3

The difference is the mean over the cases of: share of the seeds that have it right, less 1 if temperature 0 has it right. Its
95 % interval is the normal one of that mean, so the seeds of one case do not count as independent. A suite takes as long as one
`bench run` of it for each seed, and one more.
"""

import argparse
import asyncio
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from xmlcall.bench.funnel import Verdict
from xmlcall.bench.report import judged
from xmlcall.bench.stats import wilson
from xmlcall.bench.store import read_run
from xmlcall.cli import main as xmlcall

SUITES = ("ordinary", "needed", "talk")
GREEDY = "greedy"
Z = statistics.NormalDist().inv_cdf(0.975)

Right = Mapping[str, bool]
"""Whether a case is right, by its id; a turn of a conversation is a case."""


def runs_of(suite: str, seeds: int) -> dict[str, tuple[str, ...]]:
    """Return the runs of a suite, each with what it asks for."""
    seeded = {f"seed-{seed}": ("sampling=recommended", f"seed={seed}") for seed in range(1, seeds + 1)}
    return {f"{suite}-{name}": asked for name, asked in ({GREEDY: ("sampling=greedy",)} | seeded).items()}


def ask(out: Path, model: str, suite: str, seeds: int, more: Sequence[str]) -> None:
    """Make the runs of a suite, or go on with them."""
    for name, asked in runs_of(suite, seeds).items():
        settings = [word for each in asked for word in ("--ask", each)]
        command = ["bench", "run", "--model", model, "--suite", suite, *settings, *more, "--out", str(out / name)]
        if xmlcall(command):
            sys.exit(f"{name}: not whole; give the same command again to go on")


async def right_of(folder: Path) -> Right:
    """Read a run of one way."""
    run = read_run(folder)
    if run.about["settings"].get("sampling") == "recommended" and not run.about.get("recommended", True):
        print(f"{folder.name}: nothing is recommended for {run.about['model']}, so the server's own sampling was used")
    [verdicts] = (await judged(run)).values()
    return rights(verdicts)


def rights(verdicts: Sequence[Verdict]) -> Right:
    """Return which cases are right."""
    return {verdict.case.id: verdict.is_right for verdict in verdicts}


def row(suite: str, greedy: Right, seeded: Sequence[Right]) -> str:
    """Write a row of the table, of the cases that all runs answered."""
    cases = [case for case in greedy if all(case in right for right in seeded)]
    count, total = sum(greedy[case] for case in cases), len(cases)
    low, high = wilson(count, total)
    counts = [sum(right[case] for case in cases) for right in seeded]
    shown = f"{statistics.mean(counts):.1f}/{total} ({min(counts)} to {max(counts)})"
    mean, half = difference([statistics.mean(right[case] for right in seeded) - greedy[case] for case in cases])
    between = f"{100 * mean:+.1f} [{100 * (mean - half):+.1f} to {100 * (mean + half):+.1f}]"
    return f"| {suite} | {count}/{total} [{100 * low:.0f}-{100 * high:.0f}] | {shown} | {between} |"


def difference(of_cases: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval."""
    spread = statistics.stdev(of_cases) if len(of_cases) > 1 else 0.0
    return statistics.mean(of_cases), Z * spread / math.sqrt(len(of_cases))


async def table(out: Path, suites: Sequence[str], seeds: int) -> list[str]:
    """Write a row a suite."""
    lines = ["| suite | greedy, right | recommended, mean (least to most) | difference, points |", "|---|---|---|---|"]
    for suite in suites:
        greedy, *seeded = [await right_of(out / name) for name in runs_of(suite, seeds)]
        lines.append(row(suite, greedy, seeded))
    return lines


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description="Temperature 0 beside the sampling that the makers recommend.")
    parser.add_argument("--model", required=True, help="as for `xmlcall bench run`")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds (default: %(default)s)")
    parser.add_argument("--suite", dest="suites", action="append", metavar="SUITE", help=f"may be repeated ({', '.join(SUITES)})")
    options, more = parser.parse_known_args()
    if options.seeds < 1:
        parser.error(f"--seeds: expected at least 1, got {options.seeds}")
    suites = options.suites or SUITES
    for suite in suites:
        ask(options.out, options.model, suite, options.seeds, more)
    print("\n".join(asyncio.run(table(options.out, suites, options.seeds))))


if __name__ == "__main__":
    main()
