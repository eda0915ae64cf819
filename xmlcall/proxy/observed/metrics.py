"""The metrics of the proxy, and their exposition for Prometheus.

All metrics are rows of one table, `METRICS`. Each app has a registry of its own, so the counts of several apps in one process are
kept apart. The values of several processes that share a port are added up: if the variable PROMETHEUS_MULTIPROC_DIR names a
folder before this module is imported, `prometheus_client` keeps all values in files there, and the process that is asked reads
the files of all. The apps of one process then share their values, because these are kept by name.

Each label value makes a new series, and series cost memory in every program that reads them. So no label contains text from a
caller: endpoints are route templates, models and key names come from the configuration, and codes come from our own tables.
The number of values is limited even if this rule is broken one day.
"""

import os
from collections.abc import Iterable
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

OTHER: Final = "other"
MOST_VALUES: Final = 200  # of one label; the tables of codes have about 70
SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"

# Seconds. A small model on a graphics card produces its first token in 50 ms; a long prompt on a CPU takes minutes.
FIRST_TOKEN_BUCKETS: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
SECONDS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)


@dataclass(frozen=True, slots=True)
class Row:
    """A metric."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


def _counter(name: str, labels: str, help: str) -> Row:
    return Row("counter", f"xmlcall_{name}_total", tuple(labels.split()), help)


def _seconds(name: str, labels: str, help: str, buckets: tuple[float, ...]) -> Row:
    return Row("histogram", f"xmlcall_{name}_seconds", tuple(labels.split()), help, buckets)


REQUESTS: Final = _counter(
    "requests",
    "endpoint method status model key",
    "Requests that ended, by the status that the caller got; 499 if it left before it got one.",
)
REQUEST_SECONDS: Final = _seconds(
    "request", "endpoint model", "Seconds from a request to the end of its answer.", SECONDS_BUCKETS
)
FIRST_TOKEN_SECONDS: Final = _seconds(
    "first_token", "model", "Seconds from a request to the first token that the model wrote for it.", FIRST_TOKEN_BUCKETS
)
OPEN_REQUESTS: Final = Row("gauge", "xmlcall_open_requests", (), "Requests under way.")
OPEN_STREAMS: Final = Row("gauge", "xmlcall_open_streams", (), "Streamed answers under way.")
PROMPT_TOKENS: Final = _counter(
    "prompt_tokens", "model key", "Tokens of prompts, the cached part included, as the model server counts them."
)
CACHED_TOKENS: Final = _counter(
    "cached_tokens", "model key", "Tokens of prompts that came from the model server's cache, if it reports them."
)
COMPLETION_TOKENS: Final = _counter(
    "completion_tokens", "model key", "Tokens that models wrote; pieces of text where the model server does not count."
)
CALLS: Final = _counter(
    "calls",
    "model outcome",
    "Calls that models wrote: bound as written, bound after repairs (repaired), or such that cannot run (invalid).",
)
REPAIRS: Final = _counter("repairs", "model code", "Repairs of replies, by their code.")
ISSUES: Final = _counter("issues", "model code", "Mistakes in calls that cannot run, by their code.")
REFUSALS: Final = _counter(
    "refusals", "model code", "Errors that callers got in place of an answer, or in the middle of one, by their code."
)
TOOL_RUNS: Final = _counter(
    "tool_runs",
    "model result",
    "Calls of the proxy's own tools: ok, error (the tool says so), failed (its server), denied (a rule).",
)
MODEL_REQUESTS: Final = _counter(
    "model_requests", "model result", "Requests to model servers: ok, closed (by us or by the caller), or how they failed."
)

METRICS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Row))  # all of the above


class Metrics:
    """The metrics of an app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[Row, Any] = {row: _made(row, self._registry) for row in METRICS}
        self._series: dict[tuple[Row, tuple[str, ...]], Any] = {}
        self._values: dict[str, set[str]] = {label: set() for row in METRICS for label in row.labels}

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
            bounded = [self._bounded(label, value) for label, value in zip(row.labels, values, strict=True)]
            found = self._made[row].labels(*bounded) if bounded else self._made[row]
            if bounded == list(values):  # otherwise hostile values would fill this table
                self._series[key] = found
        return found

    def _bounded(self, label: str, value: str) -> str:
        """Return the value of a label, or `other` if there are too many values already."""
        known = self._values[label]
        if value not in known and len(known) >= MOST_VALUES:
            return OTHER
        known.add(value)
        return value

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


_of_this_process: Final = cache(Metrics)


def metrics_of_process() -> Metrics:
    """Return the metrics for an app: its own, or the process's if several processes share a folder."""
    return _of_this_process() if shared_folder() is not None else Metrics()
