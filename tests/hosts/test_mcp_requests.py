"""What servers ask of `McpHost`: forms, addresses, completions, folders, log levels; both eras, stdio and HTTP."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.started import everything_server, printed_url, until

from xmlcall.errors import ToolHostProtocolError, ToolHostUnavailable
from xmlcall.hosts.config import HttpServer, ServerConfig, StdioServer
from xmlcall.hosts.mcp.callbacks import MAX_ASKED, MAX_LOGGED, MAX_SAMPLE_TOKENS
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.requests import (
    ClientFeatures,
    ElicitAnswer,
    FormRequest,
    LogMessage,
    SampleReply,
    SampleRequest,
    UrlRequest,
)
from xmlcall.types.calls import TextContent, ToolResult

ASKING = str(Path(__file__).parents[1] / "servers" / "asking.py")
WAYS = [("stdio", "2025"), ("stdio", "2026"), ("http", "2025"), ("http", "2026")]

NAME = {"type": "string", "minLength": 2}
FORM = {"type": "object", "properties": {"name": NAME, "city": {"type": "string", "default": "Oslo"}}, "required": ["name"]}
ASK_FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who is it?", "requestedSchema": FORM}}
HELLO = [{"role": "user", "content": {"type": "text", "text": "Hello"}}]


@contextlib.contextmanager
def asking(way: tuple[str, str], record: Path, **fields: Any) -> Iterator[ServerConfig]:
    transport, era = way
    options = ["--legacy"] if era == "2025" else []
    if transport == "stdio":
        env = {"RECORD": str(record)}
        yield StdioServer(name="asking", command=sys.executable, args=(ASKING, *options), env=env, **fields)
        return
    with printed_url(ASKING, "--http", *options, RECORD=str(record)) as (url, _):
        yield HttpServer(name="asking", url=url, **fields)


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerConfig]:
    with asking(request.param, tmp_path / "record") as config:
        yield config


@pytest.fixture(params=WAYS[:2], ids=lambda way: way[1])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerConfig]:
    """A server over stdio, of either era."""
    with asking(request.param, tmp_path / "record") as config:
        yield config


def text_of(result: ToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def answer_to(host: McpHost, request: dict[str, Any], **more: Any) -> Any:
    return json.loads(text_of(await host.call("ask", {"request": request, **more})))


async def test_a_form_an_address_a_completion_and_folders(server: ServerConfig) -> None:
    asked: list[Any] = []

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        asked.append(request)
        return ElicitAnswer(action="accept", content={"name": "Ada"} if isinstance(request, FormRequest) else {})

    async def sample(request: SampleRequest) -> SampleReply:
        asked.append(request)
        return SampleReply(text="Hi", model="tiny", finish_reason="length")

    features = ClientFeatures(elicit=elicit, sample=sample, roots=("/srv/a b",))
    address = {"mode": "url", "message": "Sign in.", "url": "https://example.com/x?y=1", "elicitationId": "7"}
    completion = {"messages": HELLO, "systemPrompt": "Be brief.", "maxTokens": 99999, "stopSequences": ["."]}
    async with McpHost(server, features=features) as host:
        assert await answer_to(host, ASK_FORM) == {"action": "accept", "content": {"name": "Ada", "city": "Oslo"}}
        assert await answer_to(host, {"method": "elicitation/create", "params": address}) == {"action": "accept"}
        said = await answer_to(host, {"method": "sampling/createMessage", "params": completion})
        assert (said["content"]["text"], said["model"], said["stopReason"]) == ("Hi", "tiny", "maxTokens")
        roots = await answer_to(host, {"method": "roots/list"})
        assert roots["roots"] == [{"uri": "file:///srv/a%20b", "name": "a b"}]
    form, visit, sampled = asked
    assert (form.server, form.message, form.schema) == ("asking", "Who is it?", FORM)
    assert (visit.server, visit.url) == ("asking", "https://example.com/x?y=1")
    assert [(message.role, message.content) for message in sampled.messages] == [("system", "Be brief."), ("user", "Hello")]
    assert (sampled.max_tokens, sampled.stop) == (MAX_SAMPLE_TOKENS, (".",))
