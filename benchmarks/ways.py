"""What was really run here, by engine, model and way: `python benchmarks/ways.py [--check]` writes results/ways.md.

The recorded runs are read and judged again by this checkout; no model is needed. Of runs of the same suite, half, model and way
the page has the latest. Runs in which one setting was changed to try it are counted, not shown. What a server's own function
calling left in the text is read from the same replies (`native+read`), as in `right_calls.py`. With `--check` nothing is
written, and exit code 1 says that the page is not what the runs are.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmlcall.bench.funnel import Verdict, judge_reply
from xmlcall.bench.report import compared, judged
from xmlcall.bench.stats import wilson
from xmlcall.bench.store import RecordedRun, read_about, read_run
from xmlcall.bench.ways import way_of

RESULTS = Path(__file__).resolve().parent / "results"
TRIED = ("ablation-", "families-", "optional-", "sampling-", "talk-hermes-results-family", "tried-", "tuning-constrained")
"""How the names of runs begin in which one setting was changed to try it."""
UNCHANGED = "-all-"  # in the name of an ablation's run in which nothing was left out
MODELS = {
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B",
    "smollm2-135m": "SmolLM2-135M",
}
DEFAULT = "xml, list, threshold auto"  # of `probe`, with which its other ways are compared
SMALLEST = 0.0001  # p-value that is written as a number

ABOUT = """# What was run here: engine, model, way

Written by `python benchmarks/ways.py` from the recorded runs beside this page, which hold every raw
reply (`make rescore` judges them again). One engine: llama.cpp b11549 (xllamacpp 2026.10.11549).
Three models at temperature 0: Qwen2.5-Coder-Instruct 0.5B and 1.5B (Q4_K_M), and SmolLM2-135M
(Q4_1), of four suites only. Of other engines and models there is no run.

Of runs of the same suite, half, model and way this is the latest; {tried} more, in which one
setting was changed to try it, are not here. Right: with the 95 % interval (Wilson). Beside xml: the
cases that both answered, right in this way and in xml, with the p of the exact McNemar test. Kept:
of the answers right without tools. `native+read` are the replies of `native` with the calls in the
text read by us; in `talk`, `native` was played that way. [What the ways
are](../../docs/reference/bench.md#ways-of-calling). Settings differ between rows: `run.json` of a
run has them.
"""
HEADER = ("way", "right", "beside xml", "date", "run")


@dataclass(frozen=True, kw_only=True)
class Row:
    """The verdicts of a way."""

    engine: str
    model: str
    suite: str
    way: str
    run: str
    date: str
    verdicts: Sequence[Verdict]

    @property
    def title(self) -> str:
        return f"{self.engine}, {MODELS.get(self.model, self.model)}, {self.suite}"


def key_of(about: Mapping[str, Any], way: str, run: str) -> tuple[str, str, str, str]:
    """Return engine, model, suite and way of a run; of `probe`, whose runs differ in settings, these are part of the way."""
    half = about.get("half") or "all"
    suite = about["suite"] if half == "all" else f"{about['suite']}, half {half}"
    engine = "xmlcall serve on llama.cpp" if run.startswith("talk-proxy-") else about["server"]
    if engine != about["server"]:
        way = "native, which the proxy turns into xml"
    elif about["suite"] == "talk" and way == "native":
        way = "native+read"
    elif about["suite"] == "probe" and way == "xml":
        way = f"xml, {run.partition('-xml-')[2].replace('-threshold-', ', threshold ')}"
    return engine, about["model"], suite, way


def chosen(folder: Path) -> tuple[dict[tuple[str, str, str, str], Path], int]:
    """Return the latest run of each engine, model, suite and way, and how many runs only tried a setting."""
    found: dict[tuple[str, str, str, str], tuple[str, Path]] = {}
    tried = 0
    for run in sorted(folder.iterdir()):
        if run.name.startswith(TRIED) and UNCHANGED not in run.name:
            tried += 1
            continue
        about = read_about(run)
        for way in about["ways"]:
            key, begun = key_of(about, way, run.name), (about["started"], run)
            found[key] = max(found.get(key, begun), begun)
    return {key: run for key, (_, run) in found.items()}, tried


async def rows_of(found: Mapping[tuple[str, str, str, str], Path]) -> list[Row]:
    """Judge the chosen runs; what `native` left in the text is a row of its own."""
    rows = list[Row]()
    for run in dict.fromkeys(found.values()):
        recorded = read_run(run)
        for way, verdicts in (await judged(recorded)).items():
            read = await _read(recorded) if way == "native" and recorded.about["suite"] != "talk" else None
            for name, of_way in ((way, verdicts), ("native+read", read)):
                key = key_of(recorded.about, name, run.name)
                if of_way is not None and found.get(key, run) == run:
                    engine, model, suite, shown = key
                    date = recorded.about["started"][:10]
                    rows.append(Row(engine=engine, model=model, suite=suite, way=shown, run=run.name, date=date, verdicts=of_way))
    return sorted(
        rows, key=lambda row: (row.engine, row.model, row.suite, row.way != "none", not row.way.startswith("xml"), row.way)
    )


async def _read(run: RecordedRun) -> list[Verdict]:
    way = way_of("native+read")
    return [await judge_reply(row, case, way, run.settings) for case, row in run.of_way("native")]


def cells(row: Row, others: Iterable[Row]) -> list[str]:
    """Return the cells of a row; it is compared with the other ways of its engine, model and suite."""
    right = sum(verdict.is_right for verdict in row.verdicts)
    low, high = wilson(right, len(row.verdicts))
    ways = {other.way: other for other in others}
    base = ways.get("xml") or ways.get(DEFAULT)
    if row.way.startswith("xml") and "none" in ways:
        kept = compared(ways["none"].verdicts, row.verdicts)["kept"]
        beside = f"kept {kept['count']} of {kept['total']}"
    elif base is None or row is base or row.way == "none":
        beside = ""
    else:
        beside = _pair(compared(base.verdicts, row.verdicts)["metrics"].get("task_correct"))
    share = f"{right}/{len(row.verdicts)} [{100 * low:.0f}-{100 * high:.0f}]"
    return [row.way, share, beside, row.date, row.run]


def _pair(pair: Mapping[str, Any] | None) -> str:
    if not pair or not pair["total"]:
        return ""
    p = f"p < {SMALLEST}" if pair["p"] < SMALLEST else f"p {pair['p']:.2g}"
    return f"{pair['second']} and {pair['first']} of {pair['total']} ({p})"


def page(folder: Path) -> str:
    found, tried = chosen(folder)
    rows = asyncio.run(rows_of(found))
    parts = [ABOUT.format(tried=tried)]
    for title in dict.fromkeys(row.title for row in rows):
        same = [row for row in rows if row.title == title]
        lines = [HEADER, ["---"] * len(HEADER), *(cells(row, same) for row in same)]
        parts.append(f"\n## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write results/ways.md from the recorded runs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is not what the runs are")
    options = parser.parse_args()
    file, text = RESULTS / "ways.md", page(RESULTS / "runs")
    if not options.check:
        file.write_text(text, encoding="utf-8")
        return 0
    is_same = file.is_file() and file.read_text(encoding="utf-8") == text
    print(f"{file.name}: {'as the runs are' if is_same else 'not what the runs are: python benchmarks/ways.py'}")
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
