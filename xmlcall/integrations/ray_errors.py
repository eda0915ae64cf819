"""What Ray's own HTTP proxy says for us, in the caller's format: refusals, and the end of a stream whose replica is gone.

Ray's proxy answers some requests without a replica, in plain text: it has too many in its queue, or there is no replica. If a
replica dies in mid-stream, Ray's proxy only drops the connection: no client takes that for a whole answer, but it tells nobody
what to do. Ray calls a function of the user's for each of its HTTP proxies, which may put ASGI middleware around them; ours is
`middleware`, and the environment in which Ray is started names it:

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=xmlcall.integrations.ray_errors.middleware

Other applications of the same cluster are left alone: only paths are looked at that end like those that ask a model here.
"""

from collections.abc import Mapping
from typing import Final

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..proxy.formats.contract import ApiError, Format
from ..proxy.http.exchange import Exchange
from ..proxy.http.routes import QUESTIONS, RELAYED, Question

__all__ = ["CALLBACK", "InCallersFormat", "middleware"]

CALLBACK: Final = "xmlcall.integrations.ray_errors.middleware"
SAID_LIMIT: Final = 2000  # characters of a refusal of Ray's
RETRY_SECONDS: Final = b"5"  # a replica that comes in place of another has to start
# Status of what Ray refuses -> the kind and the code of the error.
_REFUSALS: Final[Mapping[int, tuple[str, str]]] = {
    404: ("invalid_request_error", "not_found"),
    408: ("server_error", "request_timeout"),
    429: ("rate_limit_error", "too_many_requests"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "overloaded"),
}
_RETRIED: Final = (429, 503)
_EVENT_ENDS: Final = {"text/event-stream": (b"\n\n", b"\r\n\r\n"), "application/x-ndjson": (b"\n",)}
_MESSAGES: Final = [{"role": "user", "content": "."}]
_LEAST: Final = {"model": "any", "stream": True, "messages": _MESSAGES, "input": ".", "max_tokens": 1}


def middleware() -> list[Middleware]:
    """Return what Ray puts around its HTTP proxies."""
    return [Middleware(InCallersFormat)]


class InCallersFormat:
    """ASGI middleware: errors that no replica wrote are written in the format of the path.

    Args:
        app: Ray's proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and see to it that its answer has an end."""
        question = _question_of(scope["path"]) if scope["type"] == "http" else None
        if question is None:
            await self._app(scope, receive, send)
            return
        answer = _Answer(question.form, receive, send)
        await self._app(scope, receive, answer.send)
        await answer.end()


def _question_of(path: str) -> Question | None:
    """Return what a path asks; it may stand behind the prefix of an application."""
    return next((each for each in (*QUESTIONS, *RELAYED) if path.endswith(each.path)), None)


class _Answer:
    """What goes out for one request."""

    def __init__(self, form: Format, receive: Receive, send: Send) -> None:
        self._form, self._receive, self._send = form, receive, send
        self._refused: Message | None = None  # a head of Ray's, held back for its text
        self._has_begun = self._is_over = self._is_stream = False
        self._said = b""

    async def send(self, message: Message) -> None:
        """Pass a message of the answer on, unless it is a refusal of Ray's."""
        if message["type"] == "http.response.start":
            if _is_of_ray(message):
                self._refused = message
                return
            self._has_begun = True
            self._is_stream = _media_type(message).startswith(self._form.media_type)
        elif message["type"] == "http.response.body":
            body = bytes(message.get("body", b""))
            self._is_over = not message.get("more_body", False)
            if self._refused is not None:
                self._said += body[:SAID_LIMIT]
                return
            self._said = body[-4:] or self._said
        await self._send(message)

    async def end(self) -> None:
        """Write what is missing, if the answer has no end; half an event is left as it is, and the connection is dropped."""
        if self._refused is not None:
            await self._refuse(self._refused["status"])
        elif not self._has_begun:
            await self._fail(_lost())
        elif not self._is_over and self._is_stream and self._said.endswith(_EVENT_ENDS[self._form.media_type]):
            await self._send({"type": "http.response.body", "body": _written(self._form, _lost()), "more_body": False})

    async def _refuse(self, status: int) -> None:
        kind, code = _REFUSALS[status]
        said = self._said.decode("utf-8", "replace").strip()[:SAID_LIMIT]
        await self._fail(ApiError(f"Ray Serve: {said or 'no reason was told'}", status=status, kind=kind, code=code))

    async def _fail(self, error: ApiError) -> None:
        headers = ((b"retry-after", RETRY_SECONDS),) if error.status in _RETRIED else ()
        exchange = Exchange(self._receive, self._send, self._form)
        await exchange.json(self._form.error(error), error.status, headers)


def _media_type(start: Message) -> str:
    headers = {bytes(name).lower(): bytes(value) for name, value in start.get("headers", ())}
    return headers.get(b"content-type", b"").decode("latin-1")


def _is_of_ray(start: Message) -> bool:
    """Say whether an answer is a refusal of Ray's: we write errors as JSON, Ray writes plain text."""
    return start["status"] in _REFUSALS and _media_type(start).startswith("text/plain")


def _lost() -> ApiError:
    message = "the replica ended before the answer was whole: ask again"
    return ApiError(message, status=503, kind="server_error", code="server_stopped")


def _written(form: Format, error: ApiError) -> bytes:
    """Write an error as an event; the writer is of no particular request, since the body of the real one is gone by."""
    return form.writer(form.read(_LEAST)).fail(error)
