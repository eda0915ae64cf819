"""Values of a call that another server told: injected text acts by them."""

from ..binding.provenance import provenance
from .policy import Proposal

__all__ = ["flows"]


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
