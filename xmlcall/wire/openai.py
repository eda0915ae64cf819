"""OpenAI's chat completions: our types to requests, chunks and errors to our types. No I/O.

`StreamReader` emits text and reasoning at once. It holds calls, finish reason and usage until `close`, because servers spread
them over the last chunks in different orders. Usage that a server reports in mid-reply is emitted, too, as an estimate.
All input is untrusted: a field of an unexpected type counts as absent, and a chunk that is not a JSON object raises a
`BackendProtocolError`.

Source: OpenAI API reference, chat completions and their chunk object; llama.cpp tools/server/README.md for `timings`,
`prompt_progress`, `reasoning_content` and `exceed_context_size_error`; vLLM for `reasoning` and `detail`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..errors import BackendError, BackendProtocolError
from ..types.calls import Message, RawArgument, RawCall, Tool
from ..types.completion import UNCUT, Chunk, CompletionRequest, FinishReason, PromptProgress, Usage

MESSAGE_LIMIT: Final = 2000  # characters of a server's message; it is searched with patterns whose cost is not linear


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
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)}
    return {"type": "function", "function": function}


_VLLM: Final[Mapping[str, str]] = {"repeat_penalty": "repetition_penalty"}  # and SGLang, TGI, LMDeploy


def sampling_fields(options: Mapping[str, Any], *, is_llama: bool) -> dict[str, Any]:
    """Write sampling options, which come by their common names: those of llama.cpp."""
    return {name if is_llama else _VLLM.get(name, name): value for name, value in options.items()}


def request_body(request: CompletionRequest, model: str, *, is_llama: bool = False) -> dict[str, Any]:
    """Write the body of `POST /v1/chat/completions`, always streaming; `extra` overrides other fields.

    llama.cpp has other names of sampling options than other servers.
    """
    schema = None if request.json_schema is None else {"name": "reply", "schema": dict(request.json_schema)}
    optional = {
        "tools": [tool_dict(tool) for tool in request.tools],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        **sampling_fields(request.options, is_llama=is_llama),
        "stop": list(request.stop),
        "response_format": schema and {"type": "json_schema", "json_schema": schema},
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
    """Return a string, "" for anything else (servers send null); lone surrogates, which UTF-8 cannot encode, become `?`."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Return a number of tokens, None for anything else and for an impossible number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array, none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def candidates_of(tokens: Any) -> tuple[tuple[str, float], ...]:
    """Read the likeliest tokens in place of the first one in a list: `top_logprobs`, the same in OpenAI and Ollama."""
    listed = mappings(next(iter(mappings(tokens)), {}).get("top_logprobs"))
    pairs: list[tuple[str, Any]] = [(text_of(each.get("token")), each.get("logprob")) for each in listed]
    # JSON allows numbers that no float can hold, and Python's reader accepts NaN.
    return tuple((text, float(max(value, -1e6))) for text, value in pairs if type(value) in (int, float) and value < 1)


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
    progress = mapping(data.get("prompt_progress"))
    read, total = count(progress.get("processed")), count(progress.get("total"))
    return None if read is None or total is None else PromptProgress(read=min(read, total), total=total)


def native_call(index: int, name: str, arguments: str, *, cut: bool = False) -> RawCall:
    """Make a raw call from a call that the server parsed itself; an empty text of arguments counts as `{}`.

    It has an argument for each key, repeated keys included; a text that is not a JSON object is one argument without a name. Of a
    reply that was `cut`, such a text may be the first half of an object.
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
    """Read a JSON object, a repeated key as two arguments; None if the text is not an object."""
    pairs: list[tuple[str, Any]] = []

    def keep(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal pairs
        pairs = members  # the outermost object is the last one to end
        return dict(members)

    try:
        value = json.loads(text, object_pairs_hook=keep, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return tuple(RawArgument(name=key, text=json_text(value), value=value) for key, value in pairs)


def json_text(value: Any) -> str:
    """Write a JSON value; a string is returned unchanged."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # it was read with fewer frames on the stack; this text is not JSON, so no call can run with it
        return "[nested too deeply]"


def refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, as `parse_constant` of `json.loads`."""
    raise ValueError(f"{name} is not JSON")  # Python accepts NaN and Infinity, RFC 8259 does not


# -- errors ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    message: str
    overflow: bool = False  # whether the prompt does not fit into the context; with lengths, if they are reported
    # What the model wrote, if the server could not read it ("" if the error does not quote it); else None.
    output: str | None = None
    prompt_tokens: int | None = None
    context_length: int | None = None


def read_error(body: Any) -> ServerError:
    """Read an error in any form: `{"error": {"message", "type", "code"}}`, `{"error": text}`, `{"detail"}`, plain text."""
    if isinstance(body, str):
        body = _json_or_text(body)
    inner = _inner_error(body)
    fields = mapping(inner)
    whole = text_of(text_of(fields.get("message")) or json_text(inner))
    message = " ".join(whole.split())[:MESSAGE_LIMIT]
    output = rejected_output(whole, fields)
    # The words of a model that are quoted may be about anything, also about a context.
    overflow = output is None and bool(_OVERFLOW.search(f"{fields.get('type')} {fields.get('code')} {message}"))
    prompt, context = count(fields.get("n_prompt_tokens")), count(fields.get("n_ctx"))
    return ServerError(
        message=message,
        overflow=overflow,
        output=output,
        prompt_tokens=_number_in(message, _PROMPT) if overflow and prompt is None else prompt,
        context_length=_number_in(message, _CONTEXT) if overflow and context is None else context,
    )


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _inner_error(body: Any) -> Any:
    fields = mapping(body)
    return next((fields[key] for key in ("error", "detail") if fields.get(key)), body)


# What servers report if they cannot read what their model wrote. Those of the first table quote it: what precedes the quotation,
# and what follows it. llama.cpp quoted it until b9626, and LM Studio passes llama.cpp's errors on inside its own; Ollama quotes
# the arguments of a gpt-oss call without the tool's name.
_QUOTED: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"Failed to parse input at pos \d+: ?"), ""),
    (re.compile(r"error parsing tool call: raw='"), "', err="),
    (re.compile(r"Failed to parse tool call:.{0,300}?Model Output:[ \n]*", re.DOTALL), ""),
)
_REJECTED: Final = re.compile(
    r"does not match the expected [\w-]+ format|Failed to parse input\b|Invalid diff: "  # llama.cpp
    r"|(?:error|failed|failure) (?:in |while |when |to )?pars(?:e|ing)(?: the)? (?:tool|function)[ _-]calls?(?! arguments)"
    r"|XML syntax error on line \d|failed to parse XML|expected element type <"  # Ollama, for the Qwen Coder models
    r"|tokens remaining in message header|Unexpected token \d+ while expecting|no channel value found"  # Harmony
    r"|arguments must be valid JSON, got parse error|tool call validation failed",  # oMLX; Groq
    re.IGNORECASE,
)
_WRAPPED: Final = re.compile(r"(?:returned an error: |Exception - )(?=\{)")  # LM Studio, LiteLLM
_OUTPUT_LIMIT: Final = 1_000_000  # characters of a quotation that is read


def rejected_output(message: str, fields: Mapping[str, Any]) -> str | None:
    """Return what a model wrote and its server could not read, "" if the server does not quote it; None for any other error.

    Groq has the output in a field of the error.
    """
    if fields.get("code") == "tool_use_failed":
        output = text_of(fields.get("failed_generation"))
        return output if len(output) <= _OUTPUT_LIMIT else ""
    head = message[:MESSAGE_LIMIT]
    if (wrapped := _WRAPPED.search(head)) and (inner := mapping(_inner_error(_object_in(message[wrapped.end() :])))):
        return rejected_output(text_of(inner.get("message")), inner)
    for before, after in _QUOTED:
        if match := before.search(head):
            text = message[match.end() :]
            end = text.rfind(after) if after else len(text)
            return text[: end if end >= 0 else len(text)] if len(text) <= _OUTPUT_LIMIT else ""
    return "" if _REJECTED.search(head) else None


def _object_in(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


# -- streams -----------------------------------------------------------------------------------------------------------


def read_json(payload: str) -> dict[str, Any]:
    """Read one chunk; one that is not a JSON object is a `BackendProtocolError`."""
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BackendProtocolError(f"expected JSON in the stream, got {payload[:80]!r}") from error
    if not isinstance(data, dict):
        raise BackendProtocolError(f"expected a JSON object in the stream, got {payload[:80]!r}")
    return data


@dataclass(slots=True)
class _CallParts:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class StreamReader:
    """Read the chunks of one streamed reply.

    llama.cpp repeats the end of the prompt from `<think>` on (`echo`) before the reply if it knows the template's thinking tags;
    it is dropped, so that a reply always begins where the prompt ended.
    """

    def __init__(self, *, echo: str = "") -> None:
        self._echo = echo
        self._held = ""
        self._calls: list[_CallParts] = []
        self._open: dict[int | None, _CallParts] = {}
        self._by_id: dict[str, _CallParts] = {}
        self._finish_reason = ""
        self._usage: Usage | None = None
        self.done = False  # the server sent `[DONE]`

    @property
    def finished(self) -> bool:
        """Whether the server has ended the reply, by `[DONE]` or with a finish reason."""
        return self.done or bool(self._finish_reason)

    def feed(self, data: Mapping[str, Any]) -> Chunk | None:
        """Read the next chunk; return what can be shown now, None if nothing."""
        usage = usage_of(data) if data.get("usage") or data.get("timings") else None
        self._usage = usage or self._usage
        choice = next((each for each in mappings(data.get("choices")) if each.get("index", 0) == 0), {})
        self._finish_reason = text_of(choice.get("finish_reason")) or self._finish_reason
        delta = mapping(choice.get("delta"))
        for part in mappings(delta.get("tool_calls")):
            self._add_call(part)
        text = self._without_echo(text_of(delta.get("content")))
        reasoning = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
        candidates = candidates_of(mapping(logprobs).get("content")) if (logprobs := choice.get("logprobs")) else ()
        progress = progress_of(data) if "prompt_progress" in data else None  # a stream has thousands of chunks without
        if not (text or reasoning or candidates or progress):
            return None
        so_far = replace(usage, is_estimated=True) if usage and (text or reasoning) else None
        return Chunk(text=text, reasoning=reasoning, top_logprobs=candidates, progress=progress, usage=so_far)

    def close(self) -> Chunk:
        """Return the last chunk: the calls, the finish reason, the usage."""
        finish_reason = finish_reason_of(self._finish_reason)
        cut = finish_reason not in UNCUT
        found = [call for call in self._calls if call.name or call.arguments]
        calls = (native_call(n, call.name, _without_repetition("".join(call.arguments)), cut=cut) for n, call in enumerate(found))
        ids = tuple(call.id for call in found)
        return Chunk(text=self._held, tool_calls=tuple(calls), call_ids=ids, finish_reason=finish_reason, usage=self._usage)

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """Add a fragment to the call with its `id`, or its `index` if it has none.

        Some servers give all calls the index 0, and some report one call at several indices (LocalAI). Another id means another
        call, and so does another name once there are arguments.
        """
        index, identity = count(part.get("index")), text_of(part.get("id"))
        function = mapping(part.get("function"))
        name, arguments = text_of(function.get("name")), function.get("arguments")
        call = self._by_id.get(identity) or self._open.get(index)
        if call is None or (identity and call.id and identity != call.id) or (call.arguments and name not in ("", call.name)):
            call = _CallParts(id="" if identity in self._by_id else identity)
            self._calls.append(call)
        self._open[index] = call
        call.id = call.id or ("" if identity in self._by_id else identity)
        if identity:
            self._by_id[identity] = call
        if name and not call.arguments:
            call.name = name if name.startswith(call.name) else call.name + name
        if text := "" if arguments is None else json_text(arguments):
            call.arguments.append(text)

    def _without_echo(self, text: str) -> str:
        if not self._echo:
            return text
        text, self._held = self._held + text, ""
        if len(text) < len(self._echo) and self._echo.startswith(text):
            self._held = text
            return ""
        echo, self._echo = self._echo, ""
        return text.removeprefix(echo)


def joined(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Join pieces of text that have arrived together; what comes before an error is yielded before it is raised."""
    held, failed = list[Chunk](), None
    try:
        for chunk in chunks:
            if held and (not (kind := _kind_of_text(chunk)) or kind != _kind_of_text(held[0])):
                yield _join(held)
                held.clear()
            held.append(chunk)
    except BackendError as error:
        failed = error
    if held:
        yield _join(held)
    if failed is not None:
        raise failed


def _join(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    text, reasoning = ("".join(each) for each in zip(*((chunk.text, chunk.reasoning) for chunk in chunks), strict=True))
    return Chunk(text=text, reasoning=reasoning, usage=chunks[-1].usage, pieces=sum(chunk.pieces for chunk in chunks))


def _kind_of_text(chunk: Chunk) -> str:
    """Return a word for what may be joined; "" if a piece is more than text, or both text and reasoning."""
    has_more = chunk.top_logprobs or chunk.tool_calls or chunk.finish_reason or chunk.progress
    if has_more or bool(chunk.text) == bool(chunk.reasoning):
        return ""
    return ("text" if chunk.text else "reasoning") + (", counted" if chunk.usage else "")


def _without_repetition(arguments: str) -> str:
    """Return a call's arguments without their repetition: some servers report a whole call again at its end."""
    half, odd = divmod(len(arguments), 2)
    is_twice = not odd and arguments[:half] == arguments[half:] and arguments.startswith("{") and _arguments(arguments[:half])
    return arguments[:half] if is_twice else arguments


# -- why a reply ended -------------------------------------------------------------------------------------------------
# Only this section reads a server's own word. All other code compares with `FinishReason`, so that all parts of the program agree
# on whether a reply is complete.

# OpenAI's word comes first in each row. Then: llama.cpp's native API (`eos`, `word`, `limit`), Ollama (`load`, `unload`), TGI
# (`eos_token`), Anthropic (`end_turn`, `stop_sequence`, `tool_use`, `max_tokens`, `refusal`), Mistral (`model_length`), Cohere
# (`complete`, `tool_call`), Gemini (`stop`, `max_tokens`, `safety`, `recitation` ..., in capitals), Bedrock (`content_filtered`).
# Ollama sends `load` if it has loaded the model and generated nothing: an empty reply, which is retried like any other.
_WORDS: Final[Mapping[FinishReason, str]] = {
    "stop": "stop eos eos_token end end_turn stop_sequence stop_token word complete completed finished load unload",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens max_length model_length limit model_context_window_exceeded",
    "content_filter": "content_filter content_filtered refusal safety recitation blocklist prohibited_content spii",
}
_REASONS: Final[Mapping[str, FinishReason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}


def finish_reason_of(word: str) -> FinishReason:
    """Translate a server's word for why a reply ended: no word is "stop"; an unknown one is "other", as the reply may be cut."""
    word = word.strip().lower()
    return _REASONS.get(word, "other") if word else "stop"


# -- a prompt that is too long -----------------------------------------------------------------------------------------
# llama.cpp and OpenAI have a code for it; most others have only a message, each its own. The messages here are those of
# llama.cpp, vLLM, SGLang, LM Studio, Ollama, TGI, TabbyAPI, TensorRT-LLM, llama-cpp-python and the large providers. The text that
# is searched is short: see `read_error`.

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


# The first match counts. The most reliable patterns come first, those for the sum of prompt and reply last.
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


def _number_in(message: str, patterns: tuple[re.Pattern[str], ...]) -> int | None:
    match = next((found for pattern in patterns if (found := pattern.search(message))), None)
    return int(match[match.lastindex or 0].replace(",", "")) if match else None
