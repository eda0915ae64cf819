"""Work is bounded by what is written in a schema and a value, and not by the parts that references make of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from counted import count_calls
from fuzz.fuzz_schemas import work_through
from profiles import covering, scaled

from xmlcall import Catalog, InvalidCall, RawArgument, RawCall, Tool, ToolCall, bind, system_prompt
from xmlcall.prompting.results import feedback
from xmlcall.schema.mending import mended
from xmlcall.schema.validation import check_schema, compiled, find_issues
from xmlcall.schema.words import describe
from xmlcall.tools.outline import admits_string, alternatives_of, invented_arguments, parameters_of, property_schema, rules_for
from xmlcall.turn.native import call_schema

Schema = dict[str, Any]
LEVELS = 5


def shared(holding: Callable[[list[Schema]], Schema], width: int) -> Schema:
    """Make levels of parts, each of which leads to the next in many places."""
    parts: Schema = {"L5": {"type": "integer", "description": "the last"}}
    for level in range(LEVELS):
        parts[f"L{level}"] = holding([{"$ref": f"#/$defs/L{level + 1}"} for _ in range(width)])
    return {**parts["L0"], "properties": {**parts["L0"].get("properties", {}), "a": {"$ref": "#/$defs/L0"}}, "$defs": parts}


def named(below: list[Schema]) -> Schema:
    return {f"p{number}": part for number, part in enumerate(below)}


HOLDING: dict[str, Callable[[list[Schema]], Schema]] = {
    "anyOf": lambda below: {"anyOf": below},
    "oneOf": lambda below: {"oneOf": below},
    "allOf": lambda below: {"allOf": below},
    "then and else": lambda below: {"if": {}, "then": {"allOf": below}, "else": {"allOf": below}},
    "properties": lambda below: {"type": "object", "properties": named(below)},
    "required properties": lambda below: {"type": "object", "properties": named(below), "required": list(named(below))},
    "properties in lists": lambda below: {"type": "array", "items": {"properties": named(below)}},
    "alternatives with properties": lambda below: {"properties": named(below[:1]), "anyOf": below},
    "patternProperties": lambda below: {"patternProperties": {f"^p{number}": part for number, part in enumerate(below)}},
    "prefixItems": lambda below: {"type": "array", "prefixItems": below},
    "dependentSchemas": lambda below: {"dependentSchemas": named(below)},
    "not": lambda below: {"not": {"allOf": below}},
}


def tool_of(schema: Schema) -> Tool:
    return Tool(name="f", description="Does f.", input_schema={"type": "object", **schema})


def called(tool: Tool, **arguments: Any) -> ToolCall | InvalidCall:
    written = tuple(RawArgument(name=name, text=json.dumps(value), value=value) for name, value in arguments.items())
    return bind(RawCall(index=0, name="f", arguments=written), [tool])


def told(tool: Tool) -> None:
    call = called(tool, a={"p0": "x"}, b=[{"p0": {"p0": "x"}}])
    if isinstance(call, InvalidCall):
        feedback(call, [tool])


WALKS: dict[str, Callable[[Tool], object]] = {
    "the catalog": lambda tool: Catalog([tool]),
    "the outline": lambda tool: (parameters_of(tool), rules_for(tool), alternatives_of(tool)),
    "the prompt": lambda tool: system_prompt([tool]),
    "examples": invented_arguments,
    "words": lambda tool: describe({"$ref": "#/$defs/L0"}, tool.input_schema),
    "the check": lambda tool: check_schema(mended(tool.input_schema)[0]),
    "the grammar": call_schema,
    "a name that is not declared": lambda tool: property_schema(tool.input_schema, "none"),
    "room for a string": lambda tool: admits_string({"$ref": "#/$defs/L0"}, tool.input_schema),
    "a call and what is told of it": told,
}


def anew(walk: Callable[[Tool], object], tool: Tool) -> object:
    """Walk through a tool of which nothing is known yet."""
    return walk(replace(tool))


@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "walk"), dict.fromkeys([*covering(HOLDING, WALKS), *covering(HOLDING, [*WALKS][3:])]))
def test_work_grows_with_what_is_written(kind: str, walk: str) -> None:
    """Four times as many references in five levels are a thousand times as many parts."""
    few, many = (partial(anew, WALKS[walk], tool_of(shared(HOLDING[kind], width))) for width in (5, 20))
    small, large = count_calls(few), count_calls(many, is_known=True)
    assert large < 8 * small + 120_000


@pytest.mark.parametrize("kind", HOLDING)
def test_the_prompt_is_in_proportion(kind: str) -> None:
    schema = shared(HOLDING[kind], 40)
    assert len(system_prompt([tool_of(schema)])) < 10_000 + 25 * len(json.dumps(schema))


def test_what_is_small_is_shown_whole() -> None:
    deep = {"properties": {"b": {"properties": {"c": {"properties": {"d": {"enum": ["x", "y"]}}}}}}}
    (a,) = parameters_of(tool_of({"properties": {"a": deep}}))
    assert a.children[0].children[0].children[0].kind == '"x" or "y"'


def test_what_is_too_large_is_shown_less_deep() -> None:
    (*_, a) = parameters_of(tool_of(shared(HOLDING["properties"], 40)))
    assert (a.name, a.kind) == ("a", "object")
    assert len(a.children) in (0, 40)


def test_a_tool_that_is_too_large_is_shown_by_its_name() -> None:
    many = {f"p{number}": {"type": "string", "description": "d" * 100} for number in range(20_000)}
    assert parameters_of(tool_of({"properties": many})) == ()
    assert "### f\nDoes f." in system_prompt([tool_of({"properties": many})])


# A value that breaks its schema in many places, or is looked at many times.
MANY = 2_000
VALUES: dict[str, tuple[Callable[[int], Schema], Callable[[int], Any]]] = {
    "unique objects": (
        lambda count: {"type": "array", "uniqueItems": True},
        lambda count: [{"a": number, "b": [1.5]} for number in range(count)],
    ),
    "unique values of several kinds": (
        lambda count: {"uniqueItems": True},
        lambda count: [[number, str(number), float(number) + 0.5, None] for number in range(count)],
    ),
    "patterns and names": (
        lambda count: {"patternProperties": {f"^p{number}": {"type": "integer"} for number in range(count // 20)}},
        lambda count: {f"p{number}": "x" for number in range(count // 20)},
    ),
    "wrong items": (lambda count: {"items": {"type": "integer"}}, lambda count: ["x" * 50] * count),
    "one value for many parts": (
        lambda count: {"allOf": [{"type": "string"}] * min(count, 900)},
        lambda count: [["x" * 100] * count],
    ),
    "a long list of values": (lambda count: {"items": {"enum": [*range(count)]}}, lambda count: [*range(count)]),
    "many names in each item": (
        lambda count: {"items": {"required": [f"p{number}" for number in range(count)]}},
        lambda count: [{}] * 50,
    ),
    "names that are not declared": (
        lambda count: {"additionalProperties": False, "properties": {f"p{number}": {} for number in range(count)}},
        lambda count: {f"q{number}": 1 for number in range(count)},
    ),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_looked_at_in_bounded_work(kind: str) -> None:
    schema, value = VALUES[kind]

    def issues(count: int) -> object:
        return find_issues(compiled({"type": "object", "properties": {"a": schema(count)}}), {"a": value(count)})

    small, large = count_calls(lambda: issues(MANY // 4)), count_calls(lambda: issues(MANY), is_known=True)
    assert large < 6 * small + 400_000


def test_each_mistake_is_counted() -> None:
    """One keyword can find sixty mistakes in each of many items."""
    schema = {"properties": {"a": {"items": {"required": [f"p{number}" for number in range(60)]}}}}
    assert len(find_issues(compiled(schema), {"a": [{}] * 100})) > 1
    (issue,) = find_issues(compiled(schema), {"a": [{}] * 5_000})
    assert "cannot be evaluated" in issue.message


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], False),
        ([[1], ["1"]], True),
        ([None, "null", [], {}], True),
        (["x", "x"], False),
        ([1e308, 10**400], True),
    ],
)
def test_which_items_are_the_same(items: list[Any], is_unique: bool) -> None:
    assert bool(find_issues(compiled({"properties": {"a": {"uniqueItems": True}}}), {"a": items})) is not is_unique


def test_a_call_of_many_arguments_and_many_patterns() -> None:
    patterns = {f"^.{{0,{number}}}": {"type": "integer"} for number in range(200)}
    call = called(tool_of({"patternProperties": patterns}), **{f"p{number}": "x" for number in range(200)})
    assert isinstance(call, InvalidCall)


def test_a_call_of_many_arguments_and_many_names() -> None:
    names = {f"name_{number}": {"type": "integer"} for number in range(2_000)}
    tool = tool_of({"properties": names})
    calls = [{f"Name-{number}": 1 for number in range(count)} for count in (100, 200)]
    small, large = (count_calls(partial(called, tool, **arguments)) for arguments in calls)
    assert large < 2.5 * small + 1_000


def test_anchors_are_looked_for_once() -> None:
    """A reference to an anchor is followed for each item, and the schema is not looked through again for each."""
    parts = {f"L{number}": {"$anchor": f"L{number}", "type": "integer"} for number in range(200)}
    schema = {"properties": {"a": {"items": {"anyOf": [{"$ref": "#L0"}, {"$ref": "#L1"}]}}}, "$defs": parts}
    work = partial(find_issues, compiled({"type": "object", **schema}), {"a": ["x"] * 50})
    assert find_issues(compiled({"type": "object", **schema}), {"a": [1] * 50}) == ()
    assert count_calls(work) < 60_000


@pytest.mark.sweep
@pytest.mark.timeout(60)
@pytest.mark.parametrize("ten", range(10))
def test_schemas_drawn_with_a_seed(ten: int) -> None:
    """A hundred of `tests/fuzz/fuzz_schemas.py`, of small size."""
    for seed in range(10 * ten, 10 * ten + scaled(10)):
        work_through(seed, most=60)
