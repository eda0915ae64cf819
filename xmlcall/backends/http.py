"""Shared parts of the HTTP backends: requests, limits, and errors that say what to do about a failure.

Messages contain no secrets: a server is named without user and password, and its own words are shown without the key that was
sent. httpx2 and not httpx: its connection pool does not count busy connections as idle.
"""

import contextlib
import functools
import ipaddress
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self

import httpx2

from ..errors import (
    BackendError,
    BackendProtocolError,
    BackendStatusError,
    BackendUnavailable,
    ContextOverflow,
    OutputRejected,
    UsageError,
)
from ..wire.openai import ServerError
from .base import Relayed
from .loopback import LoopbackTransport
from .server_facts import Answered

CONNECT_SECONDS = 10.0

READ_SECONDS = 600.0
"""Longest silence of a server. A prompt of 16,000 tokens takes minutes on a CPU before the first token comes."""

TRACEPARENT: Final = ContextVar("TRACEPARENT", default="")
"""The header of that name (W3C Trace Context) for what this task asks of a model server; "" for none."""

_NOT_THERE = (httpx2.ConnectError, httpx2.ConnectTimeout)
_NO_HTTP = (httpx2.DecodingError, httpx2.RemoteProtocolError)
_BROKEN = (httpx2.HTTPError, httpx2.StreamError)

BODY_LIMIT: Final = 8 * 1024 * 1024  # bytes of an answer that is not a stream; the longest model lists have about 1 MB
KEPT_CONNECTIONS: Final = 128  # free ones; with 50 callers at once and fewer kept, a question in twelve had to connect
KEPT_SECONDS: Final = 4.0  # shorter than what servers allow: uvicorn, which vLLM and SGLang use, closes idle ones after 5
LISTED_MODELS: Final = 20  # of all that a server has, in a message
SHOWN_CHARACTERS = 400  # of a server's own words in a message
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DATE_CHARACTERS = 40  # "Sun, 06 Nov 1994 08:49:37 GMT" has 29


def timeouts(seconds: float) -> dict[str, float]:
    """Allow `seconds` of silence and at most 10 s to connect; arguments of `httpx2.Timeout`."""
    return {"timeout": seconds, "connect": min(CONNECT_SECONDS, seconds)}


def is_loopback(host: str) -> bool:
    """Say whether a host name or address means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plain_address(url: httpx2.URL) -> str:
    """Write an address for people: without user, password, query or a slash at its end."""
    return f"{url.scheme}://{url.netloc.decode()}{url.path}".rstrip("/")


def json_headers() -> dict[str, str]:
    """Return the headers of a request, including its trace."""
    # Uncompressed: a stream must not wait in a compressor, and a short answer cannot unpack into a huge one.
    headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
    return headers | {"traceparent": traceparent} if (traceparent := TRACEPARENT.get()) else headers


def json_bytes(body: Mapping[str, Any]) -> bytes:
    """Write a request as ASCII, which can hold the lone surrogates that UTF-8 cannot."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error


def retry_after(value: str) -> float | None:
    """Read the header `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3)."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value[:_DATE_CHARACTERS])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)


@contextlib.contextmanager
def http_errors(server: str, *, start: str, seconds: float) -> Iterator[None]:
    """Turn exceptions of httpx2 into `BackendError`s, and add the server's name where it is missing."""
    try:
        yield
    except BackendError as error:
        error.backend = error.backend or server
        raise
    except _NOT_THERE as error:
        raise BackendUnavailable(f"cannot connect to {server} ({_reason(error)}): {start}", backend=server) from error
    except httpx2.TimeoutException as error:
        message = f"{server} was silent for {seconds:g} s: it may be busy or stuck; try again, or allow a longer timeout"
        raise BackendUnavailable(message, backend=server) from error
    except _NO_HTTP as error:
        raise _protocol_error(server, error) from error
    except _BROKEN as error:
        raise BackendUnavailable(f"the connection to {server} broke ({_reason(error)}): try again", backend=server) from error


def _protocol_error(server: str, error: Exception) -> BackendError:
    # h11 and httpcore have one class for "no HTTP" and "gone in the middle of it"; only the words differ.
    if any(word in str(error) for word in ("closed", "disconnected")):
        message = f"{server} broke off the connection ({_reason(error)}): it may have crashed or been stopped; see its log"
        return BackendUnavailable(message, backend=server)
    return BackendProtocolError(
        f"expected HTTP from {server}, got something else ({_reason(error)}): check the URL", backend=server
    )


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def status_error(
    error: ServerError,
    *,
    server: str,
    status: int,
    larger_context: str,
    advice: str = "",
    secret: str = "",
    wait: float | None = None,
) -> BackendStatusError:
    """Make the error for a refused request; `wait` is the pause that the server asks for, in seconds."""
    said = error.message.replace(secret, "***") if secret else error.message
    shown = said[:SHOWN_CHARACTERS] or "nothing more"
    if error.overflow:
        figures = ""
        if error.prompt_tokens is not None and error.context_length is not None:
            figures = f" ({error.prompt_tokens} tokens, the context holds {error.context_length})"
        return ContextOverflow(
            f"the prompt is too long for the model{figures}: {larger_context}; {server} said: {shown}",
            backend=server,
            status_code=status,
            body=said,
            prompt_tokens=error.prompt_tokens,
            context_length=error.context_length,
            advice=larger_context,
        )
    if error.output is not None:
        message = f"{server} could not read what its model wrote: {shown}"
        return OutputRejected(message, backend=server, status_code=status, body=said, output=error.output)
    when = "in mid-reply" if status == 200 else f"with status {status}"
    message = f"{server} refused {when}: {shown}" + (f"; {advice}" if advice else "")
    return BackendStatusError(message, backend=server, status_code=status, body=said, retry_after=wait)


class HttpBackend(ABC):
    """The requests of a backend to its server; a subclass knows the server's wire format.

    `root` is the path of the server's own endpoints, `api` that of those that requests are relayed to. `start` says how to start
    the server, as a clause for messages; `seconds` is its longest silence.
    """

    model: str

    def __init__(self, url: httpx2.URL, server: str, *, root: str, api: str, start: str, seconds: float) -> None:
        self._url, self._server, self._root, self._api = url, server, root, api
        self._start, self._timeout = start, seconds
        self._client: httpx2.AsyncClient | None = None

    @abstractmethod
    def _connections(self) -> httpx2.AsyncClient:
        """Make the client for all requests."""

    def _transport_here(self, kept: int = 0) -> httpx2.AsyncBaseTransport | None:
        """Return the transport to a server on this machine; None for other servers, which need TLS or a proxy."""
        is_here = self._url.scheme == "http" and is_loopback(self._url.host)
        return LoopbackTransport(kept, KEPT_SECONDS) if is_here else None

    @abstractmethod
    async def _probe(self) -> None:
        """Find out what the server and the model can do."""

    @abstractmethod
    async def _listed(self) -> tuple[str, ...]:
        """Ask for the names of all models."""

    async def __aenter__(self) -> Self:
        self._client = self._connections()
        try:
            with self._errors():
                await self._probe()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def list_models(self) -> tuple[str, ...]:
        """Return the names of all models that the server lists; for a backend that is not open and used for this alone."""
        self._client = self._connections()
        try:
            with self._errors():
                return await self._listed()
        finally:
            await self.__aexit__()

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Forward a request unchanged (see `Relaying`)."""
        with self._errors():
            async with self._request(method, f"{self._api}{path}", content) as response:
                media_type = response.headers.get("content-type", "application/json")
                yield Relayed(status=response.status_code, media_type=media_type, chunks=response.aiter_bytes())

    async def look(self, path: str, body: Mapping[str, Any] | None = None) -> Answered:
        """Request a JSON object from a path beside the API (see `Looking`)."""
        method, content = ("GET", b"") if body is None else ("POST", json_bytes(body))
        with self._errors():
            async with self._request(method, f"{self._root}{path}", content) as response:
                data, server = await read_whole(response), response.headers.get("server", "")
        found = json_object(data) if response.status_code == 200 else None
        return Answered(data=found or {}, server=server)

    def _errors(self) -> AbstractContextManager[None]:
        return http_errors(self._server, start=self._start, seconds=self._timeout)

    def _request(
        self, method: str, path: str, content: bytes = b"", *, query: str = ""
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        if self._client is None:
            raise UsageError(f"the backend of {self._server} is not open: use it inside `async with`")
        url = _address(str(self._url), path, query)
        return self._client.stream(method, url, content=content, headers=json_headers())


@functools.lru_cache(maxsize=64)  # parsing an address takes as long as writing the request to it
def _address(server: str, path: str, query: str) -> httpx2.URL:
    return httpx2.URL(server).copy_with(path=path, **({"query": query.encode()} if query else {}))


async def read_whole(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > BODY_LIMIT:
            raise BackendProtocolError(f"expected a short answer from {response.url.path}, got more than {BODY_LIMIT} bytes")
    return bytes(body)


def json_object(body: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
