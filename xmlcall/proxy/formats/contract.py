"""The contract between wire formats and engine: a request as the engine reads it, and the events of an answer.

A wire format reads a body into a `ChatRequest` and writes `ResponseEvent`s in its own syntax; it knows nothing of the model. The
engine turns a request into events; of a wire format it knows only whether the model server uses it, too. A call is one event,
once it is certain. Nothing follows an error.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...errors import UsageError
from ...types.calls import Message, RawCall, Tool, ToolCall
from ...types.completion import Usage


class ApiError(Exception):
    """A request that cannot be answered, reported in the caller's format; `retry_after` is in seconds, 0 if unknown."""

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
    """Whether the model must call a tool."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str = ""  # the tool that it must call, in mode `required`; "" for any
    # The only tools that it may call; the others stay in the prompt, so that it stays cached.
    allowed: frozenset[str] | None = None

    def allows(self, name: str) -> bool:
        return name == self.name if self.name else self.allowed is None or name in self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to generate, independent of any format; None leaves a value to the model server."""

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # further numbers by their common names, such as `top_p`
    extra: Mapping[str, Any] = field(default_factory=dict)  # of the caller's format; sent on if the model server uses that format


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation for the model to continue, as any wire format reads it."""

    messages: tuple[Message, ...]  # not empty, with calls in `tool_calls` and results in messages of role `tool`
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    parallel: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    wire: str = "openai"  # the caller's format
    goes_on: bool = False  # whether the answer to a beginning by the caller holds only what follows it
    whole: Mapping[str, Any] = field(default_factory=dict)  # the body, for a model server that uses the same format

    @property
    def is_open_question(self) -> bool:
        """Whether the user spoke last and no particular reply is demanded; the user's words may also come with tool results."""
        since = itertools.takewhile(lambda message: message.role in ("user", "tool"), reversed(self.messages))
        return self.choice.mode == "auto" and {message.role for message in since} == {"user"}

    @property
    def is_simple(self) -> bool:
        """Whether native function calling can serve it; servers differ in how they treat choices, and some ignore them."""
        choice = self.choice
        return choice.mode == "auto" and choice.allowed is None and self.parallel and self.sampling.json_schema is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A call of one of the caller's tools, complete and bound."""

    index: int
    call: ToolCall

    @property
    def arguments(self) -> str:
        return json.dumps(self.call.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnded:
    """The last event of an answer.

    The usage has the tokens of the last prompt, and all generated tokens: clients treat the prompt as the size of the
    conversation, and compact the conversation when it grows too large.
    """

    finish_reason: str
    usage: Usage
    all_usage: Usage | None = None  # the sum over all requests to the model for this answer, if there was more than one


ResponseEvent = TextPiece | ReasoningPiece | CallPiece | ResponseEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeResponse(ResponseEnded):
    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]


def own_usage(usage: Usage | None) -> dict[str, Any]:
    """Write the usage of all requests of an answer as a field of our own, which clients skip because they do not know it."""
    return {"xmlcall_all_requests": asdict(usage)} if usage is not None else {}


def whole_response(events: list[ResponseEvent]) -> WholeResponse:
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    return WholeResponse(
        text="".join(event.text for event in events if isinstance(event, TextPiece)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningPiece)),
        calls=tuple(event.call for event in events if isinstance(event, CallPiece)),
        finish_reason=end.finish_reason,
        usage=end.usage,
        all_usage=end.all_usage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as a wire format read it; `shape` has what the writer of the answer needs, in the format's own terms."""

    request: ChatRequest
    model: str
    stream: bool
    shape: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """Writes one streamed answer."""

    def begin(self) -> bytes:
        """Write what precedes all events; it may be sent before the model has produced anything."""

    def write(self, event: ResponseEvent) -> bytes:
        """Write an event; b"" if this format does not show it."""

    def fail(self, error: ApiError) -> bytes:
        """Write an error that ends the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str
    read: Callable[[Mapping[str, Any]], Asked]
    whole: Callable[[Asked, WholeResponse], dict[str, Any]]
    writer: Callable[[Asked], Writer]
    error: Callable[[ApiError], dict[str, Any]]
    media_type: str = "text/event-stream"
    # What readers skip, to keep an idle connection open; b"" if the format has no such thing.
    ping: bytes = b": the model has not said anything yet\n\n"


# -- what the formats share for reading bodies: validation, contents made of parts, calls in a history -----------------
# Bodies are untrusted input, so a pydantic model validates each one; tests make bodies from the model's JSON schema. A field that
# the proxy does not know is kept, and sent on if the caller and the model server use the same format.


SHOWN_CHARACTERS = 80  # how much of a wrong value an error shows
TOOL_LIMIT = 1000  # as many as one MCP server may list

B = TypeVar("B", bound=BaseModel)

Parts = str | list[dict[str, Any]] | None  # a message's content, as most formats have it


class JsonBody(BaseModel):
    """A JSON object of a request: known fields have their types, others are kept."""

    model_config = ConfigDict(extra="allow", strict=True)


def read_body(kind: type[B], data: Mapping[str, Any]) -> B:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = _path(first["loc"], data, missing=first["type"] == "missing")
        got = "nothing" if first["type"] == "missing" else _shown(first["input"])
        raise ApiError(f"{path}: {first['msg']}, got {got}", param=path) from None


def _path(steps: Sequence[int | str], data: Any, *, missing: bool) -> str:
    """Write a field's path, without the union branches that pydantic inserts."""
    path: list[str] = []
    for number, step in enumerate(steps):
        is_field = (isinstance(data, dict) and step in data) or (isinstance(data, list) and isinstance(step, int))
        if is_field or (missing and number == len(steps) - 1):
            path.append(str(step))
            data = data[step] if is_field else None
    return ".".join(path)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def extra_of(body: BaseModel, *, but: Iterable[str] = ()) -> dict[str, Any]:
    dropped = set(but)
    return {name: value for name, value in (body.model_extra or {}).items() if name not in dropped}


def content_of(content: Parts, path: str) -> tuple[str, tuple[str, ...]]:
    """Read a content in OpenAI's form: its text, parts joined by newlines, and the URLs of its images."""
    if not isinstance(content, list):
        return content or "", ()
    texts, images = [], []
    for number, part in enumerate(content):
        kind, where = part.get("type"), f"{path}.{number}"
        if kind in ("text", "input_text", "output_text", "refusal"):
            texts.append(_string(part.get("text", part.get("refusal")), f"{where}.text"))
        elif kind in ("image_url", "input_image"):
            url = part.get("image_url")
            images.append(_string(url.get("url") if isinstance(url, dict) else url, f"{where}.image_url"))
        else:
            raise ApiError(f"{where}.type: expected text or image_url, got {_shown(kind)}", param=f"{where}.type")
    return "\n".join(texts), tuple(images)


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ApiError(f"{path}: expected a string, got {_shown(value)}", param=path)
    return value


def arguments_of(text: str, path: str) -> dict[str, Any]:
    """Read the arguments of a call in a history, written as JSON text; an empty text means no arguments."""
    value = json_in(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise ApiError(f"{path}: expected the text of a JSON object, got {_shown(text)}", param=path)
    return value


def json_in(text: str) -> Any:
    """Read JSON; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def integral(value: Any) -> Any:
    """Read 5.0 as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def call_of(identity: str, name: str, arguments: Mapping[str, Any], index: int) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=dict(arguments), raw=RawCall(index=index, name=name, dialect="native"))


def tools_of(listed: Iterable[Any], read: Callable[[Any], Tool], path: str = "tools") -> tuple[Tool, ...]:
    """Read the tools of a request, whose names must be unique."""
    items = list(listed)
    if len(items) > TOOL_LIMIT:
        raise ApiError(f"{path}: expected at most {TOOL_LIMIT} tools, got {len(items)}", param=path)
    tools: dict[str, Tool] = {}
    for number, item in enumerate(items):
        where = f"{path}.{number}"
        try:
            tool = read(item)
        except UsageError as error:
            raise ApiError(f"{where}: {error}", param=where) from None
        if not tool.name.strip():
            raise ApiError(f"{where}: expected a name, got only white space", param=where)
        if tool.name in tools:
            raise ApiError(f"{where}: two tools are named {tool.name!r}; names must be unique", param=where)
        tools[tool.name] = tool
    return tuple(tools.values())
