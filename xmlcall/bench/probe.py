"""Measures the best way to ask a model for calls, on our own cases (`own_suites`), by successive halving.

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
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ..backends.base import Backend
from ..errors import BackendError, BackendUnavailable
from ..profiles.profile import Figure, Measurement, Profile, Rate
from ..prompting.format import ENGLISH, FAMILIES
from . import runner
from .case import Case
from .funnel import Verdict, judge_reply
from .stats import mcnemar, wilson
from .store import RecordedRun, create_or_resume
from .subjects import model_subject
from .suites import fingerprint
from .ways import Settings, Way, asked_by, kept_odds, prompt_hash, way_of

KEEP: Final = 0.975  # share of calls to keep: a missing call is worse than a needless one, which a person sees and can deny


def threshold_of(calls: Sequence[float], others: Sequence[float], share: float = KEEP) -> float:
    """Return the highest call threshold that keeps a share of the calls, in the middle of the gap between two log-odds."""
    calls = sorted(calls)
    lost = int((1 - share) * len(calls) + 1e-9)
    highest = calls[lost] if lost < len(calls) else calls[-1] + 2
    below = max((odds for odds in (*calls, *others) if odds < highest), default=highest - 2)
    threshold = round((highest + below) / 2, 2)
    return threshold if below <= threshold < highest else below


# -- the candidates ----------------------------------------------------------------------------------------------------


RUNG: Final = 16  # cases between two halvings
DIALECTS_TRIED: Final = (ENGLISH.dialect, "hermes")  # ours, and the one that most small models were trained on
MAX_TOKENS: Final = 160  # the longest reply; the longest right one has 120
DEFAULT: Final = Profile(model="default")
NATIVE: Final = Profile(model="native", way="native")
_JOINING: Final = 2  # a calibrated threshold, and the best settings together


def incumbent(shipped: Profile | None) -> Profile:
    """Return the settings that hold for a model without a profile of the person's: those that others have to beat."""
    if shipped is None or shipped.way != "xml":
        return DEFAULT
    return replace(shipped, model=DEFAULT.model, fingerprints=(), measured=None)


def candidates(native_tools: bool | None, default: Profile = DEFAULT) -> list[Profile]:
    """Return the ways to compare, the default first; the server's own function calling is one only if the server has it."""
    dialects = [replace(default, dialect=name) for name in DIALECTS_TRIED if name != default.dialect]
    families = [replace(default, family=name) for name in FAMILIES if name != default.family]
    off = [replace(default, call_threshold="off")] if default.call_threshold != "off" else []
    native = [] if native_tools is False else [NATIVE]
    return [default, *families, *dialects, *off, *native]


def most_replies(count: int, cases: int) -> int:
    total, left, asked = count * RUNG, max((count - 1) // 2, 1) + _JOINING, RUNG
    while left > 1:
        total, left, asked = total + (left + 1) * RUNG, max(left // 2, 1), asked + RUNG
    return total + 2 * max(cases - asked, 0)


def in_lanes(cases: Sequence[Case], lanes: int) -> list[Case]:
    """Order cases so that those which are asked at the same time have different tools, and consecutive ones the same.

    A slot of a model server keeps the prompt that it has read. So each set of tools is read once, by one slot.
    """
    queues: list[list[Case]] = [[] for _ in range(lanes)]
    groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        groups[tuple(tool.name for tool in case.tools)].append(case)
    for group in sorted(groups.values(), key=len, reverse=True):
        min(queues, key=len).extend(group)
    return [case for row in zip_longest(*queues) for case in row if case is not None]


# -- the best of several ways, with few questions: successive halving, then a test on other questions ------------------
# All candidates answer the first cases. The worse half is dropped and the others answer more, until one is left beside the
# default, which is never dropped. Candidates are ranked by their gain over the default on the cases that both answered, so one
# that joined later is compared on the same cases (Karnin, Koren, Somekh 2013; Jamieson, Talwalkar 2016).
#
# The choice is not the proof: the best of eight looks better than the default by chance alone. So the last candidate has to win
# once more, in the exact McNemar test, on cases that played no part in the choice. The test is checked three times, so that it
# can end early. Each check therefore requires p < 0.022, which keeps the chance of a false winner at 5 % (Pocock 1977).


Answers = Mapping[str, bool]  # case -> whether it was answered rightly

CLEAR: Final = 0.022
LOOKS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Two candidates on the cases that both answered."""

    total: int
    only_first: int
    only_second: int

    @property
    def gain(self) -> float:
        """How many more cases the second has right, as a share of all."""
        return (self.only_second - self.only_first) / self.total if self.total else 0.0

    @property
    def p(self) -> float:
        return mcnemar(self.only_first, self.only_second)


def pairs(first: Answers, second: Answers) -> Pairs:
    both = [(first[case], second[case]) for case in first if case in second]
    return Pairs(total=len(both), only_first=both.count((True, False)), only_second=both.count((False, True)))


def kept(default: Answers, challengers: Mapping[str, Answers]) -> list[str]:
    """Return the better half of the challengers, the best first, at least one; of equal ones, the earlier counts as better."""
    ranked = sorted(challengers, key=lambda name: -pairs(default, challengers[name]).gain)
    return ranked[: max(len(ranked) // 2, 1)]


def settled(found: Pairs, *, is_last: bool) -> bool | None:
    """Say whether the challenger wins on cases that played no part in the choice; None if that is still open."""
    if found.p < CLEAR:
        return found.gain > 0
    return False if is_last or found.gain <= 0 else None


def looks(cases: int) -> Sequence[int]:
    """Return the numbers of cases after which a test is evaluated."""
    return [cases * look // LOOKS for look in range(1, LOOKS + 1)]


# -- a probe ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Outcome:
    profile: Profile
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    problem: str = ""  # why it was not measured, or only in part

    @property
    def answers(self) -> Answers:
        return {case: verdict.is_right for case, verdict in self.verdicts.items()}

    def figure(self) -> Figure:
        return Figure(way=self.profile.words, calls=self._rate(needs_call=True), none=self._rate(needs_call=False))

    def _rate(self, *, needs_call: bool) -> Rate:
        counted = [each.is_right for each in self.verdicts.values() if (each.case.expects != "no_call") is needs_call]
        low, high = wilson(sum(counted), len(counted))
        return Rate(right=sum(counted), total=len(counted), low=round(low, 4), high=round(high, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    offered: bool
    reason: str = ""
    calls: int = 0
    told: int = 0
    leaked: int = 0
    results: int = 0  # cases that continue after a result and need no further call
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    outcomes: tuple[Outcome, ...]
    yardstick: Outcome | None  # the server's own function calling, as it reports its calls; None where it was not measured
    best: Outcome
    test: Pairs  # the default and the best, on cases that played no part in the choice
    won: bool
    native: Native
    replies: int

    @property
    def calls_rightly(self) -> bool:
        return any(each.figure().calls.right for each in self.outcomes)

    @property
    def chosen(self) -> Outcome:
        """The candidate whose settings go into the profile."""
        return self.best if self.won else self.outcomes[0]

    def profile(self, model: str, fingerprints: Sequence[str], cases: Sequence[Case]) -> Profile:
        others = [each for each in self.outcomes if each is not self.chosen and each.verdicts]
        measured = Measurement(
            on=datetime.datetime.now(datetime.UTC).date().isoformat(),
            version=version("xmlcall"),
            cases=f"{len(cases)} questions of xmlcall probe ({fingerprint(cases)})",
            figures=tuple(each.figure() for each in (self.chosen, *others)),
        )
        return replace(self.chosen.profile, model=model, fingerprints=tuple(fingerprints), measured=measured)


class Probe:
    def __init__(
        self,
        backend: Backend,
        cases: Sequence[Case],
        folder: Path,
        *,
        default: Profile = DEFAULT,
        concurrency: int = 1,
        progress: runner.Answered = lambda answered, is_new: None,
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
        default, *challengers = self._outcomes
        asked = 0
        while asked == 0 or len(challengers) > 1:
            await self._answer([default, *challengers], self._cases[asked : asked + RUNG])
            names = {each.profile.words: each.answers for each in challengers if each.verdicts}
            left = kept(default.answers, names)
            challengers = [each for name in left for each in challengers if each.profile.words == name]
            shown = "; ".join(in_words(each.profile, self._default) for each in challengers)
            self._note(f"after {min(asked + RUNG, len(self._cases))} questions, beside the default: {shown}")
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
        """Compare the best with the default on cases that played no part in the choice."""
        found, begun, ids = pairs({}, {}), 0, {case.id for case in cases}
        for look in looks(len(cases)):
            await self._answer([default, best], cases[begun:look])
            begun = look
            first, second = ({case: right for case, right in each.answers.items() if case in ids} for each in (default, best))
            found = pairs(first, second)
            if (won := settled(found, is_last=look == len(cases))) is not None:
                return found, won
        return found, False

    # -- candidates made from the measurements -------------------------------------------------------------------------

    def _joining(self) -> list[Outcome]:
        known = {each.profile.words for each in self._outcomes}
        new = [Outcome(profile=each) for each in (*self._calibrated(), *self._together()) if each.words not in known]
        self._outcomes += new
        return new

    def _calibrated(self) -> Iterator[Profile]:
        """Yield the default with the threshold that its first answers suggest, if the server reports probabilities."""
        sides: dict[bool, list[float]] = {True: [], False: []}
        for verdict in self._outcomes[0].verdicts.values():
            kept_round = verdict.row["rounds"][0]
            if (odds := kept_odds(kept_round)) is not None and "threshold" in kept_round:
                sides[verdict.case.expects == "calls"].append(odds)
        if all(sides.values()):
            yield replace(self._default, call_threshold=threshold_of(sides[True], sides[False]))

    def _together(self) -> Iterator[Profile]:
        """Yield one candidate that combines the settings that each gained something over the default."""
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
        for outcome in outcomes:
            if cases and not outcome.problem:
                await self._answered(outcome, in_lanes(cases, self._concurrency))

    async def _answered(self, outcome: Outcome, cases: Sequence[Case]) -> None:
        way, settings = asked_by(outcome.profile, Settings(max_tokens=MAX_TOKENS))
        if outcome.profile not in self._runs:
            asked = way, settings
            self._runs[outcome.profile] = run_of_way(
                self._folder, "probe", outcome.profile.words, self._backend, self._cases, asked
            )
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
                f"gave up after {runner.HOPELESS} requests in a row got no answer ({failed[-1]}): check that the server is "
                "running, and run the same command again to continue"
            )

    async def _judge(self, outcome: Outcome, run: RecordedRun, way: Way, cases: Sequence[Case]) -> None:
        wanted, is_open = {case.id for case in cases}, self._backend.capabilities.reasoning_open
        read = [(outcome, way)]
        if outcome is self._native and self._yardstick is not None:
            read.append((self._yardstick, way_of("native")))
        for case, row in run.of_way(way.name):
            for to, by in read if case.id in wanted else ():
                to.verdicts[case.id] = await judge_reply(row, case, by, run.settings, reasoning_open=is_open)

    # -- the server's own function calling --------------------------------------------------------------------------------

    def _native_story(self) -> Native:
        if self._native is None:
            return Native(offered=False, reason=without_tools(self._backend.capabilities.server))
        if self._native.problem:
            return Native(offered=False, reason=f"the server refuses tools: {self._native.problem}")
        assert self._yardstick is not None
        needed = [case for case, verdict in self._native.verdicts.items() if verdict.case.expects != "no_call"]
        reported = [case for case in needed if self._yardstick.verdicts[case].reply.calls]
        read = [case for case in needed if self._native.verdicts[case].reply.calls]
        ended = [each for each in self._native.verdicts.values() if each.case.category == "answered"]
        return Native(
            offered=True,
            calls=len(needed),
            told=len(reported),
            leaked=len({*read} - {*reported}),
            results=len(ended),
            again=sum(bool(each.reply.calls) for each in ended),
        )


_NO_TOOLS: Final = {
    "llama.cpp": "the model's chat template has no tools: llama.cpp drops them silently, and the model never sees them",
    "ollama": "Ollama says that this model does not support tools, and refuses them",
    "": "the server says that this model has no function calling",
}


def without_tools(server: str) -> str:
    return _NO_TOOLS.get(server, _NO_TOOLS[""])


def run_of_way(
    folder: Path, suite: str, words: str, backend: Backend, cases: Sequence[Case], asked: tuple[Way, Settings]
) -> RecordedRun:
    """Begin or continue the run of one way, in a folder of its own whose name depends on all that its replies depend on."""
    way, settings = asked
    about: dict[str, Any] = {
        "xmlcall": version("xmlcall"),
        "suite": suite,
        "model": backend.model,
        "server": backend.capabilities.server,
        "reasoning_open": backend.capabilities.reasoning_open,
        "cases": fingerprint(cases),
        "ways": [way.name],
        "prompts": {way.name: prompt_hash(way, settings)},
        "settings": settings.to_json(),
    }
    depends = hashlib.sha256(json.dumps(about, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    name = words.replace(", ", "-").replace(" ", "-")
    return create_or_resume(folder / f"{name}-{depends}", about | {"started": started}, cases)


# -- what was found, as a table, as sentences and as JSON -----------------------------------------------------------------


_NATIVE_READ: Final = "the server's own function calling, calls in its text read"
_FAMILY_WORDS: Final = {
    "list": "parameters in words",
    "every": "asking for all parameters",
    "schema": "parameters as JSON Schema",
}
LEAKING: Final = 0.2  # from this share of the replies on, calls left in the text are the problem


def table_of_probe(finding: Finding) -> tuple[list[str], list[list[str]]]:
    """Return the table of a probe, with a row for each way, the chosen one first."""
    header = ["way", "where a call is needed", "where none is", "against the default", "against the server's own"]
    yardstick = finding.yardstick if finding.yardstick and finding.yardstick.verdicts else None
    default = finding.outcomes[0].profile
    rows = [_row(in_words(each.profile, default), each, finding, yardstick) for each in _ranked(finding) if each.verdicts]
    if yardstick is not None:
        rows.append(_row("the server's own function calling", yardstick, finding, None))
    return header, rows


def in_words(profile: Profile, default: Profile) -> str:
    """Describe how a way differs from the default."""
    if profile.way == "native":
        return _NATIVE_READ
    parts = [_FAMILY_WORDS[profile.family]] if profile.family != default.family else []
    parts += [f"calls in the format {profile.dialect}"] if profile.dialect != default.dialect else []
    if (threshold := profile.call_threshold) != default.call_threshold:
        usual = {"off": "no threshold", "auto": "the usual threshold"}
        parts.append(usual[threshold] if isinstance(threshold, str) else f"a threshold of {threshold:g}")
    return ", ".join(parts) or "the default"


def _ranked(finding: Finding) -> list[Outcome]:
    others = [each for each in finding.outcomes if each is not finding.chosen]
    return [finding.chosen, *sorted(others, key=lambda each: -_against(finding.outcomes[0], each).gain)]


def _row(name: str, outcome: Outcome, finding: Finding, yardstick: Outcome | None) -> list[str]:
    figure, default = outcome.figure(), finding.outcomes[0]
    gain = "" if outcome is default else _gain(_against(default, outcome))
    over = "" if yardstick is None else _gain(_against(yardstick, outcome))
    return [f"{name} (chosen)" if outcome is finding.chosen else name, _rate(figure.calls), _rate(figure.none), gain, over]


def _against(first: Outcome, second: Outcome) -> Pairs:
    return pairs(first.answers, second.answers)


def _rate(rate: Rate) -> str:
    return f"{rate.right} of {rate.total} right" if rate.total else "-"


def _gain(found: Pairs) -> str:
    return f"+{found.only_second}, -{found.only_first} of {found.total}" if found.total else "-"


def sentences(finding: Finding) -> list[str]:
    """Say what was chosen and why, and how the server's own function calling went."""
    default, test = finding.outcomes[0].profile, finding.test
    best = in_words(finding.best.profile, default)
    proof = f"against the default, on questions that played no part in the choice, {best}: {_gain(test)}"
    verdict = f"chosen: {best}" if finding.won else "chosen: the default, since no other way is better by more than chance"
    if not finding.calls_rightly:
        verdict = "chosen: none, since no way gave a right call"
    failed = [f"{in_words(each.profile, default)}: left out, {each.problem}" for each in finding.outcomes if each.problem]
    return [f"{verdict}; {proof}", f"the server's own function calling: {native_words(finding.native)}", *failed]


def native_words(native: Native) -> str:
    if not native.offered:
        return native.reason
    share = f"of {native.calls} replies to questions that need a call, {native.told} came with calls"
    parts = [f"{share}, {native.leaked} left them in the text" if native.leaked else share]
    if native.calls and native.leaked >= LEAKING * native.calls:
        parts.append("the model does not write calls as its template says, so the server does not find them; xmlcall reads them")
    if native.results and native.again:
        parts.append(f"after a result it calls again, although an answer is due, in {native.again} of {native.results} cases")
    return "; ".join(parts)


def found_json(finding: Finding, profile: Profile) -> dict[str, Any]:
    default, yardstick = finding.outcomes[0], finding.yardstick
    rates = asdict(yardstick.figure()) if yardstick and yardstick.verdicts else None
    return {
        "chosen": finding.chosen.profile.words,
        "won": finding.won,
        "test": {"way": finding.best.profile.words, **_pairs_json(finding.test)},
        "ways": [_outcome_json(each, default, yardstick) for each in _ranked(finding)],
        "native": {**asdict(finding.native), "words": native_words(finding.native), "rates": rates},
        "profile": asdict(profile),
        "replies": finding.replies,
    }


def _outcome_json(outcome: Outcome, default: Outcome, yardstick: Outcome | None) -> dict[str, Any]:
    return {
        **asdict(outcome.figure()),
        "problem": outcome.problem,
        "over_default": _pairs_json(_against(default, outcome)),
        "over_native": _pairs_json(_against(yardstick, outcome)) if yardstick else None,
    }


def _pairs_json(found: Pairs) -> dict[str, Any]:
    return {**asdict(found), "gain": round(found.gain, 4), "p": round(found.p, 5)}
