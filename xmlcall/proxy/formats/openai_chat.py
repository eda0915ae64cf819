"""OpenAI's Chat Completions API, from the server's side: bodies into requests, events into answers and chunks.

Source: OpenAI API reference, chat completions, the chat completion object and its chunk object. Deprecated fields that agents
still send (`functions`, `function_call`, role `function`) are accepted and answered in the same form. All forms of `tool_choice`
are accepted. Among `tools`, only functions are, because a custom tool's input is not JSON.
"""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from ...types.calls import Message, Tool, ToolCall
from ...types.completion import Usage
from ...wire.openai import mappings
from .contract import (
    ApiError,
    Asked,
    CallPiece,
    ChatRequest,
    Format,
    JsonBody,
    Parts,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    Sampling,
    TextPiece,
    ToolChoice,
    WholeResponse,
    arguments_of,
    call_of,
    content_of,
    extra_of,
    own_usage,
    read_body,
    tools_of,
)

OPTIONS: Final = ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty")


class _ChatFunction(JsonBody):
    name: str = ""
    arguments: str = ""


class _ChatCall(JsonBody):
    id: str = ""
    type: str = "function"
    function: _ChatFunction


class ChatMessage(JsonBody):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Parts = None
    name: str | None = None
    tool_calls: list[_ChatCall] | None = None
    function_call: _ChatFunction | None = None
    tool_call_id: str | None = None


class ChatBody(JsonBody):
    """The body of `POST /v1/chat/completions`."""

    model: str = ""
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    functions: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    function_call: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    n: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None


# -- reading -----------------------------------------------------------------------------------------------------------


def mentions_tools(data: Mapping[str, Any]) -> bool:
    """Return whether an unchecked body has tools, or calls and results in its history."""
    return bool(data.get("tools") or data.get("functions")) or any(
        message.get("tool_calls") or message.get("function_call") or message.get("role") in ("tool", "function")
        for message in mappings(data.get("messages"))
    )


def _read(data: Mapping[str, Any]) -> Asked:
    body = read_body(ChatBody, data)
    legacy = not body.tools and bool(body.functions)
    _refuse(body)
    listed = (body.functions if legacy else body.tools) or []
    tools = tools_of(listed, _tool, "functions" if legacy else "tools")
    choice = chosen(body.function_call if legacy else body.tool_choice, tools)
    request = ChatRequest(
        messages=tuple(_message(message, number) for number, message in enumerate(body.messages)),
        tools=tools,
        choice=choice,
        parallel=body.parallel_tool_calls is not False and not legacy,
        sampling=_sampling(body),
        wire="openai",
    )
    options = body.stream_options or {}
    shape = {"legacy": legacy, "include_usage": options.get("include_usage") is True}
    return Asked(request=request, model=body.model, stream=bool(body.stream), shape=shape)


def _refuse(body: ChatBody) -> None:
    if body.n not in (None, 1):
        raise ApiError(f"n: expected 1, got {body.n}: ask once for each answer", param="n")
    if (body.model_extra or {}).get("logprobs"):
        raise ApiError("logprobs: not available here: the text that they would belong to is rewritten", param="logprobs")


def _tool(item: dict[str, Any]) -> Tool:
    kind = item.get("type", "function")
    if kind != "function":
        raise ApiError(f'tools: expected tools of type "function", got {kind!r:.40}', param="tools")
    return Tool.from_openai(item)


def chosen(choice: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    """Read a `tool_choice`, in the form of Chat Completions or of Responses."""
    if choice is None:
        return ToolChoice()
    if choice in ("auto", "none", "required"):
        if choice == "required" and not tools:
            raise ApiError('tool_choice: expected "tools" beside "required", got none', param="tool_choice")
        return ToolChoice(mode=choice)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        listed = inner.get("tools") if isinstance(inner, dict) else None
        names = [_chosen_name(item) for item in listed] if isinstance(listed, list) else []
        allowed = frozenset(_offered(name, tools) for name in names)
        mode = inner.get("mode", "auto") if isinstance(inner, dict) else None
        if mode in ("auto", "required") and allowed:
            return ToolChoice(mode=mode, allowed=allowed)
    elif name := _chosen_name(choice):
        return ToolChoice(mode="required", name=_offered(name, tools))
    raise ApiError(
        'tool_choice: expected "auto", "none", "required", a function or allowed tools, got ' + repr(choice)[:80],
        param="tool_choice",
    )


def _chosen_name(choice: Any) -> str:
    if not isinstance(choice, dict):
        return ""
    inner = choice.get("function")
    name = inner.get("name") if isinstance(inner, dict) else choice.get("name")
    return name if isinstance(name, str) else ""


def _offered(name: str, tools: tuple[Tool, ...]) -> str:
    if any(tool.name == name for tool in tools):
        return name
    known = ", ".join(tool.name for tool in tools[:10]) or "none"
    raise ApiError(f"tool_choice: expected one of the tools ({known}), got {name[:80]!r}", param="tool_choice")


def _message(message: ChatMessage, number: int) -> Message:
    path = f"messages.{number}"
    text, images = content_of(message.content, f"{path}.content")
    match message.role:
        case "system" | "developer":
            return Message(role="system", content=text)
        case "tool" | "function":
            return Message(role="tool", content=text, tool_call_id=message.tool_call_id, name=message.name, images=images)
        case "assistant":
            return Message(role="assistant", content=text, tool_calls=_calls(message, path))
    return Message(role="user", content=text, images=images)


def _calls(message: ChatMessage, path: str) -> tuple[ToolCall, ...]:
    given = [(call.id, call.function) for call in message.tool_calls or ()]
    if message.function_call is not None:
        given.append(("", message.function_call))
    return tuple(
        call_of(identity, function.name, arguments_of(function.arguments, f"{path}.tool_calls.{index}.function.arguments"), index)
        for index, (identity, function) in enumerate(given)
    )


def _sampling(body: ChatBody) -> Sampling:
    return Sampling(
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        json_schema=_json_schema(body.response_format),
        options={name: value for name in OPTIONS if (value := (body.model_extra or {}).get(name)) is not None},
        extra=extra_of(body, but=OPTIONS),
    )


def _json_schema(form: dict[str, Any] | None) -> Mapping[str, Any] | None:
    """Read a `response_format`; llama.cpp also takes the schema beside `json_object`."""
    kind = (form or {}).get("type", "text")
    if form is None or kind == "text":
        return None
    inner = form.get("json_schema") if kind == "json_schema" else form
    schema = inner.get("schema", {"type": "object"}) if isinstance(inner, dict) else None
    if kind not in ("json_schema", "json_object") or not isinstance(schema, dict):
        raise ApiError(f"response_format: expected text, json_object or json_schema, got {form!r:.80}", param="response_format")
    return schema


# -- writing -----------------------------------------------------------------------------------------------------------


def _head(kind: str, asked: Asked) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": asked.model}


def usage_dict(usage: Usage, all_usage: Usage | None = None) -> dict[str, Any]:
    """Write the token counts; counts that the server did not report are 0."""
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    data: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if usage.cached_tokens is not None:
        data["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return data | own_usage(all_usage)


def _finish_reason(reason: str, asked: Asked) -> str:
    """Write why a reply ended; an unknown reason becomes `length`, because the reply may have been cut off."""
    if reason == "tool_calls" and asked.shape["legacy"]:
        return "function_call"
    return "length" if reason == "other" else reason


def _whole(asked: Asked, turn: WholeResponse) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or (None if turn.calls else ""), "refusal": None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    written = [(call.id, {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}) for call in turn.calls]
    if written and asked.shape["legacy"]:
        message["function_call"] = written[0][1]
    elif written:
        message["tool_calls"] = [{"id": identity, "type": "function", "function": function} for identity, function in written]
    reason = _finish_reason(turn.finish_reason, asked)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return _head("chat.completion", asked) | {"choices": [choice], "usage": usage_dict(turn.usage, turn.all_usage)}


class _ChunkWriter:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        head = _head("chat.completion.chunk", asked)
        self._head = json.dumps(head, ensure_ascii=False)[:-1]  # written once: every chunk begins with it

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def write(self, event: ResponseEvent) -> bytes:
        match event:
            case TextPiece(text=text):
                return self._chunk({"content": text})
            case ReasoningPiece(text=text):
                return self._chunk({"reasoning_content": text})
            case CallPiece(index=index, call=call):
                function = {"name": call.name, "arguments": ""}
                opening = self._call({"index": index, "id": call.id, "type": "function", "function": function})
                return opening + self._call({"index": index, "function": {"arguments": event.arguments}})
            case ResponseEnded():
                return self._end(event)

    def _call(self, call: dict[str, Any]) -> bytes:
        if self._asked.shape["legacy"]:
            return self._chunk({"function_call": call["function"]})
        return self._chunk({"tool_calls": [call]})

    def _end(self, event: ResponseEnded) -> bytes:
        last = self._chunk({}, _finish_reason(event.finish_reason, self._asked))
        usage = b""
        if self._asked.shape["include_usage"]:
            usage = self._line(f', "choices": [], "usage": {json.dumps(usage_dict(event.usage, event.all_usage))}')
        return last + usage + b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._line(f', "choices": [{json.dumps(choice, ensure_ascii=False)}]')

    def _line(self, rest: str) -> bytes:
        return f"data: {self._head}{rest}}}\n\n".encode("utf-8", "replace")

    def fail(self, error: ApiError) -> bytes:
        return f"data: {json.dumps(error_body(error))}\n\n".encode()


def error_body(error: ApiError) -> dict[str, Any]:
    fields = {"message": error.message, "type": error.kind, "param": error.param or None, "code": error.code or None}
    return {"error": fields}


CHAT: Final = Format(name="openai", read=_read, whole=_whole, writer=_ChunkWriter, error=error_body)
