"""`xmlcall prompt` and `xmlcall template`: the text that offers tools, and a template that does."""

import argparse
import sys
from pathlib import Path

from ..errors import UsageError
from ..prompting import system as prompt
from ..prompting.chat_template import CHATML, chat_template, read_base, supported
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from .exits import OK, run_async
from .inputs import read_tools
from .options import Command, add_asking_options, add_server_options
from .plain import json_text, plain

_PROMPT = "Print the system prompt that offers tools to a model, for use with a client of your own."
_PROMPT_MORE = """examples:
  xmlcall prompt --tools tools.json
  xmlcall prompt --mcp servers.json --ask lang=zh
  xmlcall prompt --mcp servers.json --ask dialect=hermes
  xmlcall prompt --mcp my_server.py
  xmlcall tools --json | xmlcall prompt --tools -
"""


def _configure_prompt(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    parser.add_argument(
        "--tools", metavar="FILE", help="a JSON file instead of servers: MCP's tools/list, or OpenAI's tools; - is standard input"
    )
    add_asking_options(parser, ("dialect", "family", "lang", "parallel"))
    parser.add_argument(
        "--reminder", action="store_true", help="print instead the reminder that goes to the end of the user's message"
    )
    parser.add_argument("--json", action="store_true", help="print both as a JSON object: system_prompt and reminder")


def _execute_prompt(options: argparse.Namespace) -> int:
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
        print(plain(text) if sys.stdout.isatty() else text)  # a file or a program gets exactly what a model would get


_TEMPLATE = """Write a chat template that offers tools, as `xmlcall prompt` shows them: for vLLM, SGLang and others that render
templates themselves, and models whose own template knows no tools."""
_TEMPLATE_MORE = f"""examples:
  xmlcall template > tools.jinja
  xmlcall template --ask lang=zh --ask dialect=hermes > tools.jinja
  xmlcall template --base the_models_own.jinja > tools.jinja
  vllm serve MODEL --chat-template tools.jinja --enable-auto-tool-choice --tool-call-parser xmlcall

A template can write these formats: {", ".join(supported())}.
"""


def _configure_template(parser: argparse.ArgumentParser) -> None:
    add_asking_options(parser, ("dialect", "lang", "parallel"))
    parser.add_argument(
        "--reminder", action="store_true", help="end each user message with a reminder of the tools, which small models need"
    )
    parser.add_argument(
        "--base",
        default="chatml",
        metavar="chatml|FILE",
        help="how to wrap messages: as ChatML, or with a Jinja file such as the model's own template, which gets plain messages "
        "and no tools (default: %(default)s)",
    )


def _execute_template(options: argparse.Namespace) -> int:
    base = CHATML if options.base == "chatml" else read_base(Path(options.base))
    print(chat_template(PromptFormat(**options.ask), base, with_reminder=options.reminder), end="")
    return OK


COMMANDS = {
    "prompt": Command(_PROMPT, _PROMPT_MORE, _configure_prompt, _execute_prompt),
    "template": Command(_TEMPLATE, _TEMPLATE_MORE, _configure_template, _execute_template),
}
