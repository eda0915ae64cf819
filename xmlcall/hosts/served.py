"""What a host may have beside tools: resources and prompts. Not every host does; functions of this process have neither."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar, runtime_checkable

from ..errors import ToolHostError
from ..types.calls import ToolResult
from ..types.served import Completion, Listing, Prompt, PromptText, Resource, ResourceTemplate

__all__ = ["NO_ARGUMENTS", "Served", "ServingHost", "from_all"]

NO_ARGUMENTS: Final[Mapping[str, str]] = {}

T = TypeVar("T")


class Served(Protocol):
    """Resources and prompts of a server, while its host is open; each request raises `ToolHostError` as `Host.call` does."""

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""

    @property
    def has_prompts(self) -> bool:
        """Whether the server says that it has prompts."""

    async def resources(self) -> Listing[Resource]:
        """List the resources."""

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        """List the templates of further resources' addresses."""

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource: `EmbeddedResource` blocks, bounded as a tool's result."""

    def resource_updates(self, uri: str) -> AsyncGenerator[None]:
        """Yield when a resource may have changed, as long as the generator is open; a lost connection counts as a change."""

    async def prompts(self) -> Listing[Prompt]:
        """List the prompts."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str] = NO_ARGUMENTS) -> PromptText:
        """Fill in a prompt."""

    async def complete(
        self, of: Prompt | ResourceTemplate, argument: str, typed: str, given: Mapping[str, str] = NO_ARGUMENTS
    ) -> Completion:
        """Ask what an argument could be; nothing if the server cannot tell."""


@runtime_checkable
class ServingHost(Protocol):
    """A host that can have resources and prompts."""

    @property
    def served(self) -> Served:
        """They."""


async def from_all(servers: Mapping[str, Served], request: Callable[[Served], Awaitable[Listing[T]]]) -> Listing[tuple[str, T]]:
    """Ask several servers for a list, side by side; one that fails is told as a notice.

    Returns:
        Each item with the name of its server, in the order of the servers.
    """

    async def asked(name: str, served: Served) -> Listing[tuple[str, T]]:
        try:
            found = await request(served)
        except ToolHostError as error:
            return Listing(notices=(str(error),))
        notices = tuple(f"{name}: {notice}" for notice in found.notices)
        return Listing(items=tuple((name, item) for item in found.items), notices=notices)

    listings = await asyncio.gather(*(asked(name, served) for name, served in servers.items()))
    return Listing(
        items=tuple(item for listing in listings for item in listing.items),
        notices=tuple(notice for listing in listings for notice in listing.notices),
    )
