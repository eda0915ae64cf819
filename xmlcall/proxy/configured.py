"""Build a proxy from its settings: the models, opened one after the other, the keys, and the app for any ASGI server.

    XMLCALL_CONFIG=xmlcall.toml uvicorn --factory xmlcall.proxy:configured_app
    XMLCALL_CONFIG=xmlcall.toml hypercorn 'xmlcall.proxy.configured:configured_app()'

Those servers run the app's lifespan, which opens the models.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from starlette.applications import Starlette

from ..backends.connect import OLLAMA, ModelServer, connect, server_of
from ..errors import BackendError, BackendUnavailable, UsageError
from ..profiles.profile import asking_by, chosen
from ..turn.asking import Asking, AskingFields
from .app import app_of
from .engine.engine import Engine
from .engine.own_tools import OwnTools
from .http.access import Guard, ServedModel, ServedModels
from .http.exchange import Ending
from .settings import ALL, ModelSettings, keys_of, read_settings

log = logging.getLogger("xmlcall.proxy")

# -- the models that a model server lists, each under its own name: opened when a request first names one --------------
# A model stays open while requests use it. Of the others, those that were not used for longest are closed when another one is
# opened; what was learned about them (does the server's own function calling work, thresholds) goes with them.


OPEN_LIMIT: Final = 8
LISTED_LIMIT: Final = 1000  # models of a list; hosted services have some hundreds
NAME_LIMIT: Final = 200
REREAD_SECONDS: Final = 5.0  # between two readings of the list


class _Listed:
    """One of the models."""

    def __init__(self, name: str, engine: Engine) -> None:
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


# -- a proxy from its settings -----------------------------------------------------------------------------------------


CONFIG: Final = "XMLCALL_CONFIG"
USUAL: Final = Asking(mode="auto")
AGAIN_SECONDS: Final = 2.0  # between two attempts to open a model whose server is not up yet

_Result = TypeVar("_Result")


def models_of(
    rows: Sequence[ModelSettings], own: OwnTools, *, tell: Callable[[str], None] = log.info, **options: Any
) -> tuple[ServedModel | ListedModels, ...]:
    """Make the models of a proxy; they are not open."""
    return tuple(_list(row, own, tell, options) if row.name == ALL else _model(row, own, options) for row in rows)


def _model(row: ModelSettings, own: OwnTools, options: dict[str, Any]) -> ServedModel:
    return ServedModel(engine=_engine(row, own, options), given_name=row.name, aliases=row.aliases)


def _engine(row: ModelSettings, own: OwnTools, options: dict[str, Any]) -> Engine:
    try:
        backend = connect(row.address, context_length=row.context, api_key=_key(row))
        return Engine(backend, own, asking=asking_by(USUAL, _given(row)), **options)
    except UsageError as error:
        raise UsageError(f"model {row.name}: {error}") from error


def _list(row: ModelSettings, own: OwnTools, tell: Callable[[str], None], options: dict[str, Any]) -> ListedModels:
    server = server_of(row.address, api_key=_key(row))
    if server is None:
        raise UsageError(
            f'model "{ALL}": expected the address of a server without a model, such as ollama, got {row.address!r:.100}'
        )

    def make(name: str) -> Engine:
        return _engine(row.model_copy(update={"address": server.address_of(name)}), own, options)

    def prepare(name: str, engine: Engine) -> None:
        _apply_profile(row.model_copy(update={"name": name}), engine, tell)

    return ListedModels(server, make=make, prepare=prepare, own=own)


def _key(row: ModelSettings) -> str | None:
    return None if row.api_key is None else row.api_key.get_secret_value()


def _given(row: ModelSettings) -> AskingFields:
    return cast(AskingFields, row.ask)


@asynccontextmanager
async def opened(
    models: Sequence[ServedModel | ListedModels],
    rows: Sequence[ModelSettings],
    *,
    wait: float = 0.0,
    tell: Callable[[str], None] = log.info,
) -> AsyncIterator[None]:
    """Open the models, waiting up to `wait` seconds for a server that is not up yet, and apply each one's profile."""
    async with AsyncExitStack() as stack:
        for model, row in zip(models, rows, strict=True):
            if isinstance(model, ListedModels):
                await enter(stack, model, wait=wait)
            else:
                await enter(stack, model.engine, wait=wait)
                _apply_profile(row, model.engine, tell)
        yield


def _apply_profile(row: ModelSettings, engine: Engine, tell: Callable[[str], None]) -> None:
    found = chosen(row.profile, engine.backend.capabilities.fingerprints, tell)
    if found is not None and found.profile is not None:
        tell(f"{row.name}: profile {found.name} ({found.source}): {found.profile.words}")
        engine.ask_by(**asdict(asking_by(USUAL, _given(row), found.profile)))
    if (way := engine.known_way()) is not None:
        tell(f"{row.name}: tools in mode {way.mode}: {way.reason}")


async def enter(stack: AsyncExitStack, opening: Engine | ListedModels, *, wait: float) -> None:
    """Open a model or a list, and retry for `wait` seconds while its server is not up."""
    await waited(lambda: stack.enter_async_context(cast(AbstractAsyncContextManager[Any], opening)), wait=wait)


async def all_at(address: str, *, wait: float) -> bool:
    """Return whether an address means all models of a server: "ollama", or one without a model whose server lists several."""
    server = server_of(address)
    if server is None or server.address == OLLAMA:
        return server is not None
    return len(await waited(server.list_models, wait=wait)) > 1


async def waited(work: Callable[[], Awaitable[_Result]], *, wait: float) -> _Result:
    """Do what needs a model server, and retry for `wait` seconds while it is not up."""
    until = time.monotonic() + wait
    while True:
        try:
            return await work()
        except BackendUnavailable as error:
            if time.monotonic() >= until:
                raise
            log.info("not there yet: %s", error)
        await asyncio.sleep(AGAIN_SECONDS)


def configured_app(
    file: str | Path | None = None, *, ending: Ending | None = None, beside: AbstractAsyncContextManager[None] | None = None
) -> Starlette:
    """Make the app of a settings file, for any ASGI server; its lifespan opens the models.

    Args:
        file: a TOML file; None reads the file named by `XMLCALL_CONFIG`, or else the environment alone.
        ending: ends all answers, for a server that announces its shutdown.
        beside: a context that is entered once the models are open and left before they are closed.

    Raises:
        UsageError: the settings cannot be read, or name no model.
    """
    named = file if file is not None else os.environ.get(CONFIG)
    settings = read_settings(Path(named).expanduser() if named else None)
    if not settings.model:
        raise UsageError(f"expected at least one [[model]] in {named or 'the environment'}, got none")
    rows = [row.asked(settings.ask) for row in settings.model]
    models = models_of(rows, OwnTools())
    guard = Guard(keys=keys_of(settings), origins=settings.serve.allow_origin, hosts=settings.serve.allow_host)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened(models, rows, wait=settings.serve.wait or 0.0):
            async with beside or nullcontext():
                yield

    return app_of(ServedModels(rows=models), guard, lifespan=lifespan, ending=ending)
