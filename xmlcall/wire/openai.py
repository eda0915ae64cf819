"""OpenAI's chat completions: requests from our types, chunks and errors into them. Pure.

`StreamReader` lets text and reasoning out at once and holds calls, finish reason and usage until `close`, since servers spread
them over the last chunks in different orders. What a server tells of the usage in mid-reply goes out too, as an estimate.
Everything that arrives is hostile: a field of an unexpected type counts as absent, what is no JSON object at all is a
`BackendProtocolError`.

Source: OpenAI API reference, chat completions and their chunk object; llama.cpp tools/server/README.md for `timings`,
`prompt_progress`, `reasoning_content` and `exceed_context_size_error`; vLLM for `reasoning` and `detail`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..errors import BackendProtocolError
from ..types.calls import Message, RawArgument, RawCall, Tool
from ..types.completion import UNCUT, Chunk, CompletionRequest, FinishReason, PromptProgress, Usage

__all__ = [
    "ServerError",
    "StreamReader",
    "count",
    "finish_reason_of",
    "json_text",
    "mapping",
    "mappings",
    "message_dict",
    "native_call",
    "read_error",
    "read_json",
    "request_body",
    "text_of",
    "tool_dict",
    "usage_of",
]

MESSAGE_LIMIT: Final = 2000  # characters of a server's words; they are searched with patterns whose cost is not linear


# -- requests ----------------------------------------------------------------------------------------------------------


def message_dict(message: Message) -> dict[str, Any]:
    """Write one message of the history; calls carry their arguments as a JSON string."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in message.images]
        data["content"] = [{"type": "text", "text": message.content}, *pictures]
    if message.tool_calls:
        data["content"] = message.content or None  # as OpenAI itself writes it: null beside calls, never ""
        data["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def tool_dict(tool: Tool) -> dict[str, Any]:
    """Write one entry of `tools`."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)}
    return {"type": "function", "function": function}


def _response_format(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if schema is None else {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}


def request_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """Write the body of `POST /v1/chat/completions`, always streaming; `extra` wins over what it repeats."""
    optional = {
        "tools": [tool_dict(tool) for tool in request.tools],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stop": list(request.stop),
        "response_format": _response_format(request.json_schema),
        "logprobs": True if request.top_logprobs else None,
        "top_logprobs": request.top_logprobs or None,
    }
    return {
        "model": model,
        "messages": [message_dict(message) for message in request.messages],
        "stream_options": {"include_usage": True},
        **{name: value for name, value in optional.items() if value is not None and value != []},
        **request.extra,
        "stream": True,
    }


# -- single values -----------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Take a string, "" for all else (servers send null); half surrogate pairs, which no UTF-8 can hold, become `?`."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Take a number of tokens, None for all else and for what no server has ever read."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Take a JSON object, an empty one for all else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Take the objects of a JSON array, none for all else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def candidates_of(tokens: Any) -> tuple[tuple[str, float], ...]:
    """Read the likeliest tokens in place of the first of a list: `top_logprobs`, alike with OpenAI and Ollama."""
    listed = mappings(next(iter(mappings(tokens)), {}).get("top_logprobs"))
    told: list[tuple[str, Any]] = [(text_of(each.get("token")), each.get("logprob")) for each in listed]
    # JSON has numbers that no float holds, and Python's reader NaN.
    return tuple((text, float(max(value, -1e6))) for text, value in told if type(value) in (int, float) and value < 1)


def usage_of(data: Mapping[str, Any]) -> Usage | None:
    """Read the token counts of a chunk: `usage`, else llama.cpp's `timings`; None if it has neither."""
    usage, timings = mapping(data.get("usage")), mapping(data.get("timings"))
    cached = count(mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    cache_n, prompt_n = count(timings.get("cache_n")), count(timings.get("prompt_n"))
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    if prompt is None and prompt_n is not None:
        prompt = prompt_n + (cache_n or 0)  # `prompt_n` is the part that was not cached
    if completion is None:
        completion = count(timings.get("predicted_n"))
    found = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cache_n if cached is None else cached)
    return None if found == Usage() else found


def progress_of(data: Mapping[str, Any]) -> PromptProgress | None:
    """Read how far llama.cpp has read the prompt: `prompt_progress`, which a request asks for with `return_progress`."""
    told = mapping(data.get("prompt_progress"))
    read, total = count(told.get("processed")), count(told.get("total"))
    return None if read is None or total is None else PromptProgress(read=min(read, total), total=total)


def native_call(index: int, name: str, arguments: str, *, cut: bool = False) -> RawCall:
    """Make a raw call of one that the server parsed itself.

    Args:
        index: its number in the reply.
        name: the tool's name.
        arguments: the text of a JSON object; no text at all counts as `{}`.
        cut: the reply ended early, so a text that is no object may be the first half of one.

    Returns:
        One argument a key, a repeated key repeated; what is no JSON object is one argument without a name.
    """
    given = () if not (arguments.strip() or cut) else _arguments(arguments)
    return RawCall(
        index=index,
        name=name,
        arguments=(RawArgument(name="", text=arguments),) if given is None else given,
        dialect="native",
        text=f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments or "{}"}}}',
        complete=given is not None or not cut,
    )


def _arguments(text: str) -> tuple[RawArgument, ...] | None:
    """Read a JSON object, a repeated key as two arguments; None if it is no object."""
    pairs: list[tuple[str, Any]] = []

    def keep(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal pairs
        pairs = members  # the outermost object is the last one to end
        return dict(members)

    try:
        value = json.loads(text, object_pairs_hook=keep, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return tuple(RawArgument(name=key, text=json_text(value), value=value) for key, value in pairs)


def json_text(value: Any) -> str:
    """Write a JSON value, a string as itself."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # it was read with fewer frames on the stack; this text is no JSON, so nothing can run on it
        return "[nested too deeply]"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, RFC 8259 does not


# -- errors ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """What a server said went wrong.

    Args:
        message: its words.
        overflow: the prompt does not fit into the context.
        prompt_tokens: the prompt's length, if it said so.
        context_length: what the context holds, if it said so.
    """

    message: str
    overflow: bool = False
    prompt_tokens: int | None = None
    context_length: int | None = None


def read_error(body: Any) -> ServerError:
    """Read an error in any of its forms: `{"error": {"message", "type", "code"}}`, `{"error": text}`, `{"detail"}`, mere text."""
    if isinstance(body, str):
        body = _json_or_text(body)
    inner = _inner_error(body)
    fields = mapping(inner)
    message = " ".join(text_of(text_of(fields.get("message")) or json_text(inner)).split())[:MESSAGE_LIMIT]
    overflow = bool(_OVERFLOW.search(f"{fields.get('type')} {fields.get('code')} {message}"))
    told, length = count(fields.get("n_prompt_tokens")), count(fields.get("n_ctx"))
    return ServerError(
        message=message,
        overflow=overflow,
        prompt_tokens=_told(_PROMPT, message) if overflow and told is None else told,
        context_length=_told(_CONTEXT, message) if overflow and length is None else length,
    )


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _inner_error(body: Any) -> Any:
    fields = mapping(body)
    return next((fields[key] for key in ("error", "detail") if fields.get(key)), body)


# -- streams -----------------------------------------------------------------------------------------------------------


def read_json(payload: str) -> dict[str, Any]:
    """Read one chunk.

    Raises:
        BackendProtocolError: it is no JSON object.
    """
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BackendProtocolError(f"expected JSON in the stream, got {payload[:80]!r}") from error
    if not isinstance(data, dict):
        raise BackendProtocolError(f"expected a JSON object in the stream, got {payload[:80]!r}")
    return data


@dataclass(slots=True)
class _CallParts:
    """A native call while its fragments arrive."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class StreamReader:
    """Read the chunks of one streamed reply.

    Args:
        echo: the end of the prompt, `<think>` and what follows it, which llama.cpp repeats before the reply if it knows the
            template's thinking tags; dropped, so that a reply always begins where the prompt ended.
    """

    def __init__(self, *, echo: str = "") -> None:
        self._echo = echo
        self._held = ""
        self._calls: list[_CallParts] = []
        self._open: dict[int | None, _CallParts] = {}
        self._finish_reason = ""
        self._usage: Usage | None = None
        self.done = False  # the server said `[DONE]`

    @property
    def finished(self) -> bool:
        """Whether the server said that the reply is over, in one way or another."""
        return self.done or bool(self._finish_reason)

    def feed(self, data: Mapping[str, Any]) -> Chunk | None:
        """Take the next chunk; give what of it can be shown, None if nothing."""
        usage = usage_of(data) if data.get("usage") or data.get("timings") else None
        self._usage = usage or self._usage
        choice = self._choice(data.get("choices"))
        self._finish_reason = text_of(choice.get("finish_reason")) or self._finish_reason
        delta = mapping(choice.get("delta"))
        for part in mappings(delta.get("tool_calls")):
            self._add_call(part)
        text = self._without_echo(text_of(delta.get("content")))
        reasoning = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
        candidates = candidates_of(mapping(choice.get("logprobs")).get("content"))
        progress = progress_of(data)
        if not (text or reasoning or candidates or progress):
            return None
        so_far = replace(usage, is_estimated=True) if usage and (text or reasoning) else None
        return Chunk(text=text, reasoning=reasoning, top_logprobs=candidates, progress=progress, usage=so_far)

    def close(self) -> Chunk:
        """Give the last chunk: the calls, the finish reason, the usage."""
        finish_reason = finish_reason_of(self._finish_reason)
        cut = finish_reason not in UNCUT
        calls = (native_call(n, call.name, "".join(call.arguments), cut=cut) for n, call in enumerate(self._calls))
        ids = tuple(call.id for call in self._calls)
        return Chunk(text=self._held, tool_calls=tuple(calls), call_ids=ids, finish_reason=finish_reason, usage=self._usage)

    @staticmethod
    def _choice(choices: Any) -> Mapping[str, Any]:
        return next((choice for choice in mappings(choices) if choice.get("index", 0) == 0), {})

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """Add a fragment to its call: the one of its `index`, unless it brings a new `id` (some servers number all calls 0)."""
        index, identity = count(part.get("index")), text_of(part.get("id"))
        call = self._open.get(index)
        if call is None or (identity and call.id and identity != call.id):
            call = self._open[index] = _CallParts()
            self._calls.append(call)
        function = mapping(part.get("function"))
        call.id = call.id or identity
        call.name = call.name or text_of(function.get("name"))
        arguments = function.get("arguments")
        call.arguments.append("" if arguments is None else json_text(arguments))

    def _without_echo(self, text: str) -> str:
        if not self._echo:
            return text
        text, self._held = self._held + text, ""
        if len(text) < len(self._echo) and self._echo.startswith(text):
            self._held = text
            return ""
        echo, self._echo = self._echo, ""
        return text.removeprefix(echo)


# -- why a reply ended -------------------------------------------------------------------------------------------------
# Only here is a server's own word looked at. What is above compares with `FinishReason`, so that a reply which is whole for one
# part of the program is whole for all.


# OpenAI's word comes first in each row. Then: llama.cpp's native API (`eos`, `word`, `limit`), Ollama (`load`, `unload`), TGI
# (`eos_token`), Anthropic (`end_turn`, `stop_sequence`, `tool_use`, `max_tokens`, `refusal`), Mistral (`model_length`), Cohere
# (`complete`, `tool_call`), Gemini (`stop`, `max_tokens`, `safety`, `recitation` ..., in capitals), Bedrock (`content_filtered`).
# Ollama says `load` where it has loaded the model and generated nothing: an empty reply, which is asked for again as any other.
_WORDS: Final[Mapping[FinishReason, str]] = {
    "stop": "stop eos eos_token end end_turn stop_sequence stop_token word complete completed finished load unload",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens max_length model_length limit model_context_window_exceeded",
    "content_filter": "content_filter content_filtered refusal safety recitation blocklist prohibited_content spii",
}
_REASONS: Final[Mapping[str, FinishReason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}


def finish_reason_of(word: str) -> FinishReason:
    """Read a server's word for why a reply ended.

    Args:
        word: in any case of letters; "" if the server ended the reply without one.

    Returns:
        "stop" for no word; "other" for one that is not known here. A reply that ended for an unknown reason may be cut, and half
        a call must not run.
    """
    word = word.strip().lower()
    return _REASONS.get(word, "other") if word else "stop"


# -- a prompt that is too long -----------------------------------------------------------------------------------------
# llama.cpp and OpenAI have a code for it, most others only words, and each its own. The words here are of llama.cpp, vLLM,
# SGLang, LM Studio, Ollama, TGI, TabbyAPI, TensorRT-LLM, llama-cpp-python and the large providers. What is read is short: see
# `read_error`.


_OVERFLOW: Final = re.compile(
    r"exceed_context_size_error|context_length_exceeded|context_window_exceeded|maximum context length"
    r"|(?:exceed\w*|(?:long|great|larg)er than|too (?:long|large|big) for|overflow\w*)\b[^.]{0,60}?"
    r"(?:\bcontext\b|max_seq_len|max_model_len|n_ctx|\bmodel length)"
    r"|\bcontext(?: \w+){0,3}? (?:overflow|exceed)|n_keep: ?\d+ ?>=? ?n_ctx"
    r"|(?:prompt|input)(?: is)? too long|model token limit"
    r"|context (?:length|size|window)(?: is| of)? only \d|maximum (?:input|model|prompt) length"
    r"|(?:input|prompt) (?:length|tokens?|token count)\b[^.]{0,40}? exceed"
    r"|`inputs`[^.]{0,40}? must (?:be|have)|tokens in the prompt cannot exceed",
    re.IGNORECASE,
)
_NUMBER: Final = r"(\d{1,3}(?:,\d{3})+|\d{1,15})(?!\d)"


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text.replace("#", _NUMBER), re.IGNORECASE) for text in texts)


# The first that is found counts; what is surer comes first, and the sum of prompt and reply last.
_PROMPT: Final = _patterns(
    r"\(# in the messages",
    r"# tokens from the input",
    r"\b(?:request|input|prompt) \(#",
    r"(?:resulted in|request has|passed|prompt contains|request contains) # (?:input )?tokens",
    r"the first # tokens",
    r"n_keep: ?#",
    r"\b(?:input|prompt) (?:length|token count)(?: of| is)? \(?#",
    r"\(length #\)",
    r"(?:context|prompt) length # is",
    r"given: #",
    r"too long: # tokens",
    r"requested tokens \(#",
    r"requested:? (?:about |a total of )?#",
    r"received #",
)
_CONTEXT: Final = _patterns(
    r"(?:max_seq_len|max_model_len|n_ctx):? \(?#",
    r"context (?:length|size|window|limit)(?: is| of)?(?: only)? \(?#(?! is greater)",
    r"context limit: # \+ # > #",
    r"maximum allowed length \(?#",
    r"maximum (?:model|prompt|input) length(?: is| of)? \(?#",
    r"must be <= #",
    r"less than # tokens",
    r"tokens > #",
    r"tokens allowed \(#",
    r"with # maximum context",
    r"token limit: #",
    r"(?:the limit of|cannot exceed) #",
)


def _told(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    """Return the first figure that is found in the words of an overflow."""
    match = next((found for pattern in patterns if (found := pattern.search(message))), None)
    return int(match[match.lastindex or 0].replace(",", "")) if match else None
