"""The metrics of the proxy, and their exposition for Prometheus.

All metrics are rows of one table, `METRICS`. Each app has a registry of its own, so the counts of several apps in one process are
kept apart. Several processes behind one port are added up: if the variable PROMETHEUS_MULTIPROC_DIR names a folder before this
module is imported, `prometheus_client` keeps all values in files there, and the process that is asked reads the files of all. The
apps of one process then share their values, because these are kept by name.

Each label value makes a new series, and series cost memory in every program that reads them. So no label contains text from a
caller: endpoints are route templates, models and key names come from the configuration, and codes come from our own tables.
`Bounded` limits the number of values even if this rule is broken one day.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

__all__ = ["METRICS", "Bounded", "Metrics", "Row", "metrics_of_process", "samples", "shared_folder"]

OTHER: Final = "other"
MOST_VALUES: Final = 200  # of one label; the tables of codes have about 70
SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"

# Seconds. A small model on a graphics card produces its first token in 50 ms; a long prompt on a CPU takes minutes.
FIRST_TOKEN_BUCKETS: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
SECONDS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...] = ()
    help: str
    buckets: tuple[float, ...] = ()


REQUESTS: Final = Row(
    name="xmlcall_requests_total",
    kind="counter",
    labels=("endpoint", "method", "status", "model", "key"),
    help="Requests that ended, by the status that the caller got; 499 if it left before it got one.",
)
REQUEST_SECONDS: Final = Row(
    name="xmlcall_request_seconds",
    kind="histogram",
    labels=("endpoint", "model"),
    help="Seconds from a request to the end of its answer.",
    buckets=SECONDS_BUCKETS,
)
FIRST_TOKEN_SECONDS: Final = Row(
    name="xmlcall_first_token_seconds",
    kind="histogram",
    labels=("model",),
    help="Seconds from a request to the first token that the model wrote for it.",
    buckets=FIRST_TOKEN_BUCKETS,
)
OPEN_REQUESTS: Final = Row(name="xmlcall_open_requests", kind="gauge", help="Requests under way.")
OPEN_STREAMS: Final = Row(name="xmlcall_open_streams", kind="gauge", help="Streamed answers under way.")
PROMPT_TOKENS: Final = Row(
    name="xmlcall_prompt_tokens_total",
    kind="counter",
    labels=("model", "key"),
    help="Tokens of prompts, the cached part included, as the model server counts them.",
)
CACHED_TOKENS: Final = Row(
    name="xmlcall_cached_tokens_total",
    kind="counter",
    labels=("model", "key"),
    help="Tokens of prompts that came from the model server's cache, where it tells.",
)
COMPLETION_TOKENS: Final = Row(
    name="xmlcall_completion_tokens_total",
    kind="counter",
    labels=("model", "key"),
    help="Tokens that models wrote; pieces of text where the model server does not count.",
)
CALLS: Final = Row(
    name="xmlcall_calls_total",
    kind="counter",
    labels=("model", "outcome"),
    help="Calls that models wrote: bound as written, bound after repairs (repaired), or such that cannot run (invalid).",
)
REPAIRS: Final = Row(
    name="xmlcall_repairs_total", kind="counter", labels=("model", "code"), help="Repairs of replies, by their code."
)
ISSUES: Final = Row(
    name="xmlcall_issues_total",
    kind="counter",
    labels=("model", "code"),
    help="Mistakes in calls that cannot run, by their code.",
)
REFUSALS: Final = Row(
    name="xmlcall_refusals_total",
    kind="counter",
    labels=("model", "code"),
    help="Errors that callers were told in place of an answer, or in the middle of one, by their code.",
)
TOOL_RUNS: Final = Row(
    name="xmlcall_tool_runs_total",
    kind="counter",
    labels=("model", "result"),
    help="Calls of the proxy's own tools: ok, error (the tool says so), failed (its server), denied (a rule).",
)
MODEL_REQUESTS: Final = Row(
    name="xmlcall_model_requests_total",
    kind="counter",
    labels=("model", "result"),
    help="Requests to model servers: ok, closed (by us or by the caller), or how they failed.",
)

METRICS: Final = (
    REQUESTS,
    REQUEST_SECONDS,
    FIRST_TOKEN_SECONDS,
    OPEN_REQUESTS,
    OPEN_STREAMS,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    CALLS,
    REPAIRS,
    ISSUES,
    REFUSALS,
    TOOL_RUNS,
    MODEL_REQUESTS,
)


class Bounded:
    """The values of one label, limited in number."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._known: set[str] = set()
        self._most = most

    def of(self, value: str) -> str:
        """Return the value, or `other` if there are too many values already."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


class Metrics:
    """The metrics of an app."""

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[Row, Any] = {row: _made(row, self._registry) for row in METRICS}
        self._series: dict[tuple[Row, tuple[str, ...]], Any] = {}
        names = {label for row in METRICS for label in row.labels}
        self._bounded = {name: Bounded(most_values) for name in names}

    def add(self, row: Row, *values: str, amount: float = 1) -> None:
        """Add to a counter or a gauge."""
        self._one(row, values).inc(amount)

    def observe(self, row: Row, seconds: float, *values: str) -> None:
        """Add a value to a histogram."""
        self._one(row, values).observe(seconds)

    def _one(self, row: Row, values: tuple[str, ...]) -> Any:
        key = (row, values)
        found = self._series.get(key)
        if found is None:
            bounded = [self._bounded[label].of(value) for label, value in zip(row.labels, values, strict=True)]
            found = self._made[row].labels(*bounded) if bounded else self._made[row]
            if bounded == list(values):  # otherwise hostile values would fill this table
                self._series[key] = found
        return found

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Write all metrics; those of all processes, if they share a folder."""
        registry: Collector = self._registry
        if shared_folder() is not None:
            registry = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        collected = _Lean(registry)
        if "application/openmetrics-text" in accept:
            written: bytes = openmetrics.generate_latest(collected)  # type: ignore[no-untyped-call]
            return written, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(collected), CONTENT_TYPE_PLAIN_0_0_4


class _Lean(Collector):
    """Metrics without the `_created` timestamps, which double the number of series."""

    def __init__(self, inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def _made(row: Row, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if row.kind == "histogram":
        return Histogram(row.name, row.help, row.labels, buckets=row.buckets, registry=registry)
    if row.kind == "gauge":
        return Gauge(row.name, row.help, row.labels, registry=registry, multiprocess_mode="livesum")
    return Counter(row.name, row.help, row.labels, registry=registry)


# -- several processes -------------------------------------------------------------------------------------------------


def shared_folder() -> Path | None:
    """Return the folder that several processes share; None if there is only this one."""
    if not getattr(values.ValueClass, "_multiprocess", False):
        return None
    return Path(os.environ[SHARED])


@cache
def _of_this_process() -> Metrics:
    return Metrics()


def metrics_of_process() -> Metrics:
    """Return the metrics for an app: its own, or the process's if several processes share a folder."""
    return _of_this_process() if shared_folder() is not None else Metrics()


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    """Return name, labels and value of each series, as they are written."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
