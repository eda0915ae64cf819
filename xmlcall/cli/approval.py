"""Asks the user on the terminal before a call runs.

The call is shown in full, with everything unprintable escaped. Only a terminal is asked, because piped text may come from
anywhere. What was typed before the question appeared does not answer it: it becomes the beginning of the next input line.
"""

import difflib
import json
import shlex
import sys
from typing import Final

from ..agent.asking_person import Choice, PersonAnswer, Question, Stopped, read_arguments
from ..agent.policy import Proposal
from ..agent.policy_file import own_file
from ..agent.rules import Rule, Ruling, glob_of
from ..toml_file import toml_text
from .display import Display
from .lines import ATTEMPTS, LineReader, edited, is_interactive, put_typed_aside
from .plain import visible

_CHOICES: Final[tuple[Choice, ...]] = ("yes", "no", "edit", "always", "with", "stop")
_ANSWERS: Final[dict[str, Choice]] = {
    **{word: choice for choice in _CHOICES for word in (choice, choice[0])},
    "是": "yes",  # whatever the language
    "否": "no",
    "修改": "edit",
    "总是": "always",
    "此参数": "with",
    "停止": "stop",
}


class TerminalAsker:
    def __init__(self, display: Display) -> None:
        self._display, self._say = display, display.say
        self.lang: str = display.lang

    def is_there(self) -> bool:
        return is_interactive()

    async def ask(self, question: Question) -> PersonAnswer:
        await self._show(question)
        choice, why = await self._choice()
        if choice == "stop":
            raise Stopped(self._say("stopped_before", target=question.proposal.target))
        return await self._edited(question.proposal) if choice == "edit" else PersonAnswer(choice=choice, reason=why)

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        self._display.refused(proposal, self._say("denied_by", rule=visible(rule.name)))

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        """Report that there was no user to ask, and which rule would allow the call."""
        say, target, rule = self._say, proposal.target, ruling.rule
        if ruling.unsaid:
            self._display.refused(proposal, say("nobody_unsaid", target=target, names=visible(", ".join(ruling.unsaid))))
            return
        if rule is not None and rule.effect == "ask":
            self._display.refused(proposal, say("nobody_rule", target=target, rule=visible(rule.name)))
            return
        if rule is None:
            why = say("nobody", target=target, pattern=shlex.quote(glob_of(proposal.host, proposal.host_tool)))
        elif ruling.foreign and not rule.may_flow:
            path, server = next(iter(ruling.foreign.items()))
            key = "nobody_flow" if server else "nobody_place"
            why = say(key, target=target, path=visible(path), server=visible(server))
        else:
            why = say("nobody_repaired", target=target, codes=", ".join(ruling.repairs))
        self._display.refused(proposal, why)
        self._display.line("", f"{say('or_in_file', file=visible(str(own_file())))}\n{_allowing_rule(proposal, ruling)}")

    async def _show(self, question: Question) -> None:
        self._display.proposal(question.proposal)
        remark, say, ruling = self._display.remark, self._say, question.ruling
        if rows := await question.changes():
            remark(say("change"))
            for row in rows:
                remark(visible(row), {"+": "green", "-": "red"}.get(row[:1], ""))
        if ruling.unsaid:
            remark(say("made_up", names=", ".join(map(visible, ruling.unsaid))), "yellow")
        if ruling.repairs:
            remark(say("made_out", codes=", ".join(map(visible, ruling.repairs))), "yellow")
        for path, server in ruling.foreign.items():  # without a server, the value leads to a place named nowhere
            key = "foreign" if server else "unsaid_place"
            remark(say(key, path=visible(path.removeprefix("$.")), server=visible(server)), "yellow")
        if question.approved is not None:
            remark(say("changed"), "yellow")
            for row in difflib.unified_diff(question.approved.split("\n"), question.definition.split("\n"), lineterm="", n=1):
                if not row.startswith(("---", "+++", "@@")):
                    remark(visible(row))

    async def _choice(self) -> tuple[Choice, str]:
        """Ask until there is an answer; a no may have a reason. The end of input stops; too many wrong answers are a no."""
        put_typed_aside()
        lines = LineReader(sys.stdin.fileno())
        for _ in range(ATTEMPTS):
            self._display.ask(self._say("question"))
            answer = await lines.line()
            if answer is None:
                self._display.line("", "")
                return "stop", ""
            word, _, rest = answer.strip().partition(" ")
            choice = _ANSWERS.get(word.lower())
            if choice == "no" or (choice and not rest.strip()):
                return choice, rest.strip()
        return "no", ""

    async def _edited(self, proposal: Proposal) -> PersonAnswer:
        """Let the user edit the arguments, which must be valid for the tool; an empty text is a no."""
        text = json.dumps(proposal.call.arguments, ensure_ascii=False)
        if visible(text) != text:  # what a terminal would obey or hide is written as an escape
            text = json.dumps(proposal.call.arguments)
        for _ in range(ATTEMPTS):
            text = await edited(self._say("edit"), text)
            if not text.strip():
                break
            arguments, problem = read_arguments(text, proposal.tool)
            if not problem:
                return PersonAnswer(choice="edit", arguments=arguments)
            self._display.notice(problem)
        return PersonAnswer(choice="no")


def _allowing_rule(proposal: Proposal, ruling: Ruling) -> str:
    """Write the rule that allows a tool, ready to be appended to a file of rules."""
    more = {**({"flow": "allow"} if ruling.foreign else {}), **({"repaired": True} if ruling.repairs else {})}
    rows = toml_text({"allow": glob_of(proposal.host, proposal.host_tool), **more}).strip().split("\n")
    return "\n".join(f"  {visible(row)}" for row in ("[[rule]]", *rows))
