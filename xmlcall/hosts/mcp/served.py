"""Resources and prompts of an MCP server; each request has a time limit, and a failure is one sentence.

Follows MCP 2025-11-25 and 2026-07-28. Nothing is cached between requests, so nothing has to be listed again when a server reports
that its list has changed.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, TypeVar, cast

from mcp import Client, MCPError
from mcp import types as mcp
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ...types.calls import EmbeddedResource, ToolResult
from ...types.served import Completion, Listing, Prompt, PromptArgument, PromptMessage, PromptText, Resource, ResourceTemplate
from ..base import NO_ARGUMENTS
from ..server import ServerConfig
from .connection import Connection
from .errors import is_lost, request_error, timeout_error
from .wire import ROLES, content_from_mcp, contents_from_mcp, cut_result, string_in

# -- lists in pages: a server may repeat cursors, make up new ones for ever, or list without end ------------------------

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000

T = TypeVar("T")

Original = Callable[[Mapping[str, Any] | None], dict[str, Any]]
"""Returns the original answer from the `_meta` of its replacement; raises if it is not a complete answer."""


async def _listed(
    fetch: Callable[..., Awaitable[Any]], original: Original, key: str, read: Callable[[Mapping[str, Any]], T | None]
) -> Listing[T]:
    """List all that a server has of a kind, by a method of the SDK's `Client` that lists."""
    items: list[T] = []
    notices: list[str] = []
    broken = 0
    async for _, page in pages(fetch, original, notices):
        entries = page.get(key)
        for entry in entries if isinstance(entries, list) else ():
            item = read(entry) if isinstance(entry, Mapping) else None
            if item is None:
                broken += 1
            else:
                items.append(item)
        if len(items) > MAX_ITEMS:
            notices.append(f"Listing stopped: there are more than {MAX_ITEMS:,} {key}.")
            break
    if broken:
        notices.append(f"{broken} of its {key} were left out: they lack what MCP asks for.")
    return Listing(items=tuple(items[:MAX_ITEMS]), notices=tuple(notices))


async def pages(
    fetch: Callable[..., Awaitable[Any]], original: Original, notices: list[str]
) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
    """Yield the pages of a list, as the SDK read them and as they came; `notices` gets a sentence if the list was cut."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        answer = await fetch(cursor=cursor)
        page = original(answer.meta)
        yield answer, page
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):  # "" is a cursor like any other
            return
        if cursor in seen:
            notices.append("Listing stopped: the server repeats a page.")
            return
        seen.add(cursor)
    notices.append(f"Listing stopped after {MAX_PAGES} pages.")


# -- resources ---------------------------------------------------------------------------------------------------------

MAX_CONTENTS: Final = 1000


def resource_from_mcp(entry: Mapping[str, Any]) -> Resource | None:
    """Read an entry of `resources/list`; None if it has no address."""
    if not (uri := string_in(entry, "uri")):
        return None
    size = entry.get("size")
    has_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return Resource(uri=uri, size=size if has_size else None, **_described(entry))


def _described(entry: Mapping[str, Any]) -> dict[str, str]:
    return {"mime_type": string_in(entry, "mimeType")} | {key: string_in(entry, key) for key in ("name", "title", "description")}


async def updates(connection: Connection, uri: str, limit: float) -> AsyncGenerator[None]:
    """Yield when the server reports that a resource has changed, until the connection or the subscription ends."""
    client = connection.client
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        stream = _listened(client, uri, limit)
    else:
        stream = _subscribed(connection, uri, limit)
    async with aclosing(stream) as events:
        async for event in events:
            yield event


async def _listened(client: Client, uri: str, limit: float) -> AsyncGenerator[None]:
    listening = client.listen(resource_subscriptions=[uri])
    async with asyncio.timeout(limit) as patience, listening as subscription:
        patience.reschedule(None)
        with contextlib.suppress(SubscriptionLost):
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    yield


async def _subscribed(connection: Connection, uri: str, limit: float) -> AsyncGenerator[None]:
    """Subscribe as before 2026-07-28; notifications arrive at the connection, which passes them on."""
    session = connection.client.session
    updated = asyncio.Event()
    with connection.watched(uri, updated):
        subscribe = mcp.SubscribeRequest(params=mcp.SubscribeRequestParams(uri=uri))
        await session.send_request(subscribe, mcp.EmptyResult, request_read_timeout_seconds=limit)
        try:
            while not connection.closed:
                await updated.wait()
                updated.clear()
                if not connection.closed:
                    yield
        finally:
            if not connection.closed:
                unsubscribe = mcp.UnsubscribeRequest(params=mcp.UnsubscribeRequestParams(uri=uri))
                with contextlib.suppress(MCPError, TimeoutError):
                    await session.send_request(unsubscribe, mcp.EmptyResult, request_read_timeout_seconds=limit)


# -- prompts and completion --------------------------------------------------------------------------------------------

MAX_MESSAGES: Final = 1000
MAX_VALUES: Final = 100  # of a completion (MCP 2025-11-25, completion: MUST)


def prompt_from_mcp(entry: Mapping[str, Any]) -> Prompt | None:
    """Read an entry of `prompts/list`; None if it has no name."""
    if not (name := string_in(entry, "name")):
        return None
    listed = entry.get("arguments")
    arguments = (
        PromptArgument(name=named, description=string_in(each, "description"), required=each.get("required") is True)
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and (named := string_in(each, "name"))
    )
    described = {key: string_in(entry, key) for key in ("title", "description")}
    return Prompt(name=name, arguments=tuple(arguments), **described)


def prompt_text_from_mcp(answer: Mapping[str, Any]) -> PromptText:
    """Read an answer to `prompts/get`."""
    messages = answer.get("messages")
    entries = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    read = tuple(
        PromptMessage(role=cast(Any, entry["role"]), content=content_from_mcp(entry.get("content")))
        for entry in entries[:MAX_MESSAGES]
        if entry.get("role") in ROLES
    )
    return PromptText(description=string_in(answer, "description"), messages=read)


def completion_from_mcp(answer: Mapping[str, Any]) -> Completion:
    """Read an answer to `completion/complete`; values that are no texts are left out."""
    completion = answer.get("completion")
    if not isinstance(completion, Mapping) or not isinstance(completion.get("values"), list):
        return Completion()
    values = [value for value in completion["values"] if isinstance(value, str)]
    return Completion(values=tuple(values[:MAX_VALUES]), has_more=completion.get("hasMore") is True or len(values) > MAX_VALUES)


# -- a host's resources and prompts --------------------------------------------------------------------------------------

MAX_CHARACTERS: Final = 2_000_000
PAUSES: Final = (1.0, 5.0, 30.0, 60.0)  # seconds before subscribing again after a subscription has ended; the last one repeats

Ask = Callable[[str, float, Callable[[Client], Awaitable[Any]]], Awaitable[Any]]
"""Makes a request of a live server, described by a phrase, within a time limit; fails with a `ToolHostError`."""


@dataclass(frozen=True, slots=True)
class McpServed:
    """Resources and prompts of a server, a `Served`."""

    server: ServerConfig
    ask: Ask
    live: Callable[[], Awaitable[Connection]]
    connection: Callable[[], Connection | None]
    original: Original

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        return self._says("resources")

    @property
    def has_prompts(self) -> bool:
        """Whether the server says that it has prompts."""
        return self._says("prompts")

    async def resources(self) -> Listing[Resource]:
        """List the resources (see `Served`)."""
        return await self._listed("resources", lambda client: client.list_resources, resource_from_mcp)

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        """List the templates of further resources' addresses (see `Served`)."""

        def read(entry: Mapping[str, Any]) -> ResourceTemplate | None:
            uri = string_in(entry, "uriTemplate")
            return ResourceTemplate(uri_template=uri, **_described(entry)) if uri else None

        return await self._listed("resourceTemplates", lambda client: client.list_resource_templates, read)

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource (see `Served`) as a tool's result, because it is shown and limited like one."""
        answer = await self._answer(f"reading {uri[:200]!r}", lambda client: client.read_resource(uri))
        entries = answer.get("contents")
        found = map(contents_from_mcp, entries[:MAX_CONTENTS]) if isinstance(entries, list) else ()
        contents: tuple[EmbeddedResource, ...] = tuple(each for each in found if each is not None)
        return cut_result(ToolResult(content=contents), MAX_CHARACTERS)

    async def resource_updates(self, uri: str) -> AsyncGenerator[None]:
        """Yield when a resource may have changed (see `Served`); subscribe again after a restart of the server."""
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            connection = await self.live()
            doing, limit = "subscribing to a resource", self.server.timeout
            try:
                async with aclosing(updates(connection, uri, limit)) as stream:
                    async for _ in stream:
                        yield
            except TimeoutError as error:
                raise timeout_error(self.server, doing, limit, connection) from error
            except MCPError as error:
                if not is_lost(error):
                    raise request_error(self.server, doing, error, connection) from error
            await asyncio.sleep(pause)
            yield  # changes in between are not reported again

    async def prompts(self) -> Listing[Prompt]:
        """List the prompts (see `Served`)."""
        return await self._listed("prompts", lambda client: client.list_prompts, prompt_from_mcp)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] = NO_ARGUMENTS) -> PromptText:
        """Fill in a prompt (see `Served`)."""
        answer = await self._answer(f"filling in {name[:200]!r}", lambda client: client.get_prompt(name, dict(arguments)))
        return prompt_text_from_mcp(answer)

    async def complete(
        self, of: Prompt | ResourceTemplate, argument: str, typed: str, given: Mapping[str, str] = NO_ARGUMENTS
    ) -> Completion:
        """Ask for possible values of an argument (see `Served`)."""
        if not self._says("completions"):
            return Completion()
        reference: mcp.PromptReference | mcp.ResourceTemplateReference
        if isinstance(of, Prompt):
            reference = mcp.PromptReference(type="ref/prompt", name=of.name)
        else:
            reference = mcp.ResourceTemplateReference(type="ref/resource", uri=of.uri_template)
        asked, others = {"name": argument, "value": typed}, dict(given) or None
        answer = await self._answer("completing an argument", lambda client: client.complete(reference, asked, others))
        return completion_from_mcp(answer)

    def _says(self, capability: str) -> bool:
        connection = self.connection()
        if connection is None or not connection.opened:
            return False
        return getattr(connection.client.server_capabilities, capability) is not None

    async def _answer(self, doing: str, request: Callable[[Client], Awaitable[Any]]) -> dict[str, Any]:
        answer = await self.ask(doing, self.server.timeout, request)
        return self.original(answer.meta)

    async def _listed(
        self, key: str, fetch: Callable[[Client], Any], read: Callable[[Mapping[str, Any]], T | None]
    ) -> Listing[T]:
        request = lambda client: _listed(fetch(client), self.original, key, read)  # noqa: E731
        found: Listing[T] = await self.ask(f"listing its {key}", self.server.timeout, request)
        return found
