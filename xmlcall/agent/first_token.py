"""What a model would write next: one token, with the probabilities of those that could stand in its place.

Greedy, and without what a caller asked for besides (a stop string, a schema): the question is the model's own opinion.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from ..backends.base import Backend
from ..types.completion import CompletionRequest, Usage

__all__ = ["FirstToken", "first_token"]

_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # what may shape the first token


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The first token of a reply.

    Args:
        candidates: the likeliest tokens, each with the natural logarithm of its probability; empty if the server tells none.
        text: what it is; "" where it is half a character.
        reasoning: what came in the server's own reasoning field.
        usage: what asking cost.
    """

    candidates: tuple[tuple[str, float], ...]
    text: str
    reasoning: str
    usage: Usage


async def first_token(backend: Backend, request: CompletionRequest) -> FirstToken:
    """Ask a model for the first token of its reply, or for the next one of a reply that was begun for it.

    Args:
        backend: open.
        request: the conversation.

    Raises:
        BackendError: from the stream.
    """
    asked = replace(
        request,
        max_tokens=1,
        temperature=0.0,
        stop=(),
        top_logprobs=backend.capabilities.most_logprobs,
        extra={name: value for name, value in request.extra.items() if name in _EXTRA},
    )
    candidates: tuple[tuple[str, float], ...] = ()
    usage, text, reasoning = Usage(), "", ""
    async with aclosing(backend.stream(asked)) as chunks:
        async for chunk in chunks:
            candidates = candidates or chunk.top_logprobs
            usage, text, reasoning = chunk.usage or usage, text + chunk.text, reasoning + chunk.reasoning
            if text and not candidates:  # nothing is told; a server that does not know `max_tokens` might go on for long
                break
    return FirstToken(candidates=candidates, text=text, reasoning=reasoning, usage=usage)
