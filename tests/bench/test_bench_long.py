"""The suite `long`: the same questions at each turn, after conversations that are the beginning of each other."""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from profiles import is_deep

from xmlcall import Catalog, ToolCall, parse
from xmlcall.bench.case import Case, group_of, judge_case
from xmlcall.bench.own_suites import LONG_SIZES, LONG_TURNS, long_cases
from xmlcall.bench.report import cached_share, judged, reported
from xmlcall.bench.runner import execute
from xmlcall.bench.store import create_or_resume
from xmlcall.bench.subjects import oracle_calls, stand_in
from xmlcall.bench.suites import cases_of
from xmlcall.bench.ways import AskedCase, Settings, way_of
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.prompting.fit_context import estimate
from xmlcall.schema.validation import compiled, find_issues

CASES = long_cases()
HAN = re.compile(r"[\u4e00-\u9fff]")


def place(case: Case) -> tuple[str, int, int]:
    """Language, tools and turn."""
    _, size, turn, language, _ = case.id.split("-")
    return language, int(size), int(turn)


def asked(case: Case) -> str:
    return str(case.messages[-1]["content"])


def test_the_same_questions_are_asked_at_each_turn() -> None:
    found = defaultdict(list)
    for case in CASES:
        found[place(case)].append((asked(case), case.answers))
    assert found.keys() == set(itertools.product(("english", "chinese"), LONG_SIZES, LONG_TURNS))
    for language in ("english", "chinese"):
        first = found[language, LONG_SIZES[0], LONG_TURNS[0]]
        assert len({question for question, _ in first}) == 16
        assert all(questions == first for key, questions in found.items() if key[0] == language)
    assert len({group_of(case) for case in CASES}) == 32, "a question at all turns is one group"


@pytest.mark.parametrize("case", [case for case in CASES if place(case)[2] == 40], ids=lambda case: case.id)
def test_a_question_stands_alone(case: Case) -> None:
    """It is in its language, asks what no turn before asked, and its right call fits the tool and is read back."""
    assert bool(HAN.search(asked(case))) == (place(case)[0] == "chinese")
    calls = oracle_calls(case)
    assert judge_case(case, calls) == ""
    (tool,) = [tool for tool in case.tools if tool.name == calls[0][0]]
    assert find_issues(compiled(tool.input_schema), calls[0][1]) == ()
    made = [call for message in case.messages for call in message.get("calls", ())]
    assert len(made) == 14
    assert list(calls[0]) not in made
    reply = parse(write(calls, Catalog(case.tools), DIALECTS["function_calls"]), Catalog(case.tools))
    assert [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)] == calls


def test_what_was_said_before_is_sound() -> None:
    """Roles take turns, each call fits its tool, some results are long, and the turn is the one that is named."""
    for case in CASES:
        roles = [message["role"] for message in case.messages]
        assert roles.count("user") == place(case)[2]
        assert all(a != b for a, b in itertools.pairwise(roles))
        for message in case.messages:
            for name, arguments in message.get("calls", ()):
                (tool,) = [tool for tool in case.tools if tool.name == name]
                assert find_issues(compiled(tool.input_schema), arguments) == ()
        results = [len(message["content"]) for message in case.messages if message["role"] == "tool"]
        assert sum(length > 500 for length in results) == {1: 0, 5: 0, 10: 1, 20: 2, 40: 4}[place(case)[2]]


def few(cases: Sequence[Case]) -> list[Case]:
    """Return all cases, or of each language, size and turn two, the first and the longest one."""
    if is_deep():
        return list(cases)
    groups = [list(group) for _, group in itertools.groupby(cases, key=place)]
    return [case for group in groups for case in (group[0], max(group[1:], key=lambda each: len(asked(each).encode())))]


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["xml", "hermes", "native", "origin"])
def test_a_conversation_begins_as_the_one_before_it(way: str) -> None:
    """As a prompt cache wants it: tools and turns are the same text, whatever is asked after them, and at whichever turn."""
    cases = few(CASES)
    sent = {case.id: AskedCase(way_of(way), case, Settings()).messages for case in cases}
    for case, other in itertools.pairwise(cases):
        if place(case)[:2] == place(other)[:2]:
            shared = len(sent[case.id]) - 1
            assert sent[other.id][:shared] == sent[case.id][:shared]
            assert case.tools == other.tools
    assert max(map(estimate, sent.values())) < 18_000, "it has to fit into 20,480 tokens with the reply"


def test_native_calls_have_their_results() -> None:
    messages = AskedCase(way_of("native"), CASES[-1], Settings()).messages
    calls = [call.id for message in messages for call in message.tool_calls]
    assert calls == [message.tool_call_id for message in messages if message.role == "tool"]
    assert len(set(calls)) == 14


def test_cases_of_one_prompt_are_asked_one_after_the_other() -> None:
    for limit in (40, None):
        categories = [case.category for case in cases_of("long", limit=limit)]
        assert len(list(itertools.groupby(categories))) == len(set(categories)) == 20


@pytest.mark.parametrize("way", ["xml", "native"])
async def test_the_oracle_is_right_and_the_share_of_the_cache_is_told(tmp_path: Path, way: str) -> None:
    cases = cases_of("long", limit=20)
    about = {"ways": [way], "settings": Settings().to_json(), "model": "oracle", "suite": "long"}
    run = create_or_resume(tmp_path / "run", about, cases)
    assert await execute(run, [way_of(way)], stand_in("oracle", cases)) == 0
    verdicts = (await judged(run))[way]
    assert all(verdict.is_right for verdict in verdicts)
    assert cached_share(verdicts) is None
    for verdict, cached in zip(verdicts, itertools.cycle([0, 950, 960]), strict=False):
        verdict.row["rounds"][0]["usage"] = {"prompt_tokens": 1000, "cached_tokens": cached}
    run.about |= {"limit": None, "half": "all"}
    assert reported(run, {way: verdicts})["ways"][way]["cost"]["cached_share"] == 0.95
    for verdict in verdicts:  # what was read to find out whether a tool is needed counts, too
        verdict.row["rounds"][0]["need_usage"] = {"prompt_tokens": 1200, "cached_tokens": 700}
    assert cached_share(verdicts) == pytest.approx(0.45)
