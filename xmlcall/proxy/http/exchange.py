"""Send events over HTTP: answers and streams that end when the caller disconnects, and errors in the caller's format.

A stream starts with its first event, so an earlier failure is answered with a status of its own. If the model is silent for long
(a long prompt on a slow machine), the stream starts without an event, and pings keep the connection open. One task waits for the
caller to disconnect and then cancels the other; this closes the model server's stream and so ends its generation. A caller that
reads slowly slows down the model server, because nothing is read from it while a send waits.

A server that is being stopped gives the answers in progress a grace period. An answer that is still incomplete then ends with an
error in the caller's format, because a stream that just stops looks like a short answer. Each answer registers a function that
cuts it off. This costs one entry in a set, while a waiting task would cost 18 µs per request.

*Pings* are sent when the model is silent for long, so that no client or router gives up on the stream. A timer of the event loop
sends them rather than a sleeping task, because almost no answer needs a ping. Besides, a task that is cancelled at each answer's
end leaves an exception whose traceback holds the whole request in a reference cycle: 25 KB each, measured, until the garbage
collector runs.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from starlette.types import Message, Receive, Send

from ...backends.base import Relayed
from ...errors import BackendError, BackendStatusError, BackendUnavailable, ContextOverflow, ToolHostError, UsageError
from ..engine.answers import FAILURES
from ..formats.contract import ApiError, Asked, Format, ResponseEvent, whole_response
from ..observed.observer import Observing

if TYPE_CHECKING:
    from ..engine.recording import Recording

# -- the end of a server --------------------------------------------------------------------------------------------------


class Ending:
    """The answers in progress, and whether they have to end."""

    def __init__(self) -> None:
        self._cuts: set[Callable[[], None]] = set()
        self._has_begun = False

    def begin(self) -> None:
        """Cut off all answers in progress, and from now on every new answer at once."""
        self._has_begun = True
        for cut in tuple(self._cuts):
            cut()

    @contextmanager
    def cutting(self, cut: Callable[[], None]) -> Iterator[None]:
        """Register an answer to be cut off if the end comes before the answer is complete."""
        self._cuts.add(cut)
        try:
            if self._has_begun:
                cut()
            yield
        finally:
            self._cuts.discard(cut)


# -- pings ----------------------------------------------------------------------------------------------------------------

BEGIN_SECONDS: Final = 10.0  # after this silence a stream begins without an event
PING_SECONDS: Final = 15.0


class Pings:
    """Sends the pings of one stream for the duration of a `with` block."""

    def __init__(self, send: Callable[[], Awaitable[None]]) -> None:
        self._send, self._wait = send, BEGIN_SECONDS
        self._sending: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self.spoken()
        self._timer = asyncio.get_running_loop().call_later(self._wait, self._look)
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def spoken(self) -> None:
        """Note that the stream has sent something."""
        self._last = time.monotonic()

    def _look(self) -> None:
        left = self._wait - (time.monotonic() - self._last)
        if left <= 0:
            self._wait = left = PING_SECONDS
            self.spoken()
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._ping())
        self._timer = asyncio.get_running_loop().call_later(left, self._look)

    async def _ping(self) -> None:
        with suppress(asyncio.CancelledError):
            await self._send()
            self.spoken()
        self._sending = None


BATCH: Final = 64  # pieces of a passed-on answer that are recorded at once while there are no watchers
LONG: Final = 4096  # bytes of a piece that is not held back: it is many that arrived together
# The SDKs of OpenAI and Anthropic honour it. A reply that failed after our retries would fail again at temperature 0.
_NO_RETRY: Final = (b"x-should-retry", b"false")
STOPPED_SECONDS: Final = 5  # until the replacement of a stopped server has started
# Errors whose messages are logged; messages of other errors may contain text of a body, of the model or of a tool.
_LOGGED: Final = frozenset(
    {"forbidden", "invalid_api_key", "model_server_unavailable", "not_found", "request_too_large", "server_stopped"}
)

_EVENTS: Final = "text/event-stream"
_LINES: Final = "application/x-ndjson"
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_PASSED_ON: Final = (_EVENTS, _LINES, "application/json", "text/plain")
_ENDS: Final = {_EVENTS: (b"\n\n", b"\r\n\r\n"), _LINES: (b"\n",)}  # what ends one event

log = logging.getLogger("xmlcall.proxy")

Headers = Iterable[tuple[bytes, bytes]]


def api_error(error: Exception) -> ApiError:
    """Turn an exception into an error for the caller, who learns nothing of an unexpected one: that is logged in full."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextOverflow):
        return ApiError(str(error), code="context_length_exceeded")
    if isinstance(error, BackendStatusError) and 400 <= error.status_code < 500:
        return ApiError(str(error), status=error.status_code)
    if isinstance(error, BackendUnavailable):
        return ApiError(str(error), status=503, kind="server_error", code="model_server_unavailable")
    if isinstance(error, (BackendError, ToolHostError)):
        return ApiError(str(error), status=502, kind="server_error", code="model_server_error")
    if isinstance(error, UsageError):
        return ApiError(str(error))
    log.error("unexpected error", exc_info=error)
    return ApiError("the proxy failed: its log says how", status=500, kind="server_error", code="internal_error")


def _failure(form: Format, error: ApiError) -> bytes:
    text = json.dumps(form.error(error)).encode()
    return text + b"\n" if form.media_type == _LINES else b"data: " + text + b"\n\n"


def _for_log(error: ApiError) -> str:
    return error.message if error.code in _LOGGED else error.code or error.kind


class Exchange:
    def __init__(
        self,
        receive: Receive,
        send: Send,
        form: Format,
        headers: Headers = (),
        *,
        ending: Ending | None = None,
        observing: Observing | None = None,
    ) -> None:
        self._receive, self._send, self._form = receive, send, form
        self._headers = tuple(headers)
        self.status = 0  # the status that the caller received; 0 until it is sent
        self._is_over = self._is_cut = False
        self._ending = ending or Ending()
        self.failure = ""  # what went wrong, even after the status was sent; for the log
        self.error: ApiError | None = None  # the error that the caller received, or would have received
        self.has_left = False  # the caller disconnected before its answer was complete
        self.recording: Recording | None = None
        self.observing = observing

    async def stream(self, events: AsyncGenerator[ResponseEvent], asked: Asked) -> None:
        """Write events as they arrive, until the last one, an error, or the caller's disconnect."""
        writer, beginning = self._form.writer(asked), asyncio.Lock()
        headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

        async def begin() -> bytes:
            async with beginning:  # the first event and the first ping may come at once
                if self.status:
                    return b""
                await self._start(200, self._form.media_type, headers)
                return writer.begin()  # sent together with what follows, because each send costs

        async def ping() -> None:
            said = await begin() + self._form.ping
            if not self._is_over:  # the end may have come just before
                await self._body(said, more=True)

        with Pings(ping) as pings:
            async with self._until_left():
                try:
                    async with aclosing(events):
                        async for event in events:
                            await self._body(await begin() + writer.write(event), more=True)
                            pings.spoken()
                except Exception as error:
                    await self._break_off(api_error(error), writer.fail)
                if not self._is_over:
                    await self._body(b"", more=False)
        await self._tell_cut(writer.fail)

    async def whole(self, events: AsyncGenerator[ResponseEvent], asked: Asked) -> None:
        """Gather all events and write one answer."""
        async with self._until_left():
            try:
                async with aclosing(events):
                    gathered = [event async for event in events]
                answer = self._form.whole(asked, whole_response(gathered))
            except Exception as error:
                await self.fail(api_error(error))
            else:
                await self.json(answer)
        await self._tell_cut(lambda error: b"")

    async def relay(self, opened: AbstractAsyncContextManager[Relayed]) -> None:
        """Pass on the model server's answer byte for byte; a stream that breaks off between two events ends with an error."""
        recording = self.recording
        pieces = None if recording is None else recording.pieces
        watchers = None if recording is None else recording.watchers

        streamed, said, has_begun = False, b"", False

        def is_between_events() -> bool:
            return streamed and said.endswith(_ENDS[self._form.media_type])

        async with self._until_left():
            is_whole = True
            try:
                async with opened as relayed:
                    if recording is not None:
                        recording.headed(relayed.status, relayed.media_type)
                    streamed = relayed.media_type.startswith(self._form.media_type)
                    is_safe = relayed.media_type.partition(";")[0].strip().lower() in _PASSED_ON
                    media_type = relayed.media_type if is_safe else "text/plain; charset=utf-8"  # no browser executes that
                    await self._start(relayed.status if 200 <= relayed.status < 600 else 502, media_type)
                    async for chunk in relayed.chunks:
                        await self._body(chunk, more=True)
                        said = chunk[-4:] or said
                        if recording is not None and pieces is not None:
                            pieces.append(chunk)
                            if watchers or not has_begun or len(pieces) >= BATCH or len(chunk) >= LONG:
                                has_begun = recording.passed()
            except Exception as error:
                failed = api_error(error)
                if not self.status:
                    await self.fail(failed)
                self.failure, self.error = _for_log(failed), failed
                is_whole = is_between_events()  # otherwise the answer stays incomplete and the server drops the connection
                if is_whole:
                    await self._body(_failure(self._form, failed), more=True)
            if is_whole:
                await self._body(b"", more=False)

        if not self.status or is_between_events():
            await self._tell_cut(partial(_failure, self._form))

    async def _break_off(self, error: ApiError, written: Callable[[ApiError], bytes]) -> None:
        """Report an error to the caller, within the answer if it has already begun."""
        if not self.status:
            await self.fail(error)
            return
        self.failure, self.error = _for_log(error), error
        await self._body(written(error), more=True)

    async def _tell_cut(self, written: Callable[[ApiError], bytes]) -> None:
        """If the answer was cut off by the server's stop, report this to the caller."""
        if not self._is_cut or self._is_over or self.has_left:
            return  # the answer has its end already: it was completed before the cut took effect, or the cut made it fail
        message = "the server was stopped before the answer was whole: ask again"
        error = ApiError(message, status=503, kind="server_error", code="server_stopped", retry_after=STOPPED_SECONDS)
        await self._break_off(error, written)
        if not self._is_over:
            await self._body(b"", more=False)

    async def json(self, data: Any, status: int = 200, headers: Headers = ()) -> None:
        body = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
        await self._start(status, "application/json", ((b"content-length", str(len(body)).encode()), *headers))
        await self._body(body, more=False)

    async def fail(self, error: ApiError) -> None:
        self.failure, self.error = _for_log(error), error
        wait = ((b"retry-after", str(error.retry_after).encode()),) if error.retry_after else ()
        await self.json(self._form.error(error), error.status, (*wait, *((_NO_RETRY,) if error.code in FAILURES else ())))

    def leave(self) -> None:
        """Note that the caller disconnected before its answer was complete."""
        self.failure, self.has_left = self.failure or "the caller left", True

    def recorded(self) -> None:
        if self.recording is not None:
            self.recording.over(error=self.error, form=self._form, status=self.status, has_left=self.has_left)

    async def _start(self, status: int, media_type: str, headers: Headers = ()) -> None:
        self.status = status
        if self.observing is not None and media_type.startswith((_EVENTS, _LINES)):
            self.observing.stream_began()
        own = ((b"content-type", media_type.encode("latin-1", "replace")), _NO_SNIFFING, *headers, *self._headers)
        await self._say({"type": "http.response.start", "status": status, "headers": list(own)})

    async def _body(self, data: bytes, *, more: bool) -> None:
        self._is_over = not more
        if data or not more:
            await self._say({"type": "http.response.body", "body": data, "more_body": more})

    async def _say(self, message: Message) -> None:
        with suppress(OSError):  # some servers report the caller's disconnect here; `leave` notices it too
            await self._send(message)

    @asynccontextmanager
    async def _until_left(self) -> AsyncIterator[None]:
        """Cancel the block if the caller disconnects or the server has to end."""
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                if not self._is_over:  # servers also send this after a complete answer
                    self.leave()
                group.cancel_scope.cancel()

            def cut() -> None:
                self._is_cut = not self._is_over
                group.cancel_scope.cancel()

            with self._ending.cutting(cut):
                group.start_soon(leave)
                yield
                group.cancel_scope.cancel()
