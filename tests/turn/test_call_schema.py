"""The schema of a call admits the calls of the tool, and no others."""

from typing import Any

import jsonschema
import pytest

from xmlcall import Catalog
from xmlcall.turn.native import call_schema

TREE = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["label"],
    "additionalProperties": False,
}
REFERRING = {"type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}
ROOTED = {"type": "object", "properties": {"a": {"$ref": "#"}, "n": {"type": "integer"}}, "additionalProperties": False}
PLAIN = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (PLAIN, [{"a": 1}], [{}, {"a": "1"}]),
        (REFERRING, [{"a": {"label": "x", "below": [{"label": "y"}]}}], [{"a": {"label": 5}}, {"a": {"label": "x", "below": 1}}]),
        (ROOTED, [{}, {"a": {"a": {"n": 1}}}], [{"a": {"a": {"n": "1"}}}, {"b": 1}]),
    ],
    ids=["plain", "with definitions", "of itself"],
)
def test_a_call_of_the_tool_is_valid(schema: dict[str, Any], right: list[Any], wrong: list[Any]) -> None:
    tool = Catalog([{"name": "f", "inputSchema": schema}]).get("f")
    assert tool
    validator = jsonschema.Draft202012Validator(call_schema(tool))
    assert [arguments for arguments in right if not validator.is_valid({"name": "f", "arguments": arguments})] == []
    assert [arguments for arguments in wrong if validator.is_valid({"name": "f", "arguments": arguments})] == []
    assert not validator.is_valid({"name": "g", "arguments": right[0]})
    assert not validator.is_valid({"name": "f"})
