"""The harness tested with stand-ins whose score is known, and runs that stop, fail and go on."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from cli_harness import model_server
from servers.fake_openai import DONE, chunk, llama_props
from servers.fake_openai import reply as steps_of

from xmlcall import Tool, UsageError
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.funnel import METRICS, STAGES, Verdict, rates
from xmlcall.bench.report import changed_scores, compared, judged, keep_scores, reported, scores_of
from xmlcall.bench.stats import mcnemar, slope, wilson
from xmlcall.bench.store import RecordedRun, RunError, create_or_resume, read_run
from xmlcall.bench.subjects import MUTATIONS, Subject, model_subject, stand_in
from xmlcall.bench.suites import cases_of, sample
from xmlcall.bench.ways import Settings, way_of
from xmlcall.errors import ContextOverflow
from xmlcall.types.completion import Chunk, CompletionRequest
from xmlcall.wire import openai

ADD = Tool(
    name="add",
    description="Add two numbers.",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def case(number: int, **more: Any) -> Case:
    question = {"role": "user", "content": f"What is {number} + 1?"}
    answers = ({"add": {"a": [number], "b": [1]}},) if more.get("expects", "calls") == "calls" else ()
    return Case(id=f"case-{number}", category="simple", messages=(question,), tools=(ADD,), **{"answers": answers, **more})


CASES = [case(number) for number in range(10)] + [case(number, expects="no_call") for number in range(10, 14)]


def start(folder: Path, *ways: str, cases: list[Case] = CASES, **settings: Any) -> RecordedRun:
    about = {
        "ways": list(ways or ("xml",)),
        "settings": Settings(**settings).to_json(),
        "model": "m",
        "suite": "s",
        "limit": None,
        "half": "all",
        "started": "2026-11-21",
    }
    return create_or_resume(folder, about, cases)


async def answered(run: RecordedRun, subject: Subject, **options: Any) -> dict[str, list[Verdict]]:
    ways = [way_of(name) for name in run.about["ways"]]
    assert await runner.execute(run, ways, subject, **options) == 0
    return await judged(run)


async def of_stand_in(folder: Path, name: str, *ways: str, **settings: Any) -> dict[str, dict[str, tuple[int, int]]]:
    run = start(folder, *ways, **settings)
    return {way: rates(verdicts) for way, verdicts in (await answered(run, stand_in(name, run.cases))).items()}


# -- stand-ins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["xml", "native", "native+read", "origin", "hermes", "qwen", "glm"])
async def test_the_oracle_is_right(tmp_path: Path, way: str) -> None:
    found = (await of_stand_in(tmp_path / "run", "oracle", way))[way]
    assert all(found[stage] == (14 if stage == "completed" else 10,) * 2 for stage in STAGES)
    assert found["task_correct"] == (14, 14)
    assert found["refused_rightly"] == (4, 4)


LEAKED = '```json\n{"name": "add", "arguments": {"a": 0, "b": 1}}\n```'
TOLD = {"index": 0, "id": "x", "function": {"name": "add", "arguments": '{"a": 0, "b": 1}'}}


@pytest.mark.parametrize(
    ("steps", "native", "read"),
    [
        (steps_of(LEAKED), "unread_call", ""),
        ([*steps_of(LEAKED)[:-3], chunk({"tool_calls": [TOLD]}), chunk({}, "tool_calls"), DONE], "", ""),
        (steps_of("I cannot add."), "prose_only", "prose_only"),
    ],
    ids=["in the text", "found by the server, too", "no call"],
)
async def test_calls_that_a_server_left_in_the_text_count_where_it_is_read(
    tmp_path: Path, steps: Any, native: str, read: str
) -> None:
    """The server is given the tools in both ways; kept replies are judged as the live ones."""
    with model_server("never") as (url, fake):
        fake.steps, fake.props = steps, llama_props(tools=True)
        run = start(tmp_path / "run", "native", "native+read", cases=CASES[:1])
        async with OpenAIBackend(url) as backend:
            found = await answered(run, model_subject(backend))
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in fake.bodies] == [["add"], ["add"]]
    for each in (found, await judged(read_run(run.folder))):
        assert {way: verdicts[0].failure for way, verdicts in each.items()} == {"native": native, "native+read": read}


@pytest.mark.parametrize("feedback", [0, 2])
async def test_garbage_is_never_right(tmp_path: Path, feedback: int) -> None:
    found = (await of_stand_in(tmp_path / "run", "garbage", feedback=feedback))["xml"]
    assert found["call_correct"] == (0, 10)
    assert found["task_correct"] == (0, 14)
    assert found["refused_rightly"] == (0, 4)
    assert found["malformed_attempt"][0] + found["empty"][0] == 4


async def test_the_mutator_scores_exactly_its_mix(tmp_path: Path) -> None:
    """Ten cases, five mutations: two of each; a reply reaches the stages up to the last that its mutation leaves whole."""
    found = (await of_stand_in(tmp_path / "run", "mutator"))["xml"]
    last = [reached for _, reached in MUTATIONS.values()]
    assert last.count("task_correct") == 2
    assert found["completed"] == (2 * 4 + 4, 14)
    assert found["intent"] == (2 * 3, 10)
    assert found["parsed_as_written"] == (2 * 2, 10)  # as it is, unknown tool
    assert found["parsed_with_repairs"] == (2 * 3, 10)
    assert found["tool_known"] == found["valid"] == found["call_correct"] == (2 * 2, 10)
    assert found["valid_as_written"] == (2 * 2, 10)
    assert found["task_correct"] == (2 * 2 + 4, 14)


async def test_a_cut_reply_is_not_read_as_a_prose_answer(tmp_path: Path) -> None:
    run = start(tmp_path / "run", cases=[case(1)])
    verdicts = await answered(run, model_subject(ScriptedBackend([[Chunk(text="I thi"), Chunk(finish_reason="length")]])))
    assert verdicts["xml"][0].failure == "truncated"
    assert "intent" not in verdicts["xml"][0].reached


REPLIES = [
    ("Paris.", "prose_only"),
    ("", "no_call"),
    ("add(1, 1)", "unread_call"),
    ('<invoke name="add"><parameter name="a">1', "unclosed_tag"),
    ('<invoke name="subtract"></invoke>', "unknown_tool"),
    ('<invoke name="add"><parameter name="a">1</parameter></invoke>', "missing_required"),
    ('<invoke name="add"><parameter name="a">x</parameter><parameter name="b">1</parameter></invoke>', "bad_type"),
    ('<invoke name="add"><parameter name="a">1</parameter><parameter name="b">2</parameter></invoke>', "wrong_value"),
    ('<invoke name="add"><parameter name="a">1</parameter><parameter name="b">1</parameter></invoke>' * 2, "wrong_count"),
]


@pytest.mark.parametrize(("text", "failure"), REPLIES)
async def test_failures_have_names(tmp_path: Path, text: str, failure: str) -> None:
    run = start(tmp_path / "run", cases=[case(1)])
    block = f"<function_calls>{text}</function_calls>" if text.count("<invoke") > 1 else text
    verdicts = await answered(run, model_subject(ScriptedBackend([block])))
    assert verdicts["xml"][0].failure == failure


@pytest.mark.parametrize(("way", "as_written"), [("origin", 1), ("xml", 0)])
async def test_what_a_prompt_asks_for_is_as_written(tmp_path: Path, way: str, as_written: int) -> None:
    """A fence and a call id are a repair for our prompt, and the very form of the other."""
    call = '<invoke name="add" call_id="1">\n<parameter name="a">1</parameter>\n<parameter name="b">1</parameter>\n</invoke>'
    run = start(tmp_path / "run", way, cases=[case(1)])
    backend = ScriptedBackend([f"So.\n\n```xml\n<function_calls>\n{call}\n</function_calls>\n```"])
    found = rates((await answered(run, model_subject(backend)))[way])
    assert (found["parsed_as_written"], found["call_correct"]) == ((as_written, 1), (1, 1))


async def test_feedback_is_a_round_more(tmp_path: Path) -> None:
    wrong = '<invoke name="add"><parameter name="a">x</parameter><parameter name="b">1</parameter></invoke>'
    backend = ScriptedBackend([wrong, wrong.replace("x", "1"), "Paris."])
    run = start(tmp_path / "run", cases=[case(1), case(2)], feedback=2)
    found = rates((await answered(run, model_subject(backend)))["xml"])
    assert [len(reply["rounds"]) for reply in run.replies] == [2, 1]
    assert found["recovered"] == (1, 1)
    assert found["call_correct"] == (1, 2)
    assert "did not run" in backend.requests[1].messages[-1].content


def test_exact_values_keep_their_type() -> None:
    exact = case(1, answers=(), exact=(("add", {"a": 1, "b": [1, True]}),))
    assert judge_case(exact, [("add", {"a": 1, "b": [1, True]})]) == ""
    for wrong in ({"a": 1.0, "b": [1, True]}, {"a": 1, "b": [1, 1]}, {"a": True, "b": [1, True]}, {"a": 1}):
        assert judge_case(exact, [("add", wrong)]) == "wrong_value"
    assert judge_case(exact, []) == "wrong_count"
    assert judge_case(exact, [("sub", {})]) == "wrong_func_name"


# -- runs on disk ------------------------------------------------------------------------------------------------------


async def test_a_run_that_broke_off_goes_on(tmp_path: Path) -> None:
    """A crash in the middle of a line loses that reply only; nothing is asked twice."""
    folder = tmp_path / "run"
    run = start(folder)
    await answered(run, stand_in("oracle", run.cases))
    lines = (folder / "replies.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "replies.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:40])
    cut = (folder / "replies.jsonl").read_bytes()
    again = start(folder)
    assert len(again.replies) == 5
    assert (folder / "replies.jsonl").read_bytes() == cut  # whoever only reads may read while another process writes
    steps: list[tuple[int, bool]] = []
    with again.locked():
        found = rates((await answered(again, stand_in("oracle", again.cases), progress=lambda *step: steps.append(step)))["xml"])
    assert steps == [(5, False)] + [(1, True)] * 9
    assert found["task_correct"] == (14, 14)
    assert len((folder / "replies.jsonl").read_bytes().splitlines()) == 14


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with pytest.raises(UsageError, match=r"another configuration \(settings: was .* give another folder"):
        start(tmp_path / "run", max_tokens=7)
    with pytest.raises(UsageError, match="expected the folder of a run"):
        read_run(tmp_path / "nothing")
    (tmp_path / "run" / "run.json").write_text('{"format": 99}')
    with pytest.raises(UsageError, match="format 99"):
        read_run(tmp_path / "run")


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    with run.locked(), pytest.raises(RunError, match="another process"):
        with start(tmp_path / "run").locked():
            pass


def test_what_another_process_added_is_not_asked_again(tmp_path: Path) -> None:
    first, second = start(tmp_path / "run"), start(tmp_path / "run")
    with first.locked():
        first.add({"key": "k", "case": "case-0", "way": "xml", "rounds": []})
    with second.locked():
        assert second.done() == {"k"}


async def test_wrong_use_comes_out_as_it_is(tmp_path: Path) -> None:
    run = start(tmp_path / "run", "native")
    with pytest.raises(UsageError, match="use --way xml"):
        await runner.execute(run, [way_of("native")], stand_in("mutator", run.cases))


async def test_a_prompt_that_is_too_long_is_a_failure_of_its_case(tmp_path: Path) -> None:
    run = start(tmp_path / "run", cases=[case(1)])
    overflow = ScriptedBackend([ContextOverflow("too long", backend="b", status_code=400)] * 4)
    assert (await answered(run, model_subject(overflow)))["xml"][0].failure == "context_overflow"


async def test_a_reply_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "REPLY_LIMIT", 10_000)

    class Endless(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            for number in itertools.count():
                yield Chunk(text=f"{number * 7919 % 1_000_003:09} ")  # never the same: what repeats itself ends sooner

    run = start(tmp_path / "run", cases=[case(1)])
    verdicts = await answered(run, model_subject(Endless([])))
    assert verdicts["xml"][0].failure == "truncated"
    assert len(run.replies[0]["rounds"][0]["text"]) == 10_000


async def test_requests_at_the_same_time_are_bounded(tmp_path: Path) -> None:
    now = most = 0

    class Slow(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.005)
            now -= 1
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    run = start(tmp_path / "run")
    await answered(run, Subject(name="m", backend=lambda *_: Slow(["Paris."])), concurrency=3)
    assert most == 3
    assert len(run.replies) == 14


# -- reports -----------------------------------------------------------------------------------------------------------


async def test_a_report(tmp_path: Path) -> None:
    run = start(tmp_path / "run", "xml", "native")
    verdicts = await answered(run, stand_in("oracle", run.cases))
    report = reported(run, verdicts)
    assert report["metrics"]["call_correct"] == {"count": 10, "total": 10, "low": 0.7225, "high": 1.0}
    assert list(report["ways"]) == ["xml", "native"]
    of_conversations = {"with_tool", "without_tool", "own_language", "false_statement"}
    assert set(report["metrics"]) == set(METRICS) - {"recovered"} - of_conversations
    assert report["ways"]["xml"]["cost"]["replies"] == 14
    assert "14 cases are too few" in report["warnings"][0]
    json.dumps(report)


async def test_two_runs_compared(tmp_path: Path) -> None:
    oracle, mutator = start(tmp_path / "a"), start(tmp_path / "b")
    first = (await answered(oracle, stand_in("oracle", oracle.cases)))["xml"]
    second = (await answered(mutator, stand_in("mutator", mutator.cases)))["xml"]
    found = compared(first, second)
    assert found["metrics"]["call_correct"] == {
        "first": 10,
        "second": 4,
        "total": 10,
        "only_first": 6,
        "only_second": 0,
        "p": 0.03125,
        "decision": "cannot tell",
        "estimate": -60.0,
        "low": -93.5,
        "high": 9.3,
    }
    assert found["only_first_right"] == [f"case-{number}" for number in (2, 3, 4, 7, 8, 9)]
    assert found["only_second_right"] == []
    assert compared(first, second, left=90)["metrics"]["call_correct"]["decision"] == "go on"


async def test_fewer_false_calls_are_better(tmp_path: Path) -> None:
    """The second calls in none of thirty cases that need no call, the first in all."""
    calls = [case(number, expects="no_call") for number in range(30)]
    eager, calm = start(tmp_path / "a", cases=calls), start(tmp_path / "b", cases=calls)
    call = '<invoke name="add"><parameter name="a">1</parameter><parameter name="b">1</parameter></invoke>'
    first = (await answered(eager, model_subject(ScriptedBackend([call] * 30))))["xml"]
    second = (await answered(calm, model_subject(ScriptedBackend(["Hello."] * 30))))["xml"]
    found = compared(first, second)["metrics"]
    assert (found["false_call"]["decision"], found["false_call"]["estimate"]) == ("better", -100.0)
    assert (found["refused_rightly"]["decision"], found["refused_rightly"]["estimate"]) == ("better", 100.0)


async def test_what_a_new_reading_changed(tmp_path: Path) -> None:
    run = start(tmp_path / "run", cases=[case(1)])
    verdicts = await answered(run, stand_in("oracle", run.cases))
    keep_scores(run.folder, scores_of(verdicts))
    assert changed_scores(run.folder, scores_of(verdicts)) == []
    file = run.folder / "scores.json"
    file.write_text(file.read_text().replace('"failure": ""', '"failure": "unclosed_tag"'))
    (change,) = changed_scores(run.folder, scores_of(verdicts))
    assert (change["case"], change["before"]["failure"], change["now"]["failure"]) == ("case-1", "unclosed_tag", "")


def test_statistics_against_published_values() -> None:
    """Wilson: 8 of 10 is 0.49 to 0.943 (Brown, Cai, DasGupta 2001); McNemar: 2 against 10 is 2 * P(X <= 2), X ~ B(12, 1/2)."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert mcnemar(2, 10) == pytest.approx(2 * (1 + 12 + 66) / 4096)
    assert mcnemar(0, 0) == 1.0


def test_samples_are_even_and_grow() -> None:
    cases = [Case(id=f"{name}{n}", category=name, messages=(), tools=()) for name in "abc" for n in range(20)]
    small, large = sample(cases, limit=15, seed=3), sample(cases, limit=30, seed=3)
    assert {case.id for case in small} < {case.id for case in large}
    assert [sum(case.category == name for case in small) for name in "abc"] == [5, 5, 5]
    tuning, report = (sample(cases, limit=30, seed=3, half=half) for half in ("tuning", "report"))
    assert {case.id for case in tuning} | {case.id for case in report} == {case.id for case in large}
    assert len(tuning) == len(report) == 15
    with pytest.raises(UsageError, match="unknown suite"):
        cases_of("nothing")


@pytest.mark.parametrize("value", [10**30, -1, True, 1.5, "7", None])
def test_numbers_of_tokens_that_cannot_be(value: Any) -> None:
    assert (openai.count(value), openai.count(7)) == (None, 7)


def test_tokens_per_tool_are_the_slope_over_catalog_sizes() -> None:
    assert slope([(1, 150), (10, 600), (50, 2600)]) == pytest.approx(50)
