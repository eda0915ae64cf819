"""OpenTelemetry spans: one for the request, and within it one for each model request and each call of the proxy's own tools.

    POST /v1/chat/completions          SERVER, continues the caller's trace
      chat MODEL                       CLIENT, one for each reply; the model server gets its `traceparent`
      execute_tool TOOL                INTERNAL

Names and attributes follow the semantic conventions for HTTP and for GenAI (1.3x, still marked as experimental). The content
attributes that these allow (messages, arguments, results) are never set, nor is `url.path`, because callers choose it. Only the
header `traceparent` is read: `tracestate` and `baggage` contain arbitrary text, which would be exported with the spans.

This module needs the extra `traces`, and it is imported only when tracing is turned on.
"""

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...types.completion import Usage
from .observer import LEFT

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from opentelemetry.trace import TracerProvider as AnyProvider

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_OWN_FAILURE: Final = 500  # the lowest HTTP status that marks a server span as failed; a caller's error does not


def otlp_provider() -> TracerProvider:
    """Return a provider that exports spans by OTLP over HTTP; the SDK's own variables (`OTEL_*`) configure it."""
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "xmlcall"}
    resource = Resource.create({**named, SERVICE_VERSION: version("xmlcall")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # at exit, it would wait for an absent collector
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traces:
    def __init__(self, provider: "AnyProvider") -> None:
        self._tracer = provider.get_tracer("xmlcall", version("xmlcall"))

    def begin(self, headers: Mapping[str, str], *, method: str, endpoint: str) -> "RequestSpans":
        caller = _PROPAGATOR.extract({"traceparent": headers.get("traceparent", "")}, Context())
        attributes = {"http.request.method": method, "http.route": endpoint, "url.scheme": "http"}
        span = self._tracer.start_span(f"{method} {endpoint}", caller, SpanKind.SERVER, attributes)
        return RequestSpans(self._tracer, span)


class RequestSpans:
    def __init__(self, tracer: "Tracer", span: Span) -> None:
        self._tracer, self._span = tracer, span
        self._inside = trace.set_span_in_context(span, Context())
        self._tools: dict[str, Span] = {}
        self.trace_id = trace.format_trace_id(span.get_span_context().trace_id)

    def model_asked(self, model: str, provider: str, *, operation: str) -> "ModelSpan":
        attributes = _question(model, operation) | {"gen_ai.provider.name": provider}
        span = self._tracer.start_span(f"{operation} {model}".strip(), self._inside, SpanKind.CLIENT, attributes)
        return ModelSpan(span)

    def tool_began(self, call: str, tool: str) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call,
            "gen_ai.tool.type": "function",
        }
        self._tools[call] = self._tracer.start_span(f"execute_tool {tool}", self._inside, SpanKind.INTERNAL, attributes)

    def tool_over(self, call: str, failure: str) -> None:
        if span := self._tools.pop(call, None):
            _end(span, failure, is_failure=bool(failure))

    def over(self, *, model: str, operation: str, status: int, usage: Usage, finish_reason: str, failure: str) -> None:
        """End the request's span and any tool spans that are still open."""
        for call in tuple(self._tools):
            self.tool_over(call, "cancelled")
        self._span.set_attribute("http.response.status_code", status)
        if model:
            self._span.set_attributes(_question(model, operation) | _answer(usage, finish_reason))
        is_failure = failure not in ("", LEFT) and (status >= _OWN_FAILURE or status < 400)  # below 400: it failed in mid-answer
        _end(self._span, failure, is_failure=is_failure)


class ModelSpan:
    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
        self.traceparent = f"00-{ids}-{context.trace_flags:02x}" if context.is_valid else ""

    def first_chunk(self, seconds: float) -> None:
        self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)

    def over(self, *, usage: Usage | None, finish_reason: str, failure: str) -> None:
        self._span.set_attributes(_answer(usage or Usage(), finish_reason))
        _end(self._span, failure, is_failure=bool(failure))


def _question(model: str, operation: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": operation, "gen_ai.request.model": model}


def _answer(usage: Usage, finish_reason: str) -> dict[str, Any]:
    counts = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
    known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    return known | ({"gen_ai.response.finish_reasons": (finish_reason,)} if finish_reason else {})


def _end(span: Span, failure: str, *, is_failure: bool) -> None:
    if failure:
        span.set_attribute("error.type", failure)
    if is_failure:
        span.set_status(Status(StatusCode.ERROR))
    span.end()
