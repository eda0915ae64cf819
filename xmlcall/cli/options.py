"""The arguments that commands share, and an argument parser whose errors are ours.

A default stands here only: help texts take it from `%(default)s`.
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
# Options that were removed, by command, and what there is in their place.
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
        del more  # what argparse hands down to the parsers of sub-commands: the same as here
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> Never:
        """Raise what argparse would print; of an option that was removed, what there is in its place."""
        words = {word.partition("=")[0] for word in message.split()} if message.startswith("unrecognized") else set()
        for (prog, option), instead in _REMOVED.items():
            if prog == self.prog and option in words:
                raise UsageError(f"{option} was removed: {instead}")
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def add_server_options(parser: argparse._ActionsContainer) -> None:
    """Declare which MCP servers are used and how long they may take."""
    add_mcp_option(
        parser,
        "use these servers; without it a built-in demo server runs (calculator, text_analyzer, get_weather)",
    )
    parser.add_argument(
        "--timeout",
        type=number(float, above=0),
        metavar="SECONDS",
        help='time for a server to start and for each call (default: 30 to start; for a call the "timeout" of the file, else 60)',
    )


def add_mcp_option(parser: argparse._ActionsContainer, what: str) -> None:
    """Declare `--mcp`."""
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="SERVERS",
        help=f'{what}: a "mcpServers" JSON file, the one that other MCP clients read ("autoApprove" lists in it allow nothing '
        "here), or one server: a URL, a Python script such as server.py, or a command line such as 'npx -y some-server /data' "
        "(may be repeated)",
    )


def add_model_choice(model: argparse._ActionsContainer) -> None:
    """Declare which model, and its profile."""
    model.add_argument(
        "--model",
        default="local",
        help="local (fetched on first use), a name of `xmlcall models list`, path/to.gguf, ollama:NAME, http://host:8080/v1 or "
        "http://host:8080/v1#NAME (default: %(default)s)",
    )
    model.add_argument(
        "--context",
        type=number(int, least=1),
        metavar="N",
        help="tokens that prompt and reply share, for a local file (default: 8192 to 32768, as the model was trained for and the "
        "free memory bears) or Ollama (default: 16384, less if the model holds less); other servers decide themselves",
    )
    add_profile_option(model)


def add_profile_option(parser: argparse._ActionsContainer) -> None:
    """Declare which profile is used."""
    parser.add_argument(
        "--profile",
        default="auto",
        metavar="NAME",
        help="how the model is asked for calls: a name of `xmlcall profiles list`, or a file NAME.toml; auto: the one that was "
        "measured with this model; off: none. Other options go before it (default: %(default)s)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Declare the model, how it is offered tools, and what may run."""
    model = parser.add_argument_group("the model")
    add_model_choice(model)
    model.add_argument(
        "--temperature",
        type=number(float, least=0),
        default=0.0,
        metavar="NUMBER",
        help="randomness (default: %(default)g: small models call tools best so)",
    )
    model.add_argument(
        "--max-tokens",
        type=number(int, least=1),
        default=2048,
        metavar="N",
        help="the most that one reply may have (default: 2048)",
    )
    model.add_argument("--seed", type=int, metavar="N", help="makes a random reply repeatable, as far as the server can")
    model.add_argument("--system", metavar="TEXT", help="a system message of your own, after the one that offers the tools")
    _add_tool_options(parser.add_argument_group("tools"))
    parser.add_argument(
        "--verbose", action="store_true", help="tell more: how servers are started, what they log, repairs, tokens"
    )


def _add_control_options(tools: argparse._ArgumentGroup) -> None:
    """Declare what runs without a question."""
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
        help="what is done with a call that --allow or an answer allows, if it may change or send something and a value of it "
        "comes from the result of another server (default: %(default)s; --yes asks about nothing)",
    )
    tools.add_argument(
        "--repaired",
        choices=("ask", "allow"),
        default="ask",
        help="what is done with a call that a rule, --allow or an answer allows, if a name or a value of it had to be made out "
        "of what the model wrote (default: %(default)s; --yes asks about nothing)",
    )
    add_policy_option(tools)


def _add_tool_options(tools: argparse._ArgumentGroup) -> None:
    from ..prompting.templates import LANGUAGES  # only here: most commands need none of what it imports

    add_server_options(tools)
    tools.add_argument("--no-tools", action="store_true", help="no server, not the demo either: the model alone answers")
    _add_control_options(tools)
    tools.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder that is named to servers which ask where they may work (may be repeated)",
    )
    tools.add_argument(
        "--sampling",
        choices=("ask", "allow", "off"),
        default="ask",
        help="what is done when a server asks for a completion by this model (default: %(default)s, which is off without a "
        "terminal)",
    )
    tools.add_argument(
        "--mode",
        choices=("xml", "native"),
        help="xml: tools are offered in the prompt and calls read from the text; native: the server's own function calling "
        "(default: that of the profile, else xml)",
    )
    add_dialect_option(tools)
    add_family_option(tools)
    tools.add_argument(
        "--max-turns", type=number(int, least=1), default=10, metavar="N", help="replies to one question (default: %(default)s)"
    )
    tools.add_argument(
        "--lang",
        choices=LANGUAGES,
        default="en",
        help="language of the tool prompt and of what is said here (default: %(default)s)",
    )
    tools.add_argument("--no-parallel", dest="parallel", action="store_false", help="one call in a reply")
    tools.add_argument("--no-reminder", dest="reminder", action="store_false", help="no reminder of the tools after the question")
    add_call_threshold(tools)
    add_tool_tokens(tools)


def add_policy_option(parser: argparse._ActionsContainer) -> None:
    """Declare the file of rules."""
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="a TOML file of rules about what runs, beside your own xmlcall.toml in the configuration folder; an xmlcall.toml in "
        "the working directory only asks and denies until it is named here (docs/configuration.md)",
    )


def add_dialect_option(parser: argparse._ActionsContainer) -> None:
    """Declare in which wire format a model is asked to write its calls."""
    from ..dialects import DIALECTS

    parser.add_argument(
        "--dialect",
        type=_dialect,
        metavar="NAME",
        help="the wire format in which the model is asked to write calls, such as one that it was trained on: "
        f"{', '.join(DIALECTS)}; or a file with a row, such as my_format.toml "
        f"(default: that of the profile, else {_OWN_DIALECT}; whatever is asked for, all of them are read)",
    )


def _dialect(text: str) -> str:
    """Return the name of a wire format; a file's row is added to those that are read."""
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
        help=f"how the tool prompt shows tools: {families} (default: that of the profile, else {_OWN_FAMILY})",
    )


def family_of(options: argparse.Namespace) -> str:
    """Return the family of prompts that was asked for, else the usual one."""
    return options.family or _OWN_FAMILY


def dialect_of(options: argparse.Namespace) -> str:
    """Return the wire format that was asked for, else our own.

    Raises:
        UsageError: one was asked for where the model server offers the tools in a format of its own.
    """
    if options.dialect and getattr(options, "mode", "xml") == "native":
        raise UsageError("--dialect is the format of calls in the text: it does not go with --mode native")
    return options.dialect or _OWN_DIALECT


def add_call_threshold(parser: argparse._ActionsContainer) -> None:
    """Declare below which log-odds of a call a question is answered in plain words."""
    parser.add_argument(
        "--call-threshold",
        type=_threshold,
        metavar="NUMBER",
        help="answer in plain words where the log-odds that the model begins a call are not above this, and with a call where "
        "they are: a number from `xmlcall bench calibrate`; auto, which finds the model's own; or off (default: that of the "
        "profile, else auto)",
    )


def add_tool_tokens(parser: argparse._ActionsContainer) -> None:
    """Declare how much of a prompt the description of the tools may take."""
    parser.add_argument(
        "--tool-tokens",
        type=number(int, least=1),
        metavar="N",
        help="tokens that the description of the tools may take; where it is longer, tools are shown in part, those that fit the "
        "question in full (default: 4000, at most half of a small context, an eighth of a large one)",
    )


def call_threshold_of(options: argparse.Namespace) -> "Threshold | None":
    """Return the threshold that was asked for, else `auto`."""
    given, is_native = options.call_threshold, getattr(options, "mode", "xml") == "native"
    if given == "off" or (given is None and (is_native or not options.reminder)):
        return None
    if given is None:
        return "auto"
    if not options.reminder or is_native:
        raise UsageError(
            "--call-threshold decides which reminder is sent: it goes neither with --no-reminder nor with --mode native"
        )
    return "auto" if given == "auto" else float(given)


def asking_of(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Return how a model is asked for calls, as `ask_by` of a loop or an engine takes it."""
    return {
        "mode": options.mode or mode,
        "dialect": dialect_of(options),
        "family": family_of(options),
        "call_threshold": call_threshold_of(options),
    }


def _threshold(text: str) -> float | str:
    """Read a number, or one of two words."""
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
