"""What a loop needs of a tool server: list, call, and a signal that the list has changed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeVar, runtime_checkable

from ..errors import ToolHostError
from ..types.calls import Tool, ToolResult
from ..types.served import Completion, Listing, Prompt, PromptText, Resource, ResourceTemplate

__all__ = ["NO_ARGUMENTS", "Host", "OnProgress", "OnTask", "Served", "ServingHost", "TaskHost", "TaskResult", "from_all"]

OnProgress = Callable[[float, float | None, str], None]
"""Told how far a tool is: how much is done, of how much if that is known, and what it says; hostile input."""

OnTask = Callable[[str], None]
"""Told the id of the task that a server has made of a call."""

TaskResult = ToolResult | Literal["cancelled", "unknown"]
"""What became of a task; `unknown` if the server does not know it any more."""


class Host(Protocol):
    """Something that offers tools and runs them; everything is valid while open."""

    @property
    def name(self) -> str:
        """The server's name as configured."""

    @property
    def instructions(self) -> str:
        """What the server wants a model to know about its tools; hostile input, "" if none."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know about this server, such as tools that were left out, one sentence each."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when the list of tools may have changed; `tools()` clears it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools.

        Raises:
            ToolHostError: the server is gone or answers outside the protocol.
        """

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Run one tool.

        Args:
            name: as listed by `tools()`.
            arguments: valid for the tool's schema.
            timeout: seconds; None takes the host's own limit.
            progress: called while the tool runs, if it tells how far it is.

        Returns:
            The tool's result; `is_error` is the tool's own word.

        Raises:
            ToolHostUnavailable: the server died or did not answer in time: it is not known whether the tool ran.
            ToolHostProtocolError: a JSON-RPC error, or a result outside the protocol.
        """


@runtime_checkable
class TaskHost(Protocol):
    """A host whose tools may run as tasks, which outlive the program that asked for them."""

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Run one tool (see `Host`).

        Args:
            progress: called while the tool runs, if it tells how far it is.
        """

    async def task_result(
        self, name: str, task: str, timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> TaskResult:
        """Wait for what becomes of a task that another program, or an earlier connection, has started.

        Args:
            progress: called while the tool runs, if it tells how far it is.

        Raises:
            ToolHostUnavailable: the server is gone, or not done in time: then the task is cancelled.
            ToolHostProtocolError: the task has failed (`reason` is `error`), or an answer is outside the protocol.
        """


# -- what a host may have beside tools; functions of this process have neither -----------------------------------------


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
