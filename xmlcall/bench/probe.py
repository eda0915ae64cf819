"""Measures the best way to ask a model for calls, on our own cases (`probe_cases`), by successive halving (`halving`).

The replies of each candidate are a separate run in the folder of the probe (`store`). So the measurements are kept, the next
start continues them, and `xmlcall bench report` and `show` can read them. The name of a run's folder depends on everything that
its replies depend on, so other prompts or cases start another run.

The candidates are rows: the default, and variants that differ from it in one setting. Two more join after the first halving,
based on the measurements: a numeric threshold, and a combination of the settings that each gained something. The server's own
function calling is asked once and read twice: with the calls that the server reports, which is the yardstick, and also with
those that it left in the text, which is a candidate.
"""

import datetime
import hashlib
import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ..backends.base import Backend
from ..errors import BackendError, BackendUnavailable
from ..profiles.profile import Figure, Measurement, Profile, Rate
from ..prompting.format import ENGLISH, FAMILIES
from ..types.calls import Tool
from . import runner
from .calibrate import Measured, calibration
from .case import Case
from .funnel import Verdict, judge_reply
from .halving import Answers, Pairs, kept, looks, pairs, settled
from .stats import wilson
from .store import RecordedRun, create_or_resume
from .subjects import model_subject
from .suites import fingerprint
from .ways import Settings, Way, asked_by, kept_odds, prompt_hash, way_of

__all__ = [
    "RUNG",
    "WITHOUT_CALL",
    "Finding",
    "Native",
    "Outcome",
    "Probe",
    "candidates",
    "in_lanes",
    "incumbent",
    "most_replies",
    "probe_cases",
]

RUNG: Final = 16  # cases between two halvings
DIALECTS_TRIED: Final = (ENGLISH.dialect, "hermes")  # ours, and the one that most small models were trained on
MAX_TOKENS: Final = 160  # of a reply: the longest right one has 120
DEFAULT: Final = Profile(model="default")
NATIVE: Final = Profile(model="native", way="native")
_JOINING: Final = 2  # a calibrated threshold, and the best settings together


def incumbent(shipped: Profile | None) -> Profile:
    """Return the settings that hold for a model without a profile of the person's: those that others have to beat."""
    if shipped is None or shipped.way == "native":
        return DEFAULT
    return replace(shipped, model=DEFAULT.model, fingerprints=(), measured=None)


def candidates(native_tools: bool | None, default: Profile = DEFAULT) -> list[Profile]:
    """Return the ways that are compared, the default first.

    Args:
        native_tools: what the server says of its own function calling; with False no tool would reach the model that way.
    """
    dialects = [replace(default, dialect=name) for name in DIALECTS_TRIED if name != default.dialect]
    families = [replace(default, family=name) for name in FAMILIES if name != default.family]
    off = [replace(default, call_threshold="off")] if default.call_threshold != "off" else []
    native = [] if native_tools is False else [NATIVE]
    return [default, *families, *dialects, *off, *native]


def most_replies(count: int, cases: int) -> int:
    """Say how many replies a probe needs at most."""
    total, left, asked = count * RUNG, max((count - 1) // 2, 1) + _JOINING, RUNG
    while left > 1:
        total, left, asked = total + (left + 1) * RUNG, max(left // 2, 1), asked + RUNG
    return total + 2 * max(cases - asked, 0)


def in_lanes(cases: Sequence[Case], lanes: int) -> list[Case]:
    """Order cases so that those which are asked at the same time have different tools, and those behind each other the same.

    A slot of a model server keeps the prompt that it has read. So each set of tools is read once, by one slot.
    """
    queues: list[list[Case]] = [[] for _ in range(lanes)]
    for group in sorted(by_tools(cases), key=len, reverse=True):
        min(queues, key=len).extend(group)
    return [case for row in zip_longest(*queues) for case in row if case is not None]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a candidate has answered.

    Args:
        problem: why it was not measured, or not to the end; "" if it was.
    """

    profile: Profile
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    problem: str = ""

    @property
    def answers(self) -> Answers:
        """Which cases it has right."""
        return {case: verdict.is_right for case, verdict in self.verdicts.items()}

    def figure(self) -> Figure:
        """Return its rates."""
        return Figure(way=self.profile.words, calls=self._rate(needs_call=True), none=self._rate(needs_call=False))

    def _rate(self, *, needs_call: bool) -> Rate:
        counted = [each.is_right for each in self.verdicts.values() if (each.case.expects != "no_call") is needs_call]
        low, high = wilson(sum(counted), len(counted))
        return Rate(right=sum(counted), total=len(counted), low=round(low, 4), high=round(high, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """How the server's own function calling went.

    Args:
        results: cases that go on behind a result and need no further call.
    """

    offered: bool
    reason: str = ""
    calls: int = 0
    told: int = 0
    leaked: int = 0
    results: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a probe found.

    Args:
        yardstick: the server's own function calling, as it tells its calls; None where it was not measured.
        test: the default and that one, on cases that no choice was made by.
    """

    outcomes: tuple[Outcome, ...]
    yardstick: Outcome | None
    best: Outcome
    test: Pairs
    won: bool
    native: Native
    replies: int

    @property
    def chosen(self) -> Outcome:
        """The candidate whose settings go into the profile."""
        return self.best if self.won else self.outcomes[0]

    def profile(self, model: str, fingerprints: Sequence[str], cases: Sequence[Case]) -> Profile:
        """Return the profile that follows."""
        others = [each for each in self.outcomes if each is not self.chosen and each.verdicts]
        measured = Measurement(
            on=datetime.datetime.now(datetime.UTC).date().isoformat(),
            version=version("xmlcall"),
            cases=f"{len(cases)} questions of xmlcall probe ({fingerprint(cases)})",
            figures=tuple(each.figure() for each in (self.chosen, *others)),
        )
        return replace(self.chosen.profile, model=model, fingerprints=tuple(fingerprints), measured=measured)


class Probe:
    """A probe of one model."""

    def __init__(
        self,
        backend: Backend,
        cases: Sequence[Case],
        folder: Path,
        *,
        default: Profile = DEFAULT,
        concurrency: int = 1,
        progress: Callable[[int], None] = lambda answered: None,
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._backend, self._cases, self._folder = backend, list(cases), folder
        self._concurrency, self._progress, self._note = concurrency, progress, note
        self._default = default
        self._outcomes = [Outcome(profile=each) for each in candidates(backend.capabilities.native_tools, default)]
        self._native = next((each for each in self._outcomes if each.profile.way == "native"), None)
        self._yardstick = Outcome(profile=NATIVE) if self._native else None
        self._runs: dict[Profile, RecordedRun] = {}

    async def run(self) -> Finding:
        """Measure until a way is settled on."""
        default, *challengers = self._outcomes
        asked = 0
        while asked == 0 or len(challengers) > 1:
            await self._answer([default, *challengers], self._cases[asked : asked + RUNG])
            names = {each.profile.words: each.answers for each in challengers if each.verdicts}
            left = kept(default.answers, names)
            challengers = [each for name in left for each in challengers if each.profile.words == name]
            self._note(f"after {min(asked + RUNG, len(self._cases))} cases: {', '.join(left)} beside the default")
            if asked == 0:
                challengers += self._joining()
            asked += RUNG
        best = challengers[0]
        test, won = await self._test(default, best, self._cases[asked:])
        return Finding(
            outcomes=tuple(self._outcomes),
            yardstick=self._yardstick,
            best=best,
            test=test,
            won=won,
            native=self._native_story(),
            replies=sum(len(each.verdicts) for each in self._outcomes),
        )

    async def _test(self, default: Outcome, best: Outcome, cases: Sequence[Case]) -> tuple[Pairs, bool]:
        """Hold the best against the default on cases that no choice was made by."""
        found, begun, ids = pairs({}, {}), 0, {case.id for case in cases}
        for look in looks(len(cases)):
            await self._answer([default, best], cases[begun:look])
            begun = look
            first, second = ({case: right for case, right in each.answers.items() if case in ids} for each in (default, best))
            found = pairs(first, second)
            if (won := settled(found, is_last=look == len(cases))) is not None:
                return found, won
        return found, False

    # -- candidates that are made of what was measured -----------------------------------------------------------------

    def _joining(self) -> list[Outcome]:
        """Return the candidates that join after the first cases."""
        known = {each.profile.words for each in self._outcomes}
        new = [Outcome(profile=each) for each in (*self._calibrated(), *self._together()) if each.words not in known]
        self._outcomes += new
        return new

    def _calibrated(self) -> Iterator[Profile]:
        """Yield the default with the threshold that its first answers suggest, if the server tells probabilities."""
        rows = [row for verdict in self._outcomes[0].verdicts.values() for row in _measured(verdict)]
        if len({row.needs_tool for row in rows}) == 2:
            yield replace(self._default, call_threshold=calibration(rows).threshold)

    def _together(self) -> Iterator[Profile]:
        """Yield the settings that each gained something over the default, in one."""
        answers = self._outcomes[0].answers
        best = self._default
        for name in ("dialect", "family", "call_threshold"):
            ours = getattr(self._default, name)
            changed = [each for each in self._outcomes if each is not self._native and getattr(each.profile, name) != ours]
            gains = [(pairs(answers, each.answers).gain, getattr(each.profile, name)) for each in changed]
            gain, value = max(gains, key=lambda each: each[0], default=(0.0, None))
            if gain > 0:
                best = replace(best, **{name: value})  # type: ignore[arg-type]
        yield best

    # -- replies ---------------------------------------------------------------------------------------------------------

    async def _answer(self, outcomes: Sequence[Outcome], cases: Sequence[Case]) -> None:
        """Let candidates answer cases."""
        for outcome in outcomes:
            if cases and not outcome.problem:
                await self._answered(outcome, in_lanes(cases, self._concurrency))

    async def _answered(self, outcome: Outcome, cases: Sequence[Case]) -> None:
        way, settings = asked_by(outcome.profile, Settings(max_tokens=MAX_TOKENS))
        if outcome.profile not in self._runs:
            self._runs[outcome.profile] = self._run_of(outcome.profile, way, settings)
        run = self._runs[outcome.profile]
        failed: list[BackendError] = []
        is_first = outcome is self._native and not outcome.verdicts
        with run.locked():
            for part in (cases[:1], cases[1:]) if is_first else (cases,):  # a server that refuses tools says so at once
                failures = await runner.execute(
                    run,
                    [way],
                    model_subject(self._backend),
                    cases=part,
                    concurrency=self._concurrency,
                    progress=self._progress,
                    failed=lambda case, way, error: failed.append(error),
                )
                if failures is None or failures == len(part):
                    break
        await self._judge(outcome, run, way, cases)
        if not outcome.verdicts and failed:
            outcome.problem = str(failed[-1])
            if outcome is not self._native:
                raise failed[-1]
        elif failures is None:
            raise BackendUnavailable(
                f"gave up after {runner.HOPELESS} requests in a row got no answer ({failed[-1]}): see that the server runs, and "
                "give the same command again to go on"
            )

    async def _judge(self, outcome: Outcome, run: RecordedRun, way: Way, cases: Sequence[Case]) -> None:
        wanted = {case.id for case in cases}
        for case, row in run.of_way(way.name):
            if case.id in wanted:
                outcome.verdicts[case.id] = await self._verdict(case, row, way, run.settings)
                if outcome is self._native and self._yardstick is not None:
                    self._yardstick.verdicts[case.id] = await self._verdict(case, row, way_of("native"), run.settings)

    async def _verdict(self, case: Case, row: Mapping[str, Any], way: Way, settings: Settings) -> Verdict:
        return await judge_reply(row, case, way, settings, reasoning_open=self._backend.capabilities.reasoning_open)

    def _run_of(self, profile: Profile, way: Way, settings: Settings) -> RecordedRun:
        about: dict[str, Any] = {
            "xmlcall": version("xmlcall"),
            "suite": "probe",
            "model": self._backend.model,
            "server": self._backend.capabilities.server,
            "reasoning_open": self._backend.capabilities.reasoning_open,
            "cases": fingerprint(self._cases),
            "ways": [way.name],
            "prompts": {way.name: prompt_hash(way, settings)},
            "settings": settings.to_json(),
        }
        depends = hashlib.sha256(json.dumps(about, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        name = profile.words.replace(", ", "-").replace(" ", "-")
        return create_or_resume(self._folder / f"{name}-{depends}", about | {"started": started}, self._cases)

    # -- the server's own function calling --------------------------------------------------------------------------------

    def _native_story(self) -> Native:
        if self._native is None:
            return Native(offered=False, reason=_NO_TOOLS.get(self._backend.capabilities.server, _NO_TOOLS[""]))
        if self._native.problem:
            return Native(offered=False, reason=f"the server refuses tools: {self._native.problem}")
        assert self._yardstick is not None
        needed = [case for case, verdict in self._native.verdicts.items() if verdict.case.expects != "no_call"]
        told = [case for case in needed if self._yardstick.verdicts[case].reply.calls]
        read = [case for case in needed if self._native.verdicts[case].reply.calls]
        ended = [each for each in self._native.verdicts.values() if each.case.category == "answered"]
        return Native(
            offered=True,
            calls=len(needed),
            told=len(told),
            leaked=len({*read} - {*told}),
            results=len(ended),
            again=sum(bool(each.reply.calls) for each in ended),
        )


_NO_TOOLS: Final = {
    "llama.cpp": "the model's chat template has no tools: llama.cpp drops them in silence, and the model never sees them",
    "ollama": "Ollama says that this model does not support tools, and refuses them",
    "": "the server says that this model has no function calling",
}


def _measured(verdict: Verdict) -> Iterator[Measured]:
    """Yield what a kept reply tells of the call threshold, if it tells anything."""
    kept_round = verdict.row["rounds"][0]
    case, odds = verdict.case, kept_odds(kept_round)
    if odds is not None and "threshold" in kept_round:
        yield Measured(case=case.id, category=case.category, needs_tool=case.expects == "calls", log_odds=odds)


# -- the questions: our own, so that no published suite is fitted to; they stand in probe.toml -------------------------
# They come in blocks of some five questions with the same tools, whose prompt a model server then reads once and not five times.
# The blocks stand in an order in which each beginning has the kinds of questions in about the shares that all of them have.


WITHOUT_CALL: Final = frozenset({"answered", "chat", "no_fit"})
"""Categories in which words are the right answer."""
BLOCK: Final = 5  # questions with the same tools, one behind another


def probe_cases() -> list[Case]:
    """Return all cases, in blocks with the same tools."""
    with Path(__file__).with_name("probe.toml").open("rb") as file:
        data = tomllib.load(file)
    return [case for block in _in_order(_blocks(_cases(data))) for case in block]


def by_tools(cases: Iterable[Case]) -> list[list[Case]]:
    """Return cases in groups with the same tools."""
    groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        groups[tuple(tool.name for tool in case.tools)].append(case)
    return list(groups.values())


def _blocks(cases: Iterable[Case]) -> list[list[Case]]:
    """Return the cases in blocks with the same tools; the kinds of a block are as mixed as they can be."""
    blocks: list[list[Case]] = []
    for group in by_tools(sorted(cases, key=lambda case: hashlib.sha256(case.id.encode()).digest())):
        group.sort(key=_kind)
        count = max(round(len(group) / BLOCK), 1)
        blocks += [group[first::count] for first in range(count)]
    return blocks


def _in_order(blocks: list[list[Case]]) -> Iterator[list[Case]]:
    """Yield, of the blocks that are left, the one with which the kinds so far are closest to their shares."""
    shares = Counter(_kind(case) for block in blocks for case in block)
    whole, so_far = shares.total(), Counter[str]()

    def distance(block: Sequence[Case]) -> tuple[float, str]:
        counts = so_far + Counter(map(_kind, block))
        return math.fsum((counts[kind] / counts.total() - share / whole) ** 2 for kind, share in shares.items()), block[0].id

    left = list(blocks)
    while left:
        left.remove(block := min(left, key=distance))
        so_far.update(map(_kind, block))
        yield block


def _kind(case: Case) -> str:
    """Return what a case asks for, and in which language."""
    return f"{case.category} {case.id[:2]}"


def _cases(data: Mapping[str, Any]) -> Iterator[Case]:
    """Yield each case; its id begins with the language of its question."""
    counts: dict[str, int] = defaultdict(int)
    for group in data["group"]:
        tools = [Tool.from_mcp(tool) for tool in data["catalogs"][group["catalog"]]]
        offered = tuple(tool for tool in tools if tool.name in group.get("offers", [tool.name]))
        for row in group["cases"]:
            lang = row.get("lang", "en")
            kind = f"{lang}-{group['catalog']}-{group['category']}"
            counts[kind] += 1
            yield _case(row, f"{kind}-{counts[kind]:02}", group["category"], offered)


def _case(row: Mapping[str, Any], id: str, category: str, tools: tuple[Tool, ...]) -> Case:
    before = [_said(each) for each in row.get("before", ())]
    asked = [{"role": "user", "content": row["ask"]}] if "ask" in row else []
    return Case(
        id=id,
        category=category,
        messages=(*before, *asked),
        tools=tools,
        expects="no_call" if category in WITHOUT_CALL else "calls",
        answers=tuple(_answer(answer, tools) for answer in row.get("calls", ())),
    )


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of what was said before (see `history`)."""
    if "calls" in row:
        return {"role": "assistant", "content": "", "calls": row["calls"]}
    ((who, text),) = row.items()
    return {"role": {"user": "user", "assistant": "assistant", "result": "tool"}[who], "content": text}


def _answer(answer: Mapping[str, Mapping[str, Sequence[Any]]], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return an accepted call; what it does not name and the schema does not require may be left out or have its default."""
    ((name, accepted),) = answer.items()
    schema = next(tool.input_schema for tool in tools if tool.name == name)
    others = {
        key: [*([declared["default"]] if "default" in declared else []), ""]
        for key, declared in schema["properties"].items()
        if key not in accepted and key not in schema["required"]
    }
    return {name: {**{key: list(values) for key, values in accepted.items()}, **others}}
