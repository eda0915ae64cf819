"""The page as routes of an ASGI app: its files, its API, and the access control in front of both."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from ..prompting.format import PromptFormat
from ..proxy.engine.engine import Engine
from ..proxy.http.access import Guard
from ..proxy.http.incoming import one_framing
from ..turn_records.builder import Recorder
from . import api
from .access import Door, Entry
from .api import json_answer

if TYPE_CHECKING:
    from .chat import ChatRoom

_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".md": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UiPage:
    entry: Entry
    routes: Sequence[BaseRoute]

    def address(self, url: str) -> str:
        return f"{url}/ui/?token={self.entry.token}"

    def address_for_once(self, url: str) -> str:
        """Return an address that opens the page once, within minutes; for program arguments, which other users can see."""
        return f"{url}/ui/?token={self.entry.code()}"


def page_of(shown: api.ShownPage, guard: Guard, more: Iterable[Route] = (), *, secret: str = "") -> UiPage:
    """Make the page; the routes `more`, under `/api/`, need no access control of their own."""
    entry = Entry(urlsplit(shown.url).port or 80, secret)
    static = _static()
    inside = Router([*more, *api.routes(shown), Route("/static/{path:path}", static), Route("/", static)], default=_nothing)
    door = Middleware(Door, guard=guard, entry=entry)
    return UiPage(entry=entry, routes=[Route("/ui", _to_the_page), Mount("/ui", app=inside, middleware=[door])])


def page_routes(*, recorder: Recorder, guard: Guard, engine: Callable[[], Engine], url: str, secret: str = "") -> UiPage:
    """Make the page of a proxy; it describes and asks the model that `engine` returns at that moment."""
    from .asking import routes as asking_routes

    def about() -> dict[str, Any]:
        asked = engine()
        return _facts(asked.model, asked.asking.mode, asked.format) | {"can_ask": True}

    shown = api.ShownPage(recorder=recorder, about=about, url=url, instance=secrets.token_hex(4))
    return page_of(shown, guard, asking_routes(shown, lambda: engine().backend), secret=secret)


def app_of_page(page: UiPage) -> Starlette:
    app = Starlette(
        routes=[*page.routes, Route("/", _to_the_page)],
        middleware=[Middleware(one_framing)],
        exception_handlers={HTTPException: _error},
    )
    app.router.redirect_slashes = False
    return app


def facts_of_room(room: "ChatRoom | None") -> dict[str, Any]:
    """Return the facts of a program with a chat, or without one."""
    if room is None:
        return _facts() | {"recorded": True}
    facts = _facts(room.loop.backend.model, room.loop.mode, room.loop.format)
    return facts | {"recorded": True, "can_chat": True, "can_ask": True, "servers": room.servers()}


def _facts(model: str = "", way: str = "", form: PromptFormat | None = None) -> dict[str, Any]:
    """Return what a page shows of how the model is asked, without what the program can do besides."""
    asked = {"dialect": form.dialect if form else "", "lang": form.lang if form else "en", "family": form.family if form else ""}
    can = {"recorded": False, "can_chat": False, "can_ask": False, "servers": []}
    return {"version": version("xmlcall"), "model": model, "way": way, **asked, **can}


def _static() -> Callable[[Request], Awaitable[Response]]:
    """Answer with the files of the page; they are few, and read once."""
    kept: dict[str, tuple[bytes, str, str]] = {}
    root = files(__package__).joinpath("static")

    def read(path: str) -> tuple[bytes, str, str] | None:
        parts, media_type = PurePosixPath(path).parts, _TYPES.get(PurePosixPath(path).suffix)
        if media_type is None or any(part in ("..", "/") or part.startswith(".") for part in parts):
            return None
        found = root.joinpath(*parts)
        content = found.read_bytes() if found.is_file() else None
        return None if content is None else (content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"')

    async def answer(request: Request) -> Response:
        path = request.path_params.get("path", "index.html")
        if (file := kept.get(path) or read(path)) is None:
            return json_answer({"error": {"message": "the page has no such file"}}, 404)
        content, media_type, tag = kept[path] = file
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return answer


async def _to_the_page(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/ui/{query}", 303)


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await json_answer({"error": {"message": "the page has nothing under this address"}}, 404)(scope, receive, send)


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_answer({"error": {"message": f"{error.detail}: the page is under /ui/"}}, error.status_code)
