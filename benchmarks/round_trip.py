"""Random valid arguments for real tools, written in every format and read back: `python benchmarks/round_trip.py --wheel FILE`.

For each draw one tool and arguments that its schema admits, with hostile strings (`tests/schema_values.py`), are rendered in one
format, parsed and bound, with a catalog of that tool alone; name and arguments must come back equal. A format that refuses to
write a call (it has no mark for JSON where a string is admitted, or cannot carry a name) is counted apart, with the reason. The
tools are those of the demo server, of the servers named with `--server`, and of BFCL (`--wheel`, the file of `bfcl-eval`, read
as an archive).
"""

import argparse
import asyncio
import collections
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from schema_values import value_of

from xmlcall import Catalog, Tool, ToolCall, UsageError, parse, render
from xmlcall.bench.bfcl import AST_CATEGORIES, read_cases
from xmlcall.binding.provenance import values_in
from xmlcall.dialects import DIALECTS
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.server import StdioServer
from xmlcall.schema.validation import find_issues


async def tools_of(command: list[str]) -> list[Tool]:
    """Return the tools that a server lists."""
    host = McpHost(StdioServer(name="server", command=command[0], args=tuple(command[1:])))
    async with host:
        return list(await host.tools())


def bfcl_tools(wheel: Path) -> Iterator[Tool]:
    """Yield every function of the AST categories."""
    for category in AST_CATEGORIES:
        for case in read_cases(wheel, category):
            yield from case.tools


def outcome(tool: Tool, arguments: dict[str, Any], dialect: str) -> str:
    """Return `equal`, `refused: ...` or what came back."""
    catalog = Catalog([tool])
    try:
        text = render([{"name": tool.name, "arguments": arguments}], catalog, dialect=dialect)
    except UsageError as error:
        if any("<" in name for name in arguments):
            return "refused: `<` in the name of a parameter"
        if DIALECTS[dialect].json_mark is None:
            return f"refused: {dialect} has no mark for JSON"
        return f"REFUSED {dialect} {tool.name} {json.dumps(arguments)[:200]}: {str(error)[-100:]}"
    calls = parse(text, catalog).calls
    same = [isinstance(call, ToolCall) and same_json(call.arguments, arguments) and call.name == tool.name for call in calls]
    return "equal" if same == [True] else f"DIFFERENT {dialect} {tool.name} {json.dumps(arguments)[:200]} -> {calls!r:.300}"


def same_json(one: Any, other: Any) -> bool:
    """Compare JSON, with true and 1 apart and 1 and 1.0 equal."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def main() -> int:
    """Draw, count, print; exit 1 if anything came back different."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--wheel", type=Path, help="the wheel of bfcl-eval")
    arguments.add_argument("--server", action="append", default=[], help="a server's command line; may be repeated")
    arguments.add_argument("--values", type=int, default=1_000, help="to draw for each format, each member of a list counted")
    options = arguments.parse_args()
    tools = asyncio.run(tools_of([sys.executable, "-m", "xmlcall.hosts.demo_server"]))
    for line in options.server:
        tools += asyncio.run(tools_of(line.split()))
    bfcl = list(bfcl_tools(options.wheel)) if options.wheel else []
    print(f"{len(tools)} tools of servers, {len(bfcl)} of BFCL", flush=True)
    counts: collections.Counter[str] = collections.Counter()
    values: collections.Counter[str] = collections.Counter()
    chooser = random.Random(1)
    for place, dialect in enumerate(DIALECTS, 1):
        while values[dialect] < options.values:
            tool = chooser.choice(bfcl) if bfcl and chooser.random() < 0.7 else chooser.choice(tools)
            if (given := drawn(tool, chooser)) is not None:
                counts[outcome(tool, given, dialect)] += 1
                values[dialect] += len(list(values_in(given)))
        print(f"{place} of {len(DIALECTS)} formats: {values.total():,} values in {counts.total():,} calls", flush=True)
    for title, count in counts.most_common():
        print(f"{count:7} {title}")
    return int(any(title.startswith(("DIFFERENT", "REFUSED")) for title in counts))


def drawn(tool: Tool, chooser: random.Random) -> dict[str, Any] | None:
    """Return arguments for a tool; None if those drawn are not valid."""
    arguments: dict[str, Any] = value_of(tool.input_schema, tool.input_schema, chooser)
    return None if find_issues(Catalog([tool]).validator(tool.name), arguments) else arguments


if __name__ == "__main__":
    sys.exit(main())
