"""How `xmlcall serve` is seen from outside: the form of its log, its metrics, its traces."""

import argparse
import asyncio
import contextlib
import io
import logging
import sys
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from ..errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ..proxy.observed.observer import Observer

__all__ = ["add_observed_options", "observing", "start_log"]

_NOISY: Final = ("httpx", "httpx2", "httpcore2", "mcp")
END_SECONDS: Final = 3.0  # for the last spans, where nobody takes them


def add_observed_options(seen: argparse._ArgumentGroup) -> None:
    """Declare the arguments."""
    seen.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="of standard error: text, or one JSON object a line (default: text)",
    )
    seen.add_argument("--open-metrics", action="store_true", default=None, help="show /metrics to callers without a key, too")
    seen.add_argument(
        "--traces",
        action="store_true",
        default=None,
        help="send OpenTelemetry traces by OTLP over HTTP, to where OTEL_EXPORTER_OTLP_ENDPOINT says "
        "(default: http://localhost:4318); needs the extra `traces`",
    )


def start_log(form: str) -> None:
    """Begin the log on standard error.

    Args:
        form: `text` or `json`; with `json`, what else is written to standard error becomes lines of it.
    """
    if form == "json":
        from ..proxy.observed.json_log import JsonFormatter

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        sys.stderr = _LogLines(logging.getLogger("xmlcall"))
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every caller that left
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Leave out the traceback of each answer that the end of the server broke off."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class _LogLines(io.TextIOBase):
    """A stream whose lines go into the log."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._rest = log, ""

    def write(self, text: str) -> int:
        """Take text; each line of it that is whole goes into the log."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._log.info("%s", line.removeprefix("xmlcall: "))
        return len(text)


@contextlib.asynccontextmanager
async def observing(*, traces: bool, open_metrics: bool) -> AsyncIterator["Observer"]:
    """Make what counts and traces the requests; at its end, the last spans are sent."""
    from ..proxy.observed.observer import Observer

    if not traces:
        yield Observer(open_metrics=open_metrics)
        return
    try:
        from ..proxy.observed.traces import Traces, otlp_provider
    except ImportError as error:
        raise UsageError("--traces needs OpenTelemetry: pip install 'xmlcall[traces]'") from error
    provider = otlp_provider()
    try:
        yield Observer(tracing=Traces(provider), open_metrics=open_metrics)
    finally:
        _send_last(provider)


def _send_last(provider: "TracerProvider") -> None:
    """Send the last spans; a collector that is not there is not waited for."""
    sending = threading.Thread(target=provider.shutdown, daemon=True)
    sending.start()
    sending.join(END_SECONDS)
