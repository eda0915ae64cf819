"""The proxy as an ASGI app."""

import contextlib
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Unpack, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Lifespan

from ..agent.rules import Rules
from ..backends.base import Backend
from ..backends.connect import connect
from ..hosts.base import Host
from ..turn.asking import Asking, AskingFields
from .engine.engine import Engine
from .formats.contract import ApiError
from .http.access import Guard, ServedModels, key_of, serving
from .http.exchange import Ending
from .http.incoming import one_framing, tolerant_paths
from .http.routes import ENDPOINTS, PATH_LIMIT, QUESTIONS, RELAYED, Handler, Responder, format_of
from .observed.observer import Observer
from .observed.probes import outside_routes


class _AppFields(AskingFields, total=False):
    """The keywords of the app beside its parameters; the last two are old names of fields of `Guard`."""

    origins: Iterable[str]
    allowed_hosts: Iterable[str]


def create_app(
    model: str | Backend,
    hosts: Iterable[Host] = (),
    *,
    allowed: Iterable[str] | Rules = (),
    asking: Asking | None = None,
    api_key: str = "",
    guard: Guard | None = None,
    strict: bool = False,
    **asked: Unpack[_AppFields],
) -> Starlette:
    """Make the proxy, for any ASGI server; its lifespan opens the model and the hosts.

    Args:
        model: a model address as `connect` takes it, or a backend that is not open yet.
        hosts: MCP servers whose tools the proxy runs itself.
        allowed: globs over `server.tool` that select the hosts' tools to offer and run without confirmation; or `Rules`.
        asking: how the model is asked; None for the defaults, in mode `auto`.
        api_key: the key that every request must carry; "" if none is required.
        guard: several keys, web pages that may call, and names under which clients may call the proxy; None allows no page and
            only this machine's own names.
        strict: whether to refuse requests with harmless deviations from their wire format (see `tolerance`).
        asked: fields of `asking` by name, such as `mode="xml"`.

    Raises:
        UsageError: the model address or a setting is invalid.
    """
    backend = connect(model) if isinstance(model, str) else model
    guard = _guard(guard or Guard(), api_key, hosts=asked.pop("allowed_hosts", None), origins=asked.pop("origins", None))
    engine = Engine(backend, hosts, allowed=allowed, asking=asking, strict=strict, **cast(AskingFields, asked))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with engine:
            yield

    return app_of(serving(engine), guard, lifespan=lifespan)


def _guard(guard: Guard, api_key: str, **old: Iterable[str] | None) -> Guard:
    named = {name: tuple(value) for name, value in old.items() if value is not None}
    if named:
        warnings.warn("origins and allowed_hosts are now create_app(guard=Guard(origins=..., hosts=...))", DeprecationWarning, 3)
    keys = (*guard.keys, key_of(api_key)) if api_key else guard.keys
    return replace(guard, keys=keys, **named)


def app_of(
    served: ServedModels,
    guard: Guard,
    *,
    lifespan: Lifespan[Starlette] | None = None,
    beside: Iterable[BaseRoute] = (),
    ending: Ending | None = None,
    observer: Observer | None = None,
) -> Starlette:
    """Make the app that serves open models; routes `beside` have access control of their own, `ending` can end all answers."""
    ending, observer = ending or Ending(), observer or Observer()

    def route(path: str, method: str, answer: Responder) -> Route:
        observed = partial(observer.begin, endpoint=path)
        return Route(path, Handler(served, guard, format_of(path), answer, ending, observed), methods=[method, "OPTIONS"])

    async def not_here(request: Request, error: Exception) -> Response:
        """Write Starlette's own 404 and 405 in the caller's format."""
        assert isinstance(error, HTTPException)
        try:
            guard.check(request.headers)
        except ApiError as refusal:
            observer.missed(request, refusal.status)
            return _error(request, refusal)
        observer.missed(request, error.status_code)
        asked = f"{request.method} {request.url.path[:PATH_LIMIT]}: {error.status_code} {error.detail}"
        served.engine.say_once(f"{asked} (said once); questions go to {QUESTIONS[0].path} and others")
        return _error(request, _unknown(request, error), error.headers)

    routes = [route(endpoint.path, endpoint.method, endpoint.answer) for endpoint in ENDPOINTS]
    app = Starlette(
        routes=[*routes, *outside_routes(observer, guard, served), *beside],
        lifespan=lifespan,
        middleware=[Middleware(one_framing), *([] if served.engine.strict else [Middleware(tolerant_paths)])],
        exception_handlers={HTTPException: not_here},
    )
    app.router.redirect_slashes = False  # the redirect would use the request's Host header before the guard has checked it
    return app


def _unknown(request: Request, error: HTTPException) -> ApiError:
    paths = ", ".join(question.path for question in (*QUESTIONS, *RELAYED))
    message = f"{request.method} {request.url.path[:PATH_LIMIT]}: {error.detail}; questions go to: {paths}"
    return ApiError(message, status=error.status_code, code="not_found" if error.status_code == 404 else "method_not_allowed")


def _error(request: Request, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(format_of(request.url.path).error(error), error.status, headers=headers)
