"""What a loop needs of a model server: one method, a few facts.

A backend is an async context manager. `stream` is an async generator: closing it (`aclose`, or leaving the loop under
`contextlib.aclosing`) ends the generation on the server too. Only `BackendError`s come out of it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ..types.completion import Chunk, CompletionRequest, Usage

__all__ = ["Backend", "Capabilities", "KeptOpen", "Relayed", "Relaying", "usage_after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a server and its model, once it is open.

    Args:
        server: "llama.cpp", "ollama", "openai-compatible", "scripted".
        native_tools: its own function calling works with this model; None if it does not say.
        context_length: tokens that prompt and reply share; None if it does not say.
        tool_role: a message of role `tool` reaches the model; False if the template drops it, None if that is not known.
        reasoning_open: the chat template ends the prompt in an open `<think>`.
        build: the server's own version, "" if it does not say.
        continues: a last message of the model's own is continued, from its last character on.
        constrains: `json_schema` of a request is obeyed.
        grammars: `grammar` of a request is obeyed.
        sees: pictures of a message reach the model; None if it does not say.
        chat_template: the model comes with one; False if not, as base models do, which go on with a text instead of answering;
            None if that is not known.
        most_logprobs: how many of the likeliest tokens the server tells.
        family: the wire format that the model was most likely trained on, by its template or name; "" if nothing tells.
        model_file: the name of the model's file, which often tells the quantisation; "" if it does not say.
        fingerprints: by what the model is known again, the surest first (see `fingerprint`); empty if by nothing.
    """

    server: str
    native_tools: bool | None = None
    context_length: int | None = None
    tool_role: bool | None = None
    reasoning_open: bool = False
    build: str = ""
    continues: bool = False
    constrains: bool = False
    grammars: bool = False
    sees: bool | None = None
    chat_template: bool | None = None
    most_logprobs: int = 20  # OpenAI's, vLLM's and Ollama's limit
    family: str = ""
    model_file: str = ""
    fingerprints: tuple[str, ...] = ()


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

        Raises:
            BackendUnavailable: no connection, or it broke.
            BackendStatusError: the server refused, also in mid-stream; `ContextOverflow` if the prompt is too long.
            BackendProtocolError: the answer is not in the server's format.
        """


def usage_after(so_far: Usage | None, chunk: Chunk) -> Usage | None:
    """Return what a reply has used up to a chunk; to be called with each, since a stream that is closed early tells no count.

    Args:
        so_far: up to the chunk before; None before the first.
        chunk: counts as one token, as most servers send it, if it tells no count itself.
    """
    if chunk.usage is not None or not (chunk.text or chunk.reasoning):
        return chunk.usage or so_far
    counted = so_far or Usage()
    return replace(counted, completion_tokens=(counted.completion_tokens or 0) + 1, is_estimated=True)


class KeptOpen:
    """Everything of a backend around another but its `stream`, which a subclass adds; entered and left, the other stays open.

    Args:
        backend: the other, open.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """An answer of the model server's, unread.

    Args:
        status: of HTTP.
        media_type: as it named it.
        chunks: the body, as it comes.
    """

    status: int
    media_type: str
    chunks: AsyncIterator[bytes]


@runtime_checkable
class Relaying(Protocol):
    """A backend whose server speaks a wire format that callers speak too."""

    def relay(self, method: str, path: str, content: bytes = b"") -> AbstractAsyncContextManager[Relayed]:
        """Pass a request on as it is.

        Args:
            method: of HTTP.
            path: in the server's API, such as `/chat/completions` or `/api/chat`.
            content: the body.

        Raises:
            BackendUnavailable: no connection, or it broke.
        """
