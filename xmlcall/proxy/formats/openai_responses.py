"""OpenAI's Responses API, from the server's side: bodies into requests, and whole answers.

`openai_responses_stream` writes the streamed answers. Source: OpenAI API reference, create a model response, and the models of
openai-python 3.54, which reads what is written here. This is the part of the format that agents use: a history of messages, calls
and their outputs, functions and custom tools (`openai_responses_tools`), and text in a given form. Nothing is stored, so every
request must contain its whole conversation. No tool runs on the server's side, so items of such tools in a history are dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ...types.calls import Message
from .bodies import JsonBody, arguments_of, call_of, content_of, extra_of, read_body
from .contract import ApiError, Asked, ChatRequest, Format, Sampling, WholeResponse
from .openai_chat import OPTIONS, chosen, error_body
from .openai_responses_stream import EventWriter, begun, call_item, call_text, ended, filled, new_item, status_of
from .openai_responses_tools import CUSTOM_INPUT, Offered, offered, offered_name

__all__ = ["KNOWN_ITEMS", "RESPONSES", "ResponsesBody"]

NAME: Final = "openai-responses"

STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt")
"""Fields that only mean something to a server that stores responses, conversations or prompts."""

ECHOED: Final = ("instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "top_p", "user")
"""Fields of a request that the answer repeats unchanged."""


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
    """A message of the history."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCallItem(JsonBody):
    """A call of the history."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class FunctionCallOutputItem(JsonBody):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content


class CustomToolCallItem(JsonBody):
    """A call of a custom tool."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: str


class CustomToolCallOutputItem(JsonBody):
    """What a call of a custom tool gave."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: Content


class LocalShellCallItem(JsonBody):
    """A command that an agent ran in its own shell."""

    type: Literal["local_shell_call"]
    call_id: str
    action: dict[str, Any]


class LocalShellCallOutputItem(JsonBody):
    """What the command gave; the id is the call's."""

    type: Literal["local_shell_call_output"]
    id: str | None = None
    call_id: str | None = None
    output: Content


class ReasoningItem(JsonBody):
    """What the model thought, in an earlier answer; no model is shown it again."""

    type: Literal["reasoning"]


class AdditionalToolsItem(JsonBody):
    """Tools that are offered in the history instead of beside it."""

    type: Literal["additional_tools"]
    tools: list[dict[str, Any]]


Items = Annotated[
    list[dict[str, Any]],
    Field(min_length=1),
    _listed(
        lambda text: {"role": "user", "content": text},
        str
        | list[
            MessageItem
            | FunctionCallItem
            | FunctionCallOutputItem
            | CustomToolCallItem
            | CustomToolCallOutputItem
            | LocalShellCallItem
            | LocalShellCallOutputItem
            | ReasoningItem
            | AdditionalToolsItem
        ],
    ),
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


def _shell_call(item: LocalShellCallItem, path: str, known: Mapping[str, Offered]) -> Message:
    return _said(item.call_id, "local_shell", {"command": item.action.get("command")})


def _said(identity: str, name: str, arguments: Mapping[str, Any]) -> Message:
    return Message(role="assistant", content="", tool_calls=(call_of(identity, name, arguments, 0),))


def _output(
    item: FunctionCallOutputItem | CustomToolCallOutputItem | LocalShellCallOutputItem, path: str, known: Mapping[str, Offered]
) -> Message:
    text, images = content_of(item.output, f"{path}.output")
    identity = item.call_id or getattr(item, "id", None)
    return Message(role="tool", content=text, tool_call_id=identity, images=images)


_ITEMS: Final[dict[str, tuple[type[JsonBody], Callable[[Any, str, Mapping[str, Offered]], Message | None]]]] = {
    "message": (MessageItem, _message),
    "function_call": (FunctionCallItem, _call),
    "function_call_output": (FunctionCallOutputItem, _output),
    "custom_tool_call": (CustomToolCallItem, _custom_call),
    "custom_tool_call_output": (CustomToolCallOutputItem, _output),
    "local_shell_call": (LocalShellCallItem, _shell_call),
    "local_shell_call_output": (LocalShellCallOutputItem, _output),
    "reasoning": (ReasoningItem, lambda item, path, known: None),
    "additional_tools": (AdditionalToolsItem, lambda item, path, known: None),  # `_listed_tools` has read them
}
_HOSTED: Final = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "computer_call_output",
        "file_search_call",
        "image_generation_call",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
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


# -- writing -----------------------------------------------------------------------------------------------------------


def _whole(asked: Asked, turn: WholeResponse) -> dict[str, Any]:
    output = [filled(new_item("reasoning"), turn.reasoning)] if turn.reasoning else []
    if turn.text.strip() or not turn.calls:
        output.append(filled(new_item("message"), turn.text, status_of(turn.finish_reason)))
    for call in turn.calls:
        item = call_item(asked, call.id, call.name)
        output.append(filled(item, call_text(item, call)))
    return ended(begun(asked), turn, output)


RESPONSES: Final = Format(
    name=NAME, media_type="text/event-stream", read=_read, whole=_whole, writer=EventWriter, error=error_body
)
