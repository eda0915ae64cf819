"""Right calls late in conversations: `python benchmarks/long.py [--name NAME --model URL --way WAY ...]`

With a model, runs the suite `long` into results/runs/long-WAY-NAME; the same command goes on with a run that was stopped, and
further options are those of `xmlcall bench run`. Without one, only reads the runs again. Both write results/long.md from all
runs `results/runs/long-*`. The server needs room for the longest conversation with 50 tools, 20,480 tokens for each slot:

    llama-server -m MODEL.gguf -c 40960 -np 2
    python benchmarks/long.py --name 1.5b --model http://127.0.0.1:8080/v1 --way xml
    python benchmarks/long.py --name 1.5b --model http://127.0.0.1:8080/v1 --way native+read

A run has 320 replies, asked one after the other: several at a time would read each conversation several times. A run has one way,
since two would take the cache from each other.
"""

import argparse
import asyncio
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from xmlcall.bench.funnel import Verdict
from xmlcall.bench.own_suites import LONG_SIZES, LONG_TURNS
from xmlcall.bench.report import cached_share, judged
from xmlcall.bench.stats import mcnemar, wilson
from xmlcall.bench.store import RecordedRun, read_run
from xmlcall.cli import main as xmlcall

RESULTS = Path(__file__).parent / "results"
LATE = 20  # the turn that is held against the first


def place(verdict: Verdict) -> tuple[str, int, int]:
    """Return the language, the number of tools and the turn of a case, from its id."""
    _, size, turn, language, _ = verdict.case.id.split("-")
    return language, int(size), int(turn)


def cell(verdicts: Sequence[Verdict]) -> str:
    """Write how many are right: count, total and Wilson 95 % interval in percent."""
    count = sum(verdict.is_right for verdict in verdicts)
    low, high = wilson(count, len(verdicts))
    return f"{count}/{len(verdicts)} [{100 * low:.0f}-{100 * high:.0f}]" if verdicts else "-"


def prompt_of(verdicts: Sequence[Verdict]) -> str:
    """Write the tokens of a prompt and the share of it that was cached, medians over the replies."""
    usages = [verdict.row["rounds"][0].get("usage") or {} for verdict in verdicts]
    tokens = [usage["prompt_tokens"] for usage in usages if usage.get("prompt_tokens")]
    share = cached_share(verdicts)
    told = f"{statistics.median(tokens):,.0f}" if tokens else "-"
    return f"{told} | {'-' if share is None else f'{100 * share:.1f} %'}"


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Write a row a turn."""
    chosen: dict[str, Callable[[tuple[str, int, int]], bool]] = {
        "all": lambda at: True,
        **{f"{size} tools": lambda at, size=size: at[1] == size for size in LONG_SIZES},  # type: ignore[misc]
        "English": lambda at: at[0] == "english",
        "Chinese": lambda at: at[0] == "chinese",
    }
    lines = [f"| turn | {' | '.join(chosen)} | prompt tokens | of them cached |", f"|---|{'---|' * (len(chosen) + 2)}"]
    for turn in LONG_TURNS:
        of_turn = [verdict for verdict in verdicts if place(verdict)[2] == turn]
        cells = [cell([verdict for verdict in of_turn if is_in(place(verdict))]) for is_in in chosen.values()]
        lines.append(f"| {turn} | {' | '.join(cells)} | {prompt_of(of_turn)} |")
    return lines


def late_against_first(verdicts: Sequence[Verdict]) -> str:
    """Compare the same questions at two turns."""
    by_place = {(place(verdict), verdict.case.id.rpartition("-")[2]): verdict.is_right for verdict in verdicts}
    pairs = [
        (right, by_place[(language, size, LATE), number])
        for ((language, size, turn), number), right in by_place.items()
        if turn == 1 and ((language, size, LATE), number) in by_place
    ]
    lost, won = pairs.count((True, False)), pairs.count((False, True))
    points = 100 * (won - lost) / len(pairs) if pairs else 0
    return (
        f"Turn {LATE} against turn 1, the same {len(pairs)} questions: {points:+.1f} points; {lost} right only at turn 1, "
        f"{won} only at turn {LATE} (exact McNemar p = {mcnemar(lost, won):.3g})."
    )


def about(run: RecordedRun) -> str:
    """Say what was measured with what."""
    told = run.about
    settings = f"call threshold {told['settings'].get('call_threshold', 'off')}"
    return f"{told['model']}, {told['server']} {told.get('build') or ''}, way {', '.join(told['ways'])}, {settings}."


async def page(folders: Sequence[Path]) -> str:
    """Return the page."""
    lines = [
        "# Right calls late in conversations",
        "",
        "Written by `python benchmarks/long.py` (see there for the commands) from the replies in runs/long-*. The same 32",
        "questions at five turns of a canned conversation, with 10 and with 50 tools. Wilson 95 % intervals. `of them cached`:",
        "the median over the replies; the first question after a longer conversation reads what is new of it.",
    ]
    for folder in folders:
        run = read_run(folder)
        for verdicts in (await judged(run)).values():
            counted = f"{len(verdicts)} of {len(run.cases)} questions answered."
            lines += ["", f"## {folder.name.removeprefix('long-')}", "", f"{about(run)} {counted}", "", *table(verdicts)]
            lines += ["", late_against_first(verdicts)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the suite if a model is given, then write the page."""
    parser = argparse.ArgumentParser(description="right calls late in conversations")
    parser.add_argument("--model", help="as for `xmlcall bench run`; without it only the page is written")
    parser.add_argument("--name", default="model", help="part of the name of the run's folder (default: %(default)s)")
    parser.add_argument("--way", default="xml", help="as for `xmlcall bench run` (default: %(default)s)")
    options, more = parser.parse_known_args()
    code = 0
    if options.model:
        folder = RESULTS / "runs" / f"long-{options.way}-{options.name}"
        asked = ["--model", options.model, "--suite", "long", "--way", options.way, "--out", str(folder)]
        code = xmlcall(["bench", "run", *asked, *more])
    folders = sorted(file.parent for file in (RESULTS / "runs").glob("long-*/run.json"))
    text = asyncio.run(page(folders))
    (RESULTS / "long.md").write_text(text, encoding="utf-8")
    print(text)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
