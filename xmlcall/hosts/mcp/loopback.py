"""The small server on 127.0.0.1 to which the browser returns after a sign-in (RFC 8252, 7.3).

It takes one answer, that with the expected `state`: any page that the browser shows can send requests here, and is refused.
Waits, headers and connections are limited. The page that the user sees repeats nothing of the request.
"""

import asyncio
import contextlib
import secrets
import socket
from typing import Final
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

PATH: Final = "/callback"
_HOST: Final = "127.0.0.1"
_MAX_HEAD: Final = 16_384
_HEAD_SECONDS: Final = 10.0
# Failures of a connection that does not come from a working browser; the sign-in keeps waiting.
_NO_BROWSER: Final = (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_MAX_CONNECTIONS: Final = 20
_DONE: Final = "Thank you. You can close this page and go back to xmlcall."
_REFUSED: Final = "The sign-in did not succeed. You can close this page; xmlcall says why."
_UNEXPECTED: Final = "Nothing is expected here."


class Loopback:
    """Waits for one answer; `async with` opens and closes it."""

    def __init__(self, port: int, state: str) -> None:
        self._port, self._state = port, state
        self._connections: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> "Loopback":
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, _HOST, self._port, limit=_MAX_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        if not self._answer.cancel() and not self._answer.cancelled():
            self._answer.exception()  # retrieved, even if nothing waited for it
        await asyncio.gather(*(task for task in self._connections if task), return_exceptions=True)

    async def answer(self, seconds: float) -> AuthorizationCodeResult:
        """Wait until the browser returns."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise OAuthFlowError(f"nobody signed in within {seconds:g} s") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            if len(self._connections) <= _MAX_CONNECTIONS:
                with contextlib.suppress(*_NO_BROWSER):
                    await self._answered(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._read(head.decode("latin-1").split("\r\n")[0])
            writer.write(_page(status, text))
            await writer.drain()

    def _read(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", _UNEXPECTED
        given = {name: values[0] for name, values in parse_qs(target.query, max_num_fields=20).items() if len(values) == 1}
        if self._answer.done() or not secrets.compare_digest(given.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", _UNEXPECTED
        if "code" in given:
            self._answer.set_result(AuthorizationCodeResult(code=given["code"], state=self._state, iss=given.get("iss")))
            return "200 OK", _DONE
        why = ": ".join(filter(None, (given.get("error", "it gave no code"), given.get("error_description"))))
        self._answer.set_exception(OAuthFlowError(f"the authorization server refused the sign-in: {why}"))
        return "200 OK", _REFUSED


def _page(status: str, text: str) -> bytes:
    head = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close\r\n"
    return f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether a port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
