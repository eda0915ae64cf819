"""The interface of a tool server: list, call, and a signal that the list has changed."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, runtime_checkable

from ..types.calls import Tool, ToolResult
from ..types.served import Completion, Listing, Prompt, PromptText, Resource, ResourceTemplate

OnProgress = Callable[[float, float | None, str], None]
"""Receives the progress of a tool: how much is done, the total if known, and the tool's own words; untrusted input."""

OnTask = Callable[[str], None]  # receives the id of the task if the server runs a call as one

TaskResult = ToolResult | Literal["cancelled", "unknown"]  # the outcome of a task; `unknown` if the server no longer knows it


class Host(Protocol):
    """Offers tools and runs them; all members are valid while the host is open."""

    @property
    def name(self) -> str:
        """The server's name as configured."""

    @property
    def instructions(self) -> str:
        """The server's instructions for the model about its tools; untrusted input, "" if none."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about this server, such as tools that were left out, one sentence each."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when the list of tools may have changed; `tools()` clears it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools; fails with a `ToolHostError` if the server is gone, or violates the protocol."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Run one tool; a `timeout` of None takes the host's own limit, and the tool itself sets `is_error` of its result.

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
        """Run one tool (see `Host`)."""

    async def task_result(self, name: str, task: str, timeout: float | None = None) -> TaskResult:
        """Wait for the outcome of a task that another program, or an earlier connection, has started.

        Raises:
            ToolHostUnavailable: the server is gone, or not done in time: then the task is cancelled.
            ToolHostProtocolError: the task has failed (`reason` is `error`), or an answer is outside the protocol.
        """


# -- what a host may have beside tools; functions of this process have neither -----------------------------------------

NO_ARGUMENTS: Final[Mapping[str, str]] = {}


class Served(Protocol):
    """Resources and prompts of a server, while its host is open; each request raises `ToolHostError` as `Host.call` does."""

    def says(self, capability: Literal["resources", "prompts", "completions"]) -> bool:
        """Say whether the server declares a capability."""

    async def resources(self) -> Listing[Resource]:
        """List the resources."""

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        """List the templates for the addresses of further resources."""

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource: `EmbeddedResource` blocks, bounded as a tool's result."""

    async def prompts(self) -> Listing[Prompt]:
        """List the prompts."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str] = NO_ARGUMENTS) -> PromptText:
        """Fill in a prompt."""

    async def complete(
        self, of: Prompt | ResourceTemplate, argument: str, typed: str, given: Mapping[str, str] = NO_ARGUMENTS
    ) -> Completion:
        """Ask for possible values of an argument; none if the server has no suggestions."""


@runtime_checkable
class ServingHost(Protocol):
    """A host that can have resources and prompts."""

    @property
    def served(self) -> Served:
        """Its resources and prompts."""
