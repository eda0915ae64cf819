"""Who may run what. A policy is asked about every call before it runs; what it does not allow does not run.

A policy is an async function from Proposal to Decision, so it may ask a person. `rules` makes policies of rules.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..types.calls import Message, Tool, ToolCall, ToolResult

__all__ = ["Decision", "Policy", "Proposal"]


RunBeside = Callable[[ToolCall, str, float | None], Awaitable[ToolResult]]


async def _cannot_run(call: ToolCall, by: str, timeout: float | None) -> ToolResult:
    return ToolResult.error("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A valid call that is about to run.

    Args:
        call: with its arguments.
        tool: as offered to the model.
        host: the server's name.
        host_tool: the tool's own name there.
        times_in_a_row: how often this call was made with these arguments, this time included, and no other in between.
        conversation: what the model was given and said before the call, for `provenance`.
        server_of: name of a tool, as offered, or "" where a result does not name its tool -> its server's name; "" for none.
        described: gives what servers say of themselves and of their tools, each text with the server's name.
        beside: the tools of the same server as offered, by their own names.
        run_beside: runs one of them, without asking: a policy may have to see more before it decides. It takes the call, by the
            tool's offered name, what allows it, for the record, and seconds.
        unsaid: parameters whose values nobody said (`binding.grounds`), although the model was told.
    """

    call: ToolCall
    tool: Tool
    host: str
    host_tool: str
    times_in_a_row: int = 1
    conversation: Sequence[Message] = ()
    server_of: Callable[[str], str] = field(default=lambda name: "")
    described: Callable[[], Iterable[tuple[str, str]]] = tuple
    beside: Mapping[str, Tool] = field(default_factory=dict)
    run_beside: RunBeside = _cannot_run
    unsaid: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """What globs match: `server.tool`."""
        return f"{self.host}.{self.host_tool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a call may run.

    Args:
        allowed: it may.
        reason: why not, in a sentence for the model; by default that the person has not allowed it.
        arguments: with which it runs in place of the model's, which is told of that; None for the model's.
        by: who or what decided, for the record: `person`, or the rule, such as `allow files.read_* (xmlcall.toml)`.
    """

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    by: str = ""


Policy = Callable[[Proposal], Awaitable[Decision]]
