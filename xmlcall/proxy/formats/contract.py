"""The contract between wire formats and engine: a request as the engine reads it, and the events of an answer.

A wire format reads a body into a `ChatRequest` and writes `ResponseEvent`s in its own spelling; it knows no model. The engine
makes events of a request; it knows no wire format. Nothing of a call is said before the call is certain: its opening, then its
arguments as JSON text in one or more pieces, then its end. After an error nothing follows.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from ...types.calls import Message, Tool, ToolCall
from ...types.completion import Usage

__all__ = [
    "ApiError",
    "ArgumentsPiece",
    "Asked",
    "CallClosed",
    "CallOpened",
    "ChatRequest",
    "Format",
    "ReasoningPiece",
    "ResponseEnded",
    "ResponseEvent",
    "Sampling",
    "TextPiece",
    "ToolChoice",
    "WholeResponse",
    "Writer",
    "own_usage",
    "whole_response",
]


class ApiError(Exception):
    """A request that cannot be answered, told to the caller in its own wire format.

    Args:
        retry_after: seconds after which the same request may be answered; 0 if that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str = "",
        code: str = "",
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = message, status, kind, param, code
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Whether the model has to call a tool.

    Args:
        name: the one tool that it has to call, with `required`; "" for any.
        allowed: names of the only tools that it may call; None for all on offer. The others stay in the prompt, for its cache.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    name: str = ""
    allowed: frozenset[str] | None = None

    def allows(self, name: str) -> bool:
        """Say whether a tool may be called."""
        return name == self.name if self.name else self.allowed is None or name in self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to generate, in no format's spelling; None leaves a value to the model server.

    Args:
        options: further numbers by their common names: `top_p`, `top_k`, `min_p`, `presence_penalty`, `frequency_penalty`,
            `repeat_penalty`.
        extra: fields that only the caller's own wire format knows; sent on where the model server speaks that format.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation that the model is to go on with.

    Args:
        messages: as the caller keeps them: calls in `tool_calls`, results in messages of role `tool`. Not empty.
        whole: the body as it came, for a model server that speaks the same format and reads calls itself.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    parallel: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    wire: str = "openai"
    whole: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open_question(self) -> bool:
        """Whether a person spoke last, with nothing demanded of the reply; a person's words may also stand beside results."""
        since = itertools.takewhile(lambda message: message.role in ("user", "tool"), reversed(self.messages))
        return self.choice.mode == "auto" and {message.role for message in since} == {"user"}

    @property
    def is_simple(self) -> bool:
        """Whether it asks for nothing that only the prompt can do: servers take choices in their own ways, or not."""
        choice = self.choice
        return choice.mode == "auto" and choice.allowed is None and self.parallel and self.sampling.json_schema is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """Visible text, as it comes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    """What the model thinks, as it comes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOpened:
    """A call of a tool of the caller's."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsPiece:
    """Some of a call's arguments; the pieces of a call, joined, are the JSON text of its bound arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClosed:
    """A call is complete; `call` has the id that its opening had."""

    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnded:
    """The last event of an answer.

    Args:
        usage: the last prompt, and all that was generated: clients take the prompt for the size of the conversation, and compact
            it when it grows too large.
        all_usage: of all requests to the model that the answer took, if there was more than one.
    """

    finish_reason: str
    usage: Usage
    all_usage: Usage | None = None


ResponseEvent = TextPiece | ReasoningPiece | CallOpened | ArgumentsPiece | CallClosed | ResponseEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeResponse:
    """A whole answer."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage
    all_usage: Usage | None = None


def own_usage(usage: Usage | None) -> dict[str, Any]:
    """Write what all requests of an answer took, as a field that no wire format has; clients skip what they do not know."""
    return {"xmlcall_all_requests": asdict(usage)} if usage is not None else {}


def whole_response(events: list[ResponseEvent]) -> WholeResponse:
    """Gather the events of an answer."""
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    return WholeResponse(
        text="".join(event.text for event in events if isinstance(event, TextPiece)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningPiece)),
        calls=tuple(event.call for event in events if isinstance(event, CallClosed)),
        finish_reason=end.finish_reason,
        usage=end.usage,
        all_usage=end.all_usage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as a wire format read it.

    Args:
        shape: what the writer of the answer needs to know besides, in the format's own terms.
    """

    request: ChatRequest
    model: str
    stream: bool
    shape: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """Writes one streamed answer."""

    def begin(self) -> bytes:
        """Write what comes before everything else; it may be written before the model says anything."""

    def write(self, event: ResponseEvent) -> bytes:
        """Write an event; b"" if this format does not show it."""

    def fail(self, error: ApiError) -> bytes:
        """Write an error that ends the answer."""

    def ping(self) -> bytes:
        """Write something that readers skip, to keep a silent connection open; b"" if the format has no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One wire format of callers."""

    name: str
    media_type: str
    read: Callable[[Mapping[str, Any]], Asked]
    whole: Callable[[Asked, WholeResponse], dict[str, Any]]
    writer: Callable[[Asked], Writer]
    error: Callable[[ApiError], dict[str, Any]]
