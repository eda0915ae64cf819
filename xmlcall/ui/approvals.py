"""The page as the place where a person is asked before a call runs.

What is decided, and what an answer means, is `agent.asking_person`'s, as in the terminal. Here a question becomes JSON, and what
a page sends becomes an answer, or a sentence on why it is none. Everything in a question is by a model or a server; the page
shows it as text.
"""

import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any, Final, get_args

from ..agent.asking_person import Choice, PersonAnswer, Question, read_arguments
from ..agent.policy import Proposal
from ..agent.rules import Rule, Ruling
from ..records.as_json import tool_to_json
from ..turns.builder import TurnBuilder
from ..turns.model import CallRecord
from .open_questions import Given, Misfit, OpenQuestions

__all__ = ["CURRENT", "PageAsker"]

CURRENT: ContextVar[TurnBuilder | None] = ContextVar("the turn under way", default=None)
"""The turn that a task belongs to: one loop serves all conversations."""

_LONGEST_REASON: Final = 2000
_CHOICES: Final[tuple[Choice, ...]] = tuple(choice for choice in get_args(Choice) if choice != "late")
_SIGNS: Final = {"+": "added", "-": "removed", " ": "same"}


class PageAsker:
    """Asks about calls in the page."""

    def __init__(self, questions: OpenQuestions, lang: str, changed: Callable[[TurnBuilder], None]) -> None:
        self._questions, self.lang, self._changed = questions, lang, changed

    def is_there(self) -> bool:
        """Say that there is somebody to ask: a page may be opened at any time."""
        return True

    async def ask(self, question: Question) -> PersonAnswer:
        """Show a question, and wait for the answer."""
        turn, proposal = CURRENT.get(), question.proposal
        if turn is not None:
            turn.waiting(proposal.call.id)
            self._changed(turn)
        body = {
            "turn": turn.id if turn else "",
            "kind": "call",
            **_shown(question, _call(turn, proposal)),
            **(await _changes(question)),
        }
        answer: PersonAnswer = await self._questions.ask(
            "question", body, lambda given: _read(given, proposal), PersonAnswer(choice="late")
        )
        return answer

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        """Leave it to the record of the call, which has the rule."""

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        """Do nothing: there is somebody."""


def _shown(question: Question, call: CallRecord) -> dict[str, Any]:
    proposal, ruling = question.proposal, question.ruling
    return {
        "call": asdict(call),
        "target": proposal.target,
        "server": proposal.host,
        "tool": tool_to_json(proposal.tool),
        "foreign": dict(ruling.foreign),
        "repairs": list(ruling.repairs),
        "unsaid": list(ruling.unsaid),
        "definition_before": question.approved,
        "definition_now": question.definition,
        "times_in_a_row": proposal.times_in_a_row,
    }


async def _changes(question: Question) -> dict[str, Any]:
    rows = await question.changes()
    kinds = (("gap" if row.startswith("@@") else _SIGNS.get(row[:1], "gap"), row) for row in rows)
    return {"changes": [{"kind": kind, "text": row if kind == "gap" else row[1:]} for kind, row in kinds]}


def _call(turn: TurnBuilder | None, proposal: Proposal) -> CallRecord:
    """Return the record of a call, with its place in the reply and where its values came from, unless it was changed."""
    call = proposal.call
    replies = turn.record().replies if turn else ()
    records = (each for reply in reversed(replies) for each in reply.calls if each.id == call.id)
    found = (each for each in records if each.arguments == dict(call.arguments))
    own = CallRecord(id=call.id, index=call.raw.index, name=call.name, text=call.raw.text, arguments=dict(call.arguments))
    return next(found, own)


def _read(given: Given, proposal: Proposal) -> PersonAnswer:
    """Read an answer about a call."""
    answer, reason = given.get("answer"), given.get("reason") or ""
    choice = next((each for each in _CHOICES if each == answer), None)
    if choice is None or not isinstance(reason, str):
        raise Misfit(f"answer: expected one of {', '.join(_CHOICES)}, and a reason as text, got {json.dumps(answer)[:80]}")
    if choice != "edit":
        return PersonAnswer(choice=choice, reason=reason.strip()[:_LONGEST_REASON] if choice == "no" else "")
    arguments, problem = read_arguments(json.dumps(given.get("arguments")), proposal.tool)
    if problem:
        raise Misfit(problem)
    return PersonAnswer(choice="edit", arguments=arguments)
