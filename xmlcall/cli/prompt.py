"""`xmlcall prompt`: the text that offers tools to a model."""

import argparse
import sys

from ..errors import UsageError
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from .exits import OK, run_async
from .inputs import read_tools
from .options import add_asking_options, add_server_options
from .plain import json_text, plain

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Print the system prompt that offers tools to a model, for use with a client of your own."
EPILOG = """examples:
  xmlcall prompt --tools tools.json
  xmlcall prompt --mcp servers.json --ask lang=zh
  xmlcall prompt --mcp servers.json --ask dialect=hermes
  xmlcall prompt --mcp my_server.py
  xmlcall tools --json | xmlcall prompt --tools -
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_server_options(parser)
    parser.add_argument(
        "--tools", metavar="FILE", help="a JSON file instead of servers: MCP's tools/list, or OpenAI's tools; - is standard input"
    )
    add_asking_options(parser, ("dialect", "family", "lang", "parallel"))
    parser.add_argument(
        "--reminder", action="store_true", help="print instead the reminder that goes to the end of the user's message"
    )
    parser.add_argument("--json", action="store_true", help="print both as a JSON object: system_prompt and reminder")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.tools is None:
        return run_async(_of_servers(options))
    if options.mcp:
        raise UsageError("expected either --mcp or --tools, got both")
    _print(options, read_tools(options.tools), {})
    return OK


async def _of_servers(options: argparse.Namespace) -> int:
    from .servers import open_router

    async with open_router(options) as router:
        _print(options, Catalog(await router.tools()), dict(router.instructions()))
    return OK


def _print(options: argparse.Namespace, catalog: Catalog, instructions: dict[str, str]) -> None:
    format = PromptFormat(**options.ask)
    reminder = prompt.reminder(catalog, format)
    system = prompt.tool_prompt(catalog, format, instructions=instructions)
    if options.json:
        print(json_text({"system_prompt": system, "reminder": reminder}))
    else:
        text = reminder if options.reminder else system.rstrip("\n")
        print(plain(text) if sys.stdout.isatty() else text)  # to a file or a program goes exactly what a model would get
