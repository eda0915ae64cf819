"""`xmlcall bench compare-ways`: measure which way of offering tools suits a model, and write a file that others can be sent."""

import argparse
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..private_folders import user_path
from .exits import INTERRUPTED, OK, complain, run_async
from .options import number
from .plain import json_text, visible

if TYPE_CHECKING:
    from collections.abc import Mapping


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="local", help="as for `xmlcall run` (default: %(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="20 cases, about 5 minutes with a model of 0.5 billion parameters on two cores; else 144, about 40",
    )
    parser.add_argument("--context", type=number(int, least=1), metavar="N", help="tokens that prompt and reply share")
    parser.add_argument("--concurrency", type=number(int, least=1), default=1, metavar="N", help="requests at a time")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the replies (default: in the user's cache folder)")
    parser.add_argument(
        "--file",
        type=Path,
        default=Path("compare-ways.json"),
        help="where to write the figures, without any text (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print that file instead of a table")


def execute(options: argparse.Namespace) -> int:
    if not options.file.parent.is_dir() or options.file.is_dir():
        raise UsageError(f"expected a file in a folder that exists, got {options.file}: give another with --file")
    try:
        return run_async(_run(options))
    except KeyboardInterrupt:
        complain("interrupted; the replies so far are kept: run the same command again to continue")
        return INTERRUPTED


async def _run(options: argparse.Namespace) -> int:
    from ..bench import compare_ways
    from ..bench.store import write_whole
    from .bench import opened
    from .waiting import RunBar

    cases = compare_ways.compared_cases(quick=options.quick)
    async with AsyncExitStack() as stack:
        backend = await opened(stack, options)
        known = next(iter(backend.capabilities.fingerprints), backend.model)
        folder = options.out or user_path("cache", "compare-ways") / re.sub(r"[^\w.\-]+", "-", known)[:100].strip(".")
        total = sum(len(each.cases(cases)) for each in compare_ways.planned(backend.capabilities))
        bar = stack.enter_context(RunBar(total))
        ways = await compare_ways.measure(
            backend,
            cases,
            folder,
            concurrency=options.concurrency,
            progress=bar.advance,
            note=lambda said: complain(visible(said)),
        )
        found = compare_ways.found_json(ways, cases, backend, await compare_ways.facts_of(backend))
    text = json_text(found)
    write_whole(options.file, f"{text}\n")
    if options.json:
        print(text)
    else:
        _print(found)
    complain(f"{options.file} has these figures and the outcome of each case, and no text of yours, of the model or of a path")
    return OK


def _print(found: "Mapping[str, Any]") -> None:
    from rich.console import Console

    from ..bench.compare_ways import HEADER, table_of_ways
    from .bench_read import table

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(table(HEADER, table_of_ways(found)))
    chosen = found["recommended"]
    print(f"recommended: {chosen['way']} (--ask {chosen['ask']}): {chosen['why']}")
