"""`xmlcall serve`: the proxy as a program.

How it serves is decided by its options, over the environment, over a file (`proxy.settings`), over the defaults.
"""

import argparse
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ..backends.http import is_loopback
from ..errors import UsageError
from .exits import run_async
from .listening import STOP_SECONDS, listening
from .options import (
    add_call_threshold,
    add_dialect_option,
    add_family_option,
    add_mcp_option,
    add_model_choice,
    add_policy_option,
    add_tool_tokens,
    number,
)
from .serve_engines import announce, serve
from .serve_observed import add_observed_options, add_page_options, start_log

if TYPE_CHECKING:
    from ..proxy.http.access import Guard
    from ..proxy.settings import ModelSettings, ProxySettings

__all__ = ["DESCRIPTION", "EPILOG", "Serving", "configure", "execute"]

DESCRIPTION = "Give tool calling to the clients of any model: a server that speaks OpenAI's, Anthropic's and Ollama's APIs."
EPILOG = """examples:
  xmlcall serve                                              # a small local model, fetched on first use
  xmlcall serve --model ollama:gemma3:4b
  xmlcall serve --model http://127.0.0.1:8080/v1 --mcp servers.json --allow 'files.read_*'
  xmlcall serve --config xmlcall.toml                        # several models and keys
  OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client       # and any API key

Clients send their tools as to a model that has function calling; whatever model they name is served by MODEL. With --mcp the
proxy also runs tools of those servers itself; nobody is asked, so it offers and runs only what --allow names, and what rules
allow (--policy, xmlcall.toml). What these tools return is kept in the one process: before several, a balancer has to keep a
client on one. The address is printed to standard output, everything else to standard error. docs/clients.md has
settings for many clients.
"""

_HOST: Final = "127.0.0.1"
_PORT: Final = 8485
_KEY: Final = "XMLCALL_API_KEY"
_SHARE: Final = "XMLCALL_SHARE"  # was removed
_VARIABLES: Final = ("XMLCALL_MODEL", "XMLCALL_KEY")
_OF_ONE_MODEL: Final = ("mode", "dialect", "family", "call_threshold", "context")
_Value = TypeVar("_Value")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ..prompting.templates import LANGUAGES

    model = parser.add_argument_group("the model")
    add_model_choice(model)
    model.add_argument(
        "--mode",
        choices=("auto", "xml", "native"),
        help="xml: tools are offered in the prompt and calls read from the text; native: the model server's own function "
        "calling; auto: native where a trial call works (default: that of the profile, else auto)",
    )
    add_dialect_option(model)
    add_family_option(model)
    model.add_argument("--stream-arguments", action="store_true", help="send a call's arguments while the model writes them")
    model.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the tool prompt (default: %(default)s)")
    model.add_argument("--no-reminder", dest="reminder", action="store_false", help="no reminder of the tools after a question")
    add_call_threshold(model)
    add_tool_tokens(model)
    model.add_argument(
        "--strict",
        action="store_true",
        help="refuse requests that leave their wire format where it cannot matter, instead of putting them right",
    )
    tools = parser.add_argument_group("tools that the proxy runs itself")
    add_mcp_option(tools, "the servers")
    tools.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="GLOB",
        help="offer and run these tools: a glob over server.tool such as 'files.read_*' (may be repeated)",
    )
    add_policy_option(tools)
    tools.add_argument(
        "--timeout", type=number(float, above=0), metavar="SECONDS", help="time for a server to start (default: 30)"
    )
    _add_network_options(parser.add_argument_group("who may call"))
    _add_many(parser.add_argument_group("many models and keys"))
    add_page_options(parser.add_argument_group("what is recorded"))
    add_observed_options(parser.add_argument_group("how it is seen from outside"))


def _add_network_options(network: argparse._ArgumentGroup) -> None:
    network.add_argument("--host", help=f"address to listen on (default: {_HOST}, this machine only)")
    network.add_argument("--port", type=number(int, least=0), metavar="N", help=f"port; 0 takes a free one (default: {_PORT})")
    network.add_argument(
        "--api-key", metavar="KEY", help="every request has to carry this key; better given as the variable XMLCALL_API_KEY"
    )
    network.add_argument(
        "--no-api-key", action="store_true", help="let everybody call who can reach an address of other machines"
    )
    network.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="web page that may call, such as http://localhost:3000 (may be repeated; by default none may)",
    )
    network.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name under which this server is called, besides its address",
    )


def _add_many(many: argparse._ArgumentGroup) -> None:
    many.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file with several models, with keys, and with rules about tools (docs/scale.md); options "
        "and variables such as XMLCALL_SERVE__PORT go before it",
    )
    many.add_argument(
        "--wait",
        type=number(float, least=0),
        metavar="SECONDS",
        help="wait so long for a model's server to come (default: 0, with an error at once)",
    )
    many.add_argument(
        "--grace",
        type=number(float, least=0),
        metavar="SECONDS",
        help="time for the answers under way when the server is stopped; what is not whole then ends with an error "
        f"(default: {STOP_SECONDS:g})",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    serving = _serving_of(options)
    if (options.allow or options.policy) and not options.mcp:
        option = "--allow names" if options.allow else "--policy has rules about"
        raise UsageError(f"{option} tools of servers: give them with --mcp")
    start_log(serving.log_format)
    with listening(serving.host, serving.port) as listener:
        return run_async(serve(options, serving, listener, partial(announce, listener)))


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


def _serving_of(options: argparse.Namespace) -> Serving:
    """Decide how to serve."""
    settings = _settings(options)
    said = settings.serve if settings else None
    host = _first(options.host, said and said.host, _HOST)
    key = options.api_key if options.api_key is not None else os.environ.get(_KEY, "")
    serving = Serving(
        host=host,
        port=_first(options.port, said and said.port, _PORT),
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
