"""The area under the ROC curve, for pages about log-odds."""

from collections.abc import Sequence

from scipy.stats import mannwhitneyu


def area(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return how often one of the first is higher than one of the second; 0.5 is chance."""
    return float(mannwhitneyu(higher, lower).statistic) / (len(higher) * len(lower))
