"""How often is the right tool among the first k that a request brings up, without a model?

    python benchmarks/ranking.py [--write]

The questions are BFCL's of one tool (`simple_python`, `multiple`, `live_simple`, `live_multiple`, without disputed ones) and
the 40 of the suite `catalog`. Each is asked among 10, 50, 200 and 1,000 tools: those that it comes with, filled up with others
of the same source, drawn with a seed. Tools that have the right one's name, whatever its spelling, are left out. Beside BM25
stands a plain overlap of words: how many different words of the request a tool has. Weights were chosen on the half `tuning`;
the table has the other one.
"""

import argparse
import platform
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path

from xmlcall.bench.bfcl import bfcl_wheel, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.own_suites import catalog_cases
from xmlcall.tools.outline import parameters_of
from xmlcall.tools.ranking import Ranking, words_in
from xmlcall.types.calls import Tool

CATEGORIES = ("simple_python", "multiple", "live_simple", "live_multiple")
SIZES = (10, 50, 200, 1000)
KS = (1, 3, 5, 8)
MOST = 100  # questions of a category in each half
MCP = "catalog (MCP)"
PAGE = Path(__file__).parent / "results" / "ranking.md"
Best = Callable[[str, int], Sequence[str]]
Found = dict[tuple[int, int], list[bool]]
"""Tools on offer and k -> of each question, whether the right tool is among the first k."""


def overlap(tools: Sequence[Tool]) -> Best:
    """Rank by how many different words of the request a tool has."""
    held = [(tool.name, _words(tool)) for tool in tools]

    def best(request: str, count: int) -> Sequence[str]:
        wanted = set(words_in(request))
        scored = [(len(wanted & words), name) for name, words in held]
        return [name for score, name in sorted(scored, key=lambda each: -each[0]) if score][:count]

    return best


def _words(tool: Tool) -> set[str]:
    parts = parameters_of(tool)
    return set(words_in(" ".join([tool.name, tool.description, *(f"{part.name} {part.description}" for part in parts)])))


WAYS: dict[str, Callable[[Sequence[Tool]], Best]] = {"BM25": lambda tools: Ranking(tools).best, "word overlap": overlap}


def questions() -> dict[str, list[Case]]:
    """Return the cases by their source, each with one right tool."""
    found = {name: [case for case in read_cases(bfcl_wheel(), name) if _is_usable(case)] for name in CATEGORIES}
    return {**found, MCP: [case for case in catalog_cases() if case.category == "tools-200"]}


def _is_usable(case: Case) -> bool:
    return len(case.answers) == 1 and not case.disputed


def offered(case: Case, others: Sequence[Tool], size: int) -> list[Tool]:
    """Return the tools among which a case is asked: its own first, then others, shuffled."""
    (right,) = case.answers[0]
    own = [tool for tool in case.tools if tool.name == right][:1]
    fill = [tool for tool in case.tools if tool.name != right] if len(case.tools) < size else []
    taken = {_folded(tool.name) for tool in (*own, *fill)}
    draw = random.Random(f"{case.id} {size}")
    spare = [tool for tool in draw.sample(others, min(len(others), 2 * size)) if _folded(tool.name) not in taken]
    tools = list({_folded(tool.name): tool for tool in [*own, *fill, *spare][:size]}.values())
    draw.shuffle(tools)
    return tools


def _folded(name: str) -> str:
    return "".join(words_in(name))


def pool(cases: Iterable[Case]) -> list[Tool]:
    """Return the tools of cases, each name once."""
    return list({_folded(tool.name): tool for case in cases for tool in case.tools}.values())


def measured(cases: Sequence[Case], others: Sequence[Tool], way: Callable[[Sequence[Tool]], Best]) -> Found:
    """Ask all cases among all sizes of catalog."""
    found: Found = {(size, k): [] for size in SIZES for k in KS}
    for case in cases:
        (right,) = case.answers[0]
        for size in SIZES:
            if size > len(others):
                continue
            best = way(offered(case, others, size))(str(case.messages[-1]["content"]), max(KS))
            for k in KS:
                found[size, k].append(right in best[:k])
    return found


def table(name: str, cases: Sequence[Case], others: Sequence[Tool]) -> list[str]:
    """Return the rows of a source."""
    rows = []
    for way, make in WAYS.items():
        found = measured(cases, others, make)
        for size in SIZES:
            if found[size, KS[0]]:
                shares = " | ".join(f"{100 * sum(found[size, k]) / len(found[size, k]):.1f}" for k in KS)
                rows.append(f"| {name} | {len(cases)} | {size} | {way} | {shares} |")
    return rows


def times(others: Sequence[Tool]) -> list[str]:
    """Say what an index and a request cost with many tools."""
    lines = []
    for size in (200, 1000, 10_000):
        tools = [Tool(name=f"{each.name}_{n}", description=each.description, input_schema=each.input_schema)
                 for n in range(size // len(others) + 1) for each in others][:size]  # fmt: skip
        began = time.perf_counter()
        ranking = Ranking(tools)
        made = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(20):
            ranking.best("What will the weather be like in Oslo tomorrow, and do I need an umbrella?", 5)
        lines.append(f"| {size:,} | {1000 * made:.0f} | {1000 * (time.perf_counter() - began) / 20:.1f} |")
    return lines


def page(half: str) -> str:
    """Measure, and write the page."""
    by_source = questions()
    bfcl = pool(case for name in CATEGORIES for case in by_source[name])
    rows: list[str] = []
    for name, cases in by_source.items():
        others = bfcl if name in CATEGORIES else pool(cases)
        rows += table(name, random.Random(7).sample(cases, len(cases))[half == "report" :: 2][:MOST], others)
    return TEMPLATE.format(
        rows="\n".join(rows), times="\n".join(times(bfcl)), day=date.today(), machine=f"{platform.system()} {platform.machine()}"
    )


TEMPLATE = """# The right tool among the first k

Made by `python benchmarks/ranking.py --write`, {day}, {machine}. No model is asked. Each
figure is the share of questions, in percent, whose right tool is among the first k of the ranking.
Questions are drawn with a seed; weights were chosen on others.

| questions | n | tools | ranking | 1 | 3 | 5 | 8 |
|---|---|---|---|---|---|---|---|
{rows}

What it costs, in milliseconds:

| tools | index, once | a request |
|---|---|---|
{times}
"""


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--half", choices=("tuning", "report"), default="report")
    options = parser.parse_args()
    text = page(options.half)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
