"""The client that MCP's conformance suite tests: python tests/conformance/client.py URL

A scripted model writes one call a reply, as XML; `ToolLoop` reads, binds, approves and runs it over `McpHost`. So each scenario
passes through all that a real model's call passes through. The suite names the scenario and gives its data in the environment.

The model calls every tool that the server offers, once. The arguments are those that the suite gives; where it gives none, they
are made of the tool's schema.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from xmlcall import HttpServer, McpHost, Message, RepairPolicy, Tool, ToolLoop, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ToolHostError
from xmlcall.hosts.mcp.oauth import SignIn
from xmlcall.hosts.mcp.server_requests import ClientFeatures, ElicitAnswer, FormRequest, UrlRequest
from xmlcall.hosts.server import OAuth

sys.path.insert(0, str(Path(__file__).parents[1]))  # it runs as a program of its own
from servers.memory_tokens import MemoryTokens

EXAMPLES: dict[str, Any] = {
    "string": "text",
    "number": 2.5,
    "integer": 3,
    "boolean": True,
    "object": {},
    "array": [],
    "null": None,
}
ECHO, ECHOED = "json_schema_echo", "json_schema_2020_12_tool"
"""The tool that is sent the schema of the other, as it was listed."""

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite expects where a server takes documents in place of registrations."""

SPELLINGS = {
    "client_id": "client_id",
    "client_secret": "client_secret",
    "issuer": "issuer",
    "private_key_pem": "private_key",
    "signing_algorithm": "signing_algorithm",
}
"""Of the suite's context -> of our configuration."""

Call = dict[str, Any]


def calls_of(tools: Mapping[str, Tool], context: Mapping[str, Any]) -> list[Call]:
    """Say what the model calls: what the suite asks for, else each tool."""
    if "toolCalls" in context:
        # A null stands for an argument that is not given: the tools of this scenario do not admit null.
        return [call | {"arguments": without_null(call["arguments"])} for call in context["toolCalls"]]
    if ECHO in tools:
        return [{"name": ECHO, "arguments": {"schema": dict(tools[ECHOED].input_schema)}}]
    return [{"name": name, "arguments": arguments_of(tool)} for name, tool in tools.items()]


def without_null(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def arguments_of(tool: Tool) -> dict[str, Any]:
    """Make valid arguments of the required parameters."""
    parameters = tool.input_schema.get("properties", {})
    return {name: EXAMPLES[parameters[name].get("type", "string")] for name in tool.input_schema.get("required", ())}


async def oauth_of(url: str, context: Mapping[str, Any]) -> OAuth:
    """Write what a configuration would say of the sign-in, with what the suite gives; it also hosts a metadata document."""
    given = {ours: context[theirs] for theirs, ours in SPELLINGS.items() if theirs in context}
    if "client_id" in given and SCENARIO.startswith("auth/client-credentials"):
        given |= {"grant": "client_credentials", "issuer": await issuer_of(url)}
    return OAuth(**given) if given else OAuth(client_metadata_url=METADATA_DOCUMENT)


async def issuer_of(url: str) -> str:
    """Find out what a person who writes a configuration knows: at which authorization server the client is registered."""
    async with httpx2.AsyncClient() as http:
        found = await http.get(urljoin(url, "/.well-known/oauth-protected-resource" + urlsplit(url).path))
    return str(found.json()["authorization_servers"][0])


async def agree(server: str, url: str) -> bool:
    """Sign in as the browser of a person would, up to the way back to us."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)
    return True


async def accept(request: FormRequest | UrlRequest) -> ElicitAnswer:
    """Send a form as it came: with the defaults of its fields."""
    return ElicitAnswer(action="accept")


async def main(url: str, context: Mapping[str, Any]) -> None:
    server = HttpServer(name="suite", url=url, oauth=await oauth_of(url, context))
    sign_in = SignIn(ask=agree, tokens=MemoryTokens(), patience=5.0)
    host = McpHost(server, sign_in=sign_in, features=ClientFeatures(elicit=accept))
    async with ToolLoop(ScriptedBackend(()), [host], policy=["*"], repair=RepairPolicy(max_replies=100)) as loop:
        tools = {tool.name: tool for tool in await loop.catalog()}
        calls = calls_of(tools, context)
        replies = [render([call], list(tools.values())) for call in calls]
        loop.backend = ScriptedBackend([*replies, "Done."])  # now that its lines are known
        # The question names the values: a call with values that nobody said is held back.
        question = f"Make these calls: {json.dumps(calls, ensure_ascii=False)}"
        async for event in loop.run([Message(role="user", content=question)]):
            print(event)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[-1], json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))))
    except ToolHostError as error:
        sys.exit(f"{type(error).__name__}: {error}")
