"""Who may run what. A policy is asked about every call before it runs; what it does not allow does not run.

A policy is an async function from Proposal to Decision, so it may ask a person. Globs match `server.tool`, the server's name as
configured and the tool's own name, never the name that a model sees. Tool annotations are hints of an untrusted server (MCP
2026-07-28, tools: MUST): they allow nothing here, and only spare an allowed tool the question of `flows`.
"""

import fnmatch
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..binding.provenance import provenance
from ..types.calls import Message, Tool, ToolCall

__all__ = ["Decision", "Policy", "Proposal", "allow", "flows", "matches"]


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
    """

    call: ToolCall
    tool: Tool
    host: str
    host_tool: str
    times_in_a_row: int = 1
    conversation: Sequence[Message] = ()
    server_of: Callable[[str], str] = field(default=lambda name: "")

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
        by: who or what decided, for the record: `person`, or the rule, such as `files.read_*`.
    """

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    by: str = ""


Policy = Callable[[Proposal], Awaitable[Decision]]


def flows(proposal: Proposal) -> dict[str, str]:
    """Find values that came from another server's result, in a call that may change something: injected text acts in this way.

    A tool may change something or send it away, unless its own server says that it only reads, and reads nothing of the open
    world: an address that is fetched can carry a secret. MCP takes a tool without hints for one that does both (2025-11-25,
    ToolAnnotations).

    Args:
        proposal: with the conversation.

    Returns:
        JSON path of the value -> name of the server whose result it was found in.
    """
    hints = proposal.tool.annotations or {}
    is_harmless = hints.get("readOnlyHint") is True and hints.get("openWorldHint") is False
    if is_harmless or not proposal.conversation:
        return {}
    sources = provenance(proposal.call, proposal.conversation, [proposal.tool])
    servers = {path: proposal.server_of(source.tool) for path, source in sources.items() if source.kind == "result"}
    return {path: server for path, server in servers.items() if server and server != proposal.host}


async def _deny(proposal: Proposal) -> Decision:
    return Decision(allowed=False, by="not allowed by any rule")


def matches(proposal: Proposal, patterns: Iterable[str]) -> bool:
    """Say whether a glob matches a call's tool.

    Args:
        proposal: the call.
        patterns: globs over `server.tool`.
    """
    return any(fnmatch.fnmatchcase(proposal.target, glob) for glob in patterns)


def allow(patterns: Iterable[str], otherwise: Policy = _deny, *, may_flow: bool = True) -> Policy:
    """Make a policy that allows what a glob matches.

    Args:
        patterns: globs over `server.tool`, for example `files.read_*` or `*`.
        otherwise: asked about everything else; by default it is denied.
        may_flow: whether that holds for calls with values of another server's results, too (see `flows`).
    """
    globs = tuple(patterns)

    async def decide(proposal: Proposal) -> Decision:
        glob = next((glob for glob in globs if matches(proposal, [glob])), None)
        if glob is not None and (may_flow or not flows(proposal)):
            return Decision(allowed=True, by=glob)
        return await otherwise(proposal)

    return decide
