"""How `xmlcall serve` is seen from outside: its log, metrics and traces, and its requests, in files and on a page."""

import argparse
import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from ..installed import missing_extra
from ..private_folders import make_private
from .exits import complain

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from starlette.routing import BaseRoute

    from ..proxy.http.access import Guard, ServedModels
    from ..proxy.observed.observer import Observer
    from ..turn_records.builder import Recorder
    from ..turn_records.lines import LineThread

_NOISY: Final = ("httpx2", "httpcore2", "mcp")
END_SECONDS: Final = 3.0  # for sending the last spans, if no collector answers
_KEYS = ("XMLCALL_API_KEY", "OPENAI_API_KEY", "OLLAMA_API_KEY")  # variables whose values are kept out of records


def add_observed_options(seen: argparse._ArgumentGroup) -> None:
    seen.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="format of the log on standard error: text, or one JSON object per line (default: text)",
    )
    seen.add_argument("--open-metrics", action="store_true", default=None, help="serve /metrics also to clients without a key")
    seen.add_argument(
        "--traces",
        action="store_true",
        default=None,
        help="send OpenTelemetry traces by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT "
        "(default: http://localhost:4318); needs the extra `traces`",
    )


def start_log(form: str) -> None:
    """Start the log on standard error; in the form `json`, everything else written there becomes lines of it."""
    if form == "json":
        from ..proxy.observed.probes import JsonFormatter

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
    def __init__(self, log: logging.Logger) -> None:
        self._log, self._rest = log, ""

    def write(self, text: str) -> int:
        """Take text; each complete line goes into the log."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._log.info("%s", line.removeprefix("xmlcall: "))
        return len(text)


@contextlib.asynccontextmanager
async def observing(*, traces: bool, open_metrics: bool) -> AsyncIterator["Observer"]:
    """Make the observer that counts and traces the requests; on exit, the last spans are sent."""
    from ..proxy.observed.observer import Observer

    if not traces:
        yield Observer(open_metrics=open_metrics)
        return
    try:
        from ..proxy.observed.traces import Traces, otlp_provider
    except ImportError as error:
        raise UsageError(missing_extra("--traces needs OpenTelemetry", "traces")) from error
    provider = otlp_provider()
    try:
        yield Observer(tracing=Traces(provider), open_metrics=open_metrics)
    finally:
        _send_last(provider)


def _send_last(provider: "TracerProvider") -> None:
    """Send the last spans, without waiting long for a collector that is missing."""
    sending = threading.Thread(target=provider.shutdown, daemon=True)
    sending.start()
    sending.join(END_SECONDS)


def add_page_options(page: argparse._ArgumentGroup) -> None:
    page.add_argument(
        "--ui",
        action="store_true",
        help="show all requests on a page of this server: what the model wrote and how it was parsed; the page's address, "
        "printed to standard error, contains a token, without which the page cannot be opened",
    )
    page.add_argument(
        "--record",
        metavar="DIR",
        help="append each request to a file in this folder, one JSON object per line; values of calls whose names indicate a "
        "secret are masked, everything else is kept unchanged",
    )


@contextlib.asynccontextmanager
async def recording(options: argparse.Namespace, keys: Iterable[str]) -> AsyncIterator["Recorder | None"]:
    """Make the recorder of the requests; None if nothing is to be recorded. On exit, waiting turns are written."""
    if not options.ui and not options.record:
        yield None
        return
    from ..turn_records.builder import MOST_TURNS, Recorder

    lines = _lines_in(Path(options.record)) if options.record else None
    hidden = [*keys, *(os.environ.get(name, "") for name in _KEYS)]
    recorder = Recorder(most_turns=MOST_TURNS if options.ui else 1, keep=lines.append if lines else None, hidden=hidden)
    try:
        yield recorder
    finally:
        recorder.close()
        if lines:
            await asyncio.to_thread(lines.close)


def _lines_in(folder: Path) -> "LineThread":
    """Begin a new file in a folder, which is created if it is missing and has to be writable."""
    from ..turn_records.lines import LineThread

    try:
        make_private(folder)
    except OSError as error:
        raise UsageError(f"--record {folder}: {error.strerror or error}: expected a folder") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--record {folder}: nothing can be written there: choose another folder")
    return LineThread(folder / f"turns-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.jsonl", complain)


def page_beside(served: "ServedModels", guard: "Guard", url: str) -> Sequence["BaseRoute"]:
    """Return the routes of the page, and show the user its address."""
    from ..records.folder import private_folder
    from ..ui.access import kept_secret
    from ..ui.app import page_routes

    recorder = served.engine.recorder
    assert recorder is not None
    secret = kept_secret(private_folder())
    page = page_routes(recorder=recorder, guard=guard, engine=lambda: served.engine, url=url, secret=secret)
    complain(f"the page: {page.address(url)} (whoever has this address sees all requests)")
    return page.routes
