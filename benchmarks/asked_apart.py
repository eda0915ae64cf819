"""Does one line feed before the tool prompt change what is decided? `python benchmarks/asked_apart.py [NAME URL]`

What is asked about a message alone begins with a line feed once the conversation is long (`turn/tool_need.py`), so that the
server's prompt cache keeps the conversation. With a model's name and the address of its server, asks the model about each turn
of the tuning half of `talk` in both forms, with the threshold that `auto` finds for each, and writes results/asked_apart.jsonl;
always writes results/asked-apart.md.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from roc import area

from xmlcall.agent.drive import result_of
from xmlcall.agent.loop import ToolLoop
from xmlcall.agent.scores import Scores
from xmlcall.backends.base import Backend
from xmlcall.backends.connect import connect
from xmlcall.bench.case import Case
from xmlcall.bench.own_suites import talk_cases
from xmlcall.bench.play import lay_out, server_of
from xmlcall.bench.stats import mcnemar
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.prompting.format import ENGLISH
from xmlcall.turn import tool_need
from xmlcall.turn.machine import Machine
from xmlcall.turn.tool_need import ask_tool_need
from xmlcall.types.calls import Message
from xmlcall.types.completion import CompletionRequest

RESULTS = Path(__file__).parent / "results"
ROWS = RESULTS / "asked_apart.jsonl"
START_SECONDS = 180.0
FORMS = {"shared": float("inf"), "apart": -1.0}  # how much of the tool prompt a conversation has to be for a line feed


async def rows_of(case: Case, backend: Backend, scores: dict[str, Scores]) -> list[dict[str, Any]]:
    """Ask about the turns of a conversation, each in both forms."""
    place = lay_out(case.id, case.servers, case.category)
    hosts = [McpHost(server_of(name, place), connect_timeout=START_SECONDS) for name in case.servers]
    async with AsyncExitStack() as stack:
        loop = await stack.enter_async_context(ToolLoop(backend, hosts))
        stack.pop_all()  # the backend stays open; the servers are closed below
        prompt = await loop.tool_prompt()
        rows = []
        for number, turn in enumerate(case.turns, 1):
            if turn.get("may"):
                continue
            said = turn["say"].replace("{folder}", str(place))
            request = CompletionRequest(
                messages=(Message(role="system", content=prompt.system), Message(role="user", content=said))
            )
            wanted = [name for names in turn.get("tools", ()) for name in names.split("|")]
            row = {"turn": f"{case.id}#{number}", "kind": turn["kind"], "needs_tool": bool(wanted), "wanted": wanted}
            for form, much in FORMS.items():
                tool_need._LONG = much  # type: ignore[misc]
                asking = ask_tool_need("auto", backend.capabilities, request, prompt.catalog, ENGLISH)
                need = await result_of(Machine(asking), backend, scores[form])
                assert need is not None
                row[form] = {"score": need.score, "threshold": need.threshold, "tool": need.tool, "needs_tool": need.needs_tool}
            rows.append(row)
        await loop.router.__aexit__(None, None, None)
    return rows


async def ask(name: str, url: str) -> None:
    """Ask a model, and add its rows to the file."""
    kept = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.exists() else []
    rows = [row for row in kept if row["model"] != name]
    scores = {form: Scores() for form in FORMS}
    async with connect(url) as backend:
        for case in talk_cases():
            if case.half == "tuning":
                found = await rows_of(case, backend, scores)
                rows += [{"model": name, **row} for row in found]
                print(case.id, len(rows), file=sys.stderr, flush=True)
    ROWS.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def lines_of(model: str, rows: list[dict[str, Any]]) -> list[str]:
    """Write what both forms decide."""
    right = {form: [row[form]["needs_tool"] == row["needs_tool"] for row in rows] for form in FORMS}
    margins = {form: [row[form]["score"] - row[form]["threshold"] for row in rows] for form in FORMS}
    areas = {
        form: area(
            *(
                [each for each, row in zip(margins[form], rows, strict=True) if row["needs_tool"] is side]
                for side in (True, False)
            )
        )
        for form in FORMS
    }
    pairs = list(zip(right["shared"], right["apart"], strict=True))
    lost, won = pairs.count((True, False)), pairs.count((False, True))
    called = [row for row in rows if row["needs_tool"] and row["shared"]["tool"] and row["apart"]["tool"]]
    cells = [f"{sum(right[form])} of {len(rows)}" for form in FORMS]
    cells += [f"{lost} and {won}, p = {mcnemar(lost, won):.2g}", *(f"{areas[form]:.3f}" for form in FORMS)]
    cells += [f"{sum(row[form]['tool'] in row['wanted'] for row in called)} of {len(called)}" for form in FORMS]
    return [f"| {model} | {' | '.join(cells)} |"]


def main() -> None:
    """Ask, if a model is named, and write the page."""
    if len(sys.argv) == 3:
        asyncio.run(ask(*sys.argv[1:]))
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    lines = [
        "# One line feed before the tool prompt",
        "",
        "Written by `python benchmarks/asked_apart.py` from asked_apart.jsonl: each turn of the tuning half of `talk` on which",
        "it is certain whether a tool is needed, asked about alone after the tool prompt (`shared`) and after the same with a",
        "line feed before it (`apart`), each with the threshold that `auto` finds. Q4_K_M, llama.cpp b11549, Linux x86_64,",
        "2 cores, 2026-11-24.",
        "",
        "| model | right, shared | right, apart | only shared, only apart | area, shared | area, apart | tool, shared | apart |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        lines += lines_of(model, [row for row in rows if row["model"] == model])
    (RESULTS / "asked-apart.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
