"""A proxy with scripted replies, asked in this process, and what it tells of itself."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from proxy_harness import ADD

from xmlcall.backends.base import Backend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.base import Host
from xmlcall.proxy.app import app_of
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.http.access import Guard, serving
from xmlcall.proxy.observed.observer import Metrics, Observer

__all__ = ["CHAT", "ask", "counts", "observed", "samples", "series"]

CHAT = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def observed(
    model: Backend | Iterable[Any] = (),
    *,
    observer: Observer | None = None,
    hosts: Iterable[Host] = (),
    guard: Guard | None = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of a proxy; a list of replies is what its model says."""
    backend = ScriptedBackend(model) if isinstance(model, Iterable) else model
    async with Engine(backend, hosts, **{"mode": "xml", "allowed": ["*"], **options}) as engine:
        app = app_of(serving(engine), guard or Guard(), observer=observer or Observer())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            yield client


async def ask(client: httpx.AsyncClient, text: str = "1 + 2?", tools: Iterable[Any] = (ADD,), **fields: Any) -> httpx.Response:
    """Ask for a chat completion."""
    body = {"model": "any", "messages": [{"role": "user", "content": text}], "tools": list(tools), **fields}
    return await client.post(CHAT, json=body)


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    """Give name, labels and value of each series, as they are written."""
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def series(observer: Observer, name: str) -> dict[tuple[str, ...], float]:
    """Give the values of a metric by those of its labels, which are sorted by name."""
    found = [(labels, value) for each, labels, value in samples(observer.metrics) if each == name]
    return {tuple(value for _, value in sorted(labels.items())): value for labels, value in found}


def counts(observer: Observer, name: str, label: str) -> dict[str, float]:
    """Give the sums of a metric by one label."""
    sums: dict[str, float] = {}
    for each, labels, value in samples(observer.metrics):
        if each == name:
            sums[labels[label]] = sums.get(labels[label], 0) + value
    return sums
