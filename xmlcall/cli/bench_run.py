"""`xmlcall bench run` and `bench calibrate`: ask a model the cases of a suite."""

import argparse
import datetime
import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, UsageError
from .exits import FAILED, OK, complain, run_async
from .open_model import connected, model_notices, profile_of
from .options import (
    add_asking_options,
    add_profile_option,
    number,
)
from .plain import json_text
from .words import speaker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bench.ways import Way
    from ..turn.asking import AskingFields, Threshold

__all__ = ["Bar", "declare_calibrate", "declare_run", "execute_calibrate", "execute_run", "opened", "threshold_of"]

LINE_SECONDS = 30.0  # between two lines of progress


def declare_run(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ..bench.subjects import STAND_INS
    from ..bench.suites import SUITES
    from ..turn.ask_keys import ASK_KEYS

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
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample and the model (default: %(default)s)")
    parser.add_argument(
        "--feedback", type=number(int, least=0), default=0, metavar="N", help="rounds of feedback on calls that cannot run"
    )
    parser.add_argument("--concurrency", type=number(int, least=1), default=1, metavar="N", help="requests at a time")
    parser.add_argument("--context", type=number(int, least=1), metavar="N", help="tokens that prompt and reply share")
    add_profile_option(parser)
    add_asking_options(parser, [key for key in ASK_KEYS if key not in ("mode", "dialect", "seed")])  # --way and --seed


def execute_run(options: argparse.Namespace) -> int:
    """Run the action."""
    return run_async(_run(options))


async def _run(options: argparse.Namespace) -> int:
    from ..bench import runner
    from ..bench.store import create_or_resume
    from ..bench.subjects import STAND_INS, model_subject, stand_in
    from ..bench.suites import cases_of
    from ..bench.ways import Settings, way_of

    ways = [way_of(name) for name in dict.fromkeys(options.ways or ["xml"])]
    asked = {**options.ask, "call_threshold": threshold_of(options.ask, ways)}
    settings = Settings(seed=options.seed, feedback=options.feedback, **asked)
    cases = cases_of(options.suite, limit=options.limit, seed=options.seed, half=options.half)
    if not cases:
        raise UsageError(f"no case of {options.suite} is left: raise --limit, or leave out --half {options.half}")
    runner.check_ways(cases, ways)
    async with AsyncExitStack() as stack:
        if options.model in STAND_INS:
            settings = _for_stand_in(options.model, settings)
            subject, server = stand_in(options.model, cases), {"server": "none"}
        else:
            backend = await opened(stack, options)
            ways, settings, profile = _by_profile(options, ways, settings, backend)
            for notice in model_notices(backend, "xml", speaker("en")):
                complain(notice)
            subject, server = model_subject(backend), _server(backend) | _file_of(options.model, backend) | {"profile": profile}
            settings = _within_budget(settings, cases, ways, backend.capabilities.context_length)
        for way in ways:
            subject.backend(cases[0], way)  # what cannot be measured is refused before there is a folder
        about = _about(options, settings, cases, ways) | {"model": subject.name, **server}
        run = create_or_resume(options.out, about, cases)
        with run.locked(), Bar(len(cases) * len(ways)) as bar:
            told: dict[str, Any] = {"concurrency": options.concurrency, "progress": bar.advance, "failed": bar.failed}
            failures = await runner.execute(run, ways, subject, **told)
    await _keep_scores(run)
    if failures is None:
        complain(f"gave up after {runner.HOPELESS} requests in a row got no answer; the replies before are kept in {options.out}")
        return FAILED
    if failures:
        complain(f"{failures} requests got no answer (see above); they are not scored: give the same command again to go on")
        return FAILED
    print(f"{len(run.replies)} replies in {options.out}; read them with: xmlcall bench report {shlex.quote(str(options.out))}")
    return OK


def _within_budget(settings: Any, cases: list[Any], ways: list[Any], context_length: int | None) -> Any:
    """Return settings with a budget for tools, if single questions need one; say how many have their tools shown in part."""
    from ..bench.ways import offered_of
    from ..prompting.grades import budget_for

    budget = budget_for(context_length, settings.tool_tokens)
    wanted = replace(settings, tool_tokens=budget.parts, whole_tokens=budget.whole if budget.whole > budget.parts else None)
    single = [case for case in cases if case.tools]
    graded = sum(any(offered_of(way, case, wanted).own for way in ways if way.is_ours) for case in single)
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


def threshold_of(given: "AskingFields", ways: "Sequence[Way]") -> "Threshold | None":
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


def _server(backend: Any) -> dict[str, Any]:
    known = backend.capabilities
    return {
        "server": known.server,
        "build": known.build,
        "context_length": known.context_length,
        "reasoning_open": known.reasoning_open,
    }


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
    return {"file": told} if (told := backend.capabilities.model_file) else {}


def _libraries(*names: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Return the commit that this code is of, "" outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


async def _keep_scores(run: Any) -> None:
    from ..bench.report import judged, keep_scores, scores_of

    keep_scores(run.folder, scores_of(await judged(run)))


class Bar:
    """The progress of a run on standard error: a bar with the time that is left, or a line a while where that is no terminal."""

    def __init__(self, total: int, what: str = "replies") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from .waiting import error_console

        self._console = error_console()
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal, transient=True)
        self._task = self._progress.add_task("", total=total)
        self._total, self._what = total, what
        self._answered, self._told, self._told_of = 0, time.monotonic(), 0

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def advance(self, answered: int) -> None:
        """Count answered requests."""
        self._answered += answered
        self._progress.advance(self._task, answered)
        if not self._console.is_terminal and time.monotonic() - self._told > LINE_SECONDS:
            complain(f"{self._answered} of {self._total} {self._what}, {self._left()}")
            self._told, self._told_of = time.monotonic(), self._answered

    def _left(self) -> str:
        """Say how long the rest takes, if it goes on as since the last line."""
        lately = max(self._answered - self._told_of, 1)
        minutes = (self._total - self._answered) * (time.monotonic() - self._told) / lately / 60
        return f"about {max(round(minutes), 1)} min left"

    def failed(self, case: Any, way: Any, error: BackendError) -> None:
        """Tell of a request without an answer."""
        complain(f"{case.id} ({way.name}): {error}")


def declare_calibrate(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ..bench.calibrate import KEEP
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


def execute_calibrate(options: argparse.Namespace) -> int:
    """Run the action."""
    return run_async(_calibrate(options))


async def _calibrate(options: argparse.Namespace) -> int:
    from ..bench.calibrate import Measured, check, measure, report
    from ..bench.suites import cases_of
    from ..bench.ways import Settings, way_of

    drawn = cases_of(options.suite, limit=options.limit, seed=options.seed, half=options.half)
    cases, way = [case for case in drawn if case.expects in ("calls", "no_call")], way_of(options.way)
    check(cases, way)
    settings = Settings(**options.ask, call_threshold=0.0)
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
    print(f"suggested: --ask call_threshold={found['suggested']['threshold']:g}")
