"""Ask the person before a call runs (MCP 2026-07-28, tools: there SHOULD be a human who can deny it).

The call is shown in full, with everything unprintable written out. Only a terminal is asked: text that is piped in may come from
anywhere. What was typed before the question appeared is thrown away, so that it does not answer the question.
"""

import glob
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..agent.policy import Decision, Policy, Proposal, allow, flows, matches
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


def approval(patterns: list[str], display: Display, *, may_flow: bool = True) -> Policy:
    """Make the policy of a session: what a glob matches runs, everything else is asked about.

    Args:
        patterns: globs over `server.tool`.
        display: where to ask.
        may_flow: whether nothing is asked about what is allowed if a value comes from another server's result.
    """
    return allow(patterns, _Asking(display, patterns, may_flow=may_flow), may_flow=may_flow)


def approval_of_repeats(display: Display) -> Policy | None:
    """Make the policy for a call that comes again and again: each time the person is asked; None if there is nobody.

    Args:
        display: where to ask.
    """
    if not is_interactive():
        return None

    async def ask(proposal: Proposal) -> Decision:
        return await _Asking(display)(proposal)  # a new one, which has no answer from before

    return ask


class _Asking:
    """A policy that asks; it remembers what is always allowed, by name and never as a glob.

    What is allowed is a tool as it was shown. A server can change what a tool says of itself at any time; then the person is
    asked again, and sees what is different.
    """

    def __init__(self, display: Display, patterns: Sequence[str] = (), *, may_flow: bool = True) -> None:
        self._display = display
        self._patterns = patterns  # what is allowed but for values of other servers' results
        self._may_flow = may_flow
        self._always: dict[tuple[str, str, str], str] = {}  # server, tool, arguments ("" for any) -> the tool's definition

    async def __call__(self, proposal: Proposal) -> Decision:
        definition = _definition(proposal.tool)
        foreign = {} if self._may_flow else flows(proposal)
        approved = self._approved(proposal, foreign=bool(foreign))
        if approved == definition:
            return Decision(allowed=True, by=f"{_PERSON}, always")
        if not is_interactive():
            self._display.refused(proposal, self._nobody_to_ask(proposal, foreign))
            return Decision(allowed=False, by="nobody to ask")
        self._display.proposal(proposal)
        for path, server in foreign.items():
            self._display.foreign(path, server)
        if approved is not None:
            self._display.changed(approved, definition)
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

    def _approved(self, proposal: Proposal, *, foreign: bool) -> str | None:
        """Return the definition with which a call is always allowed; None if it is not.

        With values of another server's results only these very arguments count.
        """
        found = (self._always.get(_key(proposal, any_arguments=each)) for each in (True, False) if not (each and foreign))
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

    def _nobody_to_ask(self, proposal: Proposal, foreign: Mapping[str, str]) -> str:
        if foreign and matches(proposal, self._patterns):
            path, server = next(iter(foreign.items()))
            return self._display.say("nobody_flow", target=proposal.target, path=visible(path), server=visible(server))
        pattern = shlex.quote(glob.escape(proposal.target))
        return self._display.say("nobody", target=proposal.target, pattern=pattern)


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
