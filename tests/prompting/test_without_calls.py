"""A conversation without its calls."""

import pytest

from xmlcall.prompting.results import results
from xmlcall.prompting.writer import without_calls
from xmlcall.types.calls import Message, RawCall, TextContent, ToolCall, ToolResult


def said(role: str, content: str) -> Message:
    return Message(role=role, content=content)  # type: ignore[arg-type]


def told(*texts: str) -> str:
    """A message of results, as a model gets it."""
    answered = [
        (
            ToolCall(id=str(n), name="look", arguments={}, raw=RawCall(index=n, name="look")),
            ToolResult(content=(TextContent(text=t),)),
        )
        for n, t in enumerate(texts)
    ]
    return results(answered).content


HELLO = [said("user", "Hi"), said("assistant", "Hello.")]
ASKED = said("user", "Where is it?")
CALLED = said("assistant", "<function_calls>...</function_calls>")
FOUND = [said("user", "Where is it?\n\n(look: in Rome)")]
END = [said("assistant", "In Rome."), said("user", "Thanks")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([*HELLO, said("user", "Bye")], [*HELLO, said("user", "Bye")]),
        ([ASKED, CALLED, said("user", told("in Rome")), *END], [*FOUND, *END]),
        ([ASKED, CALLED, Message(role="tool", name="look", content="in Rome"), *END], [*FOUND, *END]),
        ([*HELLO, ASKED, CALLED, said("user", told("in Rome")), *END], [*HELLO, *FOUND, *END]),
        (
            [ASKED, CALLED, said("user", told("a", "b")), CALLED, said("user", told("c")), *END],
            [said("user", "Where is it?\n\n(look: a)\n\n(look: b)\n\n(look: c)"), *END],
        ),
        ([Message(role="tool", content="x"), said("user", "Hi")], [Message(role="tool", content="x"), said("user", "Hi")]),
    ],
    ids=["no call", "a call", "a result of its own", "after talk", "several", "nobody asked"],
)
def test_calls_are_left_out(before: list[Message], after: list[Message]) -> None:
    assert list(without_calls(before)) == after
