"""The statistics of reports. Only best assignments need SciPy, which is an optional extra."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..errors import UsageError
from ..installed import missing_extra


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the Wilson 95 % interval of a rate, as shares from 0 to 1."""
    if not total:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf(0.975)
    share, weight = count / total, z * z / total
    middle = share + weight / 2
    half = z * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max((middle - half) / (1 + weight), 0.0), min((middle + half) / (1 + weight), 1.0)


def rate_of(count: int, total: int) -> dict[str, float]:
    """Return a rate as reports have it: `count`, `total`, and its interval, `low` to `high`."""
    low, high = wilson(count, total)
    return {"count": count, "total": total, "low": round(low, 4), "high": round(high, 4)}


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of the exact McNemar test: could both be equally good?"""
    total = only_first + only_second
    tail = sum(math.comb(total, count) for count in range(min(only_first, only_second) + 1))
    return min(2 * tail / (1 << total), 1.0)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return how fast y grows with x, by least squares."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def assignment(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns that cost least together, each row and column at most once."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise UsageError(missing_extra("reports need SciPy", "bench")) from error
    rows, columns = linear_sum_assignment(costs) if costs and costs[0] else ((), ())
    return [(int(row), int(column)) for row, column in zip(rows, columns, strict=True)]


# -- a comparison that may be read after each reply --------------------------------------------------------------------
# Each case is a pair: both are asked it, and one of them has it right (a win or a loss) or neither does better (a tie). A McNemar
# test that is repeated until it falls below 0.05 finds a difference between equals in a quarter of all runs with 150 wins and
# losses. This one does not, by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
# JRSS B 86, 2024, arXiv 2010.09686):
#
# Let `m` be a mean difference that might be true, and x = 1, 0 or -1 what a pair says. Whoever bets the share `c` of a capital on
# "it is higher" has 1 + c * (x - m) / (1 + m) times as much after the pair. If `m` is true, no bet gains on average, so by
# Ville's inequality the capital ever grows to 2 / alpha with a chance of at most alpha / 2. Whatever `m` the capital has grown so
# far against is excluded. The bets on "it is lower" are the same with wins and losses exchanged; together they leave an interval
# that holds the true difference after all pairs at once with a chance of at least 1 - alpha. The capital is spread over bets of
# many sizes, because the best size depends on the truth.
#
# For every `c` the factors of a win, of a tie and of a loss fall or stay as `m` grows. So the capital falls in `m`, and the bound
# is found by halving. It costs some thousands of logarithms, whatever the number of pairs.
#
# The chance holds if the expected difference is the same for each pair whatever came before, as in a shuffled sample.


Decision = Literal["better", "worse", "no difference that matters", "cannot tell", "go on"]

MATTERS: Final = 3.0  # percentage points; a difference that is smaller for certain does not matter
_BETS: Final = tuple(number / 50 for number in range(1, 50))
_STEPS: Final = 30  # halvings, which reach 2e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What pairs say so far.

    The decision is `better` or `worse` if the interval leaves out 0, and `no difference that matters` if it lies within `MATTERS`
    points of 0. Else it is `cannot tell` if no outcome of the pairs left could change that, and `go on` if one could.
    """

    decision: Decision
    estimate: float
    low: float
    high: float


def standing_of(wins: int, losses: int, ties: int, left: int, *, alpha: float = 0.05) -> Standing:
    """Say which of two is better; it may be asked after every pair, and the first decision counts.

    The interval ever leaves out the true difference with a chance of at most `alpha`.
    """
    if min(wins, losses, ties, left) < 0 or not 0 < alpha < 1:
        raise UsageError(f"expected counts from 0 on and alpha between 0 and 1, got {(wins, losses, ties, left)} and {alpha:g}")
    pairs = wins + losses + ties
    found = _decided(wins, losses, ties, alpha) or ("go on" if _can_decide(wins, losses, ties, left, alpha) else "cannot tell")
    return Standing(
        decision=found,
        estimate=100 * (wins - losses) / pairs if pairs else 0.0,
        low=100 * _lower(wins, losses, ties, alpha),
        high=-100 * _lower(losses, wins, ties, alpha),
    )


def _decided(wins: int, losses: int, ties: int, alpha: float) -> Decision | None:
    """Decide from the interval; one look at the capital shows whether it reaches a point."""
    if _excludes(wins, losses, ties, 0.0, alpha):
        return "better"
    if _excludes(losses, wins, ties, 0.0, alpha):
        return "worse"
    least = -MATTERS / 100
    is_small = _excludes(wins, losses, ties, least, alpha) and _excludes(losses, wins, ties, least, alpha)
    return "no difference that matters" if is_small else None


def _can_decide(wins: int, losses: int, ties: int, left: int, alpha: float) -> bool:
    """Look at the three futures that decide most: all pairs won, all lost, and evened out before they tie."""
    if not left:
        return False
    evened = min(left, abs(wins - losses))
    won = evened if wins < losses else 0
    futures = (
        (wins + left, losses, ties),
        (wins, losses + left, ties),
        (wins + won, losses + evened - won, ties + left - evened),
    )
    return any(_decided(*future, alpha) for future in futures)


def _lower(wins: int, losses: int, ties: int, alpha: float) -> float:
    """Return the largest difference that is excluded as too low, as a share from -1 to 1."""
    low, high = -1.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _excludes(wins, losses, ties, middle, alpha) else (low, middle)
    return low


def _excludes(wins: int, losses: int, ties: int, mean: float, alpha: float) -> bool:
    """Say whether the bets on more than a difference have grown too much for it to be true."""
    return _log_capital(wins, losses, ties, mean) >= math.log(2 / alpha)


def _log_capital(wins: int, losses: int, ties: int, mean: float) -> float:
    """Return the logarithm of the capital after bets on more than `mean`, with one part of it on each."""
    logs = [
        wins * math.log1p(bet * (1 - mean) / (1 + mean)) + ties * math.log1p(-bet * mean / (1 + mean)) + losses * math.log1p(-bet)
        for bet in _BETS
    ]
    most = max(logs)
    return most + math.log(math.fsum(math.exp(each - most) for each in logs) / len(logs))
