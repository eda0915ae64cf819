"""A tool server that lists a catalog and does nothing."""

from collections.abc import Mapping
from typing import Any

from ...hosts.base import OnProgress
from ...hosts.local import LocalHost
from ...tools.catalog import Catalog
from ...types.calls import TextContent, ToolResult

__all__ = ["CannedHost"]


class CannedHost(LocalHost):
    """A `Host` whose tools all say that they are done."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        super().__init__((), name=name)
        self._tools = list(catalog)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Say that it is done (see `Host.call`)."""
        return ToolResult(content=(TextContent(text="Done."),))
