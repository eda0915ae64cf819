"""Access control: check who may call the proxy before any of the request is read.

The danger on a loopback port is a web page in the user's browser: it can send requests to 127.0.0.1, and with tool servers behind
the proxy, a request is an action. Browsers state where a request comes from (`Origin`, Fetch standard, section 3.2), so the proxy
refuses origins that are not allowed. It also refuses a `Host` that is not this machine (DNS rebinding). Programs other than
browsers send no `Origin`. Origins such as `app://` or `vscode-webview://` belong to desktop programs, never to web pages, and
are allowed.

*API keys* decide who may call, and which models each caller may use. They are never written anywhere. Only the SHA-256 of a key
is kept, and it is compared in constant time, so neither memory nor response times reveal the key. Keys should be long and random:
nothing here makes a short key safe.

*Models*: a single model without a name of its own answers to every name, because some clients use a fixed name. Several models
are distinguished by their names and aliases. A model that a key may not use is invisible to its caller: no list contains it, and
a request for it gets the same error as an unknown name. The models that a server lists are opened at their first use, and the
list is read again when a request names a model that is not in it.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ...backends.connect import ModelServer
from ...backends.http import is_loopback
from ...errors import BackendError, BackendUnavailable
from ..engine.own_tools import OwnTools
from ..formats.contract import ApiError
from ..formats.ollama import is_named

if TYPE_CHECKING:
    from ..engine.engine import Engine

# -- keys -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A caller's key; `models` names the only models that it may use, None means all."""

    name: str
    digest: bytes = field(repr=False)
    models: frozenset[str] | None = None

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models


def digest_of(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def key_of(secret: str, name: str = "", *, models: Iterable[str] | None = None) -> Key:
    """Make a key of the text that callers send; bytes that are not UTF-8 are surrogate-escaped, as by `os.fsdecode`."""
    chosen = None if models is None else frozenset(models)
    return Key(name=name, digest=digest_of(os.fsencode(secret)), models=chosen)


_PAGES: Final = frozenset({"http", "https", "", "null", "file", "data", "blob"})
HEADER_LIMIT: Final = 32_768  # bytes of all headers together


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    keys: tuple[Key, ...] = ()  # every request must carry one of these; if empty, no key is needed
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # besides this machine's own names and addresses; `*` for all

    def check(self, headers: Headers, *, is_preflight: bool = False) -> Key | None:
        """Check a request and return its key, if keys are required; a CORS preflight carries none (Fetch standard, 4.8)."""
        if sum(len(name) + len(value) for name, value in headers.raw) > HEADER_LIMIT:
            raise ApiError(f"expected at most {HEADER_LIMIT} bytes of headers", status=431)
        host = _name(headers.get("host", ""))
        if not (is_loopback(host) or host in self.hosts or "*" in self.hosts):
            raise _forbidden(f"Host: expected this machine's name or address, got {host[:80]!r}: allow it with --allow-host")
        origin = headers.get("origin")
        if origin is not None and not self.allows(origin):
            raise _forbidden(f"Origin: the web page {origin[:80]!r} may not call this server: allow it with --allow-origin")
        if not self.keys or is_preflight:
            return None
        key = self._key(headers)
        if key is None:
            message = "expected the API key of this server, as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            raise ApiError(message, status=401, kind="authentication_error", code="invalid_api_key")
        return key

    def allows(self, origin: str) -> bool:
        scheme = origin.partition(":")[0].lower()
        return (
            "*" in self.origins
            or origin in [each.rstrip("/") for each in self.origins]
            or (scheme not in _PAGES and "://" in origin)
        )

    def _key(self, headers: Headers) -> Key | None:
        sent = (headers.get("x-api-key", ""), headers.get("authorization", "").partition(" ")[2])  # some clients send both
        digests = [digest_of(each.strip(" ").encode("latin-1")) for each in sent]
        return next((key for key in self.keys if any(hmac.compare_digest(key.digest, each) for each in digests)), None)

    def cors(self, origin: str | None) -> Iterable[tuple[bytes, bytes]]:
        """Return the headers that let a page of an allowed origin read the answer; none if no origins are allowed."""
        if origin is None or not self.origins or not self.allows(origin):
            return ()
        return (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-headers", b"*, authorization"),  # `*` does not cover it; SDKs send custom headers
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-expose-headers", b"x-should-retry"),
            (b"vary", b"origin"),
        )


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _forbidden(message: str) -> ApiError:
    return ApiError(message, status=403, kind="permission_error", code="forbidden")


# -- which models a caller may use ----------------------------------------------------------------------------------------

SHOWN: Final = 80  # characters of a requested name that an error shows
NAMES_SHOWN: Final = 40  # most names of models in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model under a name; a `given_name` of "" stands for the model server's name."""

    engine: "Engine"
    given_name: str = ""
    aliases: tuple[str, ...] = ()
    # A context around each request: it opens the model if necessary, and keeps it open. None if the model is always open.
    use: Callable[[], AbstractAsyncContextManager[None]] | None = None

    @property
    def name(self) -> str:
        """The name under which callers know it."""
        return self.given_name or self.engine.model


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModels:
    """All models of a proxy, at least one; the first answers requests that name none, or with `takes_any_name` every name."""

    rows: "tuple[ServedModel | ListedModels, ...]"
    takes_any_name: bool = False

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return tuple(model for row in self.rows for model in ((row,) if isinstance(row, ServedModel) else row.models))

    @property
    def engine(self) -> "Engine":
        """The engine of the first model; for a list of models, of the one that was used last."""
        return self.rows[0].engine

    async def reread(self) -> None:
        """Read the lists of the model servers again, each at most once in some seconds."""
        for row in self.rows:
            if not isinstance(row, ServedModel):
                await row.reread()


def serving(engine: "Engine") -> ServedModels:
    """Serve one model under every name."""
    return ServedModels(rows=(ServedModel(engine=engine),), takes_any_name=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, with the key that it sent."""

    served: ServedModels
    key: Key | None = None

    @property
    def models(self) -> tuple[ServedModel, ...]:
        return tuple(model for model in self.served.models if self.key is None or self.key.may_use(model.name))

    @asynccontextmanager
    async def using(self, name: Any) -> AsyncIterator[ServedModel]:
        """Keep the model that a request names, unchecked, open for the request; without a name, the first model is meant."""
        found = self._named(name)
        if found is None:
            await self.served.reread()
            found = self._named(name)
        if found is None:
            raise self._unknown(name)
        async with found.use() if found.use else nullcontext():
            yield found

    def _named(self, name: Any) -> ServedModel | None:
        models = self.models
        if models and (self.served.takes_any_name or not name):
            return models[0]
        if not isinstance(name, str):
            return None
        named = (model for model in models if is_named(model.name, name))  # with or without Ollama's tag `latest`
        return next(named, None) or next(
            (model for model in models if any(fnmatchcase(name, alias) for alias in model.aliases)), None
        )

    def _unknown(self, name: Any) -> ApiError:
        models = self.models
        more = f" and {len(models) - NAMES_SHOWN} more" if len(models) > NAMES_SHOWN else ""
        names = ", ".join(repr(model.name) for model in models[:NAMES_SHOWN]) or "no model that this key may use"
        message = f"model: expected one of {names}{more}, got {str(name)[:SHOWN]!r}"
        return ApiError(message, status=404, param="model", code="model_not_found")


# -- the models that a model server lists, each under its own name: opened when a request first names one --------------
# A model stays open while requests use it. Of the others, those that were not used for longest are closed when another one is
# opened; what was learned about them (does the server's own function calling work, thresholds) goes with them.


ALL: Final = "*"  # the name that stands for every model that the server lists
OPEN_LIMIT: Final = 8
LISTED_LIMIT: Final = 1000  # models of a list; hosted services have some hundreds
NAME_LIMIT: Final = 200
REREAD_SECONDS: Final = 5.0  # between two readings of the list

log = logging.getLogger("xmlcall.proxy")


class _Listed:
    def __init__(self, name: str, engine: "Engine") -> None:
        self.name, self.engine = name, engine
        self.requests = 0  # how many use it now
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
        return tuple(self._models.values())

    @property
    def engine(self) -> "Engine":
        """The engine of the model that was used last; at first one that is not open, for the facts that all share."""
        return self._open[-1].engine if self._open else self._unused

    async def __aenter__(self) -> Self:
        """Open the tools, and read the list, which must not be empty."""
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
        """Close models that no request uses, the least recently used first, until at most this many are open."""
        while len(self._open) > most:
            each = next((each for each in self._open if not each.requests), None)  # found again: others open and close meanwhile
            if each is None:
                return
            self._open.remove(each)
            each.is_open = False
            if each.name in self._models:
                self._models[each.name] = self._new(each.name)  # what the old engine holds in memory is freed
            await each.engine.__aexit__(None, None, None)
