"""Rules about which calls run: the strictest rule that matches a call decides; if none matches, the user is asked.

Neither the order of rules nor the specificity of a glob matters: deny takes priority over ask, and ask over allow. The user is
asked about an allowed call all the same if repairs guessed a name or a value (`made_out`), or if a value comes from another
server or leads to a place that appears nowhere (`flows`); a rule can allow these, too. No rule can allow a call that writes a
value that the model made up: only the user can.

Globs match the server's name as configured and the tool's own name, never the name that a model sees. The last dot of a glob
separates the two, so that `web.internal.*` is about the server `web.internal`; a dot in a tool's name is written `[.]`. A rule
that asks or denies also applies if the names match with another dot as the separator. Tool annotations are hints of an untrusted
server (MCP 2026-07-28, tools: MUST): they allow nothing, and only spare an allowed tool the check by `flows`.

A condition checks an argument: a path below a folder, the host of an address, a glob, one of several values. Its answer is yes,
no, or unknown: for example for a relative path, because the server's working directory is not known, or for an address that
programs read in different ways. A rule that allows needs a yes. A rule that asks or denies applies unless the answer is no. So an
unknown answer never allows a call, and never lets one escape. Hosts are compared in one spelling (`addresses`).

Paths are resolved on this machine, with its current symbolic links. Redirects of an address are not detected.

Some repairs leave open whether the call is what the model meant. The codes are those of `errors.REPAIRS`. If a repair only fixed
the marks around a value, name and value run exactly as they are in the reply. If a repair guessed a name, a value, or where a
value ends, the user may want to see the call first.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..addresses import host_readings
from ..tools.catalog import may_write
from ..types.calls import ToolCall
from .flows import flows
from .policy import Decision, Policy, Proposal

Effect = Literal["allow", "ask", "deny"]

_PARTED: Final = re.compile(r"(.*)\.((?:\[[^\]]+\]|[^.\]])*)", re.DOTALL)  # at the last dot outside brackets

_LONGEST_VALUE: Final = 10_000  # characters; for a longer value the answer is unknown
_PLAIN_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\]")
_OF_A_PROCESS: Final = re.compile(r"/+(?:proc/+(?:self|thread-self|\d+)|dev/+(?:fd|std\w+))(?:/|\Z)")
_WILD: Final = re.compile(r"[*?]|\[[^:]*\]")  # the brackets of an IPv6 address do not count
_ODD_IN_ADDRESS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\@]|[^\x00-\x7f]")

# Codes of repairs that leave name and value as the model wrote them.
_OF_MARKS: Final = """
    missing-block unclosed-block unclosed-call wrong-closer stray-tag repeated-block text-in-block code-fence leaked-call
    attribute-style tag-style parameter-element tool-element json-body arguments-wrapper repeated-argument placeholder-argument
    quoted-value to-string repeated-call own-words results-frame byte-order-mark
    json-single-quotes json-curly-quotes json-control-character json-python-literal json-tuple json-trailing-comma
    json-unquoted-key json-comment json-byte-order-mark json-white-space json-code-fence
"""
ONLY_MARKS: Final = frozenset(_OF_MARKS.split())

Condition = Callable[[Any], bool | None]  # says whether a value (not a list) fits; None if that is unknown


def parted(glob: str) -> tuple[str, str] | None:
    """Split a glob into its parts for the server and the tool; None if no dot separates them."""
    found = _PARTED.fullmatch(glob)
    return (found[1], found[2]) if found else None


def glob_of(server: str, tool: str) -> str:
    return f"{escape(server)}.{escape(tool).replace('.', '[.]')}"


def _fits(glob: str, server: str, tool: str, *, is_strict: bool) -> bool:
    parts = parted(glob)
    fits = parts is not None and fnmatch.fnmatchcase(server, parts[0]) and fnmatch.fnmatchcase(tool, parts[1])
    return fits or ((parts is None or not is_strict) and fnmatch.fnmatchcase(f"{server}.{tool}", glob))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to calls of some tools."""

    effect: Effect
    tools: tuple[str, ...]
    where: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)  # all have to hold; a missing argument meets none
    repaired: bool = False
    may_flow: bool = False
    source: str = ""  # for the user: a file and a place in it, or an option

    @property
    def name(self) -> str:
        """The rule in words, for the record."""
        shown = f"{self.effect} {', '.join(self.tools[:3])}{', ...' if len(self.tools) > 3 else ''}"
        return f"{shown} ({self.source})" if self.source else shown

    def names(self, server: str, tool: str) -> bool:
        """Say whether a glob matches a tool."""
        return any(_fits(glob, server, tool, is_strict=self.effect == "allow") for glob in self.tools)

    def matches(self, proposal: Proposal) -> bool:
        """Say whether the rule applies to a call; in doubt, a rule that allows does not, and others do."""
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
    """What the rules say about a call, and what makes it necessary to ask although a rule allows the tool."""

    effect: Effect
    rule: Rule | None = None
    repairs: tuple[str, ...] = ()  # their codes
    foreign: Mapping[str, str] = field(default_factory=dict)  # JSON path of a value -> server; "" if it appears nowhere
    unsaid: tuple[str, ...] = ()  # parameters with made-up values, whatever the rules say


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
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
        """Return a rule that denies edited arguments, or asks about them but not about the model's; None if there is none."""
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
        """Say whether some call of a tool may run without asking: a rule allows one, and no rule restricts all of them."""
        about = self.about(server, tool)
        return any(rule.effect == "allow" for rule in about) and all(rule.effect == "allow" or rule.where for rule in about)

    def only(self, effects: Iterable[Effect]) -> "Rules":
        kept = frozenset(effects)
        return Rules(rules=tuple(rule for rule in self.rules if rule.effect in kept))

    def freed(self, *, may_flow: bool = False, repaired: bool = False) -> "Rules":
        """Return the rules with `allow` extended to more calls."""
        freed = (replace(rule, may_flow=rule.may_flow or may_flow, repaired=rule.repaired or repaired) for rule in self.rules)
        return Rules(rules=tuple(freed))


async def _deny(proposal: Proposal) -> Decision:
    return Decision(allowed=False, by="no rule")


def ruled(rules: Rules, otherwise: Policy = _deny) -> Policy:
    """Make a policy of rules; `otherwise` decides about calls to ask about, and rules check arguments that it changes."""

    async def decide(proposal: Proposal) -> Decision:
        ruling = rules.judge(proposal)
        if ruling.effect == "ask" or ruling.rule is None:
            decision = await otherwise(proposal)
            stricter = decision.arguments is not None and rules.stricter(proposal, decision.arguments)
            return Decision(allowed=False, by=stricter.name) if stricter else decision
        return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)

    return decide


def allow(patterns: Iterable[str], otherwise: Policy = _deny, *, may_flow: bool = True, repaired: bool = True) -> Policy:
    """Make a policy that allows calls that a glob matches.

    Args:
        patterns: globs over `server.tool`, for example `files.read_*` or `*`.
        otherwise: the policy for all other calls; by default they are denied.
        may_flow: whether this includes calls with values from another server's results (see `flows`).
        repaired: whether this includes calls with a name or a value that repairs guessed (see `made_out`).
    """
    return ruled(allowing(patterns, may_flow=may_flow, repaired=repaired), otherwise)


def allowing(patterns: Iterable[str], *, may_flow: bool = True, repaired: bool = True, source: str = "") -> Rules:
    """Make rules that allow calls that a glob matches (see `allow`)."""
    given = (Rule(effect="allow", tools=(glob,), may_flow=may_flow, repaired=repaired, source=source) for glob in patterns)
    return Rules(rules=tuple(given))


def holds(condition: Condition, value: Any) -> bool | None:
    """Say whether a value, or each item of a list, fits a condition; None if unknown, or if only some items fit."""
    found = {condition(each) for each in value} if isinstance(value, list) else {condition(value)}
    return found.pop() if len(found) == 1 else None if found else False


def _place(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))  # on Windows `c:/Users` is `C:\\USERS`


def below(folders: Sequence[str]) -> Condition:
    """Make the condition that a path is one of some folders, or below one."""

    def fits(value: Any) -> bool | None:
        if not isinstance(value, str) or len(value) > _LONGEST_VALUE or "\0" in value or not os.path.isabs(value):
            return None
        if any(_OF_A_PROCESS.match(each) for each in (value, os.path.normpath(value))):
            return None  # it leads elsewhere in the server's process
        # Some programs resolve `..` before they follow links, others after: both readings have to agree.
        readings = {_place(value), _place(os.path.normpath(value))}
        roots = [_place(folder).rstrip(os.sep) + os.sep for folder in folders]
        found = {any(f"{path.rstrip(os.sep)}{os.sep}".startswith(root) for root in roots) for path in readings}
        return found.pop() if len(found) == 1 else None

    return fits


def host(globs: Sequence[str]) -> Condition:
    """Make the condition that a value is an HTTP address whose host matches a glob."""
    wanted = [reading for glob in globs for reading in ((_spelled(glob),) if _WILD.search(glob) else host_readings(glob))]

    def fits(value: Any) -> bool | None:
        name = _host_of(value)
        found = set() if name is None else {_matches(reading, wanted) for reading in host_readings(name)}
        return found.pop() if len(found) == 1 else None

    return fits


def _spelled(glob: str) -> str:
    """Write a glob of hosts as hosts are compared: without a last dot or the brackets of IPv6, its whole labels as in DNS."""
    plain = glob.strip("[]") if ":" in glob else glob.removesuffix(".")
    return ".".join(label if label.isascii() else host_readings(label)[0] for label in plain.split("."))


def _host_of(value: Any) -> str | None:
    """Return the host of an address; None if programs may disagree about it."""
    if (
        not isinstance(value, str)
        or len(value) > _LONGEST_VALUE
        or _ODD_IN_ADDRESS.search(re.split("[?#]", value, maxsplit=1)[0])
    ):
        return None
    try:
        parts = urlsplit(value)
        name = (parts.hostname or "").lower()
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not _PLAIN_HOST.fullmatch(name if ":" not in name else f"[{name}]"):
        return None
    return name


def like(globs: Sequence[str]) -> Condition:
    """Make the condition that a glob matches a whole string, case-sensitively."""

    def fits(value: Any) -> bool | None:
        return None if not isinstance(value, str) or len(value) > _LONGEST_VALUE else _matches(value, globs)

    return fits


def _matches(text: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, glob) for glob in globs)


def one_of(values: Sequence[Any]) -> Condition:

    def fits(value: Any) -> bool | None:
        if isinstance(value, list | dict):  # only the tool knows which of its values counts
            return None if any(fits(each) is not False for each in _members(value)) else False
        if any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values):
            return True
        text = str(value).lower()  # a tool may read "5" as 5
        return None if any(type(value) is not type(each) and text == str(each).lower() for each in values) else False

    return fits


def _members(value: list[Any] | dict[str, Any]) -> Iterator[Any]:
    """Yield the values in a list or object, at any depth, and the names of its fields."""
    stack: list[Any] = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, list | dict):
            stack += [*each, *each.values()] if isinstance(each, dict) else each
        else:
            yield each


CONDITIONS: Final[Mapping[str, Callable[[Sequence[Any]], Condition]]] = {
    "below": below,
    "host": host,
    "like": like,
    "one_of": one_of,
}
"""Maps a key of a policy file to the function that makes the condition."""


def made_out(call: ToolCall) -> tuple[str, ...]:
    """Return the codes of a call's repairs that guessed a name, a value or its end; each once, in order."""
    return tuple(dict.fromkeys(repair.code for repair in call.repairs if repair.code not in ONLY_MARKS))
