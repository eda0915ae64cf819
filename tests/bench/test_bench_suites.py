"""The suites of our own: every case can be answered, and what answers it can be written and read back."""

import json
from collections import Counter
from typing import Any

import pytest

from xmlcall import Catalog, ToolCall, parse
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.own_suites import CATEGORIES, smoke_cases, wire_cases
from xmlcall.bench.subjects import oracle_calls
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.schema.validation import check_schema

WIRE, SMOKE = wire_cases(), smoke_cases()


def value_of(case: Case) -> Any:
    """The value that a case of `wire` is about: the last argument."""
    return list(case.exact[0][1].values())[-1]


def quoted(case: Case) -> str:
    """What stands between the marker lines of a question."""
    _, _, behind = case.messages[-1]["content"].partition("\n-----BEGIN VALUE-----\n")
    text, _, rest = behind.partition("\n-----END VALUE-----")
    assert rest == "", case.id
    return str(text)


@pytest.mark.parametrize("cases", [WIRE, SMOKE], ids=["wire", "smoke"])
def test_ids_and_questions_are_unique(cases: list[Case]) -> None:
    assert len({case.id for case in cases}) == len(cases)
    assert len({case.messages[-1]["content"] for case in cases}) == len(cases)


def test_the_right_calls_are_judged_right_and_read_back() -> None:
    for case in (*WIRE, *SMOKE):
        calls = oracle_calls(case)
        assert judge_case(case, calls) == "", case.id
        catalog = Catalog.of(case.tools)
        reply = parse(write(calls, catalog, DIALECTS["function_calls"]) if calls else "Hello.", catalog)
        got = [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)]
        assert json.dumps(got) == json.dumps(calls), case.id  # unlike ==, it tells 1, 1.0 and true apart
        assert reply.repairs == (), case.id


def test_wire_is_deterministic_and_a_small_sample_is_part_of_a_larger_one() -> None:
    assert wire_cases() == WIRE
    assert wire_cases(seed=2) != WIRE
    for count in (0, 1, 50, 239):
        fewer = wire_cases(count)
        assert len(fewer) == count
        assert all(case in WIRE for case in fewer)


def test_wire_draws_evenly() -> None:
    counts = Counter(case.category for case in WIRE)
    assert counts.keys() == CATEGORIES.keys()
    assert counts.total() == 240
    assert counts.pop("long") < 10
    assert max(counts.values()) - min(counts.values()) <= 1


def test_wire_quotes_every_value() -> None:
    for case in WIRE:
        value = value_of(case)
        assert quoted(case) == (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)), case.id
    assert {type(value_of(case)) for case in WIRE} == {str, int, float, bool, list, dict}
    assert len({(case.category, repr(value_of(case))) for case in WIRE}) > 230


def test_wire_is_judged_to_the_last_character() -> None:
    for case in WIRE:
        name, arguments = case.exact[0]
        *_, parameter = arguments
        value = arguments[parameter]
        near = f"{value} " if isinstance(value, str) else str(value)
        assert judge_case(case, [(name, {**arguments, parameter: near})]) == "wrong_value"


def test_smoke_has_the_planned_mixture() -> None:
    counts = Counter((case.id.split("-")[1], case.category) for case in SMOKE)
    mixture = {"simple": 17, "parallel": 3, "no_call": 5}
    assert counts == {(language, category): count for language in ("en", "zh") for category, count in mixture.items()}
    assert all((case.expects == "no_call") == (case.category == "no_call") for case in SMOKE)


def test_every_schema_can_be_used() -> None:
    for case in [*WIRE, *SMOKE]:
        assert not any(check_schema(tool.input_schema) for tool in case.tools), case.id


def descriptions(case: Case) -> list[str]:
    """All descriptions of a case's tools and their parameters."""
    parts = [part["description"] for tool in case.tools for part in tool.input_schema["properties"].values()]
    return [*(tool.description for tool in case.tools), *parts]


def test_smoke_offers_some_tools_described_in_chinese() -> None:
    mixed = [case.id for case in SMOKE if len({text.isascii() for text in descriptions(case)}) > 1]
    assert mixed == []
    assert sum(not descriptions(case)[0].isascii() for case in SMOKE) >= 10
