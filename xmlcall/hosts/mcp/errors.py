"""Turn what can go wrong with an MCP server into a host's two errors, one sentence each.

The SDK has four families of exceptions, in groups one or two deep, and loses what matters most to a person: the HTTP status and
what the process wrote to standard error. Both come from the connection's log. Arguments, headers, and the path and query of a
URL are never shown: they can hold secrets.
"""

import os
from dataclasses import replace

import httpx2
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST
from pydantic import ValidationError

from ...errors import ToolHostError, ToolHostProtocolError, ToolHostUnavailable
from ..config import HttpServer, ServerConfig, StdioServer
from .connection import Connection

__all__ = ["SessionLost", "connect_error", "is_lost", "older_transport", "protocol_error", "request_error", "timeout_error"]

# How the SDK begins the errors that it makes up when an answer can no longer come; the code alone is any server's to use.
_LOST = ("Connection closed", "SSE stream")
_WRONG_ADDRESS = 'check its "url"'
_NOT_STREAMABLE = (400, 404, 405)
_OLDER = '; an endpoint of the older HTTP+SSE needs "type": "sse"'
_WRONG_CREDENTIALS = 'check its "headers"'
_ADVICE = {401: _WRONG_CREDENTIALS, 403: _WRONG_CREDENTIALS, 404: _WRONG_ADDRESS, 405: _WRONG_ADDRESS}
_NO_DETAIL = ("Server returned an error response", "Not Found", "Session terminated")  # the SDK's stand-ins for a status

# The HTTP errors whose text tells of the network or the server, never of our own URL, headers or proxy.
_SPEAKABLE = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError, httpx2.SSEError)


class SessionLost(ToolHostUnavailable):
    """The server refused a request because it no longer knows the session; the request was not done."""


def is_lost(error: BaseException | None) -> bool:
    """Tell whether an error only says that the connection is gone."""
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message.startswith(_LOST)


def older_transport(server: ServerConfig, connection: Connection) -> HttpServer | None:
    """Say how to try the older HTTP+SSE after Streamable HTTP failed; None where nothing speaks for it.

    By the specification a refusal of the first POST does (MCP 2025-11-25, transports: backwards compatibility).
    """
    if not isinstance(server, HttpServer) or server.transport != "either":
        return None
    is_refused = not connection.opened and connection.log.http_status in _NOT_STREAMABLE
    return replace(server, transport="sse") if is_refused else None


def connect_error(server: ServerConfig, connection: Connection, timeout: float) -> ToolHostError:
    """Say why a connection could not be opened."""
    failure, status = connection.failure, connection.log.http_status
    heard = connection.log.describe()
    if connection.log.sign_in:
        return _unavailable(server, connection.log.sign_in)
    if isinstance(failure, TimeoutError):
        return _unavailable(server, f"no MCP handshake with {server.address} within {timeout:g} s.{heard}")
    if isinstance(failure, MCPError) and status is None and not is_lost(failure):
        return protocol_error(server, f"the handshake was refused: {_detail(failure)}", failure.code)
    if isinstance(failure, ValidationError | RuntimeError):
        return protocol_error(server, f"the handshake is outside the protocol: {_detail(failure)}.{heard}")
    reason = _http_reason(server, failure, status) if isinstance(server, HttpServer) else _start_reason(server, failure)
    return _unavailable(server, f"{reason}.{heard}")


def _http_reason(server: HttpServer, failure: BaseException | None, status: int | None) -> str:
    if status is None:
        return f"cannot reach {server.address}: {_detail(failure)}"
    said = f" {_detail(failure)}" if isinstance(failure, MCPError) and failure.message not in _NO_DETAIL else ""
    advice = _ADVICE.get(status, "is it an MCP endpoint, and is it up?")
    older = _OLDER if server.transport == "http" and status in _NOT_STREAMABLE else ""
    return f"{server.address} answered HTTP {status}{said}; {advice}{older}"


def _start_reason(server: StdioServer, failure: BaseException | None) -> str:
    if is_lost(failure):
        return f"{server.command!r} ended before the MCP handshake was complete"
    if server.cwd is not None and not os.path.isdir(server.cwd):
        return 'its working directory "cwd" does not exist'
    if isinstance(failure, FileNotFoundError):
        return f'the command {server.command!r} was not found; install it or correct "command"'
    why = failure.strerror if isinstance(failure, OSError) and failure.strerror else _detail(failure)
    return f"the command {server.command!r} cannot be started: {why}"


def timeout_error(server: ServerConfig, doing: str, seconds: float, connection: Connection) -> ToolHostUnavailable:
    """Say that a request took too long."""
    what = f'no answer within {seconds:g} s while {doing} ("timeout" in its configuration is in milliseconds)'
    return _unavailable(server, f"{what}; it is not known whether it was done.{connection.log.describe()}")


def request_error(server: ServerConfig, doing: str, error: Exception, connection: Connection) -> ToolHostError:
    """Say why a request failed; the connection has been closed already if the server is gone."""
    log = connection.log
    if log.sign_in and (connection.closed or log.http_status in _ADVICE):
        return _unavailable(server, f"{log.sign_in} ({doing})")
    if connection.closed or is_lost(error):
        cause = error if is_lost(connection.failure) or connection.failure is None else connection.failure
        what = f"the connection ended while {doing} ({_detail(cause)}); it is not known whether it was done"
        return _unavailable(server, f"{what}.{log.describe()}")
    if not isinstance(error, MCPError):
        return protocol_error(server, f"an answer outside the protocol while {doing}: {_detail(error)}")
    if error.code == INVALID_REQUEST and error.message == "Session terminated":
        return SessionLost(f"{server.name}: the server no longer knows the session while {doing}", host=server.name)
    status = f", HTTP {log.http_status}" if log.http_status is not None else ""
    return protocol_error(server, f"error {error.code}{status} while {doing}: {_detail(error)}", error.code)


def protocol_error(server: ServerConfig, what: str, code: int | None = None) -> ToolHostProtocolError:
    """Name the server in a protocol error."""
    return ToolHostProtocolError(f"{server.name}: {what}", host=server.name, code=code)


def _unavailable(server: ServerConfig, what: str) -> ToolHostUnavailable:
    return ToolHostUnavailable(f"{server.name}: {what}", host=server.name)


def _detail(error: BaseException | None) -> str:
    """Return what an exception says, in one line of bounded length; it can be a server's text."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL) and not isinstance(error, _SPEAKABLE):
        return type(error).__name__
    text = error.message if isinstance(error, MCPError) else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
