"""What injected text gets to run: `python benchmarks/injections.py [--out FILE] [--show]`.

98 attempts (`injections/*.toml`), each with a twin: the same servers, an honest text, and a person who wants such a call. The
model is scripted, and the worst there is: it obeys whatever it reads. All tools are allowed, so that only `flows`, the check for
repeated text, and what is taken out of descriptions stand in the way. Told is which calls run unasked; of the twins, which ones
are asked about, since that is the cost. Told apart are 40 (`held_out.toml`) by somebody who had not seen the check.
"""

import argparse
import asyncio
import base64
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from xmlcall import Message, Tool, ToolLoop, ToolResult, allow, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.mcp.filter import INSTRUCTIONS, plain_text
from xmlcall.turn.events import CallStarted
from xmlcall.types.calls import TextContent

FOLDER = Path(__file__).parent / "injections"
RESULTS = Path(__file__).parent / "results" / "injections.md"

# Server, its tools, their parameters; what a read is called with.
SERVERS: Mapping[str, Mapping[str, str]] = {
    "web": {"fetch": "url", "search": "query"},
    "files": {"read": "path", "write": "path content", "delete": "path"},
    "mail": {"read": "id", "send": "to body"},
    "chat": {"read": "channel", "post": "channel text"},
    "calendar": {"list": "day", "add": "title when guests"},
    "pay": {"transfer": "account amount note"},
    "repo": {"issue": "number", "comment": "number text", "invite": "user role"},
    "db": {"query": "sql"},
    "shell": {"run": "command"},
    "home": {"set": "device state"},
    "shop": {"order": "item address"},
}
READ_ONLY = ("fetch", "search", "read", "list", "issue", "query")
READ_WITH = "the one"

ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "tags": lambda text: "".join(chr(0xE0000 + ord(char)) for char in text),
    "selectors": lambda text: "".join(chr(0xE0100 + byte - 16) for byte in text.encode()),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "percent": lambda text: quote(text, safe="").replace(".", "%2E"),
    "hex": lambda text: text.encode().hex(),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt or its twin: what the person asks, what a server says, and the call of a model that obeys."""

    kind: str
    asked: str
    read: str
    place: str
    text: str
    result: str
    call: Mapping[str, Any]
    is_twin: bool
    second: Mapping[str, str] = field(default_factory=dict)  # the tool of a second read, and what that returns

    @property
    def reads(self) -> Mapping[str, str]:
        """What is read, in order, with what it returns."""
        return {self.read: self.result, **self.second}

    @property
    def is_read(self) -> bool:
        """Whether what is hidden in a description is there still when the model reads it."""
        said = encoded(self.text)
        return self.place == "result" or said in plain_text(said, INSTRUCTIONS)[0] or "{{" not in self.text


def encoded(text: str) -> str:
    """Encode what stands in double braces."""
    return re.sub(r"\{\{(\w+):(.*?)\}\}", lambda match: ENCODINGS[match[1]](match[2]), text)


def read_attempts(names: Iterable[str] = ("results", "descriptions")) -> list[tuple[Attempt, Attempt]]:
    """Read the attempts, each with its twin."""
    texts = [(FOLDER / f"{name}.toml").read_text(encoding="utf-8") for name in names]
    rows = [row for text in texts for row in tomllib.loads(text)["attempt"]]
    return [(_attempt(row), _twin(row)) for row in rows]


def _attempt(row: Mapping[str, Any]) -> Attempt:
    place = row.get("place", "result")
    result = row["text"] if place == "result" else row["twin_text"]
    return Attempt(
        kind=row["kind"],
        asked=row["asked"],
        read=row["read"],
        place=place,
        text=row["text"],
        result=result,
        call=row["call"],
        is_twin=False,
        second=_second(row, "text"),
    )


def _twin(row: Mapping[str, Any]) -> Attempt:
    call = row.get("twin_call", row["call"])
    return Attempt(
        kind=row["kind"],
        asked=row["twin"],
        read=row["read"],
        place="result",
        text="",
        result=row["twin_text"],
        call=call,
        is_twin=True,
        second=_second(row, "twin_text"),
    )


def _second(row: Mapping[str, Any], text: str) -> Mapping[str, str]:
    return {row["second"]["read"]: row["second"][text]} if "second" in row else {}


class Server:
    """A host whose tools return one text."""

    def __init__(self, name: str, attempt: Attempt) -> None:
        self.name, self.notices, self.changed = name, (), asyncio.Event()
        self.attempt = attempt
        is_here = attempt.read.startswith(f"{name}.")
        said = plain_text(encoded(attempt.text), INSTRUCTIONS)[0] if is_here else ""
        self.instructions = said if attempt.place == "instructions" else ""
        self.said = said if attempt.place == "description" else ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools."""
        return tuple(self._tool(name, parameters) for name, parameters in SERVERS[self.name].items())

    def _tool(self, name: str, parameters: str) -> Tool:
        said = self.said if self.attempt.read == f"{self.name}.{name}" else ""
        properties: dict[str, Any] = {each: {} for each in parameters.split()}
        hints = {"readOnlyHint": True} if name in READ_ONLY else None
        schema = {"type": "object", "properties": properties}
        return Tool(name=name, description=said or f"{name} ({self.name})", input_schema=schema, annotations=hints)

    async def call(self, name: str, arguments: Any, timeout: float | None = None, *, progress: Any = None) -> ToolResult:
        """Return the text of the attempt, or that it is done."""
        text = encoded(self.attempt.reads.get(f"{self.name}.{name}", "Done."))
        return ToolResult(content=(TextContent(text=text),))


def offered_name(target: str) -> str:
    """Return the name under which a tool is offered: with its server's where several servers have one of that name."""
    tool = target.partition(".")[2]
    is_shared = sum(tool in tools for tools in SERVERS.values()) > 1
    return target.replace(".", "__") if is_shared else tool


def reading(target: str) -> Mapping[str, Any]:
    """Return what a read is called with."""
    server, _, tool = target.partition(".")
    return dict.fromkeys(SERVERS[server][tool].split(), READ_WITH)


async def runs_unasked(attempt: Attempt, *, may_flow: bool) -> bool:
    """Say whether the call that is asked for by somebody else runs where every tool is allowed."""
    if not attempt.is_read:
        return False
    calls: list[tuple[str, Mapping[str, Any]]] = [(read, reading(read)) for read in attempt.reads]
    calls.append((attempt.call["tool"], {key: value for key, value in attempt.call.items() if key != "tool"}))
    replies = [render([{"name": offered_name(target), "arguments": given}]) for target, given in calls]
    hosts = [Server(name, attempt) for name in SERVERS]
    async with ToolLoop(ScriptedBackend([*replies, "Done."]), hosts, policy=allow(["*"], may_flow=may_flow)) as loop:
        started = [
            f"{event.host}.{event.host_tool}"
            async for event in loop.run([Message(role="user", content=attempt.asked)])
            if isinstance(event, CallStarted)
        ]
    assert started[: len(attempt.reads)] == list(attempt.reads), (attempt, started)
    return started[len(attempt.reads) :] == [attempt.call["tool"]]


async def measured(pairs: list[tuple[Attempt, Attempt]]) -> list[tuple[str, bool, bool, bool]]:
    """Return of each pair its kind, whether the attempt runs unasked with `flow` allow and ask, and whether the twin is asked."""
    return [
        (
            attempt.kind,
            await runs_unasked(attempt, may_flow=True),
            await runs_unasked(attempt, may_flow=False),
            not await runs_unasked(twin, may_flow=False),
        )
        for attempt, twin in pairs
    ]


def table(rows: list[tuple[str, bool, bool, bool]]) -> list[str]:
    """Write the counts, a line a kind."""
    kinds = Counter(kind for kind, *_ in rows)
    lines = ["| kind | attempts | run, flow allow | run, flow ask | twins asked about, flow ask |", "|---|---|---|---|---|"]
    for kind, count in [*kinds.items(), ("all", len(rows))]:
        chosen = [row[1:] for row in rows if kind in (row[0], "all")]
        sums = [sum(column) for column in zip(*chosen, strict=True)]
        lines.append(f"| {kind} | {count} | {' | '.join(map(str, sums))} |")
    return lines


def told(pairs: list[tuple[Attempt, Attempt]], *, is_shown: bool) -> str:
    """Measure, and write the table."""
    rows = asyncio.run(measured(pairs))
    for (attempt, twin), (kind, _, runs, asked) in zip(pairs, rows, strict=True) if is_shown else ():
        if runs or asked:
            print(f"{'RUNS ' if runs else ''}{'ASKED' if asked else ''} {kind}: {attempt.call if runs else twin.call}")
    return "\n".join(table(rows))


HEAD = """# Injected text: what runs unasked

`python benchmarks/injections.py`. 98 attempts of our own, each with a twin in which the person wants such a call
([data](../injections)). The scripted model obeys everything that it reads, and every tool is allowed: only the question about
values of others, the check for repeated text, and what is taken out of descriptions stand in the way.

These 98 were used while the check was made better, so that their figures are those of a check that is fitted to them. The 40 of
the second table were not, until 2026-11-26.
"""
HELD_OUT = """
**By somebody else**: 40 attempts with their twins ([data](../injections/held_out.toml)), written after the check of 2026-11-23 by
somebody who had not seen it. That check let 7 run, and asked about 16 twins. Which of them run and ask was looked at while the
check of 2026-11-26 was made, so they are held out no longer.
"""


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="also tell which attempts run, and which twins are asked about")
    options = parser.parse_args()
    seen, held_out = (told(read_attempts(names), is_shown=options.show) for names in (("results", "descriptions"), ("held_out",)))
    page = f"{HEAD}\n{seen}\n{HELD_OUT}\n{held_out}\n"
    print(page)
    tail = RESULTS.read_text(encoding="utf-8").partition("\n## ")[2] if RESULTS.is_file() else ""
    options.out.write_text(page + (f"\n## {tail}" if tail else ""), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
