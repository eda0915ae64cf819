"""Rules about which calls run: the strictest rule that matches a call decides, and where none matches, the person is asked.

Neither the order of rules nor how much a glob says matters: deny goes before ask, and ask before allow. What a rule allows is
asked about all the same if repairs made out a name or a value (`repaired`), or if a value comes from another server or leads
where nobody said (`flows`); the rule may allow these, too. No rule allows a call that writes with a value that the model made
up: only a person can.

Globs match the server's name as configured and the tool's own name, never the name that a model sees. The last dot of a glob
parts the two, so that `web.internal.*` is about the server `web.internal`; a dot of a tool's name is written `[.]`. A rule that
asks or denies also holds where the names fit with another dot between them. Tool annotations are hints of an untrusted server
(MCP 2026-07-28, tools: MUST): they allow nothing, and only spare an allowed tool the question of `flows`.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from glob import escape
from typing import Any, Final, Literal

from ..tools.effects import may_write
from .conditions import Condition, holds
from .flows import flows
from .policy import Decision, Policy, Proposal
from .repaired import made_out

__all__ = ["Effect", "Rule", "Rules", "Ruling", "allow", "allowing", "glob_of", "parted", "ruled"]

Effect = Literal["allow", "ask", "deny"]


_PARTED: Final = re.compile(r"(.*)\.((?:\[[^\]]+\]|[^.\]])*)", re.DOTALL)  # at the last dot that is in no brackets


def parted(glob: str) -> tuple[str, str] | None:
    """Return what a glob says of the server and of the tool; None if no dot parts them."""
    found = _PARTED.fullmatch(glob)
    return (found[1], found[2]) if found else None


def glob_of(server: str, tool: str) -> str:
    """Write the glob that matches one tool."""
    return f"{escape(server)}.{escape(tool).replace('.', '[.]')}"


def _fits(glob: str, server: str, tool: str, *, is_strict: bool) -> bool:
    parts = parted(glob)
    fits = parts is not None and fnmatch.fnmatchcase(server, parts[0]) and fnmatch.fnmatchcase(tool, parts[1])
    return fits or ((parts is None or not is_strict) and fnmatch.fnmatchcase(f"{server}.{tool}", glob))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to calls of some tools.

    Args:
        where: parameter -> conditions, all of which have to hold; an argument that is not given fits none.
        source: where the rule stands, for people: a file and a place in it, or an option.
    """

    effect: Effect
    tools: tuple[str, ...]
    where: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    repaired: bool = False
    may_flow: bool = False
    source: str = ""

    @property
    def name(self) -> str:
        """The rule in words, for a record."""
        shown = f"{self.effect} {', '.join(self.tools[:3])}{', ...' if len(self.tools) > 3 else ''}"
        return f"{shown} ({self.source})" if self.source else shown

    def names(self, server: str, tool: str) -> bool:
        """Say whether a glob matches a tool."""
        return any(_fits(glob, server, tool, is_strict=self.effect == "allow") for glob in self.tools)

    def matches(self, proposal: Proposal) -> bool:
        """Say whether the rule is about a call; in doubt one that allows is not, and others are."""
        if not self.names(proposal.host, proposal.host_tool):
            return False
        arguments, doubtful = proposal.call.arguments, self.effect != "allow"
        fits = [
            holds(condition, arguments[name]) if name in arguments else False
            for name, conditions in self.where.items()
            for condition in conditions
        ]
        return all(doubtful if each is None else each for each in fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What rules say about a call.

    Args:
        repairs: codes of the repairs for which it is asked about, although a rule allows its tool.
        foreign: JSON path -> server, of the values for which it is; no server's name if nobody told where a value leads.
        unsaid: the parameters with made up values for which it is, whatever rules say.
    """

    effect: Effect
    rule: Rule | None = None
    repairs: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules of a session."""

    rules: tuple[Rule, ...] = ()

    def judge(self, proposal: Proposal) -> Ruling:
        """Say what happens to a call."""
        matching = [rule for rule in self.rules if rule.matches(proposal)]
        if denies := next((rule for rule in matching if rule.effect == "deny"), None):
            return Ruling(effect="deny", rule=denies)
        repairs = made_out(proposal.call)
        asks = next((rule for rule in matching if rule.effect == "ask"), None)
        fitting = [rule for rule in matching if asks is None and (rule.repaired or not repairs)]
        unsaid = proposal.unsaid if may_write(proposal.tool) else ()
        if not unsaid and (free := next((rule for rule in fitting if rule.may_flow), None)):
            return Ruling(effect="allow", rule=free)
        foreign = flows(proposal, {name for rule in fitting for name in rule.where})
        if fitting and not foreign and not unsaid:
            return Ruling(effect="allow", rule=fitting[0])
        rule = asks or next(iter(matching), None)
        return Ruling(effect="ask", rule=rule, repairs=repairs, foreign=foreign, unsaid=unsaid)

    def stricter(self, proposal: Proposal, arguments: Mapping[str, Any]) -> Rule | None:
        """Return a rule that forbids other arguments of a call, or asks about them and not about the model's; None for none."""
        edited = replace(proposal, call=replace(proposal.call, arguments=dict(arguments), repairs=()))
        matching = [rule for rule in self.rules if rule.effect != "allow" and rule.matches(edited)]
        denies = next((rule for rule in matching if rule.effect == "deny"), None)
        return denies or next((rule for rule in matching if not rule.matches(proposal)), None)

    def about(self, server: str, tool: str) -> tuple[Rule, ...]:
        """Return the rules that name a tool, the strictest first."""
        order = ("deny", "ask", "allow")
        found = (rule for rule in self.rules if rule.names(server, tool))
        return tuple(sorted(found, key=lambda rule: order.index(rule.effect)))

    def may_allow(self, server: str, tool: str) -> bool:
        """Say whether a call of a tool may run unasked: a rule allows one, and none is strict about all of them."""
        about = self.about(server, tool)
        return any(rule.effect == "allow" for rule in about) and all(rule.effect == "allow" or rule.where for rule in about)

    def only(self, effects: Iterable[Effect]) -> "Rules":
        """Return the rules with some effects."""
        kept = frozenset(effects)
        return Rules(rules=tuple(rule for rule in self.rules if rule.effect in kept))

    def freed(self, *, may_flow: bool = False, repaired: bool = False) -> "Rules":
        """Return rules whose `allow` holds for more calls."""
        freed = (replace(rule, may_flow=rule.may_flow or may_flow, repaired=rule.repaired or repaired) for rule in self.rules)
        return Rules(rules=tuple(freed))


async def _deny(proposal: Proposal) -> Decision:
    return Decision(allowed=False, by="no rule")


def ruled(rules: Rules, otherwise: Policy = _deny) -> Policy:
    """Make a policy of rules.

    Args:
        otherwise: asked about what is to be asked about; by default it is denied. Arguments that it changes are held against the
            rules that deny and ask, too.
    """

    async def decide(proposal: Proposal) -> Decision:
        ruling = rules.judge(proposal)
        if ruling.effect == "ask" or ruling.rule is None:
            decision = await otherwise(proposal)
            stricter = decision.arguments is not None and rules.stricter(proposal, decision.arguments)
            return Decision(allowed=False, by=stricter.name) if stricter else decision
        return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)

    return decide


def allow(patterns: Iterable[str], otherwise: Policy = _deny, *, may_flow: bool = True, repaired: bool = True) -> Policy:
    """Make a policy that allows what a glob matches.

    Args:
        patterns: globs over `server.tool`, for example `files.read_*` or `*`.
        otherwise: asked about everything else; by default it is denied.
        may_flow: whether that holds for calls with values of another server's results, too (see `flows`).
        repaired: whether it holds for calls of which repairs made out a name or a value (see `repaired`).
    """
    return ruled(allowing(patterns, may_flow=may_flow, repaired=repaired), otherwise)


def allowing(patterns: Iterable[str], *, may_flow: bool = True, repaired: bool = True, source: str = "") -> Rules:
    """Make rules that allow what a glob matches.

    Args:
        may_flow: whether that holds for calls with values of another server's results, too.
        repaired: whether it holds for calls of which repairs made out a name or a value.
    """
    given = (Rule(effect="allow", tools=(glob,), may_flow=may_flow, repaired=repaired, source=source) for glob in patterns)
    return Rules(rules=tuple(given))
