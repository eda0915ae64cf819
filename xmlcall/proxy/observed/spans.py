"""What a request tells its trace, where there is one; the spans themselves are in `traces.py`, which needs OpenTelemetry.

The trace of a caller goes on in the log also where no spans are made: its id is in the header `traceparent` (W3C Trace Context).
"""

import re
from collections.abc import Mapping
from typing import Final, Protocol

from ...types.completion import Usage

__all__ = ["LEFT", "NO_MODEL_SPAN", "ModelSpan", "NoSpans", "RequestSpans", "Tracing", "no_tracing"]

LEFT: Final = "left"
"""The failure of a request whose caller left before the end: nobody's mistake here."""

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
