"""Resources and prompts: over stdio and HTTP, of both eras, and of servers that answer outside the protocol."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from servers.raw_http import Answer, Request, raw_http, reply
from servers.started import DEMO, everything_server, printed_url

from xmlcall.errors import ToolHostProtocolError
from xmlcall.hosts.base import Host, ServingHost
from xmlcall.hosts.local import LocalHost
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.router import Router
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer
from xmlcall.types.calls import EmbeddedResource, TextContent, ToolResult
from xmlcall.types.served import Completion, PromptMessage, PromptText, Resource, ResourceTemplate

LIBRARY = Path(__file__).parents[1] / "servers" / "library.py"


@contextmanager
def library(transport: str) -> Iterator[ServerConfig]:
    if transport == "stdio":
        yield StdioServer(name="library", command=sys.executable, args=(str(LIBRARY),))
        return
    with printed_url(str(LIBRARY), "--http") as (url, _):
        yield HttpServer(name="library", url=url)


@pytest.fixture(scope="module")
def over_http() -> Iterator[ServerConfig]:
    """A server that tests share which change nothing in it."""
    with library("http") as server:
        yield server


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_resources_and_prompts_of_2026(transport: str, over_http: ServerConfig) -> None:
    with nullcontext(over_http) if transport == "http" else library(transport) as server:
        async with McpHost(server) as host:
            served = host.served
            assert served.says("resources")
            assert served.says("prompts")
            today, data = (await served.resources()).items
            assert today == Resource(
                uri="note://today", name="today", title="Today", description="What was noted.", mime_type="text/plain"
            )
            assert (await served.read_resource(today.uri)).content == (
                EmbeddedResource(uri="note://today", mime_type="text/plain", text="first"),
            )
            assert (await served.read_resource(data.uri)).content == (
                EmbeddedResource(uri="data://bytes", mime_type="application/octet-stream", blob="AAEC"),
            )
            (book,) = (await served.resource_templates()).items
            assert book.uri_template == "book://{title}/{chapter}"
            assert "chapter 2" in str(await served.read_resource("book://Emma/2"))
            (prompt,) = (await served.prompts()).items
            assert (prompt.name, prompt.title, prompt.description) == ("summarize", "Summarize a book", "Ask for a summary.")
            assert [(each.name, each.required) for each in prompt.arguments] == [("title", True), ("style", False)]
            text = await served.get_prompt("summarize", {"title": "Emma"})
            said = PromptMessage(role="user", content=TextContent(text="Summarize Emma, short."))
            assert text == PromptText(description="Ask for a summary.", messages=(said,))
            assert await served.complete(prompt, "style", "l") == Completion(values=("long", "lively"))
            assert await served.complete(prompt, "style", "E", {"title": "Emma"}) == Completion(values=("Emmashort",))
            assert await served.complete(book, "title", "U") == Completion(values=("Ulysses",))


@pytest.mark.full
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_resources_and_prompts_of_2025(transport: str) -> None:
    with everything_server(transport) as server:
        async with McpHost(server) as host:
            served = host.served
            resources = (await served.resources()).items
            assert resources
            assert all(resource.uri for resource in resources)
            result = await served.read_resource(resources[0].uri)
            assert result.content
            templates = (await served.resource_templates()).items
            assert any("{" in template.uri_template for template in templates)
            prompts = {prompt.name: prompt for prompt in (await served.prompts()).items}
            simple = await served.get_prompt("simple-prompt")
            assert [message.role for message in simple.messages] == ["user"]
            completable = prompts["completable-prompt"]
            assert (await served.complete(completable, "department", "E")).values == ("Engineering",)
            assert "Alice" in (await served.complete(completable, "name", "A", {"department": "Engineering"})).values


async def test_a_prompt_that_cannot_be_filled_in_is_one_sentence(over_http: ServerConfig) -> None:
    async with McpHost(over_http) as host:
        with pytest.raises(ToolHostProtocolError, match=r"^library: .*filling in 'nothing'"):
            await host.served.get_prompt("nothing")
        with pytest.raises(ToolHostProtocolError, match=r"^library: .*reading 'note://none'"):
            await host.served.read_resource("note://none")


ENTRY = {"uri": "x://1", "name": "one"}
PAGES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], str]] = {
    "a repeated cursor": ([{"resources": [ENTRY], "nextCursor": "a"}] * 3, ("x://1", "x://1"), "repeats a page"),
    "an empty cursor is one": ([{"resources": [ENTRY], "nextCursor": ""}, {"resources": [ENTRY]}], ("x://1", "x://1"), ""),
    "cursors without end": ([{"resources": [], "nextCursor": str(number)} for number in range(200)], (), "after 100 pages"),
    "too many": ([{"resources": [ENTRY] * 10_001, "nextCursor": "a"}], ("x://1",) * 10_000, "more than 10,000"),
    "entries that are none": (
        [{"resources": [ENTRY, {}, {"uri": 3}, None, "x"]}],
        ("x://1",),
        "4 of its resources were left out",
    ),
    "no list": ([{"resources": "none"}], (), ""),
    "odd fields": ([{"resources": [ENTRY | {"size": "big", "title": 7, "icons": 3}]}], ("x://1",), ""),
}


@pytest.mark.parametrize("case", PAGES)
async def test_lists_are_bounded_and_lose_only_what_is_broken(case: str) -> None:
    pages, uris, notice = PAGES[case]
    asked = iter(pages)

    async def handler(request: Request) -> Answer:
        method = request.body.get("method")
        if method == "initialize":
            info = {"name": "raw", "version": "1"}
            return reply(
                request, {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "tools": {}}, "serverInfo": info}
            )
        if method == "tools/list":
            return reply(request, {"tools": []})
        return reply(request, next(asked)) if method == "resources/list" else Answer(status=202)

    async with raw_http(handler) as url, Router([McpHost(HttpServer(name="raw", url=url)), LocalHost([])]) as router:
        listing = await router.resources()
        assert tuple(resource.uri for _, resource in listing.items) == uris
        assert {name for name, _ in listing.items} <= {"raw"}
        if notice:
            assert len(listing.notices) == 1
            assert listing.notices[0].startswith("raw: ")
            assert notice in listing.notices[0]
        else:
            assert listing.notices == ()


ANSWERS: dict[str, tuple[str, Any, Any]] = {
    "no contents": ("resources/read", {}, ()),
    "contents of no kind": ("resources/read", {"contents": [{"uri": "x"}, 3, {"uri": 7, "text": "a"}]}, ("a",)),
    "no messages": ("prompts/get", {"messages": None}, ()),
    "messages of no role": (
        "prompts/get",
        {"messages": [{"role": "system", "content": {}}, {"role": "user", "content": {"type": "text", "text": "hi"}}]},
        ("hi",),
    ),
    "values that are no texts": ("completion/complete", {"completion": {"values": ["a", 1, None] + ["b"] * 200}}, 100),
    "no completion": ("completion/complete", {"completion": 3}, 0),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_answers_outside_the_protocol_lose_only_what_is_broken(case: str) -> None:
    method, answer, expected = ANSWERS[case]

    async def handler(request: Request) -> Answer:
        asked = request.body.get("method")
        if asked == "initialize":
            capabilities: dict[str, Any] = {"resources": {}, "prompts": {}, "completions": {}}
            info = {"name": "raw", "version": "1"}
            return reply(request, {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
        return reply(request, answer) if asked == method else Answer(status=202)

    async with raw_http(handler) as url, McpHost(HttpServer(name="raw", url=url)) as host:
        served = host.served
        if method == "resources/read":
            result = await served.read_resource("x://1")
            assert tuple(each.text for each in result.content if isinstance(each, EmbeddedResource)) == expected
        elif method == "prompts/get":
            contents = [message.content for message in (await served.get_prompt("p")).messages]
            assert tuple(each.text for each in contents if isinstance(each, TextContent)) == expected
        else:
            found = await served.complete(ResourceTemplate(uri_template="x://{a}"), "a", "")
            assert len(found.values) == expected


async def test_a_long_resource_is_cut_and_says_so() -> None:
    async def handler(request: Request) -> Answer:
        if request.body.get("method") == "initialize":
            info = {"name": "raw", "version": "1"}
            return reply(request, {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}}, "serverInfo": info})
        if request.body.get("method") == "resources/read":
            return reply(request, {"contents": [{"uri": "x://1", "text": "x" * 2_000_100}]})
        return Answer(status=202)

    async with raw_http(handler) as url, McpHost(HttpServer(name="raw", url=url)) as host:
        result: ToolResult = await host.served.read_resource("x://1")
        text, note = result.content
        assert isinstance(text, EmbeddedResource)
        assert len(text.text or "") == 2_000_000 - len("x://1")
        assert "2000105 characters came" in str(note)


async def test_the_router_knows_who_has_what(over_http: ServerConfig) -> None:
    hosts: list[Host] = [McpHost(DEMO), McpHost(over_http), LocalHost([])]
    assert [isinstance(host, ServingHost) for host in hosts] == [True, True, False]
    async with Router(hosts, patience=None) as router:
        assert list(router.having("prompts")) == ["demo", "library"]  # a server of the SDK says so also where it has none
        assert [(name, prompt.name) for name, prompt in (await router.prompts()).items] == [("library", "summarize")]
        names = [(name, template.name) for name, template in (await router.resource_templates()).items]
        assert names == [("library", "chapter")]
