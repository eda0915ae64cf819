"""Corners of the pure core that no corpus of replies reaches."""

import json
from typing import Any

import pytest

from xmlcall import Catalog, InvalidCall, RawArgument, RawCall, Tool, ToolCall, UsageError, bind, parse, render
from xmlcall.dialects import DIALECTS
from xmlcall.schema.validation import check_schema, find_issues, is_valid
from xmlcall.tools.outline import example_arguments, parameters_of, property_schema

BRANCHES = {
    "type": "object",
    "anyOf": [{"properties": {"a": {"type": "integer"}}}],
    "then": {"properties": {"b": {"type": "boolean"}}},
    "additionalProperties": {"type": "null"},
}


def test_parameters_in_branches_are_declared() -> None:
    assert Catalog([Tool(name="f", input_schema=BRANCHES)]).parameters("f") == frozenset("ab")
    assert property_schema(BRANCHES, "a") == {"type": "integer"}
    assert property_schema(BRANCHES, "b") == {"type": "boolean"}
    assert property_schema(BRANCHES, "c") == {"type": "null"}


def test_a_dialect_may_be_given_as_a_row() -> None:
    call = parse('<invoke name="f"></invoke>', dialect=DIALECTS["function_calls"]).calls[0]
    assert isinstance(call, ToolCall)
    assert render([call], dialect=DIALECTS["qwen"]).startswith("<tool_call>")


@pytest.mark.parametrize(("one", "other", "equal"), [([1], [1], True), ([1], [2], False), (True, 1, False), (1, 1.0, True)])
def test_repeated_values(one: Any, other: Any, equal: bool) -> None:
    raw = RawCall(index=0, name="f", arguments=tuple(RawArgument(name="x", text="", value=value) for value in (one, other)))
    assert isinstance(bind(raw, [Tool(name="f", input_schema={"type": "object", "properties": {"x": {}}})]), ToolCall) is equal


class Recursing:
    """A validator of a schema that cannot be evaluated."""

    def iter_errors(self, value: Any) -> Any:
        raise RecursionError

    def evolve(self, schema: Any) -> "Recursing":
        return self

    def is_valid(self, value: Any) -> bool:
        raise RecursionError


def test_a_schema_that_cannot_be_evaluated_admits_nothing() -> None:
    assert [issue.code for issue in find_issues(Recursing(), 1)] == ["invalid-value"]
    assert not is_valid(Recursing(), 1, {})


def test_examples_of_limits_and_of_nothing() -> None:
    properties = {
        "low": {"type": "integer", "minimum": 10},
        "high": {"type": "number", "maximum": 1},
        "const": {"const": "only"},
        "any": {"anyOf": [{"type": "null"}]},
        "list": {"type": "array", "items": {"type": "boolean"}},
        "true": True,
    }
    tool = Tool(name="f", input_schema={"type": "object", "properties": properties, "required": list(properties)})
    assert example_arguments(tool) == {"low": 10, "high": 1, "const": "only", "any": None, "list": [True], "true": "true value"}


def test_a_schema_that_contains_itself_is_shown_once() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    tool = Tool(
        name="f", input_schema={"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    )
    assert [part.name for part in parameters_of(tool)] == ["node"]


def test_a_very_deep_schema_is_left_to_the_check() -> None:
    schema: Any = {"type": "int"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = Tool.from_mcp({"name": "f", "inputSchema": schema})
    assert "deeper" in str(check_schema(tool.input_schema))
    assert isinstance(bind(RawCall(index=0, name="f"), [tool]), InvalidCall)


def test_an_overflow_is_an_issue() -> None:
    properties = {"a": {"type": "string", "format": "regex"}, "b": {"type": "integer", "multipleOf": 0.1}}
    tool = Tool(name="f", input_schema={"type": "object", "properties": properties})
    for name, text in (("a", "a{99999999999999999999}"), ("b", "1" + "0" * 400)):
        call = bind(RawCall(index=0, name="f", arguments=(RawArgument(name=name, text=text),)), [tool])
        assert isinstance(call, InvalidCall)


def test_schemas_that_refer_to_themselves_are_mended_in_bounded_steps() -> None:
    node: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/n"}}]}
    node["anyOf"].append({"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}})
    for definition, text in (
        (node, '{"a":' * 6 + '"x"' + "}" * 6),
        ({"anyOf": [{"$ref": "#/$defs/n"}] * 2 + [{"type": "integer"}]}, "x"),
    ):
        schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": definition}}
        call = bind(
            RawCall(index=0, name="f", arguments=(RawArgument(name="x", text=text),)), [Tool(name="f", input_schema=schema)]
        )
        assert isinstance(call, InvalidCall)


def test_members_of_a_wrapper_are_judged_one_by_one() -> None:
    tool = Tool(name="f", input_schema={"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "string"}}})
    raw = RawArgument(name="arguments", text="{'a': 5, 'b': 'x'}")
    call = bind(RawCall(index=0, name="f", arguments=(raw,)), [tool])
    assert isinstance(call, InvalidCall)
    assert [(issue.code, issue.path) for issue in call.issues] == [("wrong-type", "$.a")]
    fine = bind(RawCall(index=0, name="f", arguments=(RawArgument(name="arguments", text="{'b': 'x'}"),)), [tool])
    assert isinstance(fine, ToolCall)
    assert {repair.code for repair in fine.repairs} == {"arguments-wrapper", "json-single-quotes"}


def test_parameters_of_odd_schemas() -> None:
    circle: dict[str, Any] = {"type": "array"}
    circle["items"] = {"$ref": "#/$defs/Circle"}
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "round": {"$ref": "#/$defs/Circle"}}}
    root = {"type": "object", "anyOf": [True, {"$ref": "#/$defs/Node"}], "$defs": {"Node": node, "Circle": circle}}
    assert [part.name for part in parameters_of(Tool(name="f", input_schema=root))] == ["next", "round"]


OPEN = Tool(name="f", input_schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"arguments": {"a": 1}}, {"a": 1}),
        ({"arguments": {"a": 1}, "b": 2}, {"arguments": {"a": 1}, "b": 2}),  # beside another it is no wrapper
        ({"arguments": {}}, {"arguments": {}}),
        ({"arguments": {"x": 1}}, {"arguments": {"x": 1}}),  # the tool has no such parameter
    ],
)
def test_what_is_taken_out_of_a_wrapper(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    given = tuple(RawArgument(name=name, text="", value=value) for name, value in arguments.items())
    call = bind(RawCall(index=0, name="f", arguments=given), [OPEN])
    assert isinstance(call, ToolCall)
    assert call.arguments == expected


def test_a_value_without_a_name_for_a_tool_without_parameters() -> None:
    call = parse("```tool_code\nping('x')\n```", [Tool(name="ping", input_schema={"type": "object"})]).calls[0]
    assert isinstance(call, InvalidCall)
    assert [issue.code for issue in call.issues] == ["malformed-value"]


def test_the_text_of_an_inner_value_is_as_it_was_written() -> None:
    reply = parse('<tool_call>{"name": "f", "arguments": {"a": {"name": "Grüße"}}}</tool_call>', [OPEN])
    assert reply.calls[0].raw.arguments[0].text == '{"name": "Grüße"}'


# -- long numbers, and names with characters of no width ------------------------------------------------------------------

ONE = "1" * 5000
NUMBERS = [f"&#{ONE};", ONE, f"-{ONE}.0", f"{ONE}e5", f"0x{ONE}", f"0b{ONE}", "1_" * 3000 + "1", f"\\u00{ONE}"]
SAVE = Tool(
    name="save_note",
    input_schema={"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "x": {}, "f": {"type": "number"}}},
)


def written_in(dialect: str, tool: str, **arguments: Any) -> str:
    try:
        return render([ToolCall(id="c", name=tool, arguments=arguments, raw=RawCall(index=0, name=tool))], dialect=dialect)
    except UsageError:
        return ""  # a format that is read and not written


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_number_of_any_length_raises_nothing(dialect: str) -> None:
    call = written_in(dialect, "save_note", n=7, s="VALUE")
    for number in NUMBERS:
        for text in (call.replace("7", number), call.replace("VALUE", number), call.replace('"VALUE"', number)):
            for each in parse(text, [SAVE]).calls:
                json.dumps(each.arguments if isinstance(each, ToolCall) else [str(issue) for issue in each.issues])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_name_without_its_characters_of_no_width_is_a_repair(dialect: str) -> None:
    call = written_in(dialect, "save_note", x="v9")
    for at in range(call.find("save_note") + 1, call.find("save_note") + 10) if call else ():
        for each in (each for hidden in "\u200b\u2060" for each in parse(call[:at] + hidden + call[at:], [SAVE]).calls):
            assert isinstance(each, InvalidCall) or "tool-name" in [repair.code for repair in each.repairs]
