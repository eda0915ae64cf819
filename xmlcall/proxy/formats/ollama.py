"""Ollama's native API, from the server's side: `POST /api/chat`, `POST /api/generate` and the small endpoints around them.

Unlike in OpenAI's format, answers stream by default, arguments are an object, a call arrives whole in one line, and `done_reason`
is `stop` after calls too. A request without messages asks to load the model: `shape["load"]` is true then, and `loaded` answers
it. U+0085, U+2028 and U+2029 are escaped in lines: JSON allows them in strings, but httpx, which Ollama's own client uses, treats
them as line ends.

Source: Ollama, docs/api.md; api/types.go for fields and their defaults; server/routes.go for what is empty, absent or refused.

*The small paths* report the available models, their capabilities and the version. A request to pull a served model succeeds at
once, because the model is already there. Requests to create, copy, delete or push models are refused, even in front of an
Ollama, because a caller may use the models but not change them.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from ...errors import UsageError
from ...types.calls import Message, Tool, ToolCall
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
    arguments_of,
    call_of,
    extra_of,
    integral,
    own_usage,
    read_body,
    tools_of,
)
from .openai_chat import OPTIONS, chosen

SENT_ON: Final = ("keep_alive", "think", "truncate", "shift", "logprobs", "top_logprobs")
CHAT_ONLY: Final = ("messages", "tools", "tool_choice")
"""Fields that `/api/generate` ignores. Sent on, they would replace the prompt, because the proxy asks an Ollama for a chat."""

_PICTURES: Final = (
    (re.compile(rb"\x89PNG"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
_LINE_ENDS: Final = {ord(each): f"\\u{ord(each):04x}" for each in "\u0085\u2028\u2029"}


# -- bodies ------------------------------------------------------------------------------------------------------------


_Integer = Annotated[int, BeforeValidator(integral)]  # Ollama reads all numbers in `options` as floating point


class OllamaOptions(JsonBody):
    """How to generate; what is not listed here is sent on to an Ollama."""

    model_config = ConfigDict(allow_inf_nan=False)

    num_predict: _Integer | None = None
    temperature: float | None = Field(default=None, ge=0)
    seed: _Integer | None = None
    stop: str | list[str] | None = None
    top_p: float | None = None
    top_k: _Integer | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None


class _OllamaFunction(JsonBody):
    name: str = Field(min_length=1)
    arguments: dict[str, Any] | str | None = None


class _OllamaCall(JsonBody):
    id: str | None = None
    function: _OllamaFunction


class OllamaMessage(JsonBody):
    """A message of a request; its `thinking` is dropped."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[_OllamaCall] | None = None
    tool_name: str | None = None
    name: str | None = None
    tool_call_id: str | None = None


class _OllamaAsked(JsonBody):
    model: str = Field(min_length=1)
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    keep_alive: int | float | str | None = None
    think: bool | str | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class OllamaChatBody(_OllamaAsked):
    """The body of `POST /api/chat`; `tool_choice` is OpenAI's, Ollama has none."""

    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


class OllamaGenerateBody(_OllamaAsked):
    """The body of `POST /api/generate`; `context` is accepted and ignored."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    raw: bool | None = None
    context: list[int] | None = None


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_chat(data: Mapping[str, Any]) -> Asked:
    body = read_body(OllamaChatBody, data)
    tools = tools_of(body.tools or (), _tool)
    choice = chosen(body.tool_choice, tools)
    messages = tuple(_message(message, f"messages.{number}") for number, message in enumerate(body.messages or ()))
    return _asked(body, messages, tools, choice)


def _read_generate(data: Mapping[str, Any]) -> Asked:
    body = read_body(OllamaGenerateBody, data)
    for name in ("suffix", "template", "raw"):
        if getattr(body, name):
            raise ApiError(f"{name}: not available here: the prompt is put into the model's own chat template", param=name)
    system = (Message(role="system", content=body.system),) if body.system else ()
    prompt = (Message(role="user", content=body.prompt, images=_pictures(body.images, "images")),) if body.prompt else ()
    return _asked(body, system + prompt if prompt else ())


def _asked(
    body: _OllamaAsked, messages: tuple[Message, ...], tools: tuple[Tool, ...] = (), choice: ToolChoice | None = None
) -> Asked:
    request = ChatRequest(
        messages=messages or (Message(role="user", content=""),),
        tools=tools,
        choice=choice or ToolChoice(),
        sampling=_sampling(body),
        wire="ollama",
    )
    shape = {"load": not messages, "generate": isinstance(body, OllamaGenerateBody), "begun": time.monotonic_ns()}
    return Asked(request=request, model=body.model, stream=body.stream is not False, shape=shape)


def _tool(item: dict[str, Any]) -> Tool:
    kind = item.get("type") or "function"
    if kind != "function":
        raise UsageError(f'expected a tool of type "function", got {kind!r:.40}')
    return Tool.from_openai(item)


def _message(message: OllamaMessage, path: str) -> Message:
    text = message.content or ""
    match message.role:
        case "tool":
            name = message.tool_name or message.name or None  # langchain-ollama gives neither
            return Message(role="tool", content=text, tool_call_id=message.tool_call_id or None, name=name)
        case "assistant":
            return Message(role="assistant", content=text, tool_calls=_calls(message, f"{path}.tool_calls"))
        case "system":
            return Message(role="system", content=text)
    return Message(role="user", content=text, images=_pictures(message.images, f"{path}.images"))


def _calls(message: OllamaMessage, path: str) -> tuple[ToolCall, ...]:
    calls = []
    for index, call in enumerate(message.tool_calls or ()):
        given = call.function.arguments
        arguments = arguments_of(given, f"{path}.{index}.function.arguments") if isinstance(given, str) else given
        calls.append(call_of(call.id or "", call.function.name, arguments or {}, index))
    return tuple(calls)


def _pictures(images: list[str] | None, path: str) -> tuple[str, ...]:
    return tuple(_picture(image, f"{path}.{number}") for number, image in enumerate(images or ()))


def _picture(image: str, path: str) -> str:
    """Make a `data:` URL from an image in base64, which may contain line breaks."""
    text = "".join(image.split())
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise ApiError(f"{path}: expected a picture in base64, got {image[:40]!r}", param=path) from None
    kind = next((kind for pattern, kind in _PICTURES if pattern.match(data)), "image/png")
    return f"data:{kind};base64,{text}"


def _sampling(body: _OllamaAsked) -> Sampling:
    options = body.options or OllamaOptions()
    others = extra_of(options)
    kept = extra_of(body, but=CHAT_ONLY)
    extra = kept | {name: value for name in SENT_ON if (value := getattr(body, name)) is not None}
    limit = options.num_predict or 0
    return Sampling(
        max_tokens=limit if limit > 0 else None,  # -1 is no limit, -2 fills the context, and 0 is no limit either
        temperature=options.temperature,
        seed=None if options.seed == -1 else options.seed,  # -1 means a random seed in Ollama
        stop=(options.stop,) if isinstance(options.stop, str) else tuple(options.stop or ()),
        json_schema={"type": "object"} if body.format == "json" else body.format if isinstance(body.format, dict) else None,
        options={name: value for name in OPTIONS if (value := getattr(options, name)) is not None},
        extra=extra | ({"options": others} if others else {}),
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def _now(more: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + more).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": call.arguments}}


def _part(asked: Asked, text: str = "", thinking: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    head = {"model": asked.model, "created_at": _now()}
    shown = {"thinking": thinking} if thinking else {}
    if asked.shape["generate"]:
        return head | {"response": text} | shown
    called = {"tool_calls": calls} if calls else {}
    return head | {"message": {"role": "assistant", "content": text} | shown | called}


_DONE_REASONS: Final = {"tool_calls": "stop", "other": "length"}  # where the format uses another word


def _end(reason: str, usage: Usage, *, total: int, prompt: int = 0, generation: int = 0) -> dict[str, Any]:
    """Write the end of an answer; durations are in nanoseconds, and counts that the server did not report are 0."""
    return {
        "done": True,
        "done_reason": _DONE_REASONS.get(reason, reason),
        "total_duration": total,
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens or 0,
        "prompt_eval_duration": prompt,
        "eval_count": usage.completion_tokens or 0,
        "eval_duration": generation,
    }


def _whole(asked: Asked, turn: WholeResponse) -> dict[str, Any]:
    calls = [_call(index, call) for index, call in enumerate(turn.calls)]
    end = _end(turn.finish_reason, turn.usage, total=time.monotonic_ns() - asked.shape["begun"])
    return _part(asked, turn.text, turn.reasoning, calls) | end | own_usage(turn.all_usage)


def loaded(asked: Asked) -> dict[str, Any]:
    """Write the answer to a request that only loads the model; like Ollama's, it is one JSON object, streamed or not."""
    return _part(asked) | {"done": True, "done_reason": "load"}


def _line(data: Mapping[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False).translate(_LINE_ENDS)
    return f"{text}\n".encode("utf-8", "replace")


class _LineWriter:
    """Writes lines of JSON; the time until the first event counts as reading the prompt."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._begun = time.monotonic_ns()
        self._first: int | None = None

    def begin(self) -> bytes:
        return b""

    def write(self, event: ResponseEvent) -> bytes:
        now = time.monotonic_ns()
        self._first = now if self._first is None else self._first
        match event:
            case TextPiece(text=text):
                return self._piece(text=text)
            case ReasoningPiece(text=text):
                return self._piece(thinking=text)
            case CallPiece(index=index, call=call) if not self._asked.shape["generate"]:
                return self._piece(calls=[_call(index, call)])
            case ResponseEnded(finish_reason=reason, usage=usage, all_usage=all_usage):
                times = {"total": now - self._begun, "prompt": self._first - self._begun, "generation": now - self._first}
                return _line(_part(self._asked) | _end(reason, usage, **times) | own_usage(all_usage))
        return b""

    def _piece(self, **shown: Any) -> bytes:
        return _line(_part(self._asked, **shown) | {"done": False})

    def fail(self, error: ApiError) -> bytes:
        return _line(_error(error))


def _error(error: ApiError) -> dict[str, Any]:
    return {"error": error.message}


OLLAMA_CHAT: Final = Format(
    name="ollama",
    media_type="application/x-ndjson",
    read=_read_chat,
    whole=_whole,
    writer=_LineWriter,
    error=_error,
    ping=b"",  # clients parse every line as JSON, so an empty line would be an error
)
OLLAMA_GENERATE: Final = replace(OLLAMA_CHAT, read=_read_generate)


# -- the small paths ------------------------------------------------------------------------------------------------------

VERSION: Final = "0.32.15"  # the Ollama version whose API this implements; clients require a minimum version

PULLED: Final = tuple(
    {"status": words} for words in ("pulling manifest", "verifying sha256 digest", "writing manifest", "success")
)
"""The lines that `POST /api/pull` answers for a model that is already there; if not streamed, only the last one."""

REFUSED: Final = (("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/push"), ("DELETE", "/api/delete"))
"""Paths that would change the model server's models."""

_DETAILS: Final = {"format": "gguf", "family": "xmlcall", "families": ["xmlcall"], "parameter_size": "", "quantization_level": ""}


def _listed(model: str) -> dict[str, Any]:
    digest = hashlib.sha256(model.encode("utf-8", "replace")).hexdigest()  # `ollama list` needs it and shows 12 digits of it
    return {"name": model, "model": model, "size": 0, "digest": digest, "details": dict(_DETAILS)}


def is_named(model: str, name: str) -> bool:
    """Return whether a name refers to a model; a name without a tag means `latest`."""
    tagged = [each if ":" in each.rpartition("/")[2] else f"{each}:latest" for each in (model, name)]
    return tagged[0] == tagged[1]


def tags(models: Iterable[str]) -> dict[str, Any]:
    """Write the answer of `GET /api/tags`: the available models."""
    return {"models": [_listed(model) | {"modified_at": _now()} for model in models]}


def running(models: Mapping[str, int | None]) -> dict[str, Any]:
    """Write the answer of `GET /api/ps`: the models that are loaded, with their context lengths, if known."""
    loaded_now = {"expires_at": _now(timedelta(days=1)), "size_vram": 0}
    return {"models": [_listed(model) | loaded_now | {"context_length": length or 0} for model, length in models.items()]}


def show(model: str, context_length: int | None) -> dict[str, Any]:
    """Write the answer of `POST /api/show`: the description of a model."""
    information: dict[str, Any] = {"general.architecture": "xmlcall", "general.basename": model}
    if context_length is not None:
        information["xmlcall.context_length"] = context_length
    return {
        "capabilities": ["completion", "tools"],
        "details": dict(_DETAILS),
        "model_info": information,
        "template": "",
        "parameters": "",
        "license": "",
        "modified_at": _now(),
    }


def with_tools(show_body: Mapping[str, Any]) -> dict[str, Any]:
    """Add `tools` to the capabilities in a real Ollama's `/api/show`, unless the model cannot complete text."""
    reported = show_body.get("capabilities")
    abilities = reported if isinstance(reported, list) else ["completion"]  # before 0.6.4, Ollama reported none
    added = ["tools"] if "completion" in abilities and "tools" not in abilities else []
    return dict(show_body) | {"capabilities": [*abilities, *added]}
