"""A question that a model is measured on, and what counts as a right answer to it."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..types.calls import Message, RawCall, Tool, ToolCall
from .judge import Call, judge

# In order: the calls of `answers` or `exact`; a valid call; none; a task, judged while it was played by the state that it led to
# (in runs of earlier versions); a conversation, judged turn by turn (see `play`).
Expects = Literal["calls", "any_call", "no_call", "task", "talk"]
_CONVERSATIONAL = ("half", "servers", "turns")  # fields of a case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question, the tools offered, and what is expected."""

    id: str
    category: str  # part of the suite that it belongs to; samples are drawn evenly from all categories
    messages: tuple[Mapping[str, Any], ...]  # the conversation so far, as `messages_of` reads it, the person's question last
    tools: tuple[Tool, ...]
    expects: Expects = "calls"
    answers: tuple[Mapping[str, Any], ...] = ()  # per expected call `{name: {parameter: [accepted values]}}`; `""`: left out
    exact: tuple[Call, ...] = ()  # the expected calls, if their arguments must be equal character for character
    disputed: bool = False  # no answer is right, or only one that breaks the tool's schema; reported with and without these
    half: str = ""  # `tuning` or `report` if the case always belongs to that half; "" if a sample is halved when it is drawn
    servers: tuple[str, ...] = ()
    turns: tuple[Mapping[str, Any], ...] = ()  # for a conversation, what the person says in each turn, and what is expected


@cache
def read_data(name: str) -> dict[str, Any]:
    """Read a TOML file beside this module."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def case_to_json(case: Case) -> dict[str, Any]:
    """Return the saved form of a case. Fields that only conversations have are left out of other cases, as in older runs."""
    return {name: value for name, value in asdict(case).items() if value or name not in _CONVERSATIONAL}


# Ids of related cases: one question with catalogs of several sizes, or at several turns of a conversation; BFCL's questions
# of real users about the same tools, whose ids are `live_CATEGORY_NUMBER-TOOLS-VARIANT`; its tasks of several turns, each in four
# variants; the turns of one conversation, which are `CONVERSATION#NUMBER`.
_GROUPED = re.compile(
    r"(catalog)-\d+-(\d+)|(long)-\d+-\d+-([a-z]+-\d+)|(live_[a-z_]+)_\d+-(\d+)-\d+|(multi_turn)_[a-z_]+_(\d+)|(.+)#\d+"
)


def group_of(case: Case) -> str:
    """Return the name of a case's group: cases that are right or wrong together more often than by chance."""
    found = _GROUPED.fullmatch(case.id)
    return " ".join(part for part in found.groups() if part) if found else case.id


def judge_case(case: Case, calls: Sequence[Call]) -> str:
    """Return "" if the calls of a reply are right, else the error: BFCL's error type, `wrong_value` or `false_call`."""
    if case.expects == "no_call":
        return "false_call" if calls else ""
    if case.expects == "any_call":
        return "" if calls else "wrong_count"
    if not case.exact:
        return judge(calls, case.tools, case.answers, case.category)
    if [name for name, _ in calls] != [name for name, _ in case.exact]:
        return "wrong_count" if len(calls) != len(case.exact) else "wrong_func_name"
    same = all(is_identical(dict(got), dict(wanted)) for (_, got), (_, wanted) in zip(calls, case.exact, strict=True))
    return "" if same else "wrong_value"


def is_identical(one: Any, other: Any) -> bool:
    """Compare values and their types: `1`, `1.0` and `true` are equal in Python and differ in JSON."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_identical(each, other[key]) for key, each in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(is_identical(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def messages_of(rows: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a case's conversation as messages, with calls and results as data (`in_text` writes them as text).

    A row may contain more than text: `calls` that the model made (`[[name, arguments], ...]`), and after them, in rows of role
    `tool`, the result of each, in order.
    """
    messages: list[Message] = []
    calls: Iterator[ToolCall] = iter(())
    for row in rows:
        if row["role"] == "tool":
            call = next(calls)
            messages.append(Message(role="tool", content=row["content"], tool_call_id=call.id, name=call.name))
            continue
        made = tuple(
            ToolCall(id=f"call_{len(messages)}_{index}", name=name, arguments=arguments, raw=RawCall(index=index, name=name))
            for index, (name, arguments) in enumerate(row.get("calls", ()))
        )
        messages.append(Message(role=row["role"], content=row["content"], tool_calls=made))
        calls = iter(made)
    return messages
