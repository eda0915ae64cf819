"""Observe each request of the proxy, for metrics, traces and the log.

An app has one `Observer`. It makes an `Observing` for each request, and the layers report to it: `Handler` the beginning and the
end, `Exchange` the start of a stream, the engine each event of the turn and each request to the model. Nothing here keeps any
text of a conversation, an argument or a header.

The work per token has to cost almost nothing, so an event that is not counted costs only one lookup in a table.

*Traces*: spans are made only if tracing is on, in `traces.py`, which needs OpenTelemetry. Even without spans, the log contains
the id of the caller's trace, from the header `traceparent` (W3C Trace Context).

*Listeners of the engine*: the request's metrics and trace always listen, and its recording if there is one. The engine knows only
one listener, `Hearing`, so its code does not depend on who listens.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...backends.base import Backend
from ...prompting.format import PromptFormat
from ...tools.catalog import Catalog
from ...turn.events import CallDenied, CallFinished, CallStarted, LoopEvent, ReplyEnded
from ...types.calls import InvalidCall
from ...types.completion import Usage
from . import metrics as counted
from .metrics import Metrics, Row, metrics_of_process
from .model_request import ModelRequest, ObservedBackend

if TYPE_CHECKING:
    from starlette.requests import Request

    from ...backends.base import Backend
    from ..engine.recording import Recording
    from ..formats.contract import ApiError

__all__ = [
    "LEFT",
    "NO_MODEL_SPAN",
    "Hearing",
    "ModelSpan",
    "NoSpans",
    "Observer",
    "Observing",
    "RequestSpans",
    "Tracing",
    "no_tracing",
    "unobserved",
]

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


# -- traces ---------------------------------------------------------------------------------------------------------------

LEFT: Final = "left"
"""The failure of a request whose caller disconnected before the end; it does not count as the proxy's error."""

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class ModelSpan(Protocol):
    """A request to the model server."""

    @property
    def traceparent(self) -> str:
        """The header that goes with it; "" for none."""

    def first_chunk(self, seconds: float) -> None:
        """Note the first chunk."""

    def over(self, *, usage: Usage | None, finish_reason: str, failure: str) -> None:
        """Note the end."""


class RequestSpans(Protocol):
    """The spans of one request."""

    @property
    def trace_id(self) -> str:
        """The id of the trace, in hexadecimal; "" for none."""

    def model_asked(self, model: str, provider: str, *, operation: str) -> ModelSpan:
        """Begin a request to the model server."""

    def tool_began(self, call: str, tool: str) -> None:
        """Begin a call of the proxy's own tools."""

    def tool_over(self, call: str, failure: str) -> None:
        """End a call."""

    def over(self, *, model: str, operation: str, status: int, usage: Usage, finish_reason: str, failure: str) -> None:
        """End the request."""


class Tracing(Protocol):
    """Begins the spans of requests."""

    def __call__(self, headers: Mapping[str, str], *, method: str, endpoint: str) -> RequestSpans:
        """Begin the span of a request."""


class _NoModelSpan:
    traceparent = ""

    def first_chunk(self, seconds: float) -> None: ...

    def over(self, *, usage: Usage | None, finish_reason: str, failure: str) -> None: ...


NO_MODEL_SPAN: Final = _NoModelSpan()


class NoSpans:
    """A request without spans."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
        self.trace_id = match[1] if match else ""

    def model_asked(self, model: str, provider: str, *, operation: str) -> ModelSpan:
        """Begin nothing."""
        return NO_MODEL_SPAN

    def tool_began(self, call: str, tool: str) -> None:
        """Begin nothing."""

    def tool_over(self, call: str, failure: str) -> None:
        """End nothing."""

    def over(self, *, model: str, operation: str, status: int, usage: Usage, finish_reason: str, failure: str) -> None:
        """End nothing."""


def no_tracing(headers: Mapping[str, str], *, method: str, endpoint: str) -> RequestSpans:
    """Begin a request without spans (see `Tracing`)."""
    return NoSpans(headers)


# -- one request ---------------------------------------------------------------------------------------------------------


class Observing:
    """The observation of one request.

    Attributes:
        key: name of the caller's key; "" if there is no key, or it has no name.
        model: the model that is asked; "" until it is chosen.
        usage: the sum over all requests to the model.
    """

    def __init__(self, metrics: Metrics, spans: RequestSpans, *, endpoint: str, method: str) -> None:
        self.key, self.model, self.usage = "", "", Usage()
        self._metrics, self._spans, self._endpoint, self._method = metrics, spans, endpoint, method
        self._operation = _OPERATIONS.get(endpoint, "chat")
        self._started = time.monotonic()
        self._finish_reason = ""
        self._is_stream = self._has_token = False
        metrics.add(counted.OPEN_REQUESTS)

    # -- how it goes -----------------------------------------------------------------------------------------------------

    def admitted(self, key: str) -> None:
        """Note the name of the caller's key."""
        self.key = key

    def asked(self, model: str) -> None:
        """Note which model is asked."""
        self.model = model

    def stream_began(self) -> None:
        """Note that the answer is streamed."""
        if not self._is_stream:
            self._is_stream = True
            self._metrics.add(counted.OPEN_STREAMS)

    def model_asked(self, provider: str) -> ModelRequest:
        """Begin a request to the model server."""
        return ModelRequest(self, self._spans.model_asked(self.model, provider, operation=self._operation))

    def around(self, backend: "Backend") -> "Backend":
        """Return a backend whose requests are observed."""
        return ObservedBackend(backend, self)

    def token(self) -> None:
        """Note that the model has written something; only the first call counts."""
        if not self._has_token:
            self._has_token = True
            self._metrics.observe(counted.FIRST_TOKEN_SECONDS, time.monotonic() - self._started, self.model)

    def model_answered(self, result: str, usage: Usage | None) -> None:
        """Note the end of a request to the model server."""
        self._metrics.add(counted.MODEL_REQUESTS, self.model, result)
        if usage is None:
            return
        self.usage = self.usage + usage
        for row, tokens in (
            (counted.PROMPT_TOKENS, usage.prompt_tokens),
            (counted.CACHED_TOKENS, usage.cached_tokens),
            (counted.COMPLETION_TOKENS, usage.completion_tokens),
        ):
            if tokens:
                self._metrics.add(row, self.model, self.key, amount=tokens)

    def note(self, event: LoopEvent) -> None:
        """Note an event of the turn."""
        heard = _HEARD.get(type(event))
        if heard is not None:
            heard(self, event)

    def _turn_ended(self, event: ReplyEnded) -> None:
        metrics, model, reply = self._metrics, self.model, event.reply
        self._finish_reason = reply.finish_reason
        for call in reply.calls:
            outcome = "invalid" if isinstance(call, InvalidCall) else "repaired" if call.repairs else "bound"
            metrics.add(counted.CALLS, model, outcome)
            for issue in call.issues if isinstance(call, InvalidCall) else ():
                metrics.add(counted.ISSUES, model, issue.code)
        for repair in reply.repairs:
            metrics.add(counted.REPAIRS, model, repair.code)

    def _tool_began(self, event: CallStarted) -> None:
        self._spans.tool_began(event.call.id, event.call.name)

    def _tool_over(self, event: CallFinished) -> None:
        result = "failed" if event.failure else "error" if event.result.is_error else "ok"
        self._metrics.add(counted.TOOL_RUNS, self.model, result)
        self._spans.tool_over(event.call.id, "" if result == "ok" else f"tool_{result}")

    def _tool_denied(self, event: CallDenied) -> None:
        self._metrics.add(counted.TOOL_RUNS, self.model, "denied")

    # -- how it ends -----------------------------------------------------------------------------------------------------

    def over(self, *, status: int, error: "ApiError | None", has_left: bool) -> dict[str, Any]:
        """Note the end of the request."""
        seconds, shown = time.monotonic() - self._started, status or LEFT_STATUS
        code = (error.code or error.kind) if error else PASSED_ON if status >= 400 else ""
        metrics = self._metrics
        metrics.add(counted.OPEN_REQUESTS, amount=-1)
        if self._is_stream:
            metrics.add(counted.OPEN_STREAMS, amount=-1)
        metrics.add(counted.REQUESTS, self._endpoint, self._method, str(shown), self.model, self.key)
        metrics.observe(counted.REQUEST_SECONDS, seconds, self._endpoint, self.model)
        if code:
            metrics.add(counted.REFUSALS, self.model, code)
        failure = code or (LEFT if has_left else "")
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
            "trace_id": self._spans.trace_id,
            "error": failure,
        }
        return {name: value for name, value in facts.items() if value not in ("", {})}


_HEARD: Final[Mapping[type, Any]] = {
    ReplyEnded: Observing._turn_ended,
    CallStarted: Observing._tool_began,
    CallFinished: Observing._tool_over,
    CallDenied: Observing._tool_denied,
}


class Observer:
    """Observes all requests of an app.

    Attributes:
        is_stopping: whether the app is about to end, so that no more requests should be sent to it.
    """

    def __init__(self, metrics: Metrics | None = None, tracing: Tracing = no_tracing, *, open_metrics: bool = False) -> None:
        self.metrics = metrics or metrics_of_process()
        self.open_metrics = open_metrics
        self.is_stopping = False
        self._tracing = tracing

    def begin(self, request: "Request", endpoint: str) -> Observing:
        """Begin a request."""
        method = request.method if request.method in _METHODS else counted.OTHER
        spans = self._tracing(request.headers, method=method, endpoint=endpoint)
        return Observing(self.metrics, spans, endpoint=endpoint, method=method)

    def missed(self, request: "Request", status: int) -> None:
        """Note a request for an unknown path, or with an unsupported method."""
        method = request.method if request.method in _METHODS else counted.OTHER
        self.metrics.add(counted.REQUESTS, counted.OTHER, method, str(status), "", "")

    def stop(self) -> None:
        """Report the app as not ready from now on."""
        self.is_stopping = True


class _Nowhere(Metrics):
    """Metrics that count nothing."""

    def __init__(self) -> None: ...

    def add(self, row: Row, *values: str, amount: float = 1) -> None: ...

    def observe(self, row: Row, seconds: float, *values: str) -> None: ...


_NOWHERE: Final = _Nowhere()


def unobserved() -> Observing:
    """Return an observation that records nothing."""
    return Observing(_NOWHERE, NoSpans({}), endpoint="", method="")


# -- the listener of the engine -------------------------------------------------------------------------------------------


class Hearing:
    """Passes what the engine reports about a request to its metrics, its trace and its recording.

    Attributes:
        note: takes each event of the turn.
    """

    def __init__(self, observing: Observing, recording: "Recording | None" = None) -> None:
        self._observing, self._recording = observing, recording
        self.note: Callable[[LoopEvent], None] = observing.note if recording is None else self._both

    def _both(self, event: LoopEvent) -> None:
        self._observing.note(event)
        if self._recording is not None:
            self._recording.note(event)

    def backend(self, backend: Backend, fitted: Callable[..., Backend]) -> Backend:
        """Return an observed backend that fits requests into the context and records what goes out and comes back."""
        observed = self._observing.around(backend)
        if self._recording is None:
            return fitted(observed)
        return fitted(observed, on_sent=self._recording.prompt, on_text=self._recording.texts.append)

    def goes(self, way: str, tools: Catalog | tuple[()], format: PromptFormat) -> None:
        """Note in which way a request is answered (see `Recording.goes`)."""
        if self._recording is not None:
            self._recording.goes(way, tools, format)

    def answered(self, reason: str, text: str) -> None:
        """Note how the turn ended (see `Recording.answered`)."""
        if self._recording is not None:
            self._recording.answered(reason, text)
