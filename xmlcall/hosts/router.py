"""Combines many hosts into one namespace of tools.

The hosts open concurrently. A host that fails, or answers later than the others, is left out with a notice until it answers; then
`changed` is set, and the next list has its tools. It is an error only if no host answers.

A tool keeps its own name if only one host has that name; otherwise it is offered as `server__tool` (MCP 2026-07-28, tools:
aggregators should disambiguate). Characters that models cannot write in a name become `_`; letters of any script stay. Names are
mapped back by a table, never by parsing, so a call always reaches the tool that was offered, however a server names its tools.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar

import regex

from ..errors import ToolHostError, ToolHostUnavailable, UsageError
from ..text_forms import INVISIBLE, normalized
from ..types.calls import Tool, ToolResult
from ..types.served import Listing, Prompt, Resource, ResourceTemplate
from .base import Host, OnProgress, OnTask, Served, ServingHost, TaskHost, TaskResult

# -- one host among several --------------------------------------------------------------------------------------------
# A task of its own opens and lists it, so that it does not hold up the others:
#
#   opening and listing --done--> answered --host.changed, then `ask`--> listing again
#           |                                                                 |
#           +--ToolHostError--> failed, waits 5, 15, 60, 60 ... s <-----------+   and then starts over
#
# Every step is bounded by the host's own limits of time. `close` leaves the host, not the task.

PAUSES: Final = (5.0, 15.0, 60.0)  # seconds before a host that failed is tried again; the last one repeats


class Member:
    def __init__(self, host: Host, changed: asyncio.Event) -> None:
        self.host = host
        self.settled = asyncio.Event()  # set while no request to the host is pending
        self.tools: tuple[Tool, ...] = ()  # when last listed; none while it has failed
        self.answered = False  # whether it is open and has listed its tools
        self.failure: ToolHostError | None = None  # of the last attempt
        self.changed = changed
        self._asked = asyncio.Event()
        self._is_open = False
        self._first_failure: ToolHostError | None = None  # since it answered last; later ones say the same in other words
        self.is_late = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the host reported changed tools that have not been listed since."""
        return self.answered and self.host.changed.is_set()

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know, each with the host's name."""
        name = self.host.name
        if self._first_failure is not None:
            return (f"{self._first_failure} (its tools are left out until it answers)",)
        if not self.answered:
            return (f"{name}: still starting; its tools are left out until it answers",)
        late = (f"{name}: it answers now; its tools are on offer",) if self.is_late else ()
        return (*late, *(f"{name}: {notice}" for notice in self.host.notices))

    def start(self) -> None:
        self._task = asyncio.create_task(self._attend(), name=f"tool host {self.host.name}")

    def ask(self) -> None:
        """Have the tools listed again, if they may have changed; `settled` is set afterwards."""
        if self.is_stale:
            self.settled.clear()
            self._asked.set()

    def check(self) -> None:
        """Raise the exception that ended the task; only a bug in a host causes one."""
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
            self.changed.set()
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
                self.changed.set()
            self.tools, self.answered, self.failure = (), False, error
            self._first_failure = self._first_failure or error
            return False
        self.answered, self.failure, self._first_failure = True, None, None
        self.changed.set()
        return True


# -- many hosts ----------------------------------------------------------------------------------------------------------

PATIENCE: Final = 3.0  # seconds that hosts which have answered wait for the others
_UNSPELLABLE = regex.compile(r"[^\w.-]")  # letters of any script, with their marks, can be written

T = TypeVar("T")
HostStateKind = Literal["answers", "starting", "failed", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """How a host is doing; `problem` says why the last attempt failed, "" if it did not."""

    name: str
    kind: HostStateKind
    tools: int
    problem: str = ""


class Router:
    """Hosts, each with its own name, that open, list and close together, in tasks of the router."""

    def __init__(self, hosts: Iterable[Host], *, patience: float | None = PATIENCE) -> None:
        self.changed = asyncio.Event()  # set when the tools of any host may have changed; `tools()` clears it
        self._members = tuple(Member(host, self.changed) for host in hosts)
        self._patience = patience  # seconds to wait for others after the first answer; None: until all have answered or failed
        self._offered: dict[str, tuple[Host, Tool]] = {}  # the tools as their hosts described them when listed
        self._reported: set[str] = set()
        self._off: set[str] = set()
        self._tools_off: set[tuple[str, str]] = set()
        repeated = [name for name, count in Counter(host.name for host in self.hosts).items() if count > 1]
        if repeated:
            raise UsageError(f"two tool hosts are named {repeated[0]!r}; give each its own name")

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(member.host for member in self._members)

    @property
    def failures(self) -> tuple[ToolHostError, ...]:
        return tuple(member.failure for member in self._members if member.failure is not None)

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about the hosts now, each with its host's name."""
        return tuple(notice for member in self._members for notice in member.notices)

    def news(self) -> list[str]:
        """Return the notices that are new since the last call."""
        news = [notice for notice in self.notices if notice not in self._reported]
        self._reported.update(news)
        return news

    def states(self) -> list[HostState]:
        states = []
        for member in self._members:
            name, problem = member.host.name, str(member.failure or "")
            seen: HostStateKind = "failed" if problem else "answers" if member.answered else "starting"
            kind: HostStateKind = "off" if name in self._off else seen
            states.append(HostState(name=name, kind=kind, tools=len(member.tools), problem=problem))
        return states

    def switch(self, name: str, *, on: bool) -> None:
        """Remove the tools of a host from the next list, or add them again; the host itself stays open."""
        names = [host.name for host in self.hosts]
        if name not in names:
            raise UsageError(f"expected the name of a server ({', '.join(names)}), got {name[:80]!r}")
        (self._off.discard if on else self._off.add)(name)
        self.changed.set()

    def switch_tool(self, name: str, tool: str, *, on: bool) -> None:
        """Remove one tool from the next list, or add it again."""
        if not any(name == host and tool == each.name for host, each, _ in self.all_tools()):
            raise UsageError(f"expected a tool as server.tool, got {f'{name}.{tool}'[:80]!r}")
        (self._tools_off.discard if on else self._tools_off.add)((name, tool))
        self.changed.set()

    def all_tools(self) -> list[tuple[str, Tool, bool]]:
        """Return the tools that hosts have, each with its host's name and whether it is on; also of hosts that are off."""
        tools = [(member.host.name, tool) for member in self._members for tool in member.tools]
        return [(host, tool, (host, tool.name) not in self._tools_off) for host, tool in tools]

    def instructions(self) -> list[tuple[str, str]]:
        """Return (host name, text) of the hosts that have instructions; untrusted input."""
        answered = (member.host for member in self._members if member.answered and member.host.name not in self._off)
        return [(host.name, host.instructions) for host in answered if host.instructions]

    def having(self, kind: Literal["resources", "prompts"]) -> dict[str, Served]:
        """Return the resources or prompts of the servers that answer and declare any."""
        hosts = (member.host for member in self._members if member.answered)
        served = {host.name: host.served for host in hosts if isinstance(host, ServingHost)}
        return {name: each for name, each in served.items() if each.says(kind)}

    async def resources(self) -> Listing[tuple[str, Resource]]:
        return await self._listings("resources", lambda served: served.resources())

    async def resource_templates(self) -> Listing[tuple[str, ResourceTemplate]]:
        return await self._listings("resources", lambda served: served.resource_templates())

    async def prompts(self) -> Listing[tuple[str, Prompt]]:
        return await self._listings("prompts", lambda served: served.prompts())

    async def _listings(
        self, kind: Literal["resources", "prompts"], request: Callable[[Served], Awaitable[Listing[T]]]
    ) -> Listing[tuple[str, T]]:
        """Request a list from several servers at once, items in the order of the servers; a failing server becomes a notice."""
        servers = self.having(kind)
        answers = await asyncio.gather(*map(request, servers.values()), return_exceptions=True)
        items, notices = list[tuple[str, T]](), list[str]()
        for name, answer in zip(servers, answers, strict=True):
            if isinstance(answer, ToolHostError):
                notices.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                items += [(name, item) for item in answer.items]
                notices += [f"{name}: {notice}" for notice in answer.notices]
        return Listing(items=tuple(items), notices=tuple(notices))

    async def __aenter__(self) -> Self:
        """Open all hosts concurrently; after the first answer, wait for the others only for a short time."""
        try:
            for member in self._members:
                member.start()
            await self._first_answers()
            self._check()
            if self._members and not any(member.answered for member in self._members):
                raise self.failures[0]
            for member in self._members:
                member.is_late = not member.answered  # it is not waited for; the user is notified when it answers
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all hosts concurrently; a failure of one does not keep the others open."""
        outcomes = await asyncio.gather(*(member.close() for member in self._members), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools of all hosts that answer, under the names that `call` takes."""
        await self._answers_to_changes()
        self._check()
        self.changed.clear()
        if any(member.is_stale for member in self._members):  # said while it was being listed
            self.changed.set()
        on = (member for member in self._members if member.host.name not in self._off)
        found = [(each.host, tool) for each in on for tool in each.tools if (each.host.name, tool.name) not in self._tools_off]
        names = _offered_names([(host.name, tool.name) for host, tool in found])
        self._offered = dict(zip(names, found, strict=True))
        return tuple(replace(tool, name=name) for name, (_, tool) in self._offered.items())

    def origin(self, name: str) -> tuple[Host, str]:
        """Return the host of a tool and the name that it has there."""
        if (found := self.find(name)) is None:
            raise UsageError(f"no tool named {name!r} was listed; call `tools()` first")
        return found

    def listed(self) -> list[tuple[Host, str]]:
        """Return the host and the own name of each tool that `tools()` offered last."""
        return [(host, tool.name) for host, tool in self._offered.values()]

    def find(self, name: str) -> tuple[Host, str] | None:
        """Return the same as `origin`, or None if no tool of this name is listed now."""
        found = self._offered.get(name)
        return found and (found[0], found[1].name)

    async def rewritten(self, name: str) -> Tool | None:
        """Return a tool's new definition if its server has changed it since `tools()` offered it; the offer stays. Else None."""
        host, own_name = self.origin(name)
        member = next(each for each in self._members if each.host is host)
        member.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await member.settled.wait()
        now = next((tool for tool in member.tools if tool.name == own_name), None)
        return None if now is None or now == self._offered[name][1] else replace(now, name=name)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Run a tool at its host (see `Host`)."""
        host, own_name = self.origin(name)
        if on_task is not None and isinstance(host, TaskHost):
            return await host.call(own_name, arguments, timeout, progress=progress, on_task=on_task)
        return await host.call(own_name, arguments, timeout, progress=progress)

    async def task_result(self, server: str, name: str, task: str, timeout: float | None = None) -> TaskResult:
        """Wait for the outcome of a task (see `TaskHost`), also if its server is still starting."""
        member = next((member for member in self._members if member.host.name == server), None)
        if member is None or not isinstance(member.host, TaskHost):
            return "unknown"
        await member.settled.wait()
        if not member.answered:
            raise member.failure or ToolHostUnavailable(f"{server}: it does not answer", host=server, reason="not_run")
        return await member.host.task_result(name, task, timeout)

    async def _first_answers(self) -> None:
        """Wait until each host has answered or failed, and no longer than `patience` after the first answer."""

        async def settle(member: Member) -> None:
            await member.settled.wait()
            if member.answered and self._patience is not None and limit.when() is None:
                limit.reschedule(asyncio.get_running_loop().time() + self._patience)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                for member in self._members:
                    group.create_task(settle(member))

    async def _answers_to_changes(self) -> None:
        """List the tools of changed hosts again; a slow host keeps its earlier tools for now."""
        for member in self._members:
            member.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                for member in self._members:
                    if member.answered:
                        await member.settled.wait()

    def _check(self) -> None:
        for member in self._members:
            member.check()


def _offered_names(tools: Sequence[tuple[str, str]]) -> list[str]:
    """Give each (host, tool) a unique spellable name.

    Shared names come first: no server can take the name `a__x` of tool x of server a by naming a tool of its own `a__x`. Then
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
    """Write a name as a person of its language does: whole characters, one of each look, and nothing that is not seen."""
    return _UNSPELLABLE.sub("_", INVISIBLE.sub("", normalized("NFKC", name))) or "_"
