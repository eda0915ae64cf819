"""Asks the model for a reply that a tool server wants (MCP sampling); `completed` runs outside any turn."""

from contextlib import aclosing

from ..backends.base import Backend
from ..hosts.mcp.server_requests import SampleReply, SampleRequest
from ..types.completion import CompletionRequest, FinishReason


async def completed(backend: Backend, request: SampleRequest, limit: int) -> SampleReply:
    """Return the model's reply to a server's request (MCP sampling); the model sees neither the tools nor the conversation."""
    pieces: list[str] = []
    reason: FinishReason = "other"
    wanted = CompletionRequest(messages=request.messages, max_tokens=limit, temperature=request.temperature, stop=request.stop)
    async with aclosing(backend.stream(wanted)) as chunks:
        async for chunk in chunks:
            pieces.append(chunk.text)
            reason = chunk.finish_reason or reason
    text = "".join(pieces).rpartition("</think>")[2].strip()  # the model's reasoning is not for the server
    return SampleReply(text=text, model=backend.model, finish_reason=reason)
