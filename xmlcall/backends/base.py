"""What a loop needs of a model server: one method, a few facts.

A backend is an async context manager. `stream` is an async generator: closing it (`aclose`, or leaving the loop under
`contextlib.aclosing`) ends the generation on the server too. Only `BackendError`s come out of it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ..types.completion import Capabilities, Chunk, CompletionRequest

__all__ = ["Backend", "Capabilities", "KeptOpen", "Relayed", "Relaying"]


class Backend(Protocol):
    """A model behind a server; `capabilities` is valid while open."""

    @property
    def model(self) -> str:
        """The model's name, for people and for the request."""

    @property
    def capabilities(self) -> Capabilities:
        """What the server said of itself when it was opened."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece.

        Args:
            request: the conversation, and how it is to be answered.

        Raises:
            BackendUnavailable: no connection, or it broke.
            BackendStatusError: the server refused, also in mid-stream; `ContextOverflow` if the prompt is too long.
            BackendProtocolError: the answer is not in the server's format.
        """


class KeptOpen:
    """Everything of a backend around another but its `stream`, which a subclass adds; entered and left, the other stays open."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """An answer of the model server's, unread."""

    status: int
    media_type: str
    chunks: AsyncIterator[bytes]


@runtime_checkable
class Relaying(Protocol):
    """A backend whose server speaks a wire format that callers speak too."""

    def relay(self, method: str, path: str, content: bytes = b"") -> AbstractAsyncContextManager[Relayed]:
        """Pass a request on as it is."""
