"""Values whose schema admits a string and something else: read by one rule, and marked by it when they are written."""

from typing import Any

import pytest

from xmlcall import ToolCall, UsageError, parse, render
from xmlcall.dialects import DIALECTS, Body

UNION = {"x": {"type": ["string", "integer", "null", "object"]}, "s": {"type": "string"}, "n": {"type": "integer"}}
TOOLS = [{"name": "f", "inputSchema": {"type": "object", "properties": UNION}}]
MARKED = [name for name, row in DIALECTS.items() if row.string_mark]
CANNOT = [name for name, row in DIALECTS.items() if row.body is Body.TAGS and not (row.string_mark or row.json_body)]


def written(arguments: dict[str, Any], dialect: str = "function_calls", tools: Any = TOOLS) -> str:
    return render([{"name": "f", "arguments": arguments}], tools, dialect=dialect)


TYPED: list[dict[str, Any]] = [{"x": "null"}, {"x": "5"}, {"x": '{"a": 1}'}, {"s": "null"}, {"undeclared": "5"}]
PLAIN = [{"x": "02134"}, {"x": "true"}, {"x": 5}, {"x": None}, {"x": {"a": 1}}, {"s": "nullable"}, {"n": 5}, {"undeclared": [1]}]


@pytest.mark.parametrize(("arguments", "mark"), [*((each, 'type="string"') for each in TYPED), *((each, "") for each in PLAIN)])
def test_a_type_is_written_only_where_the_text_would_be_read_otherwise(arguments: dict[str, Any], mark: str) -> None:
    text = written(arguments)
    assert ("type=" in text) == bool(mark)
    assert mark in text


def test_without_tools_every_text_is_a_string() -> None:
    assert 'type="json">5<' in written({"x": 5}, tools=())
    assert "type=" not in written({"x": "5"}, tools=())


@pytest.mark.parametrize("dialect", MARKED)
@pytest.mark.parametrize("value", ["null", "5", '{"a": 1}', " 5", "\n", "a\n", 5, None, {"a": "<b>"}])
def test_marks_are_honoured(dialect: str, value: Any) -> None:
    (call,) = parse(written({"x": value}, dialect), TOOLS).calls
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.repairs) == ({"x": value}, ())


@pytest.mark.parametrize("dialect", CANNOT)
def test_a_format_without_marks_refuses_what_it_cannot_carry(dialect: str) -> None:
    assert written({"x": 5}, dialect)
    with pytest.raises(UsageError, match="read back the same"):
        written({"x": "5"}, dialect)


def test_dsml_says_of_every_value_whether_it_is_a_string() -> None:
    text = written({"s": "a", "n": 5}, "dsml")
    assert 'name="s" string="true">a<' in text
    assert 'name="n" string="false">5<' in text


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("+5", 5)])
def test_a_string_where_none_is_admitted_is_converted_and_said(text: str, value: int) -> None:
    source = f'<function_calls><invoke name="f"><parameter name="n" type="string">{text}</parameter></invoke></function_calls>'
    (call,) = parse(source, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"n": value}
    assert call.repairs
