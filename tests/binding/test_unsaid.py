"""Where a prompt asks for every parameter, a word stands for those of which the request says nothing."""

from typing import Any

import pytest

from xmlcall import Catalog, InvalidCall, Tool, ToolCall, parse
from xmlcall.turn.generate import Binder
from xmlcall.types.events import ToolCallEnd

TRIP = Tool(
    name="trip",
    input_schema={
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "via": {"type": "string"},
            "seats": {"type": "integer"},
            "meal": {"enum": ["none", "vegan"]},
            "class": {"type": "string", "default": "None"},
            "stops": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["to"],
    },
)


def bound(unsaid: str, **values: str) -> ToolCall | InvalidCall:
    body = "".join(f'<parameter name="{name}">{value}</parameter>' for name, value in values.items())
    catalog = Catalog([TRIP])
    reply = parse(f'<function_calls><invoke name="trip">{body}</invoke></function_calls>', [TRIP])
    (call,) = reply.calls
    (event,) = Binder(catalog=catalog, unsaid=unsaid).bound([ToolCallEnd(raw=call.raw, span=call.raw.span)])
    assert isinstance(event, ToolCallEnd)
    assert event.call is not None
    assert event.call.raw is call.raw, "the call is kept as it was written"
    return event.call


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        pytest.param({"to": "Rome", "via": "none", "seats": "None", "stops": " none\n"}, {"to": "Rome"}, id="left out"),
        pytest.param({"to": "none"}, {"to": "none"}, id="required"),
        pytest.param({"to": "Rome", "meal": "none"}, {"to": "Rome", "meal": "none"}, id="a value of the enum"),
        pytest.param({"to": "Rome", "class": "None"}, {"to": "Rome", "class": "None"}, id="the default itself"),
        pytest.param({"to": "Rome", "via": "none at all"}, {"to": "Rome", "via": "none at all"}, id="more than the word"),
    ],
)
def test_what_is_left_out(values: dict[str, str], arguments: dict[str, Any]) -> None:
    call = bound("none", **values)
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


def test_without_such_a_prompt_the_word_is_a_value() -> None:
    call = bound("", to="Rome", via="none")
    assert isinstance(call, ToolCall)
    assert call.arguments == {"to": "Rome", "via": "none"}


def test_a_tool_that_is_unknown_is_left_to_the_binding() -> None:
    (call,) = parse(
        '<function_calls><invoke name="fly"><parameter name="x">none</parameter></invoke></function_calls>', [TRIP]
    ).calls
    (event,) = Binder(catalog=Catalog([TRIP]), unsaid="none").bound([ToolCallEnd(raw=call.raw, span=call.raw.span)])
    assert isinstance(event, ToolCallEnd)
    assert isinstance(event.call, InvalidCall)
    assert [issue.code for issue in event.call.issues] == ["unknown-tool"]


def test_null_in_json_says_nothing() -> None:
    text = '<tool_call>\n{"name": "trip", "arguments": {"to": "Rome", "via": null, "seats": "none"}}\n</tool_call>'
    (call,) = parse(text, [TRIP], dialect="hermes").calls
    (event,) = Binder(catalog=Catalog([TRIP]), unsaid="none").bound([ToolCallEnd(raw=call.raw, span=call.raw.span)])
    assert isinstance(event, ToolCallEnd)
    assert isinstance(event.call, ToolCall)
    assert event.call.arguments == {"to": "Rome"}


def test_a_parameter_that_admits_anything_lists_no_word() -> None:
    tool = Tool(name="trip", input_schema={"type": "object", "properties": {"to": True, "via": {"enum": ["none", "Rome"]}}})
    text = '{"name": "trip", "arguments": {"to": "none", "via": "none"}}'
    (call,) = parse(f"<tool_call>\n{text}\n</tool_call>", [tool], dialect="hermes").calls
    (event,) = Binder(catalog=Catalog([tool]), unsaid="none").bound([ToolCallEnd(raw=call.raw, span=call.raw.span)])
    assert isinstance(event, ToolCallEnd)
    assert isinstance(event.call, ToolCall)
    assert event.call.arguments == {"via": "none"}
