"""Access control of the page: it opens for anyone who has its address, in a browser on this machine.

The printed address contains a token. The first request with the token starts a session and is redirected to the address without
it, so the token stays out of the browser's history and of the page's own URLs. The session cookie is not sent with requests from
other sites (`SameSite`), and scripts cannot read it (`HttpOnly`). Its name contains the port, because cookies ignore ports.

| what opens the page | where it is | how long it is valid |
|---|---|---|
| the token | in the printed address | as long as the program runs |
| a code | in the address with which a browser is started, because other users can see program arguments | once, for minutes |
| a session | in a cookie, which browsers also send to other programs here, because cookies ignore ports | hours, for one port |

The secret in the folder of records is none of these; it signs sessions and never leaves the program. So an open page works again
after the program restarts, and anyone who saw an address or a session can use it only for a limited time.

The danger is another page in the same browser, as for the proxy (`proxy.http.access`). So a `Host` that is not this machine is
refused (DNS rebinding), and so is every `Origin` except this server's own. Requests that change something must be JSON, which a
form cannot send.

Every answer carries a policy under which the browser loads and runs only this server's own files, so even if a model's text ever
became markup, it could do nothing.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import UsageError
from ..proxy.formats.contract import ApiError
from ..proxy.http.access import Guard
from ..records.folder import FILE_MODE
from ..systems import READ_ONLY, is_closed, user_id
from .api import json_answer

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
SESSION_SECONDS: Final = 8 * 3600  # a day's work
CODE_SECONDS: Final = 300.0  # for a browser to start
_BYTES: Final = 24  # random bytes of a secret; as text it is longer
_SECRET: Final = re.compile("[A-Za-z0-9_-]+")
_NAME: Final = "page-secret"


def kept_secret(folder: Path) -> str:
    """Return the secret that signs the sessions of a user's pages; create it if the folder of records has none."""
    path = folder / _NAME
    try:
        with (
            suppress(FileExistsError),
            open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="ascii") as file,
        ):
            file.write(secrets.token_urlsafe(_BYTES))
        with open(os.open(path, READ_ONLY), encoding="ascii") as file:
            about = os.fstat(file.fileno())
            kept = file.read(1024).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected the secret of the page in {path}: {error}; delete that file") from error
    is_ours = stat.S_ISREG(about.st_mode) and about.st_uid == user_id() and is_closed(about.st_mode)
    if not is_ours or len(kept) < _BYTES or not _SECRET.fullmatch(kept):
        raise UsageError(f"expected the secret of the page in {path}, which no other user may read; delete that file")
    return kept


class Entry:
    """The token, codes and sessions that open one page."""

    def __init__(self, port: int, secret: str = "") -> None:
        self.token = secrets.token_urlsafe(_BYTES)
        self.cookie = f"xmlcall_page_{port}"
        self._port, self._secret = port, (secret or secrets.token_urlsafe(_BYTES)).encode()
        self._codes: dict[str, float] = {}

    def code(self) -> str:
        code = secrets.token_urlsafe(_BYTES)
        self._codes[code] = time.time() + CODE_SECONDS
        return code

    def opens(self, given: str) -> bool:
        """Return whether the text from an address opens the page; a code works only once."""
        found = next((code for code in self._codes if _is_same(code, given)), None)
        if found is not None:
            return time.time() < self._codes.pop(found)
        return _is_same(self.token, given)

    def session(self) -> str:
        ends = f"{int(time.time()) + SESSION_SECONDS}"
        return f"{ends}.{self._signed(ends)}"

    def is_session(self, given: str) -> bool:
        """Return whether a session was started here and is still valid."""
        ends, _, signature = given.partition(".")
        return _is_same(self._signed(ends), signature) and time.time() < int(ends)

    def _signed(self, ends: str) -> str:
        said = f"xmlcall page, port {self._port}, until {ends}".encode("utf-8", "replace")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()


def _is_same(ours: str, given: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), ours.encode())


class Door:
    """An ASGI app in front of the page's app: checks access, by the guard's host names, and adds the policy to every answer."""

    def __init__(self, app: ASGIApp, *, guard: Guard, entry: Entry) -> None:
        self._app, self._guard, self._entry = app, guard, entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

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
        is_foreign = headers.get("origin", origin) != origin  # the guard lets the origins of desktop programs pass
        if is_foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
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
