"""`xmlcall bench`: how well a model calls tools, and at which layer it fails. Runs are made here, and read in `bench_read`."""

import argparse
import contextlib
import datetime
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from . import bench_read, bench_ways
from .exits import FAILED, OK, complain, run_async
from .open_model import connected, model_notices, profile_of
from .options import add_asking_options, add_profile_option, number
from .plain import json_text
from .words import speaker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bench.ways import Way
    from ..turn.asking import AskingFields, Threshold

DESCRIPTION = "Measure how well a model calls tools, and at which layer it fails."
EPILOG = """examples:
  xmlcall bench run --model local --suite smoke --way xml --way native --out run1
  xmlcall bench report run1
  xmlcall bench compare run1:xml run1:native
  xmlcall bench show run1 smoke-en-01
  xmlcall bench calibrate --model local

A run is a folder; the same command takes up a run that was stopped. `xmlcall bench ACTION --help` tells more.
"""


_OF_SERVER = ("server", "build", "context_length", "reasoning_open")  # of its capabilities


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, (declare, _, summary, examples) in _ACTIONS.items():
        epilog = "".join(["examples:", *(f"\n  xmlcall bench {action} {words}" for words in examples)])
        declare(actions.add_parser(action, description=f"{summary[0].upper()}{summary[1:]}.", help=summary, epilog=epilog))


def execute(options: argparse.Namespace) -> int:
    return _ACTIONS[options.action][1](options)


def _declare_run(parser: argparse.ArgumentParser) -> None:
    from ..bench.subjects import STAND_INS
    from ..bench.suites import SUITES
    from ..turn.asking import ASK_KEYS

    suites = "; ".join(f"{name}: {about}" for name, (_, about) in SUITES.items())
    parser.add_argument(
        "--model",
        default="local",
        help=f"as for `xmlcall run`; or a stand-in that tests the harness: {', '.join(STAND_INS)} (default: %(default)s)",
    )
    parser.add_argument("--suite", choices=tuple(SUITES), default="smoke", help=f"{suites} (default: %(default)s)")
    parser.add_argument(
        "--way",
        dest="ways",
        action="append",
        metavar="WAY",
        help="xml: our prompt; native: the server's function calling; native+read: the same, and calls that it left in the text; "
        "none: no tools; origin: the prompt of browser extensions; or the name of a wire format, such as hermes (may be "
        "repeated; default: that of the profile, else xml)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run; taken up again if it exists")
    parser.add_argument("--limit", type=number(int, least=1), metavar="N", help="a sample of N cases, evenly of all categories")
    parser.add_argument("--half", choices=("tuning", "report", "all"), default="all", help="which half of them (default: all)")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="of the sample, and of the model without --ask seed=N (default: %(default)s)",
    )
    parser.add_argument(
        "--feedback", type=number(int, least=0), default=0, metavar="N", help="rounds of feedback on calls that cannot run"
    )
    parser.add_argument("--concurrency", type=number(int, least=1), default=1, metavar="N", help="requests at a time")
    parser.add_argument("--context", type=number(int, least=1), metavar="N", help="tokens that prompt and reply share")
    add_profile_option(parser)
    add_asking_options(parser, [key for key in ASK_KEYS if key not in ("mode", "dialect")], options=("seed",))  # --way


async def _run(options: argparse.Namespace) -> int:
    from ..bench import runner
    from ..bench.report import judged, keep_scores, scores_of
    from ..bench.store import create_or_resume
    from ..bench.subjects import STAND_INS, model_subject, stand_in
    from ..bench.suites import cases_of
    from ..bench.ways import Settings, way_of
    from .waiting import RunBar

    ways = [way_of(name) for name in dict.fromkeys(options.ways or ["xml"])]
    asked = {**options.ask, "call_threshold": _threshold_of(options.ask, ways)}
    settings = Settings(feedback=options.feedback, **{"seed": options.seed, **asked})
    cases = cases_of(options.suite, limit=options.limit, seed=options.seed, half=options.half)
    if not cases:
        raise UsageError(f"no case of {options.suite} is left: raise --limit, or leave out --half {options.half}")
    runner.check_ways(cases, ways)
    async with AsyncExitStack() as stack:
        if options.model in STAND_INS:
            settings = _for_stand_in(options.model, settings)
            subject, server = stand_in(options.model, cases), cast("dict[str, Any]", {"server": "none"})
        else:
            backend = await opened(stack, options)
            ways, settings, profile = _by_profile(options, ways, settings, backend)
            for notice in model_notices(backend, "xml", speaker("en")):
                complain(notice)
            server = {name: getattr(backend.capabilities, name) for name in _OF_SERVER}
            subject, server = model_subject(backend), server | _file_of(options.model, backend) | {"profile": profile}
            server |= {"recommended": dict(backend.capabilities.recommended)} if settings.sampling == "recommended" else {}
            settings = _within_budget(settings, cases, ways, backend.capabilities.context_length)
        for way in ways:
            subject.backend(cases[0], way)  # what cannot be measured is refused before there is a folder
        about = _about(options, settings, cases, ways) | {"model": subject.name, **server}
        run = create_or_resume(options.out, about, cases)
        with run.locked(), RunBar(len(cases) * len(ways)) as bar:
            options_of_run: dict[str, Any] = {"concurrency": options.concurrency, "progress": bar.advance, "failed": bar.failed}
            failures = await runner.execute(run, ways, subject, **options_of_run)
    keep_scores(run.folder, scores_of(await judged(run)))
    if failures is None:
        complain(f"gave up after {runner.HOPELESS} requests in a row got no answer; the replies before are kept in {options.out}")
        return FAILED
    if failures:
        complain(f"{failures} requests got no answer (see above); they are not scored: give the same command again to continue")
        return FAILED
    print(f"{len(run.replies)} replies in {options.out}; read them with: xmlcall bench report {shlex.quote(str(options.out))}")
    return OK


def _within_budget(settings: Any, cases: list[Any], ways: list[Any], context_length: int | None) -> Any:
    """Return settings with a budget for tools, if single questions need one; say how many have their tools shown in part."""
    from ..bench.ways import Asked
    from ..prompting.grades import budget_for

    budget = budget_for(context_length, settings.tool_tokens)
    wanted = replace(settings, tool_tokens=budget.parts, whole_tokens=budget.whole if budget.whole > budget.parts else None)
    single = [case for case in cases if case.tools]
    graded = sum(any(Asked(way, case, wanted).offered.own for way in ways if way.is_ours) for case in single)
    if graded:
        complain(f"{graded} of {len(cases)} cases: tools are shown in part, those that fit in full (see --ask tool_tokens)")
    return wanted if graded else settings


def _by_profile(options: argparse.Namespace, ways: list[Any], settings: Any, backend: Any) -> tuple[list[Any], Any, str]:
    """Take from the model's profile what was not given, if it is about a measured way; return its name, too ("" for none)."""
    from ..bench.ways import asked_by

    found = profile_of(options, backend.capabilities.fingerprints)
    if found is None or found.profile is None:
        return ways, settings, ""
    way, asked = asked_by(found.profile, replace(settings, call_threshold=None))
    if options.ways and {each.name for each in ways if each.is_ours} != {way.name}:
        return ways, settings, ""
    given = {name: getattr(settings, name) for name in options.ask}
    if not settings.reminder:
        given["call_threshold"] = None
    name = f"{found.name} ({found.source})"
    complain(f"profile: {name}: {found.profile.words}")
    return (ways if options.ways else [way]), replace(asked, **given), name


def _for_stand_in(name: str, settings: Any) -> Any:
    """Return settings for a stand-in, which reports no probabilities."""
    if settings.call_threshold not in (None, "auto"):
        raise UsageError(f"call_threshold needs a model that reports probabilities; {name!r} is a stand-in")
    return replace(settings, call_threshold=None)


def _threshold_of(given: "AskingFields", ways: "Sequence[Way]") -> "Threshold | None":
    """Return the call threshold of a run; by default one only for our own format, as in `xmlcall run`."""
    from ..profiles.profile import asking_by
    from ..turn.asking import Asking

    ours = {way.name for way in ways if way.is_ours}
    if "call_threshold" not in given and ours != {"xml"}:
        return None
    if given.get("call_threshold") is not None and not ours:
        raise UsageError(
            f"call_threshold is for our own prompt; --way {' --way '.join(sorted(way.name for way in ways))} has none"
        )
    return asking_by(Asking(), given).call_threshold


async def opened(stack: AsyncExitStack, options: argparse.Namespace) -> Any:
    """Open the backend of `--model` and `--context`, with a note while it loads."""
    from .waiting import OpeningStatus, error_console

    opening = OpeningStatus(error_console(), speaker("en"))
    backend = connected(options.model, options.context, opening)
    async with opening:
        return await stack.enter_async_context(backend)


def _about(options: argparse.Namespace, settings: Any, cases: list[Any], ways: list[Any]) -> dict[str, Any]:
    from ..bench.suites import fingerprint
    from ..bench.ways import prompt_hash

    return {
        "xmlcall": version("xmlcall"),
        "suite": options.suite,
        "limit": options.limit,
        "half": options.half,
        "cases": fingerprint(cases),
        "ways": [way.name for way in ways],
        "prompts": {way.name: prompt_hash(way, settings) for way in ways},
        "settings": settings.to_json(),
        "libraries": _libraries("xllamacpp", "ollama"),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["xmlcall", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _file_of(model: str, backend: Any) -> dict[str, Any]:
    """Return the model's file: one that we opened by its name in full, of another server what that says of it."""
    from ..models.known import DEFAULT_MODEL, KNOWN

    if known := KNOWN.get(DEFAULT_MODEL if model == "local" else model):
        return {"file": known.file, "sha256": known.sha256}
    return {"file": file} if (file := backend.capabilities.model_file) else {}


def _libraries(*names: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _commit() -> str:
    """Return the commit that this code is of, "" outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _declare_calibrate(parser: argparse.ArgumentParser) -> None:
    from ..bench.probe import KEEP
    from ..bench.suites import SUITES

    parser.add_argument("--model", default="local", help="as for `xmlcall run` (default: %(default)s)")
    parser.add_argument("--suite", choices=tuple(SUITES), default="bfcl-core", help="of questions (default: %(default)s)")
    parser.add_argument("--limit", type=number(int, least=1), default=100, metavar="N", help="of them (default: %(default)s)")
    parser.add_argument("--half", choices=("tuning", "report", "all"), default="all", help="which half of them (default: all)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample (default: %(default)s)")
    parser.add_argument("--way", default="xml", help="xml, or the name of a wire format (default: %(default)s)")
    add_asking_options(parser, ["lang"])
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


async def _calibrate(options: argparse.Namespace) -> int:
    from ..bench.probe import Measured, check, measure, report
    from ..bench.suites import cases_of
    from ..bench.ways import Settings, way_of
    from .waiting import RunBar

    drawn = cases_of(options.suite, limit=options.limit, seed=options.seed, half=options.half)
    cases, way = [case for case in drawn if case.expects in ("calls", "no_call")], way_of(options.way)
    check(cases, way)
    settings = Settings(**options.ask, call_threshold=0.0)
    part = _part_of(options.out) if options.out else None
    rows: list[Measured] = []
    async with AsyncExitStack() as stack:
        backend = await opened(stack, options)
        bar = stack.enter_context(RunBar(len(cases), "questions"))
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
    print(f"suggested: --ask call_threshold={found['suggested']['threshold']:g}")


_ACTIONS: dict[str, bench_read.Action] = {
    "run": (
        _declare_run,
        lambda options: run_async(_run(options)),
        "ask a model the cases of a suite, in one or more ways of calling",
        (
            "--model local --suite smoke --out run1",
            "--model ollama:gemma3:4b --suite bfcl-core --limit 200 --seed 7 --way xml --way native --out run2",
            "--model http://127.0.0.1:8080/v1 --suite wire --feedback 2 --out run3",
            "--model oracle --suite bfcl-mt --limit 20 --out run4",
        ),
    ),
    "compare-ways": (
        bench_ways.declare,
        bench_ways.execute,
        "measure which way of offering tools suits a model, and write the figures to a file that can be published",
        ("--quick", "--model ollama:gemma3:4b", "--model http://127.0.0.1:8080/v1 --concurrency 4 --file mine.json"),
    ),
    **bench_read.ACTIONS,
    "calibrate": (
        _declare_calibrate,
        lambda options: run_async(_calibrate(options)),
        "measure below which log-odds of a call a model's questions need no tool, for --ask call_threshold",
        (
            "--model local",
            "--model ollama:gemma3:4b --limit 200 --keep 0.98",
            "--model http://127.0.0.1:8080/v1 --out odds.jsonl",
        ),
    ),
}
