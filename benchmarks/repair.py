"""How often does feedback repair a damaged call? `python benchmarks/repair.py [MODEL]`, about 15 minutes on two cores.

60 questions of BFCL (simple_python and multiple, 30 each, drawn with a seed). The first reply is not the model's: it is the right
call, damaged in one of six ways in turn, so that it cannot run. From there on the model answers, at temperature 0, for at most
two rounds. Two ways on the same cases:

    feedback     what is wrong is told, nothing is forced
    constrained  the same, and the last round is forced to a call if the model repeats the damaged one

Where nothing was forced, both ways send the same requests, and the replies of one count for the other.

"Runs" is a valid call of a tool on offer, "right" one that BFCL accepts. All replies are kept in results/repair.jsonl, from which
a run that was stopped goes on with the same model (remove the model's lines to begin anew); the table of this model is written to
results/repair.md.
"""

import asyncio
import datetime
import json
import platform
import random
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xmlcall import Catalog, InvalidCall, RepairPolicy, Tool, ToolCall, ToolLoop, connect, parse
from xmlcall.backends.base import Backend, KeptOpen
from xmlcall.bench.bfcl import bfcl_wheel, read_cases
from xmlcall.bench.case import Case
from xmlcall.bench.judge import judge
from xmlcall.bench.subjects import oracle_calls
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.hosts.local import LocalHost
from xmlcall.turn.events import CallStarted, ReplyEnded, RetryAsked
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

RESULTS = Path(__file__).parent / "results"
WAYS = ("constrained", "feedback")
ROUNDS = 2
Arguments = Mapping[str, Any]


def text_of(tool: Tool, arguments: Arguments, name: str = "") -> str:
    """Write a call, valid or not."""
    return write([(name or tool.name, arguments)], Catalog([tool]), DIALECTS["function_calls"])


def without_a_required(tool: Tool, arguments: Arguments) -> str:
    """Leave out the last required argument."""
    missing = [name for name in tool.input_schema.get("required", ()) if name in arguments][-1:]
    return text_of(tool, {name: value for name, value in arguments.items() if name not in missing})


def with_another_name(tool: Tool, arguments: Arguments) -> str:
    """Give the first argument a name that the tool does not have."""
    first, *_ = arguments
    return text_of(tool, {"input_value" if name == first else name: value for name, value in arguments.items()})


def with_a_wrong_type(tool: Tool, arguments: Arguments) -> str:
    """Write words where a number, a list or an object is declared."""
    declared = tool.input_schema["properties"]
    changed = {name: "as usual" if declared[name].get("type") != "string" else value for name, value in arguments.items()}
    return text_of(tool, changed)


def with_another_tool(tool: Tool, arguments: Arguments) -> str:
    """Call a tool that is not on offer."""
    return text_of(tool, arguments, name="run_" + tool.name.replace(".", "_")[::-1])


def cut_in_a_value(tool: Tool, arguments: Arguments) -> str:
    """Stop in the last value."""
    return text_of(tool, arguments).rpartition("</parameter>")[0][:-1]


def twice(tool: Tool, arguments: Arguments) -> str:
    """Give the last argument twice, with two values."""
    last = list(arguments)[-1]
    extra = f'<parameter name="{last}">something else</parameter>\n</invoke>'
    return text_of(tool, arguments).replace("</invoke>", extra)


DAMAGES: tuple[Callable[[Tool, Arguments], str], ...] = (
    without_a_required,
    with_another_name,
    with_a_wrong_type,
    with_another_tool,
    cut_in_a_value,
    twice,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A case with a first reply that cannot run."""

    case: Case
    damage: str
    text: str


def damaged_cases(count: int, seed: int) -> list[Damaged]:
    """Draw cases and damage their right calls, each kind in turn, passing over what a kind leaves able to run."""
    found: list[Damaged] = []
    for category in ("simple_python", "multiple"):
        cases = list(read_cases(bfcl_wheel(), category))
        random.Random(seed).shuffle(cases)
        of_category = 0
        for case in cases:
            damage = DAMAGES[len(found) % len(DAMAGES)]
            (name, arguments), *_ = oracle_calls(case)
            text = damage(next(tool for tool in case.tools if tool.name == name), arguments) if arguments else ""
            if of_category < count // 2 and text and isinstance(parse(text, case.tools).calls[0], InvalidCall):
                found.append(Damaged(case=case, damage=damage.__name__, text=text))
                of_category += 1
    return found


class Interrupted(KeptOpen):
    """A backend whose first reply is given, and whose others are a model's.

    Args:
        backend: the model; it is open and stays so.
        first: the first reply.
        constrains: whether it may be constrained.
    """

    def __init__(self, backend: Backend, first: str, *, constrains: bool) -> None:
        super().__init__(backend)
        self._first, self._constrains = first, constrains

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model, but for the constraint."""
        return replace(super().capabilities, constrains=self._constrains)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Give the first reply, then the model's."""
        first, self._first = self._first, ""
        if first:
            yield Chunk(text=first)
            yield Chunk(finish_reason="stop")
            return
        async with aclosing(self._backend.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


class Offered(LocalHost):
    """A host that offers the tools of a case."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        super().__init__([])
        self._offered = tuple({tool.name: tool for tool in tools}.values())

    async def tools(self) -> tuple[Tool, ...]:
        """List them."""
        return self._offered


async def attempt(backend: Backend, damaged: Damaged, way: str) -> dict[str, Any]:
    """Run a case until a call would run, the model gives up, or the rounds are over."""
    loop = ToolLoop(
        Interrupted(backend, damaged.text, constrains=way == "constrained"),
        [Offered(damaged.case.tools)],
        policy=["*"],
        temperature=0,
        max_tokens=400,
        repair=RepairPolicy(max_replies=1 + ROUNDS),
    )
    replies: list[str] = []
    ran: ToolCall | None = None
    forced = False
    async with loop, aclosing(loop.run([dict(message) for message in damaged.case.messages])) as events:
        async for event in events:
            if isinstance(event, ReplyEnded):
                replies.append("\n".join(call.raw.text for call in event.reply.calls) or event.reply.text)
            if isinstance(event, RetryAsked):
                forced |= bool(event.constrained)
            if isinstance(event, CallStarted):
                ran = event.call
                break
    call = [(ran.name, ran.arguments)] if ran else []
    return {
        "model": backend.model,
        "id": damaged.case.id,
        "damage": damaged.damage,
        "way": way,
        "replies": replies,
        "forced": forced,
        "rounds": len(replies) - 1 if ran else None,
        "call": call,
        "error": judge(call, damaged.case.tools, damaged.case.answers, damaged.case.category) if ran else "no call",
    }


def share(rows: list[dict[str, Any]], right: bool, rounds: int = ROUNDS) -> str:
    """Write how many rows have a call within so many rounds, that is right if asked for."""
    found = [row for row in rows if row["rounds"] is not None and row["rounds"] <= rounds and not (right and row["error"])]
    return f"{len(found)}/{len(rows)} ({100 * len(found) / len(rows):.0f} %)"


def report(rows: list[dict[str, Any]], model: str) -> str:
    """Write the table."""
    lines = [
        "# Repair of damaged calls",
        "",
        f"Written by `python benchmarks/repair.py` (see there): {model}, Q4, temperature 0, {datetime.date.today()}, xmlcall",
        f"{version('xmlcall')}, xllamacpp {version('xllamacpp')} (llama.cpp), {platform.system()} {platform.machine()}, 2 cores.",
        "",
        "| way | runs after 1 round | runs after 2 | right after 1 | right after 2 |",
        "|---|---|---|---|---|",
    ]
    by_way = {way: [row for row in rows if row["way"] == way] for way in WAYS}
    for way, of_way in by_way.items():
        cells = (share(of_way, right, rounds) for right in (False, True) for rounds in (1, ROUNDS))
        lines.append(f"| {way} | {' | '.join(cells)} |")
    lines += ["", "By damage, after two rounds, with the last constrained:", "", "| damage | runs | right |", "|---|---|---|"]
    for damage in dict.fromkeys(row["damage"] for row in rows):
        of_damage = [row for row in by_way["constrained"] if row["damage"] == damage]
        lines.append(f"| {damage.replace('_', ' ')} | {share(of_damage, False)} | {share(of_damage, True)} |")
    return "\n".join(lines) + "\n"


def rows_of(kept: Path, model: str) -> list[dict[str, Any]]:
    """Read the kept replies of a model."""
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    return [row for row in rows if row["model"] == model]


async def main() -> None:
    """Run all ways on all cases, going on where the kept replies of the model end; then write its table."""
    model = sys.argv[1] if len(sys.argv) > 1 else "local"
    kept = RESULTS / "repair.jsonl"
    cases = damaged_cases(60, seed=20261121)
    async with connect(model) as backend:
        rows = rows_of(kept, name := backend.model)
        done = {(row["id"], row["way"]) for row in rows}
        for number, damaged in enumerate(cases, 1):
            for way in WAYS:
                if (damaged.case.id, way) not in done:
                    same = way == "feedback" and not rows[-1]["forced"]
                    rows.append({**rows[-1], "way": way} if same else await attempt(backend, damaged, way))
                    with kept.open("a") as file:
                        print(json.dumps(rows[-1], ensure_ascii=False), file=file)
            print(f"\r{number} of {len(cases)} cases", end="", file=sys.stderr)
    (RESULTS / "repair.md").write_text(report(rows, name))
    print((RESULTS / "repair.md").read_text())


if __name__ == "__main__":
    asyncio.run(main())
