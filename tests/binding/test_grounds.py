"""Which values of a call nobody said: cases as data."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from xmlcall.binding.grounds import Said, groundless
from xmlcall.types.tool import Tool

CASES = tomllib.loads(Path(__file__).with_name("grounds.toml").read_text(encoding="utf-8"))["case"]
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    schemas = {name: {"type": TYPES[type(value)]} for name, value in case["arguments"].items()} | case.get("schema", {})
    required = [name for name, schema in schemas.items() if not schema.get("optional")]
    tool = Tool(name="do", input_schema={"type": "object", "properties": schemas, "required": required})
    assert list(groundless(case["arguments"], tool, Said(case["said"]))) == case.get("made_up", [])
