"""Why replies of the recorded runs are not right: `python benchmarks/failures.py` writes results/failures.md. No model is needed.

The runs are read and judged by this checkout. What a server's own template made the model write is judged a second time with our
parser, which reads the calls that the server left in the text.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from xmlcall.bench.failures import CAUSES, causes_of, counted
from xmlcall.bench.funnel import Verdict, judge_reply
from xmlcall.bench.report import causes_table_of, judged
from xmlcall.bench.store import RecordedRun, read_run
from xmlcall.bench.ways import way_of

RESULTS = Path(__file__).resolve().parent / "results"
MODELS, SUITES = ("0.5b", "1.5b"), ("bfcl-core", "bfcl-fs200")
# What is set otherwise in a run than in the one of the same suite and model that has no such end.
VARIANTS = ("", "-auto", "-threshold", "-names")

ABOUT = """# Why replies are not right

Written by `python benchmarks/failures.py` from the recorded runs beside this page.
Qwen2.5-Coder-Instruct, Q4_K_M, temperature 0. Cases: the report half of bfcl-core (80 questions
that need a call, 20 that need none) and bfcl-fs200 (200 questions that need a call; the 1.5B was
asked 100). How the runs were made: [bfcl-core.md](bfcl-core.md), [bfcl-fs200.md](bfcl-fs200.md).

Each call that came is paired with the wanted one that it differs from least.
[What the causes mean](../../docs/reference/bench.md#causes). `read` is the text of `native`, with the calls
in it read by our parser. `auto`, `threshold` and `names` are `xml` with a call threshold that the
program finds, with one that was measured, and with the tools' names in the reminder.

## What it says

- Replies to our prompt leave out optional values. Replies to the prompts that show plain JSON
  Schema (`origin`, and the server's own template) hardly ever do.
- The server's own template makes a model call once. So it is even with our prompt or ahead of it
  where one call is wanted, on the 0.5B, and next to never right where several are.
- The 0.5B makes too many calls for questions of real users (bfcl-fs200), and seldom for others.
- Of the replies of `xml` whose main cause is a value, about a quarter have one that nobody said.
  Values that have to be worked out, such as the date of "next Friday", count as such.
- Samples are small, and settings were chosen with these cases known. These are reasons to try
  something on fresh cases.

Of the wrong replies of `xml`, by main cause; and right replies where a call is needed:

"""
HEADER = ("run", "only omits", "values", "too many", "too few", "one call: xml", "read", "several calls: xml", "read")


def verdicts_of(run: RecordedRun, variant: str) -> dict[str, list[Verdict]]:
    """Judge a run, and the text of `native` once more by our parser."""
    found = asyncio.run(judged(run))
    if variant:
        return {variant.removeprefix("-"): found["xml"]}
    rows = run.of_way("native")
    return {**found, "read": asyncio.run(_read(run, rows))} if rows else found


async def _read(run: RecordedRun, rows: Sequence[tuple[object, Mapping[str, object]]]) -> list[Verdict]:
    return [await judge_reply(row, case, way_of("xml"), run.settings) for case, row in rows]  # type: ignore[arg-type]


def only(verdicts: Sequence[Verdict], cause: str) -> int:
    """Count the replies in which nothing else is wrong."""
    return sum(causes_of(verdict) == (cause,) for verdict in verdicts)


def facts(name: str, ways: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Return the row of a run: what `xml` loses to what, and how it stands beside `read`."""
    causes = counted(ways["xml"])
    main = {cause: causes[cause]["main"] if cause in causes else 0 for cause in CAUSES}
    values = main["wrong_value"] + main["invented_value"]
    lost = (only(ways["xml"], "omitted_optional"), values, main["too_many"], main["too_few"])
    right = [share(ways[way], several) for several in (False, True) for way in ("xml", "read")]
    return [name, *map(str, lost), *right]


def share(verdicts: Sequence[Verdict], several: bool) -> str:
    """Say how many replies are right to questions that need one call, or several."""
    found = [verdict.is_right for verdict in verdicts if verdict.case.answers and (len(verdict.case.answers) > 1) == several]
    return f"{sum(found)}/{len(found)}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first row is its header."""
    header, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *others))


def main() -> None:
    """Write the page."""
    parts, said = list[str](), [list(HEADER)]
    for suite in SUITES:
        for model in MODELS:
            ways: dict[str, list[Verdict]] = {}
            for variant in VARIANTS:
                folder = RESULTS / "runs" / f"{suite}-{model}{variant}"
                ways |= verdicts_of(read_run(folder), variant) if folder.is_dir() else {}
            header, rows = causes_table_of({"ways": {way: {"causes": counted(of_way)} for way, of_way in ways.items()}})
            right = ["right", *(f"{sum(each.is_right for each in of_way)}/{len(of_way)}" for of_way in ways.values())]
            parts.append(f"\n## {suite}, {model}\n\n{table([header, right, *rows])}")
            said.append(facts(f"{suite}, {model}", ways))
    (RESULTS / "failures.md").write_text(ABOUT + table(said) + "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
