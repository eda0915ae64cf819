"""One host among several: opened and listed by a task of its own, so that it holds up nobody else.

    opening and listing --done--> answered --host.changed, then `ask`--> listing again
            |                                                                 |
            +--ToolHostError--> failed, waits 5, 15, 60, 60 ... s <-----------+   and then begins anew

Every step is bounded by the host's own limits of time. `close` leaves the host, not the task.
"""

import asyncio
from typing import Final

from ..errors import ToolHostError
from ..types.calls import Tool
from .base import Host

__all__ = ["PAUSES", "Member"]

PAUSES: Final = (5.0, 15.0, 60.0)
"""Seconds before a host that failed is tried again; the last one repeats."""


class Member:
    """One host and its state.

    Attributes:
        settled: set while nothing is being asked of the host.
        tools: as it listed them last; none while it has failed.
        answered: it is open and has listed its tools.
        failure: why not, when it was tried last.
    """

    def __init__(self, host: Host, changed: asyncio.Event) -> None:
        self.host = host
        self.settled = asyncio.Event()
        self.tools: tuple[Tool, ...] = ()
        self.answered = False
        self.failure: ToolHostError | None = None
        self._changed = changed
        self._asked = asyncio.Event()
        self._is_open = False
        self._first_failure: ToolHostError | None = None  # since it answered last; later ones say the same in other words
        self._is_late = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the host has said that its tools changed, and they were not listed since."""
        return self.answered and self.host.changed.is_set()

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know, each with the host's name."""
        name = self.host.name
        if self._first_failure is not None:
            return (f"{self._first_failure} (its tools are left out until it answers)",)
        if not self.answered:
            return (f"{name}: still starting; its tools are left out until it answers",)
        late = (f"{name}: it answers now; its tools are on offer",) if self._is_late else ()
        return (*late, *(f"{name}: {notice}" for notice in self.host.notices))

    def start(self) -> None:
        """Begin to open the host and to list its tools."""
        self._task = asyncio.create_task(self._attend(), name=f"tool host {self.host.name}")

    def ask(self) -> None:
        """Have the tools listed again, if they may have changed; `settled` is set afterwards."""
        if self.is_stale:
            self.settled.clear()
            self._asked.set()

    def go_on_without(self) -> None:
        """Note that nobody waits for this host any more, so that a person is told when it answers."""
        self._is_late = self._is_late or not self.answered

    def check(self) -> None:
        """Raise the exception that ended the task; only a mistake in a host ends it so."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def close(self) -> None:
        """End the task, and leave the host if it was entered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._is_open:
            self._is_open = self.answered = False
            await self.host.__aexit__(None, None, None)

    async def _attend(self) -> None:
        failures = 0
        while True:  # until it is closed
            try:
                failures = 0 if await self._refresh() else failures + 1
            finally:
                self._asked.clear()
                self.settled.set()
            if failures:
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1])
                continue
            await self.host.changed.wait()
            self._changed.set()
            await self._asked.wait()

    async def _refresh(self) -> bool:
        """Open the host if it is not open, and list its tools; False if it failed."""
        try:
            if not self._is_open:
                await self.host.__aenter__()
                self._is_open = True
            self.tools = await self.host.tools()
        except ToolHostError as error:
            if self.answered:
                self._changed.set()
            self.tools, self.answered, self.failure = (), False, error
            self._first_failure = self._first_failure or error
            return False
        self.answered, self.failure, self._first_failure = True, None, None
        self._changed.set()
        return True
