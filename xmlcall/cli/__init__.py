"""The command line: `xmlcall COMMAND ...`, also `python -m xmlcall`.

A command is a module with `configure(parser)`, which declares its arguments, and `execute(options) -> int`. Only the module of
the command that was asked for is imported, and modules import what is heavy where they use it, so that `--help`, `parse` and
`prompt` start at once.
"""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence

from ..errors import UsageError
from .exits import guarded, prepare_streams
from .options import CommandParser

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "run": "answer one question, with tools",
    "chat": "talk to a model that has tools",
    "ui": "open a page that shows what a model writes and how it is read, with a chat",
    "serve": "give tool calling to the clients of any model: a proxy",
    "tools": "list the tools that servers offer",
    "resources": "list the resources of servers, and read one",
    "prompts": "list the prompts of servers, and fill one in",
    "login": "sign in to a server that wants OAuth",
    "logout": "forget the tokens of a server",
    "prompt": "print the system prompt that offers tools",
    "template": "write a chat template that offers tools, for servers that render their own",
    "parse": "read the calls in a model's text",
    "models": "list, fetch and remove local models",
    "policy": "show the rules about what runs, and what they say of a call",
    "probe": "find out how a model is best asked for calls",
    "profiles": "list, show and remove what is known of how models are asked",
    "log": "list, show, search and export what was said, and read replies again",
    "bench": "measure how well a model calls tools",
}

_EPILOG = """examples:
  xmlcall run "What is 1234 times 5678?"
  xmlcall run --model ollama:gemma3:4b --mcp servers.json "Which files changed today?"
  xmlcall chat --model http://127.0.0.1:8080/v1

`xmlcall COMMAND --help` tells more. Exit codes: 0 done, 1 it ran and failed, 2 used wrongly, 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    prepare_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)
    return guarded(lambda: _dispatch(given))


def _dispatch(arguments: list[str]) -> int:
    try:
        if not arguments or arguments[0].startswith("-"):
            _overview().parse_args(arguments)
            raise UsageError(f"expected a command: {', '.join(COMMANDS)} (see `xmlcall --help`)")
        return _command(arguments[0], arguments[1:])
    except SystemExit as leave:  # argparse, after it has printed what was asked for
        return int(leave.code or 0)


def _command(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"expected a command ({', '.join(COMMANDS)}), got {name[:80]!r}.{hint}")
    module = importlib.import_module(f".{name}", __name__)
    parser = CommandParser(prog=f"xmlcall {name}", description=module.DESCRIPTION, epilog=module.EPILOG)
    module.configure(parser)
    code: int = module.execute(parser.parse_args(arguments))
    return code


def _overview() -> CommandParser:
    """Make the parser of everything but commands; it lists them without importing them."""
    commands = "\n".join(f"  {name:9} {summary}" for name, summary in COMMANDS.items())
    description = f"MCP tools for any local language model, through the prompt.\n\ncommands:\n{commands}"
    parser = CommandParser(prog="xmlcall", usage="xmlcall COMMAND ...", description=description, epilog=_EPILOG)
    parser.add_argument("--version", action=_Version)
    return parser


class _Version(argparse.Action):
    """Print the version; looked up only when asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"xmlcall {version('xmlcall')}")
        parser.exit()
