"""OpenAI's Responses API, from the server's side: bodies into requests, events into answers and streamed items.

Source: OpenAI API reference, create a model response, the response object and its streaming events; the models and the stream
reader of openai-python 3.54. This is the part of the format that agents use: a history of messages, calls and their outputs,
functions and custom tools, and text in a given form. Nothing is stored, so every request must contain its whole conversation. No
tool runs on the server's side, so items of such tools in a history are dropped.

*Tools*: the model is offered functions only. A namespace is a list of functions; if two share a name, both are offered as
`namespace.name`. A custom tool, which takes a text, is offered as a function with one text parameter, `input`. Calls go back to
the caller in the form in which it sent the tool. Tools that run on OpenAI's own servers (`web_search`, `code_interpreter`) cannot
be called here. Codex 0.169 sends `namespace` and `web_search` in every request, and puts all tools into an `additional_tools`
item if it knows the model's name.

*An answer* is a list of items: reasoning, messages, calls. Each item is added, grows, and is done. Its `output_index` is its
place in the list, and its id is the same in all its events. There is no `[DONE]`.
"""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ...errors import UsageError
from ...types.calls import Message, Tool, ToolCall
from ...types.completion import UNCUT, Usage
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
    WholeResponse,
    arguments_of,
    call_of,
    content_of,
    extra_of,
    own_usage,
    read_body,
    tools_of,
)
from .openai_chat import OPTIONS, chosen, error_body

NAME: Final = "openai-responses"

STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt")
"""Fields that only mean something to a server that stores responses, conversations or prompts."""

ECHOED: Final = ("instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "top_p", "user")
"""Fields of a request that the answer repeats unchanged."""

# -- bodies ----------------------------------------------------------------------------------------------------------


def _listed(wrap: Callable[[str], dict[str, Any]], documented: Any) -> BeforeValidator:
    """Accept a single text as a list. A union type would name its members in errors instead of the wrong field."""

    def listed(value: Any) -> list[Any]:
        if isinstance(value, str):
            return [wrap(value)]
        if isinstance(value, list):
            return value
        raise PydanticCustomError("text_or_list", "Input should be a string or a list")

    return BeforeValidator(listed, json_schema_input_type=documented)


Content = Annotated[list[dict[str, Any]], _listed(lambda text: {"type": "input_text", "text": text}, str | list[dict[str, Any]])]


class MessageItem(JsonBody):
    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class CallItem(JsonBody):
    call_id: str
    name: str
    namespace: str | None = None


class FunctionCallItem(CallItem):
    arguments: str


class CustomToolCallItem(CallItem):
    input: str


class OutputItem(JsonBody):
    call_id: str
    output: Content


class LocalShellCallItem(JsonBody):
    """A command that an agent ran in its own shell."""

    call_id: str
    action: dict[str, Any]


class LocalShellOutputItem(JsonBody):
    """What the command gave; the id is the call's."""

    id: str | None = None
    call_id: str | None = None
    output: Content


class AdditionalToolsItem(JsonBody):
    """Tools that the caller offers inside the history, not in `tools`."""

    tools: list[dict[str, Any]]


Items = Annotated[
    list[dict[str, Any]], Field(min_length=1), _listed(lambda text: {"role": "user", "content": text}, str | list[dict[str, Any]])
]


class ResponsesBody(JsonBody):
    """The body of `POST /v1/responses`."""

    model: str = ""
    input: Items
    instructions: str | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None  # `chosen` reads it
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    include: list[str] | None = None
    user: str | None = None
    truncation: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    prompt: dict[str, Any] | None = None


# -- tools -----------------------------------------------------------------------------------------------------------

CUSTOM_INPUT: Final = "input"  # the only parameter of the function that represents a custom tool

_CUSTOM_SCHEMA: Final = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string", "description": "The whole input, as text."}},
    "required": [CUSTOM_INPUT],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool as the caller knows it."""

    name: str
    namespace: str = ""
    is_custom: bool = False


def offered(listed: Iterable[Any]) -> tuple[tuple[Tool, ...], dict[str, Offered]]:
    """Read the tools of a request as functions, and the caller's view of each by the name under which it is offered."""
    flat = [pair for item in listed for pair in _flattened(item)]
    counted = Counter(str(item.get("name")) for item, _ in flat if isinstance(item, dict))
    known: dict[str, Offered] = {}

    def read(pair: tuple[Any, str]) -> Tool:
        item, namespace = pair
        tool = _tool(item)
        original = Offered(name=tool.name, namespace=namespace, is_custom=_kind(item) == "custom")
        name = f"{namespace}.{tool.name}" if namespace and counted[tool.name] > 1 else tool.name
        known.setdefault(name, original)
        return Tool(name=name, description=tool.description, input_schema=tool.input_schema)

    return tools_of(flat, read), known


def offered_name(known: Mapping[str, Offered], name: str, namespace: str) -> str:
    return next((each for each, tool in known.items() if (tool.name, tool.namespace) == (name, namespace)), name)


def _kind(item: Any) -> Any:
    return item.get("type", "function") if isinstance(item, dict) else None


def _flattened(item: Any) -> list[tuple[Any, str]]:
    """Return a tool, or the tools of a namespace, each paired with the namespace's name."""
    inner = item.get("tools") if isinstance(item, dict) and _kind(item) == "namespace" else None
    if not isinstance(inner, list):
        return [(item, "")]
    return [(each, str(item.get("name", ""))) for each in inner]


def _tool(item: Any) -> Tool:
    kind = _kind(item)
    if kind == "custom":
        described = f"{item.get('description') or ''}{_grammar(item.get('format'))}"
        return Tool.from_openai({"name": item.get("name"), "description": described, "parameters": _CUSTOM_SCHEMA})
    if kind != "function":
        raise UsageError(
            f'expected a tool of type "function", "custom" or "namespace", got {kind!r:.80}: this server has none of its own'
        )
    return Tool.from_openai(item)


def _grammar(form: Any) -> str:
    """Describe the grammar of a custom tool's input to the model; the proxy does not enforce it."""
    definition = form.get("definition") if isinstance(form, dict) else None
    return f"\nThe input follows this grammar:\n{definition}" if isinstance(definition, str) else ""


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(data: Mapping[str, Any]) -> Asked:
    body = read_body(ResponsesBody, data)
    for name in STATEFUL:
        if getattr(body, name):
            raise ApiError(f"{name}: this server keeps no state: send the whole input, and wait for its answer", param=name)
    tools, known = offered(_listed_tools(body))
    choice = chosen(body.tool_choice, tools)
    request = ChatRequest(
        messages=_messages(body, known),
        tools=tools,
        choice=choice,
        parallel=body.parallel_tool_calls is not False,
        sampling=_sampling(body),
        wire=NAME,
    )
    return Asked(request=request, model=body.model, stream=bool(body.stream), shape={"echo": _echo(body), "known": known})


def _listed_tools(body: ResponsesBody) -> list[Any]:
    """Return the tools of the body and of its items; for models that Codex knows, it sends all tools as items."""
    additional = (item.get("tools") for item in body.input if item.get("type") == "additional_tools")
    return [*(body.tools or ()), *(tool for tools in additional if isinstance(tools, list) for tool in tools)]


def _echo(body: ResponsesBody) -> dict[str, Any]:
    return {
        **{name: getattr(body, name) for name in ECHOED},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "text": {"format": {"type": "text"}} | (body.text or {}),
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "truncation": body.truncation or "disabled",
    }


def _sampling(body: ResponsesBody) -> Sampling:
    given = (body.model_extra or {}) | {"top_p": body.top_p}
    return Sampling(
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        json_schema=_json_schema((body.text or {}).get("format")),
        options={name: value for name in OPTIONS if (value := given.get(name)) is not None},
        extra=extra_of(body, but=OPTIONS),
    )


def _json_schema(form: Any) -> Mapping[str, Any] | None:
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    schema = form.get("schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        message = f"text.format: expected text, json_object, or json_schema with a schema, got {form!r:.80}"
        raise ApiError(message, param="text.format")
    return schema


def _messages(body: ResponsesBody, known: Mapping[str, Offered]) -> tuple[Message, ...]:
    read = (_item(item, f"input.{number}", known) for number, item in enumerate(body.input))
    messages = [message for message in read if message is not None]
    if not messages:
        raise ApiError("input: expected a message, got nothing that is for the model", param="input")
    instructions = (Message(role="system", content=body.instructions),) if body.instructions else ()
    return instructions + tuple(_joined(messages))


def _item(item: dict[str, Any], path: str, known: Mapping[str, Offered]) -> Message | None:
    """Read one item; return None if it is not for the model."""
    # The type is optional in a message, and also in a reference (`ItemReference` of openai-python).
    kind = item.get("type") or ("item_reference" if "id" in item and "role" not in item else "message")
    if kind == "item_reference":
        why = "this server keeps no state: send the item itself, not a reference; most clients do if `store` is false"
        raise ApiError(f"{path}: {why}", param=path)
    if isinstance(kind, str) and kind in _HOSTED:
        return None
    if not isinstance(kind, str) or kind not in _ITEMS:
        raise ApiError(f"{path}.type: expected {', '.join(_ITEMS)}, got {kind!r:.80}", param=f"{path}.type")
    model, message = _ITEMS[kind]
    try:
        read = read_body(model, item)
    except ApiError as error:
        raise ApiError(f"{path}.{error.message}", param=f"{path}.{error.param}") from None
    return message(read, path, known)


def _message(item: MessageItem, path: str, known: Mapping[str, Offered]) -> Message:
    text, images = content_of(item.content, f"{path}.content")
    return Message(role="system" if item.role == "developer" else item.role, content=text, images=images)


def _call(item: FunctionCallItem, path: str, known: Mapping[str, Offered]) -> Message:
    name = offered_name(known, item.name, item.namespace or "")
    return _said(item.call_id, name, arguments_of(item.arguments, f"{path}.arguments"))


def _custom_call(item: CustomToolCallItem, path: str, known: Mapping[str, Offered]) -> Message:
    return _said(item.call_id, offered_name(known, item.name, item.namespace or ""), {CUSTOM_INPUT: item.input})


def _said(identity: str, name: str, arguments: Mapping[str, Any]) -> Message:
    return Message(role="assistant", content="", tool_calls=(call_of(identity, name, arguments, 0),))


def _output(item: OutputItem | LocalShellOutputItem, path: str, known: Mapping[str, Offered]) -> Message:
    text, images = content_of(item.output, f"{path}.output")
    identity = item.call_id or getattr(item, "id", None)
    return Message(role="tool", content=text, tool_call_id=identity, images=images)


_ITEMS: Final[dict[str, tuple[type[JsonBody], Callable[[Any, str, Mapping[str, Offered]], Message | None]]]] = {
    "message": (MessageItem, _message),
    "function_call": (FunctionCallItem, _call),
    "function_call_output": (OutputItem, _output),
    "custom_tool_call": (CustomToolCallItem, _custom_call),
    "custom_tool_call_output": (OutputItem, _output),
    "local_shell_call": (
        LocalShellCallItem,
        lambda item, path, known: _said(item.call_id, "local_shell", {"command": item.action.get("command")}),
    ),
    "local_shell_call_output": (LocalShellOutputItem, _output),
    "reasoning": (JsonBody, lambda item, path, known: None),  # no model is shown again what it thought in an earlier answer
    "additional_tools": (AdditionalToolsItem, lambda item, path, known: None),  # `_listed_tools` has read them
}
_OF_SERVERS: Final = """
    code_interpreter_call compaction computer_call computer_call_output file_search_call image_generation_call
    mcp_approval_request mcp_approval_response mcp_call mcp_list_tools tool_search_call tool_search_output web_search_call
"""
_HOSTED: Final = frozenset(_OF_SERVERS.split())
"""Items that OpenAI's own tools and servers leave in a history; they mean nothing without these tools."""

KNOWN_ITEMS: Final = frozenset({*_ITEMS, *_HOSTED, "item_reference"})


def _joined(messages: Iterable[Message]) -> Iterable[Message]:
    """Join an answer's calls and the messages before, between and after them into one message, as in Chat Completions."""
    runs: list[list[Message]] = []
    for message in messages:
        last = runs[-1] if runs else []
        near = [*last[:2], message]  # a run of several has a call among its first two, so the others need no check
        if last and all(each.role == "assistant" for each in near) and any(each.tool_calls for each in near):
            last.append(message)
        else:
            runs.append([message])
    return map(_one, runs)


def _one(run: list[Message]) -> Message:
    if len(run) == 1:
        return run[0]
    calls = (call for message in run for call in message.tool_calls)
    return Message(
        role="assistant",
        content="".join(message.content for message in run),  # the original text: the stream was split where the calls were
        tool_calls=tuple(call_of(call.id, call.name, call.arguments, index) for index, call in enumerate(calls)),
        images=tuple(image for message in run for image in message.images),
    )


# -- output items ----------------------------------------------------------------------------------------------------

Status = Literal["in_progress", "completed", "incomplete"]

REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter", "other": "max_output_tokens"}
"""The reason for an incomplete answer, by finish reason; the format knows only two reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    prefix: str
    events: str  # the name of the events by which it grows, without `.delta` and `.done`
    whole: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    part: dict[str, Any] | None = None  # its one content part, without the text; None for an item without content
    beside: Mapping[str, Any] = field(default_factory=dict)


_KINDS: Final = {
    "reasoning": _Kind(
        prefix="rs",
        events="response.reasoning_text",
        whole="text",
        fields={"summary": []},
        part={"type": "reasoning_text"},
        beside={"content_index": 0},
    ),
    "message": _Kind(
        prefix="msg",
        events="response.output_text",
        whole="text",
        fields={"role": "assistant"},
        part={"type": "output_text", "annotations": [], "logprobs": []},
        beside={"content_index": 0, "logprobs": []},
    ),
    "function_call": _Kind(prefix="fc", events="response.function_call_arguments", whole="arguments"),
    "custom_tool_call": _Kind(prefix="ctc", events="response.custom_tool_call_input", whole="input"),
}


def new_item(kind: str, **fields: Any) -> dict[str, Any]:
    """Write an output item that has just begun."""
    row = _KINDS[kind]
    empty: dict[str, Any] = {row.whole: ""} if row.part is None else {"content": []}
    identity = f"{row.prefix}_{secrets.token_hex(12)}"
    return {"id": identity, "type": kind, "status": "in_progress", **row.fields, **fields, **empty}


def call_item(asked: Asked, identity: str, name: str) -> dict[str, Any]:
    """Write the item of a call that has just begun, in the form in which its tool was offered."""
    tool = asked.shape["known"].get(name, Offered(name=name))
    namespace = {"namespace": tool.namespace} if tool.namespace else {}
    return new_item("custom_tool_call" if tool.is_custom else "function_call", call_id=identity, name=tool.name, **namespace)


def call_text(item: Mapping[str, Any], call: ToolCall) -> str:
    """Return the text of a call's item: the arguments as JSON, or the input of a custom tool."""
    if item["type"] == "custom_tool_call":
        return str(call.arguments.get(CUSTOM_INPUT, ""))
    return json.dumps(call.arguments, ensure_ascii=False)


def filled(item: dict[str, Any], text: str, status: Status = "completed") -> dict[str, Any]:
    """Complete an item with its whole text: reasoning, a message, or a call's arguments as JSON."""
    row = _KINDS[item["type"]]
    full: dict[str, Any] = {row.whole: text} if row.part is None else {"content": [row.part | {"text": text}]}
    return item | {"status": status} | full


def begun(asked: Asked) -> dict[str, Any]:
    """Write the response object of an answer that has just begun; it repeats the caller's settings."""
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        **asked.shape["echo"],
        "model": asked.model,
        "output": [],
        "previous_response_id": None,
        "store": False,  # whatever the caller asked for, nothing is stored
        "usage": None,
    }


def ended(response: dict[str, Any], end: ResponseEnded, output: list[dict[str, Any]]) -> dict[str, Any]:
    finish_reason, status = end.finish_reason, status_of(end.finish_reason)
    used = _usage_dict(end.usage) | own_usage(end.all_usage)
    found = response | {"status": status, "output": output, "usage": used}
    if status == "incomplete":
        return found | {"incomplete_details": {"reason": REASONS[finish_reason]}}
    return found | {"completed_at": int(time.time())}


def status_of(finish_reason: str) -> Status:
    return "completed" if finish_reason in UNCUT else "incomplete"


def _usage_dict(usage: Usage) -> dict[str, Any]:
    given, made = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
    }


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Growing:
    place: int
    item: dict[str, Any]
    pieces: list[str] = field(default_factory=list)

    @property
    def row(self) -> _Kind:
        return _KINDS[self.item["type"]]


class EventWriter:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._response = begun(asked)
        self._number = 0
        self._items: list[_Growing] = []
        self._prose: _Growing | None = None  # the open message or reasoning
        self._space = ""  # leading white space, held until a message is certain to follow

    def begin(self) -> bytes:
        return b"".join(self._event(f"response.{what}", response=self._response) for what in ("created", "in_progress"))

    def write(self, event: ResponseEvent) -> bytes:
        match event:
            case TextPiece(text=text):
                return self._say(text)
            case ReasoningPiece(text=text):
                return self._add("reasoning", text) if text else b""
            case CallPiece(call=call):
                silence = self._silence("completed")
                growing, opening = self._open(call_item(self._asked, call.id, call.name))
                text = call_text(growing.item, call)
                return silence + opening + (self._grow(growing, text) if text else b"") + self._close(growing, "completed")
            case ResponseEnded():
                return self._end(event)

    def _say(self, text: str) -> bytes:
        """Add to the message; white space alone opens no message, because calls are often followed by white space."""
        text, self._space = self._space + text, ""
        if not text.strip() and (self._prose is None or self._prose.item["type"] != "message"):
            self._space = text
            return b""
        return self._add("message", text) if text else b""

    def _add(self, kind: str, text: str) -> bytes:
        growing, opening = self._prose_of(kind)
        return opening + self._grow(growing, text)

    def _prose_of(self, kind: str) -> tuple[_Growing, bytes]:
        if self._prose is not None and self._prose.item["type"] == kind:
            return self._prose, b""
        silence = self._silence("completed")
        self._prose, opening = self._open(new_item(kind))
        return self._prose, silence + opening

    def _silence(self, status: Status) -> bytes:
        if self._prose is None:
            return b""
        growing, self._prose = self._prose, None
        return self._close(growing, status)

    def _open(self, item: dict[str, Any]) -> tuple[_Growing, bytes]:
        growing = _Growing(len(self._items), item)
        self._items.append(growing)
        added = self._event("response.output_item.added", output_index=growing.place, item=growing.item)
        return growing, added + self._part_event("added", growing, "")

    def _grow(self, growing: _Growing, text: str) -> bytes:
        growing.pieces.append(text)
        return self._item_event(f"{growing.row.events}.delta", growing, **growing.row.beside, delta=text)

    def _close(self, growing: _Growing, status: Status) -> bytes:
        row, text = growing.row, "".join(growing.pieces)
        growing.item = filled(growing.item, text, status)
        done = self._item_event(f"{row.events}.done", growing, **row.beside, **{row.whole: text})
        done += self._part_event("done", growing, text)
        return done + self._event("response.output_item.done", output_index=growing.place, item=growing.item)

    def _end(self, event: ResponseEnded) -> bytes:
        status = status_of(event.finish_reason)
        opening = b""
        if all(growing.item["type"] == "reasoning" for growing in self._items):  # an answer always has a message, even if empty
            opening = self._prose_of("message")[1] + self._say("")
        closing = self._silence(status)
        response = ended(self._response, event, self._output())
        return opening + closing + self._event(f"response.{status}", response=response)

    def _output(self) -> list[dict[str, Any]]:
        return [growing.item for growing in self._items if growing.item["status"] != "in_progress"]

    def fail(self, error: ApiError) -> bytes:
        """Write the error, and the failed response with the items that were already done."""
        fields = {"code": error.code or None, "message": error.message, "param": error.param or None}
        failure = {"code": _failure(error), "message": error.message}
        response = self._response | {"status": "failed", "error": failure, "output": self._output()}
        return self._event("error", **fields) + self._event("response.failed", response=response)

    def _part_event(self, what: str, growing: _Growing, text: str) -> bytes:
        part = growing.row.part
        if part is None:
            return b""
        return self._item_event(f"response.content_part.{what}", growing, content_index=0, part=part | {"text": text})

    def _item_event(self, kind: str, growing: _Growing, **fields: Any) -> bytes:
        return self._event(kind, item_id=growing.item["id"], output_index=growing.place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = json.dumps({"type": kind, "sequence_number": self._number, **fields}, ensure_ascii=False)
        self._number += 1
        return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


def _failure(error: ApiError) -> str:
    """Map an error to one of the few codes of a failed response; agents retry after `server_error`."""
    if error.code == "context_length_exceeded":  # OpenAI sends it, though openai-python does not list it; agents then compact
        return error.code
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"


def _whole(asked: Asked, turn: WholeResponse) -> dict[str, Any]:
    output = [filled(new_item("reasoning"), turn.reasoning)] if turn.reasoning else []
    if turn.text.strip() or not turn.calls:
        output.append(filled(new_item("message"), turn.text, status_of(turn.finish_reason)))
    for call in turn.calls:
        item = call_item(asked, call.id, call.name)
        output.append(filled(item, call_text(item, call)))
    return ended(begun(asked), turn, output)


RESPONSES: Final = Format(name=NAME, read=_read, whole=_whole, writer=EventWriter, error=error_body)
