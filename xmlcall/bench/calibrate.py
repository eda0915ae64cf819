"""Measure a model's call threshold: which log-odds of a call separate questions that need a tool from those that need none.

The model is asked for one token after each question (`tool_need`). A threshold avoids false calls, but loses the true calls below
it. A lost call is worse, so the suggested threshold is the highest that keeps a wanted share of the calls. It needs many
questions that resemble real ones. Judge it on other questions than those that it was measured on.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from ..agent.drive import result_of
from ..backends.base import Backend
from ..errors import UsageError, XmlcallError
from ..turn.machine import Machine
from ..turn.tool_need import ask_need
from ..types.completion import CompletionRequest
from .case import Case
from .runner import PatientBackend
from .stats import area
from .ways import Asked, Settings, Way

KEEP: Final = 0.975  # of the calls: one that is not made is worse than one too many, which a person sees and can deny
KEPT: Final = (1.0, 0.975, 0.95, 0.9, 0.85, 0.8)  # shares of the calls in a report


class Undecided(XmlcallError):
    """A model's first tokens do not distinguish questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    case: str
    category: str
    needs_tool: bool
    log_odds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    threshold: float
    kept: int
    calls: int
    refused: int
    others: int


def check(cases: Iterable[Case], way: Way) -> None:
    """Check, before a model is asked, that a threshold can be measured: by this way, these cases, and with SciPy."""
    if not way.is_ours:
        raise UsageError(f"the way {way.name} has no reminder after the question: calibrate with --way xml or a wire format")
    area(*_sides([_placed(case, 0.0) for case in cases]))


def _placed(case: Case, odds: float) -> Measured:
    return Measured(case=case.id, category=case.category, needs_tool=case.expects == "calls", log_odds=odds)


async def measure(cases: Iterable[Case], way: Way, backend: Backend, settings: Settings) -> AsyncGenerator[Measured]:
    """Ask a model for the first token of each reply."""
    if backend.capabilities.reasoning_open:
        raise UsageError(
            "this model begins its replies with thinking, so that their first token decides nothing: no threshold fits it"
        )
    for case in cases:
        asked = Asked(way, case, settings)
        request = CompletionRequest(messages=asked.undecided(), seed=settings.seed)
        asking = ask_need(request, backend.capabilities, None, asked.catalog, asked.format)
        need = await result_of(Machine(asking), PatientBackend(backend))
        yield _placed(case, need.score)


def calibration(rows: Sequence[Measured], share: float = KEEP) -> Calibration:
    """Find the highest threshold that keeps a share of the calls, in the middle of the gap between two questions."""
    calls, others = _sides(rows)
    lost = int((1 - share) * len(calls) + 1e-9)
    highest = calls[lost] if lost < len(calls) else calls[-1] + 2
    below = max((row.log_odds for row in rows if row.log_odds < highest), default=highest - 2)
    threshold = round((highest + below) / 2, 2)
    threshold = threshold if below <= threshold < highest else below
    kept, refused = sum(value > threshold for value in calls), sum(value <= threshold for value in others)
    return Calibration(threshold=threshold, kept=kept, calls=len(calls), refused=refused, others=len(others))


def report(rows: Sequence[Measured], share: float) -> dict[str, object]:
    """Return what thresholds do: `area` (under the ROC curve), and `thresholds` and `suggested`, of Calibration's fields."""
    calls, others = _sides(rows)
    if calls[0] == calls[-1] == others[0] == others[-1]:
        raise Undecided(
            f"expected questions with different log-odds, got {calls[0]:g} for each: no threshold tells them apart; "
            "a model that thinks before it answers cannot be measured by its first token: take another"
        )
    return {
        "area": area(calls, others),
        "thresholds": [asdict(calibration(rows, each)) for each in KEPT],
        "suggested": asdict(calibration(rows, share)),
    }


def _sides(rows: Sequence[Measured]) -> tuple[list[float], list[float]]:
    calls, others = (sorted(row.log_odds for row in rows if row.needs_tool is side) for side in (True, False))
    if not (calls and others):
        raise UsageError("a threshold needs questions with a call and without: take --suite bfcl-core, or more of it")
    return calls, others
