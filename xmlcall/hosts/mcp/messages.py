"""Limits how much a server may send, and reads answers that the SDK's message reader refuses.

*Limits*: bytes of a message, unsolicited messages, the body of an HTTP answer. The SDK limits only events of Streamable HTTP;
otherwise a server that writes an endless line or body would take all memory long before the time limit of a call. Nothing larger
than a message is ever kept in memory.

*A failed HTTP answer* affects only its own request. The cause is kept under the id of the request, because the SDK's own error
loses the status and `Retry-After`.

*Refused answers*: a text with half a surrogate pair, a raw control character, a result of null or an error that is a bare string
is refused as a whole, and the request that it answers would wait until its time is over. So they are read here: a call ends at
once and keeps the output that arrived. Nothing of this raises; what cannot be read stays refused.
"""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2
from mcp.types import INTERNAL_ERROR, PARSE_ERROR
from mcp.types.jsonrpc import ErrorData, JSONRPCError, JSONRPCResponse
from pydantic import ValidationError

MAX_MESSAGE_BYTES: Final = 32 << 20  # the largest message that is read; over the older HTTP+SSE, the SDK's limit of 1 MiB applies
_MAX_UNASKED = 50_000
_FLOOD_SECONDS = 60.0
_MAX_KEPT = 1000  # most troubles; each is removed with the answer to its request
_OF_THE_WIRE = {"content-encoding", "content-length"}

_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BEGUN = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?\Z|\\(?:u[0-9a-fA-F]{0,3})?\Z"
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
# In this order: a pair that is whole, what the next piece may complete, a half, and any other escape, `\\` among them.
_ESCAPE = re.compile(rb"(?P<pair>%b)|(?P<begun>%b|%b\Z)|(?P<half>%b)|\\." % (_PAIR, _BEGUN, _HALF, _HALF), re.DOTALL)
_REPLACED: Final = rb"\ufffd"


class Halves:
    """Replaces halves of surrogate pairs by U+FFFD in JSON that arrives in pieces; at most one escape is held back."""

    def __init__(self) -> None:
        self._held = b""

    def mend(self, piece: bytes) -> bytes:
        """Return what is certain so far."""
        data, self._held = self._held + piece, b""
        return _ESCAPE.sub(self._one, data) if b"\\" in data else data

    def rest(self) -> bytes:
        """Return what was held back, at the end."""
        rest, self._held = self._held, b""
        return re.sub(_HALF, lambda match: _REPLACED, rest)

    def _one(self, match: re.Match[bytes]) -> bytes:
        if match["begun"]:
            self._held = match[0]
            return b""
        return _REPLACED if match["half"] else match[0]


def whole_escapes(line: bytes) -> bytes:
    """Replace halves of surrogate pairs in one JSON text by U+FFFD."""
    halves = Halves()
    return halves.mend(line) + halves.rest()


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that UTF-8 can encode: a model can write halves of surrogate pairs in JSON."""
    try:
        text = json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):  # their writer will report it
        return dict(arguments)
    is_odd = "\\ud" in text  # `json` writes small letters
    return dict(json.loads(whole_escapes(text.encode()))) if is_odd else dict(arguments)


@dataclass(frozen=True, slots=True)
class UnreadableAnswer:
    """The `data` of an error that replaces an answer outside the protocol."""


def read_refused(error: Exception) -> JSONRPCResponse | JSONRPCError | None:
    """Recover an answer from the SDK's refusal, or make an error that says what is wrong; None if it is not an answer."""
    message = _refused(error)
    number = _number(message.get("id")) if isinstance(message, Mapping) and "method" not in message else None
    if number is None:
        return None
    if isinstance(message.get("result"), dict):
        return JSONRPCResponse(jsonrpc="2.0", id=number, result=message["result"])
    if isinstance(message.get("result"), str | list) and message["result"]:  # its content, most likely
        return JSONRPCResponse(jsonrpc="2.0", id=number, result={"content": message["result"]})
    return JSONRPCError(jsonrpc="2.0", id=number, error=_error_in(message))


def _refused(error: Exception) -> Any:
    """Return the message that was refused, as JSON's values; None if it was not JSON."""
    if not isinstance(error, ValidationError):
        return None
    value = error.errors(include_url=False, include_context=False)[0]["input"]
    if isinstance(value, str | bytes) and value.lstrip()[:1] in ("{", b"{"):
        try:
            value = json.loads(value, strict=False)  # raw control characters in strings
        except (ValueError, RecursionError):
            return None
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(value: Any) -> int | str | None:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _error_in(message: Mapping[str, Any]) -> ErrorData:
    error = message.get("error")
    said = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(said, str) and said:
        code = error.get("code") if isinstance(error, Mapping) else None
        return ErrorData(code=code if type(code) is int else INTERNAL_ERROR, message=said)
    if error is not None:
        return ErrorData(code=PARSE_ERROR, message="its error is not an object with a message", data=UnreadableAnswer())
    what = f"its result is {json.dumps(message['result'])[:40]}, not an object" if "result" in message else "it has no result"
    return ErrorData(code=PARSE_ERROR, message=what, data=UnreadableAnswer())


# -- limits ------------------------------------------------------------------------------------------------------------


class TooLarge(Exception):
    """A message exceeds `MAX_MESSAGE_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")


class Flood:
    """Counts the messages of a connection that answer no request."""

    def __init__(self) -> None:
        self._count, self._since = 0, time.monotonic()

    def add(self) -> None:
        self._count += 1
        if self._count < _MAX_UNASKED:
            return
        if time.monotonic() - self._since < _FLOOD_SECONDS:
            raise ConnectionError(f"it sent {_MAX_UNASKED:,} unrequested messages within a minute")
        self._count, self._since = 0, time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTrouble:
    """What was wrong with an HTTP answer; `status` is 0 if only the body was."""

    status: int = 0
    retry_after: float | None = None  # seconds that the server asks to wait
    is_too_large: bool = False
    is_cut: bool = False


class HttpTroubles:
    """Watches the answers of an HTTP client."""

    def __init__(self) -> None:
        self._by_request: dict[str, HttpTrouble] = {}

    async def watch(self, response: httpx2.Response) -> None:
        """Limit the body of an answer, and note a refusal; an event hook of the client."""
        if response.status_code >= 400:
            after = _seconds(response.headers.get("retry-after", ""))
            self.note(response.request, HttpTrouble(status=response.status_code, retry_after=after))
        is_bounded = response.status_code >= 400 or not _is_event_stream(response)
        response.stream = _Body(response, self) if is_bounded else _Events(response, self)  # the SDK limits events
        response.headers = httpx2.Headers([(name, text) for name, text in response.headers.items() if name not in _OF_THE_WIRE])

    def note(self, request: httpx2.Request, trouble: HttpTrouble) -> None:
        """Keep the first trouble of a JSON-RPC request, under its id."""
        number = _request_id(request)
        if number is not None and number not in self._by_request and len(self._by_request) < _MAX_KEPT:
            self._by_request[number] = trouble

    def take(self, number: str) -> HttpTrouble | None:
        """Remove and return what went wrong with a request, if anything."""
        return self._by_request.pop(number, None)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, decoded and limited; its errors are raised as the SDK expects them."""

    def __init__(self, response: httpx2.Response, troubles: HttpTroubles) -> None:
        self._request, self._troubles, self._inner = response.request, troubles, response.stream
        # Decoded here, because a small packed body can become a large one.
        self._plain = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, halves = 0, Halves()
        try:
            async for piece in self._plain.aiter_bytes():
                size += len(piece)
                if size > MAX_MESSAGE_BYTES:
                    self._troubles.note(self._request, HttpTrouble(is_too_large=True))
                    raise httpx2.StreamError(str(TooLarge()))
                yield halves.mend(piece)
            yield halves.rest()
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self._troubles.note(self._request, HttpTrouble(is_cut=True))
            raise httpx2.StreamError(str(error)) from error

    async def aclose(self) -> None:
        await self._plain.aclose()


class _Events(_Body):
    """A stream of events, decoded; it may last as long as the connection."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        halves = Halves()
        async for piece in self._plain.aiter_bytes():
            yield halves.mend(piece)


def _is_event_stream(response: httpx2.Response) -> bool:
    """Return whether an answer is a requested stream of events; the SDK reads any other body as a whole."""
    request, is_stream = response.request, "text/event-stream"
    asked = request.method in ("GET", "POST") and is_stream in request.headers.get("accept", "")
    return asked and str(response.headers.get("content-type", "")).lower().startswith(is_stream)


def _request_id(request: httpx2.Request) -> str | None:
    try:
        message = json.loads(request.content)
    except (ValueError, RecursionError, httpx2.RequestNotRead):  # a sign-in, or a request without body
        return None
    return str(message["id"]) if isinstance(message, dict) and "method" in message and "id" in message else None


def _seconds(retry_after: str) -> float | None:
    """Read `Retry-After`: seconds, or a date (RFC 9110, 10.2.3)."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            then = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):  # not a date, or an impossible year
            return None
        seconds = (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
