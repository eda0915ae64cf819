"""Explains why a reply is wrong, by comparing its calls with the expected calls, pair by pair.

`Verdict.failure` gives the stage at which a reply went wrong. By BFCL's rules, two wrong calls among several are one
`cannot_find_match`. Here each call is paired with the expected call that it differs from least (the best assignment of all
pairs), and each difference has a cause. A reply has all causes that were found, and one main cause: the first in the order of
`CAUSES`. Causes that keep calls from being read or counted come first, then the number of calls, then their content. A missing
optional value is the main cause only if nothing else is wrong.

Turns of conversations and tasks of several turns are judged by their outcome, so there are no expected calls to pair with. Their
causes come from the calls that ran; if these show none, the cause is `wrong_outcome`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ..binding.provenance import SaidIndex, ValueSource, values_in
from ..types.calls import InvalidCall, Tool, ToolCall
from .case import Case, is_identical
from .funnel import UNREADABLE, Verdict, attempted, issue_code
from .judge import judge_value
from .stats import assignment
from .store import tools_kept_in

CAUSES: Final[Mapping[str, str]] = {
    "cut": "The reply was cut before it ended.",
    "unreadable": "It attempts a call that could not be read.",
    "none": "It makes no call where one is needed.",
    "false_call": "It calls where no call is needed.",
    "dependent_batched": "A later call of one reply has a value that is known only from an earlier call's result, if at all.",
    "too_many": "It makes more calls than are wanted.",
    "too_few": "It makes fewer calls than are wanted.",
    "wrong_tool": "It calls another tool.",
    "invalid": "The arguments do not fit the schema.",
    "omitted_required": "It leaves out a required value.",
    "extra_param": "It gives a parameter that the right call does not have.",
    "invented_value": "A wrong value is found neither in the conversation nor in the schema.",
    "wrong_value": "It gives a parameter a value other than the right call's.",
    "omitted_optional": "It leaves out an optional value that the right call has.",
    "wrong_outcome": "No call can be shown to be at fault; the state that they led to, or the answer, is wrong.",
}
"""Cause -> its meaning; the first that applies is the main one."""

_PAIRED_CALLS: Final = 200  # how many calls of a reply are paired; any further ones are too many in any case
_ANOTHER_TOOL: Final = 1000.0  # what it costs to pair two tools: more than all parameters

_OF_FAILURE: Final = {
    "truncated": "cut",
    "context_overflow": "cut",
    "cut": "cut",
    "malformed_attempt": "unreadable",
    "unread_call": "unreadable",
    "prose_only": "none",
    "no_call": "none",
    "false_call": "false_call",
    "wrong_tool": "wrong_tool",
    "too_many_steps": "too_many",
    "empty": "wrong_outcome",
}
_OF_ISSUE: Final = {"unknown-tool": "wrong_tool", "missing-argument": "omitted_required", "unexpected-argument": "extra_param"}

Wanted = tuple[str, Mapping[str, Sequence[Any]]]
"""The name of a tool and the values that are accepted for each parameter; with `""` it may be left out."""


def causes_of(verdict: Verdict) -> tuple[str, ...]:
    """Return the causes of a wrong reply, the main one first; none if the reply is right."""
    if not verdict.failure:
        return ()
    found = set(_of_outcome(verdict) if "outcome" in verdict.row else _of_reply(verdict))
    return tuple(cause for cause in CAUSES if cause in found)


def counted(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """Count per cause, in the order of `CAUSES`: `main`, replies of which it is the main one, and `any`, all that have it."""
    causes = [causes_of(verdict) for verdict in verdicts]
    main, all_of = Counter(each[0] for each in causes if each), Counter(cause for each in causes for cause in each)
    return {cause: {"main": main[cause], "any": all_of[cause]} for cause in CAUSES if all_of[cause]}


# -- one reply ---------------------------------------------------------------------------------------------------------


def _of_reply(verdict: Verdict) -> Iterator[str]:
    case, calls = verdict.case, verdict.reply.calls
    if verdict.failure in ("truncated", "context_overflow"):
        yield _OF_FAILURE[verdict.failure]
    if case.expects == "no_call":
        yield _OF_FAILURE[verdict.failure]
        yield from _invented(calls, case)
    elif calls:
        invalid = [call for call in calls if isinstance(call, InvalidCall)]
        issues = [_of_issue(issue_code(issue, call, case)) for call in invalid for issue in call.issues]
        found = {*issues, *_of_pairs(calls, case)}
        # BFCL's judge takes the first call that fits an answer, though another answer may need it.
        yield from found or ({"wrong_value"} if verdict.failure not in _OF_FAILURE else ())
    else:
        yield _OF_FAILURE[verdict.failure]


def _of_issue(code: str) -> str:
    return "unreadable" if code in UNREADABLE else _OF_ISSUE.get(code, "invalid")


def _of_pairs(calls: Sequence[ToolCall | InvalidCall], case: Case) -> Iterator[str]:
    wanted = _wanted(case)
    if case.expects == "any_call":
        return
    if len(calls) != len(wanted):
        yield "too_many" if len(calls) > len(wanted) else "too_few"
    alone = dict(enumerate(calls))
    for number, place in _assigned(calls[:_PAIRED_CALLS], wanted, case):
        call = alone.pop(number)
        if call.name != wanted[place][0]:
            yield "wrong_tool"
            yield from _invented([call], case)
        elif isinstance(call, ToolCall):
            mistakes = _mistakes(call.arguments, wanted[place], case)
            yield from mistakes.values()
            yield from _invented([call], case, [name for name, cause in mistakes.items() if not cause.startswith("omitted")])
    yield from _invented(alone.values(), case)


def _wanted(case: Case) -> list[Wanted]:
    if case.exact:
        return [(name, {parameter: [value] for parameter, value in values.items()}) for name, values in case.exact]
    return [each for answer in case.answers for each in answer.items()]


def _assigned(calls: Sequence[ToolCall | InvalidCall], wanted: Sequence[Wanted], case: Case) -> Iterable[tuple[int, int]]:
    """Return pairs of call and wanted call, by index; if their order counts, each call belongs to the wanted one in its place."""
    if case.exact and len(calls) == len(wanted):
        return ((place, place) for place in range(len(wanted)))
    return assignment([[_cost(call, each, case) for each in wanted] for call in calls])


def _cost(call: ToolCall | InvalidCall, wanted: Wanted, case: Case) -> float:
    if call.name != wanted[0]:
        return _ANOTHER_TOOL
    return len(_mistakes(call.arguments, wanted, case)) if isinstance(call, ToolCall) else _ANOTHER_TOOL / 2


def _mistakes(arguments: Mapping[str, Any], wanted: Wanted, case: Case) -> dict[str, str]:
    """Return the parameters in which a valid call differs from a wanted one of the same tool, and how."""
    name, accepted = wanted
    schema = next((tool.input_schema for tool in case.tools if tool.name == name), {})
    declared, required = schema.get("properties", {}), schema.get("required", ())
    found = {}
    for parameter, value in arguments.items():
        if parameter not in accepted or (parameter not in declared and not case.exact):
            found[parameter] = "extra_param"
        elif not _is_accepted(value, accepted[parameter], declared.get(parameter, {}), case):
            found[parameter] = "wrong_value"
    left_out = (parameter for parameter, values in accepted.items() if parameter not in arguments)
    for parameter in [*left_out, *(each for each in required if each not in accepted and each not in arguments)]:
        if parameter in required:
            found[parameter] = "omitted_required"
        elif case.exact or "" not in accepted[parameter]:
            found[parameter] = "omitted_optional"
    return found


def _is_accepted(value: Any, accepted: Sequence[Any], schema: Mapping[str, Any], case: Case) -> bool:
    return is_identical(value, accepted[0]) if case.exact else not judge_value(value, accepted, schema)


def _invented(calls: Iterable[ToolCall | InvalidCall], case: Case, parameters: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the cause if a call has a value that appears nowhere in the conversation, in some of its parameters or in any."""
    tools = {tool.name: tool for tool in reversed(case.tools)}
    texts = [message["content"] for message in case.messages]
    for call in calls:
        if isinstance(call, ToolCall):
            arguments = {name: value for name, value in call.arguments.items() if parameters is None or name in parameters}
            if unsaid(arguments, tools.get(call.name), texts):
                yield "invented_value"


# -- several turns -----------------------------------------------------------------------------------------------------


def _of_outcome(verdict: Verdict) -> Iterator[str]:
    """Yield the causes of a turn of a conversation, or of a task, whose last turn is the one that failed."""
    played = verdict.row["outcome"]["turns"][-1]
    failure, calls = verdict.failure, played["calls"]
    expected = [name for turn in verdict.case.turns for entry in turn.get("tools", ()) for name in entry.split("|")]
    if failure == "no_call" and any(attempted(text, expected) for text in played.get("replies", ())):
        yield "unreadable"
    elif failure in _OF_FAILURE:
        yield _OF_FAILURE[failure]
    elif failure == "failed_call":
        yield from _of_failed_calls(calls)
    else:
        yield "wrong_outcome"
    yield from _of_values(verdict, calls)


def _of_failed_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why a wanted tool did not run as often as it had to."""
    codes = {issue["code"] for call in calls for issue in call.get("issues", ())}
    yield from map(_of_issue, codes)
    if any(call.get("is_error") for call in calls):
        yield "wrong_value"
    elif not codes:
        yield "too_few"


def _of_values(verdict: Verdict, calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the causes if calls of a reply have values that the conversation did not contain before it.

    Runs of earlier versions do not record which calls came in one reply, so `dependent_batched` never occurs in them.
    """
    tools = {tool.name: tool for tool in tools_kept_in(verdict.row["outcome"])}
    texts = list(_texts(verdict))
    is_at_fault = verdict.failure in ("failed_call", "wrong_tool", "false_call")
    for _, of_reply in groupby(calls, key=lambda call: call.get("reply")):
        batch = list(of_reply)
        ahead = [call for call in batch if unsaid(call.get("arguments", {}), tools.get(call["name"]), texts)]
        if "reply" in batch[0] and any(call is not batch[0] for call in ahead):
            yield "dependent_batched"
        if is_at_fault and any(call.get("is_error", True) for call in ahead):
            yield "invented_value"
        texts += [call["result"] for call in batch if "result" in call]


def _texts(verdict: Verdict) -> Iterator[str]:
    """Yield what was said and answered before the first reply of the turn."""
    yield from (message["content"] for message in verdict.case.messages)
    outcome = verdict.row["outcome"]
    for turn in [*outcome.get("before", ()), *outcome["turns"]]:
        yield from turn.get("said", ())
        if turn is not outcome["turns"][-1]:
            yield from turn["replies"]
            yield from (call["result"] for call in turn["calls"] if "result" in call)


def unsaid(arguments: Mapping[str, Any], tool: Tool | None, texts: Iterable[str]) -> frozenset[str]:
    """Return the parameters of a call whose values are neither in the conversation nor in the tool's schema."""
    index = SaidIndex()
    for text in texts:
        index.add(text, ValueSource(kind="person"))
    return frozenset(name for _, name, value in values_in(arguments) if index.source_of(value, tool, name).kind == "invented")


# -- a reply beside the accepted calls -----------------------------------------------------------------------------------


_TURN_KEYS = ("tools", "calls", "may", "fails", "answer", "not", "told", "state", "right", "reply")  # see `play`


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Write a value as JSON, or as Python's `repr` if JSON cannot hold it."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=repr)
    except RecursionError:
        return "[nested too deeply to be shown]"


def call_text(name: str, arguments: Any) -> str:
    return f"{name} {to_json(arguments)}"


_NOTES: Final = {
    "no_call": "No call.",
    "any_call": "Any call that is valid.",
    "task": "The state and the results that the expected calls of each turn lead to.",
}


def expected_of(case: Case) -> dict[str, str]:
    """Return the right answer to a case, or to one turn of a conversation."""
    if case.expects == "talk":
        turn = case.turns[0]
        text = "\n".join(f"{key}: {to_json(turn[key], indent=None)}" for key in _TURN_KEYS if key in turn)
        return {"text": text, "note": "An answer in words." if "tools" in turn else "An answer in words, without a tool."}
    if case.expects != "calls":
        return {"text": "", "note": _NOTES[case.expects]}
    if case.exact:
        return {"text": "\n".join(call_text(*call) for call in case.exact), "note": "Equal to the last character."}
    text = "\n".join(_accepted_text(name, accepted) for answer in case.answers for name, accepted in answer.items())
    return {"text": text, "note": 'Where "" is accepted, the parameter may be left out.' if '""' in text else ""}


def _accepted_text(name: str, accepted: Mapping[str, Sequence[Any]]) -> str:
    lines = [f"  {key}: {' or '.join(to_json(value, indent=None) for value in values)}" for key, values in accepted.items()]
    return "\n".join([f"{name} {{", *lines, "}"])
