"""The proxy of one model inside this process: opened by its first request, and asked without a network.

Opening has no time limit: a model may have to be fetched first, and no client's time limit was meant for that. If a model does
not open, the caller gets an error with a status in its own wire format: the SDKs show the message of such an error, and hide
the message of a failed connection. The next request tries again.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend
from ..errors import UsageError, XmlcallError
from ..proxy import create_app
from ..proxy.http import exchange as answering
from ..proxy.http.routes import format_of
from .asgi import AppError, AppResponse, Headers, Lifespan

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Service"]


class Service:
    """A model's proxy, in the event loop of the requests. When that loop has ended, a request in another one opens it anew.

    Args:
        model: as for `create_app`.
        hosts: as for `create_app`.
        options: further arguments of `create_app`.

    Raises:
        UsageError: no such form of model, or two hosts have one name.
    """

    def __init__(self, model: str | Backend, hosts: Iterable[Any] = (), **options: Any) -> None:
        arguments = {"allowed_hosts": ("*",), **options, "hosts": tuple(hosts)}
        self._make: Callable[[], ASGIApp] = functools.partial(create_app, model, **arguments)
        self._make()  # so that what is wrong with the arguments is told now
        self._lifespan: Lifespan | None = None
        self._exchanges: set[AppResponse] = set()

    async def ask(self, scope: "Scope", body: bytes, seconds: float | None) -> tuple[AppResponse, int, Headers]:
        """Make a request; return the answer with its status and headers. The caller ends it with `leave`.

        Args:
            scope: the request's head, as ASGI has it.
            body: the request's.
            seconds: to wait for the answer's beginning once the model is open; None for no limit.

        Raises:
            UsageError: another event loop that still runs has opened the model.
            TimeoutError: nothing came.
            AppError: the proxy failed.
        """
        exchange = AppResponse(await self._opened(), scope, body)
        self._exchanges.add(exchange)
        try:
            return exchange, *await exchange.begin(seconds)
        except BaseException:
            await self.leave(exchange)
            raise

    async def leave(self, exchange: AppResponse) -> None:
        """End an answer, read or not; what is not yet generated will not be.

        Args:
            exchange: from `ask`.
        """
        self._exchanges.discard(exchange)
        await exchange.aclose()

    async def aclose(self) -> None:
        """End all answers and close the model. Later requests open it again."""
        for exchange in list(self._exchanges):
            await self.leave(exchange)
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.aclose()

    async def _opened(self) -> "ASGIApp":
        lifespan = self._current()
        try:
            await lifespan.opened()
        except XmlcallError as error:
            return _refusing(error)
        except Exception as error:
            raise AppError(f"the model was not opened: {error}") from error
        return lifespan.app

    def _current(self) -> Lifespan:
        if self._lifespan is None or self._lifespan.is_over:
            self._lifespan = Lifespan(self._make())
        elif self._lifespan.loop is not asyncio.get_running_loop():
            raise UsageError(
                "the model is open in another event loop: use one async client for each, or the sync client in threads"
            )
        return self._lifespan


def _refusing(error: XmlcallError) -> "ASGIApp":
    """Make an app whose every answer is this error."""

    async def app(scope: "Scope", receive: "Receive", send: "Send") -> None:
        await answering.Exchange(receive, send, format_of(scope["path"])).fail(answering.api_error(error))

    return app
