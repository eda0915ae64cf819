"""`xmlcall prompts`: the texts that servers have ready for a person to send."""

import argparse
from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..hosts.base import Served
from ..hosts.router import Router
from ..prompting.results import result_text
from ..types.calls import ToolResult
from ..types.served import Prompt, PromptMessage
from .exits import FAILED, OK, complain, run_async
from .options import add_server_options
from .plain import json_text, plain, shortened, visible
from .servers import chosen_server, open_router

__all__ = ["DESCRIPTION", "EPILOG", "arguments_of", "configure", "execute", "prompt_line", "prompt_server", "prompt_words"]

DESCRIPTION = "List the prompts of the servers, or fill one in. Starts the servers but runs no tool."
EPILOG = """examples:
  xmlcall prompts --mcp servers.json
  xmlcall prompts --mcp servers.json summarize title=Emma style=short
  xmlcall prompts --mcp servers.json --server library summarize title=Emma --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_server_options(parser)
    parser.add_argument("name", nargs="?", help="the prompt to fill in (default: list all prompts)")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT=VALUE", help="arguments of the prompt")
    parser.add_argument("--server", metavar="NAME", help="the server to use, if several have a prompt of this name")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    arguments = arguments_of(options.arguments)
    return run_async(_prompts(options, arguments))


def arguments_of(given: Sequence[str]) -> dict[str, str]:
    """Read the arguments of a prompt."""
    pairs = [each.partition("=") for each in given]
    for each, (name, sign, _) in zip(given, pairs, strict=True):
        if not name or not sign:
            raise UsageError(f"expected ARGUMENT=VALUE, got {each[:80]!r}")
    return {name: value for name, _, value in pairs}


async def _prompts(options: argparse.Namespace, arguments: Mapping[str, str]) -> int:
    async with open_router(options) as router:
        if options.name is None:
            return await _list(router, as_json=options.json)
        served = chosen_server(router, "prompts", options.server) if options.server else await prompt_server(router, options.name)
        text = await served.get_prompt(options.name, arguments)
        if options.json:
            print(json_text(text))
        for message in () if options.json else text.messages:
            print(f"{message.role}: {plain(prompt_words(message))}")
        return OK


def prompt_words(message: PromptMessage) -> str:
    """Return the text of a message of a prompt, a picture as a line about it."""
    return result_text(ToolResult(content=(message.content,)), reader="user")


async def prompt_server(router: Router, name: str) -> Served:
    """Return the server that has a prompt; of several the person has to choose."""
    found = [server for server, prompt in (await router.prompts()).items if prompt.name == name]
    if len(found) != 1:
        several = f"--server {'|'.join(found)}: several have this prompt"
        raise UsageError(
            f"expected {several if found else f'the name of a prompt, got {name[:80]!r}; `xmlcall prompts` lists them'}"
        )
    return router.having("prompts")[found[0]]


async def _list(router: Router, *, as_json: bool) -> int:
    listing = await router.prompts()
    for notice in listing.notices:
        complain(notice)
    if as_json:
        print(json_text({"prompts": [{"server": server, "prompt": prompt} for server, prompt in listing.items]}))
    else:
        for server, prompt in listing.items:
            print(prompt_line(server, prompt))
    return FAILED if router.failures or listing.notices else OK


def prompt_line(server: str, prompt: Prompt) -> str:
    """Write a prompt as a line of a list."""
    arguments = ", ".join(f"{visible(each.name)}{'' if each.required else '?'}" for each in prompt.arguments)
    title = prompt.title if prompt.title != prompt.name else ""
    details = ": ".join(part for part in (visible(title), shortened(prompt.description, lines=1, width=200)) if part)
    return f"{visible(server)}.{visible(prompt.name)}({arguments}){f'  {details}' if details else ''}"
