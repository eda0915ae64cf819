"""Schemas with odd keywords, as real servers and clients send them: what is made of them, and that their tools can be called."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from catalogs import ALL
from hypothesis import given, settings
from hypothesis import strategies as st

from xmlcall import Catalog, InvalidCall, RawArgument, RawCall, Tool, ToolCall, bind, parse, prompt
from xmlcall.schema import check_schema
from xmlcall.schemamend import mended
from xmlcall.signature import parameters_of

CASES = json.loads((Path(__file__).parent / "odd_schemas.json").read_text(encoding="utf-8"))


def whole(case: dict[str, Any], part: str, all_of_it: str) -> dict[str, Any]:
    """Return a case's schema, or that of its parameter x as a tool's."""
    return case[all_of_it] if all_of_it in case else {"type": "object", "properties": {"x": case[part]}, "required": ["x"]}


def written(case: dict[str, Any]) -> str:
    given = {**case.get("and", {}), "x": case["text"]}
    inner = "".join(f'<parameter name="{name}">{text}</parameter>' for name, text in given.items())
    return f'<function_calls><invoke name="f">{inner}</invoke></function_calls>'


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    schema = whole(case, "x", "tool")
    before = json.dumps(schema)
    found, notes = mended(schema)
    assert json.dumps(found, sort_keys=True) == json.dumps(whole(case, "mended", "whole"), sort_keys=True)
    assert json.dumps(schema) == before
    assert bool(notes) == (found != schema)
    assert mended(found) == (found, ())
    assert check_schema(found) is None
    (call,) = parse(written(case), [Tool(name="f", input_schema=schema)]).calls
    assert isinstance(call, ToolCall), call
    assert json.dumps(call.arguments["x"]) == json.dumps(case["value"])
    if "kind" in case:
        (shown,) = [each for each in parameters_of(next(iter(Catalog([call_tool(schema)])))) if each.name == "x"]
        assert shown.kind == case["kind"]
        assert f"- x: {case['kind']} (" in prompt.system_prompt([call_tool(schema)])


def call_tool(schema: dict[str, Any]) -> Tool:
    return Tool(name="f", input_schema=schema)


RIGHT: list[Any] = [
    *(tool["inputSchema"] for tool in ALL),
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"x": {"type": "array", "items": [{"type": "integer"}]}},
    },
    {"properties": {"nullable": {"type": "boolean", "nullable": False}, "required": {"type": "string"}, "$ref": {}, "type": {}}},
    {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "required": ["name"], "additionalProperties": {"type": "string"}},
    {"properties": {"x": {"type": "string", "default": None}, "y": {"type": "integer", "enum": [1, "a"], "default": 1}}},
    {"properties": {"x": {"type": "string", "format": "unknown", "pattern": "^[\\w-.]+\\\\u{1}$"}, "y": True, "z": False}},
    {"$id": "https://example.com/a", "properties": {"x": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$anchor": "here"}}},
    {"properties": {"x": {"$ref": "#here"}, "next": {"$ref": "#"}}, "$defs": {"A": {"$anchor": "here"}}},
    {"properties": {"x": {"default": {"$ref": 5, "type": "INTEGER"}, "const": {"type": "any"}, "examples": [{"items": None}]}}},
    {
        "properties": {"x": {"type": "integer", "enum": [1.0]}, "y": {"minimum": 1.5, "maxLength": 3.0}},
        "x-own": {"type": "INTEGER"},
    },
]


@pytest.mark.parametrize("schema", RIGHT, ids=str)
def test_what_is_right_stays_the_same_object(schema: dict[str, Any]) -> None:
    assert check_schema(schema) is None
    found, notes = mended(schema)
    assert notes == ()
    assert found is schema
    tool = call_tool(schema)
    assert next(iter(Catalog([tool]))) is tool


KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
NAMES = ["a", "b", "type", "$ref", "items", "required"]
Maker = Callable[[random.Random, int], Any]


def right(rng: random.Random, depth: int) -> Any:
    """Make a schema of 2020-12 with nothing odd in it."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([{}, True, False, {"type": rng.choice(KINDS)}])
    return {key: RIGHT_VALUES[key](rng, depth - 1) for key in rng.sample(list(RIGHT_VALUES), rng.randint(0, 5))}


def several(rng: random.Random, depth: int) -> list[Any]:
    return [right(rng, depth) for _ in range(rng.randint(1, 3))]


def by_name(rng: random.Random, depth: int) -> dict[str, Any]:
    return {name: right(rng, depth) for name in rng.sample(NAMES, rng.randint(0, 3))}


RIGHT_VALUES: dict[str, Maker] = {
    "type": lambda rng, _: rng.choice([rng.choice(KINDS), rng.sample(KINDS, 2)]),
    "minimum": lambda rng, _: rng.choice([0, -1.5, 3]),
    "exclusiveMaximum": lambda rng, _: rng.choice([9, 9.5]),
    "multipleOf": lambda rng, _: rng.choice([1, 0.5]),
    "minLength": lambda rng, _: rng.choice([0, 1, 2.0]),
    "pattern": lambda rng, _: rng.choice(["^a", "[a-z]+", r"\d{1,3}", "^/a$"]),
    "uniqueItems": lambda rng, _: rng.random() < 0.5,
    "description": lambda rng, _: rng.choice(["", "INTEGER", "a"]),
    "default": lambda rng, _: None,
    "x-own": lambda rng, _: rng.choice([None, {"type": "INTEGER"}, [{"$ref": "#/nowhere"}]]),
    "dependentRequired": lambda rng, _: {"a": ["b"]},
    "patternProperties": lambda rng, depth: {"^x": right(rng, depth)},
    **dict.fromkeys(["prefixItems", "anyOf", "allOf", "oneOf"], several),
    **dict.fromkeys(["properties", "$defs", "dependentSchemas"], by_name),
    **dict.fromkeys(["items", "additionalProperties", "not", "if", "then", "else", "propertyNames", "contains"], right),
}


@settings(max_examples=1000, deadline=None)
@given(number=st.integers(0, 2**32))
def test_schemas_with_nothing_odd_stay(number: int) -> None:
    rng = random.Random(number)
    schema = {"type": "object", "properties": by_name(rng, 3), "$defs": by_name(rng, 3)}
    schema["required"] = list(schema["properties"])
    if check_schema(schema) is None:
        found, notes = mended(schema)
        assert found is schema, notes


KEYWORDS = re.findall(
    r"\S+",
    """
type properties items prefixItems anyOf oneOf allOf not if then enum const default $ref $dynamicRef $id $anchor pattern required
nullable minimum exclusiveMinimum minLength multipleOf additionalProperties patternProperties $defs dependentSchemas dependencies
definitions format $schema $dynamicAnchor unevaluatedProperties x
""",
)
WORDS = ["", "object", "INTEGER", "any", "true", "3", "(", r"\p{L}", "x", "#", "#x", "#/x", "#/$defs/x", "http://[", "http://a"]
leaves = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.sampled_from(WORDS)
anything = st.recursive(
    leaves,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), below, max_size=4),
    max_leaves=25,
)


@settings(max_examples=1500, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYWORDS), anything, max_size=5))
def test_any_schema_can_be_offered_and_called_or_is_refused_with_a_reason(schema: dict[str, Any]) -> None:
    before = repr(schema)
    found, notes = mended(schema)
    assert repr(schema) == before
    assert all(len(note) < 1000 for note in notes)
    tool = call_tool(schema)
    assert prompt.system_prompt([tool])
    call = bind(RawCall(index=0, name="f", arguments=(RawArgument(name="x", text="3"),)), [tool])
    problem = check_schema(found)
    if problem is None:
        again, more = mended(found)
        assert again is found, more
    else:
        assert any(words in problem for words in ("without end", "bounded time", "deeper")), problem
        assert isinstance(call, InvalidCall)
