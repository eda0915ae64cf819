"""Whether a question needs a tool: the model's own probability of a call, held against a threshold.

Small models tell questions that need a tool from those that need none quite well, and then act wrongly: by nature some call a
tool whatever is asked, others hardly ever, and the words of a prompt move all their answers at once (measured: docs/decisions.md,
"A call threshold"). The first token of a reply decides between a call and plain words. So one token is asked for, behind the
question without any reminder; its probabilities say how much the model is for a call, as log-odds; and a threshold that was
measured for the model (`xmlcall bench calibrate`) makes a decision of that. The reminder behind the question then asks for a
call, or for plain words; a model that calls a tool nevertheless is read as ever.

Costs one token and, with servers that have no cache of prompts, reading the prompt twice. Only for replies to a person's words:
what follows a result was not measured. A reply that begins with thinking, or with half a character, decides nothing by its
first token and counts as a call, so that the usual reminder stands.
"""

import math
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from .backends.base import Backend
from .completion import CompletionRequest, Usage
from .errors import BackendProtocolError, UsageError

__all__ = ["ToolNeed", "ask_need", "checked_threshold"]

CANDIDATES: Final = 20  # the most that OpenAI, vLLM and Ollama tell
SURE: Final = 16.0  # log-odds beyond which candidates that were not told make the difference
CALL_BEGINS: Final = ("<", "`", "{", "[")  # wire formats, in a fence or not
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # what may shape the first token


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeed:
    """Whether a question needs a tool.

    Args:
        log_odds: natural logarithm of the odds that the model begins its reply with a call.
        threshold: above it the reply is to be a call.
        usage: what asking cost.
    """

    log_odds: float
    threshold: float
    usage: Usage

    @property
    def needs_tool(self) -> bool:
        """Whether the question needs a tool."""
        return self.log_odds > self.threshold


async def ask_need(backend: Backend, request: CompletionRequest, threshold: float) -> ToolNeed:
    """Ask a model whether it would call a tool.

    Args:
        backend: open.
        request: the conversation, the person's words last, without a reminder.
        threshold: log-odds.

    Raises:
        BackendError: from the stream; `BackendProtocolError` if the server tells no probabilities.
    """
    undecided = ToolNeed(log_odds=SURE, threshold=threshold, usage=Usage())
    if backend.capabilities.reasoning_open:
        return undecided
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(request, max_tokens=1, temperature=0.0, stop=(), top_logprobs=CANDIDATES, extra=extra)
    candidates: tuple[tuple[str, float], ...] = ()
    usage, text, reasoning = Usage(), "", ""
    async with aclosing(backend.stream(asked)) as chunks:
        async for chunk in chunks:
            candidates = candidates or chunk.top_logprobs
            usage, text, reasoning = chunk.usage or usage, text + chunk.text, reasoning + chunk.reasoning
    if reasoning or not (candidates or text):  # llama.cpp says nothing of a token that is half a character
        return replace(undecided, usage=usage)
    if not candidates:
        raise BackendProtocolError(
            f"a call threshold needs a server that tells the probabilities of tokens (llama.cpp, vLLM, Ollama from 0.12.11 on); "
            f"{backend.model} came without: leave the threshold out"
        )
    return ToolNeed(log_odds=log_odds(candidates), threshold=threshold, usage=usage)


def checked_threshold(threshold: float | None) -> float | None:
    """Return a threshold that can be compared.

    Args:
        threshold: log-odds; None for none.

    Raises:
        UsageError: it is not a finite number.
    """
    if threshold is not None and not math.isfinite(threshold):
        raise UsageError(f"expected a finite number as the call threshold, got {threshold}")
    return threshold


def log_odds(candidates: Iterable[tuple[str, float]]) -> float:
    """Return the log-odds that a reply begins with a call.

    Args:
        candidates: its first token's, each with the natural logarithm of its probability.
    """
    share = math.fsum(math.exp(min(logprob, 0.0)) for token, logprob in candidates if token.lstrip().startswith(CALL_BEGINS))
    least = 1 / (1 + math.exp(SURE))
    share = min(max(share, least), 1 - least)
    return round(math.log(share / (1 - share)), 3)
