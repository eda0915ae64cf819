"""Reports a run: rates with their intervals, failures by code, tokens and seconds; and the changes between two runs.

A report is a plain dict, which `--json` prints unchanged. The tables for the terminal and Markdown and the HTML page are made
from it.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .case import Case, group_of
from .failures import CAUSES, counted
from .funnel import METRICS, Verdict, judge_reply, judge_turns, rates
from .stats import mcnemar, rate_of, slope, standing_of, wilson
from .store import RecordedRun, read_json, write_whole
from .ways import Way, way_of

LEAST_CASES = 100  # below this, intervals are wider than most differences between prompts
_LEAST_SIZES = 3  # fewest sizes of catalogs that show how prompts grow
_USAGES = ("usage", "need_usage")  # usage of the reply, and of the decision whether the question needs a tool
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


async def judged(run: RecordedRun) -> dict[str, list[Verdict]]:
    """Judge all replies of a run with this version's parser: way -> verdicts, of a conversation one for each turn."""
    reasoning_open = bool(run.about.get("reasoning_open"))

    async def of(case: Case, row: Mapping[str, Any], way: Way) -> list[Verdict]:
        if case.expects == "talk":
            return judge_turns(row, case)
        return [await judge_reply(row, case, way, run.settings, reasoning_open=reasoning_open)]

    return {
        name: [verdict for case, row in run.of_way(name) for verdict in await of(case, row, way_of(name))]
        for name in run.about["ways"]
    }


def reported(run: RecordedRun, verdicts: Mapping[str, Sequence[Verdict]]) -> dict[str, Any]:
    """Return the report of a run.

    Returns:
        `run`, `cases` (how many there are), and by way `answered`, `metrics`, `undisputed` (without disputed cases), `failures`,
        `causes`, `repairs`, `categories` and `cost`; at the top once more the `metrics` of the first way.
    """
    suite = run.about.get("suite", "")
    ways = {way: {"answered": len(run.of_way(way)), **_reported_way(list(of_way), suite)} for way, of_way in verdicts.items()}
    metrics = next(iter(ways.values()))["metrics"] if ways else {}
    return {"run": run.about, "cases": len(run.cases), "metrics": metrics, "ways": ways, "warnings": _warnings(run, verdicts)}


def _reported_way(verdicts: list[Verdict], suite: str) -> dict[str, Any]:
    categories = dict.fromkeys(verdict.case.category for verdict in verdicts)
    return {
        "metrics": _metrics(verdicts),
        "undisputed": _metrics([verdict for verdict in verdicts if not verdict.case.disputed]),
        "failures": dict(Counter(verdict.failure for verdict in verdicts if verdict.failure).most_common()),
        "causes": counted(verdicts),
        "repairs": dict(Counter(code for verdict in verdicts for code in set(verdict.repairs)).most_common()),
        "categories": {
            category: _metrics([verdict for verdict in verdicts if verdict.case.category == category]) for category in categories
        },
        "cost": cost_of(verdicts, suite),
    }


def _metrics(verdicts: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    return {metric: rate_of(count, total) for metric, (count, total) in rates(verdicts).items() if total}


def cost_of(verdicts: Sequence[Verdict], suite: str = "") -> dict[str, float]:
    """Return tokens and seconds of all rounds, as far as they were measured, and figures that only some suites have."""
    rounds = [kept for verdict in verdicts for kept in verdict.row["rounds"]]
    usages = [usage for kept in rounds for name in _USAGES if (usage := kept.get(name))]
    counted = {name: [count for usage in usages if (count := usage.get(name)) is not None] for name in _TOKENS}
    tokens = {name: sum(counts) for name, counts in counted.items() if counts}
    seconds = [kept["seconds"] for kept in rounds if "seconds" in kept]
    first = [kept["first_event_seconds"] for kept in rounds if "first_event_seconds" in kept]
    found: dict[str, float] = {"replies": len(rounds), **tokens, "seconds": round(sum(seconds), 1)}
    if seconds:
        found["median_seconds"] = round(statistics.median(seconds), 2)
    if first:
        found["median_seconds_to_first_event"] = round(statistics.median(first), 2)
    if "completion_tokens" in tokens and sum(seconds):
        found["completion_tokens_per_second"] = round(tokens["completion_tokens"] / sum(seconds), 1)
    if suite == "long" and (share := cached_share(verdicts)) is not None:
        found["cached_share"] = round(share, 4)
    if suite == "catalog" and (growth := _tokens_per_tool(verdicts)) is not None:
        found["catalog_tokens_per_tool"] = round(growth, 1)
    return found


def cached_share(verdicts: Iterable[Verdict]) -> float | None:
    """Return which part of a prompt came from the server's cache: the median over the replies; None if no server reported it.

    Tokens read to decide whether the question needs a tool count as read for the reply. Otherwise a decision that evicts the
    conversation from the cache would look like a full cache, because it has just read the conversation again. The first question
    after a longer conversation reads the new part of it, so the mean would depend on the number of questions.
    """
    rounds = (kept for verdict in verdicts for kept in verdict.row["rounds"])
    shares = [1 - _uncached_tokens(kept) / kept["usage"]["prompt_tokens"] for kept in rounds if _reports_cache(kept.get("usage"))]
    return statistics.median(max(share, 0.0) for share in shares) if shares else None


def _reports_cache(usage: Mapping[str, Any] | None) -> bool:
    return bool(usage and usage.get("prompt_tokens") and usage.get("cached_tokens") is not None)


def _uncached_tokens(kept: Mapping[str, Any]) -> int:
    """Return how many tokens the server read for a reply and for the decision before it."""
    usages = [kept[name] for name in _USAGES if _reports_cache(kept.get(name))]
    return sum(usage["prompt_tokens"] - usage["cached_tokens"] for usage in usages)


def _tokens_per_tool(verdicts: Sequence[Verdict]) -> float | None:
    """Return how many tokens a prompt grows by for each tool, where questions are asked with catalogs of several sizes."""
    points = [
        (len(verdict.case.tools), tokens)
        for verdict in verdicts
        if verdict.row["rounds"] and (tokens := (verdict.row["rounds"][0].get("usage") or {}).get("prompt_tokens"))
    ]
    return slope(points) if len({size for size, _ in points}) >= _LEAST_SIZES else None


def _warnings(run: RecordedRun, verdicts: Mapping[str, Sequence[Verdict]]) -> list[str]:
    found = []
    for way, of_way in verdicts.items():
        if (answered := len(run.of_way(way))) < len(run.cases):
            found.append(f"{way}: {answered} of {len(run.cases)} cases were answered; continue with the same command")
        if len(of_way) < LEAST_CASES:
            found.append(f"{way}: {len(of_way)} cases are too few to tell small differences from chance")
        groups = {group_of(verdict.case) for verdict in of_way}
        if len(groups) < len(of_way):
            found.append(f"{way}: {_GROUPED.format(cases=len(of_way), groups=len(groups))}")
    return found


_GROUPED = "the {cases} cases are {groups} groups of like ones, so true intervals are wider and true p-values higher"


# First the metrics that people want most, then the funnel, then those for requests that need no call.
SHOWN = ("call_correct", "parsed_as_written", *[name for name in METRICS if name not in ("call_correct", "parsed_as_written")])


_IN_WORDS = {
    "call_correct": "right calls",
    "task_correct": "right, calls or none",
    "refused_rightly": "rightly no call",
    "false_call": "needless calls",
    "malformed_attempt": "unreadable attempts",
    "parsed_as_written": "read without repair",
    "parsed_with_repairs": "read",
    "with_tool": "right where a tool is needed",
    "without_tool": "right where none is",
}


def named(metric: str) -> str:
    """Return a metric in words, with the name that options and JSON use."""
    return f"{_IN_WORDS[metric]} ({metric})" if metric in _IN_WORDS else metric


def table_of(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the table of a report, with a row for each metric and a column for each way."""
    ways = report["ways"]
    rows = [
        [named(metric), *(_cell(of_way["metrics"].get(metric)) for of_way in ways.values())]
        for metric in SHOWN
        if any(metric in of_way["metrics"] for of_way in ways.values())
    ]
    return ["", *ways], rows


def _cell(rate: Mapping[str, float] | None) -> str:
    if rate is None:
        return "-"
    share = 100 * rate["count"] / rate["total"]
    return f"{rate['count']} of {rate['total']}, {share:.1f} % [{100 * rate['low']:.0f}-{100 * rate['high']:.0f}]"


def causes_table_of(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the table of causes, with a column for each way: replies by main cause and, in brackets, by any cause."""
    ways = report["ways"]
    found = {cause: [of_way["causes"].get(cause) for of_way in ways.values()] for cause in CAUSES}
    rows = [
        [cause, *(f"{cell['main']} ({cell['any']})" if cell else "-" for cell in cells)]
        for cause, cells in found.items()
        if any(cells)
    ]
    return ["main cause (any)", *ways], rows


def asked(run: RecordedRun) -> set[str]:
    """Return the ids that a complete run has verdicts on."""
    return {
        f"{case.id}#{number}" if number else case.id
        for case in run.cases
        for number in (range(1, len(case.turns) + 1) if case.expects == "talk" else [0])
    }


def compared(first: Sequence[Verdict], second: Sequence[Verdict], *, left: int = 0) -> dict[str, Any]:
    """Compare two ways, or two runs, on the cases that both answered.

    Returns:
        Per metric the counts of both, the pairs that changed, the p-value of the exact McNemar test, and what `standing_of` says
        of the second: `decision`, and `estimate`, `low` and `high` in percentage points; `kept`, what both have right of what the
        first has right; and the ids of the cases that only one of them has right.
    """
    others = {verdict.case.id: verdict for verdict in second}
    pairs = [(verdict, others[verdict.case.id]) for verdict in first if verdict.case.id in others]
    metrics = {metric: _paired(pairs, metric, left) for metric in METRICS if any(_both_count(each, metric) for each in pairs)}
    right = [other.is_right for one, other in pairs if one.is_right]
    return {
        "cases": len(pairs),
        "metrics": metrics,
        "kept": {"count": sum(right), "total": len(right), "interval": wilson(sum(right), len(right))},
        "only_first_right": [one.case.id for one, other in pairs if one.is_right and not other.is_right],
        "only_second_right": [one.case.id for one, other in pairs if other.is_right and not one.is_right],
    }


_LESS_IS_BETTER = frozenset({"false_statement", "false_call", "malformed_attempt", "empty"})
_TURNED = {"better": "worse", "worse": "better"}


def _both_count(pair: tuple[Verdict, Verdict], metric: str) -> bool:
    return all(metric in each.counted for each in pair)


def _paired(pairs: Sequence[tuple[Verdict, Verdict]], metric: str, left: int) -> dict[str, Any]:
    outcomes = [(metric in one.reached, metric in other.reached) for one, other in pairs if _both_count((one, other), metric)]
    only_first, only_second = outcomes.count((True, False)), outcomes.count((False, True))
    both = outcomes.count((True, True))
    standing = standing_of(only_second, only_first, len(outcomes) - only_first - only_second, left)
    return {
        "first": both + only_first,
        "second": both + only_second,
        "total": len(outcomes),
        "only_first": only_first,
        "only_second": only_second,
        "p": round(mcnemar(only_first, only_second), 5),
        "decision": _TURNED.get(standing.decision, standing.decision) if metric in _LESS_IS_BETTER else standing.decision,
        **{name: round(getattr(standing, name), 1) for name in ("estimate", "low", "high")},
    }


# -- the verdicts of a run as they were when it was made, so that a later reading can show what it changed ------------


_SCORE = {"type": "object", "required": ["failure"], "properties": {"failure": {"type": "string"}}}
_SCORES = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _SCORE}}

Scores = dict[str, dict[str, dict[str, Any]]]
"""Way -> id of a case -> the metrics that its reply reached, its failure and its repairs."""


def keep_scores(folder: Path, scores: Scores) -> None:
    write_whole(folder / "scores.json", json.dumps(scores, ensure_ascii=False, indent=0) + "\n")


def changed_scores(folder: Path, now: Scores) -> list[dict[str, Any]]:
    """Return the scores that differ from the kept ones: `way`, `case`, and `before` and `now`."""
    file = folder / "scores.json"
    before = read_json(file, _SCORES, "remove it, and the next `xmlcall bench rescore` writes it again") if file.exists() else {}
    return [
        {"way": way, "case": case, "before": before[way][case], "now": score}
        for way, scores in now.items()
        for case, score in scores.items()
        if case in before.get(way, {}) and before[way][case] != score
    ]


def scores_of(verdicts: Mapping[str, Sequence[Verdict]]) -> Scores:
    return {
        way: {
            verdict.case.id: {"reached": sorted(verdict.reached), "failure": verdict.failure, "repairs": sorted(verdict.repairs)}
            for verdict in of_way
        }
        for way, of_way in verdicts.items()
    }
