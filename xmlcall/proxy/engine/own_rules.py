"""Which calls of its own servers' tools the proxy runs: by rules, since nobody can be asked.

What rules would ask about is denied. The model and the log are told the line that would allow it, so that whoever runs the proxy
can decide about it once. The log tells each line once: a model may try for ever.
"""

import json
import logging
import re
import shlex
from typing import Final

from ...agent.policy import Decision, Proposal
from ...agent.rules import Rules, Ruling, glob_of
from ...prompting.format import PromptFormat
from ...prompting.results import denial

__all__ = ["OwnRules"]

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
