"""Which replies mean to call a tool, and which are words (cases in tests/bench/attempts.toml); and what is judged of that."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from xmlcall import Tool
from xmlcall.bench.case import Case, group_of
from xmlcall.bench.funnel import Verdict, attempted, judge_reply, spoken
from xmlcall.bench.report import compared, reported
from xmlcall.bench.store import RecordedRun
from xmlcall.bench.ways import Settings, way_of
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import tag_names, write
from xmlcall.tools.catalog import Catalog

CASES = tomllib.loads((Path(__file__).with_name("attempts.toml")).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, cases in CASES.items() for name in cases])
def test_attempts_and_words(kind: str, name: str) -> None:
    text = spoken(CASES[kind][name], reasoning_open=False)
    assert attempted(text, ["get_weather"]) == (kind == "attempt")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_in_any_format_is_an_attempt(dialect: str) -> None:
    """Also of a tool that is made up, where the format has tags of its own; whole, and cut in the middle."""
    row = DIALECTS[dialect]
    for name in ("get_weather", *(() if row.tool_elements else ("book_flight",))):
        written = write([(name, {"city": "Rome"})], Catalog(), row)
        for text in (written, written[: len(written) // 2] if tag_names(row) else written):
            assert attempted(f"I will do that.\n{text}", ["get_weather"])


def test_a_tool_with_an_everyday_name() -> None:
    for words in ("At this time, I cannot.", "The lifetime: long.", "It takes time (24 hours).", "time: unknown"):
        assert not attempted(words, ["time"])


def test_white_space_without_end_is_read_in_time_that_grows_with_it() -> None:
    """Small models write it until they are cut; with the square of its length this would not end."""
    assert not attempted("get_weather" + " " * 1_000_000, ["get_weather"])


def test_thoughts_are_not_said() -> None:
    assert spoken("<think>a</think>b<think>c", reasoning_open=False) == "b"
    assert spoken("a</think>b", reasoning_open=True) == "b"
    assert spoken("a", reasoning_open=True) == ""


# -- verdicts ----------------------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", input_schema=CITY)
RIGHT = '<function_calls><invoke name="get_weather"><parameter name="city">Rome</parameter></invoke></function_calls>'
WRONG = '<function_calls><invoke name="get_weather"></invoke></function_calls>'
BLOCK, BLOCK_END = "<function_calls>", "</function_calls>"


def case_of(expects: Any, id: str = "a") -> Case:
    answers = ({"get_weather": {"city": ["Rome"]}},) if expects == "calls" else ()
    question = {"role": "user", "content": "?"}
    return Case(id=id, category="c", messages=(question,), tools=(WEATHER,), expects=expects, answers=answers)


async def verdict(case: Case, *replies: str | tuple[str, str], way: str = "xml", **settings: Any) -> Verdict:
    """Judge replies, each a text or a text and why it ended."""
    ended = [(reply, "stop") if isinstance(reply, str) else reply for reply in replies]
    rounds = [{"text": text, "finish_reason": finish_reason} for text, finish_reason in ended]
    return await judge_reply({"rounds": rounds}, case, way_of(way), Settings(**settings))


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ("I cannot.", ""),
        (("I cannot.", "function_call"), ""),
        (("I cannot do that and", "length"), "truncated"),
        (("", "context_overflow"), "context_overflow"),
        ("", "empty"),
        ("<think>Hm.</think>", "empty"),
        ("<think>Hm.", "empty"),
        ("<think>get_weather does not fit</think>I cannot.", ""),
        ('{"name": "book", "arguments": {}}', "malformed_attempt"),
        (('<function_calls><invoke name="get_weather">', "length"), "malformed_attempt"),
        (RIGHT, "false_call"),
    ],
)
@pytest.mark.parametrize("way", ["xml", "hermes", "native"])
async def test_a_case_that_needs_no_call(reply: Any, failure: str, way: str) -> None:
    found = await verdict(case_of("no_call"), reply, way=way)
    expected = "malformed_attempt" if failure == "false_call" and way == "native" else failure
    assert (found.failure, found.is_right) == (expected, not failure)


@pytest.mark.parametrize("way", ["xml", "native"])
async def test_what_a_thinking_model_says(way: str) -> None:
    """Its prompts end in an open `<think>`; only with the server's own function calling the thoughts are gone already."""
    text = "I cannot." if way == "native" else "Hm.</think>I cannot."
    row = {"rounds": [{"text": text, "finish_reason": "stop"}]}
    assert (await judge_reply(row, case_of("no_call"), way_of(way), Settings(), reasoning_open=True)).is_right


@pytest.mark.parametrize(
    ("ends", "error", "reached", "failure"),
    [
        (["end", "end"], "", {"completed", "task_correct"}, ""),
        (["length", "end"], "state", set(), "state"),
        (["end", "length"], "no_call", set(), "truncated"),
        (["end", "context_overflow"], "context_overflow", set(), "context_overflow"),
        (["end", "max_turns"], "too_many_steps", {"completed"}, "too_many_steps"),
    ],
)
async def test_tasks_of_several_turns(ends: list[str], error: str, reached: set[str], failure: str) -> None:
    turns = [{"replies": [], "calls": [], "stop_reason": end} for end in ends]
    row = {"rounds": [{}], "outcome": {"valid": not error, "error": error, "turns": turns}}
    found = await judge_reply(row, case_of("task"), way_of("xml"), Settings())
    assert (set(found.reached), found.failure) == (reached, failure)


async def test_words_are_no_attempt_where_a_call_is_needed() -> None:
    found = await verdict(case_of("calls"), "My only tool is get_weather: it cannot do that.")
    assert (found.failure, "intent" in found.reached) == ("prose_only", False)


async def test_a_made_up_parameter_is_read_and_a_value_with_two_readings_is_not() -> None:
    made_up = RIGHT.replace("</invoke>", '<parameter name="unit">C</parameter></invoke>')
    two_ends = RIGHT.replace("Rome</parameter></invoke>", "The </parameter> ends Rome, and </invoke> ends\n</invoke>")
    found = await verdict(case_of("calls"), made_up)
    assert (found.failure, {"parsed_as_written", "tool_known", "valid"} & found.reached) == (
        "unknown_param",
        {"parsed_as_written", "tool_known"},
    )
    found = await verdict(case_of("calls"), two_ends)
    assert (found.failure, "parsed_with_repairs" in found.reached) == ("ambiguous", False)


async def test_only_feedback_that_was_given_counts() -> None:
    needed = await verdict(case_of("calls"), WRONG, RIGHT, feedback=1)
    at_once = await verdict(case_of("calls"), RIGHT, feedback=1)
    mixed = await verdict(case_of("calls"), WRONG.removesuffix(BLOCK_END) + RIGHT.removeprefix(BLOCK), feedback=1)
    false = await verdict(case_of("no_call"), WRONG, RIGHT, feedback=1)
    assert ["recovered" in each.counted for each in (needed, at_once, mixed, false)] == [True, False, False, False]
    assert "recovered" in needed.reached
    for pair in ((needed, at_once), (at_once, needed)):
        assert "recovered" not in compared(*([each] for each in pair))["metrics"]
    assert compared([needed], [needed])["metrics"]["recovered"]["first"] == 1


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "group"),
    [
        ("catalog-010-07", "catalog 07"),
        ("catalog-200-07", "catalog 07"),
        ("live_multiple_12-3-4", "live_multiple 3"),
        ("live_irrelevance_1-0-0", "live_irrelevance 0"),
        ("multi_turn_miss_func_7", "multi_turn 7"),
        ("simple_python_12", "simple_python_12"),
    ],
)
def test_cases_that_are_alike(id: str, group: str) -> None:
    assert group_of(case_of("no_call", id)) == group


async def test_a_report_tells_of_groups_and_counts_the_decision_apart(tmp_path: Path) -> None:
    cases = [case_of("no_call", f"catalog-{size:03}-01") for size in (1, 10, 50)]
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 0}
    row = {"rounds": [{"text": "No.", "usage": usage, "need_usage": usage, "seconds": 2.0}]}
    verdicts = [await judge_reply(row, each, way_of("xml"), Settings()) for each in cases]
    run = RecordedRun(folder=tmp_path, about={"suite": "catalog", "ways": ["xml"]}, cases=cases, replies=[])
    found = reported(run, {"xml": verdicts})
    cost = found["ways"]["xml"]["cost"]
    assert (cost["prompt_tokens"], cost["completion_tokens"], cost["completion_tokens_per_second"]) == (600, 30, 5.0)
    assert "median_seconds_to_first_event" not in cost
    untold = dict.fromkeys(usage)
    silent = [
        await judge_reply({"rounds": [{"text": "No.", "usage": untold}]}, each, way_of("xml"), Settings()) for each in cases
    ]
    assert "prompt_tokens" not in reported(run, {"xml": silent})["ways"]["xml"]["cost"]
    assert any("the 3 cases are 1 groups" in warning for warning in found["warnings"])
