"""The tools that the proxy runs itself: those of its own MCP servers that the rules let run. All models of a proxy share them."""

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from ...agent.rules import Rules, allowing
from ...hosts.base import Host
from ...hosts.router import Router
from ...prompting.format import PromptFormat
from ...types.calls import Tool
from .own_rules import OwnRules

__all__ = ["OwnTools"]

log = logging.getLogger("xmlcall.proxy")


class OwnTools:
    """Servers, and which of their tools are offered. Each engine enters it: the first opens the servers, the last closes them.

    Args:
        allowed: globs over `server.tool`, or rules, of which what they would ask about is denied: nobody can be asked.
        lang: in which a model is told what was denied, `en` or `zh`.

    Attributes:
        tools: that were on offer when they were listed last.
        origins: by the name of a tool, its server and its own name there.
    """

    def __init__(self, hosts: Iterable[Host] = (), allowed: Iterable[str] | Rules = (), *, lang: str = "en") -> None:
        self.router = Router(hosts)
        self.rules = OwnRules(allowed if isinstance(allowed, Rules) else allowing(allowed), PromptFormat(lang=lang))
        self.tools: tuple[Tool, ...] = ()
        self.origins: dict[str, tuple[Host, str]] = {}
        self._listing = asyncio.Lock()
        self._users = 0

    def __bool__(self) -> bool:
        return bool(self.router.hosts)

    async def __aenter__(self) -> Self:
        """Open the servers, if they are not."""
        if not self._users:
            await self.router.__aenter__()
            self.router.changed.set()
        self._users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the servers, if nobody uses them any more."""
        self._users -= 1
        if not self._users:
            await self.router.__aexit__(kind, error, trace)

    async def listed(self) -> tuple[Tool, ...]:
        """Return the tools on offer, listed again if a server said that they changed."""
        async with self._listing:  # or a request that comes meanwhile would find none
            if self.router.changed.is_set():
                found = {tool.name: (tool, self.router.origin(tool.name)) for tool in await self.router.tools()}
                self.tools = tuple(tool for tool, origin in found.values() if self.rules.offers(origin[0].name, origin[1]))
                self.origins = {tool.name: found[tool.name][1] for tool in self.tools}
            for notice in self.router.news():
                log.warning("%s", notice)
        return self.tools
