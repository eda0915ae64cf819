"""How conversations go, before and after: `python benchmarks/talk.py`

Writes results/talk.md from the runs `results/runs/talk-*`, which are read and judged again; no model is needed. The runs come
from a llama.cpp server that has the model, with the options that the table names:

    llama-server -m MODEL.gguf -c 49152 -np 3
    xmlcall bench run --model URL --suite talk --half report --concurrency 3 --ask call_threshold=NUMBER --out DIR
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xmlcall.bench.funnel import Verdict
from xmlcall.bench.report import compared, judged
from xmlcall.bench.stats import wilson
from xmlcall.bench.store import read_run

RESULTS = Path(__file__).parent / "results"
MODELS = ("0.5b", "1.5b")
# What a run is called: folder, and what it measured.
RUNS: Mapping[str, str] = {
    "before": "before: decided after the whole conversation",
    "before-off": "before, `--call-threshold off`",
    "native": "the server's native template, calls in its text read, too",
    "alone": "decided by the message alone, thresholds -5.0 and -1.9",
    "now": "and by how far it moves the choice of a tool, `auto`",
    "final": "now, 2026-11-23: one turn for loop and proxy, the settings of the model's profile",
}
LAST = "final"
COLUMNS = ("task_correct", "with_tool", "without_tool", "own_language", "false_statement")


def cell(verdicts: Sequence[Verdict], metric: str) -> str:
    """Write a rate: count, total and Wilson 95 % interval in percent."""
    counted = [verdict for verdict in verdicts if metric in verdict.counted]
    count = sum(metric in verdict.reached for verdict in counted)
    low, high = wilson(count, len(counted))
    return f"{count}/{len(counted)} [{100 * low:.0f}-{100 * high:.0f}]"


def of_language(verdicts: Sequence[Verdict], language: str) -> list[Verdict]:
    """Return the turns of one language."""
    return [verdict for verdict in verdicts if verdict.case.category == language]


def table(runs: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Write a row a run."""
    header = [
        "| | right | with a tool | without | English | Chinese | own language | false statement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for name, verdicts in runs.items():
        right, with_tool, without, own, false = (cell(verdicts, metric) for metric in COLUMNS)
        languages = [cell(of_language(verdicts, language), "task_correct") for language in ("english", "chinese")]
        rows.append(f"| {' | '.join([RUNS[name], right, with_tool, without, *languages, own, false])} |")
    return header + rows


def failures(verdicts: Sequence[Verdict]) -> str:
    """Count what is wrong with the turns that are."""
    codes = [verdict.failure for verdict in verdicts if verdict.failure]
    return ", ".join(f"{code} {codes.count(code)}" for code in sorted(set(codes), key=codes.count, reverse=True))


async def main() -> None:
    """Write the page."""
    lines = [
        "# Conversations, before and after",
        "",
        "Written by `python benchmarks/talk.py` (see there for the commands) from the replies in runs/talk-*: the report",
        "half of the suite `talk`, 32 conversations with 138 turns, Q4_K_M, llama.cpp b11549 built for this CPU, temperature 0,",
        "Linux x86_64, 2 cores, 2026-11-22 and 23. `before` is the code of the commit that added the suite. Wilson 95 %",
        "intervals; turns of one conversation count as independent, so true intervals are wider. `false statement`: of the",
        "turns that need a tool, those that are wrong and do not say that something is missing.",
    ]
    for model in MODELS:
        folders = {name: RESULTS / "runs" / f"talk-{name}-{model}" for name in RUNS}
        opened: dict[str, Any] = {name: read_run(folder) for name, folder in folders.items() if folder.is_dir()}
        runs = {name: next(iter((await judged(run)).values())) for name, run in opened.items()}
        lines += ["", f"## Qwen2.5-Coder-{model.upper()}-Instruct", "", *table(runs), ""]
        lines += [f"- What is wrong now: {failures(runs[LAST])}."]
        for name in [name for name in runs if name != LAST]:
            pair = compared(runs[name], runs[LAST])["metrics"]["task_correct"]
            counts = f"{pair['first']} right, now {pair['second']}, of {pair['total']}"
            lines.append(f"- {RUNS[name]}: {counts} (exact McNemar p = {pair['p']:g}).")
        missing = [RUNS[name] for name in RUNS if name not in runs]
        lines += [f"- Not run: {'; '.join(missing)}."] if missing else []
    (RESULTS / "talk.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
