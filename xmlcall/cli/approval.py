"""Ask the person before a call runs (MCP 2026-07-28, tools: there SHOULD be a human who can deny it).

The call is shown in full, with everything unprintable written out. Only a terminal is asked: text that is piped in may come from
anywhere. What was typed before the question appeared is thrown away, so that it does not answer the question.
"""

import glob
import json
import shlex
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..agent.changes import file_change, passages
from ..agent.policy import Decision, Policy, Proposal
from ..agent.policy_file import own_file
from ..agent.rules import Rules, Ruling
from ..agent.run_call import misfit
from ..errors import XmlcallError
from ..prompting.format import PromptFormat
from ..prompting.results import denial
from ..tools.catalog import Catalog
from ..types.tool import Tool
from .display import Display
from .lines import LineReader, forget_typed, is_interactive
from .plain import visible
from .questions import edited

__all__ = ["Stopped", "approval", "approval_of_repeats"]

_PERSON = "person"  # who decided, for the record
_ATTEMPTS = 5


class _Choice(Enum):
    YES = "yes"
    NO = "no"
    EDIT = "edit"
    ALWAYS = "always"
    WITH = "with"
    STOP = "stop"


_ANSWERS = {word: choice for choice in _Choice for word in (choice.value, choice.value[0])}
_ANSWERS |= {  # whatever the language
    "是": _Choice.YES,
    "否": _Choice.NO,
    "修改": _Choice.EDIT,
    "总是": _Choice.ALWAYS,
    "此参数": _Choice.WITH,
    "停止": _Choice.STOP,
}


class Stopped(XmlcallError):
    """The person ended the run at a question."""


def approval(rules: Rules, display: Display, *, yes: bool = False, may_flow: bool = False, repaired: bool = False) -> Policy:
    """Make the policy of a session: rules decide first, everything else is asked about.

    Args:
        rules: of files and options.
        display: where to ask.
        yes: every question is answered with yes, unseen.
        may_flow: whether an answer "always" holds for values of other servers, too.
        repaired: whether it holds for calls that were made out by repairs, too.
    """
    return _Asking(display, rules, yes=yes, may_flow=may_flow, repaired=repaired)


def approval_of_repeats(rules: Rules, display: Display) -> Policy | None:
    """Make the policy for a call that comes again and again: each time the person is asked; None if there is nobody.

    Args:
        rules: of the session; what they deny is not asked about.
        display: where to ask.
    """
    if not is_interactive():
        return None

    async def ask(proposal: Proposal) -> Decision:
        return await _Asking(display, rules.only(["deny"]))(proposal)  # a new one, which has no answer from before

    return ask


class _Asking:
    """A policy that asks; it remembers what is always allowed, by name and never as a glob.

    What is allowed is a tool as it was shown. A server can change what a tool says of itself at any time; then the person is
    asked again, and sees what is different.
    """

    def __init__(
        self, display: Display, rules: Rules, *, yes: bool = False, may_flow: bool = False, repaired: bool = False
    ) -> None:
        self._display, self._rules, self._yes = display, rules, yes
        self._may_flow, self._repaired = may_flow, repaired
        self._always: dict[tuple[str, str, str], str] = {}  # server, tool, arguments ("" for any) -> the tool's definition

    async def __call__(self, proposal: Proposal) -> Decision:
        ruling = self._rules.judge(proposal)
        if ruling.effect != "ask" and ruling.rule is not None:
            if ruling.effect == "deny":
                self._display.refused(proposal, self._display.say("denied_by", rule=visible(ruling.rule.name)))
            return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)
        if self._yes:
            return Decision(allowed=True, by="--yes")
        definition = _definition(proposal.tool)
        approved = self._approved(proposal, ruling)
        if approved == definition:
            return Decision(allowed=True, by=f"{_PERSON}, always")
        if not is_interactive():
            self._refuse(proposal, ruling)
            return Decision(allowed=False, by="nobody to ask")
        await self._show(proposal, ruling)
        if approved is not None:
            self._display.changed(approved, definition)
        return await self._answered(proposal, definition)

    async def _show(self, proposal: Proposal, ruling: Ruling) -> None:
        self._display.proposal(proposal)
        if rows := passages(proposal.call.arguments) or await file_change(proposal, self._rules):
            self._display.change(rows)
        if ruling.repairs:
            self._display.repaired(ruling.repairs)
        for path, server in ruling.foreign.items():
            self._display.foreign(path, server)

    async def _answered(self, proposal: Proposal, definition: str) -> Decision:
        choice, why = await self._ask()
        if choice is _Choice.STOP:
            raise Stopped(self._display.say("stopped_before", target=proposal.target))
        if choice is _Choice.NO:
            return Decision(allowed=False, reason=denial("said_no", PromptFormat(lang=self._display.lang), why=why), by=_PERSON)
        if choice is _Choice.EDIT:
            return await self._edited(proposal)
        if choice in (_Choice.ALWAYS, _Choice.WITH):
            self._always[_key(proposal, any_arguments=choice is _Choice.ALWAYS)] = definition
        return Decision(allowed=True, by=_PERSON)

    def _approved(self, proposal: Proposal, ruling: Ruling) -> str | None:
        """Return the definition with which a call is always allowed; None if it is not.

        With values of another server, or made out by repairs, only these very arguments count.
        """
        is_odd = bool(ruling.foreign and not self._may_flow) or bool(ruling.repairs and not self._repaired)
        found = (self._always.get(_key(proposal, any_arguments=each)) for each in (True, False) if not (each and is_odd))
        return next((definition for definition in found if definition is not None), None)

    async def _ask(self) -> tuple[_Choice, str]:
        """Ask until there is an answer, and a reason for a no. The end of input stops; too many wrong answers are a no."""
        forget_typed()
        lines = LineReader(sys.stdin.fileno())
        for _ in range(_ATTEMPTS):
            self._display.ask(self._display.say("question"))
            answer = await lines.line()
            if answer is None:
                self._display.line("", "")
                return _Choice.STOP, ""
            word, _, rest = answer.strip().partition(" ")
            choice = _ANSWERS.get(word.lower())
            if choice is _Choice.NO or (choice and not rest.strip()):
                return choice, rest.strip()
        return _Choice.NO, ""

    async def _edited(self, proposal: Proposal) -> Decision:
        """Let the person change the arguments, which have to fit the tool as the model's did; nothing at all is a no."""
        text = json.dumps(proposal.call.arguments, ensure_ascii=False)
        if visible(text) != text:  # what a terminal would obey or hide is written as an escape
            text = json.dumps(proposal.call.arguments)
        for _ in range(_ATTEMPTS):
            text = await edited(self._display.say("edit"), text)
            if not text.strip():
                break
            arguments, problem = _read_arguments(text, proposal.tool)
            if not problem:
                return Decision(allowed=True, arguments=arguments, by=_PERSON)
            self._display.notice(problem)
        return Decision(allowed=False, reason=denial("said_no", PromptFormat(lang=self._display.lang)), by=_PERSON)

    def _refuse(self, proposal: Proposal, ruling: Ruling) -> None:
        """Say that nobody could be asked, and which line would allow the call."""
        say, target, rule = self._display.say, proposal.target, ruling.rule
        if rule is not None and rule.effect == "ask":
            self._display.refused(proposal, say("nobody_rule", target=target, rule=visible(rule.name)))
            return
        if rule is None:
            why = say("nobody", target=target, pattern=shlex.quote(glob.escape(target)))
        elif ruling.foreign and not rule.may_flow:
            path, server = next(iter(ruling.foreign.items()))
            why = say("nobody_flow", target=target, path=visible(path), server=visible(server))
        else:
            why = say("nobody_repaired", target=target, codes=", ".join(ruling.repairs))
        self._display.refused(proposal, why)
        more = {**({"flow": "allow"} if ruling.foreign else {}), **({"repaired": True} if ruling.repairs else {})}
        self._display.line("", f"{say('or_in_file', file=visible(str(own_file())))}\n{_as_toml(target, more)}")


def _as_toml(target: str, more: Mapping[str, object]) -> str:
    """Write the rule that allows a tool, as it can be put behind a file of rules."""
    import tomli_w

    rows = tomli_w.dumps({"allow": glob.escape(target), **more}).strip().split("\n")
    return "\n".join(f"  {visible(row)}" for row in ("[[rule]]", *rows))


def _key(proposal: Proposal, *, any_arguments: bool) -> tuple[str, str, str]:
    arguments = "" if any_arguments else json.dumps(proposal.call.arguments, sort_keys=True)
    return proposal.host, proposal.host_tool, arguments


def _definition(tool: Tool) -> str:
    """Write what a server says of a tool, a line each, so that two states can be compared."""
    said = {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "annotations": dict(tool.annotations or {}),
    }
    return json.dumps(said, ensure_ascii=False, indent=2, sort_keys=True, default=str)


def _read_arguments(text: str, tool: Tool) -> tuple[dict[str, Any], str]:
    """Read arguments as a person types them, and say what is wrong with them."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"expected a JSON object on one line: {error}"
    if not isinstance(arguments, dict):
        return {}, f"expected a JSON object, got {text.strip():.60}"
    return arguments, misfit(arguments, tool.name, Catalog([tool]))
