"""Transports for httpx and httpx2 that answer inside this process, and clients that have them.

The SDKs of OpenAI (3) and Anthropic (2) use httpx2; their older versions and the `ollama` package use httpx. The two libraries
have one interface under two names, so one class serves both: it answers in the library in which it was asked.

The proxy runs in the event loop of an async client. For a sync client it runs in a thread with an event loop of its own, which
begins with the first request and ends with the client, or with the program if nobody closes the client.
"""

import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import httpx2

from ..backends.base import Backend
from .asgi import AppError, AppResponse
from .background import Background
from .service import Service

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["AsyncTransport", "Transport", "async_httpx2_client", "async_httpx_client", "httpx2_client", "httpx_client"]

ADDRESS = "http://xmlcall"
"""Of requests that name none; any other one leads here, too."""

Request = httpx.Request | httpx2.Request


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
        self._service, self._background = Service(model, hosts, **options), Background()
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

    Args:
        model: as for `Transport`.
        hosts: as for `Transport`.
        options: as for `Transport`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """

    def __init__(self, model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> None:
        self._service = Service(model, hosts, **options)

    async def handle_async_request(self, request: Request) -> Any:
        """Answer a request (see httpx's `AsyncBaseTransport`)."""
        seconds = _read_seconds(request)
        with _errors(request, seconds):
            exchange, status, headers = await self._service.ask(_scope(request), await request.aread(), seconds)
        return _library(request).Response(status, headers=headers, stream=_AsyncStream(self, exchange, request))

    async def aclose(self) -> None:
        """End all answers and close the model; a later request opens it again."""
        await self._service.aclose()

    async def _leave(self, exchange: AppResponse) -> None:
        await self._service.leave(exchange)


def httpx2_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx2.Client:
    """Make a client whose every request is answered by a model inside this process; closing it closes the model.

    It has no time limit: nothing is lost on the way here, and backends have limits of their own.

    Args:
        model: as for `Transport`.
        hosts: as for `Transport`.
        options: as for `Transport`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """
    return httpx2.Client(transport=Transport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def async_httpx2_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx2.AsyncClient:
    """Make the async twin of `httpx2_client`.

    Args:
        model: as for `Transport`.
        hosts: as for `Transport`.
        options: as for `Transport`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """
    return httpx2.AsyncClient(transport=AsyncTransport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def httpx_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx.Client:
    """Make the twin of `httpx2_client` for programs that use httpx.

    Args:
        model: as for `Transport`.
        hosts: as for `Transport`.
        options: as for `Transport`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """
    return httpx.Client(transport=Transport(model, hosts, **options), base_url=ADDRESS, timeout=None)


def async_httpx_client(model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> httpx.AsyncClient:
    """Make the async twin of `httpx2_client` for programs that use httpx.

    Args:
        model: as for `Transport`.
        hosts: as for `Transport`.
        options: as for `Transport`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """
    return httpx.AsyncClient(transport=AsyncTransport(model, hosts, **options), base_url=ADDRESS, timeout=None)


# -- requests and answers ----------------------------------------------------------------------------------------------


class _BodyStream(httpx.SyncByteStream, httpx2.SyncByteStream):
    """The body of an answer, piece by piece. It holds the transport, which would close if nobody did."""

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
    """The body of an answer, piece by piece."""

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
        await self._transport._leave(self._exchange)


def _end(background: Background, service: Service) -> None:
    """Close a forgotten transport, at the end of the program at the latest; a failure has nobody to be reported to."""
    with contextlib.suppress(Exception):
        background.close(service.aclose)


def _library(request: Request) -> Any:
    return httpx2 if isinstance(request, httpx2.Request) else httpx


def _read_seconds(request: Request) -> float | None:
    """Return the longest silence that the client allows; connecting and sending take no time here."""
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
    """Raise what clients of the request's library know."""
    try:
        yield
    except TimeoutError as error:
        message = f"nothing came from the model for {seconds:g} s, the longest silence that the client allows"
        raise _library(request).ReadTimeout(message, request=request) from error
    except AppError as error:
        raise _library(request).RemoteProtocolError(str(error), request=request) from error
