"""What goes to a model server, what comes back, and what is known of it, in no server's own spelling."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .calls import Message, RawCall, Tool

__all__ = ["UNCUT", "Capabilities", "Chunk", "CompletionRequest", "FinishReason", "PromptProgress", "Usage", "UsageCount"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]
"""Why a reply ended: by itself or at a stop string, with calls, at a limit of tokens, withheld by the server, or for a reason
that only the server knows."""

UNCUT: Final[frozenset[str]] = frozenset({"stop", "tool_calls"})
"""The finish reasons of a reply that is whole; every other one counts as cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one generation; None where that is not known.

    Args:
        prompt_tokens: the whole prompt, cached part included.
        completion_tokens: what was generated.
        cached_tokens: the part of the prompt that came from the server's cache.
        is_estimated: the server's count at the end is missing, since the reply was closed before it or the server makes none;
            this is the last count that it told in the reply, or each piece of the reply counted as a token.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    is_estimated: bool = False

    def __add__(self, more: "Usage") -> "Usage":
        """Return the sum; a count that neither knows stays None, and a sum with an estimate is one."""
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        known = {name: [count for each in (self, more) if (count := getattr(each, name)) is not None] for name in names}
        sums = {name: sum(counts) if counts else None for name, counts in known.items()}
        return Usage(**sums, is_estimated=self.is_estimated or more.is_estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptProgress:
    """How far a server has read the prompt.

    Args:
        read: tokens, those from the cache included.
        total: tokens of the whole prompt.
    """

    read: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed reply.

    Args:
        text: visible text.
        reasoning: text of the server's own reasoning field.
        tool_calls: calls that the server itself parsed (mode "native"), whole.
        call_ids: their ids, as the server chose them; "" for one without.
        finish_reason: set once, at the end.
        usage: of the reply so far; the last one counts.
        top_logprobs: the likeliest tokens in place of this one, each with the natural logarithm of its probability; only if asked
            for.
        progress: of the prompt, before the reply begins; only from servers that tell it.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[RawCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    top_logprobs: tuple[tuple[str, float], ...] = ()
    progress: PromptProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """What to generate.

    Args:
        messages: the conversation, system message first. If the last is the model's own, the reply goes on with it; only for
            servers whose capabilities say that they can.
        tools: sent to the server's own function calling (mode "native"); empty otherwise.
        max_tokens: None leaves it to the server.
        temperature: None leaves it to the server.
        seed: None leaves it to the server.
        stop: strings that end the generation.
        json_schema: the reply has to be JSON that is valid for it; only for servers whose capabilities say that they can.
        top_logprobs: how many of the likeliest tokens to tell for each that is generated; 0 for none.
        progress: whether to tell how far the prompt is read; servers that cannot tell do not.
        aside: whether it is asked beside the conversation, whose prompt a server should keep; never sent.
        extra: further fields, sent as they are.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    top_logprobs: int = 0
    progress: bool = False
    aside: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class UsageCount:
    """Counts what a reply uses, piece by piece, since a stream that is closed early tells no count.

    A piece without a count of the server's stands for one token, as most servers send them.
    """

    def __init__(self) -> None:
        self._told: Usage | None = None
        self._pieces = 0  # since then

    def take(self, chunk: Chunk) -> None:
        """Take the next piece of the reply."""
        if chunk.usage is not None:
            self._told, self._pieces = chunk.usage, 0
        elif chunk.text or chunk.reasoning:
            self._pieces += 1

    @property
    def usage(self) -> Usage | None:
        """What was used so far; None if nothing is known."""
        if not self._pieces:
            return self._told
        told = self._told or Usage()
        return replace(told, completion_tokens=(told.completion_tokens or 0) + self._pieces, is_estimated=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a server and its model, once it is open.

    Args:
        server: "llama.cpp", "ollama", "openai-compatible", "scripted".
        native_tools: its own function calling works with this model; None if it does not say.
        context_length: tokens that prompt and reply share; None if it does not say.
        tool_role: a message of role `tool` reaches the model; False if the template drops it, None if that is not known.
        reasoning_open: the chat template ends the prompt in an open `<think>`.
        build: the server's own version, "" if it does not say.
        continues: a last message of the model's own is continued, from its last character on.
        constrains: `json_schema` of a request is obeyed.
        sees: pictures of a message reach the model; None if it does not say.
        chat_template: the model comes with one; False if not, as base models do, which go on with a text instead of answering;
            None if that is not known.
        most_logprobs: how many of the likeliest tokens the server tells.
        keeps_aside: what is asked aside never takes the place of the conversation in its prompt cache.
        family: the wire format that the model was most likely trained on, by its template or name; "" if nothing tells.
        model_file: the name of the model's file, which often tells the quantisation; "" if it does not say.
        fingerprints: by what the model is known again, the surest first (see `fingerprint`); empty if by nothing.
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
