"""Does a grammar make calls valid, and does it cost right ones? `python benchmarks/constrained.py [MODEL] [CASES] [THREADS]`.

Questions of BFCL that need a call (`bfcl-tuning`), the call begun for the model up to the tool's name, as where a call is
required. At temperature 0, two ways on the same cases:

    free  the model goes on as it likes
    held  the rest is held by `xmlcall.grammar`

A reply is complete if it ended by itself: not at the limit of 512 tokens, and not because it repeated itself. It is valid if it
has calls and all of them bind without an issue, right if BFCL accepts them. All replies are kept in results/constrained.jsonl,
from which a run that was stopped goes on with the same model (remove the model's lines to begin anew); the table is written to
results/constrained.md. MODEL is a file where THREADS are given. About 20 minutes for 100 cases of SmolLM2-135M on one core.
"""

import asyncio
import datetime
import json
import platform
import sys
import time
from contextlib import aclosing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xmlcall import Backend, ToolCall, connect
from xmlcall.turn.generate import Generated
from xmlcall.backends.embedded import EmbeddedBackend
from xmlcall.bench.case import Case
from xmlcall.bench.judge import judge
from xmlcall.bench.stats import wilson
from xmlcall.bench.suites import cases_of
from xmlcall.bench.ways import Settings, catalog_of, conversation, format_of, generation, way_of
from xmlcall.dialects.write import beginning
from xmlcall.errors import ContextOverflow
from xmlcall.grammars.calls import loosened
from xmlcall.types.completion import UNCUT

RESULTS = Path(__file__).parent / "results"
WAYS = {"free": None, "held": True}
SETTINGS = Settings(reminder=False)
WAY = way_of("xml")


async def attempt(backend: Backend, case: Case, name: str) -> dict[str, Any]:
    """Ask for the rest of a call that is begun, and judge it."""
    settings = replace(SETTINGS, constrain=WAYS[name])
    begun = beginning(format_of(WAY, settings).row)
    started, found = time.perf_counter(), None
    try:
        async with aclosing(generation(WAY, case, conversation(WAY, case, settings), backend, settings, begun)) as events:
            async for event in events:
                found = event if isinstance(event, Generated) else found
    except ContextOverflow:
        return {"model": backend.model, "id": case.id, "way": name, "raw": "", "finish_reason": "context", "error": "no call"}
    assert found is not None
    calls = [call for call in found.reply.calls if isinstance(call, ToolCall)]
    is_valid = bool(calls) and len(calls) == len(found.reply.calls)
    written = [(call.name, call.arguments) for call in calls]
    return {
        "model": backend.model,
        "id": case.id,
        "way": name,
        "raw": found.raw,
        "finish_reason": found.reply.finish_reason,
        "valid": is_valid,
        "issues": sorted({issue.code for call in found.reply.calls if not isinstance(call, ToolCall) for issue in call.issues}),
        "error": judge(written, case.tools, case.answers, case.category) if is_valid else "no valid call",
        "tokens": found.usage.completion_tokens,
        "seconds": round(time.perf_counter() - started, 2),
        "loosened": loosened(catalog_of(case)),
    }


def share(count: int, of: int) -> str:
    """Write a share with its 95 % interval."""
    if not of:
        return "0/0"
    low, high = wilson(count, of)
    return f"{count}/{of} ({100 * count / of:.0f} %, {100 * low:.0f} to {100 * high:.0f})"


def report(rows: list[dict[str, Any]], model: str) -> str:
    """Write the table."""
    lines = [
        "# Calls held by a grammar",
        "",
        f"Written by `python benchmarks/constrained.py` (see there): {model}, temperature 0, {datetime.date.today()},",
        f"xmlcall {version('xmlcall')}, xllamacpp {version('xllamacpp')} (llama.cpp), {platform.system()} {platform.machine()}.",
        "Questions of `bfcl-tuning` that need a call; the call is begun for the model.",
        "",
        "| way | complete | valid, of complete | right, of all | tokens a second |",
        "|---|---|---|---|---|",
    ]
    for name in WAYS:
        of_way = [row for row in rows if row["way"] == name]
        complete = [row for row in of_way if row["finish_reason"] in UNCUT]
        valid, right = sum(row["valid"] for row in complete), sum(not row["error"] for row in of_way)
        speed = sum(row.get("tokens") or 0 for row in of_way) / max(sum(row.get("seconds", 0) for row in of_way), 0.01)
        cells = (share(len(complete), len(of_way)), share(valid, len(complete)), share(right, len(of_way)), f"{speed:.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    exact = [row for row in rows if row["way"] == "held" and not row.get("loosened") and row["finish_reason"] in UNCUT]
    lines += ["", f"Where the grammar holds all of the schemas: {share(sum(row['valid'] for row in exact), len(exact))} valid."]
    return "\n".join(lines) + "\n"


async def main() -> None:
    """Ask all cases in both ways, going on where the kept replies of the model end; then write the table."""
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    kept = RESULTS / "constrained.jsonl"
    cases = [case for case in cases_of("bfcl-tuning") if case.expects == "calls"][:limit]
    backend = EmbeddedBackend(model, threads=int(sys.argv[3])) if len(sys.argv) > 3 else connect(model)
    async with backend:
        rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        rows = [row for row in rows if row["model"] == backend.model]
        done = {(row["id"], row["way"]) for row in rows}
        for number, case in enumerate(cases, 1):
            for name in WAYS:
                if (case.id, name) not in done:
                    rows.append(await attempt(backend, case, name))
                    with kept.open("a") as file:
                        print(json.dumps(rows[-1], ensure_ascii=False), file=file)
            print(f"\r{number} of {len(cases)} cases", end="", file=sys.stderr)
    (RESULTS / "constrained.md").write_text(report(rows, backend.model))
    print((RESULTS / "constrained.md").read_text())


if __name__ == "__main__":
    asyncio.run(main())
