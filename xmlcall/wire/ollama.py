"""Ollama's native chat API: our types to requests, lines of the stream to our types. No I/O.

It differs from OpenAI's format: arguments are an object, results name their tool, sampling parameters are in `options`, and a
call arrives whole in one line. Two fields are always sent. By default Ollama drops the oldest part of a prompt that is too long,
even tool instructions, and answers 200; `truncate: false` makes it refuse the prompt instead. `shift: false` makes it end the
reply where the context ends, as llama.cpp does.

Source: Ollama, docs/api.md, "Generate a chat completion"; api/types.go for `truncate` and `shift`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..errors import BackendProtocolError, UsageError
from ..types.calls import Message
from ..types.completion import Chunk, CompletionRequest, Usage
from .openai import candidates_of, count, finish_reason_of, json_text, mapping, mappings, native_call, text_of, tool_dict

# Han, kana and hangul are written without spaces.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_BARE = re.compile(r"\s*\{\{-?\s*\.Prompt\s*-?\}\}\s*")  # what Ollama uses if a model has no template
_RENDERER = re.compile(r"^\s*RENDERER\s", re.MULTILINE)  # code that replaces a template
_TOOL_ROLE = re.compile(r"\.Role\s+\"tool\"")  # `{{ if eq .Role "tool" }}`, Go template


LINE_LIMIT: Final = 16 * 1024 * 1024  # bytes; a piece of a reply has well under 1 MB


class JsonLines:
    """Cuts bytes at newlines alone: `splitlines` would also cut at U+0085 and U+2028, which Ollama does not escape in strings."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the unfinished line
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Read bytes; yield the lines that end in them. One above 16 MiB is a `BackendProtocolError`."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            yield b"".join((*self._parts, line))
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > LINE_LIMIT:
            raise BackendProtocolError(f"expected lines of JSON, got one of more than {LINE_LIMIT} bytes")

    def close(self) -> Iterator[bytes]:
        """Yield an unfinished last line."""
        if self._size:
            yield b"".join(self._parts)


def message_dict(message: Message) -> dict[str, Any]:
    """Write one message of the history; calls carry their arguments as an object."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        data["images"] = [_base64(url) for url in message.images]
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    if message.role == "tool" and message.name is not None:
        data["tool_name"] = message.name
    return data


def _base64(url: str) -> str:
    """Return the picture in a `data:` URL; Ollama does not fetch URLs."""
    head, _, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise UsageError(f"Ollama takes pictures as data: URLs in base64 only, got {url[:40]!r}")
    return data


def chat_body(request: CompletionRequest, model: str, *, num_ctx: int) -> dict[str, Any]:
    """Write the body of `POST /api/chat`, always streaming; `extra` overrides other fields, key by key in `options`."""
    sampling = {
        "num_predict": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        **request.options,
        "stop": list(request.stop) or None,
    }
    options = {"num_ctx": num_ctx} | {name: value for name, value in sampling.items() if value is not None}
    body: dict[str, Any] = {
        "model": model,
        "messages": [message_dict(message) for message in request.messages],
        "truncate": False,
        "shift": False,
    }
    if request.tools:
        body["tools"] = [tool_dict(tool) for tool in request.tools]
    if request.json_schema is not None:
        body["format"] = dict(request.json_schema)
    if request.top_logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return body | dict(request.extra) | {"options": options | dict(mapping(request.extra.get("options"))), "stream": True}


def stream_chunk(data: Mapping[str, Any], *, calls_before: int) -> Chunk | None:
    """Read one line of the stream; None if it has nothing to show. The line with `done` always gives a finish reason."""
    message = mapping(data.get("message"))
    given = mappings(message.get("tool_calls"))
    calls = tuple(
        native_call(number, text_of(function.get("name")), json_text(function.get("arguments") or {}))
        for number, function in enumerate((mapping(call.get("function")) for call in given), calls_before)
    )
    ids = tuple(text_of(call.get("id")) for call in given)
    text, reasoning = text_of(message.get("content")), text_of(message.get("thinking"))
    candidates = candidates_of(data.get("logprobs"))
    if data.get("done") is True:
        return Chunk(
            text=text,
            reasoning=reasoning,
            tool_calls=calls,
            call_ids=ids,
            finish_reason=finish_reason_of(text_of(data.get("done_reason"))),
            usage=_usage(data),
            top_logprobs=candidates,
        )
    if not (text or reasoning or calls or candidates):
        return None
    return Chunk(text=text, reasoning=reasoning, tool_calls=calls, call_ids=ids, top_logprobs=candidates)


def _usage(data: Mapping[str, Any]) -> Usage | None:
    prompt, completion = count(data.get("prompt_eval_count")), count(data.get("eval_count"))
    if prompt is None and completion is None:
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion)  # the cached part is included, but not reported separately


def context_length_of(model_info: Mapping[str, Any]) -> int | None:
    """Return the context length that the model was trained for, from `model_info` of `/api/show`."""
    return count(model_info.get(f"{text_of(model_info.get('general.architecture'))}.context_length")) or None


def tool_role_of(capabilities: Iterable[str], template: str) -> bool:
    """Return whether a message of role `tool` reaches the model: templates that do not check for the role drop it silently."""
    return "tools" in capabilities and bool(_TOOL_ROLE.search(template))


def has_chat_template(template: str, modelfile: str) -> bool | None:
    """Return, by the Go template and modelfile of `/api/show`, whether a model has a chat template; None if unknown."""
    return not _BARE.fullmatch(template) or bool(_RENDERER.search(modelfile)) if template else None


def least_tokens(messages: Iterable[Message]) -> int:
    """Return a lower bound for the tokens in the messages, which distinguishes a truncated prompt from a short one.

    Most tokenizers make more than one token of a word, and few join words. So three tokens for four words, or one for four
    characters in scripts without spaces, is below all of them. The model's replies do not count, because templates drop the
    reasoning in them; nor do results of role `tool`, which templates may drop whole.
    """
    texts = [message.content for message in messages if message.role in ("system", "user")]
    return sum(max(len(text.split()) * 3 // 4, len(_UNSPACED.findall(text)) // 4) for text in texts)
