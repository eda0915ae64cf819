"""`xmlcall bench calibrate`: measure below which log-odds of a call a model's questions need no tool."""

import argparse
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .bench_run import Bar, opened
from .exits import OK, run_async
from .jsonform import json_text
from .options import number

__all__ = ["declare", "execute"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ..bench.calibrate import KEEP
    from ..bench.suites import SUITES

    parser.add_argument("--model", default="local", help="as for `xmlcall run` (default: %(default)s)")
    parser.add_argument("--suite", choices=tuple(SUITES), default="bfcl-core", help="of questions (default: %(default)s)")
    parser.add_argument("--limit", type=number(int, least=1), default=100, metavar="N", help="of them (default: %(default)s)")
    parser.add_argument("--half", choices=("tuning", "report", "all"), default="all", help="which half of them (default: all)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample (default: %(default)s)")
    parser.add_argument("--way", default="xml", help="xml, or the name of a wire format (default: %(default)s)")
    parser.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the tool prompt (default: en)")
    parser.add_argument("--context", type=number(int, least=1), metavar="N", help="tokens that prompt and reply share")
    parser.add_argument(
        "--keep",
        type=_share,
        default=KEEP,
        metavar="SHARE",
        help="of the calls that the suggested threshold may not lose, from 0 to 1 (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="keep the log-odds of each question, as JSON lines (in FILE.part until all are there)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: area, thresholds, suggested")


def _share(text: str) -> float:
    value = float(number(float, least=0)(text))
    if value > 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text[:40]!r}")
    return value


def execute(options: argparse.Namespace) -> int:
    """Run the action."""
    return run_async(_run(options))


async def _run(options: argparse.Namespace) -> int:
    from ..bench.calibrate import Measured, check, measure, report
    from ..bench.suites import cases_of
    from ..bench.ways import Settings, way_of

    drawn = cases_of(options.suite, limit=options.limit, seed=options.seed, half=options.half)
    cases, way = [case for case in drawn if case.expects in ("calls", "no_call")], way_of(options.way)
    check(cases, way)
    settings = Settings(lang=options.lang, call_threshold=0.0)
    part = _part_of(options.out) if options.out else None
    rows: list[Measured] = []
    async with AsyncExitStack() as stack:
        backend = await opened(stack, options)
        bar = stack.enter_context(Bar(len(cases), "questions"))
        async with aclosing(measure(cases, way, backend, settings)) as measured:
            async for row in measured:
                if part:
                    _write(part, {"model": backend.model, **asdict(row)}, "a" if rows else "w")
                rows.append(row)
                bar.advance(1)
    found = report(rows, options.keep)
    if part:
        part.replace(options.out)
    if options.json:
        print(json_text({"model": backend.model, **found}))
    else:
        _print(found)
    return OK


def _part_of(file: Path) -> Path:
    """Return where rows are written until all are there: a measurement that fails must not take the rows of an earlier one."""
    if not file.parent.is_dir() or (file.exists() and not file.is_file()):
        raise UsageError(f"expected a file in a folder that exists, got {file}: give another with --out")
    return file.with_name(file.name + ".part")


def _write(file: Path, row: Mapping[str, Any], mode: str) -> None:
    try:
        with file.open(mode, encoding="utf-8") as opened_file:
            print(json.dumps(row), file=opened_file)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error


def _print(found: dict[str, Any]) -> None:
    print(f"area under the ROC curve: {found['area']:.3f} (0.5 is chance)")
    print(f"{'threshold':>9}  {'calls kept':>10}  {'rightly refused':>15}")
    for row in found["thresholds"]:
        kept, refused = (f"{row[count]}/{row[total]}" for count, total in (("kept", "calls"), ("refused", "others")))
        print(f"{row['threshold']:9g}  {kept:>10}  {refused:>15}")
    print(f"suggested: --call-threshold {found['suggested']['threshold']:g}")
