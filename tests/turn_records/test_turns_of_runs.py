"""Lines of measured runs as turns: their calls are those that were judged, and each piece of a reply has its place."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from turn_harness import add, block, call, tiles, turn_from_json

from xmlcall import Tool, ToolCall
from xmlcall.bench.as_turns import turn_of_row
from xmlcall.bench.case import Case
from xmlcall.bench.funnel import Verdict, judge_reply, judge_turns
from xmlcall.bench.store import RecordedRun, create_or_resume, read_run
from xmlcall.bench.ways import Settings, way_of
from xmlcall.errors import UsageError
from xmlcall.turn_records.record import TurnRecord, record_to_json

RUNS = Path(__file__).parents[2] / "benchmarks" / "results" / "runs"
ADD = Tool.from_function(add)
WRONG, RIGHT = block(call("add", a="one", b=2)), block(call("add", a="+1", b=2))


def checked(turn: TurnRecord) -> TurnRecord:
    assert turn_from_json(record_to_json(turn)) == turn
    for reply in turn.replies:
        tiles(reply)
        for each in reply.calls:
            assert each.outcome not in ("writing", "running", "waiting")
            if each.start is not None:
                assert reply.raw[each.start : each.end] == each.text
    return turn


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    cases = [Case(id="c", category="x", messages=({"role": "user", "content": "What is 1 + 2?"},), tools=(ADD,))]
    about = {"ways": ["xml", "native"], "settings": Settings(feedback=1).to_json(), "model": "m", "started": "now"}
    return create_or_resume(tmp_path / "run", about, cases)


def row(*rounds: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": "k", "case": "c", "way": "xml", "rounds": list(rounds), **more}


def test_a_question_that_was_asked_again(run: RecordedRun) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": None}
    told = row({"text": WRONG, "seconds": 1.0, "first_event_seconds": 0.5, "usage": usage}, {"text": RIGHT, "seconds": 2.0})
    turn = checked(turn_of_row(run, run.cases[0], told, "xml"))
    first, second = turn.replies
    assert [each.outcome for reply in turn.replies for each in reply.calls] == ["rejected", "not started"]
    assert second.calls[0].arguments == {"a": 1, "b": 2}
    assert [mark.code for mark in second.repairs] == ["number-format"]
    assert [value.source and value.source.kind for value in second.calls[0].values] == ["person", "person"]
    assert [message.role for message in first.prompt] == ["system", "user"]
    assert [message.role for message in second.prompt] == ["system", "user", "assistant", "user"]
    assert (first.prompt_tokens, first.first_token_seconds, turn.seconds) == (10, 0.5, 3.0)
    assert (turn.source, turn.model, turn.question, turn.tools[0]["name"]) == ("run", "m", "What is 1 + 2?", "add")


def test_calls_of_the_server(run: RecordedRun) -> None:
    turn = checked(turn_of_row(run, run.cases[0], row({"text": "Hm.", "calls": [["add", '{"a": 1, "b": "2"}']]}), "native"))
    [each] = turn.replies[0].calls
    assert (each.start, each.dialect, each.arguments, turn.way) == (None, "native", {"a": 1, "b": 2}, "native")


def test_a_task_of_several_turns(run: RecordedRun) -> None:
    played = {
        "said": ["What is 1 + 2?"],
        "replies": [RIGHT, "</parameter></invoke></function_calls>", "It is 3."],
        "calls": [
            {"name": "add", "reply": 1, "arguments": {"a": 1, "b": 2}, "result": "3", "is_error": False},
            {"name": "add", "reply": 2, "arguments": {"a": 3, "b": 3}, "result": "no", "is_error": True},
        ],
        "stop_reason": "end",
    }
    turn = checked(turn_of_row(run, run.cases[0], row({}, outcome={"turns": [played], "valid": True, "error": ""}), "xml"))
    ran, begun = (each for reply in turn.replies for each in reply.calls)
    assert (ran.outcome, ran.result, ran.start is None) == ("ok", "3", False)
    assert (begun.outcome, begun.result, begun.start, begun.arguments) == ("error", "no", None, {"a": 3, "b": 3})
    assert [value.source and value.source.kind for value in begun.values] == ["result", "result"]
    assert turn.outcome == "end"


def test_a_way_that_there_is_not(run: RecordedRun) -> None:
    with pytest.raises(UsageError, match="unknown way"):
        turn_of_row(run, run.cases[0], row({"text": "Hi."}), "telepathy")


async def verdicts(recorded: RecordedRun, way: str, most: int) -> list[Verdict]:
    found: list[Verdict] = []
    for case, told in recorded.of_way(way)[:most]:
        if case.expects == "talk":
            found += judge_turns(told, case)
        else:
            found.append(await judge_reply(told, case, way_of(way), recorded.settings))
    return found


@pytest.mark.parametrize("name", ["smoke-0.5b", "bfcl-mt-1.5b", "talk-now-1.5b", "wire-0.5b", "tuning-native-0.5b"])
def test_recorded_runs(name: str) -> None:
    """The calls of a question's last reply are those that the verdict is about."""
    recorded = read_run(RUNS / name)
    for way in recorded.about["ways"]:
        for verdict in asyncio.run(verdicts(recorded, way, 4)):
            turn = checked(turn_of_row(recorded, verdict.case, verdict.row, way))
            if "outcome" not in verdict.row:
                wanted = [each.arguments if isinstance(each, ToolCall) else None for each in verdict.reply.calls]
                assert [each.arguments for each in turn.replies[-1].calls][: len(wanted)] == wanted
