"""The interface of a model server: one method and a few facts.

A backend is an async context manager. `stream` is an async generator: closing it (`aclose`, or leaving the loop under
`contextlib.aclosing`) ends the generation on the server too. Only `BackendError`s come out of it.

A wrapper for retries, shorter prompts or listeners is not in the path of each piece of a reply, because that would cost time.
Instead it returns `Tries`, which say what is sent, who receives each piece, and whether to try again.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ..errors import BackendError
from ..types.completion import Capabilities, Chunk, CompletionRequest


class Backend(Protocol):
    """A model behind a server; `capabilities` is valid while open."""

    @property
    def model(self) -> str:
        """The model's name, for people and for the request."""

    @property
    def capabilities(self) -> Capabilities:
        """What the server reported about itself when it was opened."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece.

        Args:
            request: the conversation, and the options of the reply.

        Raises:
            BackendUnavailable: no connection, or the connection broke.
            BackendStatusError: the server refused the request, perhaps in mid-stream; `ContextOverflow` if the prompt is too
                long.
            BackendProtocolError: the answer is not in the server's format.
        """


class KeptOpen:
    """A wrapper around an open backend, without `stream`, which a subclass adds; entering or leaving it does nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def model(self) -> str:
        return self._backend.model

    @property
    def capabilities(self) -> Capabilities:
        """What the backend reported about itself."""
        return self._backend.capabilities

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Tries:
    """The attempts to make one request; this class makes only one."""

    def __init__(self, backend: Backend, request: CompletionRequest) -> None:
        # Called with each piece of the reply before its reader gets it; set once an attempt is open.
        self.listeners: tuple[Callable[[Chunk], None], ...] = ()
        self._backend, self._request = backend, request

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Make the next attempt."""
        async with aclosing(self._backend.stream(self._request)) as chunks:
            yield chunks

    def ended(self) -> None:
        """Note, inside `opened`, that the reply was read to its end."""

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Handle the failure of an attempt: return None to make the request again, else the final error."""
        return error


class Around(ABC):
    """A wrapper around a backend; a subclass defines the attempts to make a request."""

    @abstractmethod
    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts to make a request."""

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        return chunks_of(self.tries(request))


def tries_of(backend: Backend, request: CompletionRequest) -> Tries:
    return backend.tries(request) if isinstance(backend, Around) else Tries(backend, request)


class TriedRequest:
    """Makes a request until a reply has come or `error` says why none does; it adds no generator to the path of each piece."""

    def __init__(self, tries: Tries) -> None:
        self.is_due = True  # whether another attempt has to be made
        self.error: BackendError | None = None
        self._tries, self._begun = tries, False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Make the next attempt; pass each piece to `hear`, and call `ended` after the last one."""
        self.is_due = self._begun = False
        try:
            async with self._tries.opened() as chunks:
                yield chunks
        except BackendError as error:
            self.error = await self._tries.again(error, begun=self._begun)
            self.is_due = self.error is None

    def hear(self, chunk: Chunk) -> Chunk:
        """Tell those who listen of a piece."""
        self._begun = self._begun or chunk.progress is None
        for listen in self._tries.listeners:
            listen(chunk)
        return chunk

    def ended(self) -> None:
        """Note, inside `opened`, that the reply was read to its end."""
        self._tries.ended()


async def chunks_of(tries: Tries) -> AsyncGenerator[Chunk]:
    """Generate a reply, piece by piece, for callers that need only the pieces."""
    tried = TriedRequest(tries)
    while tried.is_due:
        async with tried.opened() as chunks:
            async for chunk in chunks:
                yield tried.hear(chunk)
            tried.ended()
    if tried.error is not None:
        raise tried.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """An answer of the model server, not yet read."""

    status: int
    media_type: str
    chunks: AsyncIterator[bytes]


@runtime_checkable
class Relaying(Protocol):
    """A backend whose server speaks a wire format that callers speak too."""

    def relay(self, method: str, path: str, content: bytes = b"") -> AbstractAsyncContextManager[Relayed]:
        """Forward a request unchanged."""
