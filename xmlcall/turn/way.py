"""Mode `auto`: from what a check of the server's own function calling found to the way in which tools are offered, and why."""

from dataclasses import dataclass
from typing import Final, Literal

from ..types.calls import Message, Tool

_INTEGER: Final = {"type": "integer"}
TRIAL_TOOL: Final = Tool(
    name="multiply",
    description="Multiply two integers.",
    input_schema={"type": "object", "properties": {"a": _INTEGER, "b": _INTEGER}, "required": ["a", "b"]},
)
TRIAL_QUESTION: Final = Message(role="user", content="What is 1234 times 5678? Use the tool.")
TRIAL_ARGUMENTS: Final = {"a": 1234, "b": 5678}
TRIAL_TOKENS: Final = 128

Finding = Literal["called", "leaked", "wrong", "no_call", "unread", "refused", "slow", "no_tools"]
"""The answer to one small question with one tool.

The right call; the right call, but in the text; another call; none; a reply that the server could not read; a refusal; nothing in
time. Or the question was not put, because the server says that the model's template has no tools.
"""

REASONS: Final[dict[Finding, str]] = {
    "called": "the server's own function calling gave the right call",
    "leaked": "the server left the call in the text",
    "wrong": "the server's own function calling gave a wrong call",
    "no_call": "the server's own function calling gave no call",
    "unread": "the server could not read the call that its model wrote",
    "refused": "the server takes no tools for this model",
    "slow": "the server did not answer the check in time",
    "no_tools": "the model's template has no tools",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How tools are offered, and the finding that decided it; None if it was set."""

    mode: Literal["xml", "native", "native-only"]
    finding: Finding | None = None

    @property
    def reason(self) -> str:
        """Why, in a clause."""
        return REASONS[self.finding] if self.finding else "as set"


def choose_way(finding: Finding) -> Way:
    """Choose the server's own function calling only where it gave the right call: the prompt works with any server."""
    return Way(mode="native" if finding == "called" else "xml", finding=finding)
