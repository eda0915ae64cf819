"""The command line: `xmlcall COMMAND ...`, also `python -m xmlcall`.

Each command is a module with `configure(parser)`, which declares its arguments, and `execute(options) -> int`, or with a table
`ACTIONS` in their place; one with many options names in `COMMON` those that `--help` shows, and with `PASSES_ON` what comes after
`--` is for another program. Small commands about one subject share a module (`_SHARED`), whose table `COMMANDS` has a row for
each. `main` imports only the module of the command that was given, and modules import heavy dependencies where they use them. So
`--help`, `parse` and `prompt` start at once.
"""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from ..errors import UsageError
from .exits import guarded, prepare_streams
from .options import Action, Command, CommandParser, add_actions, unknown

__all__ = ["COMMANDS", "GROUPS", "command_of", "main", "parser_of"]

GROUPS = {
    "Use": {
        "run": "answer one question, with tools",
        "chat": "talk to a model that has tools",
        "ui": "open a page with a chat that shows what the model writes and how it is parsed",
    },
    "Serve": {
        "serve": "run a proxy that gives any model tool calling",
        "launch": "start a client (Claude Code, Codex, ...) that uses the proxy",
        "prompt": "print the system prompt that offers tools",
        "template": "write a chat template that offers tools, for servers that render templates",
        "parse": "parse the tool calls in a model's text",
    },
    "Look": {
        "tools": "list the tools that servers offer",
        "resources": "list the resources of servers, and read one",
        "prompts": "list the prompts of servers, and fill one in",
        "doctor": "test why a model server does not call tools, and say what to do",
        "policy": "show the rules about which calls run, and what they decide for a call",
        "log": "list, show, search, export and delete conversations",
    },
    "Measure": {
        "probe": "measure which prompt and call format suit a model best",
        "bench": "measure how well a model calls tools",
    },
    "Set up": {
        "models": "list, fetch and remove local models",
        "profiles": "list, show and remove profiles: the prompt and call format of each model",
        "login": "sign in to a server that requires OAuth",
        "logout": "delete the tokens of a server",
    },
}
COMMANDS = [name for group in GROUPS.values() for name in group]
_SHARED = {
    **dict.fromkeys(("prompt", "template"), "prompt"),
    **dict.fromkeys(("tools", "resources", "prompts"), "offered"),
    **dict.fromkeys(("login", "logout"), "login"),
}
"""Commands that share a module -> its name."""

_EPILOG = """examples:
  xmlcall run "What is 1234 times 5678?"
  xmlcall run --model ollama:gemma3:4b --mcp servers.json "Which files changed today?"
  xmlcall chat --model http://127.0.0.1:8080/v1

See `xmlcall COMMAND --help` for details. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    prepare_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)
    return guarded(lambda: _dispatch(given))


def _dispatch(arguments: list[str]) -> int:
    try:
        if not arguments or arguments[0].startswith("-"):
            _overview().parse_args(arguments)
            raise UsageError(f"expected a command: {', '.join(COMMANDS)} (see `xmlcall --help`)")
        name, *rest = arguments
        if name not in COMMANDS:
            raise unknown("a command", name, COMMANDS)
        return command_of(name).execute(parser_of(name).parse_args(rest))
    except SystemExit as leave:  # raised by argparse after it has printed the help or the version
        return int(leave.code or 0)


def command_of(name: str) -> Command:
    module = importlib.import_module(f".{_SHARED.get(name, name)}", __name__)
    if name in _SHARED:
        command: Command = module.COMMANDS[name]
        return command
    actions: Mapping[str, Action] = getattr(module, "ACTIONS", {})
    configure = getattr(module, "configure", partial(add_actions, actions=actions))
    execute = getattr(module, "execute", lambda options: actions[options.action].run(options))
    common, passes_on = getattr(module, "COMMON", ""), getattr(module, "PASSES_ON", False)
    return Command(module.DESCRIPTION, module.EPILOG, configure, execute, common, passes_on)


def parser_of(name: str) -> CommandParser:
    command = command_of(name)
    parser = CommandParser(prog=f"xmlcall {name}", description=command.description, epilog=command.epilog, common=command.common)
    parser.passes_on = command.passes_on
    command.configure(parser)
    return parser


def _overview() -> CommandParser:
    """Make the parser for everything except commands; it lists the commands without importing them."""
    groups = [
        "\n".join([f"{title}:", *(f"  {name:9} {summary}" for name, summary in group.items())]) for title, group in GROUPS.items()
    ]
    description = "\n\n".join(["MCP tools for any local language model, through the prompt.", *groups])
    parser = CommandParser(prog="xmlcall", usage="xmlcall COMMAND ...", description=description, epilog=_EPILOG)
    parser.add_argument("--version", action=_Version)
    return parser


class _Version(argparse.Action):
    """Print the version, which is looked up only for this option."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"xmlcall {version('xmlcall')}")
        parser.exit()
