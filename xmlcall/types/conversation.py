"""What a message was written from: nobody has to read that out of its text."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["ToolReply", "Written", "WrittenCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """Where a message says what came of a call.

    Args:
        name: of the tool; "" where that is not known.
        start: offset at which the text begins.
        end: offset after it.
        is_error: the call failed, or could not run.
        is_ended: the text has its closing mark; only what somebody else wrote may lack it.
        is_named: the message says the name.
    """

    name: str
    start: int
    end: int
    is_error: bool = False
    is_ended: bool = True
    is_named: bool = True

    def text_in(self, content: str) -> str:
        """Return the text, out of that of the message."""
        return content[self.start : self.end]

    def moved(self, by: int) -> "ToolReply":
        """Return it for a message with so many more characters before it."""
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call that stands in a message's text; one that cannot run has no arguments."""

    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The calls in a text, or what came of calls, in order; of another text it says nothing."""

    text: str
    replies: tuple[ToolReply, ...] = ()
    calls: tuple[WrittenCall, ...] = ()
