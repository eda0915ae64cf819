"""Who may see the page: whoever has its address, from a browser on this machine.

The address that is printed holds a token (`entry.py`). The first request with it begins a session and is sent on to the address
without, so that the token stays out of the history and of what the page says of itself. The session's cookie goes to no other
site's requests (`SameSite`), no script reads it (`HttpOnly`), and its name has the port, as cookies do not tell ports apart.

A page elsewhere in the same browser is the danger, as for the proxy (`proxy.http.access`): names in `Host` that are not this
machine's are refused (DNS rebinding), and so is each `Origin` but this server's own. What changes something has to be JSON, which
no form can send.

Every answer carries a policy by which the browser loads and runs nothing but this server's own files: should a text by a model
ever become markup, it could still do nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..proxy.formats.contract import ApiError
from ..proxy.http.access import Guard
from .answers import json_answer
from .entry import SESSION_SECONDS, Entry

__all__ = ["Door", "port_of"]

_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font")),
        "img-src 'self' data:",
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    ]
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_READING: Final = ("GET", "HEAD")


class Door:
    """An ASGI app before that of the page: lets in who may see it, and puts the policy on every answer.

    Args:
        guard: of the server; its names are those of the page, its keys and origins are not asked for.
    """

    def __init__(self, app: ASGIApp, *, guard: Guard, entry: Entry) -> None:
        self._app, self._guard, self._entry = app, guard, entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope, Headers(scope=scope)) or self._app
        await answer(scope, receive, send_with_policy)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return an answer in place of the page's; None if the request may pass."""
        origin = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}"
        try:
            replace(self._guard, keys=(), origins=(origin,)).check(headers)
        except ApiError as refusal:
            return _refused(refusal.status, refusal.message)
        if headers.get("origin", origin) != origin:  # the guard lets the origins of desktop programs pass
            return _refused(403, "expected a request of this page's own")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _refused(403, "expected a request of this page's own")
        is_read = scope["method"] in _READING
        if is_read and (given := parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")):
            return self._entered(scope["path"], given)
        if not self._is_known(headers.getlist("cookie")):
            return _refused(403, "open the address that the program printed last: it holds a token, which this request lacks")
        if not is_read and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _refused(415, "expected Content-Type: application/json")
        return None

    def _entered(self, path: str, given: Iterable[str]) -> Response:
        if not any(self._entry.opens(each) for each in given):
            return _refused(403, "this is not the token of this server: the address that it printed last has the right one")
        answer, session = RedirectResponse(path, 303), self._entry.session()
        answer.set_cookie(self._entry.cookie, session, SESSION_SECONDS, httponly=True, samesite="strict", path="/ui")
        return answer

    def _is_known(self, cookies: Iterable[str]) -> bool:
        for each in cookies:
            try:
                found = SimpleCookie(each).get(self._entry.cookie)
            except CookieError:
                continue
            if found is not None and self._entry.is_session(found.value):
                return True
        return False


def _refused(status: int, message: str) -> Response:
    return json_answer({"error": {"message": message}}, status)


def port_of(url: str) -> int:
    """Return the port of a server's address."""
    return urlsplit(url).port or 80
