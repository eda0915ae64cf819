"""Requests to a model server, its answers and its capabilities, independent of any server's wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .calls import Message, RawCall, Tool

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]
"""Why a reply ended: by itself or at a stop string, with calls, at a token limit, withheld by the server, or for a reason
that only the server knows."""

UNCUT: Final[frozenset[str]] = frozenset({"stop", "tool_calls"})
"""The finish reasons of a complete reply; every other one means that the reply was cut."""

SAMPLED: Final = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "repeat_penalty")
"""The common names of sampling options; a wire format may have others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one generation; None if unknown.

    Args:
        prompt_tokens: the whole prompt, including the cached part.
        completion_tokens: the generated tokens.
        cached_tokens: the part of the prompt that came from the server's cache.
        is_estimated: whether the server's final count is missing, because the reply was closed before it arrived or the server
            sends none. Then the count is the last one sent during the reply, plus one token for each piece after it.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    is_estimated: bool = False

    def __add__(self, more: "Usage") -> "Usage":
        """Return the sum; a count that is None in both stays None, and a sum with an estimate is an estimate."""
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        known = {name: [count for each in (self, more) if (count := getattr(each, name)) is not None] for name in names}
        sums = {name: sum(counts) if counts else None for name, counts in known.items()}
        return Usage(**sums, is_estimated=self.is_estimated or more.is_estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProgress:
    """How far a server has read the prompt."""

    read: int  # tokens read so far, including those from the cache
    total: int  # tokens of the whole prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed reply.

    Args:
        text: visible text.
        reasoning: text of the server's own reasoning field.
        tool_calls: calls that the server itself parsed (mode "native"), whole.
        call_ids: their ids, as the server chose them; "" for a call without one.
        finish_reason: set once, at the end.
        usage: token counts of the reply so far; the last one counts.
        top_logprobs: the likeliest tokens in place of this one, each with the natural logarithm of its probability; only if
            requested.
        progress: how far the prompt is read, before the reply begins; only from servers that report it.
        pieces: how many pieces of the server's stream are joined in this one.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[RawCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    top_logprobs: tuple[tuple[str, float], ...] = ()
    progress: PromptProgress | None = None
    pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """What to generate.

    Args:
        messages: the conversation, system message first. If the last is the model's own, the reply continues it; only for
            servers with the capability `continues`.
        tools: sent to the server's own function calling (mode "native"); empty otherwise.
        max_tokens: None leaves it to the server.
        temperature: None leaves it to the server.
        seed: None leaves it to the server.
        options: further sampling options by their common names, such as `top_p` (see `SAMPLED`).
        stop: strings that end the generation.
        json_schema: the reply must be JSON that is valid under this schema; only for servers with the capability `constrains`.
        top_logprobs: how many of the likeliest tokens to report for each generated token; 0 for none.
        progress: whether to report how far the prompt is read; ignored by servers that cannot.
        aside: whether this request is beside the conversation, whose prompt the server should keep cached; never sent.
        extra: further fields, sent unchanged.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    top_logprobs: int = 0
    progress: bool = False
    aside: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class UsageCount:
    """Counts a reply's tokens piece by piece, because a stream that is closed early reports no total.

    A piece without a count by the server counts as one token, because most servers send one token a piece.
    """

    def __init__(self) -> None:
        self._reported: Usage | None = None
        self._pieces = 0  # since the last report

    def take(self, chunk: Chunk) -> None:
        """Take the next piece of the reply."""
        if chunk.usage is not None:
            self._reported, self._pieces = chunk.usage, 0
        elif chunk.text or chunk.reasoning:
            self._pieces += chunk.pieces

    @property
    def usage(self) -> Usage | None:
        """The counts so far; None if nothing is known."""
        if not self._pieces:
            return self._reported
        usage = self._reported or Usage()
        return replace(usage, completion_tokens=(usage.completion_tokens or 0) + self._pieces, is_estimated=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a server and its model, once the connection is open.

    Args:
        server: "llama.cpp", "ollama", "openai-compatible", "scripted".
        native_tools: whether the server's own function calling works with this model; None if unknown.
        context_length: tokens that prompt and reply share; None if unknown.
        tool_role: whether a message of role `tool` reaches the model; False if the template drops it, None if unknown.
        reasoning_open: whether the chat template ends the prompt in an open `<think>`.
        build: the server's own version, "" if unknown.
        continues: whether the server continues a last message of role `assistant`, from its last character.
        constrains: whether the server obeys a request's `json_schema`.
        sees: whether a message's pictures reach the model; None if unknown.
        chat_template: whether the model has one; False for base models, which continue a text instead of answering; None if
            unknown.
        most_logprobs: the maximum number of likeliest tokens that the server reports.
        keeps_aside: whether a request with `aside` never displaces the conversation from the server's prompt cache.
        family: the wire format that the model was most likely trained on, by its template or name; "" if unknown.
        model_file: the name of the model's file, which often states the quantisation; "" if unknown.
        fingerprints: identifiers of the model, most reliable first (see `server_facts`); empty if there are none.
        recommended: the sampling options that the model's makers recommend, by their common names; empty if unknown.
    """

    server: str
    native_tools: bool | None = None
    context_length: int | None = None
    tool_role: bool | None = None
    reasoning_open: bool = False
    build: str = ""
    continues: bool = False
    constrains: bool = False
    sees: bool | None = None
    chat_template: bool | None = None
    most_logprobs: int = 20  # OpenAI's, vLLM's and Ollama's limit
    keeps_aside: bool = False
    family: str = ""
    model_file: str = ""
    fingerprints: tuple[str, ...] = ()
    recommended: Mapping[str, float] = field(default_factory=dict)
