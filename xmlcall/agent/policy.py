"""Defines policies. A policy is asked about every call before it runs; a call that it does not allow does not run.

A policy is an async function from Proposal to Decision, so it can ask the user. `rules` makes policies from rules.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..types.calls import Message, Tool, ToolCall, ToolResult

RunBeside = Callable[[ToolCall, str, float | None], Awaitable[ToolResult]]


async def _cannot_run(call: ToolCall, by: str, timeout: float | None) -> ToolResult:
    return ToolResult.error("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A valid call that is about to run.

    Args:
        call: the call.
        tool: the tool, as offered to the model.
        host: the server's name.
        host_tool: the tool's own name there.
        times_in_a_row: how often this call was made with these arguments, including this time, without another call in between.
        conversation: the messages before the call, for `provenance`.
        server_of: maps the offered name of a tool ("" if a result does not name its tool) to its server's name; "" for none.
        described: returns the servers' descriptions of themselves and their tools, each with the server's name.
        beside: the offered tools of the same server, by their own names.
        run_beside: runs one of these tools without asking, because a policy may need more information to decide. It takes the
            call (with the tool's offered name), what allows it (for the record), and a timeout in seconds.
        unsaid: parameters whose values appear nowhere in the conversation (`binding.grounds`), although the model was asked to
            check them.
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
        allowed: whether it may run.
        reason: why not, in a sentence for the model; by default, that the user has not allowed it.
        arguments: arguments to run it with instead of the model's, which the model learns; None to keep the model's.
        by: who or what decided, for the record: `person`, or the rule, such as `allow files.read_* (xmlcall.toml)`.
    """

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    by: str = ""


Policy = Callable[[Proposal], Awaitable[Decision]]
"""Decides whether a call runs; it is asked once a call, before the call."""
