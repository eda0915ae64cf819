"""The server's side of ASGI, inside this process: open, call and close an app as a web server does.

httpx's own ASGITransport gathers a whole answer before it returns any of it. Here an answer arrives as the app sends it, through
a queue that slows down the app when the reader is slow, and the app is notified when its caller disconnects. Frameworks answer
"Internal Server Error" and then raise the cause, and the caller should see the cause. So the start of an error and the end of any
answer are handed over only after the app has continued or ended.

Source: ASGI 3.0, spec "HTTP & WebSocket" 2.3 (from 2.4 on, sending to a disconnected caller must fail).
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Message, Scope

AHEAD: Final = 16  # messages that an app may send before they are read
LEAVE_SECONDS: Final = 5.0  # for an app to end by itself after its caller disconnected

Headers = list[tuple[bytes, bytes]]

_tasks: set[asyncio.Task[None]] = set()


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task and keep a reference; event loops keep none, and a task without one may be collected in mid-work."""
    task = asyncio.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


class AppError(Exception):
    """An app did not give a complete answer; the cause is the app's exception, if it raised one."""


class AppResponse:
    """One request to an open app, which starts at once, and its answer as it arrives."""

    def __init__(self, app: "ASGIApp", scope: "Scope", body: bytes) -> None:
        self._app, self._scope, self._body = app, scope, body
        self._passing, self._passed = anyio.create_memory_object_stream["Message"](AHEAD)
        self._held: list[Message] = []
        self._is_read = self._is_whole = False  # whether the request is read, and the answer complete
        self._over = asyncio.Event()
        self._failure: Exception | None = None
        self._task = _start(self._run())

    async def begin(self, seconds: float | None = None) -> tuple[int, Headers]:
        """Wait for the answer's status and headers, at most `seconds`; AppError means that the app ended without an answer."""
        message = await self._next(seconds)
        return message["status"], list(message.get("headers", ()))

    async def piece(self, seconds: float | None = None) -> bytes:
        """Wait for the next piece of the answer's body, at most `seconds`; b"" marks its end, AppError a broken answer."""
        while not self._is_whole:
            message = await self._next(seconds)
            self._is_whole = not message.get("more_body", False)
            if data := message.get("body", b""):
                return bytes(data)
        return b""

    async def aclose(self) -> None:
        """Disconnect: notify the app, and cancel it if it does not end."""
        self._over.set()
        self._passed.close()
        if self._task.done():
            return
        try:
            await asyncio.wait([self._task], timeout=LEAVE_SECONDS)
        finally:
            self._task.cancel()

    async def _next(self, seconds: float | None) -> "Message":
        try:
            with anyio.fail_after(seconds):
                return await self._passed.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            failure = self._failure
            why = "the answer was closed before its end" if self._over.is_set() else "the app ended without a whole answer"
            raise AppError(why if failure is None else f"{type(failure).__name__}: {failure}") from failure

    # -- what the app sees -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
            await self._hand_over()
        except Exception as error:
            self._failure = error
        finally:
            self._passing.close()

    async def _receive(self) -> "Message":
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: "Message") -> None:
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self._held.append(message)
        if is_last:
            self._over.set()
        elif message.get("status", 200) < 500:
            await self._hand_over()

    async def _hand_over(self) -> None:
        held, self._held = self._held, []
        try:
            for message in held:
                await self._passing.send(message)
        except anyio.BrokenResourceError:
            await asyncio.sleep(0)  # the caller disconnected: drop the message, as uvicorn does; `_receive` reports it


class Lifespan:
    """Opens an app and keeps it open, in a task of its own: what a task has opened must be closed in the same task."""

    def __init__(self, app: "Starlette") -> None:
        self.app = app
        self._is_open = False
        self._ready, self._ending = asyncio.Event(), asyncio.Event()
        self._failure: Exception | None = None
        self._task = _start(self._run())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._task.get_loop()

    @property
    def is_over(self) -> bool:
        """Whether the app failed to open, was closed, or lost its event loop, which cancels all tasks when it ends."""
        return self._task.done() or self.loop.is_closed()

    async def opened(self) -> None:
        """Wait until the app is open; raise what opening raised, or AppError if it was closed before."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if not self._is_open:
            raise AppError("closed before it was open")

    async def aclose(self) -> None:
        """Close the app, or cancel it if it is still being opened; raise what closing raised."""
        if self.is_over:
            return
        if not self._ready.is_set():
            self._task.cancel()
        self._ending.set()
        await asyncio.wait([self._task])
        if self._is_open and self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        try:
            async with self.app.router.lifespan_context(self.app):
                self._is_open = True
                self._ready.set()
                await self._ending.wait()
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()
