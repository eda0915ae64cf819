"""The tools that the proxy runs itself: those of its own MCP servers that the rules let run. All models of a proxy share them.

*Which calls run* is a matter of rules, since nobody can be asked. What rules would ask about is denied. The model and the log
are told the line that would allow it, so that whoever runs the proxy can decide about it once. The log tells each line once: a
model may try for ever.

*Rounds* in which the proxy ran tools itself are kept until the caller comes back with the results of its own calls. What the
model said is written from what the caller sends (`prompting/writer.py`), so that every replica of the proxy writes the same.
But a caller knows nothing of the proxy's own tools: their calls and results are kept in this process, under the id of the
caller's first call. The id is random, so that nobody can ask for the rounds of others. What is kept is shown to the model again
only behind the same calls with the same arguments.

Another process does not have them: a balancer before several has to keep a client on one. Rounds that are not known are left
out.
"""

import asyncio
import json
import logging
import re
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from ...agent.policy import Decision, Proposal
from ...agent.rules import Rules, Ruling, allowing, glob_of
from ...hosts.base import Host
from ...hosts.router import Router
from ...prompting.format import PromptFormat
from ...prompting.results import denial, result_text
from ...prompting.writer import Known, OwnRounds, rounds_behind
from ...types.calls import Message, TextContent, Tool

__all__ = ["OwnRules", "OwnTools", "RoundsKept", "with_own_results"]

# -- which calls run ------------------------------------------------------------------------------------------------------

log = logging.getLogger("xmlcall.proxy")

_MOST_TOLD: Final = 100
_PARAMETER: Final = re.compile(r"^(\$(?:\.\w+|\['[^']*'\])).*", re.DOTALL)  # behind it the model may have made names of fields


class OwnRules:
    """A policy of rules for a program without a person."""

    def __init__(self, rules: Rules, format: PromptFormat) -> None:
        self._rules, self._format = rules, format
        self._told: set[str] = set()

    def offers(self, server: str, tool: str) -> bool:
        """Say whether some call of a tool may run, so that the tool is offered."""
        return self._rules.may_allow(server, tool)

    async def __call__(self, proposal: Proposal) -> Decision:
        """Decide about a call (see `Policy`)."""
        ruling = self._rules.judge(proposal)
        if ruling.effect != "ask" and ruling.rule is not None:
            return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)
        asks = ruling.rule is not None and ruling.rule.effect == "ask"
        line = ruling.rule.name if asks and ruling.rule else _allowing(proposal, ruling)
        self._tell(proposal.target, line, ruling, asks=asks)
        reason = denial("nobody_rule" if asks else "nobody", self._format, why=line)
        return Decision(allowed=False, reason=reason, by="nobody to ask")

    def _tell(self, target: str, line: str, ruling: Ruling, *, asks: bool) -> None:
        if line in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(line)
        told = {_PARAMETER.sub(r"\1", path): server for path, server in ruling.foreign.items()}
        foreign = ", ".join(
            f"{path} {f'comes from {server}' if server else 'leads where nobody said'}" for path, server in told.items()
        )
        why = "; ".join(filter(None, [foreign, ", ".join(ruling.repairs)])) or "no rule allows it"
        what = "a rule asks, and nobody can be asked; it would have to go" if asks else f"{why}; to allow it"
        log.warning("%s did not run: %s: %s", json.dumps(target), json.dumps(what)[1:-1], line)


def _allowing(proposal: Proposal, ruling: Ruling) -> str:
    """Write what would allow a call: an option, or where more has to be said, a rule of a file."""
    glob = json.dumps(glob_of(proposal.host, proposal.host_tool))
    if not ruling.foreign and not ruling.repairs:
        return f"--allow {shlex.quote(glob[1:-1])}"
    more = [*(['flow = "allow"'] if ruling.foreign else []), *(["repaired = true"] if ruling.repairs else [])]
    return "\n  ".join(["[[rule]]", f"allow = {glob}", *more])


# -- rounds ---------------------------------------------------------------------------------------------------------------

CHARACTERS_LIMIT: Final = 16_000_000
"""What all rounds together may take; the oldest go first."""

SECONDS: Final = 86_400.0
"""After which rounds are forgotten."""


class RoundsKept:
    """Rounds in the memory of a process; all its engines may share them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, int, OwnRounds]] = OrderedDict()
        self._size = 0

    def recall(self, messages: Iterable[Message]) -> Known:
        """Return the rounds behind a conversation."""
        asked = [message.tool_calls[0].id for message in messages if message.tool_calls]
        found = ((each, self._kept[each]) for each in asked if each in self._kept)
        return {each: rounds for each, (until, _, rounds) in found if until > self._clock()}

    def keep(self, rounds: OwnRounds) -> None:
        """Keep rounds until the caller has run its calls."""
        identity, size = rounds.theirs[0].id, sum(map(len, _texts(rounds)))
        self._forget(identity)
        self._kept[identity] = (self._clock() + SECONDS, size, rounds)
        self._size += size
        while self._size > CHARACTERS_LIMIT:
            self._forget(next(iter(self._kept)))

    def _forget(self, identity: str) -> None:
        if (found := self._kept.pop(identity, None)) is not None:
            self._size -= found[1]


def _texts(rounds: OwnRounds) -> Iterator[str]:
    """Yield what takes memory; a call's arguments as they are written."""
    for message in rounds.before:
        yield from (message.content, *message.images)
    for call, result in rounds.calls:
        yield repr(call.arguments)
        yield from (each.text for each in (result.content if result else ()) if isinstance(each, TextContent))
    yield from (rounds.shown, *rounds.results)


def with_own_results(messages: Iterable[Message], known: Known) -> tuple[Message, ...]:
    """Return a conversation with what the proxy's own tools returned in it, as far as that is known."""
    whole: list[Message] = []
    for message in messages:
        found = rounds_behind(message, known)
        if found is None:
            whole.append(message)
            continue
        own = [(call, result) for call, result in found.calls if result is not None]
        told = [Message(role="tool", name=call.name, content=result_text(result)) for call, result in own]
        whole += [*found.before, message, *told]
    return tuple(whole)


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
