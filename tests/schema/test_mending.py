"""Schemas with odd keywords, as real servers and clients send them: what is made of them, and that their tools can be called."""

import json
import logging
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from catalogs import ALL
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp.types import ElicitRequestFormParams
from profiles import examples
from proxy_harness import body, client_of, events_of

from xmlcall import (
    Catalog,
    InvalidCall,
    LocalHost,
    RawArgument,
    RawCall,
    Tool,
    ToolCall,
    ToolLoop,
    ToolResult,
    UsageError,
    bind,
    parse,
)
from xmlcall.agent.run_call import checked
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.base import OnProgress
from xmlcall.hosts.mcp.callbacks import elicitation_of
from xmlcall.hosts.mcp.server_requests import FormRequest, fields, problems, with_defaults
from xmlcall.prompting import system as prompt
from xmlcall.prompting.format import ENGLISH
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.filters import value_in
from xmlcall.schema.mending import mended
from xmlcall.schema.validation import check_schema, compiled, find_issues, has_nothing_odd
from xmlcall.tools.outline import parameters_of
from xmlcall.types.calls import TextContent

CASES = json.loads((Path(__file__).with_name("odd_schemas.json")).read_text(encoding="utf-8"))


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
    {"properties": {"x": {"$dynamicRef": "#node"}}, "$defs": {"N": {"$dynamicAnchor": "node", "type": "integer"}}},
    {"properties": {"x": {"$ref": "#/$defs/any"}}, "$defs": {"any": True}},
    {"properties": {"x": {"$ref": "#/properties/y/anyOf/1"}, "y": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}},
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


@settings(max_examples=examples(300), deadline=None)
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
LEAVES = [None, True, False, 0, 3, -1, 2.5, 10**400, *WORDS]


def anything(rng: random.Random, depth: int) -> Any:
    """Make a JSON value of which every object may be taken for a schema."""
    kind = rng.random() if depth else 0
    if kind < 0.35:
        return rng.choice(LEAVES)
    if kind < 0.5:
        return [anything(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(KEYWORDS): anything(rng, depth - 1) for _ in range(rng.randint(0, 4))}


@settings(max_examples=examples(1000), deadline=None)
@given(number=st.integers(0, 2**32))
def test_any_schema_can_be_offered_and_called_or_is_refused_with_a_reason(number: int) -> None:
    rng = random.Random(number)
    schema = {rng.choice(KEYWORDS): anything(rng, rng.randint(1, 5)) for _ in range(rng.randint(0, 5))}
    before = repr(schema)
    found, notes = mended(schema)
    assert repr(schema) == before
    assert all(len(note) < 600 for note in notes)
    tool = call_tool(schema)
    assert prompt.system_prompt([tool])
    call = bind(RawCall(index=0, name="f", arguments=(RawArgument(name="x", text="3"),)), [tool])
    problem = check_schema(found)
    if problem is None and has_nothing_odd(found):
        Draft202012Validator(Draft202012Validator.META_SCHEMA).validate(found)  # `check_schema` knows no pattern but `re`'s
    if problem is None:
        again, more = mended(found)
        assert again is found, more
        assert not (isinstance(call, InvalidCall) and any("cannot be" in issue.message for issue in call.issues))
    else:
        assert "without end" in problem or "bounded time" in problem
        assert isinstance(call, InvalidCall)


def nest(levels: int, key: str, inner: Any) -> Any:
    for _ in range(levels):
        inner = {key: inner}
    return inner


DRAFTS = [f"http://json-schema.org/draft-{number}/schema#" for number in ("03", "04", "06", "07")]
DRAFTS += [f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")]
MORE = [
    *KEYWORDS,
    *re.findall(r"\S+", "additionalItems extends disallow divisibleBy contains items items required $recursiveRef propertyNames"),
]
REFERENCES = [f"#/allOf/{'1' * 5000}", "#/definitions/a", "#/allOf/0", "#"]


def of_a_draft(rng: random.Random) -> dict[str, Any]:
    """Make a schema of any draft, in which keywords have values that they may not have."""
    parts = {name: {rng.choice(MORE): anything(rng, rng.randint(0, 3)) for _ in range(3)} for name in "ab"}
    schema = {"properties": parts, "allOf": [{"required": rng.choice([True, ["a"], "a"])}], **rng.choice([{}, parts["a"]])}
    schema |= {"$ref": rng.choice(REFERENCES)} if rng.random() < 0.2 else {}
    return schema | {"$schema": rng.choice(DRAFTS)}


def offered(schema: Any) -> None:
    values = ("5", "{}", "x", "[1, null]")
    texts = [RawCall(index=0, name="f", arguments=(RawArgument(name="a", text=value),)) for value in values]
    assert all(bind(text, [call_tool(schema)]) for text in texts)


def promised(schema: Any) -> None:
    values: list[Any] = [{"a": 1}, {"b": ["x"]}, [], None]
    for value in values:
        told = checked(ToolResult(structured_content=value), Tool(name="f", output_schema=schema), ENGLISH)
        assert told.structured_content == value


def asked(schema: Any) -> None:
    form = elicitation_of("s", ElicitRequestFormParams(message="m", requested_schema=schema))
    for values in ({"a": 1}, {"b": ["x"]}, {}):
        if isinstance(form, FormRequest):
            assert isinstance(problems(form.schema, with_defaults(form.schema, values)), tuple)


def answered(schema: Any) -> None:
    assert value_in('{"a": 1}', schema) in ('{"a": 1}', None)


def told_of(schema: Any) -> None:
    validator = compiled(schema)
    values: list[Any] = [{"a": 1}, {"b": ["x"]}, []]
    for value in values:
        assert isinstance(validator, str) or isinstance(find_issues(validator, value), tuple)


@pytest.mark.parametrize("use", [offered, promised, asked, answered, told_of])
@settings(max_examples=examples(100), deadline=None)
@given(number=st.integers(0, 2**32))
def test_no_schema_raises_whatever_it_is_for(use: Callable[[Any], None], number: int) -> None:
    rng = random.Random(number)
    use(of_a_draft(rng))


ODD: dict[str, Any] = {
    "draft 3": {"$schema": DRAFTS[0], "properties": {"a": {"required": True}}},
    "digits": {"properties": {"a": {"$ref": f"#/allOf/{'1' * 5000}"}}, "allOf": [{}]},
    "digits, too deep to be mended": nest(70, "items", {"$ref": f"#/allOf/{'1' * 5000}"}) | {"allOf": [{}]},
    "definitions": {"$schema": DRAFTS[0], "properties": {"a": {"definitions": "b"}}},
    "extends": {"$schema": DRAFTS[0], "properties": {"a": {"extends": {"a": 5}}}},
    "types": {"$schema": DRAFTS[0], "properties": {"a": {"type": [{"type": "string"}, "null"]}}},
    "a tuple": {"$schema": DRAFTS[3], "properties": {"a": {"type": "array", "items": [{"type": "number"}]}}},
}


@pytest.mark.parametrize("use", [offered, promised, asked, answered, told_of])
@pytest.mark.parametrize("schema", ODD.values(), ids=ODD)
def test_no_odd_schema_raises_whatever_it_is_for(schema: Any, use: Callable[[Any], None]) -> None:
    use(schema)


def test_a_form_that_marks_its_fields_as_draft_3_does_tells_which_are_needed() -> None:
    form = elicitation_of("s", ElicitRequestFormParams(message="m", requested_schema=ODD["draft 3"]))
    assert isinstance(form, FormRequest)
    assert [field.is_required for field in fields(form.schema)] == [True]


@pytest.mark.parametrize("value", [False, True, 3, "x", []])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="JSON object"):
        Catalog([{"name": "f", "parameters": value}])


HOSTILE = [
    nest(5000, "items", {"type": "INTEGER"}),
    {"anyOf": [{"$ref": f"#/$defs/{number}"} for number in range(9_000)]},
    {"$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(9_000)}},
    {"$defs": {"a": {"x" * 100_000: {"$defs": {str(number): {"$ref": f"#/{number}"} for number in range(9_000)}}}}},
    {"required": [f"p{number}" for number in range(9_000)], "properties": {"x": {"enum": ["a"] * 9_000, "type": "INTEGER"}}},
    {"properties": {"x": {"pattern": "(" * 1_000_000}, "y": {"pattern": "a|" * 500_000}}},
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("schema", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_hostile_ends(schema: Any) -> None:
    _, notes = mended(schema)
    assert len(notes) < 10
    assert all(len(note) < 600 for note in notes)


def test_a_reference_to_a_number_of_any_length_leads_nowhere() -> None:
    schema = {"allOf": [{}], "$ref": "#/allOf/" + "1" * 5_000, "properties": {"a": nest(80, "items", {})}}
    assert "deeper than" in str(Catalog([Tool(name="f", input_schema=schema)]).validator("f"))


DRAFT_3 = "http://json-schema.org/draft-03/schema#"
# schemas that nobody mends, a value, where an issue is; None where there is a reason against the schema
UNMENDED: list[tuple[dict[str, Any], Any, list[str] | None]] = [
    ({"$schema": DRAFT_3, "properties": {"a": {"properties": {"b": {"required": True}}}}}, {"a": {}}, ["$.a.b"]),
    ({"$schema": DRAFT_3, "properties": {"a": {"disallow": [{"enum": ["x"]}]}}}, {"a": "x"}, ["$.a"]),
    ({"$schema": DRAFT_3, "properties": {"a": {"disallow": [{"enum": ["x"]}]}}}, {"a": "y"}, []),
    ({"$schema": DRAFT_3, "type": ["object", {"enum": [1]}]}, 1, []),
    ({"properties": {"a": {"definitions": "b"}}}, {}, None),
    ({"properties": {"a": {"definitions": {"b": 1.5}}}, "$schema": DRAFT_3}, {}, None),
    ({"allOf": [{}], "$ref": "#/allOf/" + "1" * 5000}, {}, None),
]


@pytest.mark.parametrize(("schema", "value", "places"), UNMENDED)
def test_an_odd_schema_as_it_is_has_issues_or_a_reason(schema: dict[str, Any], value: Any, places: list[str] | None) -> None:
    validator = compiled(schema)
    assert isinstance(validator, str) is (places is None)
    if places is not None:
        assert [issue.path for issue in find_issues(validator, value)] == places


@pytest.mark.parametrize(("links", "refused"), [(3, None), (4, '$ref "#/properties/p2/not" leads nowhere or in a circle')])
def test_what_is_left_out_takes_references_along_in_three_passes(links: int, refused: str | None) -> None:
    following = {f"p{each}": {"not": {"$ref": f"#/properties/p{each - 1}/not"}} for each in range(1, links)}
    found, notes = mended({"properties": {"p0": {"not": {"pattern": "("}}, **following}})
    assert found["properties"] == {"p0": {}, "p1": {}, "p2": {}} | ({} if links == 3 else {"p3": following["p3"]})
    assert len(notes) == 3
    assert check_schema(found) == refused


# -- from end to end ---------------------------------------------------------------------------------------------------


class OneTool(LocalHost):
    """A host that lists a tool as an MCP server describes it, and keeps what it is called with."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__([])
        self.schema, self.called = schema, list[Any]()

    async def tools(self) -> tuple[Tool, ...]:
        return (Tool.from_mcp({"name": "f", "inputSchema": self.schema}),)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        self.called.append(arguments["x"])
        return ToolResult(content=(TextContent(text="Done."),))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_the_loop_calls_the_tool(case: dict[str, Any]) -> None:
    host = OneTool(whole(case, "x", "tool"))
    async with ToolLoop(ScriptedBackend([written(case), "Done."]), [host], policy=["*"]) as loop:
        answer = await loop.ask("Call f.")
    assert answer.text == "Done."
    assert json.dumps(host.called) == json.dumps([case["value"]])


@pytest.mark.parametrize("strict", [False, True])
async def test_the_proxy_gives_the_call(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    async with client_of(ScriptedBackend([written(case) for case in CASES]), strict=strict) as client:
        for case in CASES:
            function = {"type": "function", "function": {"name": "f", "parameters": whole(case, "x", "tool")}}
            answer = await client.post("/v1/chat/completions", json=body("Call f.", tools=[function]))
            (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
            given = json.loads(call["function"]["arguments"])
            assert json.dumps(given["x"]) == json.dumps(case["value"]), case["name"]
    said = 'The tool \'f\' is offered with a changed schema: $.properties.x.type "INTEGER" read as "integer".'
    assert said in caplog.messages


async def test_what_was_changed_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    schema = {"type": "object", "properties": {"x": {"type": "INTEGER"}}}
    async with Engine(ScriptedBackend(["Hi.", "Hi."]), mode="xml") as engine:
        for _ in range(2):
            assert await events_of(engine, body("Hi", tools=[{"function": {"name": "f", "parameters": schema}}]))
    assert len([each for each in caplog.messages if "changed schema" in each]) == 1
