"""The arguments that commands share, and an argument parser that raises `UsageError`.

Each default is defined here only: help texts take it from `%(default)s`.
"""

import argparse
import difflib
import math
import shlex
import shutil
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Never

from ..errors import UsageError
from .exits import complain

_KEYS = "the keys of --ask"
_NEW: Final = frozenset({"sampling", "top_p", "top_k", "min_p", "presence_penalty", "repeat_penalty"})  # never were options


@dataclass(frozen=True, slots=True)
class Command:
    """What the command line needs from a command."""

    description: str
    epilog: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    common: str = ""  # the options that `--help` shows, if not all
    passes_on: bool = False  # whether what comes after `--` is for another program, in `passed_on`


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a command, such as `list` of `xmlcall models list`."""

    run: Callable[..., int]
    summary: str
    declare: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    examples: tuple[str, ...] = ()  # what can be typed after it


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, Action]) -> None:
    """Declare the actions of a command; one with a `list` does that without a name, and each of its actions prints JSON."""
    usual = "list" if "list" in actions else None
    names = parser.add_subparsers(dest="action", metavar="ACTION", required=usual is None)
    parser.set_defaults(action=usual, json=False)
    for name, action in actions.items():
        words = [f"\n  {parser.prog} {name} {each}" for each in action.examples]
        about = f"{action.summary[0].upper()}{action.summary[1:]}."
        added = names.add_parser(
            name, description=about, help=action.summary, epilog="".join(["examples:", *words] if words else "")
        )
        action.declare(added)
        if usual:
            added.add_argument("--json", action="store_true", help="print JSON")


def takes(dest: str, **more: Any) -> Callable[[argparse.ArgumentParser], object]:
    """Return a function that declares one argument of an action."""
    return lambda parser: parser.add_argument(dest, **{"metavar": dest.upper(), **more})


class CommandParser(argparse.ArgumentParser):
    """argparse with exact option names, help texts laid out as written, and errors as `UsageError`."""

    def __init__(
        self, *, prog: str, description: str, epilog: str = "", usage: str | None = None, common: str = "", **more: object
    ) -> None:
        """Make a parser; if common options are named, `--help` shows only these, and `--help-all` shows all."""
        del more  # argparse passes these to the parsers of sub-commands: the same settings as here
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.passes_on = False
        self._common = {*common.split(), "--help", "--help-all"} if common else set()
        if common:
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options, and what --ask takes")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read arguments; if the command passes on what follows `--`, that goes unread into `passed_on`."""
        given = [*(args or ())]
        end = given.index("--") if self.passes_on and "--" in given else len(given)
        options, unknown = super().parse_known_args(given[:end], namespace)
        if self.passes_on:
            options.passed_on = given[end + 1 :]
        return options, unknown

    def format_help(self) -> str:
        """Write the help; rare options are left out where the command names its common ones."""
        if not self._common:
            self._describe_keys()
            return super().format_help()
        words = [f"[{each.metavar} ...]" if each.nargs == "*" else each.metavar for each in self._get_positional_actions()]
        self.usage = " ".join([self.prog, "[OPTION ...]", *map(str, words)])
        rare = {each: each.help for each in self._actions if each.option_strings and not self._common & {*each.option_strings}}
        for each in rare:
            each.help = argparse.SUPPRESS
        text = super().format_help()
        for each, about in rare.items():
            each.help = about
        return text

    def _describe_keys(self) -> None:
        for each in self._actions:
            if type(each) is _Ask and all(group.title != _KEYS for group in self._action_groups):
                self.add_argument_group(_KEYS, each.described())

    def show_all(self) -> None:
        self._common = set()

    def error(self, message: str) -> Never:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, CommandParser)
        parser.show_all()
        parser.print_help()
        parser.exit()


def add_server_options(parser: argparse._ActionsContainer) -> None:
    add_mcp_option(parser, "MCP servers (default: a demo server with calculator, text_analyzer and get_weather)")
    parser.add_argument(
        "--timeout",
        type=number(float, above=0),
        metavar="SECONDS",
        help='time limit for a server to start and for each call (default: 30 to start; for a call the "timeout" of the file, '
        "else 60)",
    )


def add_repeated(parser: argparse._ActionsContainer, option: str, metavar: str, what: str, **more: Any) -> None:
    """Declare an option that may be given several times; its values are collected in a list."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{what} (may be repeated)", **more)


def add_mcp_option(parser: argparse._ActionsContainer, what: str) -> None:
    forms = (
        'a JSON file with "mcpServers" as other clients read it, or one server: a URL, a script such as server.py, or a command '
        "line such as 'npx -y some-server /data'"
    )
    add_repeated(parser, "--mcp", "SERVERS", f"{what}: {forms}")


def add_model_choice(model: argparse._ActionsContainer, *, talks: bool = False) -> None:
    from ..models.known import TALKS_BETTER

    usual = f"{TALKS_BETTER}, or local where memory is short" if talks else "local"
    model.add_argument(
        "--model",
        default=None if talks else "local",
        help="local (fetched on first use), a name from `xmlcall models list`, FILE.gguf, ollama:NAME, or a URL such as "
        f"http://host:8080/v1 or http://host:8080/v1#NAME (default: {usual})",
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
    parser.add_argument(
        "--profile",
        default="auto",
        metavar="NAME",
        help="the profile, which sets prompt and call format; auto: the one that is known for this model; off: none; or a name "
        "from `xmlcall profiles list`, or a file NAME.toml (default: %(default)s)",
    )


def add_model_options(parser: argparse.ArgumentParser, *, talks: bool = False) -> None:
    model = parser.add_argument_group("the model")
    add_model_choice(model, talks=talks)
    add_asking_options(model)
    model.add_argument("--system", metavar="TEXT", help="a system message of your own")
    _add_tool_options(parser.add_argument_group("tools"))
    parser.add_argument("--verbose", action="store_true", help="show more: starts and logs of servers, repairs, tokens")


def _add_tool_options(tools: argparse._ArgumentGroup) -> None:
    add_server_options(tools)
    tools.add_argument("--no-tools", action="store_true", help="use no server: the model answers alone")
    approval = tools.add_mutually_exclusive_group()
    approval.add_argument("--yes", action="store_true", help="run calls without asking, but not those that write made-up values")
    add_repeated(approval, "--allow", "GLOB", "run these tools without asking, such as 'files.read_*' of a server `files`")
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
    add_repeated(tools, "--root", "DIR", "a folder to name to servers that ask where they may work")
    tools.add_argument(
        "--sampling",
        choices=("ask", "allow", "off"),
        default="ask",
        help="what to do when a server requests a completion from this model (default: %(default)s, which is off without a "
        "terminal)",
    )
    tools.add_argument(
        "--max-turns",
        type=number(int, least=1),
        default=10,
        metavar="N",
        help="maximum number of replies to one question (default: %(default)s)",
    )


def add_policy_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="a TOML file of rules about which calls run, in addition to your own xmlcall.toml in the configuration folder; an "
        "xmlcall.toml in the working directory can only ask and deny unless it is named here (docs/configuration.md)",
    )


def add_asking_options(parser: argparse._ActionsContainer, keys: Collection[str] = (), *, options: Collection[str] = ()) -> None:
    """Declare `--ask` for these keys (all if none), and the hidden options that it replaced, but for `options`, its own ones."""
    from ..turn.asking import ASK_KEYS  # only here: some commands need none of what it imports

    keys = tuple(keys or ASK_KEYS)
    first = "temperature" if "temperature" in keys else keys[0]
    about = f"how the model is asked, such as {first}={ASK_KEYS[first].example}; overrides the profile (may be repeated). Keys: "
    about += ", ".join(keys)
    parser.add_argument("--ask", action=_Ask, keys=keys, metavar="KEY=VALUE", help=about)
    for key in [key for key in keys if key not in _NEW and key not in options]:
        is_switch = ASK_KEYS[key].expected == "yes or no"
        option = f"--no-{key}" if is_switch else f"--{key.replace('_', '-')}"
        parser.add_argument(option, action=_Replaced, keys=(key,), nargs=0 if is_switch else None, help=argparse.SUPPRESS)


class _Ask(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, *, keys: Collection[str], **more: Any) -> None:
        super().__init__(option_strings, "ask", default={}, **more)
        self.keys = keys

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        key, equals, text = values.partition("=")
        if not equals:
            raise argparse.ArgumentError(self, f"expected KEY=VALUE, one of {', '.join(self.keys)}, got {values[:80]!r}")
        self.add(namespace, key, text)

    def add(self, namespace: argparse.Namespace, key: str, text: str) -> None:
        from ..turn.asking import read_ask

        try:
            name, value = read_ask(key, text, self.keys)
        except UsageError as error:
            raise argparse.ArgumentError(self, str(error)) from error
        namespace.ask = {**namespace.ask, name: value}

    def described(self) -> str:
        """Describe each key, wrapped as argparse wraps the help of options."""
        from ..turn.asking import ASK_KEYS

        width = shutil.get_terminal_size().columns - 2
        lines = [
            textwrap.fill(ASK_KEYS[key].about, width, initial_indent=f"{key:15} ", subsequent_indent=" " * 18).strip()
            for key in self.keys
        ]
        return "\n".join(lines)


class _Replaced(_Ask):
    """An option of earlier releases, for a single field."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        [key] = self.keys
        text = "no" if self.nargs == 0 else values
        self.add(namespace, key, text)
        complain(f"{option if self.nargs == 0 else f'{option} {text}'} is now --ask {shlex.quote(f'{key}={text}')}")


def unknown(what: str, given: str, known: Collection[str]) -> UsageError:
    """Make the error about a name that is none of the known ones; it suggests the nearest."""
    near = difflib.get_close_matches(given, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return UsageError(f"expected {what} ({', '.join(known)}), got {given[:80]!r}.{hint}")


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
