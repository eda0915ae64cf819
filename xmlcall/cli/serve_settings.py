"""How `xmlcall serve` serves: its options, over the environment, over a file (`proxy.settings`), over the defaults."""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ..backends.http import is_loopback
from ..errors import UsageError
from .listening import STOP_SECONDS

if TYPE_CHECKING:
    from ..proxy.http.access import Guard
    from ..proxy.settings import ModelSettings, ProxySettings

__all__ = ["HOST", "PORT", "Serving", "serving_of"]

HOST: Final = "127.0.0.1"
PORT: Final = 8485
_KEY: Final = "XMLCALL_API_KEY"
_SHARE: Final = "XMLCALL_SHARE"  # was removed
_VARIABLES: Final = ("XMLCALL_MODEL", "XMLCALL_KEY")
_OF_ONE_MODEL: Final = ("mode", "dialect", "family", "call_threshold", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What was decided."""

    host: str
    port: int
    grace: float
    wait: float
    guard: "Guard"
    models: "tuple[ModelSettings, ...]" = ()
    config: Path | None = None
    log_format: str = "text"
    open_metrics: bool = False
    traces: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)


def serving_of(options: argparse.Namespace) -> Serving:
    """Decide how to serve."""
    settings = _settings(options)
    said = settings.serve if settings else None
    host = _first(options.host, said and said.host, HOST)
    key = options.api_key if options.api_key is not None else os.environ.get(_KEY, "")
    serving = Serving(
        host=host,
        port=_first(options.port, said and said.port, PORT),
        grace=_first(options.grace, said and said.grace, STOP_SECONDS),
        wait=_first(options.wait, said and said.wait, 0.0),
        guard=_guard(options, settings, host, key),
        models=settings.model if settings else (),
        config=options.config,
        log_format=_first(options.log_format, said and said.log_format, "text"),
        open_metrics=_first(options.open_metrics, said and said.open_metrics, False),
        traces=_first(options.traces, said and said.traces, False),
        secrets=(key,) if key else (),
    )
    _check(options, serving)
    return serving


_Value = TypeVar("_Value")


def _first(given: _Value | None, said: _Value | None, usual: _Value) -> _Value:
    return given if given is not None else said if said is not None else usual


def _settings(options: argparse.Namespace) -> "ProxySettings | None":
    """Read the settings, if there are any; without them nothing of what reads them is imported."""
    options.config = options.config or (Path(path).expanduser() if (path := os.environ.get("XMLCALL_CONFIG")) else None)
    is_said = any(name in os.environ for name in _VARIABLES) or any(name.startswith("XMLCALL_SERVE__") for name in os.environ)
    if options.config is None and not is_said:
        return None
    from ..proxy.settings import read_settings

    return read_settings(options.config)


def _guard(options: argparse.Namespace, settings: "ProxySettings | None", host: str, key: str) -> "Guard":
    from ..proxy.http.access import Guard
    from ..proxy.http.keys import key_of

    keys = [key_of(key)] if key else []
    origins, names = [*options.allow_origin], [*options.allow_host]
    if settings is not None:
        from ..proxy.settings import keys_of

        keys += keys_of(settings)
        origins += settings.serve.allow_origin
        names += settings.serve.allow_host
    if not is_loopback(host) and not keys and not options.no_api_key:
        raise UsageError(f"--host {host} lets other machines call: set {_KEY}, or say --no-api-key if everybody may")
    return Guard(keys=tuple(keys), origins=tuple(origins), hosts=tuple(names) if is_loopback(host) else ("*",))


def _check(options: argparse.Namespace, serving: Serving) -> None:
    if serving.models and (given := [name for name in _OF_ONE_MODEL if getattr(options, name)]):
        option = "--" + given[0].replace("_", "-")
        raise UsageError(f"{option} is about one model, and {serving.config or 'the environment'} names models: say it there")
    if serving.models and options.model != "local":
        raise UsageError(f"--model: {serving.config or 'the environment'} names the models already: leave one of them out")
    if os.environ.get(_SHARE):
        raise UsageError(f"{_SHARE} was removed: unset it, and have a balancer keep a client on one process (docs/scale.md)")
