"""An ASGI app as a real server on a free port of loopback, in a thread, for as long as a `with` block."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Literal

import uvicorn

__all__ = ["Stage", "free_port", "played", "run_server", "wait_until"]

START_SECONDS = 10.0


class Stage:
    """An app whose part is played by another one, so that many tests share a server: each stop of one takes 0.2 s."""

    app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@contextlib.contextmanager
def run_server(app: Any, lifespan: Literal["on", "off"] = "off", http: Any = "h11") -> Iterator[str]:
    """Serve an ASGI app; gives its address, such as `http://127.0.0.1:40123`."""
    # Of TCP by name: asyncio switches Nagle's algorithm off for no other, and each answer would come 40 ms late.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        # A graceful stop would wait for streams that a test left open.
        loop: Any = "auto" if http == "h11" else "asyncio"  # connections of ours, as `serve` has them
        quiet: Any = {"log_level": "critical", "ws": "none", "timeout_graceful_shutdown": 1}
        config = uvicorn.Config(app, http=http, loop=loop, lifespan=lifespan, **quiet)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            _wait_until_started(server, thread)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)


async def played(left: threading.Event, steps: Iterable[bytes | float | str]) -> AsyncIterator[bytes]:
    """Stream what a fake model server says: bytes as they are, a pause in seconds, or where the connection breaks off."""
    try:
        for step in steps:
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                raise ConnectionAbortedError(step)  # uvicorn drops the connection without the last HTTP chunk
    except (asyncio.CancelledError, GeneratorExit):
        left.set()
        raise


def wait_until(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Wait for what happens in another thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def free_port() -> int:
    """Find a port that nobody listens on, for what must not be reached."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    wait_until(lambda: server.started or not thread.is_alive())
    assert server.started, "the test server did not start"
