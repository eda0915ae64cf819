"""How fast the parser reads, beside two other parsers, on the same inputs in one run.

    make bench-parser                          # in an environment of its own, with the other parsers; prints Markdown
    python benchmarks/micro/parser.py --quick  # fewer repeats; parsers that are not installed are left out
    python benchmarks/micro/parser.py --beside ../before  # another checkout of this project, for what a change costs

Inputs: prose, code, thoughts, one argument of 3 to 1,000 kB, 100 calls, and texts made to be slow. Each is read whole and in
pieces of 4 characters, as a stream comes. The best of several runs counts; figures a piece are what matters for a stream, ratios
what holds on another machine. The others: `agent-tool-parser` (Rust, whole texts), and SGLang's Hermes detector from
`llm-router-utils` (streams).
"""

import argparse
import datetime
import importlib
import importlib.metadata
import json
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xmlcall

PIECE = 4
WORDS = "The quick brown fox jumps over the lazy dog, 3 < 4 and a & b. "
TOOL = {
    "name": "write",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
}
CATALOG = xmlcall.Catalog([TOOL])  # built once, as programs that run long do
XML = '<function_calls>\n<invoke name="write">\n<parameter name="content">{}</parameter>\n</invoke>\n</function_calls>'
HERMES = '<tool_call>\n{{"name": "write", "arguments": {{"content": "{}"}}}}\n</tool_call>'


def text_of(kilobytes: int) -> str:
    """Return prose of a size in kB."""
    return (WORDS * (kilobytes * 1000 // len(WORDS) + 1))[: kilobytes * 1000]


SIZES = (3, 32, 320, 1000)
INPUTS: dict[str, str] = {
    "prose, 320 kB": text_of(320),
    "code, 200 kB": (Path(argparse.__file__).read_text(encoding="utf-8") * 3)[:200_000],
    "thoughts, 320 kB": f"<think>{text_of(320)}</think>",
    **{f"argument, {size} kB": XML.format(text_of(size)) for size in SIZES},
    **{f"argument as JSON, {size} kB": HERMES.format(text_of(size)) for size in SIZES},
    "100 calls": XML.format("x") * 100,
    "`<` x 80,000": "<" * 80_000,
    "half tags x 20,000": "<invoke name=" * 20_000,
    "openers x 10,000": '<invoke name="f"><parameter name="a">' * 10_000,
    "closers x 20,000": "</parameter></invoke>" * 20_000,
    "back-tick runs x 20,000": "``` `` ` " * 20_000,
    "JSON openers x 10,000": '{"name": "write", "arguments": {' * 10_000,
}


def pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces of 4 characters."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def xmlcall_whole(text: str) -> None:
    xmlcall.parse(text, CATALOG)


def xmlcall_pieces(text: str) -> None:
    parser = xmlcall.Parser(CATALOG)
    for piece in pieces(text):
        parser.feed(piece)
    parser.close()


def agent_tool_parser() -> Callable[[str], Any]:
    return importlib.import_module("agent_tool_parser").try_parse_tool_calls  # type: ignore[no-any-return]


def sglang() -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    package = "llm_router_utils.sglang.srt"
    detector = importlib.import_module(f"{package}.function_call.hermes_detector").HermesDetector
    protocol = importlib.import_module(f"{package}.entrypoints.openai.protocol")
    logging.disable(logging.ERROR)
    function = {"name": "write", "parameters": TOOL["inputSchema"]}
    tools = [protocol.Tool(type="function", function=function)]

    def streamed(text: str) -> None:
        reader = detector()
        for piece in pieces(text):
            reader.parse_streaming_increment(piece, tools)

    return (lambda text: detector().detect_and_parse(text, tools)), streamed


def best(read: Callable[[str], Any], text: str, repeats: int) -> float:
    """Return the seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        read(text)
        times.append(time.perf_counter() - start)
    return min(times)


def piece_times(repeats: int) -> dict[str, float]:
    """Return the microseconds a piece of each input."""
    xmlcall_pieces(WORDS)
    return {title: best(xmlcall_pieces, text, repeats) / (len(text) / PIECE) * 1e6 for title, text in INPUTS.items()}


def piece_times_of(checkout: Path, repeats: int) -> dict[str, float]:
    """Return the same of another state of this project, read by this file."""
    command = [sys.executable, __file__, "--times", *(["--quick"] if repeats == 1 else [])]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=True)
    return dict(json.loads(done.stdout))


def readers() -> dict[str, Callable[[str], Any]]:
    """Return the parsers that are installed."""
    found: dict[str, Callable[[str], Any]] = {"xmlcall, whole": xmlcall_whole, "xmlcall, pieces": xmlcall_pieces}
    try:
        found["agent-tool-parser, whole"] = agent_tool_parser()
        found["SGLang Hermes, whole"], found["SGLang Hermes, pieces"] = sglang()
    except ImportError as error:
        print(f"left out: {error}")
    return found


# SGLang's detector takes minutes on larger streams: its cost grows with the square of the argument.
SLOW = {"SGLang Hermes, pieces": 40_000}


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="one run each instead of five")
    arguments.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="print the figures a piece of this one, too, and no others"
    )
    arguments.add_argument("--times", action="store_true", help="print the figures a piece as JSON, and nothing else")
    options = arguments.parse_args()
    repeats = 1 if options.quick else 5
    if options.times:
        print(json.dumps(piece_times(repeats)))
        return
    if options.beside:
        print_beside(piece_times_of(options.beside, repeats), piece_times(repeats))
        return
    found = readers()
    today = datetime.datetime.now(datetime.UTC).date()
    machine = f"{platform.system()} {platform.machine()}, {cpu()}, CPython {platform.python_version()}"
    print(f"{today}, {machine}, best of {repeats}.")
    print(f"Versions: {', '.join(versions())}.\n")
    print(f"| input | {' | '.join(f'{name}: ms' for name in found)} | xmlcall, µs a piece |")
    print(f"|---|{'---:|' * (len(found) + 1)}")
    for title, text in INPUTS.items():
        for warm in found.values():
            warm(WORDS)
        times = {name: best(read, text, repeats) for name, read in found.items() if len(text) < SLOW.get(name, 10**9)}
        cells = [f"{times[name] * 1e3:,.2f}" if name in times else "-" for name in found]
        print(f"| {title} | {' | '.join(cells)} | {times['xmlcall, pieces'] / (len(text) / PIECE) * 1e6:.2f} |", flush=True)


def print_beside(before: dict[str, float], now: dict[str, float]) -> None:
    """Print the figures of two states of this project."""
    print("| input | before, µs a piece | now, µs a piece | ratio |\n|---|---:|---:|---:|")
    for title, time_now in now.items():
        print(f"| {title} | {before[title]:.2f} | {time_now:.2f} | {time_now / before[title]:.2f} |")


def cpu() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def versions() -> Iterator[str]:
    """Yield name and version of each parser."""
    for name in ("xmlcall", "agent-tool-parser", "llm-router-utils"):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name} not installed"


if __name__ == "__main__":
    main()
