"""What a loop needs of a model server: one method, a few facts.

A backend is an async context manager. `stream` is an async generator: closing it (`aclose`, or leaving the loop under
`contextlib.aclosing`) ends the generation on the server too. Only `BackendError`s come out of it.

What stands around a backend (it asks again, shortens prompts, listens) does not stand between it and who reads a reply: that
would cost time with each piece. It gives `Tries`, which say what is sent, who hears each piece, and whether to try again.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ..errors import BackendError
from ..types.completion import Capabilities, Chunk, CompletionRequest

__all__ = ["Around", "Backend", "Capabilities", "KeptOpen", "Relayed", "Relaying", "Tries", "chunks_of", "tries_of"]


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


class Tries:
    """One request to a model server, made until a reply comes; here once.

    Attributes:
        hears: told each piece of the reply before whoever reads it; known once a try is open.
    """

    def __init__(self, backend: Backend, request: CompletionRequest) -> None:
        self.hears: tuple[Callable[[Chunk], None], ...] = ()
        self._backend, self._request = backend, request

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Make the next try."""
        async with aclosing(self._backend.stream(self._request)) as chunks:
            yield chunks

    def ended(self) -> None:
        """Note, inside `opened`, that the reply was read to its end."""

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Take the failure of a try.

        Args:
            begun: whether anything of the reply had come; how far a prompt is read is nothing of it.

        Returns:
            None if the request is to be made once more, else what failed.
        """
        return error


class Around:
    """What stands around a backend: a subclass says how a request is made."""

    def tries(self, request: CompletionRequest) -> Tries:
        """Return how a request is made."""
        raise NotImplementedError

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        return chunks_of(self.tries(request))


def tries_of(backend: Backend, request: CompletionRequest) -> Tries:
    """Return how a request to any backend is made."""
    return backend.tries(request) if isinstance(backend, Around) else Tries(backend, request)


async def chunks_of(tries: Tries) -> AsyncGenerator[Chunk]:
    """Generate a reply, piece by piece, for who does nothing else with it."""
    while True:
        begun = False
        try:
            async with tries.opened() as chunks:
                async for chunk in chunks:
                    begun = begun or chunk.progress is None
                    for hear in tries.hears:
                        hear(chunk)
                    yield chunk
                tries.ended()
            return
        except BackendError as error:
            failed = await tries.again(error, begun=begun)
        if failed is not None:
            raise failed


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
