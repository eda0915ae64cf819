"""Whether a message needs a tool: the model's own probability of a call, held against a threshold.

Small models tell messages that need a tool from those that need none quite well, and then act wrongly: by nature some call a
tool whatever is said, others hardly ever, and the words of a prompt move all their replies at once (measured: docs/decisions.md,
"A call threshold"). The first token of a reply decides between a call and plain words. So one token is asked for; its
probabilities say how much the model is for a call, as log-odds; and a threshold makes a decision of that. If it is a call, the
block is begun for the model, where the server goes on from there; if not, plain words are asked for.

**The message is asked about alone**, behind the tool prompt and without what was said before. Behind a conversation the first
token tells how the conversation has gone so far: after one plain answer the model goes on in plain words, after a call it calls
again. Alone, the same model at the same turns tells need from no need with an area under the ROC curve of 0.97 and 0.99 instead
of 0.68 and 0.61 (benchmarks/results/need.md). What refers to something earlier ("and in Oslo?", "yes, do that") sounds like a
request also by itself; the arguments come from the whole conversation, which the reply is generated from.

**The tail counts.** In plain talk the opening of a call is not among the 20 likeliest tokens, and how unlikely it is tells
"thanks" from "is it sunny in Cairo?". llama.cpp tells as many as are wanted.

**Thresholds.** A model's own is measured (`xmlcall bench calibrate`). For a model that nobody measured, `auto` asks it about a
few messages of which the answer is known, greetings on one side and spelled-out calls of the first and the last tool on the
other, and takes the middle: once for each tool prompt.

Costs one token, and reading the message twice; `auto` six tokens more for each tool prompt. Only for a person's words: what
follows a result was not measured. A reply that begins with thinking, or with half a character, decides nothing by its first
token and counts as a call, so that the usual reminder stands.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Literal

from .backends.base import Backend
from .catalog import Catalog
from .completion import CompletionRequest, Usage
from .errors import BackendProtocolError, BackendStatusError, ContextOverflow, UsageError
from .prompt import plain_request
from .types import Message

__all__ = ["Threshold", "ToolNeed", "ToolNeeds", "ask_need", "checked_threshold"]

Threshold = float | Literal["auto"]

SURE: Final = 16.0  # log-odds beyond which what was told makes no difference
CALL_BEGINS: Final = ("<", "`", "{", "[")  # wire formats, in a fence or not
LONGEST: Final = 4000  # characters of a message that are asked about: of a longer one, its beginning and its end
NEEDS_NONE: Final = ("Hello!", "Thanks!", "你好", "谢谢")
LEAST_SPREAD: Final = 3.0  # log-odds between messages that need a tool and those that need none, or `auto` decides nothing
KEPT: Final = 32  # thresholds of tool prompts
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # what may shape the first token


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeed:
    """Whether a message needs a tool.

    Args:
        log_odds: natural logarithm of the odds that the model begins its reply with a call.
        threshold: above it the reply is to be a call.
        usage: what asking cost.
        is_sure: False where the model's first token decides nothing, and the usual reminder is to stand.
    """

    log_odds: float
    threshold: float
    usage: Usage
    is_sure: bool = True

    @property
    def needs_tool(self) -> bool:
        """Whether the message needs a tool."""
        return self.log_odds > self.threshold


class ToolNeeds:
    """Decides for one model; keeps what `auto` found for each tool prompt.

    Args:
        threshold: log-odds, or `auto`.

    Raises:
        UsageError: the threshold is not a finite number.
    """

    def __init__(self, threshold: Threshold) -> None:
        self._threshold = checked_threshold(threshold)
        self._found: OrderedDict[str, float | None] = OrderedDict()
        self._finding = asyncio.Lock()

    async def ask(self, backend: Backend, request: CompletionRequest, catalog: Catalog) -> ToolNeed | None:
        """Ask a model whether a person's last words need a tool.

        Args:
            backend: of the model; open.
            request: the conversation behind the tool prompt, the person's words last, without a reminder.
            catalog: what is offered.

        Returns:
            None where `auto` cannot tell: the server tells no probabilities, or the model's say nothing.

        Raises:
            BackendError: from the stream; `BackendProtocolError` if a threshold was given and the server tells no probabilities.
        """
        spent = Usage()
        threshold: float | None
        if self._threshold == "auto":
            threshold, spent = await self._auto(backend, request, catalog)
        else:
            threshold = self._threshold
        if threshold is None:
            return None
        need = await ask_need(backend, request, threshold)
        return replace(need, usage=spent + need.usage)

    async def _auto(self, backend: Backend, request: CompletionRequest, catalog: Catalog) -> tuple[float | None, Usage]:
        """Return the threshold of a tool prompt, and what it cost to find it."""
        system = request.messages[0].content if request.messages[0].role == "system" else ""
        async with self._finding:
            if system in self._found:
                self._found.move_to_end(system)
                return self._found[system], Usage()
            threshold, usage = await _between(backend, request, catalog)
            self._found[system] = threshold
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
            return threshold, usage


async def _between(backend: Backend, request: CompletionRequest, catalog: Catalog) -> tuple[float | None, Usage]:
    """Find the middle between messages that need no tool and those that need one; None where a model does not tell them apart."""
    tools = list(catalog)
    sides = (NEEDS_NONE, tuple(dict.fromkeys(plain_request(tool) for tool in (tools[0], tools[-1]))))
    usage, means = Usage(), list[float]()
    for messages in sides:
        asked: list[float] = []
        for text in messages:
            try:
                need = await ask_need(backend, _with_last(request, text), 0.0)
            except (BackendProtocolError, BackendStatusError) as error:
                if isinstance(error, ContextOverflow):
                    raise
                return None, usage  # no probabilities: some servers refuse to be asked for them
            if not need.is_sure:
                return None, usage + need.usage
            usage = usage + need.usage
            asked.append(need.log_odds)
        means.append(math.fsum(asked) / len(asked))
    none, one = means
    return (round((none + one) / 2, 2) if one - none >= LEAST_SPREAD else None), usage


def _with_last(request: CompletionRequest, text: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages[:-1], Message(role="user", content=text)))


async def ask_need(backend: Backend, request: CompletionRequest, threshold: float) -> ToolNeed:
    """Ask a model whether the last message, alone, needs a tool.

    Args:
        backend: open.
        request: the conversation, the person's words last, without a reminder.
        threshold: log-odds.

    Raises:
        BackendError: from the stream; `BackendProtocolError` if the server tells no probabilities.
    """
    undecided = ToolNeed(log_odds=SURE, threshold=threshold, usage=Usage(), is_sure=False)
    if backend.capabilities.reasoning_open:
        return undecided
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(
        request,
        messages=_alone(request.messages),
        max_tokens=1,
        temperature=0.0,
        stop=(),
        top_logprobs=backend.capabilities.most_logprobs,
        extra=extra,
    )
    candidates: tuple[tuple[str, float], ...] = ()
    usage, text, reasoning = Usage(), "", ""
    async with aclosing(backend.stream(asked)) as chunks:
        async for chunk in chunks:
            candidates = candidates or chunk.top_logprobs
            usage, text, reasoning = chunk.usage or usage, text + chunk.text, reasoning + chunk.reasoning
            if text and not candidates:  # nothing is told; a server that does not know `max_tokens` might go on for long
                break
    if reasoning or not (candidates or text):  # llama.cpp says nothing of a token that is half a character
        return replace(undecided, usage=usage)
    if not candidates:
        raise BackendProtocolError(
            f"a call threshold needs a server that tells the probabilities of tokens (llama.cpp, vLLM, Ollama from 0.12.11 on); "
            f"{backend.model} came without: leave the threshold out"
        )
    return ToolNeed(log_odds=log_odds(candidates), threshold=threshold, usage=usage)


def _alone(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the tool prompt and the last message, which is cut in its middle if it is long."""
    *before, last = messages
    if len(last.content) > LONGEST:
        last = replace(last, content=f"{last.content[: LONGEST // 2]}\n...\n{last.content[-LONGEST // 2 :]}")
    return (*before[:1], last) if before and before[0].role == "system" else (last,)


def checked_threshold(threshold: Threshold) -> Threshold:
    """Return a threshold that can be compared.

    Args:
        threshold: log-odds, or `auto`.

    Raises:
        UsageError: it is something else, or not a finite number.
    """
    if threshold != "auto" and not (isinstance(threshold, (int, float)) and math.isfinite(threshold)):
        raise UsageError(f"expected a finite number or 'auto' as the call threshold, got {threshold!r}")
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
