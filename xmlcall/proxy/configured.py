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
from typing import Any, Final, TypeVar, cast

from starlette.applications import Starlette

from ..backends.connect import OLLAMA, connect, server_of
from ..errors import BackendUnavailable, UsageError
from ..profiles.profile import asking_by, chosen
from ..turn.asking import Asking, AskingFields
from .app import app_of
from .engine.engine import Engine
from .engine.own_tools import OwnTools
from .http.access import ALL, Guard, ListedModels, ServedModel, ServedModels
from .http.exchange import Ending
from .settings import ModelSettings, keys_of, read_settings

log = logging.getLogger("xmlcall.proxy")


CONFIG: Final = "XMLCALL_CONFIG"
USUAL: Final = Asking(mode="auto")
AGAIN_SECONDS: Final = 2.0  # between two attempts to open a model whose server is not up yet

_Result = TypeVar("_Result")


def models_of(
    rows: Sequence[ModelSettings], own: OwnTools, *, tell: Callable[[str], None] = log.info, **options: Any
) -> tuple[ServedModel | ListedModels, ...]:
    """Make the models of a proxy; they are not open."""
    return tuple(
        _list(row, own, tell, options)
        if row.name == ALL
        else ServedModel(engine=_engine(row, own, options), given_name=row.name, aliases=row.aliases)
        for row in rows
    )


def _engine(row: ModelSettings, own: OwnTools, options: dict[str, Any]) -> Engine:
    try:
        backend = connect(row.address, context_length=row.context, api_key=_key(row))
        return Engine(backend, own, asking=asking_by(USUAL, cast(AskingFields, row.ask)), **options)
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
        engine.ask_by(**asdict(asking_by(USUAL, cast(AskingFields, row.ask), found.profile)))
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
