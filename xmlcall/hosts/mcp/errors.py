"""Turn the failures of an MCP server into a host's two errors, one sentence each.

The SDK has four families of exceptions, in groups one or two deep, and loses what matters most to the user: the HTTP status and
the process's standard error. The connection's log has both. Arguments, headers, and the path and query of a URL are never shown,
because they can hold secrets.
"""

import os
from dataclasses import replace

import httpx2
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR
from pydantic import ValidationError

from ...errors import FailureReason, ToolHostError, ToolHostProtocolError, ToolHostUnavailable
from ..server import HttpServer, ServerConfig, StdioServer
from .connection import Connection
from .messages import HttpTrouble, TooLarge, UnreadableAnswer

# How the SDK's own errors for a lost connection begin; any server can use the code alone.
_LOST = ("Connection closed", "SSE stream")
_NOT_READ = ("Failed to parse JSON response", "Failed to parse SSE message")  # the SDK's messages about an HTTP answer
_WRONG_ADDRESS = 'check its "url"'
_NOT_STREAMABLE = (400, 404, 405)
_OLDER = '; an endpoint of the older HTTP+SSE needs "type": "sse"'
_WRONG_CREDENTIALS = 'check its "headers"'
_ADVICE = {
    401: _WRONG_CREDENTIALS,
    403: _WRONG_CREDENTIALS,
    404: _WRONG_ADDRESS,
    405: _WRONG_ADDRESS,
    429: "it is busy; try again later",
    500: "see its log",
    502: "is it up? Try again later",
    503: "is it up? Try again later",
    504: "try again later",
}
_LOOK_FIRST = "it is not known whether it was done: check before you repeat it"
_NO_DETAIL = ("Server returned an error response", "Not Found", "Session terminated")  # the SDK's for a status

# HTTP errors whose text describes the network or the server, never our own URL, headers or proxy.
_SPEAKABLE = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError, httpx2.SSEError)


class Repeatable(ToolHostUnavailable):
    """A failure after which the same request may succeed, if it may be repeated."""

    def __init__(self, server: ServerConfig, what: str, reason: FailureReason, pause: float = 0.0) -> None:
        super().__init__(f"{server.name}: {what}", host=server.name, reason=reason)
        self.pause = pause


class SessionLost(Repeatable):
    """The server refused a request because it no longer knows the session; it did not run the request."""


def is_lost(error: BaseException | None) -> bool:
    """Return whether an error only reports that the connection is gone."""
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message.startswith(_LOST)


def older_transport(server: ServerConfig, connection: Connection) -> HttpServer | None:
    """Return how to try the older HTTP+SSE, if the server refused the first POST (MCP 2025-11-25, transports); else None."""
    if not isinstance(server, HttpServer) or server.transport != "either":
        return None
    is_refused = not connection.opened and connection.log.http_status in _NOT_STREAMABLE
    return replace(server, transport="sse") if is_refused else None


def connect_error(server: ServerConfig, connection: Connection, timeout: float) -> ToolHostError:
    failure, status = connection.failure, connection.log.http_status
    heard = connection.log.describe()
    if connection.log.sign_in:
        return _unavailable(server, connection.log.sign_in)
    if isinstance(failure, TimeoutError):
        check = "start it by hand to see why" if isinstance(server, StdioServer) else "is it up?"
        return _unavailable(server, f"no MCP handshake with {server.address} within {timeout:g} s; {check}.{heard}", "not_run")
    if isinstance(failure, MCPError) and status is None and not is_lost(failure):
        return protocol_error(server, f"the handshake was refused: {_detail(failure)}", failure.code)
    if isinstance(failure, ValidationError | RuntimeError):
        return protocol_error(server, f"the handshake is outside the protocol: {_detail(failure)}.{heard}")
    reason = _http_reason(server, failure, status) if isinstance(server, HttpServer) else _start_reason(server, failure)
    return _unavailable(server, f"{reason}.{heard}", "not_run")


def _http_reason(server: HttpServer, failure: BaseException | None, status: int | None) -> str:
    if status is None:
        return f"cannot reach {server.address}: {_detail(failure)}"
    said = f" {_detail(failure)}" if isinstance(failure, MCPError) and failure.message not in _NO_DETAIL else ""
    advice = _ADVICE.get(status, "is it an MCP endpoint, and is it up?")
    older = _OLDER if server.transport == "http" and status in _NOT_STREAMABLE else ""
    return f"{server.address} answered HTTP {status}{said}; {advice}{older}"


def _start_reason(server: StdioServer, failure: BaseException | None) -> str:
    if is_lost(failure):
        return f"{server.address!r} ended before the MCP handshake was complete"
    if server.cwd is not None and not os.path.isdir(server.cwd):
        return 'its working directory "cwd" does not exist'
    if isinstance(failure, FileNotFoundError):
        return f'the command {server.address!r} was not found; install it or correct "command"'
    why = failure.strerror if isinstance(failure, OSError) and failure.strerror else _detail(failure)
    return f"the command {server.address!r} cannot be started: {why}"


def left_out_error(server: ServerConfig, deaths: int, seconds: float) -> ToolHostUnavailable:
    """Report that a server is not restarted for now."""
    what = f"it failed {deaths} times in a row, and is not restarted for {seconds:.0f} s; see its log, or remove it"
    return _unavailable(server, what, "not_run")


def timeout_error(server: ServerConfig, doing: str, seconds: float, connection: Connection) -> ToolHostUnavailable:
    what = f'no answer within {seconds:g} s while {doing} ("timeout" in its configuration is in milliseconds)'
    return _unavailable(server, f"{what}; {_LOOK_FIRST}.{connection.log.describe()}", "timeout")


def request_error(server: ServerConfig, doing: str, error: Exception, connection: Connection) -> ToolHostError:
    """Describe why a request failed; the connection is closed already if the server is gone."""
    log = connection.log
    if log.sign_in and (connection.closed or log.http_status in _ADVICE):
        return _unavailable(server, f"{log.sign_in} ({doing})", "not_run")
    if isinstance(error, MCPError) and isinstance(error.data, HttpTrouble):
        return _http_error(server, doing, error, error.data)
    if connection.closed or is_lost(error):
        return _lost_error(server, doing, error, connection)
    if not isinstance(error, MCPError) or isinstance(error.data, UnreadableAnswer):
        return protocol_error(server, f"an answer outside the protocol while {doing}: {_detail(error)}")
    if error.code == PARSE_ERROR and error.message.startswith(_NOT_READ):
        what = "it is no JSON-RPC message, or its result is no object"
        return protocol_error(server, f"an answer outside the protocol while {doing}: {what}")
    said = _detail(error)
    return protocol_error(server, f"error {error.code} while {doing}: {said}", error.code, "error", said)


def _lost_error(server: ServerConfig, doing: str, error: Exception, connection: Connection) -> ToolHostError:
    cause = error if is_lost(connection.failure) or connection.failure is None else connection.failure
    what = f"the connection ended while {doing} ({_detail(cause)})"
    if isinstance(cause, TooLarge) or "exceeded the" in str(cause):  # the SDK's word for an event
        return _unavailable(server, f"{what}; ask it for less", "too_large")
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Repeatable(server, f"{what}; it was not done: is the server up?", "not_run")
    what = f"{what}; {_LOOK_FIRST}.{connection.log.describe()}"
    if isinstance(cause, ConnectionError):  # a flood: it would be the same again
        return _unavailable(server, what)
    return Repeatable(server, what, "unknown")


def _http_error(server: ServerConfig, doing: str, error: MCPError, trouble: HttpTrouble) -> ToolHostError:
    if trouble.status == 404 and error.code == INVALID_REQUEST and error.message == "Session terminated":
        what = f"the server no longer knows the session while {doing}, however often it is asked; it was not done"
        return SessionLost(server, what, "not_run")
    if trouble.is_too_large:
        return _unavailable(server, f"{doing} returned more than can be read ({_detail(error)}); ask it for less", "too_large")
    if trouble.is_cut:
        return Repeatable(server, f"the answer was cut while {doing} ({_detail(error)}); {_LOOK_FIRST}", "unknown")
    if error.message not in _NO_DETAIL:
        said = _detail(error)
        what = f"error {error.code}, HTTP {trouble.status} while {doing}: {said}"
        return protocol_error(server, what, error.code, "error", said)
    what = f"HTTP {trouble.status} while {doing}; {_ADVICE.get(trouble.status, 'see its log')}"
    if trouble.retry_after is not None:
        what = f"{what}; it asks to wait {trouble.retry_after:.0f} s"
    if trouble.status not in (429, 500, 502, 503, 504):
        return _unavailable(server, f"{what}; it was not done", "not_run")
    pause = 1.0 if trouble.retry_after is None else trouble.retry_after
    if trouble.status == 429:
        return Repeatable(server, f"{what}; it was not done", "not_run", pause)
    return Repeatable(server, f"{what}; {_LOOK_FIRST}", "unknown", pause)


def protocol_error(
    server: ServerConfig, what: str, code: int | None = None, reason: FailureReason = "unreadable", said: str = ""
) -> ToolHostProtocolError:
    return ToolHostProtocolError(f"{server.name}: {what}", host=server.name, code=code, reason=reason, said=said)


def _unavailable(server: ServerConfig, what: str, reason: FailureReason = "unknown") -> ToolHostUnavailable:
    return ToolHostUnavailable(f"{server.name}: {what}", host=server.name, reason=reason)


def _detail(error: BaseException | None) -> str:
    """Return the text of an exception, which can be a server's, in one line of limited length."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL) and not isinstance(error, _SPEAKABLE):
        return type(error).__name__
    text = error.message if isinstance(error, MCPError) else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
