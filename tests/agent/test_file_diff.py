"""The difference in the question: of a file that a read tool of the same server shows, and of passages in the arguments."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from xmlcall import LocalHost, Message, ToolHostError, ToolLoop, render
from xmlcall.agent.asking_person import difference, file_change, passages
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.agent.rules import Rule, Rules
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.records.store import message_from_json, message_to_json
from xmlcall.types.calls import RawCall, Tool, ToolCall

ALLOWED = Rules(rules=(Rule(effect="allow", tools=("files.read_*",)),))
READS: list[str] = []


def read_file(path: str) -> str:
    """Read a file."""
    READS.append(path)
    if path == "gone.txt":
        raise ToolHostError("gone")
    return "one\ntwo\nthree"


def read_part(path: str, head: int | None = None) -> str:
    """Read a file."""
    return read_file(path)


read_part.__name__ = "read_file"


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return "written"


def edit_file(path: str) -> str:
    """Edit a file."""
    return "edited"


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
    assert difference("x" * 300_000, "y") == ["(300,000 characters become 1: too many to compare)"]
    assert difference("x" * 150_000, "y")[1] == f"-{'x' * 299}... (150,001 characters)"
    assert difference("-- a\n", "-- b\n")[1:3] == ["--- a", "+-- b"]  # no names of files, though they look so


NOTE = "(the old text is from an earlier {}: the file was not read again)"
NEW = ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]


def written(*calls: tuple[str, dict[str, Any]]) -> str:
    return render([{"name": name, "arguments": arguments} for name, arguments in calls])


READ, OTHER = ("read_file", {"path": "a.txt"}), ("read_file", {"path": "b.txt"})
WRITE = ("write_file", {"path": "a.txt", "content": "one\n2\nthree"})


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([written(READ), written(WRITE)], [NOTE.format("read_file"), *NEW]),
        ([written(OTHER, READ), written(WRITE)], [NOTE.format("read_file"), *NEW]),
        ([written(READ, WRITE)], []),  # its result is not in the conversation yet
        ([written(OTHER), written(WRITE)], []),
        ([written(("read_file", {"path": "a.txt", "head": 1})), written(WRITE)], []),  # a part of it
        ([written(READ), written(("edit_file", {"path": "a.txt"})), written(WRITE)], []),
        (
            [written(READ), written(("write_file", {"path": "a.txt", "content": "one\nzwei\nthree"})), written(WRITE)],
            [NOTE.format("write_file"), "@@ -1,3 +1,3 @@", " one", "-zwei", "+2", " three"],
        ),
        ([written(("read_file", {"path": "gone.txt"})), written(("write_file", {"path": "gone.txt", "content": "x"}))], []),
    ],
)
@pytest.mark.parametrize("dialect", ["function_calls", "hermes"])
async def test_what_the_conversation_has_shown_before(dialect: str, replies: list[str], expected: list[str]) -> None:
    shown: list[list[str]] = []

    async def policy(proposal: Proposal) -> Decision:
        if proposal.host_tool == "write_file":
            shown.append(await file_change(proposal, Rules()))
        return Decision(allowed=True)

    host = LocalHost([read_part, write_file, edit_file], name="files")
    async with ToolLoop(ScriptedBackend([*replies, "Done."]), [host], policy=policy, dialect=dialect) as loop:
        _ = [event async for event in loop.run([Message(role="user", content="Change two in a.txt, b.txt and gone.txt.")])]
    assert shown[-1] == expected


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (lambda message: message_from_json(message_to_json(message)), [NOTE.format("read_file"), *NEW]),
        (lambda message: replace(message, written=None), []),  # of another program: nobody reads calls out of its text
        (lambda message: replace(message, content=f"{message.content} "), []),
    ],
    ids=["stored", "foreign", "changed"],
)
async def test_what_a_conversation_that_is_gone_on_with_has_shown(
    keep: Callable[[Message], Message], expected: list[str]
) -> None:
    shown: list[list[str]] = []

    async def policy(proposal: Proposal) -> Decision:
        if proposal.host_tool == "write_file":
            shown.append(await file_change(proposal, Rules()))
        return Decision(allowed=True)

    host = LocalHost([read_part, write_file], name="files")
    async with ToolLoop(ScriptedBackend([written(READ), "Read.", written(WRITE), "Done."]), [host], policy=policy) as loop:
        before = (await loop.ask("Read a.txt.")).messages
        said = [keep(each) if each.role == "assistant" else each for each in before]
        _ = [event async for event in loop.run([*said, Message(role="user", content="Change two in a.txt.")])]
    assert shown == [expected]


async def test_what_native_calls_have_shown_before() -> None:
    def call(name: str, id: str, **arguments: Any) -> ToolCall:
        return ToolCall(id=id, name=name, arguments=arguments, raw=RawCall(index=0, name=name))

    tools = {name: Tool(name=f"files__{name}") for name in ("read_file", "write_file")}
    said = [
        Message(role="assistant", content="", tool_calls=(call("files__read_file", "c1", path="a"),)),
        Message(role="tool", content="one", tool_call_id="c1"),
    ]
    new = call("files__write_file", "c2", path="a", content="two")
    proposal = Proposal(call=new, tool=tools["write_file"], host="files", host_tool="write_file", conversation=said, beside=tools)
    assert await file_change(proposal, Rules()) == [NOTE.format("read_file"), "@@ -1 +1 @@", "-one", "+two"]
