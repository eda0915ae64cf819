"""What an MCP server has beside tools, by the requests of its host: each has a limit of time and fails in one sentence."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Protocol, TypeVar

from mcp import Client, MCPError

from ...types.calls import ToolResult
from ...types.served import Completion, Listing, Prompt, PromptText, Resource, ResourceTemplate
from ..config import ServerConfig
from ..served import NO_ARGUMENTS
from .connection import Connection
from .errors import is_lost, request_error, timeout_error
from .paging import Original, listed
from .prompts import completion_from_mcp, prompt_from_mcp, prompt_text_from_mcp, reference_to
from .resources import contents_read, resource_from_mcp, template_from_mcp, updates

__all__ = ["McpServed"]

MAX_CHARACTERS: Final = 2_000_000
PAUSES: Final = (1.0, 5.0, 30.0, 60.0)
"""Seconds before a server that stopped telling of a resource is asked again; the last one repeats."""

T = TypeVar("T")


class ServerRequest(Protocol):
    """Makes a request of a live server within a limit of time; fails with a `ToolHostError`."""

    async def __call__(self, doing: str, limit: float, request: Callable[[Client], Awaitable[T]]) -> T:
        """Ask."""


@dataclass(frozen=True, slots=True)
class McpServed:
    """Resources and prompts of a server, a `Served`."""

    server: ServerConfig
    ask: ServerRequest
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
        return await self._listed("resourceTemplates", lambda client: client.list_resource_templates, template_from_mcp)

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource (see `Served`)."""
        answer = await self._answer(f"reading {uri[:200]!r}", lambda client: client.read_resource(uri))
        return contents_read(answer, MAX_CHARACTERS)

    async def resource_updates(self, uri: str) -> AsyncGenerator[None]:
        """Be told when a resource may have changed (see `Served`); a server that was started again is asked again."""
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            connection = await self.live()
            doing, limit = "subscribing to a resource", self.server.timeout
            try:
                async with aclosing(updates(connection, uri, limit)) as told:
                    async for _ in told:
                        yield
            except TimeoutError as error:
                raise timeout_error(self.server, doing, limit, connection) from error
            except MCPError as error:
                if not is_lost(error):
                    raise request_error(self.server, doing, error, connection) from error
            await asyncio.sleep(pause)
            yield  # what happened in between is not told again

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
        """Ask what an argument could be (see `Served`)."""
        if not self._says("completions"):
            return Completion()
        reference, asked, others = reference_to(of), {"name": argument, "value": typed}, dict(given) or None
        return completion_from_mcp(
            await self._answer("completing an argument", lambda client: client.complete(reference, asked, others))
        )

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
        limit = self.server.timeout
        return await self.ask(f"listing its {key}", limit, lambda client: listed(fetch(client), self.original, key, read))
