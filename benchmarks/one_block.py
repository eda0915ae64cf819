"""What a reply loses and gains by ending with its first block of calls: `python benchmarks/one_block.py`

Reads the recorded replies of the way `xml` twice: as the loop does it now, and as it did before, when a reply could go on after
its block. No model is needed. Writes results/one-block.md. A run in which no reply goes on is left out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xmlcall.bench.funnel import Verdict
from xmlcall.bench.report import compared, judged
from xmlcall.bench.store import read_run
from xmlcall.dialects import DIALECTS

RESULTS = Path(__file__).parent / "results"
RUNS = ("bfcl-core-*", "families-*", "right-*", "smoke-*", "wire-*", "bfcl-fs200-*", "tried-off-*")
CLOSER = "</function_calls>"


def goes_on(kept: Any) -> bool:
    """Say whether a text in what is kept of a reply goes on after its first block."""
    if isinstance(kept, dict):
        return any(_text_goes_on(value) if key == "text" else goes_on(value) for key, value in kept.items())
    return isinstance(kept, list) and any(map(goes_on, kept))


def _text_goes_on(text: Any) -> bool:
    return isinstance(text, str) and bool(text.partition(CLOSER)[2].strip())


async def verdicts(folder: Path, *, one_block: bool) -> Sequence[Verdict]:
    """Judge the replies of a run in the way `xml`; none if it has none."""
    row = DIALECTS["function_calls"]
    DIALECTS["function_calls"] = replace(row, one_block=one_block)
    try:
        return (await judged(read_run(folder))).get("xml", ())
    finally:
        DIALECTS["function_calls"] = row


async def row(folder: Path) -> Sequence[Any] | None:
    """Judge a run twice; return its name, replies, those that go on, and what the end changes."""
    replies = [reply for reply in read_run(folder).replies if reply["way"] == "xml"]
    count = sum(map(goes_on, replies))
    if not count:
        return None
    pair = compared(await verdicts(folder, one_block=False), await verdicts(folder, one_block=True))["metrics"]["task_correct"]
    return folder.name, pair["total"], count, pair["first"], pair["second"], pair["only_first"], pair["only_second"]


async def main() -> None:
    """Write the page."""
    folders = sorted({folder for pattern in RUNS for folder in (RESULTS / "runs").glob(pattern)})
    rows = [found for folder in folders if (found := await row(folder))]
    totals = [sum(row[place] for row in rows) for place in range(1, 7)]
    text = "\n".join(
        [
            "# Replies that end with their first block of calls",
            "",
            "Written by `python benchmarks/one_block.py` from the recorded replies in runs/, which are read as before and as",
            "now, and judged again.",
            "",
            "| run | replies | went on | right before | right now | lost | gained |",
            "|---|---|---|---|---|---|---|",
            *(f"| {' | '.join(map(str, row))} |" for row in rows),
            f"| all | {' | '.join(map(str, totals))} |",
        ]
    )
    (RESULTS / "one-block.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    asyncio.run(main())
