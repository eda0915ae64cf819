"""What a loop needs of a model server: one method, a few facts.

A backend is an async context manager. `stream` is an async generator: closing it (`aclose`, or leaving the loop under
`contextlib.aclosing`) ends the generation on the server too. Only `BackendError`s come out of it.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from ..types import Message, RawCall, Tool

__all__ = ["Backend", "Capabilities", "Chunk", "CompletionRequest", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one generation; None where the server did not say.

    Args:
        prompt_tokens: the whole prompt, cached part included.
        completion_tokens: what was generated.
        cached_tokens: the part of the prompt that came from the server's cache.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed reply.

    Args:
        text: visible text.
        reasoning: text of the server's own reasoning field.
        tool_calls: calls that the server itself parsed (mode "native"), whole.
        finish_reason: `stop`, `length`, `tool_calls` ...; set once, at the end.
        usage: set at most once, at the end.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[RawCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """What to generate.

    Args:
        messages: the conversation, system message first.
        tools: sent to the server's own function calling (mode "native"); empty otherwise.
        max_tokens: None leaves it to the server.
        temperature: None leaves it to the server.
        seed: None leaves it to the server.
        stop: strings that end the generation.
        extra: further fields, sent as they are.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a server and its model, once it is open.

    Args:
        server: "llama.cpp", "ollama", "openai-compatible", "scripted".
        native_tools: its own function calling works with this model; None if it does not say.
        context_length: tokens that prompt and reply share; None if it does not say.
        tool_role: a message of role `tool` is known to reach the model; else results go as `user`.
        reasoning_open: the chat template ends the prompt in an open `<think>`.
    """

    server: str
    native_tools: bool | None = None
    context_length: int | None = None
    tool_role: bool = False
    reasoning_open: bool = False


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
