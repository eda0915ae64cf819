"""The arguments that commands share, and an argument parser that raises `UsageError`.

Each default is defined here only: help texts take it from `%(default)s`.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from ..errors import UsageError

if TYPE_CHECKING:
    from ..turn.tool_need import Threshold

__all__ = [
    "CommandParser",
    "add_call_threshold",
    "add_dialect_option",
    "add_family_option",
    "add_mcp_option",
    "add_model_choice",
    "add_model_options",
    "add_policy_option",
    "add_profile_option",
    "add_server_options",
    "add_tool_tokens",
    "asking_of",
    "call_threshold_of",
    "dialect_of",
    "family_of",
    "number",
]


_OWN_DIALECT = "function_calls"
_OWN_FAMILY = "list"
# Removed options, by command, and what replaces them.
_REMOVED = {
    ("xmlcall serve", "--workers"): "`uvicorn --factory xmlcall.proxy:configured_app --workers N` serves a file of settings",
    ("xmlcall serve", "--share"): "have a balancer keep a client on one process (docs/scale.md)",
    ("xmlcall bench", "--on"): "a run asks one address: put a balancer before several servers, and raise --concurrency",
    ("xmlcall bench", "--server"): "a run asks one address: put a balancer before several servers, and raise --concurrency",
    ("xmlcall bench", "--workers"): "Ray takes all cores, or those of the cluster that RAY_ADDRESS names",
}


class CommandParser(argparse.ArgumentParser):
    """argparse with exact option names, help texts laid out as written, and errors as `UsageError`."""

    def __init__(self, *, prog: str, description: str, epilog: str = "", usage: str | None = None, **more: object) -> None:
        del more  # argparse passes these to the parsers of sub-commands: the same settings as here
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> Never:
        """Raise what argparse would print; for a removed option, what replaces it."""
        words = {word.partition("=")[0] for word in message.split()} if message.startswith("unrecognized") else set()
        for (prog, option), instead in _REMOVED.items():
            if prog == self.prog and option in words:
                raise UsageError(f"{option} was removed: {instead}")
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def add_server_options(parser: argparse._ActionsContainer) -> None:
    """Declare the MCP servers and their time limit."""
    add_mcp_option(
        parser,
        "the MCP servers to use (default: a built-in demo server with calculator, text_analyzer and get_weather)",
    )
    parser.add_argument(
        "--timeout",
        type=number(float, above=0),
        metavar="SECONDS",
        help='time limit for a server to start and for each call (default: 30 to start; for a call the "timeout" of the file, '
        "else 60)",
    )


def add_mcp_option(parser: argparse._ActionsContainer, what: str) -> None:
    """Declare `--mcp`."""
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="SERVERS",
        help=f'{what}: a "mcpServers" JSON file as other MCP clients read it (its "autoApprove" lists have no effect here), or '
        "one server: a URL, a Python script such as server.py, or a command line such as 'npx -y some-server /data' "
        "(may be repeated)",
    )


def add_model_choice(model: argparse._ActionsContainer) -> None:
    """Declare the model and its profile."""
    model.add_argument(
        "--model",
        default="local",
        help="local (downloaded on first use), a name from `xmlcall models list`, path/to.gguf, ollama:NAME, http://host:8080/v1 "
        "or http://host:8080/v1#NAME (default: %(default)s)",
    )
    model.add_argument(
        "--context",
        type=number(int, least=1),
        metavar="N",
        help="context size in tokens, shared by prompt and reply, for a local file (default: 8192 to 32768, limited by the "
        "model's training and the free memory) or Ollama (default: 16384, or the model's limit); other servers decide themselves",
    )
    add_profile_option(model)


def add_profile_option(parser: argparse._ActionsContainer) -> None:
    """Declare `--profile`."""
    parser.add_argument(
        "--profile",
        default="auto",
        metavar="NAME",
        help="the profile, which sets prompt and call format: a name from `xmlcall profiles list`, or a file NAME.toml; auto: "
        "the one measured with this model; off: none. Options given here take priority over it (default: %(default)s)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declare the model, how it is offered tools, and which calls may run."""
    model = parser.add_argument_group("the model")
    add_model_choice(model)
    model.add_argument(
        "--temperature",
        type=number(float, least=0),
        default=0.0,
        metavar="NUMBER",
        help="randomness (default: %(default)g, which suits tool calls of small models best)",
    )
    model.add_argument(
        "--max-tokens",
        type=number(int, least=1),
        default=2048,
        metavar="N",
        help="maximum length of one reply (default: 2048)",
    )
    model.add_argument("--seed", type=int, metavar="N", help="make random replies repeatable, as far as the server supports it")
    model.add_argument("--system", metavar="TEXT", help="a system message of your own, after the one that offers the tools")
    _add_tool_options(parser.add_argument_group("tools"))
    parser.add_argument(
        "--verbose", action="store_true", help="show more: how servers are started, their logs, repairs, token counts"
    )


def _add_control_options(tools: argparse._ArgumentGroup) -> None:
    """Declare which calls run without asking."""
    approval = tools.add_mutually_exclusive_group()
    approval.add_argument("--yes", action="store_true", help="run every call without asking")
    approval.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="GLOB",
        help="run these tools without asking: a glob over server.tool such as 'files.read_*' (may be repeated)",
    )
    tools.add_argument(
        "--flow",
        choices=("ask", "allow"),
        default="ask",
        help="what to do with a call that --allow or an answer allows, if it may change or send something and one of its values "
        "comes from the result of another server (default: %(default)s; --yes never asks)",
    )
    tools.add_argument(
        "--repaired",
        choices=("ask", "allow"),
        default="ask",
        help="what to do with a call that a rule, --allow or an answer allows, if one of its names or values had to be repaired "
        "because the model did not write it correctly (default: %(default)s; --yes never asks)",
    )
    add_policy_option(tools)


def _add_tool_options(tools: argparse._ArgumentGroup) -> None:
    from ..prompting.templates import LANGUAGES  # only here: most commands need none of what it imports

    add_server_options(tools)
    tools.add_argument("--no-tools", action="store_true", help="use no server, not even the demo: the model answers alone")
    _add_control_options(tools)
    tools.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder to name to servers that ask where they may work (may be repeated)",
    )
    tools.add_argument(
        "--sampling",
        choices=("ask", "allow", "off"),
        default="ask",
        help="what to do when a server requests a completion from this model (default: %(default)s, which is off without a "
        "terminal)",
    )
    tools.add_argument(
        "--mode",
        choices=("xml", "native"),
        help="xml: offer tools in the prompt and parse calls from the text; native: use the server's own function calling "
        "(default: from the profile, else xml)",
    )
    add_dialect_option(tools)
    add_family_option(tools)
    tools.add_argument(
        "--max-turns",
        type=number(int, least=1),
        default=10,
        metavar="N",
        help="maximum number of replies to one question (default: %(default)s)",
    )
    tools.add_argument(
        "--lang",
        choices=LANGUAGES,
        default="en",
        help="language of the tool prompt and of the messages (default: %(default)s)",
    )
    tools.add_argument("--no-parallel", dest="parallel", action="store_false", help="allow only one call per reply")
    tools.add_argument(
        "--no-reminder", dest="reminder", action="store_false", help="send no reminder of the tools after the question"
    )
    add_call_threshold(tools)
    add_tool_tokens(tools)


def add_policy_option(parser: argparse._ActionsContainer) -> None:
    """Declare the file of rules."""
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="a TOML file of rules about which calls run, in addition to your own xmlcall.toml in the configuration folder; an "
        "xmlcall.toml in the working directory can only ask and deny unless it is named here (docs/configuration.md)",
    )


def add_dialect_option(parser: argparse._ActionsContainer) -> None:
    """Declare the wire format that the prompt asks a model to write its calls in."""
    from ..dialects import DIALECTS

    parser.add_argument(
        "--dialect",
        type=_dialect,
        metavar="NAME",
        help="the wire format that the prompt asks the model to write calls in, such as one that it was trained on: "
        f"{', '.join(DIALECTS)}; or a file with a row, such as my_format.toml "
        f"(default: from the profile, else {_OWN_DIALECT}; calls in any of these formats are always read)",
    )


def _dialect(text: str) -> str:
    """Return the name of a wire format; the row of a file becomes one of the formats that are read."""
    from ..dialects import select

    try:
        rows = select(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if len(rows) != 1:
        raise argparse.ArgumentTypeError(f"expected one wire format to ask a model for, got {text!r}")
    return rows[0].name


def add_family_option(parser: argparse._ActionsContainer) -> None:
    """Declare how the system prompt shows tools."""
    from ..prompting.format import FAMILIES

    families = "; ".join(f"{family.name}: {family.about}" for family in FAMILIES.values())
    parser.add_argument(
        "--family",
        choices=tuple(FAMILIES),
        help=f"how the tool prompt shows tools: {families} (default: from the profile, else {_OWN_FAMILY})",
    )


def family_of(options: argparse.Namespace) -> str:
    """Return the family of prompts that was given, else the usual one."""
    return options.family or _OWN_FAMILY


def dialect_of(options: argparse.Namespace) -> str:
    """Return the wire format that was given, else our own.

    Raises:
        UsageError: a format was given, but the model server offers the tools in a format of its own.
    """
    if options.dialect and getattr(options, "mode", "xml") == "native":
        raise UsageError("--dialect sets the format of calls in the text, so it cannot be combined with --mode native")
    return options.dialect or _OWN_DIALECT


def add_call_threshold(parser: argparse._ActionsContainer) -> None:
    """Declare the log-odds of a call below which a question is answered in plain words."""
    parser.add_argument(
        "--call-threshold",
        type=_threshold,
        metavar="NUMBER",
        help="answer with a call if the log-odds that the model begins one are above this, else in plain words: a number from "
        "`xmlcall bench calibrate`; auto, which finds the model's own; or off (default: from the profile, else auto)",
    )


def add_tool_tokens(parser: argparse._ActionsContainer) -> None:
    """Declare how many tokens of a prompt the description of the tools may take."""
    parser.add_argument(
        "--tool-tokens",
        type=number(int, least=1),
        metavar="N",
        help="maximum tokens for the description of the tools; if it is longer, only tools that fit the question are described "
        "in full (default: 4000, at most half of a small context, an eighth of a large one)",
    )


def call_threshold_of(options: argparse.Namespace) -> "Threshold | None":
    """Return the threshold that was given, else `auto`."""
    given, is_native = options.call_threshold, getattr(options, "mode", "xml") == "native"
    if given == "off" or (given is None and (is_native or not options.reminder)):
        return None
    if given is None:
        return "auto"
    if not options.reminder or is_native:
        raise UsageError(
            "--call-threshold decides which reminder is sent, so it cannot be combined with --no-reminder or --mode native"
        )
    return "auto" if given == "auto" else float(given)


def asking_of(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Return the settings for asking a model for calls, as arguments of `ask_by` of a loop or an engine."""
    return {
        "mode": options.mode or mode,
        "dialect": dialect_of(options),
        "family": family_of(options),
        "call_threshold": call_threshold_of(options),
    }


def _threshold(text: str) -> float | str:
    """Read a number, `auto` or `off`."""
    return text if text in ("auto", "off") else float(number(float, above=-math.inf)(text))


def number(kind: type[int] | type[float], *, least: float = -math.inf, above: float = -math.inf) -> Callable[[str], int | float]:
    """Make an argument type: a finite number within a limit."""
    limit = f" at least {least:g}" if math.isfinite(least) else f" above {above:g}" if math.isfinite(above) else ""
    words = f"a {'whole ' if kind is int else ''}number{limit}"

    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value >= least and value > above and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"expected {words}, got {text[:40]!r}")
        return value

    return read
