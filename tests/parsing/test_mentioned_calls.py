"""A call that a sentence mentions runs in no format, whole or in pieces; one at the end of a sentence does."""

import pytest

from xmlcall import InvalidCall, Parser, ToolCall, bind, parse, render
from xmlcall.dialects import DIALECTS
from xmlcall.types.events import ToolCallEnd

TOOLS = [{"name": "get_weather", "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
BARE = ("json", "pythonic", "tool_code", "react")  # calls only at the start of a line


def written(dialect: str) -> str:
    return render([{"name": "get_weather", "arguments": {"city": "Rome"}}], TOOLS, dialect=dialect).strip()


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in BARE])
def test_in_a_sentence(dialect: str) -> None:
    text = f"The format is {written(dialect)}, as told."
    parser, ends = Parser(TOOLS), list[ToolCallEnd]()
    for event in [event for each in text for event in parser.feed(each)] + parser.close():
        ends += [event] if isinstance(event, ToolCallEnd) else []
    assert ends
    for call in [*parse(text, TOOLS).calls, *(bind(end.raw, TOOLS) for end in ends)]:
        assert isinstance(call, InvalidCall)
        assert call.issues[0].code == "mentioned-call"


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in BARE])
def test_at_the_end_of_a_sentence(dialect: str) -> None:
    [call] = parse(f"I call {written(dialect)}", TOOLS).calls
    assert isinstance(call, ToolCall)


@pytest.mark.parametrize("dialect", BARE)
def test_formats_of_their_own_line(dialect: str) -> None:
    assert not any(isinstance(call, ToolCall) for call in parse(f"The format is {written(dialect)}, as told.", TOOLS).calls)


RESULTS = [
    "<tool_response>\n{}\n</tool_response>",
    "<function_results>\n{}",
    "<|observation|>\n{}",
    "[TOOL_RESULTS]{}[/TOOL_RESULTS]",
]
RESULTS += ["I look.\n<tool_result>{}</tool_result>", "<|start|>functions.f to=assistant<|message|>{}"]


@pytest.mark.parametrize("result", RESULTS)
def test_in_a_result_that_the_model_invented(result: str) -> None:
    [call] = parse(result.format(written("hermes")), TOOLS).calls
    assert isinstance(call, InvalidCall)
    assert [issue.code for issue in call.issues] == ["mentioned-call"]
