"""The statistics of reports: Wilson intervals and exact McNemar tests; ROC areas, slopes and best assignments by SciPy.

The first two are a line of arithmetic each, and needed wherever figures are shown; SciPy is an extra.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..errors import UsageError

__all__ = ["area", "assignment", "mcnemar", "slope", "wilson"]


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the Wilson 95 % interval of a rate, as shares from 0 to 1."""
    if not total:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf(0.975)
    share, weight = count / total, z * z / total
    middle = share + weight / 2
    half = z * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max((middle - half) / (1 + weight), 0.0), min((middle + half) / (1 + weight), 1.0)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of the exact McNemar test: could both be equally good?"""
    total = only_first + only_second
    tail = sum(math.comb(total, count) for count in range(min(only_first, only_second) + 1))
    return min(2 * tail / (1 << total), 1.0)


def area(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the area under the ROC curve: how often one of the first is higher than one of the second; 0.5 is chance."""
    return float(_scipy_stats().mannwhitneyu(higher, lower).statistic) / (len(higher) * len(lower))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return how fast y grows with x, by least squares."""
    return float(_scipy_stats().linregress([x for x, _ in points], [y for _, y in points]).slope)


def assignment(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns that cost least together, each row and column at most once.

    Args:
        costs: a rectangle, a row for each of one kind, a column for each of the other.
    """
    rows, columns = _scipy().optimize.linear_sum_assignment(costs) if costs and costs[0] else ((), ())
    return [(int(row), int(column)) for row, column in zip(rows, columns, strict=True)]


def _scipy_stats() -> Any:
    return _scipy().stats


def _scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise UsageError("reports need SciPy: install it with: pip install 'xmlcall[bench]'") from error
    return scipy
