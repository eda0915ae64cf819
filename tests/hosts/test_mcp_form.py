"""The forms of servers: what stands on them, what typed text means there, and that nothing else is sent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall.hosts.mcp.server_requests import Field, FormProblem, fields, problems, read, with_defaults
from xmlcall.types.calls import MISSING

RED = [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]


def field(required: bool = False, **schema: Any) -> Field:
    return fields({"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []})[0]


STRING, NUMBER, INTEGER, BOOLEAN = ({"type": kind} for kind in ("string", "number", "integer", "boolean"))
ONE = {"type": "string", "oneOf": RED}
LEGACY = {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}
SEVERAL = {"type": "array", "items": {"anyOf": RED}, "maxItems": 1}
NUMBERED = {"type": "string", "enum": ["2", "1"]}

READ = [
    (STRING, " Ada ", "Ada"),
    (STRING, "", MISSING),
    (STRING | {"default": "Oslo"}, "", "Oslo"),
    (STRING | {"format": "email"}, "a@b.c", "a@b.c"),
    (STRING | {"format": "uri"}, "urn:x", "urn:x"),
    (STRING | {"format": "date"}, "2026-02-28", "2026-02-28"),
    (STRING | {"format": "date-time"}, "2026-02-28T10:00:00Z", "2026-02-28T10:00:00Z"),
    (NUMBER, "2.5", 2.5),
    (NUMBER | {"default": 0}, "", 0),
    (INTEGER, "3", 3),
    (INTEGER, "3.0", 3),
    (BOOLEAN, "Yes", True),
    (BOOLEAN, "否", False),
    (BOOLEAN | {"default": False}, "", False),
    (ONE, "#00f", "#00f"),
    (ONE, "blue", "#00f"),
    (ONE, "2", "#00f"),
    (LEGACY, "second", "b"),
    (NUMBERED, "2", "2"),
    (NUMBERED, "1", "1"),
    (SEVERAL, "red", ["#f00"]),
    (SEVERAL, "red, 1", ["#f00"]),
    (SEVERAL | {"default": ["#00f"]}, "", ["#00f"]),
]
REFUSED = [
    (STRING | {"minLength": 2}, "A", "length at least 2"),
    (STRING | {"maxLength": 2}, "Ada", "length at most 2"),
    (STRING | {"format": "email"}, "a at b", "format email"),
    (STRING | {"format": "uri"}, "nothing", "expected the format uri"),
    (STRING | {"format": "date"}, "2026-02-30", "format date"),
    (STRING | {"format": "date"}, "20260228", "format date"),
    (STRING | {"format": "date-time"}, "2026-02-28T10:00:00", "expected the format date-time"),
    (NUMBER, "many", "expected a number, got 'many'"),
    (NUMBER, "true", "expected a number"),
    (NUMBER, "1e999", "expected a number"),
    (NUMBER, "NaN", "expected a number"),
    (NUMBER, "[" * 100_000, "expected a number"),
    (NUMBER, "9" * 10_000, "expected a number"),
    (NUMBER | {"maximum": 3}, "4", "at most 3"),
    (INTEGER, "2.5", "Expected integer"),
    (BOOLEAN, "maybe", "expected yes or no"),
    (ONE, "3", "expected one of the 2 choices or its number, got '3'"),
    (ONE, "0", "expected one of the 2 choices"),
    (SEVERAL, "red, green", "expected one of the 2 choices"),
    (SEVERAL, "red, blue", "length at most 1"),
]


@pytest.mark.parametrize(("schema", "text", "value"), READ)
def test_what_is_typed_is_read(schema: dict[str, Any], text: str, value: Any) -> None:
    got = read(field(**schema), text)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(("schema", "text", "told"), REFUSED)
def test_what_is_no_answer_is_told(schema: dict[str, Any], text: str, told: str) -> None:
    with pytest.raises(FormProblem) as caught:
        read(field(**schema), text)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_required_field_wants_a_value_or_has_a_default() -> None:
    with pytest.raises(FormProblem, match="this one is required"):
        read(field(required=True, **STRING), " ")
    assert read(field(required=True, default="x", **STRING), "") == "x"


def test_defaults_fill_in_what_is_missing() -> None:
    schema = {"properties": {"a": STRING | {"default": "x"}, "b": BOOLEAN | {"default": False}, "c": STRING}}
    assert with_defaults(schema, {"a": "y"}) == {"a": "y", "b": False}


def test_a_form_of_which_nothing_can_be_made_is_no_form() -> None:
    for schema in ({}, {"properties": 3}, {"properties": {"a": 3, "b": []}}):
        assert fields(schema) == ()
    assert "nested deeper" in problems(json.loads('{"properties":{"a":' * 200 + "{}" + "}}" * 200), {})[0]
    odd = {"a": {}, "b": {"type": ["string"]}, "c": {"type": "object"}}
    assert [each.kind for each in fields({"properties": odd})] == ["text"] * 3


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "number", "integer", "boolean", "array"]) | ANY},
    optional={"enum": ANY, "enumNames": ANY, "oneOf": ANY, "items": ANY, "default": ANY, "format": ANY, "minLength": ANY},
)


@given(schema=SCHEMAS, text=st.text(max_size=20))
def test_a_hostile_field_gives_a_value_that_fits_or_a_problem(schema: dict[str, Any], text: str) -> None:
    one = field(**schema)
    try:
        value = read(one, text)
    except FormProblem:
        return
    if text.strip():
        assert problems({"properties": {"x": schema}}, {"x": value}) == ()
