"""`xmlcall bench`: how well a model calls tools, and at which layer it fails. Runs are made here, and read in `bench_read`."""

import argparse
import contextlib
import datetime
import platform
import re
import shlex
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import UsageError
from ..private_folders import user_path
from . import bench_read
from .exits import FAILED, INTERRUPTED, OK, complain, run_async
from .open_model import connected, model_notices, profile_of
from .options import Action, add_asking_options, add_profile_option, number
from .plain import json_text, visible
from .words import speaker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from ..bench.ways import Way
    from ..turn.asking import AskingFields, Threshold

DESCRIPTION = "Measure how well a model calls tools, and at which layer it fails."
EPILOG = """examples:
  xmlcall bench run --model local --suite smoke --way xml --way native --out run1
  xmlcall bench report run1
  xmlcall bench compare run1:xml run1:native
  xmlcall bench show run1 smoke-en-01

A run is a folder; the same command continues a run that was stopped. `xmlcall bench ACTION --help` shows more.
"""


_OF_SERVER = ("server", "build", "context_length", "reasoning_open")  # the recorded capabilities of a server


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
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run; continued if it exists")
    parser.add_argument("--limit", type=number(int, least=1), metavar="N", help="a sample of N cases, evenly from all categories")
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
    _add_request_options(parser)
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
            if settings.call_threshold not in (None, "auto"):
                raise UsageError(f"call_threshold needs a model that reports probabilities; {options.model!r} is a stand-in")
            settings = replace(settings, call_threshold=None)
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
        complain(f"{failures} requests got no answer (see above); they are not scored: run the same command again to continue")
        return FAILED
    print(f"{len(run.replies)} replies in {options.out}; read them with: xmlcall bench report {shlex.quote(str(options.out))}")
    return OK


def _within_budget(settings: Any, cases: list[Any], ways: list[Any], context_length: int | None) -> Any:
    """Return settings with a budget for tools, if single questions need one; say how many have their tools shown in part."""
    from ..bench.ways import AskedCase
    from ..prompting.system import budget_for

    budget = budget_for(context_length, settings.tool_tokens)
    wanted = replace(settings, tool_tokens=budget.parts, whole_tokens=budget.whole if budget.whole > budget.parts else None)
    single = [case for case in cases if case.tools]
    graded = sum(any(AskedCase(way, case, wanted).offered.own for way in ways if way.is_ours) for case in single)
    if graded:
        complain(f"{graded} of {len(cases)} cases: tools are shown in part, those that fit in full (see --ask tool_tokens)")
    return wanted if graded else settings


def _by_profile(options: argparse.Namespace, ways: list[Any], settings: Any, backend: Any) -> tuple[list[Any], Any, str]:
    """Fill in what was not given from the model's profile, if that is for a measured way; also return its name ("" for none)."""
    from ..bench.ways import asked_by

    found = profile_of(options, backend.capabilities.fingerprints)
    if found is None or found.profile is None or found.profile.way == "none":  # a run measures what happens with tools
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
    """Return the model's file: with its whole name if we opened it, else as its server reports it."""
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
    """Return the commit of this code; "" outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


# -- compare-ways ---------------------------------------------------------------------------------------------------------


def _declare_ways(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="local", help="as for `xmlcall run` (default: %(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="20 cases, about 5 minutes with a model of 0.5 billion parameters on two cores; else 144, about 40",
    )
    add_measuring_options(parser)
    parser.add_argument(
        "--file",
        type=Path,
        default=Path("compare-ways.json"),
        help="where to write the figures, without any text (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print that file instead of a table")


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Declare what `compare-ways` and `probe` have in common."""
    _add_request_options(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the replies (default: in the user's cache folder)")


def _add_request_options(parser: argparse.ArgumentParser) -> None:
    count = number(int, least=1)
    parser.add_argument("--context", type=count, metavar="N", help="tokens that prompt and reply share")
    parser.add_argument("--concurrency", type=count, default=1, metavar="N", help="requests at a time (default: %(default)s)")


def _ways(options: argparse.Namespace) -> int:
    if not options.file.parent.is_dir() or options.file.is_dir():
        raise UsageError(f"expected a file in a folder that exists, got {options.file}: give another with --file")
    return continued_later(_compare_ways(options))


def continued_later(work: "Coroutine[Any, Any, int]") -> int:
    """Run a measurement; after Ctrl-C, say how it continues."""
    try:
        return run_async(work)
    except KeyboardInterrupt:
        complain("interrupted; the measurements so far are kept: run the same command again to continue")
        return INTERRUPTED


def kept_in(options: argparse.Namespace, what: str, backend: Any) -> Path:
    """Return the folder of a measurement of a model: that of `--out`, else one in the user's cache folder."""
    known = next(iter(backend.capabilities.fingerprints), backend.model)
    return options.out or user_path("cache", what) / re.sub(r"[^\w.\-]+", "-", known)[:100].strip(".")


async def _compare_ways(options: argparse.Namespace) -> int:
    from ..backends.server_facts import recognized
    from ..bench import compare_ways
    from ..bench.store import write_whole
    from .waiting import RunBar

    cases = compare_ways.compared_cases(quick=options.quick)
    async with AsyncExitStack() as stack:
        backend = await opened(stack, options)
        total = sum(len(each.cases(cases)) for each in compare_ways.planned(backend.capabilities))
        bar = stack.enter_context(RunBar(total))
        ways = await compare_ways.measure(
            backend,
            cases,
            kept_in(options, "compare-ways", backend),
            concurrency=options.concurrency,
            progress=bar.advance,
            note=lambda said: complain(visible(said)),
        )
        found = compare_ways.found_json(ways, cases, backend, await recognized(backend, backend.model))
    text = json_text(found)
    write_whole(options.file, f"{text}\n")
    if options.json:
        print(text)
    else:
        bench_read.print_table(compare_ways.HEADER, map(compare_ways.cells_of, found["ways"]))
        chosen = found["recommended"]
        print(f"recommended: {chosen['way']} (--ask {chosen['ask']}): {chosen['why']}")
    complain(f"{options.file} has these figures and the outcome of each case, and no text of yours, of the model or of a path")
    return OK


ACTIONS: Final = {
    "run": Action(
        lambda options: run_async(_run(options)),
        "ask a model the cases of a suite, in one or more ways of calling",
        _declare_run,
        (
            "--model local --suite smoke --out run1",
            "--model ollama:gemma3:4b --suite bfcl-core --limit 200 --seed 7 --way xml --way native --out run2",
            "--model http://127.0.0.1:8080/v1 --suite wire --feedback 2 --out run3",
            "--model oracle --suite talk --limit 20 --out run4",
        ),
    ),
    "compare-ways": Action(
        _ways,
        "measure which way of offering tools suits a model, and write the figures to a file that can be published",
        _declare_ways,
        ("--quick", "--model ollama:gemma3:4b", "--model http://127.0.0.1:8080/v1 --concurrency 4 --file mine.json"),
    ),
    **bench_read.ACTIONS,
}
