"""A completion for a server of tools (MCP 2025-11-25, sampling).

The model is asked without the tools and without the conversation: the server's messages are all that it sees.
"""

from contextlib import aclosing

from ..backends.base import Backend
from ..hosts.mcp.requests import SampleReply, SampleRequest
from ..types.completion import CompletionRequest, FinishReason

__all__ = ["completed"]


async def completed(backend: Backend, request: SampleRequest, limit: int) -> SampleReply:
    """Return what a model says to what a server asks."""
    pieces: list[str] = []
    reason: FinishReason = "other"
    wanted = CompletionRequest(messages=request.messages, max_tokens=limit, temperature=request.temperature, stop=request.stop)
    async with aclosing(backend.stream(wanted)) as chunks:
        async for chunk in chunks:
            pieces.append(chunk.text)
            reason = chunk.finish_reason or reason
    text = "".join(pieces).rpartition("</think>")[2].strip()  # what the model thought is nobody's but ours
    return SampleReply(text=text, model=backend.model, finish_reason=reason)
