"""Text without calls stays text: `python benchmarks/no_calls.py [--megabytes N]`

Reads README files, Markdown, Python and TypeScript of the installed packages and of Python itself as if a model had said them,
with a catalog of 50 common tool names, in pieces of 4,096 characters. Counts the calls that were seen in them, whether they can
run or not, and the characters that a person would not be shown. Both should be none. Each file is one reply.

Writes results/no-calls.md. Needs no model; 20 MB take some minutes.
"""

import argparse
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xmlcall import Markup, Parser, ReasoningDelta, ToolArgumentDelta, coalesce
from xmlcall.types.events import Event, ToolCallEnd

RESULTS = Path(__file__).parent / "results"
NAMES = """add_comment ask bash book_flight browse calculator call click close commit convert copy create_file delete_file deploy
describe download edit execute fetch find format get get_time get_weather glob grep head list_files log look_up mail move open
play post print query read_file remember run save search send_email set sleep sort sum translate write_file""".split()  # noqa: SIM905
KINDS = {
    ".md": "Markdown",
    ".rst": "reStructuredText",
    ".txt": "plain text",
    ".py": "Python",
    ".pyi": "Python",
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".js": "JavaScript",
    ".json": "JSON",
}
PIECE = 4096
LARGEST = 300_000  # characters of one file: no model says more
SHARE = 4  # no kind of text has more than one part in so many


@dataclass(slots=True)
class Count:
    """What was read of one kind of text."""

    files: int = 0
    characters: int = 0
    lost: int = 0
    calls: list[str] = field(default_factory=list)
    seconds: float = 0.0


def parameters() -> dict[str, object]:
    """Return a schema that admits much, so that nothing is text because of it."""
    names = ("path", "content", "query", "text", "value", "name", "city", "url")
    return {"type": "object", "properties": {name: {} for name in names}}


def files() -> Iterator[Path]:
    """Yield the files in an order that mixes packages: those of each folder by turns would need all their names at once."""
    roots = [Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))]
    roots += [Path(root) for root in os.environ.get("NO_CALLS_ALSO", "").split(os.pathsep) if root]
    for root in roots:
        yield from sorted(path for path in root.rglob("*") if path.suffix in KINDS and path.is_file())


def read(text: str, tools: Sequence[Mapping[str, object]]) -> tuple[list[Event], float]:
    """Read a text in pieces; return the events, and the seconds that it took."""
    parser, events, started = Parser(tools), [], time.perf_counter()
    for start in range(0, len(text), PIECE):
        events += parser.feed(text[start : start + PIECE])
    events += parser.close()
    return coalesce(events), time.perf_counter() - started


def lost_in(events: list[Event]) -> int:
    """Count the characters that are not text for a person."""
    return sum(
        event.span[1] - event.span[0] for event in events if isinstance(event, Markup | ReasoningDelta | ToolArgumentDelta)
    )


def measure(megabytes: float) -> dict[str, Count]:
    """Read so much text, no kind more than its share."""
    tools = [{"name": name, "inputSchema": parameters()} for name in NAMES]
    wanted = int(megabytes * 1_000_000)
    counts = {kind: Count() for kind in dict.fromkeys(KINDS.values())}
    for path in files():
        count = counts[KINDS[path.suffix]]
        if sum(each.characters for each in counts.values()) >= wanted:
            break
        if count.characters >= wanted / SHARE:
            continue
        try:
            text = path.read_text(encoding="utf-8")[:LARGEST]
        except UnicodeDecodeError:
            continue
        events, seconds = read(text, tools)
        count.files += 1
        count.characters += len(text)
        count.seconds += seconds
        count.lost += lost_in(events)
        calls = [f"{event.raw.name} in {path.name}" for event in events if isinstance(event, ToolCallEnd)]
        count.calls += calls
        if calls or lost_in(events):
            print(f"{path}: {calls}, {lost_in(events)} characters", file=sys.stderr)
    return counts


def page(counts: dict[str, Count]) -> str:
    """Return the page."""
    lines = [
        "# Text without calls",
        "",
        "Written by `python benchmarks/no_calls.py` (see there for what is read).",
        f"{time.strftime('%Y-%m-%d')}, CPython {platform.python_version()}, {platform.system()} {platform.machine()}.",
        "",
        "| text | files | million characters | seen as calls | characters not shown |",
        "|---|---|---|---|---|",
    ]
    total = Count()
    for kind, count in counts.items():
        if count.files:
            shown = f"{len(count.calls)}: {', '.join(count.calls[:3])}" if count.calls else "0"
            lines.append(f"| {kind} | {count.files:,} | {count.characters / 1e6:.1f} | {shown} | {count.lost:,} |")
        total.files += count.files
        total.characters += count.characters
        total.lost += count.lost
        total.calls += count.calls
    lines.append(f"| all | {total.files:,} | {total.characters / 1e6:.1f} | {len(total.calls)} | {total.lost:,} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Text without calls stays text.")
    parser.add_argument("--megabytes", type=float, default=20.0, help="how much to read (default: %(default)s)")
    options = parser.parse_args()
    text = page(measure(options.megabytes))
    (RESULTS / "no-calls.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
