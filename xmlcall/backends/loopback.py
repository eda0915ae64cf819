"""HTTP to a model server on this machine: a transport for httpx2, with asyncio for the bytes and h11 for the protocol.

httpx2's own transport looks at each of its connections for each request, opens a timeout scope for each read, and returns every
chunk of a body by itself; with many streams, that was half of the proxy's time. This one uses the connection that was last
free, forgets one as soon as it is lost, and returns all that has arrived at once: what a server writes faster than it is read
costs less, so a queue does not grow. Other machines, https and proxies are httpx2's.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, cast

import h11
import httpx2
from anyio.lowlevel import checkpoint_if_cancelled

_PIECE: Final = 1 << 16  # bytes read at once, and the most that wait for their reader; a chunk may be a single byte
_BUFFER: Final = memoryview(bytearray(_PIECE))  # shared by all connections: what is read into it is copied immediately
_HEAD_LIMIT: Final = 100 * 1024  # bytes of a head, as httpx2 allows

Release = Callable[["_Connection"], None]


class LoopbackTransport(httpx2.AsyncBaseTransport):
    """Connections to one server; `kept` are kept for that many `seconds` if they are free."""

    def __init__(self, kept: int = 0, seconds: float = 0.0) -> None:
        self._kept, self._seconds = kept, seconds
        self._open = set[_Connection]()
        self._free: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the head of its answer with a body to read."""
        limits, content = request.extensions["timeout"], await request.aread()
        connection = await self._kept_open() or await self._connected(request.url, limits["connect"])
        try:
            head = await connection.ask(request, content, limits["read"])
        except BaseException:
            connection.abort()
            raise
        body = _AnswerBody(connection, limits["read"], self._release)
        return httpx2.Response(head.status_code, headers=head.headers.raw_items(), stream=body)

    async def aclose(self) -> None:
        """Close all connections; what is read from one fails. A server that ends in this process waits for that."""
        self._kept = 0
        for connection in self._open:
            connection.abort(ConnectionAbortedError("closed here"))
        await asyncio.sleep(0)  # asyncio closes the sockets in its next round

    async def _kept_open(self) -> "_Connection | None":
        while self._free:
            connection = self._free.pop()
            await asyncio.sleep(0)  # asyncio learns of an end that has come
            if not connection.transport.is_closing():
                return connection
        return None

    async def _connected(self, url: httpx2.URL, seconds: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(lambda: _Connection(self._forget), url.host, url.port or 80)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("no connection in time") from error
        except OSError as error:
            raise httpx2.ConnectError(os.strerror(error.errno) if error.errno else str(error)) from error
        self._open.add(connection)
        return connection

    def _release(self, connection: "_Connection") -> None:
        if len(self._free) < self._kept and connection.renew():
            self._free.append(connection)
            connection.wait(self._seconds)
        else:
            connection.abort()

    def _forget(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._free:
            self._free.remove(connection)


class _AnswerBody(httpx2.AsyncByteStream):
    def __init__(self, connection: "_Connection", seconds: float, release: Release) -> None:
        self._connection, self._seconds, self._release = connection, seconds, release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._connection.read(self._seconds):
            yield data

    async def aclose(self) -> None:
        self._release(self._connection)


class _Connection(asyncio.BufferedProtocol):
    """A connection that makes one request at a time; `lost` is called when it is lost."""

    def __init__(self, lost: Release) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_LIMIT)
        self._lost = lost
        self._broken: Exception | None = None  # how the connection was lost
        self._failed: Exception | None = None  # what of the answer is no HTTP
        self._unread = 0  # bytes, since its reader last waited
        self._reader: asyncio.Future[None] | None = None  # is waiting
        self._timer: asyncio.TimerHandle | None = None  # until a free connection is closed

    async def ask(self, request: httpx2.Request, content: bytes, seconds: float) -> h11.Response:
        """Send a request and return the head of its answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        sent = [self._http.send(head), self._http.send(h11.Data(data=content)), self._http.send(h11.EndOfMessage())]
        self.transport.write(b"".join(filter(None, sent)))  # one packet
        while not isinstance(event := self._next(), h11.Response):
            if event is h11.NEED_DATA:
                await self._more(seconds)
        return event

    async def read(self, seconds: float) -> bytes:
        """Return all that has arrived of the body, after a wait if that is nothing; b"" at its end."""
        if self._failed is not None:
            raise self._failed
        pieces: list[bytes] = []
        try:
            while self._http.their_state is h11.SEND_BODY:
                if isinstance(event := self._next(), h11.Data):
                    pieces.append(event.data)
                elif event is h11.NEED_DATA and not pieces:
                    await self._more(seconds)
                else:
                    break
        except httpx2.RemoteProtocolError as error:
            if not pieces:
                raise
            self._failed = error  # for the next call: the bytes before it are good
        return b"".join(pieces)

    def renew(self) -> bool:
        """Be ready for the next request; return False if the answer is not whole or the server closes the connection."""
        http = self._http
        is_whole = http.our_state is h11.DONE and http.their_state is h11.DONE and http.trailing_data == (b"", False)
        if is_whole:
            http.start_next_cycle()
        return is_whole

    def wait(self, seconds: float) -> None:
        """Close the connection after some seconds without a request."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self, why: Exception | None = None) -> None:
        self._broken = why
        self.transport.abort()

    def _next(self) -> Any:
        is_due = self._http.their_state is h11.SEND_RESPONSE
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            is_gone = is_due and self._http.trailing_data == (b"", True)
            raise httpx2.RemoteProtocolError("disconnected without an answer" if is_gone else str(error)) from error

    async def _more(self, seconds: float) -> None:
        if self._broken is not None:
            raise httpx2.ReadError(str(self._broken)) from self._broken
        await checkpoint_if_cancelled()  # anyio cancels no task whose data has just arrived: a fast server would run on for ever
        self._unread = 0
        self.transport.resume_reading()
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        timer = loop.call_later(seconds, self._wake, httpx2.ReadTimeout("nothing arrived in time"))
        try:
            await self._reader
        finally:
            timer.cancel()
            self._reader = None

    def _wake(self, error: Exception | None = None) -> None:
        if self._reader is None or self._reader.done():
            return
        if error is None:
            self._reader.set_result(None)
        else:
            self._reader.set_exception(error)

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        if self._timer is not None:  # nothing was asked
            self.abort()
            return
        self._http.receive_data(bytes(_BUFFER[:nbytes]))
        self._unread += nbytes
        if self._unread >= _PIECE:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken = self._broken or exc
        if self._broken is None:
            self._http.receive_data(b"")
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self)
        self._wake()
