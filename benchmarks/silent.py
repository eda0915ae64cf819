"""How many recorded replies mean a call of which nothing is told: `python benchmarks/silent.py [--show 20]`, without a model.

Over all runs in `results/runs`. A reply is read again with the tools that it was offered. It is lost in silence if it has a mark
of a call (`attempts_call`, outside of thoughts), and neither a call nor an issue comes of it: neither the model nor the
person hears of the call. Replies that only speak of a mark, and calls of tools that were not offered in JSON or in a fence, count
as lost, too, so the figure is an upper bound: `of an offered tool` counts those that name one. A turn that was begun for the
model, of which a run may have kept the rest alone, is known by its calls.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmlcall import Catalog, UsageError, parse
from xmlcall.bench.case import Case
from xmlcall.bench.funnel import spoken
from xmlcall.bench.store import RecordedRun, read_run
from xmlcall.bench.ways import AskedCase, way_of
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.call_signs import attempts_call
from xmlcall.types.calls import Tool

RUNS = Path(__file__).parent / "results" / "runs"
SHOWN = 300  # characters of a reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A reply as a run has kept it."""

    case: str
    text: str
    finish_reason: str
    catalog: Catalog
    has_calls: bool = False


@dataclass(slots=True)
class Counts:
    """What became of the replies of a run."""

    replies: int = 0
    told: int = 0
    lost: int = 0
    named: int = 0  # of those that were lost, those with the name of an offered tool


def replies_of(run: RecordedRun) -> Iterator[Written]:
    """Yield the replies of a run, each round and each reply of a played turn."""
    for row in run.replies:
        if (case := run.by_id.get(row["case"])) is None:
            continue
        if "outcome" in row:
            yield from _played(case, row["outcome"])
            continue
        catalog = AskedCase(way_of(row["way"]), case, run.settings).catalog
        for kept in row["rounds"]:
            yield Written(
                case=case.id,
                text=kept.get("text") or "",
                finish_reason=kept.get("finish_reason") or "stop",
                catalog=catalog,
                has_calls=bool(kept.get("calls")),
            )


def _played(case: Case, outcome: Mapping[str, Any]) -> Iterator[Written]:
    catalog = Catalog(list(_tools(outcome.get("tools") or ())) or {tool.name: tool for tool in case.tools}.values())
    for turn in outcome["turns"]:
        for number, text in enumerate(turn["replies"], start=1):
            has_calls = any(call.get("reply", number) == number for call in turn["calls"])
            yield Written(case=case.id, text=text, finish_reason="stop", catalog=catalog, has_calls=has_calls)


def _tools(told: Sequence[Mapping[str, Any]]) -> Iterator[Tool]:
    for each in told:
        try:
            yield Tool(**each) if "input_schema" in each else Tool.from_mcp(each)
        except (UsageError, TypeError):
            continue


def fate(written: Written, *, reasoning_open: bool) -> str:
    """Say what becomes of a reply: `told` if it has a call or an issue, `lost`, or "" if it means none."""
    reply = parse(written.text, written.catalog, finish_reason=written.finish_reason, reasoning_open=reasoning_open)
    if reply.calls or written.has_calls:
        return "told"
    text = spoken(written.text, reasoning_open=reasoning_open)
    return "lost" if attempts_call(text, DIALECTS.values(), written.catalog.names()) else ""


def counted(run: RecordedRun) -> tuple[Counts, list[Written]]:
    """Count what became of the replies of a run, and return those that were lost."""
    counts, lost = Counts(), list[Written]()
    for written in replies_of(run):
        became = fate(written, reasoning_open=bool(run.about.get("reasoning_open")))
        counts.replies += 1
        counts.told += became == "told"
        counts.lost += became == "lost"
        if became == "lost":
            lost.append(written)
            counts.named += any(name in written.text for name in written.catalog.names())
    return counts, lost


def main() -> None:
    """Print a row a run and the sum, and some of the replies that were lost."""
    parser = argparse.ArgumentParser(description="How many recorded replies mean a call of which nothing is told.")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print so many of them for each run")
    options = parser.parse_args()
    total = Counts()
    print("| run | replies | with a call or an issue | lost in silence | of an offered tool |\n|---|---|---|---|---|")
    for folder in sorted(RUNS.iterdir()):
        counts, lost = counted(read_run(folder))
        print(f"| {folder.name} | {counts.replies} | {counts.told} | {counts.lost} | {counts.named} |", flush=True)
        for written in lost[: options.show]:
            print(f"  {written.case}: {written.text[-SHOWN:]!r}")
        for name in Counts.__slots__:
            setattr(total, name, getattr(total, name) + getattr(counts, name))
    print(f"| all | {total.replies} | {total.told} | {total.lost} | {total.named} |")


if __name__ == "__main__":
    main()
