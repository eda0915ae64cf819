"""Compare a reply with what was expected: the accepted calls, and the lines that differ from the nearest of them."""

import contextlib
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..types.calls import MISSING, InvalidCall, ToolCall
from .case import Case
from .judge import Call, judge
from .subjects import oracle_calls

__all__ = ["arguments_of", "call_text", "difference", "expected_of", "to_json"]

_TURN_KEYS = ("tools", "calls", "may", "fails", "answer", "not", "told", "state", "right", "reply")  # see `talk`
DIFF_LIMIT = 400  # lines of each side: comparing takes longer than linear time


def to_json(value: Any, *, sort: bool = False, indent: int | None = 2) -> str:
    """Write a value as JSON; what is no JSON as Python shows it."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort, default=repr)
    except RecursionError:
        return "[nested too deeply to be shown]"


def arguments_of(call: ToolCall | InvalidCall) -> Mapping[str, Any]:
    """Return the arguments of a call; of an invalid one as they were written."""
    if isinstance(call, ToolCall):
        return call.arguments
    return {each.name: each.text if each.value is MISSING else each.value for each in call.raw.arguments}


def call_text(name: str, arguments: Any, *, sort: bool = False) -> str:
    """Write a call on lines that can be compared."""
    return f"{name} {to_json(arguments, sort=sort)}"


def expected_of(case: Case) -> dict[str, str]:
    """Say what counts as right.

    Args:
        case: of any kind but a task of several turns; of a conversation, one turn.
    """
    if case.expects == "talk":
        return _expected_turn(case.turns[0])
    if case.expects != "calls":
        return {"text": "", "note": {"no_call": "No call.", "any_call": "Any call that is valid."}[case.expects]}
    if case.exact:
        return {"text": "\n".join(call_text(*call) for call in case.exact), "note": "Equal to the last character."}
    text = "\n".join(_accepted_text(name, accepted) for answer in case.answers for name, accepted in answer.items())
    return {"text": text, "note": 'Where "" is accepted, the parameter may be left out.' if '""' in text else ""}


def _expected_turn(turn: Mapping[str, Any]) -> dict[str, str]:
    keys = [key for key in _TURN_KEYS if key in turn]
    text = "\n".join(f"{key}: {to_json(turn[key], indent=None)}" for key in keys)
    return {"text": text, "note": "An answer in words." if "tools" in turn else "An answer in words, without a tool."}


def _accepted_text(name: str, accepted: Mapping[str, Sequence[Any]]) -> str:
    lines = [f"  {key}: {' or '.join(to_json(value, indent=None) for value in values)}" for key, values in accepted.items()]
    return "\n".join([f"{name} {{", *lines, "}"])


def difference(case: Case, got: Sequence[Call]) -> list[tuple[str, str]]:
    """Compare accepted calls with those of a reply, line by line.

    Returns:
        Per line its mark (`-` only accepted, `+` only in the reply, a space for both) and its text; nothing if there is nothing
        to compare.
    """
    if case.expects != "calls" or not got:
        return []
    expected, got = _nearest(case, got)
    lines = list(difflib.unified_diff(_lines(expected), _lines(got), lineterm="", n=2 * DIFF_LIMIT))[3:]
    return [(line[:1], line[1:]) for line in lines]


def _lines(calls: Iterable[Call]) -> list[str]:
    lines = [line for call in calls for line in call_text(*call, sort=True).split("\n")]
    return lines if len(lines) <= DIFF_LIMIT else [*lines[:DIFF_LIMIT], f"… {len(lines) - DIFF_LIMIT} more lines"]


def _nearest(case: Case, got: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Return accepted calls that differ from a reply's only where they must, and the reply's in the order of these."""
    if case.exact:
        return list(case.exact), list(got)
    expected, ordered, left, names = [], [], list(got), {name for answer in case.answers for name in answer}
    for answer, (name, arguments) in zip(case.answers, oracle_calls(case), strict=True):
        mates = [call for call in left if call[0] == name] or [call for call in left if call[0] not in names]
        for mate in mates[:1]:
            left.remove(mate)
            # What an invalid call holds is text, also where a number was meant.
            same = {key: value for key, value in arguments.items() if mate[1].get(key) == to_json(value)}
            ordered.append((mate[0], {**mate[1], **same}))
            arguments = _nearer(case, answer, arguments, ordered[-1][1])
        expected.append((name, arguments))
    return expected, ordered + left


def _nearer(case: Case, answer: Mapping[str, Any], expected: Mapping[str, Any], got: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take each argument of the reply's call that leaves the expected call right."""
    (name,) = answer
    for key in {**got, **expected}:
        changed = {other: value for other, value in expected.items() if other != key} | ({key: got[key]} if key in got else {})
        with contextlib.suppress(AttributeError, TypeError):  # the judge reads valid calls; another may hold anything
            if not judge([(name, changed)], case.tools, [answer], "simple"):
                expected = changed
    return expected
