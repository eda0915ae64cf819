"""Anthropic's Messages API, from the server's side: bodies into requests, events into answers and streamed content blocks.

Source: Anthropic API reference, Messages (create, streaming, count tokens, errors), as the `anthropic` SDK 2.12 types it. Only
the caller's own tools are accepted; tools that Anthropic runs, or that only its models know, are refused.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from ...errors import UsageError
from ...types.calls import Message, Tool
from ...types.completion import Usage
from .contract import (
    ApiError,
    Asked,
    CallPiece,
    ChatRequest,
    Format,
    JsonBody,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    Sampling,
    TextPiece,
    ToolChoice,
    WholeResponse,
    call_of,
    extra_of,
    own_usage,
    read_body,
    tools_of,
)

NO_THREADS: Final = "thread_unsupported_request"
"""The error code to which SDKs react by sending the request again, whole and without a thread."""


class _TextBlock(JsonBody):
    type: Literal["text"]
    text: str


class _Base64(JsonBody):
    type: Literal["base64"]
    media_type: str
    data: str


class _Url(JsonBody):
    type: Literal["url"]
    url: str


class _Image(JsonBody):
    type: Literal["image"]
    source: Annotated[_Base64 | _Url, Field(discriminator="type")]


class _PlainText(JsonBody):
    type: Literal["text"]
    data: str


class _Document(JsonBody):
    type: Literal["document"]
    source: _PlainText
    title: str | None = None
    context: str | None = None


class _Thinking(JsonBody):
    type: Literal["thinking", "redacted_thinking"]


class _ToolUse(JsonBody):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


def _as_blocks(content: Any) -> Any:
    """Read the short form: a string is one block of text (API reference, `messages`)."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_ShownBlocks = list[Annotated[_TextBlock | _Image | _Document, Field(discriminator="type")]]


class _ToolResult(JsonBody):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[_ShownBlocks, BeforeValidator(_as_blocks, json_schema_input_type=str | _ShownBlocks)] | None = None
    is_error: bool | None = None


_Block = _TextBlock | _Image | _Document | _Thinking | _ToolUse | _ToolResult
_Blocks = list[Annotated[_Block, Field(discriminator="type")]]


class _Message(JsonBody):
    role: Literal["user", "assistant", "system"]
    content: Annotated[_Blocks, BeforeValidator(_as_blocks, json_schema_input_type=str | _Blocks)]


class _Tool(JsonBody):
    type: str | None = None
    name: str = ""
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _ToolChoice(JsonBody):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _OutputFormat(JsonBody):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class _OutputConfig(JsonBody):
    format: _OutputFormat | None = None


class CountBody(JsonBody):
    """The body of `POST /v1/messages/count_tokens`."""

    model: str = ""
    messages: list[_Message] = Field(min_length=1)
    system: Annotated[list[_TextBlock], BeforeValidator(_as_blocks, json_schema_input_type=str | list[_TextBlock])] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: dict[str, Any] | None = None  # ignored: the model server decides how much the model thinks


class MessagesBody(CountBody):
    """The body of `POST /v1/messages`."""

    max_tokens: int | None = Field(default=None, ge=1)  # required by Anthropic; without it the model server's own limit applies
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    output_config: _OutputConfig | None = None
    metadata: dict[str, Any] | None = None  # ignored: about the caller's user
    thread: dict[str, Any] | None = None  # a conversation that the server keeps


def _read(data: Mapping[str, Any]) -> Asked:
    body = read_body(MessagesBody, data)
    if body.thread is not None:  # sent by the SDKs' tool runners; their next request would hold only a result
        why = "this server keeps no state: send the whole conversation, without this field"
        raise ApiError(f"thread: {why}", param="thread", code=NO_THREADS)
    if all(message.role == "assistant" for message in body.messages):
        path = f"messages.{len(body.messages) - 1}.role"
        raise ApiError(f"{path}: expected a message of the user's before it, got none", param=path)
    form = body.output_config.format if body.output_config else None
    sampling = Sampling(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        stop=tuple(body.stop_sequences or ()),
        json_schema=form.json_schema if form else None,
        options={name: value for name in ("top_p", "top_k") if (value := getattr(body, name)) is not None},
        extra=extra_of(body),
    )
    return Asked(request=_request(body, sampling), model=body.model, stream=bool(body.stream))


def read_count(data: Mapping[str, Any]) -> Asked:
    """Read a body of `POST /v1/messages/count_tokens`; unlike other bodies, it may end with the model's message."""
    body = read_body(CountBody, data)
    return Asked(request=_request(body, Sampling(extra=extra_of(body))), model=body.model, stream=False)


def _request(body: CountBody, sampling: Sampling) -> ChatRequest:
    tools = tools_of(body.tools or [], _tool)
    chosen = body.tool_choice or _ToolChoice(type="auto")
    system, _ = _shown(body.system or [])
    messages = [Message(role="system", content=system)] if system else []
    for number, message in enumerate(body.messages):
        messages += _messages(message, f"messages.{number}.content")
    return ChatRequest(
        messages=tuple(messages),
        tools=tools,
        choice=_choice(chosen, [tool.name for tool in tools]),
        parallel=not chosen.disable_parallel_tool_use,
        sampling=sampling,
        wire="anthropic",
        goes_on=True,
    )


def _tool(item: _Tool) -> Tool:
    if item.type not in (None, "custom") or not item.name or item.input_schema is None:
        raise UsageError(f'expected type "custom", a name and an input_schema, got {item.model_dump(exclude_unset=True)!r:.120}')
    return Tool.from_mcp({"name": item.name, "description": item.description, "inputSchema": item.input_schema})


def _choice(chosen: _ToolChoice, names: list[str]) -> ToolChoice:
    name = chosen.name if chosen.type == "tool" else ""
    if (chosen.type == "any" and not names) or (chosen.type == "tool" and name not in names):
        raise ApiError(f"tool_choice: the tools are {names[:10]}, got {name or chosen.type!r:.80}", param="tool_choice")
    return ToolChoice(mode=chosen.type if chosen.type in ("auto", "none") else "required", name=name)


_ROLES: Final = dict.fromkeys(("tool_use", "thinking", "redacted_thinking"), "assistant")
_ROLES.update(dict.fromkeys(("image", "document", "tool_result"), "user"))


def _messages(message: _Message, path: str) -> list[Message]:
    """Read a message; tool results, which Anthropic puts into user messages, become messages of their own."""
    blocks, role = message.content, message.role
    for number, block in enumerate(blocks):
        if (owner := _ROLES.get(block.type, role)) != role:
            where = f"{path}.{number}.type"
            raise ApiError(f"{where}: expected {block.type} with role {owner} only, got it with role {role}", param=where)
    calls = [block for block in blocks if isinstance(block, _ToolUse)]
    results = [_result(block) for block in blocks if isinstance(block, _ToolResult)]
    text, images = _shown(blocks, "" if role == "assistant" else "\n")  # the texts of an answer are pieces of one text
    made = tuple(call_of(call.id, call.name, call.input, index) for index, call in enumerate(calls))
    said = Message(role=role, content=text, images=images, tool_calls=made)
    return [*results, said] if text or images or not results else results


def _result(block: _ToolResult) -> Message:
    text, images = _shown(block.content or [])
    says_so = text.lstrip("<[ \n")[:20].lower().startswith(("error", "tool_use_error"))
    content = text if says_so or not block.is_error else f"Error: {text}"
    return Message(role="tool", content=content, tool_call_id=block.tool_use_id, images=images)


def _shown(blocks: Iterable[_Block], joint: str = "\n") -> tuple[str, tuple[str, ...]]:
    texts, images = [], []
    for block in blocks:
        match block:
            case _TextBlock():
                texts.append(block.text)
            case _Document(source=source):
                texts += [part for part in (block.title, block.context, source.data) if part]
            case _Image(source=source):
                images.append(source.url if isinstance(source, _Url) else f"data:{source.media_type};base64,{source.data}")
    return joint.join(texts), tuple(images)


_STOP_REASONS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "content_filter": "refusal"}


def _stopped(finish_reason: str | None) -> dict[str, str | None]:
    """Write why a reply ended; None means not yet, and any unlisted reason means that the reply was cut off."""
    return {"stop_reason": finish_reason and _STOP_REASONS.get(finish_reason, "max_tokens"), "stop_sequence": None}


def _usage(usage: Usage, all_usage: Usage | None = None) -> dict[str, Any]:
    """Write the token counts; cached input is counted separately, and counts that the server did not report are 0."""
    cached = usage.cached_tokens
    counts = {"input_tokens": max((usage.prompt_tokens or 0) - (cached or 0), 0), "output_tokens": usage.completion_tokens or 0}
    return counts | ({} if cached is None else {"cache_read_input_tokens": cached}) | own_usage(all_usage)


def _answer(
    asked: Asked, content: list[dict[str, Any]], finish_reason: str | None, usage: Usage, all_usage: Usage | None = None
) -> dict[str, Any]:
    head = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": asked.model}
    return {**head, "content": content, **_stopped(finish_reason), "usage": _usage(usage, all_usage)}


def _whole(asked: Asked, turn: WholeResponse) -> dict[str, Any]:
    thought = [{"type": "thinking", "thinking": turn.reasoning, "signature": ""}] if turn.reasoning else []
    said = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in turn.calls]
    return _answer(asked, [*thought, *said, *calls], turn.finish_reason, turn.usage, turn.all_usage)


class _BlockWriter:
    """Writes an answer as content blocks, one open at a time."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._index = -1  # of the open block, or of the last one
        self._kind = ""  # of the open block; "" if none is open

    def begin(self) -> bytes:
        return _event("message_start", message=_answer(self._asked, [], None, Usage()))

    def write(self, event: ResponseEvent) -> bytes:
        match event:
            case TextPiece(text=text) if text:
                return self._switch("text", text="") + self._delta("text_delta", text=text)
            case ReasoningPiece(text=text) if text:
                return self._switch("thinking", thinking="", signature="") + self._delta("thinking_delta", thinking=text)
            case CallPiece(call=call):
                opening = self._switch("tool_use", id=call.id, name=call.name, input={})
                return opening + self._delta("input_json_delta", partial_json=event.arguments) + self._close()
            case ResponseEnded(finish_reason=reason, usage=usage, all_usage=all_usage):
                last = _event("message_delta", delta=_stopped(reason), usage=_usage(usage, all_usage))
                return self._close() + last + _event("message_stop")
        return b""

    def _switch(self, kind: str, **fields: Any) -> bytes:
        if self._kind == kind:
            return b""
        closed = self._close()
        self._index, self._kind = self._index + 1, kind
        return closed + _event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})

    def _close(self) -> bytes:
        kind, self._kind = self._kind, ""
        # A signature ends every thinking block (API reference, streaming), and some clients drop a block without one.
        signature = self._delta("signature_delta", signature="") if kind == "thinking" else b""
        return signature + _event("content_block_stop", index=self._index) if kind else b""

    def fail(self, error: ApiError) -> bytes:
        return _event(**error_body(error))


def _event(type: str, **fields: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields}, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


_ERROR_TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
_ERROR_TYPES.update({429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error"})


def error_body(error: ApiError) -> dict[str, Any]:
    """Write an error as Anthropic does: the status determines the type; for refused threads, SDKs read the `details`."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if 400 <= error.status < 500 else "api_error")
    details = {"details": {"error_code": error.code}} if error.code == NO_THREADS else {}
    return {"type": "error", "error": {"type": kind, "message": error.message, **details}}


MESSAGES: Final = Format(name="anthropic", read=_read, whole=_whole, writer=_BlockWriter, error=error_body, ping=_event("ping"))
