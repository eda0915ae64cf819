"""The models of `xmlcall serve`: opened, told of, served until a signal comes."""

import argparse
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from ..agent.policy_file import load_rules, read_rules
from ..agent.rules import Rules, allowing
from ..turn.attempts import RepairPolicy
from .exits import OK, complain
from .listening import serve_app, url_of
from .open_model import connected, model_notices, profile_words, use_profile
from .options import asking_of
from .plain import visible
from .serve_observed import observing, page_beside, recording
from .servers import described, hosts_of, servers_of
from .waiting import OpeningStatus, error_console
from .words import speaker

if TYPE_CHECKING:
    from ..proxy.engine.engine import Engine
    from ..proxy.engine.own_tools import OwnTools
    from ..proxy.http.callers import ServedModels
    from .serve import Serving

__all__ = ["announce", "serve"]

COLLECT_OBJECTS: Final = 50_000  # that are new before the garbage collector looks; CPython's own number is 700


async def serve(options: argparse.Namespace, serving: "Serving", listener: socket.socket, ready: Callable[[str], None]) -> int:
    """Open the models and serve them."""
    from ..proxy.app import app_of
    from ..proxy.engine.own_rounds import RoundsKept
    from ..proxy.http.ending import Ending

    async with contextlib.AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(recording(options, serving.secrets))
        observer = await stack.enter_async_context(observing(traces=serving.traces, open_metrics=serving.open_metrics))
        own = _own_tools(options, serving)
        if serving.wait:
            await stack.enter_async_context(own)  # or each try to open the model would start its servers anew
        more = {
            "stream_arguments": options.stream_arguments,
            "strict": options.strict,
            "lang": options.lang,
            "reminder": options.reminder,
            "tool_tokens": options.tool_tokens,
            "repair": RepairPolicy(asks_for_unsaid=True),
            "recorder": recorder,
            "rounds": RoundsKept(),
        }
        opening = _many(serving, own, more) if serving.models else _one(options, own, more, wait=serving.wait)
        served = await stack.enter_async_context(opening)
        if own:
            for line in await _offered(served.engine):
                complain(line)
        _collect_seldom()
        routes = page_beside(served.engine, serving.guard, url_of(listener)) if options.ui else ()
        ready(", ".join(model.name for model in served.models))
        ending = Ending()
        app = app_of(served, serving.guard, beside=routes, ending=ending, observer=observer)

        def on_stop() -> None:
            observer.stop()
            if recorder:
                recorder.close()

        await serve_app(app, listener, on_stop, grace=serving.grace, on_over=ending.begin)
    return OK


def _collect_seldom() -> None:
    """Have the garbage collector look seldom, and not at what lives as long as the server.

    Every caller waits while it looks, and the more streams are open, the longer. It has little to find: no request is left in a
    cycle (tests/proxy/test_proxy_pings.py).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS, *gc.get_threshold()[1:])


@contextlib.asynccontextmanager
async def _many(serving: "Serving", own: "OwnTools", more: dict[str, Any]) -> AsyncIterator["ServedModels"]:
    """Open the models of the settings."""
    from ..proxy.configured import models_of, opened
    from ..proxy.http.callers import ServedModels

    models = models_of(serving.models, own, **more)
    async with opened(models, serving.models, wait=serving.wait, tell=complain):
        yield ServedModels(models=models)


@contextlib.asynccontextmanager
async def _one(
    options: argparse.Namespace, own: "OwnTools", more: dict[str, Any], *, wait: float
) -> AsyncIterator["ServedModels"]:
    """Open the model of `--model`."""
    from ..proxy.configured import enter
    from ..proxy.engine.engine import Engine
    from ..proxy.http.callers import serving as served_alone

    opening = OpeningStatus(error_console(), speaker("en"))
    backend = connected(options.model, options.context, opening)
    engine = Engine(backend, own, **more, **asking_of(options, "auto"))
    async with contextlib.AsyncExitStack() as stack:
        async with opening:
            await enter(stack, engine, wait=wait)
        if found := use_profile(options, engine.backend.capabilities.fingerprints):
            engine.ask_by(**asking_of(options, "auto"))
            complain(f"profile: {profile_words(options, found)}")
        if family := engine.backend.capabilities.family:
            complain(f"the model was most likely trained on the format {family}; every format is read")
        for notice in model_notices(engine.backend, options.mode or "auto", speaker("en")):
            complain(notice)
        yield served_alone(engine)


def _own_tools(options: argparse.Namespace, serving: "Serving") -> "OwnTools":
    from ..proxy.engine.own_tools import OwnTools

    if not options.mcp:
        return OwnTools()  # without servers of its own the proxy needs no rules
    servers = servers_of(options)
    for server in servers:
        complain(described(server))
    return OwnTools(hosts_of(servers, options), _rules(options, serving), lang=options.lang)


def _rules(options: argparse.Namespace, serving: "Serving") -> Rules:
    """Return the rules of files and options."""
    loaded = load_rules(options.policy)
    if (path := loaded.passed_over) and path != serving.config:
        complain(speaker("en")("strict_here", file=visible(str(path)), name=visible(path.name)))
    named = read_rules(serving.config).rules if serving.config else ()
    return Rules(rules=(*loaded.rules.rules, *named, *allowing(options.allow, source="--allow").rules))


async def _offered(engine: "Engine") -> list[str]:
    names = [tool.name for tool in await engine.own.listed()]
    if names:
        kept = "what these tools return is kept in this one process: before several, have a balancer keep a client on one"
        return [f"runs itself, without asking: {', '.join(names)}", kept]
    return [
        "none of the servers' tools is allowed, so none is offered: allow some with --allow, for example --allow 'files.read_*', "
        "or by a rule (--policy)"
    ]


def announce(listener: socket.socket, names: str) -> None:
    """Tell the address."""
    url = url_of(listener)
    complain(f"serving {visible(names)}; OpenAI clients: base URL {url}/v1; Anthropic and Ollama clients: {url}; Ctrl-C ends it")
    print(url, flush=True)
