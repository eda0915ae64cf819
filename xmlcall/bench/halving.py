"""Finds the best of several ways of asking with few questions: successive halving, then a test on separate questions.

All candidates answer the first cases. The worse half is dropped and the others answer more, until one is left beside the default,
which is never dropped. Candidates are ranked by their gain over the default on the cases that both answered, so a candidate that
joined later is compared with the default on the same cases.

**The choice is not the proof.** The best of eight looks better than the default by chance alone. So the last candidate has to win
once more, in the exact McNemar test, on cases that played no part in the choice. The test is checked three times, so that it can
end early if the result is clear. Each check therefore requires p < 0.022, which keeps the chance of a false winner at 5 %
(Pocock 1977, three looks).

Source of the halving: Karnin, Koren, Somekh 2013; Jamieson, Talwalkar 2016. The module is pure: callers pass in which answers
were right, and it asks no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .stats import mcnemar

__all__ = ["CLEAR", "LOOKS", "Answers", "Pairs", "kept", "looks", "pairs", "settled"]

Answers = Mapping[str, bool]
"""Case -> whether it was answered rightly."""

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
        """What the second has over the first, as a share of the cases."""
        return (self.only_second - self.only_first) / self.total if self.total else 0.0

    @property
    def p(self) -> float:
        """The p-value of the exact McNemar test."""
        return mcnemar(self.only_first, self.only_second)


def pairs(first: Answers, second: Answers) -> Pairs:
    """Compare two candidates."""
    both = [(first[case], second[case]) for case in first if case in second]
    return Pairs(total=len(both), only_first=both.count((True, False)), only_second=both.count((False, True)))


def kept(default: Answers, challengers: Mapping[str, Answers]) -> list[str]:
    """Drop the worse half of those that challenge the default.

    Args:
        challengers: name -> what each answered; of equal ones, the first is kept.

    Returns:
        The names of the others, the best first; at least one, if there are any.
    """
    ranked = sorted(challengers, key=lambda name: -pairs(default, challengers[name]).gain)
    return ranked[: max(len(ranked) // 2, 1)]


def settled(found: Pairs, *, is_last: bool) -> bool | None:
    """Say whether the challenger wins.

    Args:
        found: the default and the challenger, on cases that no choice was made by.

    Returns:
        True if it wins; False if it does not; None if that is open still.
    """
    if found.p < CLEAR:
        return found.gain > 0
    return False if is_last or found.gain <= 0 else None


def looks(cases: int) -> Sequence[int]:
    """Say after how many cases of a test it is looked at."""
    return [cases * look // LOOKS for look in range(1, LOOKS + 1)]
