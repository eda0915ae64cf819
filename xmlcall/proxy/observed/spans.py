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
        """Note the first chunk.

        Args:
            seconds: after the request.
        """

    def over(self, *, usage: Usage | None, finish_reason: str, failure: str) -> None:
        """Note the end.

        Args:
            usage: of it, as far as it is known.
            finish_reason: of the reply; "" if there is none.
            failure: the kind of error; "" for none.
        """


class RequestSpans(Protocol):
    """The spans of one request."""

    @property
    def trace_id(self) -> str:
        """The id of the trace, in hexadecimal; "" for none."""

    def model_asked(self, model: str, provider: str, *, operation: str) -> ModelSpan:
        """Begin a request to the model server.

        Args:
            model: its name.
            provider: what serves it.
            operation: such as `chat`.
        """

    def tool_began(self, call: str, tool: str) -> None:
        """Begin a call of the proxy's own tools.

        Args:
            call: its id.
            tool: its name.
        """

    def tool_over(self, call: str, failure: str) -> None:
        """End a call.

        Args:
            call: its id.
            failure: `tool_error` or the like; "" for none.
        """

    def over(self, *, model: str, operation: str, status: int, usage: Usage, finish_reason: str, failure: str) -> None:
        """End the request.

        Args:
            model: that was asked; "" for none.
            operation: such as `chat`; "" if no model was asked.
            status: of HTTP.
            usage: of all requests to the model.
            finish_reason: of the last reply.
            failure: a code; "" for none.
        """


class Tracing(Protocol):
    """Begins the spans of requests."""

    def __call__(self, headers: Mapping[str, str], *, method: str, endpoint: str) -> RequestSpans:
        """Begin the span of a request.

        Args:
            headers: of the request.
            method: of HTTP.
            endpoint: template of the route.
        """


class _NoModelSpan:
    traceparent = ""

    def first_chunk(self, seconds: float) -> None: ...

    def over(self, *, usage: Usage | None, finish_reason: str, failure: str) -> None: ...


NO_MODEL_SPAN: Final = _NoModelSpan()


class NoSpans:
    """A request without spans.

    Args:
        headers: of the request.
    """

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
