"""What is measured: a model, or one of three stand-ins whose score is known before.

The stand-ins test the harness itself. `oracle` writes the right calls and must score 100 % but for disputed cases. `garbage`
writes what looks like calls and is none, and must score 0 %. `mutator` damages right replies in a fixed rotation (`MUTATIONS`),
so that each number of a report can be worked out by hand; in conversations there is none. They answer through the same streams,
parser and judge as a model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..backends.base import Backend
from ..backends.scripted import ScriptedBackend
from ..dialects import DIALECTS
from ..dialects.write import write
from ..errors import UsageError
from ..tools.catalog import Catalog
from ..types.completion import Chunk, FinishReason
from .case import Case
from .multiturn import MultiTurnCase, Reference
from .oracle import calling, oracle_calls
from .suites import tasks_of
from .talk.oracle import RightTurns
from .ways import Way, catalog_of

__all__ = ["MUTATIONS", "STAND_INS", "Subject", "model_subject", "stand_in"]

Script = list[Chunk]

_PLAIN: Final = Chunk(text="In plain words: it depends.")
_DAMAGED: Final = DIALECTS["function_calls"]
_OPENER: Final = _DAMAGED.written["call_open"].partition("{name}")[0]
_ROUNDS = 50  # replies of those who write the same again: more than feedback and the turns of a task ask for


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured."""

    name: str
    backend: Callable[[Case, Way], Backend]


def model_subject(backend: Backend) -> Subject:
    """Return a model as subject."""
    return Subject(name=backend.model, backend=lambda case, way: backend)


def stand_in(name: str, cases: list[Case]) -> Subject:
    """Return a stand-in."""
    if name == "mutator" and any(case.expects == "talk" for case in cases):
        raise UsageError("the mutator damages replies that are judged one by one, a conversation goes on: use oracle or garbage")
    place = {case.id: number for number, case in enumerate(cases)}
    tasks = tasks_of(cases)

    def backend(case: Case, way: Way) -> Backend:
        if case.expects == "talk" and name == "oracle":
            return RightTurns(case, way)
        return ScriptedBackend(STAND_INS[name](right_replies(case, way), way, place[case.id]))

    def right_replies(case: Case, way: Way) -> list[Script]:
        if case.expects == "talk":
            return []
        return _right_task(tasks[case.id], way) if case.id in tasks else [_right(case, way)]

    return Subject(name=name, backend=backend)


def _right(case: Case, way: Way) -> Script:
    return calling(oracle_calls(case), catalog_of(case), way) if case.expects != "no_call" else [_PLAIN]


def _right_task(task: MultiTurnCase, way: Way) -> list[Script]:
    """Answer each turn: its calls, each in a reply, because some need the result of one before, then plain words."""
    reference = Reference(task)
    catalog = reference.catalog
    replies: list[Script] = []
    for turn in range(len(task.turns)):
        replies += [calling([call], catalog, way) for call in reference.calls(turn)]
        replies.append([_PLAIN])
    return replies


def _oracle(right: list[Script], way: Way, number: int) -> list[Script]:
    del way, number
    return right


def _garbage(right: list[Script], way: Way, number: int) -> list[Script]:
    """Write a call of a tool that nobody offers, an opener that never ends, or nothing."""
    del right, way
    texts = (write([("nothing_like_it", {})], Catalog(), _DAMAGED), _OPENER, "")
    return [[Chunk(text=texts[number % len(texts)])]] * _ROUNDS


def _unquoted(text: str) -> str:
    return text.replace('name="', "name='").replace('">', "'>")


def _unknown(text: str) -> str:
    return text.replace(_OPENER, f"{_OPENER}zzz")


def _cut(text: str) -> str:
    return text[: text.rfind(_OPENER)] + _OPENER


# What is done to a right reply, and the last stage of the funnel that it still reaches ("" for none).
MUTATIONS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "as it is": (lambda text: text, "task_correct"),
    "single quotes": (_unquoted, "task_correct"),
    "unknown tool": (_unknown, "parsed_with_repairs"),
    "in words": (lambda text: "I would call a tool for that.", "completed"),
    "cut": (_cut, ""),
}


def _mutator(right: list[Script], way: Way, number: int) -> list[Script]:
    """Damage every reply with calls in the same way."""
    if way.dialect != _DAMAGED.name:
        raise UsageError(f"the mutator damages replies in the format {_DAMAGED.name}: use --way xml")
    name = list(MUTATIONS)[number % len(MUTATIONS)]
    mutate = MUTATIONS[name][0]
    finish_reason: FinishReason = "length" if name == "cut" else "stop"
    damaged = [
        reply if reply == [_PLAIN] else [Chunk(text=mutate(chunk.text), finish_reason=finish_reason) for chunk in reply]
        for reply in right
    ]
    return damaged if len(right) > 1 else damaged * _ROUNDS


STAND_INS: Mapping[str, Callable[[list[Script], Way, int], list[Script]]] = {
    "oracle": _oracle,
    "garbage": _garbage,
    "mutator": _mutator,
}
"""Name -> its replies to a case in a way, in order, given the right ones and the case's place in the run."""
