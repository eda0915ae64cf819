"""The tools that the proxy runs itself: those of its own MCP servers that the rules allow. All models of a proxy share them.

*Which calls run* is decided by rules alone, because the proxy has no user to ask. A call that a rule would ask about is denied.
The model and the log receive the line that would allow the call, so the operator can decide once. Each line is logged only once,
because a model may keep trying.

*Rounds* in which the proxy ran tools itself are kept until the caller returns with the results of its own calls. The model's
messages are rebuilt from what the caller sends (`prompting/writer.py`), so every replica of the proxy writes the same prompt.
But the caller knows nothing of the proxy's own tools, so this process keeps their calls and results under the id of the caller's
first call. The id is random, so a client cannot request another client's rounds. With the model server's own function calling
the server chooses the ids, so such rounds are kept under the id, the tools and the conversation before. The model sees the kept
rounds again only with the same calls and the same arguments.

Other processes do not have these rounds, so a balancer in front of several processes must keep each client on one. Unknown rounds
are left out.
"""

import asyncio
import hashlib
import json
import logging
import re
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, Self

from ...agent.policy import Decision, Proposal
from ...agent.rules import Rules, Ruling, allowing, glob_of
from ...hosts.base import Host
from ...hosts.router import Router
from ...prompting.format import PromptFormat
from ...prompting.results import denial, result_text
from ...prompting.writer import Known, OwnRounds, hidden_rounds
from ...types.calls import Message, TextContent, Tool

# -- which calls run ------------------------------------------------------------------------------------------------------

log = logging.getLogger("xmlcall.proxy")

_MOST_LOGGED: Final = 100
_PARAMETER: Final = re.compile(r"^(\$(?:\.\w+|\['[^']*'\])).*", re.DOTALL)  # names after it may be the model's own inventions


class OwnRules:
    """A policy made of rules, for a program without a user to ask."""

    def __init__(self, rules: Rules, format: PromptFormat) -> None:
        self._rules, self._format = rules, format
        self._logged: set[str] = set()

    def offers(self, server: str, tool: str) -> bool:
        """Return whether any call of a tool may run; only then is the tool offered."""
        return self._rules.may_allow(server, tool)

    async def __call__(self, proposal: Proposal) -> Decision:
        ruling = self._rules.judge(proposal)
        if ruling.effect != "ask" and ruling.rule is not None:
            return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)
        asks = ruling.rule is not None and ruling.rule.effect == "ask"
        line = ruling.rule.name if asks and ruling.rule else _allowing(proposal, ruling)
        self._tell(proposal.target, line, ruling, asks=asks)
        reason = denial("nobody_rule" if asks else "nobody", self._format, why=line)
        return Decision(allowed=False, reason=reason, by="no person to ask")

    def _tell(self, target: str, line: str, ruling: Ruling, *, asks: bool) -> None:
        if line in self._logged or len(self._logged) >= _MOST_LOGGED:
            return
        self._logged.add(line)
        sources = {_PARAMETER.sub(r"\1", path): server for path, server in ruling.foreign.items()}
        foreign = ", ".join(
            f"{path} {f'comes from {server}' if server else 'is a target that the conversation does not mention'}"
            for path, server in sources.items()
        )
        why = "; ".join(filter(None, [foreign, ", ".join(ruling.repairs)])) or "no rule allows it"
        what = "a rule asks, but there is no user to ask; to allow it, remove" if asks else f"{why}; to allow it"
        log.warning("%s did not run: %s: %s", json.dumps(target), json.dumps(what)[1:-1], line)


def _allowing(proposal: Proposal, ruling: Ruling) -> str:
    """Write what would allow a call: an option, or if an option cannot express it, a rule for the settings file."""
    glob = json.dumps(glob_of(proposal.host, proposal.host_tool))
    if not ruling.foreign and not ruling.repairs:
        return f"--allow {shlex.quote(glob[1:-1])}"
    more = [*(['flow = "allow"'] if ruling.foreign else []), *(["repaired = true"] if ruling.repairs else [])]
    return "\n  ".join(["[[rule]]", f"allow = {glob}", *more])


# -- rounds ---------------------------------------------------------------------------------------------------------------

CHARACTERS_LIMIT: Final = 16_000_000
"""The most that all rounds together may take; the oldest are dropped first."""

SECONDS: Final = 86_400.0
"""How long rounds are kept."""


class RoundsKept:
    """Rounds kept in memory; all engines of a process may share them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, int, OwnRounds]] = OrderedDict()
        self._size = 0

    def recall(self, messages: Iterable[Message], tools: str = "") -> Known:
        """Return the kept rounds that belong to a conversation; `tools` are those of native rounds."""
        asked = [(message.tool_calls[0].id, place) for message, place in _placed(messages, tools) if message.tool_calls]
        found = ((each, self._kept[place + each]) for each, place in asked if place + each in self._kept)
        return {each: rounds for each, (until, _, rounds) in found if until > self._clock()}

    def keep(self, rounds: OwnRounds, messages: Iterable[Message] = (), tools: str = "") -> None:
        """Keep rounds that follow `messages`, until the caller has run its calls."""
        *_, (_, place) = _placed((*messages, _END), tools)
        identity, size = place + rounds.theirs[0].id, sum(map(len, _texts(rounds)))
        self._forget(identity)
        self._kept[identity] = (self._clock() + SECONDS, size, rounds)
        self._size += size
        while self._size > CHARACTERS_LIMIT:
            self._forget(next(iter(self._kept)))

    def _forget(self, identity: str) -> None:
        if (found := self._kept.pop(identity, None)) is not None:
            self._size -= found[1]


_END: Final = Message(role="assistant", content="")


def _placed(messages: Iterable[Message], tools: str) -> Iterator[tuple[Message, str]]:
    """Yield each message with a hash of the tools and of all messages before it; without tools, with ""."""
    if not tools:
        yield from ((message, "") for message in messages)
        return
    hashed = hashlib.sha256(tools.encode("utf-8", "surrogatepass"))
    for message in messages:
        yield message, hashed.hexdigest()
        said = repr((message.role, message.content, [(call.id, call.name) for call in message.tool_calls]))
        hashed.update(said.encode("utf-8", "surrogatepass"))


def _texts(rounds: OwnRounds) -> Iterator[str]:
    for message in rounds.before:
        yield from (message.content, *message.images)
    for call, result in rounds.calls:
        yield repr(call.arguments)
        yield from (each.text for each in (result.content if result else ()) if isinstance(each, TextContent))
    yield from (rounds.shown, *rounds.results)


def with_own_results(messages: Iterable[Message], known: Known) -> tuple[Message, ...]:
    whole: list[Message] = []
    for message in messages:
        found = hidden_rounds(message, known)
        if found is None:
            whole.append(message)
            continue
        own = [(call, result) for call, result in found.calls if result is not None]
        results = [Message(role="tool", name=call.name, content=result_text(result)) for call, result in own]
        whole += [*found.before, message, *results]
    return tuple(whole)


def native_rounds(messages: Iterable[Message], known: Known) -> list[list[Message]]:
    """Return what stands for each message in a native conversation: itself, or hidden rounds, all calls and our results.

    Rounds in which the tools were in the prompt are left out: a model should not see two ways of calling.
    """
    return [_with_native_rounds(message, hidden_rounds(message, known)) for message in messages]


def _with_native_rounds(message: Message, rounds: OwnRounds | None) -> list[Message]:
    if rounds is None or any(each.role == "user" for each in rounds.before):
        return [message]
    own = [
        Message(role="tool", name=call.name, tool_call_id=call.id, content=result_text(result))
        for call, result in rounds.calls
        if result is not None
    ]
    calls = tuple(call for call, _ in rounds.calls)
    return [*rounds.before, replace(message, content=rounds.rest_of(message.content), tool_calls=calls), *own]


class OwnTools:
    """Servers and the tools of theirs that are offered. The first engine that enters opens the servers; the last one closes them.

    Args:
        allowed: globs over `server.tool`; or rules, whose "ask" counts as "deny" because there is no user to ask.
        lang: language of the denials that a model receives, `en` or `zh`.
    """

    def __init__(self, hosts: Iterable[Host] = (), allowed: Iterable[str] | Rules = (), *, lang: str = "en") -> None:
        self.router, self.rounds = Router(hosts), RoundsKept()
        self.rules = OwnRules(allowed if isinstance(allowed, Rules) else allowing(allowed), PromptFormat(lang=lang))
        self.tools: tuple[Tool, ...] = ()  # on offer when they were last listed
        self.origins: dict[str, tuple[Host, str]] = {}  # for each tool name, its server and its name on that server
        self._listing = asyncio.Lock()
        self._users = 0

    def __bool__(self) -> bool:
        return bool(self.router.hosts)

    async def __aenter__(self) -> Self:
        if not self._users:
            await self.router.__aenter__()
            self.router.changed.set()
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            await self.router.__aexit__()

    async def listed(self) -> tuple[Tool, ...]:
        """Return the tools on offer, listed again if a server said that they changed."""
        async with self._listing:  # otherwise a concurrent request would find no tools
            if self.router.changed.is_set():
                found = {tool.name: (tool, self.router.origin(tool.name)) for tool in await self.router.tools()}
                self.tools = tuple(tool for tool, origin in found.values() if self.rules.offers(origin[0].name, origin[1]))
                self.origins = {tool.name: found[tool.name][1] for tool in self.tools}
            for notice in self.router.news():
                log.warning("%s", notice)
        return self.tools
