"""`xmlcall resources`: what the servers have to read."""

import argparse

from ..hosts.router import Router
from ..prompting.results import result_text
from ..types.served import Resource, ResourceTemplate
from .exits import FAILED, OK, complain, run_async
from .options import add_server_options
from .plain import json_text, plain, shortened, visible
from .servers import chosen_server, open_router

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "List the resources of the servers, or read one. Starts the servers but runs no tool."
EPILOG = """examples:
  xmlcall resources --mcp servers.json
  xmlcall resources --mcp servers.json file:///notes/today.md
  xmlcall resources --mcp servers.json --server files file:///notes/today.md --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_server_options(parser)
    parser.add_argument("uri", nargs="?", help="the resource to read (default: list all resources)")
    parser.add_argument("--server", metavar="NAME", help="the server to use, if several have resources")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_resources(options))


async def _resources(options: argparse.Namespace) -> int:
    async with open_router(options) as router:
        if options.uri is None:
            return await _list(router, as_json=options.json)
        served = chosen_server(router, "resources", options.server)
        result = await served.read_resource(options.uri)
        print(json_text({"contents": result.content}) if options.json else plain(result_text(result, reader="user")))
        return OK


async def _list(router: Router, *, as_json: bool) -> int:
    resources, templates = await router.resources(), await router.resource_templates()
    notices = dict.fromkeys((*resources.notices, *templates.notices))
    for notice in notices:
        complain(notice)
    found: list[tuple[str, Resource | ResourceTemplate]] = [*resources.items, *templates.items]
    if as_json:
        print(json_text({"resources": [{"server": server, "resource": item} for server, item in found]}))
    else:
        for server, item in found:
            print(_line(server, item))
    return FAILED if router.failures or notices else OK


def _line(server: str, item: Resource | ResourceTemplate) -> str:
    uri = item.uri if isinstance(item, Resource) else item.uri_template
    size = f"{item.size} bytes" if isinstance(item, Resource) and item.size is not None else ""
    name, description = item.title or item.name, shortened(item.description, lines=1, width=200)
    details = ", ".join(filter(None, (visible(name) if name != uri else "", visible(item.mime_type), size, description)))
    return f"{visible(server)}  {visible(uri)}{f'  {details}' if details else ''}"
