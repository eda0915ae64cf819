"""Endpoints for monitoring, `/health`, `/ready` and `/metrics`, and the JSON log.

Probes of orchestrators send no key, and they send a container's address as `Host`. So `/health` and `/ready` accept every `Host`:
a page that uses DNS rebinding learns only that something runs here. Requests from other pages in a browser are refused as
everywhere. `/metrics` reveals names of models and keys, so it is guarded like a question.

Readiness depends on the model server, which is asked in the cheapest way, and only once for all probes within two seconds. A
probe waits for one second by default, so the model server gets less time than that.

*The JSON log* has one object per line, with the names that log collectors know: `time` (ISO 8601, UTC), `level`, `logger`,
`message`. The facts about a request are added to these (see `Observing.over`): no bodies, no headers, no keys. JSON escapes line
ends, so a caller cannot forge a line of the log. Everything beyond ASCII is escaped, too, because terminals obey some of it.
"""

import asyncio
import json
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...backends.base import Relaying
from ...errors import BackendError
from ..formats.contract import ApiError
from ..http.access import ListedModels
from .observer import Observer

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..http.access import Guard, ServedModel, ServedModels

log = logging.getLogger("xmlcall.proxy")

KEPT_SECONDS: Final = 2.0  # for which a result is reused
WAIT_SECONDS: Final = 0.8  # for a model server to answer

# Paths that cost a server nothing. While llama.cpp loads, it answers /models normally, but /health with 503.
_PATHS: Final = {"llama.cpp": "/health", "ollama": "/api/version"}
_ANY_PATH: Final = "/models"

READY: Final = "ready"
STOPPING: Final = "the server is about to stop"
SILENT: Final = "the model server does not answer"


class Readiness:
    def __init__(self, observer: Observer, served: "ServedModels") -> None:
        self._observer, self._served = observer, served
        self._asking = asyncio.Lock()
        self._is_ready, self._until = False, 0.0

    async def state(self) -> str:
        """Return `ready`, or the reason why the app is not ready."""
        if self._observer.is_stopping:
            return STOPPING
        async with self._asking:  # many probes may come at once, and one of them asks for all
            if time.monotonic() >= self._until:
                self._is_ready = any(await asyncio.gather(*map(_answers, self._served.rows)))
                self._until = time.monotonic() + KEPT_SECONDS
        return READY if self._is_ready else SILENT


async def _answers(row: "ServedModel | ListedModels") -> bool:
    """Return whether a model server responds; a server that refuses the path or the key is up, too."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await (row.answers() if isinstance(row, ListedModels) else _responds(row.engine))
    except (BackendError, TimeoutError):
        return False


async def _responds(engine: "Engine") -> bool:
    backend = engine.backend.inner
    if not isinstance(backend, Relaying):  # it runs in this process and is open
        return True
    path = _PATHS.get(backend.capabilities.server, _ANY_PATH)
    async with backend.relay("GET", path) as relayed:
        return relayed.status < 500


def outside_routes(observer: Observer, guard: "Guard", served: "ServedModels") -> list[Route]:
    readiness = Readiness(observer, served)

    async def health(request: Request) -> Response:
        return _refused(request, guard) or _response(200, "ok")

    async def ready(request: Request) -> Response:
        if refusal := _refused(request, guard):
            return refusal
        state = await readiness.state()
        return _response(200 if state == READY else 503, state)

    async def metrics(request: Request) -> Response:
        try:
            guard.check(request.headers, is_preflight=observer.open_metrics)  # like a preflight, needs no key
        except ApiError as error:
            log.info("%s %s %s: %s", request.method, "/metrics", error.status, error.message)
            return _response(error.status, error.message)
        body, media_type = observer.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    return [Route("/health", health), Route("/ready", ready), Route("/metrics", metrics)]


def _refused(request: Request, guard: "Guard") -> Response | None:
    """Return the refusal of a browser's request from a page that may not call; None for any other request."""
    origin = request.headers.get("origin")
    return None if origin is None or guard.allows(origin) else _response(403, "forbidden")


def _response(status: int, said: str) -> Response:
    return JSONResponse({"status": said}, status, headers={"cache-control": "no-store"})


# -- the JSON log ---------------------------------------------------------------------------------------------------------


class JsonFormatter(logging.Formatter):
    """Writes records as JSON, including a record's `facts`."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= getattr(record, "facts", {})
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)
