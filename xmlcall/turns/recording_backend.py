"""A backend that tells what the model is sent and what it writes, as it goes over the wire: what stands in a record is that.

It stands next to the model, below whatever shortens or changes a prompt or a reply.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from ..backends.base import Backend, KeptOpen
from ..types.calls import Message
from ..types.completion import Chunk, CompletionRequest

__all__ = ["Listener", "RecordingBackend"]


class Listener(Protocol):
    """Is told; a `TurnBuilder` is one."""

    def prompt(self, messages: Sequence[Message]) -> None:
        """Take what goes to the model."""

    def wrote(self, text: str) -> None:
        """Take a piece of what it writes; it is called with each, so it has to be fast."""


class RecordingBackend(KeptOpen):
    """A backend that is listened to.

    Args:
        listener: told of each prompt before it goes out and of each piece before it is passed on; None for nobody.

    Attributes:
        listener: may be changed between two requests.
    """

    def __init__(self, backend: Backend, listener: Listener | None = None) -> None:
        super().__init__(backend)
        self.listener = listener

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        if self.listener is None:
            return self._backend.stream(request)
        self.listener.prompt(request.messages)
        return _heard(self._backend.stream(request), self.listener)


async def _heard(stream: AsyncGenerator[Chunk], listener: Listener) -> AsyncGenerator[Chunk]:
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            if chunk.text:
                listener.wrote(chunk.text)
            yield chunk
