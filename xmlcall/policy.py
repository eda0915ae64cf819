"""Who may run what. A policy is asked about every call before it runs; what it does not allow does not run.

A policy is an async function from Proposal to Decision, so it may ask a person. Globs match `server.tool`, the server's name as
configured and the tool's own name, never the name that a model sees. Tool annotations are hints of an untrusted server (MCP
2026-07-28, tools: MUST) and decide nothing here.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from .references import nodes
from .types import InvalidCall, Issue, Tool, ToolCall

__all__ = ["Decision", "Policy", "Proposal", "allow", "echo_of", "words_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A valid call that is about to run.

    Args:
        call: with its arguments.
        tool: as offered to the model.
        host: the server's name.
        host_tool: the tool's own name there.
        times_in_a_row: how often this call was made with these arguments, this time included, and no other in between.
    """

    call: ToolCall
    tool: Tool
    host: str
    host_tool: str
    times_in_a_row: int = 1

    @property
    def target(self) -> str:
        """What globs match: `server.tool`."""
        return f"{self.host}.{self.host_tool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a call may run, and if not, why; the reason is told to the model."""

    allowed: bool
    reason: str = ""


Policy = Callable[[Proposal], Awaitable[Decision]]


async def _deny(proposal: Proposal) -> Decision:
    return Decision(allowed=False, reason="The person has not allowed this tool.")


def allow(patterns: Iterable[str], otherwise: Policy = _deny) -> Policy:
    """Make a policy that allows what a glob matches.

    Args:
        patterns: globs over `server.tool`, for example `files.read_*` or `*`.
        otherwise: asked about everything else; by default it is denied.
    """
    globs = tuple(patterns)

    async def decide(proposal: Proposal) -> Decision:
        if any(fnmatch.fnmatchcase(proposal.target, glob) for glob in globs):
            return Decision(allowed=True)
        return await otherwise(proposal)

    return decide


def echo_of(call: ToolCall | InvalidCall, sources: Iterable[str]) -> InvalidCall | None:
    """Find a call that only repeats what somebody else wrote.

    Whoever can put text before the model (a person quoting, a web page in a tool's result, a server's description) could put a
    call there; a model that copies it must not run it. The comparison is by characters; `&lt;` counts as `<`, because results are
    shown to the model with their tags made inert.

    Args:
        call: what the model wrote.
        sources: texts by the person, tools and servers; not our own prompt.

    Returns:
        The call as an InvalidCall with the issue `echo`, or None.
    """
    written = call.raw.text
    if not written or not any(written in source.replace("&lt;", "<") for source in sources):
        return None
    message = "This call repeats text from the conversation. If you mean it, write it in your own words."
    return InvalidCall(id=call.id, name=call.name, issues=(Issue(code="echo", message=message),), raw=call.raw)


def words_of(tool: Tool) -> str:
    """Return what a server says in the description of a tool: its own and those of its parameters, from which no call is copied.

    Args:
        tool: as a server lists it.
    """
    values = (value for node in nodes(tool.input_schema) for value in node.values())
    return "\n".join([tool.description, *(value for value in values if isinstance(value, str))])
