"""What a tool asks of several parameters together is shown, and told where a call breaks it (unions.toml)."""

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from xmlcall import Catalog, InvalidCall, Tool, parse, render, system_prompt
from xmlcall.prompting.format import FAMILIES
from xmlcall.prompting.results import feedback
from xmlcall.tools.outline import example_arguments, parameters_of, rules_for

CASES = {case["name"]: case for case in tomllib.loads(Path(__file__).with_name("unions.toml").read_text("utf-8"))["case"]}
TOLD = [(name, told) for name, case in CASES.items() for told in case["told"]]


def tool_of(name: str) -> Tool:
    return Tool(name=name, input_schema=CASES[name]["schema"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CASES)
def test_alternatives_are_shown(name: str, family: str) -> None:
    lines = system_prompt([tool_of(name)], family=family).splitlines()
    if family != "schema":  # which shows the schema itself
        assert [line for line in CASES[name]["shown"] if line not in lines] == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "example" in case])
def test_the_example_is_a_right_call(name: str) -> None:
    arguments = example_arguments(tool_of(name))
    assert arguments == CASES[name]["example"] or not CASES[name]["example"]
    if name != "goes_with":  # its first parameter alone
        assert render([{"name": name, "arguments": arguments}], [tool_of(name)])


@pytest.mark.parametrize(("name", "told"), TOLD)
def test_a_wrong_call_is_told_what_would_be_right(name: str, told: dict[str, Any]) -> None:
    tools = Catalog([tool_of(name)])
    parameters = "".join(f'<parameter name="{key}">{written(value)}</parameter>' for key, value in told["call"].items())
    (call,) = parse(f'<function_calls><invoke name="{name}">{parameters}</invoke></function_calls>', tools).calls
    assert isinstance(call, InvalidCall)
    assert [issue.message for issue in call.issues] == told["issues"]
    text = feedback(call, tools)
    again = {key: f'<parameter name="{key}">{written(value)}</parameter>' for key, value in told.get("again", {}).items()}
    assert [line for line in text.splitlines() if line.startswith("<parameter ")] == list(again.values())


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def bomb(width: int, key: str) -> dict[str, Any]:
    """Make a schema whose alternatives have alternatives, each of which leads to all others."""
    defs: dict[str, Any] = {f"d{place}": {key: [{"$ref": f"#/$defs/d{place + 1}"} for _ in range(width)]} for place in range(8)}
    defs["d8"] = {"properties": {"a": {"const": 1}}, "required": ["a"]}
    return {"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": defs}


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_a_hostile_union_ends(key: str) -> None:
    many = {"type": "object", key: [{"properties": {f"n{i}": {"const": i}}, "required": [f"n{i}"]} for i in range(3000)]}
    for schema in (bomb(12, key), many):
        start = time.perf_counter()
        tool = Tool(name="f", input_schema=schema)
        assert parameters_of(tool)
        assert len(rules_for(tool)) <= 16
        assert time.perf_counter() - start < 5
