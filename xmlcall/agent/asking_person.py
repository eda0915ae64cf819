"""Asks the user before a call runs (MCP 2026-07-28, tools: there SHOULD be a human who can deny it).

All decisions are made here, whatever the user interface. Rules come first. "Always allow" applies to a tool as it was shown to
the user. Arguments that the user edits have to be valid for the tool, as the model's had to. An `Asker` shows the question and
returns the answer: the terminal is one, the page is another.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from ..errors import XmlcallError
from ..prompting.format import PromptFormat
from ..prompting.results import denial
from ..tools.catalog import Catalog
from ..types.calls import Tool
from .file_diff import file_change, passages
from .policy import Decision, Policy, Proposal
from .rules import Rule, Rules, Ruling
from .run_call import misfit

__all__ = [
    "Asker",
    "Choice",
    "PersonAnswer",
    "Question",
    "Stopped",
    "asking_person",
    "asking_person_of_repeats",
    "read_arguments",
]

_PERSON: Final = "person"  # who decided, for the record

Choice = Literal["yes", "no", "edit", "always", "with", "stop", "late"]
"""`always` allows the tool with any arguments, `with` only with these; `late` means that the user did not answer in time."""


class Stopped(XmlcallError):
    """The user ended the run at a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the user about a call."""

    proposal: Proposal
    ruling: Ruling
    definition: str  # the tool's definition, as text
    approved: str | None = None  # the definition for which the user chose "always"; None if they have not
    rules: Rules = field(default_factory=Rules)

    async def changes(self) -> list[str]:
        """Return what the call would change in a text, as rows of a diff; this may run a tool that reads the old text."""
        return passages(self.proposal.call.arguments) or await file_change(self.proposal, self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAnswer:
    """The user's answer."""

    choice: Choice
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


class Asker(Protocol):
    """A user interface that asks the user."""

    @property
    def lang(self) -> str:
        """Language of the reasons that the model receives."""

    def is_there(self) -> bool:
        """Say whether a user can be asked."""

    async def ask(self, question: Question) -> PersonAnswer:
        """Show a question, and wait for the answer."""

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        """Report that a rule denied a call."""

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        """Report that a call was denied because no user could be asked."""


def asking_person(rules: Rules, asker: Asker, *, yes: bool = False, may_flow: bool = False, repaired: bool = False) -> Policy:
    """Make the policy of a session: rules decide first, and the user is asked about all other calls.

    Args:
        yes: whether every question is answered with yes without being shown, except for calls that write made-up values.
        repaired: whether "always" also covers calls whose name or values were guessed by repairs.
    """
    return _Asking(rules, asker, yes=yes, may_flow=may_flow, repaired=repaired)


def asking_person_of_repeats(rules: Rules, asker: Asker) -> Policy | None:
    """Make the policy that asks the user about each repeated call that no rule denies; None if no user can be asked."""
    if not asker.is_there():
        return None

    async def ask(proposal: Proposal) -> Decision:
        return await _Asking(rules.only(["deny", "ask"]), asker)(proposal)  # a new one, which remembers no earlier answer

    return ask


def read_arguments(text: str, tool: Tool) -> tuple[dict[str, Any], str]:
    """Parse arguments that the user typed; return them, and what is wrong with them."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"expected a JSON object on one line: {error}"
    if not isinstance(arguments, dict):
        return {}, f"expected a JSON object, got {text.strip():.60}"
    return arguments, misfit(arguments, tool.name, Catalog([tool]))


class _Asking:
    """A policy that asks the user; it remembers what is always allowed, by name and never as a glob.

    "Always" applies to a tool as it was shown. A server can change the description of a tool at any time; the user is then asked
    again, and sees what is different.
    """

    def __init__(self, rules: Rules, asker: Asker, *, yes: bool = False, may_flow: bool = False, repaired: bool = False) -> None:
        self._rules, self._asker, self._yes = rules, asker, yes
        self._may_flow, self._repaired = may_flow, repaired
        self._always: dict[tuple[str, str, str], str] = {}  # server, tool, arguments ("" for any) -> the tool's definition

    async def __call__(self, proposal: Proposal) -> Decision:
        ruling = self._rules.judge(proposal)
        if ruling.effect != "ask" and ruling.rule is not None:
            if ruling.effect == "deny":
                self._asker.tell_denied(proposal, ruling.rule)
            return Decision(allowed=ruling.effect == "allow", by=ruling.rule.name)
        if self._yes and not ruling.unsaid:
            return Decision(allowed=True, by="--yes")
        definition = _definition(proposal.tool)
        approved = self._approved(proposal, ruling)
        if approved == definition:
            return Decision(allowed=True, by=f"{_PERSON}, always")
        if not self._asker.is_there():
            self._asker.tell_nobody(proposal, ruling)
            names = ", ".join(ruling.unsaid)
            reason = denial("unsaid", PromptFormat(lang=self._asker.lang), why=names) if names else ""
            return Decision(allowed=False, reason=reason, by="nobody to ask")
        question = Question(proposal=proposal, ruling=ruling, definition=definition, approved=approved, rules=self._rules)
        return await self._asked(question)

    async def _asked(self, question: Question) -> Decision:
        """Ask; check arguments that the user edits against the rules, and ask again if a rule requires it."""
        answer = await self._asker.ask(question)
        if answer.choice != "edit" or answer.arguments is None:
            return self._decided(answer, question)
        proposal = question.proposal
        edited = replace(proposal, call=replace(proposal.call, arguments=dict(answer.arguments), repairs=()))
        rule = self._rules.stricter(proposal, answer.arguments)
        if rule is None:
            return Decision(allowed=True, arguments=answer.arguments, by=_PERSON)
        if rule.effect == "deny":
            self._asker.tell_denied(edited, rule)
            return Decision(allowed=False, by=rule.name)
        decision = await self._asked(replace(question, proposal=edited, ruling=Ruling(effect="ask", rule=rule)))
        return replace(decision, arguments=decision.arguments or answer.arguments) if decision.allowed else decision

    def _decided(self, answer: PersonAnswer, question: Question) -> Decision:
        proposal, choice = question.proposal, answer.choice
        if choice == "stop":
            raise Stopped(f"stopped before {proposal.target}")
        if choice in ("no", "late"):
            kind = "said_no" if choice == "no" else "no_answer"
            reason = denial(kind, PromptFormat(lang=self._asker.lang), why=answer.reason)
            return Decision(allowed=False, reason=reason, by=_PERSON if choice == "no" else "nobody answered")
        if choice in ("always", "with"):
            self._always[_key(proposal, any_arguments=choice == "always")] = question.definition
        return Decision(allowed=True, by=_PERSON)

    def _approved(self, proposal: Proposal, ruling: Ruling) -> str | None:
        """Return the definition for which a call is always allowed; None if it is not.

        If values come from another server, were guessed by repairs or are made up, only "always with exactly these arguments"
        counts.
        """
        is_odd = bool(ruling.unsaid) or bool(ruling.foreign and not self._may_flow) or bool(ruling.repairs and not self._repaired)
        found = (self._always.get(_key(proposal, any_arguments=each)) for each in (True, False) if not (each and is_odd))
        return next((definition for definition in found if definition is not None), None)


def _key(proposal: Proposal, *, any_arguments: bool) -> tuple[str, str, str]:
    arguments = "" if any_arguments else json.dumps(proposal.call.arguments, sort_keys=True)
    return proposal.host, proposal.host_tool, arguments


def _definition(tool: Tool) -> str:
    """Format a tool's definition with one line per entry, so that two versions can be compared."""
    said = {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "annotations": dict(tool.annotations or {}),
    }
    return json.dumps(said, ensure_ascii=False, indent=2, sort_keys=True, default=str)
