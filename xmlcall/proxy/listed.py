"""The models that a model server lists, each under its own name: opened when a request first names one, not too many at a time.

A model stays open while requests use it. Of the others, those that were not used for longest are closed when another one is
opened; what was learned about them (does the server's own function calling work, thresholds) goes with them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from ..backends.connect import ModelServer
from ..errors import BackendError, BackendUnavailable
from .engine.own_tools import OwnTools
from .http.access import ServedModel
from .settings import ALL

if TYPE_CHECKING:
    from .engine.engine import Engine

OPEN_LIMIT: Final = 8
LISTED_LIMIT: Final = 1000  # models of a list; hosted services have some hundreds
NAME_LIMIT: Final = 200
REREAD_SECONDS: Final = 5.0  # between two readings of the list

log = logging.getLogger("xmlcall.proxy")


class _Listed:
    """One of the models."""

    def __init__(self, name: str, engine: "Engine") -> None:
        self.name, self.engine = name, engine
        self.requests = 0  # that use it now
        self.is_open = False
        self.opening = asyncio.Lock()


class ListedModels:
    """The models that a server lists; entering it reads the list.

    Args:
        server: has the models.
        make: makes the engine of a model, not open, from its name.
        prepare: called with the name and the engine of a model that was just opened.
        own: opened with the list, because servers of tools must be closed by the task that opened them.
    """

    def __init__(
        self,
        server: ModelServer,
        *,
        make: Callable[[str], "Engine"],
        prepare: Callable[[str, "Engine"], None],
        own: OwnTools,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._make, self._prepare, self._own, self._clock = server, make, prepare, own, clock
        self._unused = make(ALL)  # also fails now, and not at the first request, if the settings do not fit
        self._models: dict[str, ServedModel] = {}
        self._open: list[_Listed] = []  # the one that was used last comes last
        self._reading, self._read_at = asyncio.Lock(), float("-inf")

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """The models of the list, as it was last read."""
        return tuple(self._models.values())

    @property
    def engine(self) -> "Engine":
        """The engine of the model that was used last; until one was, one that is not open, for what all have in common."""
        return self._open[-1].engine if self._open else self._unused

    async def __aenter__(self) -> Self:
        """Open the tools, and read the list.

        Raises:
            BackendUnavailable: the server has no model.
        """
        await self._own.__aenter__()
        try:
            await self._read()
            if not self._models:
                how = "with `ollama pull NAME`" if self._server.address == "ollama" else "into it"
                raise BackendUnavailable(f"expected models at {self._server.address}, got an empty list: load one {how}")
        except BaseException:
            await self._own.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all models, and the tools."""
        while self._open:
            await self._open.pop().engine.__aexit__(None, None, None)
        await self._own.__aexit__()

    async def answers(self) -> bool:
        """Return whether the server lists its models now, which is the cheapest question to it."""
        return bool(await self._server.list_models())

    async def reread(self) -> None:
        """Read the list again, unless that was done, or tried, within the last seconds; if it fails, the list stays."""
        async with self._reading:
            if self._clock() - self._read_at < REREAD_SECONDS:
                return
            try:
                await self._read()
            except BackendError as error:
                log.warning("the list of models stays as it was: %s", error)

    async def _read(self) -> None:
        self._read_at = self._clock()
        names = [name for name in await self._server.list_models() if len(name) <= NAME_LIMIT][:LISTED_LIMIT]
        known = self._models | {each.name: self._served(each) for each in self._open}
        self._models = {name: known.get(name) or self._new(name) for name in names}

    def _new(self, name: str) -> ServedModel:
        return self._served(_Listed(name, self._make(name)))

    def _served(self, listed: _Listed) -> ServedModel:
        return ServedModel(engine=listed.engine, given_name=listed.name, use=lambda: self._using(listed))

    @asynccontextmanager
    async def _using(self, listed: _Listed) -> AsyncIterator[None]:
        """Have a model open for a request."""
        listed.requests += 1  # from here on it is not closed
        try:
            async with listed.opening:
                if not listed.is_open:
                    await self._close_unused(OPEN_LIMIT - 1)
                    await self._open_one(listed)
            self._open.remove(listed)
            self._open.append(listed)
            yield
        finally:
            listed.requests -= 1

    async def _open_one(self, listed: _Listed) -> None:
        await listed.engine.__aenter__()
        try:
            self._prepare(listed.name, listed.engine)
        except BaseException:
            await listed.engine.__aexit__(None, None, None)
            raise
        listed.is_open = True
        self._open.append(listed)

    async def _close_unused(self, most: int) -> None:
        """Close models that no request uses until at most so many are open, those not used for longest first."""
        while len(self._open) > most:
            each = next((each for each in self._open if not each.requests), None)  # found again: others open and close meanwhile
            if each is None:
                return
            self._open.remove(each)
            each.is_open = False
            if each.name in self._models:
                self._models[each.name] = self._new(each.name)  # what the old engine holds in memory is freed
            await each.engine.__aexit__(None, None, None)
