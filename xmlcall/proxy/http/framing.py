"""Requests of which two readers could see different ends (RFC 9112, section 6.1): refused, and their connection closed.

What is behind such a request would be the body for one reader, and the next request for another. Servers of HTTP below refuse
most of them themselves, but not all.
"""

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["OneFraming"]

_REFUSAL: Final = "expected one length of the body: either one Content-Length, or Transfer-Encoding in HTTP/1.1"


class OneFraming:
    """ASGI middleware that passes on what ends in one place."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        answer: ASGIApp = self._app
        if scope["type"] == "http" and _is_unclear(Headers(scope=scope), scope.get("http_version", "1.1")):
            error = {"message": _REFUSAL, "type": "invalid_request_error", "param": None, "code": "unclear_length"}
            answer = JSONResponse({"error": error}, 400, headers={"connection": "close"})
        await answer(scope, receive, send)


def _is_unclear(headers: Headers, version: str) -> bool:
    lengths = {part.strip() for each in headers.getlist("content-length") for part in each.split(",")}
    is_coded = "transfer-encoding" in headers
    return len(lengths) > 1 or (is_coded and (bool(lengths) or version in ("1.0", "0.9")))
