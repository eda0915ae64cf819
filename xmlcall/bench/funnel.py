"""Finds the stage of the funnel that a stored reply reached.

The reply is replayed through the same code that reads a model's stream, so the verdict is that of the product itself. These are
the stages of a case that needs calls; each is reached only through the one before. (`parsed_as_written` and `valid_as_written`
are side branches that show how much the parser's tolerance and the conversions contribute.)

    completed -> intent -> parsed_with_repairs -> tool_known -> valid -> call_correct
                        `-> parsed_as_written               `-> valid_as_written

A case that needs no call ends in one of five ways: correctly refused, a false call, a malformed attempt (never counted as right),
empty, or cut off (neither right nor wrong).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..agent.drive import result_of
from ..dialects import DIALECTS
from ..dialects.call_signs import attempts_call
from ..turn.attempts import none_can_run
from ..types.calls import InvalidCall, Issue, Reply, ToolCall
from ..types.completion import UNCUT
from .case import Case, judge_case
from .judge import CALLED, is_admitted, judge_turn, speaks
from .ways import AskedCase, Settings, Way, catalog_of

STAGES = (
    *("completed", "intent", "parsed_as_written", "parsed_with_repairs", "tool_known"),
    *("valid_as_written", "valid", "call_correct"),
)
_TALK = ("with_tool", "without_tool", "own_language", "false_statement")
METRICS = (*STAGES, "task_correct", *_TALK, "refused_rightly", "false_call", "malformed_attempt", "empty", "recovered")
"""In the order of a report. The denominators: cases that need calls for the stages, all cases for `completed` and `task_correct`,
turns of conversations that need a tool, those that need none, all, and those that need a tool for the next four, cases that need
no call for the four after them, first replies without a valid call for `recovered` (only in runs with feedback)."""

UNREADABLE = frozenset({"truncated-call", "unread-call", "mentioned-call", "ambiguous"})
"""Issues that mean that the text could not be read as a call, and not that the call is wrong."""

# The names of failures: by issue code, and by the judge's error.
_ISSUE_CODES = {
    "unknown-tool": "unknown_tool",
    "missing-argument": "missing_required",
    "unexpected-argument": "unknown_param",
    "wrong-type": "bad_type",
    "invalid-value": "bad_value",
    "duplicate-argument": "duplicate_param",
    "malformed-value": "bad_value_syntax",
    "ambiguous": "ambiguous",
    "truncated-call": "unclosed_tag",
    "unread-call": "unread_call",
    "mentioned-call": "unread_call",
    "echo": "echo",
    "not-said": "not_said",
}
_JUDGE_CODES = {
    "wrong_func_name": "wrong_tool",
    "unexpected_param": "unknown_param",
    "cannot_find_match": "wrong_value",
    "type_error": "bad_type",
    "value_error": "wrong_value",
    "dict_checker": "wrong_value",
    "list_dict_checker": "wrong_value",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    case: Case
    reached: frozenset[str]
    counted: frozenset[str]  # the metrics that the reply counts for, reached or not
    failure: str  # why it is not right, as a code; "" if it is right
    reply: Reply
    row: Mapping[str, Any]
    repairs: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return "task_correct" in self.reached


async def judge_reply(
    row: Mapping[str, Any], case: Case, way: Way, settings: Settings, *, reasoning_open: bool = False
) -> Verdict:
    """Judge a line of `replies.jsonl` by its last round."""
    if "outcome" in row:
        return _of_task(row, case)
    asked = AskedCase(way, case, settings)
    read = [await result_of(*asked.replay(kept, reasoning_open=reasoning_open)) for kept in row["rounds"]]
    replies = [generated.reply for generated in read]
    reply = replies[-1]
    # With its own function calling, the server itself removes the reasoning from the text.
    said = spoken(row["rounds"][-1].get("text", ""), reasoning_open=reasoning_open and not way.is_native).strip()
    tries = bool(reply.calls) or attempted(said, (tool.name for tool in case.tools))
    no_call, cut = case.expects == "no_call", "" if reply.finish_reason in UNCUT else "truncated"
    if row["rounds"][-1].get("finish_reason") == "context_overflow":  # set by the runner: there was no reply
        cut = "context_overflow"
    if no_call:
        reached, failure = _without_call(reply, said, tries, cut)
    else:
        reached, failure = (set(), cut) if cut else _through_funnel(reply, said, tries, case, way)
    counted = {"completed", "task_correct"} | set(_NO_CALL if no_call else STAGES)
    if settings.feedback and not no_call and none_can_run(replies[0].calls):
        counted.add("recovered")
        reached |= {"recovered"} if _valid(reply) else set()
    return Verdict(
        case=case,
        reached=frozenset(reached),
        counted=frozenset(counted),
        failure=failure,
        repairs=tuple(repair.code for repair in reply.repairs),
        reply=reply,
        row=row,
    )


def _of_task(row: Mapping[str, Any], case: Case) -> Verdict:
    """Take the verdict of a task of several turns, which was judged while it was played."""
    outcome = row["outcome"]
    ends = [turn["stop_reason"] for turn in outcome["turns"]]
    cut = "" if ends[-1] in _LOOP_ENDS else "context_overflow" if ends[-1] == "context_overflow" else "truncated"
    reached = {name for name, holds in (("completed", _LOOP_ENDS.issuperset(ends)), ("task_correct", outcome["valid"])) if holds}
    return Verdict(
        case=case,
        reached=frozenset(reached),
        counted=frozenset({"completed", "task_correct"}),
        failure=outcome["error"] and (cut or outcome["error"]),
        reply=Reply(),
        row=row,
    )


def judge_turns(row: Mapping[str, Any], case: Case) -> list[Verdict]:
    """Judge the turns of a conversation, each as a case of its own."""
    outcome = row["outcome"]
    pairs = zip(case.turns, outcome["turns"], strict=True)
    return [
        _of_turn(case, row, number, expected, played, judge_turn(expected, played, outcome["folder"]))
        for number, (expected, played) in enumerate(pairs, 1)
    ]


def _of_turn(
    case: Case, row: Mapping[str, Any], number: int, expected: Mapping[str, Any], played: Mapping[str, Any], error: str
) -> Verdict:
    """Return the verdict on a turn, with a row of its own, so that costs add up and a page shows what belongs to it."""
    group = "with_tool" if "tools" in expected else "without_tool"
    holds = {
        "completed": played["stop_reason"] in _LOOP_ENDS,
        "task_correct": not error,
        group: not error,
        "own_language": speaks(played["answer"], case.category),
        "false_statement": bool(error) and not is_admitted(played["answer"]),
    }
    counted = holds.keys() - ({"false_statement"} if group == "without_tool" else set())
    kept = {"usage": played["usage"], "seconds": played["seconds"]}
    before = row["outcome"]["turns"][: number - 1]
    own = {"valid": not error, "error": error, "failed_turn": 0 if error else None, "turns": [played], "before": before}
    outcome = {**row["outcome"], **own}
    said = tuple(turn["say"].replace("{folder}", row["outcome"]["folder"]) for turn in case.turns[:number])
    return Verdict(
        case=replace(
            case, id=f"{case.id}#{number}", messages=tuple({"role": "user", "content": text} for text in said), turns=(expected,)
        ),
        reached=frozenset(name for name in counted if holds[name]),
        counted=frozenset(counted),
        failure=error,
        reply=Reply(text=played["answer"]),
        row={**row, "rounds": [kept], "outcome": outcome},
    )


_LOOP_ENDS = frozenset({"end", "max_turns", "invalid_calls", "tool_errors", "repeated_call", CALLED})  # any other: a cut reply
_NO_CALL = ("refused_rightly", "false_call", "malformed_attempt", "empty")


def _valid(reply: Reply) -> list[ToolCall] | None:
    calls = [call for call in reply.calls if isinstance(call, ToolCall)]
    return calls if calls and len(calls) == len(reply.calls) else None


def _without_call(reply: Reply, said: str, tries: bool, cut: str) -> tuple[set[str], str]:
    reached = set() if cut else {"completed"}
    if any(isinstance(call, ToolCall) for call in reply.calls):
        return reached | {"false_call"}, "false_call"
    if tries:
        return reached | {"malformed_attempt"}, "malformed_attempt"
    if not reached:
        return reached, cut
    if not said:
        return reached | {"empty"}, "empty"
    return reached | {"refused_rightly", "task_correct"}, ""


def _through_funnel(reply: Reply, said: str, tries: bool, case: Case, way: Way) -> tuple[set[str], str]:
    """Follow a whole reply down the funnel; return the stages reached and the code of the first failure."""
    reached = {"completed"}
    if not tries:
        return reached, "prose_only" if said else "no_call"
    reached.add("intent")
    if not reply.calls:
        return reached, "unread_call"
    issues = [issue_code(issue, call, case) for call in reply.calls if isinstance(call, InvalidCall) for issue in call.issues]
    if unreadable := [code for code in issues if code in UNREADABLE]:
        return reached, _ISSUE_CODES[unreadable[0]]
    bound = (call for call in reply.calls if isinstance(call, ToolCall))
    conversions = [repair.code for call in bound for repair in call.repairs[len(call.raw.repairs) :]]  # those of binding
    tolerances = {repair.code for repair in reply.repairs[: len(reply.repairs) - len(conversions)]} - way.asked
    if not tolerances and all(call.raw.dialect in (way.dialect, "native") for call in reply.calls):
        reached.add("parsed_as_written")
    reached.add("parsed_with_repairs")
    if "unknown-tool" in issues:
        return reached, "unknown_tool"
    reached.add("tool_known")
    if (valid := _valid(reply)) is None:
        return reached, _ISSUE_CODES[issues[0]]
    reached |= {"valid"} if conversions else {"valid", "valid_as_written"}
    if error := judge_case(case, [(call.name, call.arguments) for call in valid]):
        return reached, _JUDGE_CODES.get(error.partition(":")[0], error)
    return reached | {"call_correct", "task_correct"}, ""


def issue_code(issue: Issue, call: InvalidCall, case: Case) -> str:
    """Return an issue's code. An ambiguity caused by an undeclared name counts as an unknown parameter.

    The parser leaves open whether such a parameter is one or text of the value before it, so that nothing wrong runs. Written as
    asked for, it is a parameter that the model made up: a mistake against the schema and not against the format.
    """
    declared = catalog_of(case).parameters(call.name)
    if issue.code == "ambiguous" and declared is not None and issue.path.removeprefix("$.") not in declared:
        return "unexpected-argument"
    return issue.code


def rates(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, int]]:
    """Return for each metric how many replies reached it, and for how many it counts."""
    verdicts = list(verdicts)
    return {
        metric: (sum(metric in each.reached for each in verdicts), sum(metric in each.counted for each in verdicts))
        for metric in METRICS
    }


# -- does a reply attempt a call that could not be read? ---------------------------------------------------------------
# Only words are a right answer to a question that needs no tool. A model that writes an unreadable call, or a call of a tool that
# it made up, has not refused. So calls are looked for in every form that models are known to write, with looser rules than the
# parser's, since nothing runs because of it. The fragments that identify a format follow from its row
# (`dialects/call_signs.py`). Thoughts do not count, and neither does a sentence that names a tool.


_THOUGHT = re.compile(r"<(think|thinking|reasoning|seed:think)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
# A list of Python calls with arguments by name, which is how BFCL and Llama 4 ask for calls; the text contains nothing else.
_PYTHON_CALLS = re.compile(r"\[?\s*[A-Za-z_][\w.]*\(\s*\w+\s*=.*\)\s*\]?", re.DOTALL)

# The name of a tool followed by arguments, or as the value of a key that names tools.
_NAMED = (
    r"""(?<![\w.])(?:NAMES)(?:\(\s*(?:["'{\[]|-?\d|\w+\s*=)|["'`]?(?:\s*:)?\s*\{)"""
    r"""|"(?:name|tool|tool_name|function)"\s*:\s*"(?:NAMES)\""""
)


def attempted(text: str, names: Iterable[str]) -> bool:
    """Say whether a text without readable calls attempts one."""
    names = tuple(names)
    if attempts_call(text, DIALECTS.values(), names):
        return True
    fenced = _FENCED.fullmatch(text.strip())
    if _PYTHON_CALLS.fullmatch((fenced[1] if fenced else text).strip()):
        return True
    known = "|".join(re.escape(name) for name in names)
    return bool(known and re.search(_NAMED.replace("NAMES", known), text))


def spoken(text: str, *, reasoning_open: bool) -> str:
    return _THOUGHT.sub("", f"<think>{text}" if reasoning_open else text)
