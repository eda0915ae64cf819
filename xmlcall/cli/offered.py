"""`xmlcall tools`, `xmlcall resources` and `xmlcall prompts`: what servers offer to a model and to a person."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..hosts.base import Served
from ..hosts.mcp.wire import tool_to_mcp
from ..hosts.router import Router
from ..prompting.results import result_text
from ..tools.outline import ShownParameter, parameters_of
from ..types.calls import Tool, ToolResult
from ..types.served import Prompt, PromptMessage, Resource, ResourceTemplate
from .exits import FAILED, OK, complain, run_async
from .options import Command, add_server_options
from .plain import json_text, plain, shortened, title_of, visible
from .servers import chosen_server, open_router
from .words import Say

# -- tools -------------------------------------------------------------------------------------------------------------

_TOOLS = "List the tools that the servers offer, with their parameters. Starts the servers but runs no tool."
_TOOLS_MORE = """examples:
  xmlcall tools
  xmlcall tools --mcp servers.json --json > tools.json
  xmlcall tools --mcp http://127.0.0.1:8000/mcp
  xmlcall tools --mcp 'uvx mcp-server-time'
"""


def _configure_tools(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON in the shape of MCP's tools/list, for --tools FILE")


async def _tools(options: argparse.Namespace) -> int:
    async with open_router(options) as router:
        tools = await router.tools()
        if options.json:
            servers = ({"_meta": {"xmlcall/server": router.origin(tool.name)[0].name}} for tool in tools)
            print(json_text({"tools": [tool_to_mcp(tool) | server for tool, server in zip(tools, servers, strict=True)]}))
        else:
            for line in tool_lines(tools, router):
                print(line)
        return FAILED if router.failures else OK


def tool_lines(tools: Iterable[Tool], router: Router) -> list[str]:
    return [line for tool in tools for line in _tool_lines(tool, router)]


def _tool_lines(tool: Tool, router: Router) -> list[str]:
    host, own_name = router.origin(tool.name)
    parameters = ", ".join(_parameter_summary(parameter) for parameter in parameters_of(tool))
    offered = f"  (for the model: {tool.name})" if tool.name != own_name else ""
    first = tool.description.strip().partition("\n")[0]
    head = f"{visible(host.name)}.{visible(own_name)}({parameters}){offered}"
    if (title := title_of(tool)) and title != own_name:
        head += f"  {title}"
    return [head, f"    {shortened(first, lines=1, width=200)}"] if first else [head]


def found(name: str, tools: Iterable[Tool], router: Router) -> Tool | None:
    """Find a tool by the name that the model gets, by its own, or by `server.tool`."""
    for tool in tools:
        host, own_name = router.origin(tool.name)
        if name in (tool.name, own_name, f"{host.name}.{own_name}"):
            return tool
    return None


def parameter_lines(tool: Tool, router: Router, say: Say) -> list[str]:
    description = [f"    {line}".rstrip() for line in plain(tool.description).strip().splitlines()]
    return [_tool_lines(tool, router)[0], *description, *_parameter_rows(parameters_of(tool), say, "    ")]


def _parameter_rows(parameters: Iterable[ShownParameter], say: Say, indent: str) -> Iterator[str]:
    for each in parameters:
        kind = shortened(visible(each.kind), lines=1, width=200)
        yield f"{indent}{visible(each.name)}: {kind}, {say('required' if each.required else 'optional')}"
        if each.description:
            yield f"{indent}    {visible(each.description)}"
        yield from _parameter_rows(each.children, say, f"{indent}    ")


def _parameter_summary(parameter: ShownParameter) -> str:
    mark = "" if parameter.required else "?"
    return f"{visible(parameter.name)}{mark}: {shortened(visible(parameter.kind), lines=1, width=60)}"


# -- resources ---------------------------------------------------------------------------------------------------------

_RESOURCES = "List the resources of the servers, or read one. Starts the servers but runs no tool."
_RESOURCES_MORE = """examples:
  xmlcall resources --mcp servers.json
  xmlcall resources --mcp servers.json file:///notes/today.md
  xmlcall resources --mcp servers.json --server files file:///notes/today.md --json
"""


def _configure_resources(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    parser.add_argument("uri", metavar="URI", nargs="?", help="the resource to read (default: list all resources)")
    parser.add_argument("--server", metavar="NAME", help="the server to use, if several have resources")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def _resources(options: argparse.Namespace) -> int:
    async with open_router(options) as router:
        if options.uri is None:
            resources, templates = await router.resources(), await router.resource_templates()
            found: list[tuple[str, Resource | ResourceTemplate]] = [*resources.items, *templates.items]
            lines = None if options.json else [_resource_line(*each) for each in found]
            return _print_list("resource", found, lines, router, (*resources.notices, *templates.notices))
        served = chosen_server(router, "resources", options.server)
        result = await served.read_resource(options.uri)
        print(json_text({"contents": result.content}) if options.json else plain(result_text(result, reader="user")))
        return OK


def _print_list(
    kind: str, found: Sequence[tuple[str, Any]], lines: Iterable[str] | None, router: Router, notices: Iterable[str]
) -> int:
    """Print what servers offer, as lines or else as JSON, and what went wrong while it was listed."""
    different = dict.fromkeys(notices)
    for notice in different:
        complain(notice)
    if lines is None:
        print(json_text({f"{kind}s": [{"server": server, kind: item} for server, item in found]}))
    for line in lines or ():
        print(line)
    if lines is not None and not found and not router.failures and not different:
        complain(f"no server has {kind}s")
    return FAILED if router.failures or different else OK


def _resource_line(server: str, item: Resource | ResourceTemplate) -> str:
    uri = item.uri if isinstance(item, Resource) else item.uri_template
    size = f"{item.size} bytes" if isinstance(item, Resource) and item.size is not None else ""
    name, description = item.title or item.name, shortened(item.description, lines=1, width=200)
    details = ", ".join(filter(None, (visible(name) if name != uri else "", visible(item.mime_type), size, description)))
    return f"{visible(server)}  {visible(uri)}{f'  {details}' if details else ''}"


# -- prompts -----------------------------------------------------------------------------------------------------------

_PROMPTS = "List the prompts of the servers, or fill one in. Starts the servers but runs no tool."
_PROMPTS_MORE = """examples:
  xmlcall prompts --mcp servers.json
  xmlcall prompts --mcp servers.json summarize title=Emma style=short
  xmlcall prompts --mcp servers.json --server library summarize title=Emma --json
"""


def _configure_prompts(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the prompt to fill in (default: list all prompts)")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT=VALUE", help="arguments of the prompt")
    parser.add_argument("--server", metavar="NAME", help="the server to use, if several have a prompt of this name")
    parser.add_argument("--json", action="store_true", help="print JSON")


def arguments_of(given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for each, (name, sign, _) in zip(given, pairs, strict=True):
        if not name or not sign:
            raise UsageError(f"expected ARGUMENT=VALUE, got {each[:80]!r}")
    return {name: value for name, _, value in pairs}


async def _prompts(options: argparse.Namespace, arguments: Mapping[str, str]) -> int:
    async with open_router(options) as router:
        if options.name is None:
            listing = await router.prompts()
            lines = None if options.json else [prompt_line(*each) for each in listing.items]
            return _print_list("prompt", listing.items, lines, router, listing.notices)
        served = chosen_server(router, "prompts", options.server) if options.server else await prompt_server(router, options.name)
        text = await served.get_prompt(options.name, arguments)
        if options.json:
            print(json_text(text))
        for message in () if options.json else text.messages:
            print(f"{message.role}: {plain(prompt_words(message))}")
        return OK


def prompt_words(message: PromptMessage) -> str:
    """Return the text of a prompt's message; a picture becomes a line that describes it."""
    return result_text(ToolResult(content=(message.content,)), reader="user")


async def prompt_server(router: Router, name: str, *, lists: str = "`xmlcall prompts`") -> Served:
    """Return the server that has a prompt; if several have it, the person has to choose. `lists` is what lists the prompts."""
    found = [server for server, prompt in (await router.prompts()).items if prompt.name == name]
    if len(found) != 1:
        several = f"--server {'|'.join(found)}: several have this prompt"
        raise UsageError(f"expected {several if found else f'the name of a prompt, got {name[:80]!r}; {lists} lists them'}")
    return router.having("prompts")[found[0]]


def prompt_line(server: str, prompt: Prompt) -> str:
    arguments = ", ".join(f"{visible(each.name)}{'' if each.required else '?'}" for each in prompt.arguments)
    title = prompt.title if prompt.title != prompt.name else ""
    details = ": ".join(part for part in (visible(title), shortened(prompt.description, lines=1, width=200)) if part)
    return f"{visible(server)}.{visible(prompt.name)}({arguments}){f'  {details}' if details else ''}"


COMMANDS = {
    "tools": Command(_TOOLS, _TOOLS_MORE, _configure_tools, lambda options: run_async(_tools(options))),
    "resources": Command(_RESOURCES, _RESOURCES_MORE, _configure_resources, lambda options: run_async(_resources(options))),
    "prompts": Command(
        _PROMPTS, _PROMPTS_MORE, _configure_prompts, lambda options: run_async(_prompts(options, arguments_of(options.arguments)))
    ),
}
