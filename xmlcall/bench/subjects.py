"""The subjects of a measurement: a model, or one of three stand-ins whose score is known in advance.

The stand-ins test the harness itself. `oracle` writes the right calls and must score 100 %, except for disputed cases. `garbage`
writes text that only looks like calls, and must score 0 %. `mutator` damages right replies in a fixed rotation (`MUTATIONS`), so
that each number of a report can be calculated by hand; conversations have no mutator. All stand-ins answer through the same
streams, parser and judge as a model.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from jsonschema import Draft202012Validator

from ..backends.base import Backend, KeptOpen
from ..backends.scripted import ScriptedBackend
from ..dialects import DIALECTS
from ..dialects.write import named_results, replies_of, write
from ..errors import UsageError
from ..tools.catalog import Catalog
from ..tools.outline import example_arguments
from ..types.calls import Message, Tool
from ..types.completion import Chunk, CompletionRequest, FinishReason
from ..wire.openai import json_text, native_call
from .case import Case
from .judge import Call
from .play import folder_of
from .ways import Way, catalog_of

Script = list[Chunk]

_PLAIN: Final = Chunk(text="In plain words: it depends.")
_PLAIN_WORDS: Final = {"english": "All right.", "chinese": "好的。"}
_DAMAGED: Final = DIALECTS["function_calls"]
_OPENER: Final = _DAMAGED.written["call_open"].partition("{name}")[0]
_ROUNDS = 50  # replies from stand-ins that repeat themselves; more than any case needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str
    backend: Callable[[Case, Way], Backend]


def model_subject(backend: Backend) -> Subject:
    return Subject(name=backend.model, backend=lambda case, way: backend)


def stand_in(name: str, cases: list[Case]) -> Subject:
    if name == "mutator" and any(case.expects == "talk" for case in cases):
        raise UsageError("the mutator damages replies that are judged one by one, not a conversation: use oracle or garbage")
    place = {case.id: number for number, case in enumerate(cases)}

    def backend(case: Case, way: Way) -> Backend:
        if case.expects == "talk" and name == "oracle":
            return RightTurns(case, way)
        needs_call = case.expects not in ("talk", "no_call")
        right = calling(oracle_calls(case), catalog_of(case), way) if needs_call else [_PLAIN]
        return ScriptedBackend(STAND_INS[name](right, way, place[case.id]))

    return Subject(name=name, backend=backend)


def _garbage(right: Script, way: Way, number: int) -> list[Script]:
    """Write a call of a tool that is not offered, an opener that never ends, or nothing."""
    del right, way
    texts = (write([("nothing_like_it", {})], Catalog(), _DAMAGED), _OPENER, "")
    return [[Chunk(text=texts[number % len(texts)])]] * _ROUNDS


# What is done to a right reply, and the last stage of the funnel that it still reaches ("" for none).
MUTATIONS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "as it is": (lambda text: text, "task_correct"),
    "single quotes": (lambda text: text.replace('name="', "name='").replace('">', "'>"), "task_correct"),
    "unknown tool": (lambda text: text.replace(_OPENER, f"{_OPENER}zzz"), "parsed_with_repairs"),
    "in words": (lambda text: "I would call a tool for that.", "completed"),
    "cut": (lambda text: text[: text.rfind(_OPENER)] + _OPENER, ""),
}


def _mutator(right: Script, way: Way, number: int) -> list[Script]:
    if way.dialect != _DAMAGED.name:
        raise UsageError(f"the mutator damages replies in the format {_DAMAGED.name}: use --way xml")
    name = list(MUTATIONS)[number % len(MUTATIONS)]
    mutate = MUTATIONS[name][0]
    finish_reason: FinishReason = "length" if name == "cut" else "stop"
    damaged = [Chunk(text=mutate(chunk.text), finish_reason=finish_reason) for chunk in right]
    return [right if right == [_PLAIN] else damaged] * _ROUNDS


STAND_INS: Mapping[str, Callable[[Script, Way, int], list[Script]]] = {
    "oracle": lambda right, way, number: [right],
    "garbage": _garbage,
    "mutator": _mutator,
}
"""Name -> its replies to a case in a way, in order, given the right one and the case's place in the run."""


# -- the calls that a perfect model would write ------------------------------------------------------------------------


_LEFT_OUT: Final = object()


def oracle_calls(case: Case) -> list[Call]:
    """Return calls that answer a case, with accepted values that their schema admits wherever possible."""
    if case.exact:
        return list(case.exact)
    if case.expects == "any_call":
        return [(case.tools[0].name, example_arguments(case.tools[0]))]
    tools = {tool.name: tool for tool in reversed(case.tools)}
    return [(name, _chosen(values, tools[name])) for answer in case.answers for name, values in answer.items()]


def calling(calls: Sequence[Call], catalog: Catalog, way: Way) -> list[Chunk]:
    if way.is_native:
        return [
            Chunk(tool_calls=tuple(native_call(index, name, json_text(dict(each))) for index, (name, each) in enumerate(calls)))
        ]
    return [Chunk(text=write(calls, catalog, DIALECTS[way.dialect]))]


def _chosen(values: Mapping[str, Sequence[Any]], tool: Tool) -> dict[str, Any]:
    chosen = {name: _choice(name, alternatives, tool.input_schema) for name, alternatives in values.items()}
    return {name: value for name, value in chosen.items() if value is not _LEFT_OUT}


def _choice(name: str, alternatives: Sequence[Any], schema: Mapping[str, Any]) -> Any:
    """Choose a value; `""` means that the parameter may be left out, or, if it is required, that it is empty."""
    required = name in schema.get("required", ())
    candidates = [_LEFT_OUT if each == "" and not required else concrete(each) for each in alternatives]
    declared = schema.get("properties", {}).get(name)
    is_valid = Draft202012Validator(False if declared is None else declared).is_valid
    fitting = (each for each in candidates if each is _LEFT_OUT or is_valid(each))
    return next(fitting, candidates[0] if candidates else _LEFT_OUT)


def concrete(value: Any) -> Any:
    """Choose the first accepted value for each key of an object, and of each object in a list."""
    if isinstance(value, Mapping):
        return {key: each[0] for key, each in value.items() if each[0] != ""}
    return [concrete(item) if isinstance(item, Mapping) else item for item in value] if isinstance(value, list) else value


# -- what a perfect model says in a conversation -----------------------------------------------------------------------
# The answer is the turn's `reply`. Without one it is the tools' results, because a result such as the time is known only when the
# conversation is played, or a plain sentence if nothing was called. Nothing is remembered: what to say follows from the messages.


class RightTurns(KeptOpen):
    def __init__(self, case: Case, way: Way) -> None:
        super().__init__(ScriptedBackend([]))
        self._case, self._way = case, way

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        for chunk in self._said(request.messages):
            yield chunk
        yield Chunk(finish_reason="stop")

    def _said(self, messages: Sequence[Message]) -> list[Chunk]:
        asked = sum(message.role == "user" and not replies_of(message) for message in messages)
        before = sum(row["role"] == "user" for row in self._case.messages[: -len(self._case.turns)])
        turn, results = self._case.turns[asked - before - 1], list(_results_since(messages))
        if "right" in turn and not results:
            calls = [each for call in _placed(turn["right"], str(folder_of(self._case.id))) for each in call.items()]
            return calling(calls, Catalog(()), self._way)
        return [Chunk(text=turn.get("reply") or "\n".join(results) or _PLAIN_WORDS[self._case.category])]


def _results_since(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the tools' results since the last reply: in messages of their own, or all in one of role `user`."""
    new = list(takewhile(lambda message: message.role != "assistant", reversed(messages)))
    for message in reversed(new):
        yield from (text for _, text in named_results(message))


def _placed(value: Any, folder: str) -> Any:
    """Put the folder in place of its mark, in all strings of a JSON value."""
    if isinstance(value, str):
        return value.replace("{folder}", folder)
    if isinstance(value, list):
        return [_placed(item, folder) for item in value]
    return {name: _placed(item, folder) for name, item in value.items()} if isinstance(value, dict) else value
