"""A tool server that lists a catalog and does nothing."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ...hosts.base import OnProgress
from ...tools.catalog import Catalog
from ...types.calls import TextContent, Tool, ToolResult

__all__ = ["CannedHost"]


class CannedHost:
    """A `Host` whose tools all say that they are done.

    Args:
        name: of the server.
        catalog: its tools.
    """

    instructions = ""
    notices: tuple[str, ...] = ()

    def __init__(self, name: str, catalog: Catalog) -> None:
        self.name = name
        self.changed = asyncio.Event()
        self._catalog = catalog

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools."""
        return tuple(self._catalog)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Say that it is done (see `Host.call`)."""
        return ToolResult(content=(TextContent(text="Done."),))
