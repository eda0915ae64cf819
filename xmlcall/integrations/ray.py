"""The proxy as a Ray Serve application, whose number of replicas follows the number of open streams, on any node of a cluster.

    serve run xmlcall.integrations.ray:app model=http://127.0.0.1:8080/v1 max_replicas=4
    serve.run(app(model="http://127.0.0.1:8080/v1", max_replicas=4))

Only `RaySettings`, plain data, travel to a replica. The engine and the ASGI app are made inside the replica, so no object with a
connection is ever pickled. Ray passes on each message of an answer as it is sent, without buffering.

To stop a replica, Ray waits for its requests to end, and kills it if that takes too long. Ray has no hook for the start of this
period, so `_stopping` reads a flag in Ray's own code. If a version of Ray lacks this flag, an incomplete stream ends as if the
replica had died: the connection is dropped.

Secrets are not settings, because Ray shows settings on its dashboard. A replica reads `XMLCALL_API_KEY` from its environment, or
the keys from `config`, a file on its node.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from inspect import Parameter, Signature
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from starlette.applications import Starlette

from ..errors import UsageError
from ..installed import missing_extra

try:
    import ray
    from ray import serve
except ImportError as error:
    raise UsageError(missing_extra(f"this needs Ray Serve ({error})", "ray")) from error

from ..backends.connect import connect
from ..hosts.base import Host
from ..proxy.app import app_of
from ..proxy.configured import configured_app
from ..proxy.engine.engine import Engine
from ..proxy.http.access import Guard, key_of, serving
from ..proxy.http.exchange import Ending
from ..turn.asking import Asking, AskingFields

log = logging.getLogger("xmlcall.proxy")

LOOK_SECONDS: Final = 0.2  # between two checks whether the replica has to stop
DRAIN_SECONDS: Final = 0.5  # between two of Ray's checks whether the requests have ended
TELL_SECONDS: Final = 5.0  # for sending the final errors to callers, after the grace period
HEALTH_SECONDS: Final = 30.0  # for the event loop of a replica to respond


# Settings of the deployment, which do not concern models or callers.
_BESIDE: Final = (
    "autoscaling config grace max_ongoing_requests max_queued_requests max_replicas min_replicas num_cpus target_ongoing_requests"
)
_BESIDE_CONFIG: Final = frozenset(_BESIDE.split())


class RaySettings(BaseModel):
    """The settings of the application; `serve run` reads each one as `name=value`, and lists with commas."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""  # as for `xmlcall serve --model`, usually a server whose address every node can reach
    # In place of a model, a file with all settings for models and callers (`xmlcall.toml`), in the same place on every node.
    config: str = ""
    # As for `create_app`.
    mode: Literal["auto", "xml", "native"] = "auto"
    dialect: str = "function_calls"
    lang: str = "en"
    family: str = "list"
    reminder: bool = True
    strict: bool = False
    tool_tokens: int | None = None
    # A file with MCP servers whose tools the replica runs itself, in the same place on every node. Rounds of these tools are kept
    # in the replica's memory, so there can be only one replica.
    mcp: str = ""
    allow: tuple[str, ...] = ()  # globs over `server.tool` that select the tools to offer and run
    origins: tuple[str, ...] = ()  # web pages that may call
    # Names under which callers reach Ray's HTTP proxies, besides this machine's own; `*` for all.
    allowed_hosts: tuple[str, ...] = ()
    min_replicas: int = Field(default=1, ge=1)  # that always run
    max_replicas: int = Field(default=4, ge=1)
    # Ray's target for open answers per replica: above it, Ray starts replicas; below, it stops some.
    target_ongoing_requests: float = Field(default=20, gt=0)
    max_ongoing_requests: int = Field(default=50, ge=1)  # open answers per replica; further requests wait
    # Waiting requests at each of Ray's HTTP proxies; others get status 503. -1 for no limit.
    max_queued_requests: int = Field(default=100, ge=-1)
    num_cpus: float = Field(default=1, ge=0)  # that Ray reserves for a replica; one event loop uses at most one
    # Seconds that answers in progress get when their replica has to stop, also when Ray scales down; incomplete answers then end
    # with an error. A replica without open answers stops at once.
    grace: float = Field(default=60, ge=0)
    autoscaling: dict[str, Any] = {}  # further keys of Ray's `autoscaling_config`, such as `{"downscale_delay_s": 60}`

    @model_validator(mode="after")
    def _one_says_it(self) -> Self:
        if bool(self.model) == bool(self.config):
            raise ValueError("expected either a model or a config")
        if self.mcp and max(self.min_replicas, self.max_replicas) > 1:
            raise ValueError("mcp: rounds of its tools are kept in the memory of one replica: write max_replicas=1")
        if self.config and (given := sorted(self.model_fields_set - _BESIDE_CONFIG)):
            raise ValueError(f"config holds the settings of models and callers: write {', '.join(given)} there, or leave it out")
        return self

    @field_validator("allow", "origins", "allowed_hosts", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value


@serve.ingress()
class RayProxy:
    def __init__(self, settings: RaySettings) -> None:
        self._settings, self._ending, self._is_open = settings, Ending(), False

    def __serve_build_asgi_app__(self) -> Starlette:
        """Make the app; Ray calls this once, in the replica."""
        if self._settings.config:
            return configured_app(self._settings.config, ending=self._ending, beside=self._working())
        return self._app_of_model()

    def _app_of_model(self) -> Starlette:
        settings, key = self._settings, os.environ.get("XMLCALL_API_KEY", "")
        engine = Engine(
            connect(settings.model),
            _hosts(settings),
            allowed=settings.allow,
            asking=Asking(**settings.model_dump(include=set(AskingFields.__annotations__))),
            strict=settings.strict,
        )

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with engine, self._working():
                yield

        guard = Guard(keys=(key_of(key),) if key else (), origins=settings.origins, hosts=settings.allowed_hosts)
        return app_of(serving(engine), guard, lifespan=lifespan, ending=self._ending)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Mark the replica as open, and cut off answers in progress when it has to stop."""
        cutting = asyncio.create_task(_cut_in_time(_stopping(), self._ending, self._settings.grace))
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            cutting.cancel()

    async def check_health(self) -> None:
        """Respond from the event loop that serves callers, so that Ray replaces a hanging replica; only the replica counts."""
        if not self._is_open:
            raise RuntimeError("the engine is not open")


def _hosts(settings: RaySettings) -> list[Host]:
    if not settings.mcp:
        return []
    from ..hosts.config import load_servers
    from ..hosts.mcp.host import McpHost

    return [McpHost(server) for server in load_servers(settings.mcp).values()]


async def _cut_in_time(is_stopping: Callable[[], bool], ending: Ending, grace: float) -> None:
    while not is_stopping():  # noqa: ASYNC110 - Ray has a flag, not an event
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(grace)
    ending.begin()


def _stopping() -> Callable[[], bool]:
    """Return a function that says whether Ray waits for this replica to end."""
    worker = ray._private.worker.global_worker
    replica: Any = getattr(worker.actors.get(worker.actor_id), "_replica_impl", None)
    if not hasattr(replica, "_shutting_down"):
        log.warning(
            "Ray %s does not report when a replica has to stop: open streams will then end without our error", ray.__version__
        )
        return lambda: False
    return lambda: bool(replica._shutting_down)


def app(settings: RaySettings | None = None, /, **given: Any) -> serve.Application:
    """Make the application, for `serve run xmlcall.integrations.ray:app name=value ...`, a configuration file, or `serve.run`."""
    try:
        settings = settings or RaySettings(**given)
    except ValidationError as error:
        raise UsageError(f"{error}") from None
    deployment = serve.deployment(
        name="xmlcall",
        max_ongoing_requests=settings.max_ongoing_requests,
        max_queued_requests=settings.max_queued_requests,
        autoscaling_config={
            **settings.autoscaling,
            "min_replicas": settings.min_replicas,
            "max_replicas": max(settings.max_replicas, settings.min_replicas),
            "target_ongoing_requests": settings.target_ongoing_requests,
        },
        ray_actor_options={"num_cpus": settings.num_cpus},
        health_check_timeout_s=HEALTH_SECONDS,
        graceful_shutdown_wait_loop_s=DRAIN_SECONDS,
        graceful_shutdown_timeout_s=settings.grace + TELL_SECONDS,
    )
    bound: serve.Application = deployment(RayProxy).bind(settings)
    return bound


# `serve run` requires a function with exactly one parameter, and converts its arguments into that parameter's type.
app.__signature__ = Signature([Parameter("settings", Parameter.POSITIONAL_ONLY, annotation=RaySettings)])  # type: ignore[attr-defined]
