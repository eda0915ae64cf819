"""`xmlcall serve`: the proxy as a program."""

import argparse
import contextlib
import gc
import os
from typing import TYPE_CHECKING

from ..agent.policy_file import load_rules
from ..agent.rules import Rules, allowing
from ..backends.connect import connect
from ..backends.http import is_loopback
from ..errors import UsageError
from .exits import OK, complain, run_async
from .listening import STOP_SECONDS, listening, serve_app, url_of
from .notices import model_notices
from .options import (
    add_call_threshold,
    add_constrain,
    add_dialect_option,
    add_family_option,
    add_mcp_option,
    add_model_choice,
    add_policy_option,
    add_tool_tokens,
    asking_of,
    constrain_of,
    number,
)
from .plain import visible
from .profile_option import profile_words, use_profile
from .serve_observed import add_observed_options, observing, start_log
from .serve_page import add_page_options, page_beside, recording
from .servers import described, hosts_of, servers_of
from .waiting import OpeningStatus, error_console
from .words import speaker

if TYPE_CHECKING:
    from ..proxy.engine.engine import Engine

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Give tool calling to the clients of any model: a server that speaks OpenAI's, Anthropic's and Ollama's APIs."
EPILOG = """examples:
  xmlcall serve                                              # a small local model, fetched on first use
  xmlcall serve --model ollama:gemma3:4b
  xmlcall serve --model http://127.0.0.1:8080/v1 --mcp servers.json --allow 'files.read_*'
  OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client       # and any API key

Clients send their tools as to a model that has function calling; whatever model they name is served by MODEL. With --mcp the
proxy also runs tools of those servers itself; nobody is asked, so it offers and runs only what --allow names, and what rules
allow (--policy, xmlcall.toml). The address is printed to standard output, everything else to standard error. docs/clients.md has
settings for many clients.
"""


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
    add_constrain(model)
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
    _add_grace(parser.add_argument_group("how it ends"))
    add_page_options(parser.add_argument_group("what is recorded"))
    add_observed_options(parser.add_argument_group("how it is seen from outside"))


def _add_network_options(network: argparse._ArgumentGroup) -> None:
    network.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    network.add_argument(
        "--port", type=number(int, least=0), default=8485, metavar="N", help="port; 0 takes a free one (default: %(default)s)"
    )
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


def _add_grace(ending: argparse._ArgumentGroup) -> None:
    ending.add_argument(
        "--grace",
        type=number(float, least=0),
        default=STOP_SECONDS,
        metavar="SECONDS",
        help="time for the answers under way when the server is stopped; what is not whole then ends with an error "
        "(default: %(default)g)",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    key = options.api_key if options.api_key is not None else os.environ.get("XMLCALL_API_KEY", "")
    if not is_loopback(options.host) and not key and not options.no_api_key:
        raise UsageError(
            f"--host {options.host} lets other machines call: set XMLCALL_API_KEY, or say --no-api-key if everybody may"
        )
    if (options.allow or options.policy) and not options.mcp:
        option = "--allow names" if options.allow else "--policy has rules about"
        raise UsageError(f"{option} tools of servers: give them with --mcp")
    start_log(options.log_format)
    return run_async(_serve(options, key))


async def _serve(options: argparse.Namespace, key: str) -> int:
    from ..proxy.app import app_of
    from ..proxy.engine.engine import Engine
    from ..proxy.http.access import Guard
    from ..proxy.http.ending import Ending

    opening = OpeningStatus(error_console(), speaker("en"))
    backend = connect(options.model, context_length=options.context, progress=opening.progress)
    opening.model = backend.model or opening.model
    servers = servers_of(options) if options.mcp else ()
    for server in servers:
        complain(described(server))
    names = ("*",) if not is_loopback(options.host) else tuple(options.allow_host)
    guard = Guard(api_key=key, origins=tuple(options.allow_origin), hosts=names)
    with listening(options.host, options.port) as listener:
        async with contextlib.AsyncExitStack() as stack:
            recorder = await stack.enter_async_context(recording(options, [key]))
            observer = await stack.enter_async_context(observing(options))
            engine = Engine(
                backend,
                hosts_of(servers, options),
                allowed=_rules(options),
                stream_arguments=options.stream_arguments,
                strict=options.strict,
                lang=options.lang,
                reminder=options.reminder,
                tool_tokens=options.tool_tokens,
                recorder=recorder,
                **asking_of(options, "auto"),
            )
            async with opening:
                await stack.enter_async_context(engine)
            if found := use_profile(options, engine.backend.capabilities.fingerprints):
                engine.ask_by(**asking_of(options, "auto"))
                complain(f"profile: {profile_words(options, found)}")
            if family := engine.backend.capabilities.family:
                complain(f"the model was most likely trained on the format {family}; every format is read")
            for notice in model_notices(engine.backend, options.mode or "auto", speaker("en"), constrain=constrain_of(options)):
                complain(notice)
            if servers:
                complain(await _own_tools(engine))
            gc.freeze()  # what lives as long as the server need not be looked at again and again
            url = url_of(listener)
            routes = page_beside(engine, guard, url) if options.ui else ()
            _announce(engine.model, url)
            ending = Ending()
            app = app_of(engine, guard, beside=routes, ending=ending, observer=observer)

            def on_stop() -> None:
                observer.stop()
                if recorder:
                    recorder.close()

            await serve_app(app, listener, on_stop, grace=options.grace, on_over=ending.begin)
    return OK


def _rules(options: argparse.Namespace) -> Rules:
    """Return the rules of files and options; without servers of its own the proxy needs none."""
    if not options.mcp:
        return Rules()
    loaded = load_rules(options.policy)
    if path := loaded.passed_over:
        complain(speaker("en")("strict_here", file=visible(str(path)), name=visible(path.name)))
    return Rules(rules=(*loaded.rules.rules, *allowing(options.allow, source="--allow").rules))


async def _own_tools(engine: "Engine") -> str:
    names = [tool.name for tool in await engine.own_tools()]
    if names:
        return f"runs itself, without asking: {', '.join(names)}"
    return (
        "none of the servers' tools is allowed, so none is offered: allow some with --allow, for example --allow 'files.read_*', "
        "or by a rule (--policy)"
    )


def _announce(model: str, url: str) -> None:
    complain(f"serving {visible(model)}; OpenAI clients: base URL {url}/v1; Anthropic and Ollama clients: {url}; Ctrl-C ends it")
    print(url, flush=True)
