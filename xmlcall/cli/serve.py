"""`xmlcall serve`: the proxy as a program.

Options override the environment, which overrides a file (`proxy.settings`), which overrides the defaults. The models are opened
and announced, and then served until a signal arrives.
"""

import argparse
import contextlib
import gc
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ..agent.policy_file import load_rules, read_rules
from ..agent.rules import Rules, allowing
from ..backends.http import is_loopback
from ..errors import UsageError
from ..profiles.profile import PROFILED, asking_by
from ..turn.asking import AskingFields
from ..turn.attempts import RepairPolicy
from .exits import OK, complain, run_async
from .listening import STOP_SECONDS, listening, serve_app, url_of
from .open_model import connected, model_notices, profile_of, profile_words, way_words
from .options import add_asking_options, add_mcp_option, add_model_choice, add_policy_option, add_repeated, number
from .plain import visible
from .serve_observed import add_observed_options, add_page_options, observing, page_beside, recording, start_log
from .servers import described, hosts_of, servers_of
from .waiting import OpeningStatus, error_console
from .words import speaker

if TYPE_CHECKING:
    from ..proxy.engine.engine import Engine
    from ..proxy.engine.own_tools import OwnTools
    from ..proxy.http.access import Guard, ServedModels
    from ..proxy.settings import ModelSettings, ProxySettings

DESCRIPTION = "Run a proxy that gives any model tool calling. It serves the APIs of OpenAI, Anthropic and Ollama."
EPILOG = """examples:
  xmlcall serve                                              # a small local model, fetched on first use
  xmlcall serve --model ollama:gemma3:4b
  xmlcall serve --model ollama                               # all models of Ollama, by name
  xmlcall serve --model http://127.0.0.1:8080/v1 --mcp servers.json --allow 'files.read_*'
  xmlcall serve --config xmlcall.toml                        # several models and keys
  OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client       # and any API key

Clients send `tools` as to any model with function calling. With one model, the name that they send does not matter. With several
(`ollama`, a URL whose server lists several, --config), they send a name that /v1/models lists. With --mcp, the proxy also runs
tools of those servers itself. It cannot ask you before a call, so it offers and runs only tools that --allow names or rules
allow (--policy, xmlcall.toml). The results of these tools are kept in one process, so a balancer in front of several
processes must keep each client on the same one. The address is printed to standard output, everything else to standard error.
docs/clients.md has settings for many clients.
"""

COMMON = "--model --profile --ask --mcp --allow --host --port --api-key --config --ui --record"
_HOST: Final = "127.0.0.1"
_PORT: Final = 8485
_KEY: Final = "XMLCALL_API_KEY"
NAMES_SHOWN: Final = 10  # most names of models in a message
COLLECT_OBJECTS: Final = 50_000  # new objects before the garbage collector runs; CPython's default is 700


def configure(parser: argparse.ArgumentParser) -> None:
    from ..turn.asking import SERVED

    model = parser.add_argument_group("the model")
    add_model_choice(model)
    add_asking_options(model, SERVED)
    model.add_argument(
        "--strict",
        action="store_true",
        help="refuse requests that deviate from their wire format in harmless ways, instead of correcting them",
    )
    tools = parser.add_argument_group("tools that the proxy runs itself")
    add_mcp_option(tools, "the MCP servers")
    add_repeated(tools, "--allow", "GLOB", "offer and run these tools: a glob over server.tool such as 'files.read_*'")
    add_policy_option(tools)
    tools.add_argument(
        "--timeout", type=number(float, above=0), metavar="SECONDS", help="time for a server to start (default: 30)"
    )
    _add_network_options(parser.add_argument_group("network and access"))
    _add_many(parser.add_argument_group("many models and keys"))
    add_page_options(parser.add_argument_group("recording"))
    add_observed_options(parser.add_argument_group("logs and metrics"))


def _add_network_options(network: argparse._ArgumentGroup) -> None:
    network.add_argument("--host", help=f"address to listen on (default: {_HOST}, this machine only)")
    network.add_argument("--port", type=number(int, least=0), metavar="N", help=f"port; 0 takes a free one (default: {_PORT})")
    network.add_argument(
        "--api-key", metavar="KEY", help="key that every request must carry; better set in the variable XMLCALL_API_KEY"
    )
    network.add_argument(
        "--no-api-key", action="store_true", help="with a --host that other machines can reach: let anyone call without a key"
    )
    origin = "origin of a web page that may call, such as http://localhost:3000; without it none may"
    add_repeated(network, "--allow-origin", "URL", origin)
    add_repeated(network, "--allow-host", "NAME", "host name that clients use for this server, besides its address")


def _add_many(many: argparse._ArgumentGroup) -> None:
    many.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file with several models, keys and rules about tools (docs/scale.md); options and variables such as "
        "XMLCALL_SERVE__PORT take priority over it",
    )
    many.add_argument(
        "--wait",
        type=number(float, least=0),
        metavar="SECONDS",
        help="how long to wait for a model's server to start (default: 0, which fails at once)",
    )
    many.add_argument(
        "--grace",
        type=number(float, least=0),
        metavar="SECONDS",
        help="time for running answers to finish when the server is stopped; answers that are still incomplete end with an error "
        f"(default: {STOP_SECONDS:g})",
    )


def execute(options: argparse.Namespace) -> int:
    serving = _serving_of(options)
    if (options.allow or options.policy) and not options.mcp:
        option = "--allow names" if options.allow else "--policy has rules about"
        raise UsageError(f"{option} tools of servers: name the servers with --mcp")
    start_log(serving.log_format)
    with listening(serving.host, serving.port) as listener:
        return run_async(_serve(options, serving, listener))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    host: str
    guard: "Guard"
    ask: Mapping[str, Any]
    port: int = _PORT
    grace: float = STOP_SECONDS
    wait: float = 0.0
    models: "tuple[ModelSettings, ...]" = ()
    config: Path | None = None
    log_format: str = "text"
    open_metrics: bool = False
    traces: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)


def _serving_of(options: argparse.Namespace) -> _Serving:
    from ..proxy.settings import read_settings

    options.config = options.config or (Path(path).expanduser() if (path := os.environ.get("XMLCALL_CONFIG")) else None)
    settings = read_settings(options.config)
    said = {
        **settings.serve.model_dump(exclude_none=True),
        **{name: given for name, given in vars(options).items() if given is not None},
    }
    host = said.get("host", _HOST)
    key = options.api_key if options.api_key is not None else os.environ.get(_KEY, "")
    given = {name: said[name] for name in ("port", "grace", "wait", "log_format", "open_metrics", "traces") if name in said}
    serving = _Serving(
        host=host,
        guard=_guard(options, settings, host, key),
        ask={**settings.ask, **options.ask},
        models=tuple(row.asked(settings.ask, options.ask) for row in settings.model),
        config=options.config,
        secrets=(key,) if key else (),
        **given,
    )
    _check(options, serving)
    return serving


def _guard(options: argparse.Namespace, settings: "ProxySettings", host: str, key: str) -> "Guard":
    from ..proxy.http.access import Guard, key_of
    from ..proxy.settings import keys_of

    keys = (*([key_of(key)] if key else []), *keys_of(settings))
    if not is_loopback(host) and not keys and not options.no_api_key:
        raise UsageError(f"--host {host} lets other machines call: set {_KEY}, or pass --no-api-key to let anyone call")
    origins = (*options.allow_origin, *settings.serve.allow_origin)
    return Guard(
        keys=keys, origins=origins, hosts=(*options.allow_host, *settings.serve.allow_host) if is_loopback(host) else ("*",)
    )


def _check(options: argparse.Namespace, serving: _Serving) -> None:
    given = [f"--ask {name}" for name in PROFILED if name in options.ask] + (["--context"] if options.context else [])
    if serving.models and given:
        raise UsageError(
            f"{given[0]} is for a single model, but {serving.config or 'the environment'} names models: set it there"
        )
    if serving.models and options.model != "local":
        raise UsageError(f"--model: {serving.config or 'the environment'} names the models already: leave one of them out")


async def _serve(options: argparse.Namespace, serving: _Serving, listener: socket.socket) -> int:
    from ..proxy.app import app_of
    from ..proxy.http.exchange import Ending

    async with contextlib.AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(recording(options, serving.secrets))
        observer = await stack.enter_async_context(observing(traces=serving.traces, open_metrics=serving.open_metrics))
        own = _own_tools(options, serving)
        if serving.wait:
            await stack.enter_async_context(own)  # otherwise each attempt to open the model would restart its servers
        more = {"strict": options.strict, "repair": RepairPolicy(asks_for_unsaid=True), "recorder": recorder}
        rows = serving.models or await _all_of_a_server(options, serving)
        opening = _many(rows, serving, own, more) if rows else _one(options, serving, own, more)
        served = await stack.enter_async_context(opening)
        if own:
            for line in await _offered(served.engine):
                complain(line)
        _collect_seldom()
        routes = page_beside(served, serving.guard, url_of(listener)) if options.ui else ()
        announce = partial(_announce, url_of(listener), [model.name for model in served.models])
        ending = Ending()
        app = app_of(served, serving.guard, beside=routes, ending=ending, observer=observer)

        def on_stop() -> None:
            observer.is_stopping = True
            if recorder:
                recorder.close()

        await serve_app(app, listener, on_stop, grace=serving.grace, on_over=ending.begin, announce=announce)
    return OK


def _collect_seldom() -> None:
    """Run the garbage collector rarely, and never on objects that live as long as the server.

    Every client waits while it runs, and it takes longer the more streams are open. It has little to find, because no request
    ends in a reference cycle (tests/proxy/test_proxy_pings.py).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS, *gc.get_threshold()[1:])


async def _all_of_a_server(options: argparse.Namespace, serving: _Serving) -> "tuple[ModelSettings, ...]":
    """Return the row of a settings file that `--model` stands for, if it names a server and not one of its models."""
    from ..proxy.configured import all_at

    if not await all_at(options.model, wait=serving.wait):
        return ()
    from ..proxy.http.access import ALL
    from ..proxy.settings import ModelSettings

    row = ModelSettings(name=ALL, address=options.model, profile=options.profile, context=options.context)
    return (row.asked(serving.ask),)


@contextlib.asynccontextmanager
async def _many(
    rows: "Sequence[ModelSettings]", serving: _Serving, own: "OwnTools", more: dict[str, Any]
) -> AsyncIterator["ServedModels"]:
    from ..proxy.configured import models_of, opened
    from ..proxy.http.access import ServedModels

    models = models_of(rows, own, tell=complain, **more)
    async with opened(models, rows, wait=serving.wait, tell=complain):
        yield ServedModels(rows=models)


@contextlib.asynccontextmanager
async def _one(
    options: argparse.Namespace, serving: _Serving, own: "OwnTools", more: dict[str, Any]
) -> AsyncIterator["ServedModels"]:
    from ..proxy.configured import USUAL, enter
    from ..proxy.engine.engine import Engine
    from ..proxy.http.access import serving as served_alone

    opening = OpeningStatus(error_console(), speaker("en"))
    backend = connected(options.model, options.context, opening)
    given = cast(AskingFields, serving.ask)
    engine = Engine(backend, own, asking=asking_by(USUAL, given), **more)
    async with contextlib.AsyncExitStack() as stack:
        async with opening:
            await enter(stack, engine, wait=serving.wait)
        if found := profile_of(options, engine.backend.capabilities.fingerprints):
            asking = asking_by(USUAL, given, found.profile)
            engine.ask_by(**asdict(asking))
            complain(f"profile: {profile_words(asking, found)}")
        if family := engine.backend.capabilities.family:
            complain(f"the model was most likely trained on the format {family}; every format is read")
        for notice in model_notices(engine.backend, engine.asking.mode, speaker("en")):
            complain(notice)
        complain(way_words(engine.known_way()))
        yield served_alone(engine)


def _own_tools(options: argparse.Namespace, serving: _Serving) -> "OwnTools":
    from ..proxy.engine.own_tools import OwnTools

    if not options.mcp:
        return OwnTools()  # without servers of its own the proxy needs no rules
    servers = servers_of(options)
    for server in servers:
        complain(described(server))
    return OwnTools(hosts_of(servers, options), _rules(options, serving), lang=serving.ask.get("lang", "en"))


def _rules(options: argparse.Namespace, serving: _Serving) -> Rules:
    loaded = load_rules(options.policy)
    if (path := loaded.passed_over) and path != serving.config:
        complain(speaker("en")("strict_here", file=visible(str(path)), name=visible(path.name)))
    named = read_rules(serving.config).rules if serving.config else ()
    return Rules(rules=(*loaded.rules.rules, *named, *allowing(options.allow, source="--allow").rules))


async def _offered(engine: "Engine") -> list[str]:
    names = [tool.name for tool in await engine.own.listed()]
    if names:
        kept = "results of these tools are kept in this process: with several processes, have a balancer keep each client on one"
        return [f"runs itself, without asking: {', '.join(names)}", kept]
    return [
        "none of the servers' tools is allowed, so none is offered: allow some with --allow, for example --allow 'files.read_*', "
        "or by a rule (--policy)"
    ]


def _announce(url: str, names: Sequence[str]) -> None:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    shown = visible(", ".join(names[:NAMES_SHOWN]))
    complain(f"serving {shown}{more}; OpenAI clients: base URL {url}/v1; Anthropic and Ollama clients: {url}; Ctrl-C ends it")
    print(url, flush=True)
