"""Observe each request of the proxy, for metrics, traces and the log.

An app has one `Observer`. It makes an `Observing` for each request, and the layers report to it: `Handler` the beginning and the
end, `Exchange` the start of a stream, the engine each event of the turn and each request to the model. Nothing here keeps any
text of a conversation, an argument or a header.

The work per token has to cost almost nothing, so an event that is not counted costs only one lookup in a table.

*Traces*: spans are made only if tracing is on, in `traces.py`, which needs OpenTelemetry. Even without spans, the log contains
the id of the caller's trace, from the header `traceparent` (W3C Trace Context).

*Requests to the model server*: a request through the engine is a stream of chunks. A request that is passed on is a stream of
bytes. These are searched for the first token while they pass, and the last of them are kept, because they hold the token counts.

*The engine* knows only one listener, `Observing`. It passes everything on to the request's recording, if there is one.
"""

import json
import re
import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ...backends.base import Around, Backend, KeptOpen, Relayed, Tries, tries_of
from ...backends.http import TRACEPARENT
from ...errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow
from ...prompting.format import PromptFormat
from ...tools.catalog import Catalog
from ...turn.events import CallDenied, CallFinished, CallStarted, LoopEvent, ReplyEnded
from ...types.calls import InvalidCall
from ...types.completion import Chunk, CompletionRequest, Usage
from ...wire.openai import count, mapping, usage_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..engine.recording import Recording
    from ..formats.contract import ApiError
    from .traces import ModelSpan, RequestSpans, Traces

# -- the metrics, and their exposition for Prometheus ------------------------------------------------------------------
# All metrics are rows of one table, `METRICS`. Each app has a registry of its own, so the counts of several apps in one
# process are kept apart. The values of several processes that share a port are added up: if the variable
# PROMETHEUS_MULTIPROC_DIR names a folder before this module is imported, `prometheus_client` keeps all values in files there,
# and the process that is asked reads the files of all. The apps of one process then share their values, because these are kept
# by name.
#
# Each label value makes a new series, and series cost memory in every program that reads them. So no label contains text from
# a caller: endpoints are route templates, models and key names come from the configuration, and codes come from our own
# tables. The number of values is limited even if this rule is broken one day.


OTHER: Final = "other"
MOST_VALUES: Final = 200  # most values of one label; the tables of codes have about 70

# Seconds. A small model on a graphics card produces its first token in 50 ms; a long prompt on a CPU takes minutes.
FIRST_TOKEN_BUCKETS: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
SECONDS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)


@dataclass(frozen=True, slots=True)
class Row:
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
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: dict[Row, Any] = {row: _made(row, self._registry) for row in METRICS}
        self._series: dict[tuple[Row, tuple[str, ...]], Any] = {}
        self._values: dict[str, set[str]] = {label: set() for row in METRICS for label in row.labels}

    def add(self, row: Row, *values: str, amount: float = 1) -> None:
        self._one(row, values).inc(amount)

    def observe(self, row: Row, seconds: float, *values: str) -> None:
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
        if is_shared():
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


def is_shared() -> bool:
    """Say whether several processes share their values in a folder."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


_metrics_of_process: Final = cache(Metrics)  # of all its apps, if several processes share a folder


# -- a request ---------------------------------------------------------------------------------------------------------


LEFT_STATUS: Final = 499  # nginx's status for a caller that disconnected before it received a status
PASSED_ON: Final = "passed_on"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# The operation's name in OpenTelemetry's GenAI semantic conventions; all other paths that ask a model are `chat`.
_OPERATIONS: Final = {
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/api/embeddings": "embeddings",
    "/v1/rerank": "retrieval",
}

LEFT: Final = "left"  # the failure of a request whose caller disconnected before the end; it does not count as the proxy's error
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id_in(headers: Mapping[str, str]) -> str:
    """Return the id of the caller's trace, in hexadecimal; "" if it names none."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    return match[1] if match else ""


class Observing:
    def __init__(
        self, metrics: Metrics, *, endpoint: str, method: str, trace_id: str = "", spans: "RequestSpans | None" = None
    ) -> None:
        self.key, self.model = "", ""  # the name of the caller's key, if it has one; the model, once it is chosen
        self.usage = Usage()  # the sum over all requests to the model
        self._metrics, self._spans, self._endpoint, self._method = metrics, spans, endpoint, method
        self._trace_id = trace_id
        self._operation = _OPERATIONS.get(endpoint, "chat")
        self._started = time.monotonic()
        self._finish_reason = ""
        self._is_stream = self._has_token = False
        self.recording: Recording | None = None  # hears everything, too
        metrics.add(OPEN_REQUESTS)

    def stream_began(self) -> None:
        if not self._is_stream:
            self._is_stream = True
            self._metrics.add(OPEN_STREAMS)

    def model_asked(self, provider: str) -> "ModelRequest":
        span = self._spans.model_asked(self.model, provider, operation=self._operation) if self._spans else None
        return ModelRequest(self, span)

    def token(self) -> None:
        """Note that the model has written something; only the first call counts."""
        if not self._has_token:
            self._has_token = True
            self._metrics.observe(FIRST_TOKEN_SECONDS, time.monotonic() - self._started, self.model)

    def model_answered(self, result: str, usage: Usage | None) -> None:
        self._metrics.add(MODEL_REQUESTS, self.model, result)
        if usage is None:
            return
        self.usage = self.usage + usage
        for row, tokens in (
            (PROMPT_TOKENS, usage.prompt_tokens),
            (CACHED_TOKENS, usage.cached_tokens),
            (COMPLETION_TOKENS, usage.completion_tokens),
        ):
            if tokens:
                self._metrics.add(row, self.model, self.key, amount=tokens)

    def note(self, event: LoopEvent) -> None:
        if (heard := _HEARD.get(type(event))) is not None:
            heard(self, event)
        if self.recording is not None:
            self.recording.note(event)

    def backend(self, backend: Backend, fitted: Callable[..., Backend]) -> Backend:
        """Return an observed backend that fits requests into the context and records what goes out and comes back."""
        observed = ObservedBackend(backend, self)
        if self.recording is None:
            return fitted(observed)
        return fitted(observed, on_sent=self.recording.prompt, on_text=self.recording.texts.append)

    def goes(self, way: str, tools: Catalog | tuple[()], format: PromptFormat) -> None:
        if self.recording is not None:
            self.recording.goes(way, tools, format)

    def answered(self, reason: str, text: str) -> None:
        if self.recording is not None:
            self.recording.answered(reason, text)

    def _turn_ended(self, event: ReplyEnded) -> None:
        metrics, model, reply = self._metrics, self.model, event.reply
        self._finish_reason = reply.finish_reason
        for call in reply.calls:
            outcome = "invalid" if isinstance(call, InvalidCall) else "repaired" if call.repairs else "bound"
            metrics.add(CALLS, model, outcome)
            for issue in call.issues if isinstance(call, InvalidCall) else ():
                metrics.add(ISSUES, model, issue.code)
        for repair in reply.repairs:
            metrics.add(REPAIRS, model, repair.code)

    def _tool_began(self, event: CallStarted) -> None:
        if self._spans:
            self._spans.tool_began(event.call.id, event.call.name)

    def _tool_over(self, event: CallFinished) -> None:
        self._metrics.add(TOOL_RUNS, self.model, event.outcome)
        if self._spans:
            self._spans.tool_over(event.call.id, "" if event.outcome == "ok" else f"tool_{event.outcome}")

    def over(self, *, status: int, error: "ApiError | None", has_left: bool) -> dict[str, Any]:
        seconds, shown = time.monotonic() - self._started, status or LEFT_STATUS
        code = (error.code or error.kind) if error else PASSED_ON if status >= 400 else ""
        metrics = self._metrics
        metrics.add(OPEN_REQUESTS, amount=-1)
        if self._is_stream:
            metrics.add(OPEN_STREAMS, amount=-1)
        metrics.add(REQUESTS, self._endpoint, self._method, str(shown), self.model, self.key)
        metrics.observe(REQUEST_SECONDS, seconds, self._endpoint, self.model)
        if code:
            metrics.add(REFUSALS, self.model, code)
        failure = code or (LEFT if has_left else "")
        if self._spans:
            self._spans.over(
                model=self.model,
                operation=self._operation if self.model else "",
                status=shown,
                usage=self.usage,
                finish_reason=self._finish_reason,
                failure=failure,
            )
        return self._facts(shown, seconds, failure)

    def _facts(self, status: int, seconds: float, failure: str) -> dict[str, Any]:
        usage = self.usage
        tokens = {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens, "cached": usage.cached_tokens}
        facts = {
            "event": "request",
            "method": self._method,
            "endpoint": self._endpoint,
            "status": status,
            "seconds": round(seconds, 4),
            "model": self.model,
            "key": self.key,
            "tokens": {name: count for name, count in tokens.items() if count is not None},
            "trace_id": self._trace_id,
            "error": failure,
        }
        return {name: value for name, value in facts.items() if value not in ("", {})}


_HEARD: Final[Mapping[type, Any]] = {
    ReplyEnded: Observing._turn_ended,
    CallStarted: Observing._tool_began,
    CallFinished: Observing._tool_over,
    CallDenied: lambda request, event: request._metrics.add(TOOL_RUNS, request.model, "denied"),
}


class Observer:
    """Observes all requests of an app; once `is_stopping`, no more requests should be sent to it."""

    def __init__(self, *, tracing: "Traces | None" = None, open_metrics: bool = False) -> None:
        self.metrics = _metrics_of_process() if is_shared() else Metrics()
        self.open_metrics = open_metrics
        self.is_stopping = False
        self._tracing = tracing

    def begin(self, request: "Request", endpoint: str) -> Observing:
        method, spans = _method(request), None
        if self._tracing is not None:
            spans = self._tracing.begin(request.headers, method=method, endpoint=endpoint)
        trace_id = spans.trace_id if spans else trace_id_in(request.headers)
        return Observing(self.metrics, endpoint=endpoint, method=method, trace_id=trace_id, spans=spans)

    def missed(self, request: "Request", status: int) -> None:
        """Note a request for an unknown path, or with an unsupported method."""
        self.metrics.add(REQUESTS, OTHER, _method(request), str(status), "", "")


def _method(request: "Request") -> str:
    return request.method if request.method in _METHODS else OTHER


# -- a request to the model server ---------------------------------------------------------------------------------------

TAIL: Final = 65_536  # bytes that are kept of a passed-on answer: the counts are in the last event, or at the end of the object
_STREAMS: Final = ("text/event-stream", "application/x-ndjson")
# A piece of text or thinking that is not empty, in any of the formats.
FIRST_TOKEN: Final = re.compile(rb'"(?:content|reasoning_content|reasoning|thinking|response|text)" ?: ?"[^"]')
_COUNTS: Final = re.compile(rb'"(?:usage|timings|prompt_eval_count)"')

_RESULTS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ContextOverflow, "context_overflow"),
    (BackendUnavailable, "unavailable"),
    (BackendStatusError, "refused"),
    (BackendProtocolError, "protocol_error"),
    (GeneratorExit, "closed"),
    (CancelledError, "closed"),
)


def _result_of(error: BaseException) -> str:
    return next((word for kind, word in _RESULTS if isinstance(error, kind)), "failed")


class ModelRequest:
    """A request to the model server, from its beginning to its end."""

    def __init__(self, observing: Observing, span: "ModelSpan | None") -> None:
        self._observing, self._span = observing, span
        self._started = time.monotonic()
        self.usage: Usage | None = None
        self.finish_reason = ""
        self._pieces = 0
        if span and span.traceparent:
            TRACEPARENT.set(span.traceparent)

    def begun(self, *, is_reply: bool = True) -> None:
        """Note the first piece that the model writes, unless it belongs to a preliminary decision."""
        if self._span:
            self._span.first_chunk(time.monotonic() - self._started)
        if is_reply:
            self._observing.token()

    def take(self, chunk: Chunk) -> None:
        if chunk.text or chunk.reasoning:
            self._pieces += 1
        self.usage = chunk.usage or self.usage
        self.finish_reason = chunk.finish_reason or self.finish_reason

    def over(self, result: str = "ok") -> None:
        usage = self.usage
        if self._pieces and (usage is None or usage.completion_tokens is None):  # most servers send one token per piece
            usage = replace(usage or Usage(), completion_tokens=self._pieces, is_estimated=True)
        self._observing.model_answered(result, usage)
        if self._span:
            failure = "" if result in ("ok", "closed") else result
            self._span.over(usage=usage, finish_reason=self.finish_reason, failure=failure)
            if self._span.traceparent:
                TRACEPARENT.set("")


class ObservedBackend(Around, KeptOpen):
    def __init__(self, backend: Backend, observing: Observing) -> None:
        super().__init__(backend)
        self._observing = observing

    def tries(self, request: CompletionRequest) -> Tries:
        return _Observed(self._backend, request, self._observing)


class _Observed(Tries):
    """An observed request; all its attempts count as one."""

    def __init__(self, backend: Backend, request: CompletionRequest, observing: Observing) -> None:
        super().__init__(backend, request)
        self._tries, self._observing = tries_of(backend, request), observing
        self._asked: ModelRequest | None = None
        self._has_begun = False
        self._result = "closed"  # unless it is read to its end

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Note the request's beginning, and its end unless another attempt may follow."""
        asked = self._asked = self._asked or self._observing.model_asked(self._backend.capabilities.server)
        try:
            async with self._tries.opened() as chunks:
                self.listeners = (*self._tries.listeners, self._hear)
                yield chunks
        except BackendError:
            raise
        except BaseException as error:
            asked.over(_result_of(error))
            raise
        asked.over(self._result)

    def _hear(self, chunk: Chunk) -> None:
        if chunk.progress is None and self._asked is not None:
            if not self._has_begun:
                self._has_begun = True
                self._asked.begun(is_reply=not self._request.top_logprobs)
            self._asked.take(chunk)

    def ended(self) -> None:
        self._result = "ok"
        self._tries.ended()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Note the request's end, if no attempt follows."""
        failed: BaseException | None = error
        try:
            failed = final = await self._tries.again(error, begun=begun)
        except BaseException as left:
            failed = left
            raise
        finally:
            if failed is not None and self._asked is not None:
                self._asked.over(_result_of(failed))
        return final


# -- answers that are passed on ----------------------------------------------------------------------------------------


@asynccontextmanager
async def relaying(opened: AbstractAsyncContextManager[Relayed], observing: Observing, provider: str) -> AsyncIterator[Relayed]:
    """Observe a request to the model server whose answer is passed on byte for byte."""
    asked, result = observing.model_asked(provider), "ok"
    tail = _Tail()
    try:
        async with opened as relayed:
            result = "refused" if relayed.status >= 400 else "ok"
            tail.is_stream = relayed.media_type.startswith(_STREAMS)
            yield replace(relayed, chunks=_watched(relayed.chunks, tail, asked))
    except BaseException as error:
        result = result if result == "refused" else _result_of(error)
        raise
    finally:
        if result != "refused":
            asked.usage = tail.usage()
        asked.over(result)


async def _watched(chunks: AsyncIterator[bytes], tail: "_Tail", asked: ModelRequest) -> AsyncIterator[bytes]:
    is_awaited = tail.is_stream
    async for chunk in chunks:
        if is_awaited and FIRST_TOKEN.search(chunk):
            asked.begun()
            is_awaited = False
        tail.keep(chunk)
        yield chunk


class _Tail:
    """The last bytes of an answer, which arrives as several JSON objects (`is_stream`) or one."""

    def __init__(self) -> None:
        self.is_stream = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_whole = True

    def keep(self, piece: bytes) -> None:
        """Keep a piece, and drop bytes that are too far from the end."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * TAIL:  # rarely, so that each byte is copied only once or twice
            kept = b"".join(self._pieces)[-TAIL:]
            self._pieces, self._size, self._is_whole = [kept], len(kept), False

    def usage(self) -> Usage | None:
        """Read the token counts; None if the server reported none, or reported them too far from the end."""
        data = b"".join(self._pieces)
        if not self.is_stream:
            return _counts(data) if self._is_whole else None
        lines = (line for line in reversed(data.splitlines()) if _COUNTS.search(line))
        return next((usage for line in lines if (usage := _counts(line.removeprefix(b"data:"))) is not None), None)


def _counts(text: bytes) -> Usage | None:
    try:
        data: Mapping[str, Any] = mapping(json.loads(text))
    except (ValueError, RecursionError):  # the answer is passed on even if it is not JSON
        return None
    if usage := usage_of(data):
        return usage
    prompt, completion = count(data.get("prompt_eval_count")), count(data.get("eval_count"))
    return None if prompt is None and completion is None else Usage(prompt_tokens=prompt, completion_tokens=completion)
