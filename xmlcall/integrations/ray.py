"""The proxy as an application of Ray Serve: as many replicas as there are open streams for, on any node of a cluster.

    serve run xmlcall.integrations.ray:app model=http://127.0.0.1:8080/v1 max_replicas=4
    serve.run(app(model="http://127.0.0.1:8080/v1", max_replicas=4))

What travels to a replica is `Settings`, plain data. The engine and the ASGI app are made inside the replica, so nothing that
holds a connection is ever pickled. Ray passes each message of an answer on as it is sent; nothing is gathered on the way.

Ray tells a replica that it has to stop by waiting for its requests to end, and by killing it when that takes too long. It has no
hook for the beginning of that time, so `_stopping` looks at the flag that Ray's own code keeps. Where a version of Ray has no
such flag, a stream that is not whole ends as with a replica that dies: the connection is dropped.

Secrets are no settings: Ray shows those on its dashboard. A replica reads `XMLCALL_API_KEY` of its environment, or the keys of
`config`, a file on its node.
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

try:
    import ray
    from ray import serve
except ImportError as error:
    raise UsageError(f"Ray Serve is not installed ({error}): pip install 'xmlcall[ray]'") from error

from ..backends.connect import connect
from ..hosts.base import Host
from ..proxy.app import app_of
from ..proxy.configured import configured_app
from ..proxy.engine.engine import Engine
from ..proxy.http.access import Guard, key_of
from ..proxy.http.callers import serving
from ..proxy.http.exchange import Ending

__all__ = ["Proxy", "RaySettings", "app"]

log = logging.getLogger("xmlcall.proxy")

LOOK_SECONDS: Final = 0.2  # between two looks at whether the replica has to stop
DRAIN_SECONDS: Final = 0.5  # between two of Ray's looks at whether its requests have ended
TELL_SECONDS: Final = 5.0  # for telling callers that their streams end, behind the time of grace
HEALTH_SECONDS: Final = 30.0  # that the event loop of a replica may take to answer


# Settings of the deployment, which say nothing of models and callers.
_BESIDE_CONFIG: Final = frozenset(
    {
        "autoscaling",
        "config",
        "grace",
        "max_ongoing_requests",
        "max_queued_requests",
        "max_replicas",
        "min_replicas",
        "num_cpus",
        "target_ongoing_requests",
    }
)


class RaySettings(BaseModel):
    """What a replica is made of; `serve run` reads each as `name=value`, and a list with commas.

    Args:
        model: as for `xmlcall serve --model`: of a server, mostly, whose address every node can reach; "" where `config` says it.
        config: a file with several models and keys (`xmlcall.toml`), in the same place on every node; "" for none. It says then
            all that has to do with models and callers.
        mode: as for `create_app`; the others of this group too.
        mcp: a file with MCP servers whose tools the replica runs itself, in the same place on every node; "" for none. Rounds of
            these tools are kept in its memory, so there is one replica then.
        allow: globs over `server.tool`: which of these tools are offered and run.
        origins: web pages that may call.
        allowed_hosts: names under which callers reach Ray's HTTP proxies, besides this machine's; `*` for all.
        min_replicas: that always run.
        max_replicas: at most.
        target_ongoing_requests: open answers a replica that Ray aims at: above, it starts replicas, below, it stops some.
        max_ongoing_requests: open answers that a replica takes at most; further ones wait.
        max_queued_requests: that wait at most, at each of Ray's HTTP proxies; further ones get status 503. -1 for no limit.
        num_cpus: of a replica, for Ray's placing of it; one event loop uses no more than one.
        grace: seconds that answers under way have when their replica has to stop, also since fewer are enough; what is not whole
            then ends with an error. A replica without any stops at once.
        autoscaling: more of Ray's `autoscaling_config`, such as `{"downscale_delay_s": 60}`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""
    config: str = ""
    mode: Literal["auto", "xml", "native"] = "auto"
    dialect: str = "function_calls"
    lang: str = "en"
    family: str = "list"
    reminder: bool = True
    stream_arguments: bool = False
    strict: bool = False
    tool_tokens: int | None = None
    mcp: str = ""
    allow: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int = Field(default=4, ge=1)
    target_ongoing_requests: float = Field(default=20, gt=0)
    max_ongoing_requests: int = Field(default=50, ge=1)
    max_queued_requests: int = Field(default=100, ge=-1)
    num_cpus: float = Field(default=1, ge=0)
    grace: float = Field(default=60, ge=0)
    autoscaling: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_says_it(self) -> Self:
        if bool(self.model) == bool(self.config):
            raise ValueError("expected either a model or a config")
        if self.mcp and max(self.min_replicas, self.max_replicas) > 1:
            raise ValueError("mcp: rounds of its tools are kept in the memory of one replica: write max_replicas=1")
        if self.config and (said := sorted(self.model_fields_set - _BESIDE_CONFIG)):
            raise ValueError(f"config says what models and callers are: write {', '.join(said)} there, or leave it out")
        return self

    @field_validator("allow", "origins", "allowed_hosts", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value


@serve.ingress()
class Proxy:
    """A replica.

    Args:
        settings: of the application.
    """

    def __init__(self, settings: RaySettings) -> None:
        self._settings, self._ending, self._is_open = settings, Ending(), False

    def __serve_build_asgi_app__(self) -> Starlette:
        """Make the app; Ray asks for it in the replica, once."""
        if self._settings.config:
            return configured_app(self._settings.config, ending=self._ending, beside=self._working())
        return self._app_of_model()

    def _app_of_model(self) -> Starlette:
        settings, key = self._settings, os.environ.get("XMLCALL_API_KEY", "")
        engine = _engine(settings)

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with engine, self._working():
                yield

        guard = Guard(keys=(key_of(key),) if key else (), origins=settings.origins, hosts=settings.allowed_hosts)
        return app_of(serving(engine), guard, lifespan=lifespan, ending=self._ending)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Answer, and cut off what is under way when the replica has to stop."""
        cutting = asyncio.create_task(_cut_in_time(_stopping(), self._ending, self._settings.grace))
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            cutting.cancel()

    async def check_health(self) -> None:
        """Answer from the event loop that answers callers: one that hangs is replaced. A model server that is down is no reason.

        Raises:
            RuntimeError: the engine is not open.
        """
        if not self._is_open:
            raise RuntimeError("the engine is not open")


def _engine(settings: RaySettings) -> Engine:
    return Engine(
        connect(settings.model),
        _hosts(settings),
        mode=settings.mode,
        allowed=settings.allow,
        stream_arguments=settings.stream_arguments,
        dialect=settings.dialect,
        lang=settings.lang,
        family=settings.family,
        reminder=settings.reminder,
        strict=settings.strict,
        tool_tokens=settings.tool_tokens,
    )


def _hosts(settings: RaySettings) -> list[Host]:
    """Make the hosts of the configured MCP servers."""
    if not settings.mcp:
        return []
    from ..hosts.config import load_servers
    from ..hosts.mcp.host import McpHost

    return [McpHost(server) for server in load_servers(settings.mcp).values()]


async def _cut_in_time(is_stopping: Callable[[], bool], ending: Ending, grace: float) -> None:
    """Cut off what is still under way when the time of grace is over."""
    while not is_stopping():  # noqa: ASYNC110 - the flag is Ray's, and no event
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(grace)
    ending.begin()


def _stopping() -> Callable[[], bool]:
    """Return what says whether Ray waits for this replica to end."""
    worker = ray._private.worker.global_worker
    replica: Any = getattr(worker.actors.get(worker.actor_id), "_replica_impl", None)
    if not hasattr(replica, "_shutting_down"):
        log.warning(
            "Ray %s does not tell when a replica has to stop: streams under way then end without our error", ray.__version__
        )
        return lambda: False
    return lambda: bool(replica._shutting_down)


def app(settings: RaySettings | None = None, /, **given: Any) -> serve.Application:
    """Make the application, for `serve run xmlcall.integrations.ray:app name=value ...`, a configuration file, or `serve.run`.

    Args:
        settings: all of them; or None.
        given: the same, one by one.

    Raises:
        UsageError: a setting is unknown, missing or of another type.
    """
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
    bound: serve.Application = deployment(Proxy).bind(settings)
    return bound


# `serve run` takes a function of exactly one parameter, and makes of the words that it was given what that parameter is.
app.__signature__ = Signature([Parameter("settings", Parameter.POSITIONAL_ONLY, annotation=RaySettings)])  # type: ignore[attr-defined]
