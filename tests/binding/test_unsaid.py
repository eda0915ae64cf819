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
ANY = Tool(name="trip", input_schema={"type": "object", "properties": {"to": True, "via": {"enum": ["none", "Rome"]}}})


def bound(text: str, tool: Tool = TRIP, unsaid: str = "none") -> ToolCall | InvalidCall:
    (call,) = parse(text, [tool]).calls
    (event,) = Binder(catalog=Catalog([tool]), unsaid=unsaid).bound([ToolCallEnd(raw=call.raw, span=call.raw.span)])
    assert isinstance(event, ToolCallEnd)
    assert event.call is not None
    assert event.call.raw is call.raw, "the call is kept as it was written"
    return event.call


def trip(**values: str) -> str:
    body = "".join(f'<parameter name="{name}">{value}</parameter>' for name, value in values.items())
    return f'<function_calls><invoke name="trip">{body}</invoke></function_calls>'


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param(trip(to="Rome", via="none", seats="None", stops=" none\n"), {"to": "Rome"}, id="left out"),
        pytest.param(trip(to="none"), {"to": "none"}, id="required"),
        pytest.param(trip(to="Rome", meal="none"), {"to": "Rome", "meal": "none"}, id="a value of the enum"),
        pytest.param(trip(**{"to": "Rome", "class": "None"}), {"to": "Rome", "class": "None"}, id="the default itself"),
        pytest.param(trip(to="Rome", via="none at all"), {"to": "Rome", "via": "none at all"}, id="more than the word"),
        pytest.param(
            '<tool_call>\n{"name": "trip", "arguments": {"to": "Rome", "via": null, "seats": "none"}}\n</tool_call>',
            {"to": "Rome"},
            id="null in JSON",
        ),
    ],
)
def test_what_is_left_out(text: str, arguments: dict[str, Any]) -> None:
    call = bound(text)
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


def test_without_such_a_prompt_the_word_is_a_value() -> None:
    call = bound(trip(to="Rome", via="none"), unsaid="")
    assert isinstance(call, ToolCall)
    assert call.arguments == {"to": "Rome", "via": "none"}


def test_a_parameter_that_admits_anything_lists_no_word() -> None:
    call = bound('<tool_call>\n{"name": "trip", "arguments": {"to": "none", "via": "none"}}\n</tool_call>', ANY)
    assert isinstance(call, ToolCall)
    assert call.arguments == {"via": "none"}


def test_a_tool_that_is_unknown_is_left_to_the_binding() -> None:
    call = bound(trip(to="none").replace("trip", "fly"))
    assert isinstance(call, InvalidCall)
    assert [issue.code for issue in call.issues] == ["unknown-tool"]
