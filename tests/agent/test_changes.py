"""The difference in the question: of a file that a read tool of the same server shows, and of passages in the arguments."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from xmlcall import LocalHost, Message, ToolHostError, ToolLoop, render
from xmlcall.agent.changes import difference, file_change, passages
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.agent.rules import Rule, Rules
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.types.tool import Tool

ALLOWED = Rules(rules=(Rule(effect="allow", tools=("files.read_*",)),))
READS: list[str] = []


def read_file(path: str) -> str:
    """Read a file."""
    READS.append(path)
    if path == "gone.txt":
        raise ToolHostError("gone")
    return "one\ntwo\nthree"


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return "written"


class Files(LocalHost):
    """A server whose read tool says that it reads, or does not."""

    hints: Mapping[str, Any] | None = None

    async def tools(self) -> tuple[Tool, ...]:
        return tuple(replace(tool, annotations=self.hints if tool.name == "read_file" else None) for tool in self._tools)


@pytest.mark.parametrize(
    ("path", "rules", "hints", "expected"),
    [
        ("a.txt", ALLOWED, {"readOnlyHint": True}, ["@@ -1,3 +1,3 @@", " one", "-two", "+2\u202e", " three"]),
        ("a.txt", Rules(), {"readOnlyHint": True}, []),
        ("a.txt", ALLOWED, {}, []),
        ("gone.txt", ALLOWED, {"readOnlyHint": True}, []),
    ],
)
async def test_a_file_that_is_written(path: str, rules: Rules, hints: dict[str, Any], expected: list[str]) -> None:
    shown: list[list[str]] = []
    READS.clear()

    async def policy(proposal: Proposal) -> Decision:
        shown.append(await file_change(proposal, rules))
        return Decision(allowed=False)

    host = Files([read_file, write_file], name="files")
    host.hints = hints
    reply = render([{"name": "write_file", "arguments": {"path": path, "content": "one\n2\u202e\nthree"}}])
    async with ToolLoop(ScriptedBackend([reply, "Done."]), [host], policy=policy) as loop:
        _ = [event async for event in loop.run([Message(role="user", content=f"Change two in {path}.")])]
    assert shown == [expected]
    assert bool(READS) is (bool(expected) or path == "gone.txt")


def test_passages_that_are_replaced() -> None:
    edit = {"oldText": "a\nb", "newText": "a\nc"}
    rows = ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]
    assert passages({"path": "x", "edits": [edit, edit]}) == rows * 2
    assert passages({"path": "x", "old_str": "b", "new_str": "c"}) == ["@@ -1 +1 @@", "-b", "+c"]
    assert passages({"path": "x", "oldText": 1, "newText": "c"}) == []


def test_a_difference_is_bounded() -> None:
    assert difference("x\n" * 900, "y\n" * 900)[-1] == "... (1742 more rows)"
    assert difference("x\n" * 5000, "y") == ["(5,001 lines become 1: too many to compare)"]
    assert difference("x", "x") == []
