"""Transports for httpx and httpx2 that answer requests inside this process, and clients that use them.

The SDKs of OpenAI (3) and Anthropic (2) use httpx2; their older versions and the `ollama` package use httpx. The two libraries
have the same interface under two names, so one class serves both: it answers with the types of the library that sent the request.

The proxy runs in the event loop of an async client. For a sync client it runs in a thread with an event loop of its own, which
starts with the first request and ends when the client is closed, or else with the program.

The first request opens the proxy. Opening has no time limit, because the model may have to be downloaded first, and clients do
not choose their time limits for that. If a model does not open, the caller gets an error with a status in its own wire format,
because the SDKs show the message of such an error but hide that of a failed connection. The next request tries again.
"""

import asyncio
import contextlib
import functools
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..backends.base import Backend
from ..errors import UsageError, XmlcallError
from ..proxy import create_app
from ..proxy.http import exchange as answering
from ..proxy.http.access import Guard
from ..proxy.http.routes import format_of
from .asgi import AppError, AppResponse, Headers, Lifespan

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

ADDRESS = "http://xmlcall"
"""The base URL of the clients here; requests to any other URL are answered here, too."""

Request = httpx.Request | httpx2.Request
T = TypeVar("T")


class _Service:
    """A model's proxy, in the event loop of the requests. After that loop has ended, a request in another loop reopens it."""

    def __init__(self, model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> None:
        guard = replace(options.pop("guard", None) or Guard(), hosts=("*",))  # no network, so no DNS rebinding
        arguments = {**options, "guard": guard, "hosts": tuple(hosts)}
        self._make: Callable[[], Starlette] = functools.partial(create_app, model, **arguments)
        self._make()  # made now, so that invalid arguments raise here
        self._lifespan: Lifespan | None = None
        self._exchanges: set[AppResponse] = set()

    async def ask(self, scope: "Scope", body: bytes, seconds: float | None) -> tuple[AppResponse, int, Headers]:
        """Make a request, with a limit for the beginning of its answer; the caller must end the answer with `leave`."""
        exchange = AppResponse(await self._opened(), scope, body)
        self._exchanges.add(exchange)
        try:
            return exchange, *await exchange.begin(seconds)
        except BaseException:
            await self.leave(exchange)
            raise

    async def leave(self, exchange: AppResponse) -> None:
        """End an answer, whether it was read or not; this stops its generation."""
        self._exchanges.discard(exchange)
        await exchange.aclose()

    async def aclose(self) -> None:
        """End all answers and close the model. Later requests open it again."""
        for exchange in list(self._exchanges):
            await self.leave(exchange)
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.aclose()

    async def _opened(self) -> "ASGIApp":
        lifespan = self._current()
        try:
            await lifespan.opened()
        except XmlcallError as error:
            return _refusing(error)
        except Exception as error:
            raise AppError(f"the model was not opened: {error}") from error
        return lifespan.app

    def _current(self) -> Lifespan:
        if self._lifespan is None or self._lifespan.is_over:
            self._lifespan = Lifespan(self._make())
        elif self._lifespan.loop is not asyncio.get_running_loop():
            raise UsageError(
                "the model is open in another event loop: use one async client for each, or the sync client in threads"
            )
        return self._lifespan


def _refusing(error: XmlcallError) -> "ASGIApp":

    async def app(scope: "Scope", receive: "Receive", send: "Send") -> None:
        await answering.Exchange(receive, send, format_of(scope["path"])).fail(answering.api_error(error))

    return app


class _Background:
    """An event loop in a thread, from `start` to `close`; it can be restarted, and does not keep the program alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    def start(self) -> None:
        with self._lock:
            if self._portal is None:
                self._portal = self._stack.enter_context(start_blocking_portal(name="xmlcall"))

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine function in the loop and return its result; an interrupted wait cancels it."""
        with self._lock:
            if self._portal is None:
                raise AppError("the transport was closed")
            future = self._portal.start_task_soon(function, *arguments)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Run a last coroutine function, then end the loop; do nothing if the loop does not run."""
        with self._lock:
            if self._portal is None:
                return
            portal, self._portal = self._portal, None
            stack = self._stack.pop_all()
        with stack:
            portal.call(last)


class Transport(httpx.BaseTransport, httpx2.BaseTransport):
    """For sync clients of both libraries, and any number of threads. The first request opens the model, `close` closes it.

    Args:
        model: as for `xmlcall.connect`, or a backend that is not open.
        hosts: MCP servers whose tools are run here.
        options: further arguments of `xmlcall.proxy.create_app`, such as `mode` or `allowed`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """

    def __init__(self, model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> None:
        self._service, self._background = _Service(model, hosts, **options), _Background()
        weakref.finalize(self, _end, self._background, self._service)

    def handle_request(self, request: Request) -> Any:
        """Answer a request (see httpx's `BaseTransport`)."""
        seconds = _read_seconds(request)
        self._background.start()
        with _errors(request, seconds):
            asked = self._background.call(self._service.ask, _scope(request), request.read(), seconds)
        exchange, status, headers = asked
        return _library(request).Response(status, headers=headers, stream=_BodyStream(self, exchange, request))

    def close(self) -> None:
        """End all answers and close the model; a later request opens it again."""
        self._background.close(self._service.aclose)

    def _piece(self, exchange: AppResponse, seconds: float | None) -> bytes:
        return self._background.call(exchange.piece, seconds)

    def _leave(self, exchange: AppResponse) -> None:
        with contextlib.suppress(AppError):  # closed already, and all answers with it
            self._background.call(self._service.leave, exchange)


class AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):
    """For async clients of both libraries, on asyncio. The first request opens the model, `aclose` or the loop's end closes it.

    The arguments are those of `Transport`.
    """

    def __init__(self, model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> None:
        self._service = _Service(model, hosts, **options)

    async def handle_async_request(self, request: Request) -> Any:
        """Answer a request (see httpx's `AsyncBaseTransport`)."""
        seconds = _read_seconds(request)
        with _errors(request, seconds):
            exchange, status, headers = await self._service.ask(_scope(request), await request.aread(), seconds)
        return _library(request).Response(status, headers=headers, stream=_AsyncStream(self, exchange, request))

    async def aclose(self) -> None:
        """End all answers and close the model; a later request opens it again."""
        await self._service.aclose()


def httpx2_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx2.Client:
    """Make a client whose every request is answered by a model inside this process; closing it closes the model.

    The arguments are those of `Transport`. There is no time limit: nothing is lost on the way, and backends have limits.
    """
    return httpx2.Client(transport=Transport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def async_httpx2_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=AsyncTransport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def httpx_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx.Client:
    """Make the twin of `httpx2_client` for programs that use httpx."""
    return httpx.Client(transport=Transport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def async_httpx_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=AsyncTransport(model, hosts, **options), base_url=ADDRESS, timeout=None)


# -- requests and answers ----------------------------------------------------------------------------------------------


class _BodyStream(httpx.SyncByteStream, httpx2.SyncByteStream):
    """The body of an answer, piece by piece. It references the transport, which would close if it were collected."""

    def __init__(self, transport: Transport, exchange: AppResponse, request: Request) -> None:
        self._transport, self._exchange, self._request = transport, exchange, request

    def __iter__(self) -> Iterator[bytes]:
        seconds = _read_seconds(self._request)
        while True:
            with _errors(self._request, seconds):
                data = self._transport._piece(self._exchange, seconds)
            if not data:
                return
            yield data

    def close(self) -> None:
        self._transport._leave(self._exchange)


class _AsyncStream(httpx.AsyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, transport: AsyncTransport, exchange: AppResponse, request: Request) -> None:
        self._transport, self._exchange, self._request = transport, exchange, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seconds = _read_seconds(self._request)
        while True:
            with _errors(self._request, seconds):
                data = await self._exchange.piece(seconds)
            if not data:
                return
            yield data

    async def aclose(self) -> None:
        await self._transport._service.leave(self._exchange)


def _end(background: _Background, service: _Service) -> None:
    """Close a transport that the program did not close, at exit at the latest; a failure can be reported to no caller."""
    with contextlib.suppress(Exception):
        background.close(service.aclose)


def _library(request: Request) -> Any:
    return httpx2 if isinstance(request, httpx2.Request) else httpx


def _read_seconds(request: Request) -> float | None:
    """Return the client's read timeout; the other timeouts do not matter, because connecting and sending take no time."""
    seconds: float | None = request.extensions.get("timeout", {}).get("read")
    return seconds


def _scope(request: Request) -> "Scope":
    path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "root_path": "",
        "path": request.url.path,
        "raw_path": path,
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": None,
        "server": None,
    }


@contextlib.contextmanager
def _errors(request: Request, seconds: float | None) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        message = f"nothing came from the model for {seconds:g} s, the longest silence that the client allows"
        raise _library(request).ReadTimeout(message, request=request) from error
    except AppError as error:
        raise _library(request).RemoteProtocolError(str(error), request=request) from error
