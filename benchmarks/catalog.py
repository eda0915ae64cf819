"""Does a model find the right tool among many, and what does that cost? Through `ToolLoop`, as `xmlcall run` does it.

    python benchmarks/catalog.py run http://127.0.0.1:8090/v1 --name 0.5b [--tool-tokens N] [--sizes 10,50,200] [--limit N]
    python benchmarks/catalog.py report [--write]

The questions and tools are those of the suite `catalog` (xmlcall/bench/own_suites.py). Before each question the same loop
is asked a greeting, so that the server has read the tool prompt: what is timed is a question as the second one. Time to first
token is until the first text or call of the reply, with all that is asked before it (does the message need a tool, and which).

A reply's first calls count, those for descriptions aside. Nothing runs: the turn is left when they are known. Lines of
`results/catalog/NAME.jsonl` keep every raw reply, and what was answered before is not asked again.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from xmlcall import LocalHost, Message, ToolLoop, connect
from xmlcall.backends.base import Backend
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.own_suites import catalog_cases
from xmlcall.bench.store import ReplyRecorder
from xmlcall.turn.events import ReplyEnded
from xmlcall.turn.tool_need import ToolNeed
from xmlcall.types.calls import Tool, ToolCall, ToolResult
from xmlcall.types.completion import Chunk, CompletionRequest, Usage

FOLDER = Path(__file__).parent / "results" / "catalog"
PAGE = FOLDER.with_suffix(".md")
GREETING = "Hello!"


class Shelf(LocalHost):
    """A host that lists given tools and runs none of them."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        super().__init__([], name="catalog")
        self._tools = list(tools)

    async def call(self, *arguments: Any, **options: Any) -> ToolResult:
        raise AssertionError("a turn is left before its calls run")


class Timed(ReplyRecorder):
    """A backend of which replies are kept, and when the first token of one came."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.first: float | None = None

    def begin_turn(self) -> list[str]:
        """Begin anew; return the list that the replies from now on are added to."""
        self.first = None
        return super().begin_turn()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece."""
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                if chunk.text and not request.top_logprobs and self.first is None:
                    self.first = time.monotonic()
                yield chunk


async def asked(backend: Backend, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """Ask a case after a greeting; return what is kept of the reply."""
    recorder = Timed(backend)
    async with ToolLoop(recorder, [Shelf(case.tools)], max_tokens=512, temperature=0.0, seed=1, **options) as loop:
        await first_calls(loop, GREETING)
        replies, began = recorder.begin_turn(), time.monotonic()
        kept = await first_calls(loop, str(case.messages[-1]["content"]))
        kept["first_seconds"] = round((recorder.first or time.monotonic()) - began, 3)
        offered = await loop.tool_prompt()
    return {**kept, "replies": list(replies), "grade": offered.grade}


async def first_calls(loop: ToolLoop, question: str) -> dict[str, Any]:
    """Ask a question; leave the turn when its first calls are known, or its answer."""
    began, usage, described = time.monotonic(), Usage(), 0
    kept: dict[str, Any] = {"calls": []}
    own = (await loop.tool_prompt()).own
    async with aclosing(loop.run([Message(role="user", content=question)])) as events:
        async for event in events:
            if isinstance(event, ToolNeed):
                kept["need"] = {"log_odds": event.log_odds, "threshold": event.threshold, "tool": event.tool}
            elif isinstance(event, ReplyEnded):
                usage = event.usage
                kept["calls"] = [
                    [call.name, call.arguments if isinstance(call, ToolCall) else None] for call in event.reply.calls
                ]
                if not kept["calls"] or any(name != own for name, _ in kept["calls"]):
                    break
                described += 1
    seconds = round(time.monotonic() - began, 3)
    tokens = {"prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}
    return {**kept, **tokens, "described": described, "seconds": seconds}


def wrong(case: Case, row: dict[str, Any]) -> str:
    """Say what is wrong with a kept reply's calls; "" if they are right."""
    if any(arguments is None for _, arguments in row["calls"]):
        return "invalid_call"
    return judge_case(case, [(name, arguments) for name, arguments in row["calls"]])


async def run(options: argparse.Namespace) -> None:
    """Ask all that was not asked yet."""
    file = FOLDER / f"{options.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = {row["case"] for row in rows_of(file)}
    wanted = [case for case in cases_of(options.sizes, options.limit) if case.id not in done]
    settings = {"call_threshold": None if options.call_threshold == "off" else "auto", "tool_tokens": options.tool_tokens}
    async with connect(options.model) as backend:
        for number, case in enumerate(wanted, 1):
            row = {"case": case.id, "tools": len(case.tools), **await asked(backend, case, settings)}
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{number}/{len(wanted)} {case.id} {row['grade']} {wrong(case, row) or 'right'}", flush=True)


def cases_of(sizes: Sequence[int], limit: int | None) -> list[Case]:
    """Return the cases of some sizes, those of a question one after the other, so that the first part of a run is a sample."""
    by_size = [[case for case in catalog_cases() if len(case.tools) == size][:limit] for size in sizes]
    return [case for row in zip(*by_size, strict=True) for case in row]


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Read what was kept; a last line that was cut is left out."""
    if not file.exists():
        return []
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def table(file: Path, cases: dict[str, Case]) -> list[str]:
    """Return a row for each number of tools of a run."""
    by_size: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(file):
        by_size[row["tools"]].append(row)
    lines = []
    for size, rows in sorted(by_size.items()):
        right = sum(not wrong(cases[row["case"]], row) for row in rows)
        named = sum(next(iter(cases[row["case"]].answers[0])) in [name for name, _ in row["calls"]] for row in rows)
        grades = "/".join(sorted({row["grade"] for row in rows}))
        tokens = max(row["prompt_tokens"] or 0 for row in rows)
        first = statistics.median(row["first_seconds"] for row in rows)
        described = sum(row["described"] > 0 for row in rows)
        shares = f"{right} of {len(rows)} | {named} | {described}"
        lines.append(f"| {file.stem} | {size} | {grades} | {shares} | {tokens:,} | {first:.2f} |")
    return lines


def page() -> str:
    """Write the page from all that was kept."""
    cases = {case.id: case for case in catalog_cases()}
    return TEMPLATE.format(rows="\n".join(line for file in sorted(FOLDER.glob("*.jsonl")) for line in table(file, cases)))


TEMPLATE = """# Right calls among many tools

Made by `python benchmarks/catalog.py report --write` from the raw replies in
[catalog](catalog): questions of the suite `catalog`, each among the numbers of real tools of MCP
servers, with Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, llama.cpp b11549, temperature 0, two cores,
2026-11-23 (`--limit 20`, `llama-server -c 40960 -np 4`). How the runs were made stands at the head
of `benchmarks/catalog.py`.

In `0.5b-several-blocks` a reply may go on after its block of calls; in `0.5b-one-block` it ends
there. In `0.5b`, which is the code of now, it also ends before a call of another tool than the
first where tools are described after the question. `0.5b-one-described`, 9 replies, described the
chosen tool alone. Other programs ran beside some of the first run, so compare seconds with care.

| run | tools | shown | right call | tool named | descriptions asked for | longest prompt, tokens | first token, s |
|---|---|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    running = actions.add_parser("run")
    running.add_argument("model", help="as for `xmlcall run --model`")
    running.add_argument("--name", required=True, help="of the file that replies are kept in")
    running.add_argument("--tool-tokens", type=int, help="default: by the model's context; a large number shows all tools whole")
    running.add_argument("--call-threshold", choices=("auto", "off"), default="auto")
    running.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[10, 50, 200])
    running.add_argument("--limit", type=int, help="questions")
    actions.add_parser("report").add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    if options.action == "run":
        asyncio.run(run(options))
        return
    text = page()
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
