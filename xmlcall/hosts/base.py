"""What a loop needs of a tool server: list, call, and a signal that the list has changed."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

from ..types.calls import Tool, ToolResult

__all__ = ["Host", "OnProgress", "OnTask", "TaskHost", "TaskResult"]

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
