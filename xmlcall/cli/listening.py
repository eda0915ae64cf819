"""Opens a port of this machine, serves an app there until a signal comes, and limits its log."""

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from ..systems import END_SIGNALS, on_signals

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

BACKLOG: Final = 512
STOP_SECONDS: Final = 5.0  # for running answers when the server is stopped
TELL_SECONDS: Final = 2  # for notifying the callers of answers that are cut off
LINE_SECONDS: Final = 60.0  # the period in which similar lines of the log are counted
MOST_LINES: Final = 20  # of a kind that are written in that period
_KINDS: Final = 1000
_REFUSED: Final = (401, 403, 431)
_LOGGERS: Final = ("asyncio", "uvicorn.error", "xmlcall.proxy")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Take a port, before the model loads, so that a port in use is reported at once."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(*address[:3])  # with its protocol, or asyncio does not see TCP and lets small writes wait
        if sys.platform != "win32":  # where it would let two programs have the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address[4][0], port, *address[4][2:]))  # getaddrinfo would take 99999 for 34463
        listener.listen(BACKLOG)  # a reader of the address may call at once
    except (OSError, OverflowError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot listen on {host} port {port} ({reason}): choose another with --port, or stop the program that has it"
        ) from error
    with listener:
        yield listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_app(
    app: "Starlette",
    listener: socket.socket,
    on_stop: Callable[[], None] = lambda: None,
    *,
    grace: float = STOP_SECONDS,
    on_over: Callable[[], None] = lambda: None,
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal; a second one does not wait for running answers.

    A reader of `announce` may send a signal at once, so our handlers are set before it.
    """
    server = _server(app, listener, grace)

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        on_stop()
        loop.call_later(grace, on_over)

    loop = asyncio.get_running_loop()
    with on_signals((signal.SIGINT, *END_SIGNALS), lambda *_: loop.call_soon_threadsafe(stop)), counted_lines():
        announce()
        await server.serve(sockets=[listener])


def _server(app: "Starlette", listener: socket.socket, grace: float) -> "uvicorn.Server":
    """Make a server that leaves signals and the queue of connections to us."""
    import uvicorn

    from .connections import ACCEPTED_AT_ONCE, CallerConnection

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listener.listen(BACKLOG)  # asyncio limits the queue to the number that it accepts at once

        @contextmanager
        def capture_signals(self) -> Iterator[None]:  # our handlers are set above: the end of a server is not a failure
            yield

    config = uvicorn.Config(
        app,
        lifespan="off",
        http=CallerConnection,  # on h11: httptools is faster and lets two `Host` headers pass
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(grace + TELL_SECONDS),
    )
    return Server(config)


class CountedLines(logging.Filter):
    """Lets a number of lines of each kind pass in a minute, and counts the others; the next one that passes says how many."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        if kind is None:
            return True
        now = time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        left_out = 0
        if now - begun >= LINE_SECONDS:
            begun, count, left_out = now, 0, max(0, count - MOST_LINES)
        if len(self._seen) >= _KINDS:
            self._seen.clear()
        self._seen[kind] = begun, count + 1
        if left_out:
            record.msg = f"{record.msg} (and {left_out} more like this one before)"
        elif count == MOST_LINES - 1:
            record.msg = f"{record.msg} (more like this one are counted for a minute)"
        return count < MOST_LINES


def _kind(record: logging.LogRecord) -> tuple[object, ...] | None:
    """Return what similar lines have in common; None for lines that only a caller with a key can cause."""
    words = str(record.msg).partition("\n")[0]
    if record.levelno >= logging.WARNING:
        return record.name, words
    statuses = [each for each in (record.args if isinstance(record.args, tuple) else ()) if each in _REFUSED]
    return (record.name, words, statuses[0]) if statuses else None


@contextmanager
def counted_lines() -> Iterator[None]:
    """Count lines instead of writing too many of them, while a server runs."""
    counted, loggers = CountedLines(), [logging.getLogger(name) for name in _LOGGERS]
    for each in loggers:
        each.addFilter(counted)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(counted)
