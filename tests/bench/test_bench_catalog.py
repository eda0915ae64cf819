"""The suite `catalog`: real tools, and questions that exactly one of those on offer answers."""

import itertools
import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from profiles import covering

from xmlcall import Catalog, ToolCall, parse, render
from xmlcall.bench import own_suites
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.own_suites import CATALOG_SIZES, catalog_cases
from xmlcall.bench.subjects import oracle_calls
from xmlcall.bench.suites import cases_of
from xmlcall.schema.validation import find_issues
from xmlcall.tools.outline import example_arguments

HERE = Path(own_suites.__file__).with_name("catalog")
RECORD = json.loads(HERE.with_suffix(".json").read_text(encoding="utf-8"))
QUESTIONS = tomllib.loads(HERE.with_suffix(".toml").read_text(encoding="utf-8"))["question"]
CASES = catalog_cases()
SERVER_OF = {row["name"]: row["server"] for row in RECORD["tools"]}


def right(row: dict[str, Any]) -> str:
    (name,) = row["answer"]
    return str(name)


def names(case: Case) -> list[str]:
    return [tool.name for tool in case.tools]


def question_of(case: Case) -> int:
    return int(case.id.rpartition("-")[2]) - 1


def read_back(calls: list[Any], tools: Catalog) -> None:
    reply = parse(render([{"name": name, "arguments": arguments} for name, arguments in calls], tools), tools)
    got = [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)]
    assert json.dumps(got) == json.dumps(calls)
    assert reply.repairs == ()
    assert all(call.repairs == () for call in reply.calls if isinstance(call, ToolCall))


def test_the_record_says_where_its_tools_are_from() -> None:
    servers = {row["name"]: row for row in RECORD["servers"]}
    assert len(servers) == len(RECORD["servers"]) >= 10
    assert {row["licence"] for row in servers.values()} <= {"MIT", "Apache-2.0", "BSD", "ISC"}
    assert all(row["package"] and row["version"] and row["copyright"] for row in servers.values())
    assert Counter(SERVER_OF.values()) == {name: row["kept"] for name, row in servers.items()}


def test_the_record_holds_enough_tools_with_names_that_cannot_be_confused() -> None:
    assert len(RECORD["tools"]) >= 220
    folded = Counter("".join(filter(str.isalnum, row["name"].lower())) for row in RECORD["tools"])
    assert [name for name, count in folded.items() if count > 1] == []


def test_the_record_holds_what_a_model_is_shown_and_no_more() -> None:
    for row in RECORD["tools"]:
        assert row.keys() == {"server", "name", "description", "inputSchema"}
        assert len(row["description"]) <= 1500


@pytest.mark.parametrize("server", [row["name"] for row in RECORD["servers"]])
def test_every_tool_can_be_called(server: str) -> None:
    catalog = Catalog(row for row in RECORD["tools"] if row["server"] == server)
    for tool in catalog:
        arguments = example_arguments(tool)
        assert find_issues(catalog.validator(tool.name), arguments) == (), tool.name
        read_back([(tool.name, arguments)], catalog)


def test_every_size_asks_every_question() -> None:
    assert len(QUESTIONS) == 40
    assert len(CASES) == len({case.id for case in CASES}) == 200
    assert Counter(case.category for case in CASES) == {f"tools-{size:03}": 40 for size in CATALOG_SIZES}
    for case in CASES:
        assert case.messages == ({"role": "user", "content": QUESTIONS[question_of(case)]["text"]},)
        assert len(set(names(case))) == len(case.tools) == int(case.category.removeprefix("tools-"))


def test_questions_are_for_different_tools_of_many_servers() -> None:
    assert len({row["text"] for row in QUESTIONS}) == len({right(row) for row in QUESTIONS}) == len(QUESTIONS)
    assert len({SERVER_OF[right(row)] for row in QUESTIONS}) >= 10


def test_the_right_tool_is_offered_without_those_that_would_do_as_well() -> None:
    for row in QUESTIONS:
        assert set(row.get("not_with", ())) <= SERVER_OF.keys() - {right(row)}
    for case in CASES:
        row = QUESTIONS[question_of(case)]
        assert right(row) in names(case)
        assert not set(row.get("not_with", ())) & set(names(case)), case.id


def test_a_smaller_catalog_is_part_of_the_larger_ones() -> None:
    for question in range(len(QUESTIONS)):
        catalogs = [set(names(case)) for case in CASES if question_of(case) == question]
        assert [len(each) for each in catalogs] == list(CATALOG_SIZES)
        assert all(smaller < larger for smaller, larger in itertools.pairwise(catalogs))


def test_the_right_tool_stands_anywhere() -> None:
    for size in CATALOG_SIZES[1:]:
        places = [names(case).index(next(iter(case.answers[0]))) / size for case in CASES if len(case.tools) == size]
        assert min(places) < 0.15
        assert max(places) >= 0.85
        assert 0.35 < sum(places) / len(places) < 0.65


def test_the_seed_decides_what_is_offered_and_nothing_else() -> None:
    assert catalog_cases() == CASES
    others = catalog_cases(seed=2)
    assert [case.id for case in others] == [case.id for case in CASES]
    assert [case.answers for case in others] == [case.answers for case in CASES]
    assert all(names(case) != names(other) for case, other in zip(CASES, others, strict=True) if len(case.tools) > 1)


BY_SIZE = {(size, number): case for case in CASES for size, number in [(len(case.tools), question_of(case))]}


@pytest.mark.sweep
@pytest.mark.parametrize(("size", "question"), covering(CATALOG_SIZES, range(len(QUESTIONS))))
def test_the_right_call_is_judged_right_and_read_back(size: int, question: int) -> None:
    case = BY_SIZE[size, question]
    calls = oracle_calls(case)
    assert judge_case(case, calls) == ""
    read_back(calls, Catalog.of(case.tools))


def test_required_values_stand_in_the_question_and_defaults_may_be_given() -> None:
    for case in CASES[: len(QUESTIONS)]:
        (tool,) = case.tools
        (accepted,) = case.answers[0].values()
        assert set(tool.input_schema.get("required", ())) <= QUESTIONS[question_of(case)]["answer"][tool.name].keys()
        defaults = {name: part.get("default") for name, part in tool.input_schema["properties"].items()}
        given = {name: value for name, value in defaults.items() if value is not None and value in accepted[name]}
        ((name, arguments),) = oracle_calls(case)
        assert judge_case(case, [(name, {**given, **arguments})]) == "", case.id
        assert judge_case(case, [(name, {})]) == "missing_required"


def test_another_tool_is_judged_wrong() -> None:
    for case in CASES:
        ((right_name, arguments),) = oracle_calls(case)
        for name in names(case):
            if name != right_name:
                assert judge_case(case, [(name, arguments)]) == "wrong_func_name"
                break


def test_a_sample_asks_all_sizes_the_same_questions() -> None:
    drawn = [case.id.rsplit("-", 1) for case in cases_of("catalog", limit=20, seed=7)]
    asked = {size: [number for of_size, number in drawn if of_size == size] for size, _ in drawn}
    assert len(asked) == 5
    assert len({tuple(numbers) for numbers in asked.values()}) == 1
