"""What is measured: a model, or one of three stand-ins whose score is known before.

The stand-ins test the harness itself. `oracle` writes the right calls and must score 100 % but for disputed cases. `garbage`
writes what looks like calls and is none, and must score 0 %. `mutator` damages right replies in a fixed rotation (`MUTATIONS`),
so that each number of a report can be worked out by hand. They answer through the same streams, parser and judge as a model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..backends.base import Backend
from ..backends.scripted import ScriptedBackend
from ..completion import Chunk
from ..dialects import DIALECTS
from ..errors import UsageError
from ..reply import write
from ..wire.openai import json_text, native_call
from .case import Case
from .oracle import oracle_calls
from .ways import Way, catalog_of

__all__ = ["MUTATIONS", "STAND_INS", "Subject", "model_subject", "stand_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured.

    Args:
        name: for people.
        backend: the backend that answers a case in a way; open.
    """

    name: str
    backend: Callable[[Case, Way], Backend]


def model_subject(backend: Backend) -> Subject:
    """Return a model as subject.

    Args:
        backend: open; it answers every case.
    """
    return Subject(name=backend.model, backend=lambda case, way: backend)


def stand_in(name: str, cases: list[Case]) -> Subject:
    """Return a stand-in.

    Args:
        name: of `STAND_INS`.
        cases: of the run; the mutator goes by their order.
    """
    place = {case.id: number for number, case in enumerate(cases)}
    return Subject(name=name, backend=lambda case, way: ScriptedBackend([STAND_INS[name](case, way, place[case.id])]))


def _oracle(case: Case, way: Way, number: int) -> list[Chunk]:
    del number
    if case.expects == "task":
        raise UsageError("the stand-ins do not play tasks of several turns")
    calls = oracle_calls(case)
    if case.expects == "no_call":
        return [Chunk(text="I have no tool for that; in plain words: it depends.")]
    if way.is_native:
        return [
            Chunk(tool_calls=tuple(native_call(index, name, json_text(dict(each))) for index, (name, each) in enumerate(calls)))
        ]
    return [Chunk(text=write(calls, catalog_of(case), DIALECTS[way.dialect]))]


def _garbage(case: Case, way: Way, number: int) -> list[Chunk]:
    """Write a call of a tool that nobody offers, an opener that never ends, or nothing."""
    del case, way
    texts = ('<function_calls><invoke name="nothing_like_it"></invoke></function_calls>', '<invoke name="', "")
    return [Chunk(text=texts[number % len(texts)])]


def _unquoted(text: str) -> str:
    return text.replace('name="', "name='").replace('">', "'>")


def _unknown(text: str) -> str:
    return text.replace('<invoke name="', '<invoke name="zzz')


def _cut(text: str) -> str:
    return text[: text.rfind("<invoke")] + '<invoke name="'


# What is done to a right reply, and the last stage of the funnel that it still reaches ("" for none).
MUTATIONS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "as it is": (lambda text: text, "task_correct"),
    "single quotes": (_unquoted, "task_correct"),
    "unknown tool": (_unknown, "parsed_with_repairs"),
    "in words": (lambda text: "I would call a tool for that.", "completed"),
    "cut": (_cut, ""),
}


def _mutator(case: Case, way: Way, number: int) -> list[Chunk]:
    if way.dialect != "function_calls":
        raise UsageError("the mutator damages replies in the format function_calls: use --way xml")
    (right,) = _oracle(case, way, number)
    if case.expects == "no_call":
        return [right]
    name = list(MUTATIONS)[number % len(MUTATIONS)]
    return [Chunk(text=MUTATIONS[name][0](right.text), finish_reason="length" if name == "cut" else "stop")]


STAND_INS: Mapping[str, Callable[[Case, Way, int], list[Chunk]]] = {"oracle": _oracle, "garbage": _garbage, "mutator": _mutator}
"""Name -> the chunks of its reply to a case in a way, given the case's place in the run."""
