"""`xmlcall serve`: the proxy as a program."""

import argparse
from functools import partial
from pathlib import Path

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
from .serve_observed import add_observed_options, start_log
from .serve_page import add_page_options
from .serve_settings import HOST, PORT, serving_of

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

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
    network.add_argument("--host", help=f"address to listen on (default: {HOST}, this machine only)")
    network.add_argument("--port", type=number(int, least=0), metavar="N", help=f"port; 0 takes a free one (default: {PORT})")
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
    serving = serving_of(options)
    if (options.allow or options.policy) and not options.mcp:
        option = "--allow names" if options.allow else "--policy has rules about"
        raise UsageError(f"{option} tools of servers: give them with --mcp")
    start_log(serving.log_format)
    with listening(serving.host, serving.port) as listener:
        return run_async(serve(options, serving, listener, partial(announce, listener)))
