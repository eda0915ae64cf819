"""What binding promises for any schema and any text."""

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from schema_values import HOSTILE, WORDS, value_of

from xmlcall import Catalog, InvalidCall, RawArgument, RawCall, Tool, ToolCall, bind
from xmlcall.schema.validation import check_schema, find_issues
from xmlcall.tools.catalog import ToolNames, match_name

scalars = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number", "minimum": -5},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", "B", 3, None]},
        {"const": "on"},
        {"type": ["string", "integer"]},
        {"type": "string", "pattern": "^(a+)+$"},
        {"type": "string", "format": "date"},
        {"$ref": "#/$defs/D"},
        {},
        True,
    ]
)
schemas = st.recursive(
    scalars,
    lambda below: st.one_of(
        below.map(lambda items: {"type": "array", "items": items}),
        st.dictionaries(st.sampled_from("abc"), below, max_size=3).map(lambda members: {"type": "object", "properties": members}),
        st.lists(below, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        st.lists(below, min_size=1, max_size=2).map(lambda branches: {"oneOf": branches}),
    ),
    max_leaves=5,
)
texts = st.lists(st.sampled_from([*HOSTILE, *WORDS, "1,000", "yes", "None", "- a\n- b", '"', "[", "{"]), max_size=4).map("".join)


def tool_of(schema: Any) -> Tool:
    return Tool(name="f", input_schema={"type": "object", "properties": {"x": schema}, "$defs": {"D": {"type": "integer"}}})


def bound(tool: Tool, argument: RawArgument) -> ToolCall | InvalidCall:
    return bind(RawCall(index=0, name="f", arguments=(argument,)), [tool])


@settings(max_examples=examples(600), deadline=None)
@given(schema=schemas, text=texts)
def test_what_is_bound_is_valid_and_binding_it_again_changes_nothing(schema: Any, text: str) -> None:
    tool = tool_of(schema)
    call = bound(tool, RawArgument(name="x", text=text))
    if isinstance(call, InvalidCall):
        assert call.issues
        return
    validator = jsonschema.Draft202012Validator(tool.input_schema, format_checker=jsonschema.FormatChecker())
    assert not list(validator.iter_errors(call.arguments))
    if "x" in call.arguments:
        again = bound(tool, RawArgument(name="x", text=text, value=call.arguments["x"]))
        assert isinstance(again, ToolCall)
        assert json.dumps(again.arguments) == json.dumps(call.arguments)
        assert again.repairs == ()


@settings(max_examples=examples(400), deadline=None)
@given(schema=schemas, number=st.integers(0, 2**32))
def test_what_is_valid_stays_as_it_is(schema: Any, number: int) -> None:
    tool = tool_of(schema)
    value = value_of(schema, tool.input_schema, random.Random(number))
    if find_issues(Catalog([tool]).validator(tool.name), {"x": value}):
        return
    call = bound(tool, RawArgument(name="x", text=str(value), value=value))
    assert isinstance(call, ToolCall)
    assert json.dumps(call.arguments["x"]) == json.dumps(value)
    assert call.repairs == ()


KEYWORDS = ["type", "properties", "items", "anyOf", "enum", "$ref", "pattern", "required", "not", "if", "then"]
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["a", "$ref", "#", "#/x", "(", "object", "array"])),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.sampled_from(KEYWORDS), below, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=examples(400), deadline=None)
@given(schema=json_values, text=texts)
def test_no_schema_raises(schema: Any, text: str) -> None:
    try:
        tool = tool_of(schema)
        check_schema(tool.input_schema)
    except ValueError:
        return
    bound(tool, RawArgument(name="x", text=text))


SPELLINGS: dict[str | None, list[str]] = {
    "read_file": [
        *("read_file", "functions.read_file", "default_api.read_file", "readFile", "READ-FILE", "server/read_file"),
        *("mcp__server__read_file", "a.b.c.d.e.f.g.h.i.j.read_file"),
    ],
    "files__write": ["write", "files.write"],
    "a__list": ["a.list"],
    None: ["list", "read", "", "file", "delete", "x" * 1000],
}


@pytest.mark.parametrize(("written", "meant"), [(name, meant) for meant, names in SPELLINGS.items() for name in names])
def test_the_tool_that_is_meant(written: str, meant: str | None) -> None:
    assert ToolNames(["read_file", "files__write", "a__list", "b__list", "undo-delete"]).meant_by(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [("filePath", "file_path"), ("file-path", "file_path"), ("FILE PATH", "file_path"), ("path", None), ("x_y", None)],
)
def test_the_parameter_that_is_meant(written: str, meant: str | None) -> None:
    assert match_name(written, ["file_path", "xY", "x-y"]) == meant


def call_of(*arguments: tuple[str, str], name: str = "f") -> ToolCall | InvalidCall:
    properties = {"file_path": {"type": "string"}, "limit": {"type": "integer"}, "x": {"type": "integer"}}
    tool = Tool(name="files__f", input_schema={"type": "object", "properties": properties, "required": ["x"]})
    raw = RawCall(index=0, name=name, arguments=tuple(RawArgument(name=key, text=text) for key, text in arguments))
    return bind(raw, [tool])


def test_names_are_mended_with_a_repair() -> None:
    call = call_of(("filePath", "a"), ("x", "1"))
    assert isinstance(call, ToolCall)
    assert call.name == "files__f"
    assert call.arguments == {"file_path": "a", "x": 1}
    assert [repair.code for repair in call.repairs] == ["tool-name", "parameter-name"]


def test_a_name_that_was_given_is_not_meant_by_another() -> None:
    call = call_of(("filePath", "a"), ("file_path", "b"), ("x", "1"))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"filePath": "a", "file_path": "b", "x": 1}


def test_an_empty_optional_value_is_absent_and_an_empty_required_one_an_issue() -> None:
    call = call_of(("limit", " \n"), ("x", "1"))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"x": 1}
    assert [repair.code for repair in call.repairs if repair.path] == ["empty-argument"]
    empty = call_of(("x", ""))
    assert isinstance(empty, InvalidCall)
    assert [issue.code for issue in empty.issues] == ["wrong-type"]


def test_equal_repetitions_are_one() -> None:
    call = call_of(("x", "1"), ("x", "1.0"))
    assert isinstance(call, ToolCall)
    assert "repeated-argument" in {repair.code for repair in call.repairs}
    different = call_of(("x", "1"), ("x", "2"))
    assert isinstance(different, InvalidCall)
    assert [issue.code for issue in different.issues] == ["duplicate-argument"]
