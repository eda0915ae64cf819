"""Resources of an MCP server: lists, templates, contents, and being told when one changes (MCP 2025-11-25 and 2026-07-28).

Nothing is kept between requests, so nothing has to be listed again when a server says that its list has changed.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from mcp import Client, MCPError
from mcp import types as mcp
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ...types.calls import EmbeddedResource, ToolResult
from ...types.served import Resource, ResourceTemplate
from .connection import Connection
from .wire import contents_from_mcp, cut_result, string_in

__all__ = ["contents_read", "resource_from_mcp", "template_from_mcp", "updates"]

MAX_CONTENTS: Final = 1000


def resource_from_mcp(entry: Mapping[str, Any]) -> Resource | None:
    """Read an entry of `resources/list`; None if it has no address."""
    if not (uri := string_in(entry, "uri")):
        return None
    size = entry.get("size")
    has_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return Resource(uri=uri, size=size if has_size else None, **_described(entry))


def template_from_mcp(entry: Mapping[str, Any]) -> ResourceTemplate | None:
    """Read an entry of `resources/templates/list`; None if it has no address."""
    uri = string_in(entry, "uriTemplate")
    return ResourceTemplate(uri_template=uri, **_described(entry)) if uri else None


def _described(entry: Mapping[str, Any]) -> dict[str, str]:
    return {"mime_type": string_in(entry, "mimeType")} | {key: string_in(entry, key) for key in ("name", "title", "description")}


def contents_read(answer: Mapping[str, Any], limit: int) -> ToolResult:
    """Read an answer to `resources/read`, as the result of a tool that reads: it is shown and bounded as one."""
    entries = answer.get("contents")
    found = map(contents_from_mcp, entries[:MAX_CONTENTS]) if isinstance(entries, list) else ()
    contents: tuple[EmbeddedResource, ...] = tuple(each for each in found if each is not None)
    return cut_result(ToolResult(content=contents), limit)


async def updates(connection: Connection, uri: str, limit: float) -> AsyncGenerator[None]:
    """Have the server tell when a resource has changed, until the connection has ended or the server ends it."""
    client = connection.client
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        told = _listened(client, uri, limit)
    else:
        told = _subscribed(connection, uri, limit)
    async with aclosing(told) as events:
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
    """Subscribe as before 2026-07-28; what is told comes unasked, and the connection passes it on."""
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
