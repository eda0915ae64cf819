"""Right calls on cases that no setting was chosen by: `python benchmarks/right_calls.py [--run URL MODEL]`

Writes results/right-calls.md from the runs `results/runs/right-*`, which are read and judged again; no model is needed. With
`--run` it first makes the runs of a model (`0.5b`, `1.5b`), or goes on with them, on a llama.cpp server that has it:

    llama-server -m MODEL.gguf -c 32768 -np 4
    python benchmarks/right_calls.py --run http://127.0.0.1:8080 0.5b

Each suite is asked once: in our way with the settings of the model's profile, by the server's own function calling, and by the
prompt of browser extensions. Calls that the server's own function calling left in the text are read from the same replies
(`native+read`). Of bfcl-fs200, the rivals are those of `results/bfcl-fs200.md`: the same files of the models, build of the
server, sample and length of replies, a day or two before. On two cores a case takes 6 s with the 0.5B and 15 s with the 1.5B, so
a model takes some hours.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from xmlcall.bench.funnel import Verdict, judge_reply
from xmlcall.bench.report import compared, judged
from xmlcall.bench.stats import wilson
from xmlcall.bench.store import RecordedRun, read_run
from xmlcall.bench.ways import way_of

RESULTS = Path(__file__).parent / "results"
MODELS = ("0.5b", "1.5b")
ABOUT: Mapping[str, str] = {"bfcl-report": "300 questions of bfcl-core", "bfcl-fs200": "those that BFCL compares formats on"}
SAMPLES: Mapping[tuple[str, str], int] = {("bfcl-fs200", "0.5b"): 200, ("bfcl-fs200", "1.5b"): 100}
"""Of how many cases of a suite a model is asked; of all where nothing is said. Those of `results/bfcl-fs200.md`."""
WAYS: Mapping[str, tuple[str, ...]] = {
    "ours": ("--way", "xml"),
    "rivals": ("--way", "native", "--way", "origin", "--ask", "call_threshold=off"),
}
SMALLEST = 0.0001  # p-value that is written as a number
METRICS: Mapping[str, str] = {"task_correct": "right", "call_correct": "right calls", "refused_rightly": "rightly none"}


def folder_of(suite: str, model: str, part: str) -> Path:
    """Say where a run is kept."""
    if (suite, part) == ("bfcl-fs200", "rivals"):
        return RESULTS / "runs" / f"bfcl-fs200-{model}"
    return RESULTS / "runs" / f"right-{suite}-{model}-{part}"


def run(url: str, model: str) -> None:
    """Make the runs of a model; each goes on where it was."""
    for part, options in WAYS.items():
        for suite in ABOUT:
            if (suite, part) == ("bfcl-fs200", "rivals"):
                continue
            count = SAMPLES.get((suite, model))
            sample = ("--seed", "7", "--limit", str(count)) if count else ()
            common = ("--model", url, "--suite", suite, *sample, "--ask", "max_tokens=400", "--concurrency", "4")
            command = [sys.executable, "-m", "xmlcall", "bench", "run", *common, *options]
            subprocess.run([*command, "--out", str(folder_of(suite, model, part))], check=True)


def cell(verdicts: Sequence[Verdict], metric: str) -> str:
    """Write a rate: count, total and Wilson 95 % interval in percent."""
    counted = [verdict for verdict in verdicts if metric in verdict.counted]
    count = sum(metric in verdict.reached for verdict in counted)
    if not counted:
        return "none asked"
    low, high = wilson(count, len(counted))
    return f"{count}/{len(counted)} [{100 * low:.0f}-{100 * high:.0f}]"


def chance(p: float) -> str:
    """Write a p-value, which a comparison rounds."""
    return f"p = {p:.2g}" if p >= SMALLEST else f"p < {SMALLEST}"


async def replies(suite: str, model: str) -> dict[str, list[Verdict]]:
    """Return what each way came to, ours first."""
    found: dict[str, list[Verdict]] = {}
    for part in WAYS:
        if not folder_of(suite, model, part).is_dir():
            continue
        run = read_run(folder_of(suite, model, part))
        of_part = await judged(run)
        # The older run of the rivals has our prompt of its day, too.
        found |= {way: verdicts for way, verdicts in of_part.items() if (way == "xml") is (part == "ours")}
        if "native" in of_part:
            found["native+read"] = await read_again(run)
    return found


async def read_again(run: RecordedRun) -> list[Verdict]:
    """Judge the replies of the server's own function calling with the calls that it left in the text."""
    way = way_of("native+read")
    is_open = bool(run.about.get("reasoning_open"))
    return [await judge_reply(row, case, way, run.settings, reasoning_open=is_open) for case, row in run.of_way("native")]


def table(ways: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Write a row a way, with the chance that it is as good as ours."""
    rows = [f"| way | {' | '.join(METRICS.values())} | ours beside it, right |", "|---|---|---|---|---|"]
    ours = ways.get("xml", ())
    for way, verdicts in ways.items():
        pair = compared(verdicts, ours)["metrics"]["task_correct"] if ours and way != "xml" else None
        beside = f"{pair['second']} and {pair['first']} of {pair['total']} ({chance(pair['p'])})" if pair else ""
        rows.append(f"| {way} | {' | '.join(cell(verdicts, metric) for metric in METRICS)} | {beside} |")
    return rows


async def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Right calls on cases that no setting was chosen by.")
    parser.add_argument("--run", nargs=2, metavar=("URL", "MODEL"), help="make the runs of a model first, or go on with them")
    options = parser.parse_args()
    if options.run:
        run(*options.run)
    lines = [
        "# Right calls",
        "",
        "Written by `python benchmarks/right_calls.py` (see there for the commands). Wilson 95 % intervals;",
    ]
    lines += ["`p` is exact, paired (McNemar). Cases: BFCL V4, Apache-2.0, the Gorilla project."]
    for model in MODELS:
        for suite, about in ABOUT.items():
            if ways := await replies(suite, model):
                lines += ["", f"## {model.upper()}, {suite}: {about}", "", *table(ways)]
    (RESULTS / "right-calls.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
