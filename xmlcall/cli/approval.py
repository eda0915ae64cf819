"""Ask the person before a call runs (MCP 2026-07-28, tools: there SHOULD be a human who can deny it).

The call is shown in full, with everything unprintable written out. Only a terminal is asked: text that is piped in may come from
anywhere. What was typed before the question appeared is thrown away, so that it does not answer the question.
"""

import glob
import shlex
import sys
from enum import Enum

from ..agent.policy import Decision, Policy, Proposal, allow
from ..errors import XmlcallError
from ..prompting.format import PromptFormat
from ..prompting.results import denial
from .display import Display
from .lines import LineReader

__all__ = ["Stopped", "approval", "approval_of_repeats", "is_interactive"]

_ATTEMPTS = 5


class _Choice(Enum):
    YES = "yes"
    NO = "no"
    ALWAYS = "always"
    STOP = "stop"


_ANSWERS = {word: choice for choice in _Choice for word in (choice.value, choice.value[0])}
_ANSWERS |= {"是": _Choice.YES, "否": _Choice.NO, "总是": _Choice.ALWAYS, "停止": _Choice.STOP}  # whatever the language


class Stopped(XmlcallError):
    """The person ended the run at a question."""


def is_interactive() -> bool:
    """Say whether there is a person to ask: one who types on standard input and sees standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def approval(patterns: list[str], display: Display) -> Policy:
    """Make the policy of a session: what a glob matches runs, everything else is asked about.

    Args:
        patterns: globs over `server.tool`.
        display: where to ask.
    """
    return allow(patterns, _Asking(display))


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
    """A policy that asks; it remembers what is always allowed, by name and never as a glob."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._always: set[tuple[str, str]] = set()

    async def __call__(self, proposal: Proposal) -> Decision:
        if (proposal.host, proposal.host_tool) in self._always:
            return Decision(allowed=True)
        if not is_interactive():
            self._display.refused(proposal, self._nobody_to_ask(proposal))
            return Decision(allowed=False)
        self._display.proposal(proposal)
        choice = await self._ask()
        if choice is _Choice.STOP:
            raise Stopped(self._display.say("stopped_before", target=proposal.target))
        if choice is _Choice.ALWAYS:
            self._always.add((proposal.host, proposal.host_tool))
        if choice is _Choice.NO:
            return Decision(allowed=False, reason=denial("said_no", PromptFormat(lang=self._display.lang)))
        return Decision(allowed=True)

    async def _ask(self) -> _Choice:
        """Ask until there is an answer. The end of input stops the run; after too many wrong answers it is a no."""
        _forget_typed()
        lines = LineReader(sys.stdin.fileno())
        for _ in range(_ATTEMPTS):
            self._display.ask(self._display.say("question"))
            answer = await lines.line()
            if answer is None:
                self._display.line("", "")
                return _Choice.STOP
            if choice := _ANSWERS.get(answer.strip().lower()):
                return choice
        return _Choice.NO

    def _nobody_to_ask(self, proposal: Proposal) -> str:
        pattern = shlex.quote(glob.escape(proposal.target))
        return self._display.say("nobody", target=proposal.target, pattern=pattern)


def _forget_typed() -> None:
    import termios  # not on every platform; where it is missing, so is the terminal that this is for

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
