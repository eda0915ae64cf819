"""The proxy as an ASGI app."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Lifespan

from ..agent.rules import Rules
from ..agent.tool_need import Threshold
from ..backends.base import Backend
from ..backends.connect import connect
from ..hosts.base import Host
from .engine.engine import Engine, ProxyMode
from .formats.contract import ApiError
from .http.access import Guard
from .http.api_description import description
from .http.ending import Ending
from .http.exchange import Exchange
from .http.routes import ENDPOINTS, PATH_LIMIT, QUESTIONS, RELAYED, Handler, Responder, format_of
from .http.tolerant_paths import TolerantPaths
from .sharing.redis import RedisStore
from .sharing.store import Store

__all__ = ["app_of", "create_app"]


def create_app(
    model: str | Backend,
    hosts: Iterable[Host] = (),
    *,
    mode: ProxyMode = "auto",
    allowed: Iterable[str] | Rules = (),
    stream_arguments: bool = False,
    dialect: str = "function_calls",
    lang: str = "en",
    family: str = "list",
    reminder: bool = True,
    call_threshold: Threshold | None = None,
    constrain: bool = False,
    api_key: str = "",
    origins: Iterable[str] = (),
    allowed_hosts: Iterable[str] = (),
    strict: bool = False,
    tool_tokens: int | None = None,
    share: str | Store | None = None,
) -> Starlette:
    """Make the proxy, for any ASGI server; its lifespan opens the model and the hosts.

    Args:
        model: as for `connect`, or a backend that is not open.
        hosts: MCP servers whose tools the proxy runs itself.
        mode: `xml`: calls are read from the text; `native`: the server's own function calling; `auto`: as a trial call tells.
        allowed: globs over `server.tool`: the tools of the hosts that are offered and run, without asking anybody; or `Rules`.
        stream_arguments: whether arguments go out before their call is complete.
        dialect: name of the format in which the model is asked to write calls (docs/dialects.md); all formats are read.
        lang: language of the tool prompt, `en` or `zh`.
        family: how the tool prompt shows tools (see `prompting.families`).
        reminder: whether the person's messages end in a reminder of the tools.
        call_threshold: log-odds of a call, or `auto`, as in `ToolLoop`; None leaves it to the model.
        constrain: whether a call that is begun for the model is held by a grammar of the tools, where the server obeys one.
        api_key: that every request has to carry; "" for none.
        origins: web pages that may call, such as `http://localhost:3000`; by default none may.
        allowed_hosts: names besides this machine's under which the proxy may be called; `*` for all.
        strict: whether requests are refused that leave their wire format where it cannot matter (see `tolerance`).
        tool_tokens: what the description of the tools may take of a prompt (see `grades`); None goes by the model's context.
        share: what replicas share: a store that is open while the app runs, or the address of a Redis as `redis://host:port`;
            None keeps it in this process.

    Raises:
        UsageError: no such form of model, or no such address.
    """
    store = RedisStore(share) if isinstance(share, str) else share
    shown = partial(Engine, mode=mode, dialect=dialect, lang=lang, family=family, reminder=reminder, tool_tokens=tool_tokens)
    engine = shown(
        connect(model) if isinstance(model, str) else model,
        hosts,
        allowed=allowed,
        stream_arguments=stream_arguments,
        call_threshold=call_threshold,
        constrain=constrain,
        strict=strict,
        store=store,
    )
    guard = Guard(api_key=api_key, origins=tuple(origins), hosts=tuple(allowed_hosts))
    return app_of(engine, guard, lifespan=_opening(engine, store if isinstance(share, str) else None))


def _opening(engine: Engine, store: Store | None) -> Lifespan[Starlette]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with store if isinstance(store, RedisStore) else contextlib.nullcontext(), engine:
            yield

    return lifespan


def app_of(
    engine: Engine,
    guard: Guard,
    *,
    lifespan: Lifespan[Starlette] | None = None,
    beside: Iterable[BaseRoute] = (),
    ending: Ending | None = None,
) -> Starlette:
    """Make the app of an engine.

    Args:
        engine: open while the app answers.
        guard: who may call.
        lifespan: opens the engine; None if the caller does.
        beside: routes of others, under paths of their own; they see to it themselves who may call.
        ending: begun when the server is stopped and the answers under way have had their time; they end with an error then.
    """
    ending = ending or Ending()

    def route(path: str, method: str, answer: Responder) -> Route:
        return Route(path, Handler(engine, guard, format_of(path), answer, ending), methods=[method, "OPTIONS"])

    async def describe(engine: Engine, request: Request, exchange: Exchange) -> None:
        await exchange.json(description())

    async def not_here(request: Request, error: Exception) -> Response:
        """Write Starlette's own 404 and 405 in the caller's format."""
        assert isinstance(error, HTTPException)
        try:
            guard.check(request.headers)
        except ApiError as refusal:
            return _error(request, refusal)
        asked = f"{request.method} {request.url.path[:PATH_LIMIT]}: {error.status_code} {error.detail}"
        engine.say_once(f"{asked} (said once); questions go to {QUESTIONS[0].path} and others, see /openapi.json")
        return _error(request, _unknown(request, error), error.headers)

    routes = [route(endpoint.path, endpoint.method, endpoint.answer) for endpoint in ENDPOINTS]
    app = Starlette(
        routes=[*routes, route("/openapi.json", "GET", describe), *beside],
        lifespan=lifespan,
        middleware=[] if engine.strict else [Middleware(TolerantPaths)],
        exception_handlers={HTTPException: not_here},
    )
    app.router.redirect_slashes = False  # to an address made of the request's own Host, before anybody has looked at that
    return app


def _unknown(request: Request, error: HTTPException) -> ApiError:
    paths = ", ".join(question.path for question in (*QUESTIONS, *RELAYED))
    message = f"{request.method} {request.url.path[:PATH_LIMIT]}: {error.detail}; questions go to: {paths}"
    return ApiError(message, status=error.status_code, code="not_found" if error.status_code == 404 else "method_not_allowed")


def _error(request: Request, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(format_of(request.url.path).error(error), error.status, headers=headers)
