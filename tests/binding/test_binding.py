"""Binding: values by schema, names, duplicates, and schemas that cannot be used."""

import json
from typing import Any

import pytest
from cases import load
from catalogs import ALL
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from xmlcall import Catalog, InvalidCall, Issue, RawArgument, RawCall, Tool, ToolCall, UsageError, bind, parse
from xmlcall.binding.bind import bind_argument
from xmlcall.schema.validation import MAX_NODES, check_schema
from xmlcall.types.calls import MISSING
from xmlcall.wire.openai import native_call

CASES = load("binding.toml")
OF_THE_WHOLE = {"unexpected-argument", "missing-argument"}  # may be of the call, and not of this argument
SIZE = {"Size": {"type": "integer", "maximum": 10}}

BOMBS = [
    '{"allOf": [{"$ref": "@"}, {"$ref": "@"}]}',
    '{"anyOf": [{"$ref": "@"}, {"$ref": "@"}]}',
    '{"oneOf": [{"$ref": "@"}, {"not": {"$ref": "@"}}]}',
    '{"if": {"$ref": "@"}, "then": {"$ref": "@"}}',
    '{"dependentSchemas": {"a": {"$ref": "@"}, "b": {"$ref": "@"}}}',
]


def exploding(schema: str, levels: int = 40) -> dict[str, Any]:
    """Make a schema of definitions, each of which applies the next one twice."""
    definitions = {f"d{level}": json.loads(schema.replace("@", f"#/$defs/d{level + 1}")) for level in range(levels)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{levels}": {"type": "string"}}}


def tool_for(schema: Any, **rest: Any) -> Tool:
    return Tool(name="f", input_schema={"type": "object", "properties": {"x": schema}, "$defs": SIZE, **rest})


def bound(tool: Tool, *arguments: tuple[str, str]) -> ToolCall | InvalidCall:
    raw = RawCall(index=0, name="f", arguments=tuple(RawArgument(name=name, text=text) for name, text in arguments))
    return bind(raw, [tool])


def codes(call: ToolCall | InvalidCall) -> list[str]:
    return [issue.code for issue in call.issues] if isinstance(call, InvalidCall) else []


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES])
def test_case(case: dict[str, Any]) -> None:
    text = case.get("text", "[" * case.get("nested", 0) + "]" * case.get("nested", 0))
    if "repeat" in case:
        text = case["repeat"][0] * case["repeat"][1]
    tool = Tool(name="f", input_schema=case["tool"]) if "tool" in case else tool_for(case["schema"])
    name = case.get("parameter", "x")
    call = bound(tool, (name, text))
    assert codes(call) == case.get("issues", [])
    if isinstance(call, ToolCall):
        value = None if case.get("value_is_null") else case.get("value", ...)  # TOML has no null
        assert json.dumps(call.arguments) == json.dumps({} if case.get("absent") else {name: value})
        assert sorted({repair.code for repair in call.repairs}) == case.get("repairs", [])


def test_one_argument_is_typed_as_in_the_whole_call() -> None:
    for id, case in (pair for pair in CASES if "text" in pair[1]):
        catalog = Catalog([Tool(name="f", input_schema=case["tool"]) if "tool" in case else tool_for(case["schema"])])
        tool, name = catalog.get("f"), case.get("parameter", "x")
        assert tool is not None
        argument = RawArgument(name=name, text=case["text"])
        call = bind(RawCall(index=0, name="f", arguments=(argument,)), catalog)
        alone = bind_argument(argument, tool, catalog)
        if isinstance(call, ToolCall):
            assert json.dumps(alone) == json.dumps(call.arguments[name]) if name in call.arguments else alone is MISSING, id
        elif not {issue.code for issue in call.issues} & OF_THE_WHOLE:
            assert alone is MISSING, id


def test_all_issues_at_once() -> None:
    tool = Tool(
        name="f",
        input_schema={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "string"}},
            "required": ["c"],
            "additionalProperties": False,
        },
    )
    call = bound(tool, ("a", "x"), ("b", "1"), ("d", "y"))
    assert isinstance(call, InvalidCall)
    assert {(issue.code, issue.path) for issue in call.issues} == {
        ("missing-argument", "$.c"),
        ("unexpected-argument", "$.d"),
        ("wrong-type", "$.a"),
        ("wrong-type", "$.b"),
    }
    assert not hasattr(call, "arguments")


def test_an_issue_says_what_was_expected_and_what_came() -> None:
    call = bound(tool_for({"type": "integer", "minimum": 1, "maximum": 7}), ("x", "soon"))
    assert isinstance(call, InvalidCall)
    assert call.issues == (
        Issue(
            code="wrong-type",
            path="$.x",
            expected="integer, at least 1, at most 7",
            got='"soon"',
            message='Expected integer, at least 1, at most 7, got "soon".',
        ),
    )


def test_an_unknown_tool_names_the_nearest() -> None:
    call = bind(RawCall(index=3, name="get_wether"), ALL)
    assert isinstance(call, InvalidCall)
    assert call.id == "call_3"
    assert call.issues[0].expected.startswith("get_weather")


TUPLES: list[tuple[str, list[Any] | str]] = [
    ("[1, 2]", [1, 2]),
    ('["1", 2, "x"]', [1, 2, "x"]),
    ("<item>1</item><item>2</item>", [1, 2]),
    ("5", "wrong-type"),
    ('{"x": 1}', "wrong-type"),
    ("x", "wrong-type"),
    ("1, 2", "wrong-type"),
]


@pytest.mark.parametrize("keyword", ["items", "prefixItems"])
@pytest.mark.parametrize(("text", "expected"), TUPLES)
def test_a_tuple_is_read_by_places(keyword: str, text: str, expected: list[Any] | str) -> None:
    point = {"type": "array", keyword: [{"type": "number"}, {"type": "number"}]}
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"} if keyword == "items" else {}
    call = bound(Tool(name="f", input_schema=draft | {"type": "object", "properties": {"x": point}}), ("x", text))
    assert codes(call) == [expected] if isinstance(call, InvalidCall) else call.arguments == {"x": expected}


LISTS: list[tuple[str, list[str], list[Any] | str]] = [
    ("string", ["a", "b", "a"], ["a", "b", "a"]),
    ("string", ["a, c", "b"], ["a, c", "b"]),
    ("integer", ["1", "2"], [1, 2]),
    ("object", ['{"k": 1}', '{"k": 2}'], [{"k": 1}, {"k": 2}]),
    ("integer", ["1", "x"], "wrong-type"),
    ("integer", ["[1]", "[2]"], "duplicate-argument"),
    ("string", ["a", '["b"]'], "duplicate-argument"),
    ("string", ["a", ""], "duplicate-argument"),
]


@pytest.mark.parametrize(("kind", "texts", "expected"), LISTS)
def test_one_element_for_each_item_of_a_list(kind: str, texts: list[str], expected: list[Any] | str) -> None:
    tool = tool_for({"type": "array", "items": {"type": kind}})
    call = bound(tool, *(("x", text) for text in texts))
    if isinstance(call, ToolCall):
        assert call.arguments == {"x": expected}
        assert {repair.code for repair in call.repairs} >= {"xml-elements"}
    else:
        assert codes(call) == [expected]


def test_without_tools_arguments_stay_as_written() -> None:
    raw = RawCall(index=0, name="f", arguments=(RawArgument(name="x", text="1"), RawArgument(name="y", text="2", value=2)))
    call = bind(raw, ())
    assert isinstance(call, ToolCall)
    assert call.arguments == {"x": "1", "y": 2}


DEEP = "[" * 200 + "]" * 200
INTEGER = {"type": "integer"}
REFUSED: dict[str, tuple[RawCall, Any, str]] = {
    "a typed value too deep": (
        parse(f'<invoke name="f"><parameter name="x" type="json">{DEEP}</parameter></invoke>').calls[0].raw,
        INTEGER,
        "malformed-value",
    ),
    "native arguments that are no object": (
        RawCall(index=0, name="f", arguments=(RawArgument(name="", text='{"x": '),), dialect="native"),
        INTEGER,
        "malformed-value",
    ),
    "unfinished": (parse('<invoke name="f"><parameter name="x">1').calls[0].raw, INTEGER, "truncated-call"),
    "an unusable schema": (
        RawCall(index=0, name="f", arguments=(RawArgument(name="x", text="3"),)),
        {"allOf": [{"$ref": "#/properties/x"}]},
        "invalid-value",
    ),
}


@pytest.mark.parametrize(("raw", "schema", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_validated_but_refused(raw: RawCall, schema: Any, code: str) -> None:
    assert codes(bind(raw, [tool_for(schema)])) == [code]


def test_a_wrong_value_of_broken_native_arguments_is_told_as_it_was_written() -> None:
    call = bind(native_call(0, "f", '{"x": {"k": "é"},}'), [tool_for({"type": "integer"})])
    assert isinstance(call, InvalidCall)
    assert [(issue.code, issue.got) for issue in call.issues] == [("wrong-type", '{"k": "é"}')]


@pytest.mark.parametrize(
    ("arguments", "value", "repairs"),
    [
        ('{"x": 1}', 1, []),
        ('{"x": "1"}', 1, ["quoted-value"]),
        ('{"x": "1,000"}', 1000, ["number-format"]),
        ('{"x": 1.0}', 1, ["number-format"]),
    ],
)
def test_a_number_in_quotes_is_a_conversion_wherever_json_is_written(arguments: str, value: int, repairs: list[str]) -> None:
    tool = tool_for({"type": "integer"})
    hermes = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    for call in (bind(native_call(0, "f", arguments), [tool]), *parse(hermes, [tool]).calls):
        assert isinstance(call, ToolCall)
        assert call.arguments == {"x": value}
        assert [repair.code for repair in call.repairs] == repairs


def test_validators_are_compiled_once_a_catalog() -> None:
    catalog = Catalog([tool_for({"type": "integer"})])
    raw = RawCall(index=0, name="f")
    bind(raw, catalog)
    first = catalog.validator("f")
    bind(raw, catalog)
    assert catalog.validator("f") is first


def test_catalogs_take_every_form_of_a_tool() -> None:
    openai = {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {"x": {}}}}}
    catalog = Catalog([Tool(name="a"), openai, {"name": "c", "inputSchema": {"type": "object"}}])
    assert Tool.from_openai({"function": {"name": "d"}}).input_schema == {"type": "object", "properties": {}}
    assert catalog.names() == ("a", "b", "c")
    assert catalog.parameters("b") == frozenset("x")
    assert catalog.parameters("c") is None


@pytest.mark.parametrize(
    "tools",
    [
        [Tool(name="a"), Tool(name="a")],
        [{"description": "no name"}],
        ["a"],
        [{"name": "a", "inputSchema": 1}],
        [{"name": "a", "description": 1}],
        [{"name": "", "inputSchema": {}}],
        [{"function": "a"}],
    ],
)
def test_what_is_no_catalog(tools: Any) -> None:
    with pytest.raises(UsageError):
        Catalog(tools)


def test_a_tool_of_a_function() -> None:
    def greet(name: str, times: int = 1) -> str:
        """Greet somebody."""
        return name * times

    tool = Tool.from_function(greet)
    assert (tool.name, tool.description) == ("greet", "Greet somebody.")
    assert tool.input_schema["required"] == ["name"]
    assert check_schema(tool.input_schema) is None

    def positional(name: str, /) -> str:
        return name

    def untyped(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        return None

    for function, reason in ((positional, "by keyword"), (untyped, "no JSON Schema")):
        with pytest.raises(UsageError, match=reason):
            Tool.from_function(function)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"x": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "not a JSON object"),
        ({"type": "objekt"}, "not valid JSON Schema"),
        ({"properties": {"x": {"$ref": "http://example.com/s"}}}, "nothing is fetched"),
        ({"properties": {"x": {"$ref": "#/$defs/nowhere"}}}, "leads nowhere"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "in a circle"),
        (nested(40), "nested deeper"),
        ({"enum": [[] for _ in range(MAX_NODES)]}, "more than"),
        ({"allOf": [{"$ref": "#"}]}, "without end"),
        *((exploding(schema), "more than 5000 schemas") for schema in BOMBS),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": 1}, "not valid JSON Schema"),
        ({"$schema": 5}, "cannot be"),
        ({"anyOf": [{}], "properties": {"x": {"$ref": "#/anyOf/\u00b2"}}}, "nowhere"),
        ({"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, "bounded time"),
    ],
)
def test_schemas_that_cannot_be_used(schema: Any, reason: str) -> None:
    assert reason in str(check_schema(schema))


def test_types_by_their_names_in_python() -> None:
    properties = {"a": {"type": "int"}, "b": {"type": "list", "items": {"type": "float"}}, "type": {"type": "str"}}
    schema = {"type": "dict", "properties": properties, "default": {"type": "int"}}
    (tool,) = Catalog([Tool.from_mcp({"name": "f", "inputSchema": schema})])
    assert check_schema(tool.input_schema) is None
    assert tool.input_schema["default"] == {"type": "int"}
    call = bound(tool, ("a", "1"), ("b", "[1, 2.5]"), ("type", "int"))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"a": 1, "b": [1, 2.5], "type": "int"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
def test_a_value_that_doubles_the_work_with_each_level_ends(key: str) -> None:
    again = {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}
    call = bound(tool_for({key: [again, {**again, "required": ["missing"]}]}), ("x", '{"x":' * 40 + "1" + "}" * 40))
    assert isinstance(call, InvalidCall)


@settings(max_examples=examples(200), deadline=None)
@given(name=st.text(max_size=5), text=st.text(max_size=30), tool=st.sampled_from(ALL))
def test_nothing_raises(name: str, text: str, tool: dict[str, Any]) -> None:
    for parameter in [name, *tool["inputSchema"].get("properties", {})]:
        raw = RawCall(index=0, name=tool["name"], arguments=(RawArgument(name=parameter, text=text),))
        call = bind(raw, ALL)
        assert isinstance(call, ToolCall) or call.issues


# MiniMax M3 marks every tag, so that elements in a value are no text: an empty one is an empty list or object, and where a string
# is admitted, too, readers of the format disagree.
MARKED: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "array"}, "", []),
    ({"type": "object"}, "\n", {}),
    ({"type": "string"}, "", ""),
    ({"type": "integer"}, "", "left out"),
    ({"type": ["array", "object"]}, "", "left out"),
    ({"type": "array"}, "M<item>1M</item>M<item>2M</item>", [1, 2]),
    (
        {"type": "array", "items": {"type": "string"}},
        "M<item>a <b> &lt;M</item>M<item> c && dM</item>",
        ["a <b> &lt;", " c && d"],
    ),
    ({"type": ["array", "string"]}, "M<item>1M</item>M<item>2M</item>", "ambiguous"),
    ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "M<item>1M</item>", "ambiguous"),
    ({}, "M<item>1M</item>", "ambiguous"),
    ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "<item>1</item>", "<item>1</item>"),
    ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "", ""),
]


@pytest.mark.parametrize(("schema", "written", "expected"), MARKED)
def test_elements_with_a_mark_are_no_text(schema: dict[str, Any], written: str, expected: Any) -> None:
    text = f'M<tool_call>M<invoke name="f">M<x>{written}M</x>M</invoke>M</tool_call>'.replace("M<", "]<]minimax[>[<")
    [call] = parse(text, [{"name": "f", "inputSchema": {"type": "object", "properties": {"x": schema}}}]).calls
    if expected == "ambiguous":
        assert isinstance(call, InvalidCall)
        assert [issue.code for issue in call.issues] == ["ambiguous"]
    else:
        assert isinstance(call, ToolCall)
        assert call.arguments == ({} if expected == "left out" else {"x": expected})
