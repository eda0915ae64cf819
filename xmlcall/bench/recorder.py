"""A backend that keeps what the model writes: a played conversation is kept in the model's own words."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..backends.base import Backend, KeptOpen
from ..types.completion import Chunk, CompletionRequest

__all__ = ["Recorder"]


class Recorder(KeptOpen):
    """A backend of which what the model writes is kept as it came, turn by turn; calls that the server parsed as it told them."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._replies: list[str] = []

    def begin_turn(self) -> list[str]:
        """Return the list that the replies from now on are added to."""
        self._replies = []
        return self._replies

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        replies, text = self._replies, ""
        try:
            async with aclosing(self._backend.stream(request)) as stream:
                async for chunk in stream:
                    text += chunk.text + "".join(call.text for call in chunk.tool_calls)
                    yield chunk
        finally:
            if not request.top_logprobs:  # asking whether a tool is needed is no reply
                replies.append(text)
