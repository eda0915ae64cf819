"""What a person sees of a result, of a decision, and of a tool that its server calls destructive."""

from typing import Any

import pytest

from xmlcall import ToolNeed
from xmlcall.agent.policy import Proposal
from xmlcall.cli.display import Display
from xmlcall.proxy.formats.contract import call_of
from xmlcall.turn.events import CallFinished
from xmlcall.types.calls import TextContent, Tool, ToolCall, ToolResult
from xmlcall.types.completion import Usage


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


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        ({"log_odds": -9.0}, "needs no tool"),
        ({"log_odds": 1.0, "tool": "remove"}, "needs the tool remove"),
        ({"log_odds": 1.0}, "needs a tool"),
        ({"log_odds": 1.0, "fits": False}, "every tool changes something"),
        ({"log_odds": -9.0, "fits": False}, "needs no tool"),
    ],
)
async def test_why_a_tool_is_called_or_none(decided: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Display(live=False, verbose=True).show(ToolNeed(threshold=2.0, usage=Usage(), **decided))
    assert words in capsys.readouterr().err
