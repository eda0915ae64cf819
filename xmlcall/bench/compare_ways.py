"""Compares the ways of offering tools with one model: asks the same cases in each, and writes a table and a file to share.

The cases are samples of `needed` and `ordinary`, of their halves for reports. `ordinary` is also asked without tools, because an
answer is kept only if it was right without them. The replies of each way are a run (`store`), so the same command continues them.

The file has no text of a model or a person, and of a server only names and versions of a plain form.
"""

import datetime
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..backends.base import Backend
from ..backends.server_facts import ServerFacts
from ..errors import BackendError, BackendStatusError, BackendUnavailable
from ..profiles.profile import asking_in_words, shipped
from ..prompting.format import ENGLISH
from ..turn.native import REFUSALS
from ..types.completion import Capabilities
from . import runner
from .case import Case
from .funnel import Verdict
from .probe import incumbent, run_of_way, without_tools
from .report import compared, cost_of, judged
from .stats import rate_of
from .store import RecordedRun
from .subjects import model_subject
from .suites import cases_of, fingerprint
from .ways import Settings, Way, asked_by, asking_of, way_of

SCHEMA: Final = 1  # version of the file's format; raised when older readers would misread it
QUICK: Final = 10  # cases of each of the two suites
FULL: Final = 72
_MAX_TOKENS: Final = 1024  # the longest reply, including its reasoning
_HOW: Final = {"xml": "mode=xml", "native": "mode=native-only", "native+read": "mode=native"}
OWN: Final = "own format"
_COSTS: Final = ("replies", "prompt_tokens", "completion_tokens", "cached_tokens", "median_seconds")
_CHANCE: Final = 0.05


def compared_cases(*, quick: bool) -> list[Case]:
    """Return the cases, those that need a tool first."""
    limit = QUICK if quick else FULL
    return [case for suite in ("needed", "ordinary") for case in cases_of(suite, limit=limit, half="report")]


def needs_tool(case: Case) -> bool:
    return "tools" in case.turns[0]


@dataclass(slots=True, kw_only=True)
class Measured:
    """A way and its result; a way with a `problem` was not asked."""

    name: str
    way: Way | None
    settings: Settings = field(default_factory=lambda: Settings(max_tokens=_MAX_TOKENS))
    problem: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    def cases(self, cases: Sequence[Case]) -> list[Case]:
        """Return the cases to ask in this way: without tools, only those that need none."""
        if self.problem or self.way is None:
            return []
        return [case for case in cases if self.way.offers or not needs_tool(case)]

    @property
    def words(self) -> str:
        if self.way is None or not self.way.is_ours:
            return ""
        return asking_in_words(asking_of(self.way, self.settings))


def planned(server: Capabilities) -> list[Measured]:
    """Return the ways to measure, the one without tools first; a way that the server does not support has a `problem`."""
    plain = Settings(max_tokens=_MAX_TOKENS)
    way, settings = asked_by(replace(incumbent(shipped(server.fingerprints)), dialect=ENGLISH.dialect), plain)
    lacks = without_tools(server.server) if server.native_tools is False else ""
    native = [Measured(name=name, way=way_of(name), problem=lacks) for name in ("native", "native+read")]
    own = Measured(name=OWN, way=None, problem="the format that the model was trained on is unknown")
    if server.family == way.dialect:
        own.problem = "the model was trained on the format of xml"
    elif server.family:
        own = Measured(name=server.family, way=way_of(server.family), settings=replace(plain, call_threshold="auto"))
    return [Measured(name="none", way=way_of("none")), Measured(name="xml", way=way, settings=settings), *native, own]


async def measure(
    backend: Backend,
    cases: Sequence[Case],
    folder: Path,
    *,
    concurrency: int = 1,
    progress: runner.Answered = lambda answered, is_new: None,
    note: Callable[[str], None] = lambda sentence: None,
) -> list[Measured]:
    """Ask all cases in all ways, and judge the replies; if the server fails (`BackendError`), the replies before are kept."""
    ways = planned(backend.capabilities)
    runs = {
        each.name: run_of_way(folder, "compare-ways", each.name, backend, each.cases(cases), (each.way, each.settings))
        for each in ways
        if each.way and not each.problem
    }
    total, there = sum(len(run.cases) for run in runs.values()), sum(len(run.done()) for run in runs.values())
    asks = f"asks for {total} replies, which are kept in {folder}"
    note(f"continuing in {folder}: {there} of {total} replies are kept there" if there else asks)
    for each in ways:
        wanted = each.cases(cases)
        if each.name in runs:
            await _measure(each, backend, runs[each.name], {"concurrency": concurrency, "progress": progress})
        if each.problem:
            note(f"{each.name}: not asked: {each.problem}")
        elif missing := len(wanted) - len(each.verdicts):
            note(f"{each.name}: {missing} requests got no answer; the same command asks them again")
    return ways


async def _measure(each: Measured, backend: Backend, run: RecordedRun, options: Mapping[str, Any]) -> None:
    assert each.way is not None
    failed: list[BackendError] = []
    options = {**options, "failed": lambda case, way, error: failed.append(error)}
    with run.locked():
        for part in (run.cases[:1], run.cases[1:]):  # a server that refuses tools says so at once
            done = await runner.execute(run, [each.way], model_subject(backend), cases=part, **options)
            if done and not run.replies:
                break
    if done is None or not run.replies:
        status = failed[0].status_code if isinstance(failed[0], BackendStatusError) else 0
        if each.way.name != "native" or run.replies or status not in REFUSALS:
            raise BackendUnavailable(
                f"{failed[-1]}: check that the server is running, and run the same command again to continue"
            )
        each.problem = f"the server refuses requests with tools (HTTP {status})"
    each.verdicts = (await judged(run))[each.way.name]


# -- the result -----------------------------------------------------------------------------------------------------------


def found_json(ways: Sequence[Measured], cases: Sequence[Case], backend: Backend, facts: ServerFacts) -> dict[str, Any]:
    """Return the file to send back (docs/reference/bench.md)."""
    none, default = ways[0], ways[1]
    rows = [_row(each, none, default) for each in ways]
    server, needed = backend.capabilities, sum(map(needs_tool, cases))
    return {
        "schema": "xmlcall.compare-ways",
        "version": SCHEMA,
        "xmlcall": version("xmlcall"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "engine": {"name": facts.kind or server.server, "version": facts.version or public_name(server.build)},
        "model": {
            "name": public_name(backend.model),
            "fingerprint": next(iter(server.fingerprints), ""),
            "quantisation": quantisation(server.model_file) or quantisation(backend.model),
            "context": server.context_length,
        },
        "cases": {"needed": needed, "ordinary": len(cases) - needed, "fingerprint": fingerprint(cases)},
        "ways": rows,
        "recommended": recommended(rows),
    }


_PATH: Final = re.compile(r"^[/~.\\]|^[A-Za-z]:|\\|\.gguf$|/.*/|://|@")
_PLAIN: Final = re.compile(r"[\w.:+\-]{1,100}(?:/[\w.:+\-]{1,100})?")
_QUANTISATION: Final = re.compile(
    r"(?<![A-Za-z0-9])(I?Q\d(?:_[0-9A-Z]{1,3}){0,3}|BF16|FP?(?:4|8|16|32)|MXFP4|NVFP4|AWQ|GPTQ|EXL[23]|[48]BIT|INT[48]|W\dA\d{1,2})(?![A-Za-z0-9])",
    re.IGNORECASE,
)


def public_name(model: str) -> str:
    """Return the name of a model, or a version, without the folders of a path; "" if it is not plain, such as an address."""
    name = re.split(r"[/\\]", model)[-1] if _PATH.search(model) else model
    return name if _PLAIN.fullmatch(name) and "@" not in model and "://" not in model else ""


def quantisation(name: str) -> str:
    found = _QUANTISATION.search(re.split(r"[/\\]", name)[-1])
    return found[1].upper() if found else ""


def _row(each: Measured, none: Measured, default: Measured) -> dict[str, Any]:
    row: dict[str, Any] = {"way": each.name, "asked": each.words, "problem": each.problem}
    if each.problem or each.way is None:
        return row
    cost, ordinary = cost_of(each.verdicts), [verdict for verdict in each.verdicts if not needs_tool(verdict.case)]
    row |= {name: cost.get(name) for name in _COSTS}
    row["outcomes"] = {verdict.case.id.partition("#")[0]: verdict.failure or "right" for verdict in each.verdicts}
    if not each.way.offers:
        return row | {"right_answers": _rate([verdict.is_right for verdict in ordinary])}
    kept, pair = compared(none.verdicts, each.verdicts)["kept"], compared(default.verdicts, each.verdicts)["metrics"]
    return row | {
        "right_calls": _rate([verdict.is_right for verdict in each.verdicts if needs_tool(verdict.case)]),
        "kept": rate_of(kept["count"], kept["total"]),
        "needless_calls": _rate([verdict.failure == "false_call" for verdict in ordinary]),
        "over_xml": None if each is default else pair["task_correct"],
    }


def _rate(found: Sequence[bool]) -> dict[str, float]:
    return rate_of(sum(found), len(found))


def recommended(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the recommended way, the setting that selects it, and why: not xml only if another is better by more than chance.

    Each of the other ways is a test of its own, so p has to be smaller by their number (Bonferroni).
    """
    others = [row for row in rows if row.get("over_xml")]
    best = max(others, key=lambda row: _gain(row["over_xml"]), default=None)
    if best is None or _gain(best["over_xml"]) <= 0:
        return {"way": "xml", "ask": _HOW["xml"], "why": "no other way that was asked has more right"}
    name, pair = best["way"], best["over_xml"]
    why = f"{name} has {pair['second']} of {pair['total']} right, xml {pair['first']} (p {pair['p']:.2g})"
    if pair["p"] < _CHANCE / len(others):
        return {"way": name, "ask": _HOW.get(name, f"dialect={name}"), "why": why}
    return {"way": "xml", "ask": _HOW["xml"], "why": f"{why}, which may be chance"}


def _gain(pair: Mapping[str, Any]) -> int:
    return int(pair["second"] - pair["first"])


HEADER: Final = (
    *("way", "right calls", "ordinary answers kept", "needless calls", "right in all, over xml"),
    *("tokens read", "written", "seconds"),
)


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """Return a way as a row of the table below `HEADER`; tokens and seconds are for one reply."""
    name = f"{row['way']} ({row['asked']})" if row["asked"] else row["way"]
    if row["problem"]:
        return [name, f"not asked: {row['problem']}", *[""] * (len(HEADER) - 2)]
    kept = f"{_share(row['right_answers'])} right" if row["way"] == "none" else _share(row["kept"])
    pair, count = row.get("over_xml"), row["replies"] or 1
    over = f"{pair['estimate']:+.0f} points [{pair['low']:+.0f} {pair['high']:+.0f}], p {pair['p']:.2g}" if pair else ""
    tokens = ["" if row[key] is None else f"{row[key] / count:.0f}" for key in _COSTS[1:3]]
    seconds = "" if row["median_seconds"] is None else f"{row['median_seconds']:.1f}"
    return [name, _share(row.get("right_calls")), kept, _share(row.get("needless_calls")), over, *tokens, seconds]


def _share(rate: Mapping[str, float] | None) -> str:
    if not rate:
        return ""
    return f"{rate['count']}/{rate['total']} [{100 * rate['low']:.0f}-{100 * rate['high']:.0f} %]"
