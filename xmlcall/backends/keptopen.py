"""A backend that is open already and stays so, whoever enters and leaves it; a base for those that change what comes through."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self

from ..types.completion import Chunk, CompletionRequest
from .base import Backend, Capabilities

__all__ = ["KeptOpen", "Recorder"]


class KeptOpen:
    """Everything of a backend but its `stream`, which a subclass adds.

    Args:
        backend: open.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def model(self) -> str:
        """The model's name."""
        return self._backend.model

    @property
    def capabilities(self) -> Capabilities:
        """What the backend said of itself."""
        return self._backend.capabilities

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Recorder(KeptOpen):
    """A backend of which what the model writes is kept as it came, turn by turn."""

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
                    text += chunk.text
                    yield chunk
        finally:
            if not request.top_logprobs:  # asking whether a tool is needed is no reply
                replies.append(text)
