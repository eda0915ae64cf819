"""What a person sees of a result, and of a tool that its server calls destructive."""

import pytest

from xmlcall.agent.policy import Proposal
from xmlcall.cli.display import Display
from xmlcall.proxy.formats.bodies import call_of
from xmlcall.turn.events import CallFinished
from xmlcall.types.calls import TextContent, Tool, ToolCall, ToolResult


def call() -> ToolCall:
    made = call_of("1", "remove", {}, 0)
    assert isinstance(made, ToolCall)
    return made


def test_what_is_for_the_model_alone_is_not_shown_as_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    content = (TextContent(text="for me", audience=("user",)), TextContent(text="for the model", audience=("assistant",)))
    Display(live=False).show(CallFinished(call=call(), result=ToolResult(content=content)))
    shown = capsys.readouterr().err
    assert "for me" in shown
    assert "for the model" not in shown


@pytest.mark.parametrize(
    ("hints", "warns"), [({"destructiveHint": True}, True), ({"destructiveHint": "yes"}, False), (None, False)]
)
def test_the_question_names_the_title_and_says_what_may_be_destroyed(
    hints: dict[str, object] | None, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = Tool(name="remove", title="Remove a file", annotations=hints)
    Display(live=False).proposal(Proposal(call=call(), tool=tool, host="files", host_tool="remove"))
    shown = capsys.readouterr().err
    assert "files.remove (Remove a file)" in shown
    assert ("may destroy" in shown) is warns
