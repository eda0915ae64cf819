"""Many hosts as one namespace of tools.

A tool keeps its own name where only one host has it; otherwise it is offered as `server__tool` (MCP 2026-07-28, tools:
aggregators should disambiguate). Names that models and grammars cannot spell are rewritten to `[A-Za-z0-9_.-]`. The way back
is a table, never a parse of the name, so whatever a server calls its tools, a call reaches the tool that was offered.
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ..errors import UsageError
from ..types import Tool, ToolResult
from .base import Host

__all__ = ["Router"]

_UNSPELLABLE = re.compile(r"[^A-Za-z0-9_.-]")


class Router:
    """Hosts that open, list and close together.

    Args:
        hosts: not yet open, each with a name of its own. They are entered and left in tasks of the router's.

    Raises:
        UsageError: two hosts have one name.
    """

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = tuple(hosts)
        self._opened: list[Host] = []
        self._origins: dict[str, tuple[Host, str]] = {}
        self._changed = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        repeated = [name for name, count in Counter(host.name for host in self._hosts).items() if count > 1]
        if repeated:
            raise UsageError(f"two tool hosts are named {repeated[0]!r}; give each its own name")

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in their order."""
        return self._hosts

    @property
    def changed(self) -> asyncio.Event:
        """Set when the tools of any host may have changed; `tools()` clears it."""
        return self._changed

    @property
    def notices(self) -> tuple[str, ...]:
        """What the hosts have to say to a person, each with its host's name."""
        return tuple(f"{host.name}: {notice}" for host in self._hosts for notice in host.notices)

    def instructions(self) -> list[tuple[str, str]]:
        """Return (host name, text) of the hosts that have instructions; hostile input."""
        return [(host.name, host.instructions) for host in self._hosts if host.instructions]

    async def __aenter__(self) -> Self:
        """Open all hosts at once; if one fails, the others are closed again.

        Raises:
            ToolHostError: the first failure; it names its host.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for host in self._hosts:
                    group.create_task(self._open(host))
        except BaseExceptionGroup as failures:
            await self._close()
            raise failures.exceptions[0] from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close all hosts at once, whatever becomes of each."""
        await self._close()

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools of all hosts under the names that `call` takes.

        Raises:
            ToolHostError: a host could not list its tools; it names the host.
        """
        self._changed.clear()
        try:
            lists = await asyncio.gather(*(host.tools() for host in self._hosts))
        except BaseException:
            self._changed.set()  # to be asked again
            raise
        self._watch(self._hosts)
        found = [(host, tool) for host, tools in zip(self._hosts, lists, strict=True) for tool in tools]
        names = _offered_names([(host.name, tool.name) for host, tool in found])
        self._origins = {name: (host, tool.name) for name, (host, tool) in zip(names, found, strict=True)}
        return tuple(replace(tool, name=name) for name, (_, tool) in zip(names, found, strict=True))

    def origin(self, name: str) -> tuple[Host, str]:
        """Return the host of a tool and the name that it has there.

        Raises:
            UsageError: the last `tools()` did not offer it.
        """
        if name not in self._origins:
            raise UsageError(f"no tool named {name!r} was listed; call `tools()` first")
        return self._origins[name]

    def find(self, name: str) -> tuple[Host, str] | None:
        """Return the same as `origin`, or None if no tool of this name is listed now."""
        return self._origins.get(name)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Run a tool where it lives.

        Args:
            name: as listed by `tools()`.
            arguments: valid for the tool's schema.
            timeout: seconds; None takes the host's own limit.

        Raises:
            UsageError: the last `tools()` did not offer it.
            ToolHostError: from its host.
        """
        host, own_name = self.origin(name)
        return await host.call(own_name, arguments, timeout)

    async def _open(self, host: Host) -> None:
        await host.__aenter__()
        self._opened.append(host)

    async def _close(self) -> None:
        self._watch(())
        opened, self._opened = self._opened, []
        outcomes = await asyncio.gather(*(host.__aexit__(None, None, None) for host in opened), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _watch(self, hosts: Sequence[Host]) -> None:
        """Watch these hosts and no others: one task each, which ends at its first signal; the next list begins anew."""
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers = [asyncio.create_task(self._pass_on(host)) for host in hosts]

    async def _pass_on(self, host: Host) -> None:
        await host.changed.wait()
        self._changed.set()


def _offered_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Give each (host, tool) a unique spellable name.

    Shared names are settled first: no server can take `a__x` from the tool x of server a by calling a tool of its own so. Then
    come the names that need no change.
    """
    hosts_of = Counter(tool for _, tool in {(host, _spellable(tool)) for host, tool in tools})

    def rank(index: int) -> tuple[bool, bool]:
        spelled = _spellable(tools[index][1])
        return hosts_of[spelled] == 1, spelled != tools[index][1]

    names: dict[str, int] = {}
    for index in sorted(range(len(tools)), key=rank):
        host, tool = map(_spellable, tools[index])
        candidates = _candidates(host, tool, shared=hosts_of[tool] > 1)
        names[next(name for name in candidates if name not in names)] = index
    return sorted(names, key=names.__getitem__)


def _candidates(host: str, tool: str, shared: bool) -> Iterator[str]:
    if not shared:
        yield tool
    yield f"{host}__{tool}"
    yield from (f"{host}__{tool}_{number}" for number in itertools.count(2))


def _spellable(name: str) -> str:
    return _UNSPELLABLE.sub("_", name) or "_"
