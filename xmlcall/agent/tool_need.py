"""Whether a message needs a tool: the model's own probability of a call, held against a threshold.

Small models tell messages that need a tool from those that need none quite well, and then act wrongly: by nature some call a
tool whatever is said, others hardly ever, and the words of a prompt move all their replies at once (measured:
docs/decisions/tool-need.md). The first token of a reply decides between a call and plain words. So one token is asked for; its
probabilities say how much the model is for a call, as log-odds; and a threshold makes a decision of that. If it is a call, the
block is begun for the model, where the server goes on from there; if not, plain words are asked for.

**The message is asked about alone**, behind the tool prompt and without what was said before. Behind a conversation the first
token tells how the conversation has gone so far: after one plain answer the model goes on in plain words, after a call it calls
again. Alone, the same model at the same turns tells need from no need with an area under the ROC curve of 0.97 and 0.99 instead
of 0.68 and 0.61 (benchmarks/results/need.md). What refers to something earlier ("and in Oslo?", "yes, do that") sounds like a
request also by itself; the arguments come from the whole conversation, which the reply is generated from.

**Which tool it would be counts, too.** Words that need a tool move the model's choice of one away from its habit, and talk does
not (`tool_choice`). How far is added to the log-odds, where it can change the decision. On the tuning half that raises the area
from 0.971 to 0.976 (0.5B) and from 0.986 to 0.999 (1.5B). **With one tool** there is no choice; how surely the model names it
counts instead, and can only speak against a call.

**The tail counts.** In plain talk the opening of a call is not among the 20 likeliest tokens, and how unlikely it is tells
"thanks" from "is it sunny in Cairo?". llama.cpp tells as many as are wanted.

**Thresholds.** `auto` asks the model about a few messages of which the answer is known, greetings on one side and spelled-out
calls of the first and the last tool on the other, and takes the middle: once for each tool prompt.

Costs one token, and reading the message twice (and the tool prompt, once: `asked_alone`); `auto` six tokens more for each tool
prompt, and the choice of a tool a few. Only
for a person's words: what follows a result was not measured. A reply that begins with thinking, or with half a character, decides
nothing by its first token and counts as a call, so that the usual reminder stands.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..backends.base import Backend
from ..dialects import Dialect
from ..dialects.write import beginning
from ..errors import BackendProtocolError, BackendStatusError, ContextOverflow, UsageError
from ..prompting.system import plain_request
from ..tools.catalog import Catalog
from ..types.completion import CompletionRequest, Usage
from .asked_alone import alone, in_place_of_last
from .first_token import first_token
from .tool_choice import ToolChoices

__all__ = ["Threshold", "ToolNeed", "ToolNeeds", "ask_need", "checked_threshold"]

Threshold = float | Literal["auto"]

SURE: Final = 16.0  # log-odds beyond which what was told makes no difference
CALL_BEGINS: Final = ("<", "`", "{", "[")  # wire formats, in a fence or not
NEEDS_NONE: Final = ("Hello!", "Thanks!", "你好", "谢谢")
LEAST_SPREAD: Final = 3.0  # log-odds between messages that need a tool and those that need none, or `auto` decides nothing
WEIGHT: Final = 3.0  # log-odds for each nat by which the words move the choice of a tool
USUAL: Final = 0.3  # nats by which talk moves it, too
NAMED_WEIGHT: Final = 10.0  # log-odds for each nat by which the model doubts the only tool's name
LEAST_NAMED: Final = -2.0  # nats beyond which more makes no difference
MOST_MOVED: Final = 2.0  # nats beyond which more makes no difference
KEPT: Final = 32  # thresholds of tool prompts
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501})  # statuses by which a server says that it cannot tell, now or later


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeed:
    """Whether a message needs a tool.

    Args:
        log_odds: natural logarithm of the odds that the model begins its reply with a call.
        threshold: above it the reply is to be a call.
        moved: how far the words move the model's choice of a tool, in nats; None if that was not asked for.
        named: how surely a begun call names the only tool, as the natural logarithm of its probability; None if there are more,
            or that was not asked for.
        usage: what asking cost.
        is_sure: False where the model's first token decides nothing, and the usual reminder is to stand.
        tool: the tool that is to be called; "" if that is left to the model.
        begun: how the reply is to begin, written for the model; "" if it begins by itself.
    """

    log_odds: float
    threshold: float
    usage: Usage
    is_sure: bool = True
    moved: float | None = None
    named: float | None = None
    tool: str = ""
    begun: str = ""

    @property
    def needs_tool(self) -> bool:
        """Whether the message needs a tool."""
        return self.score > self.threshold

    @property
    def score(self) -> float:
        """What is held against the threshold: the log-odds, and what the tool's name in a call adds to them or takes off."""
        moved = 0.0 if self.moved is None else _log_odds_of(self.moved)
        return self.log_odds + moved + (0.0 if self.named is None else NAMED_WEIGHT * max(self.named, LEAST_NAMED))


class ToolNeeds:
    """Decides for one model; keeps what `auto` found, and the model's habits, for each tool prompt.

    Args:
        threshold: log-odds, or `auto`.

    Raises:
        UsageError: the threshold is not a finite number.
    """

    def __init__(self, threshold: Threshold) -> None:
        self._threshold = checked_threshold(threshold)
        self._found: OrderedDict[str, float | None] = OrderedDict()
        self._finding = asyncio.Lock()
        self._choices = ToolChoices()

    async def ask(
        self,
        backend: Backend,
        request: CompletionRequest,
        catalog: Catalog,
        dialect: Dialect,
        *,
        shown: CompletionRequest | None = None,
    ) -> ToolNeed | None:
        """Ask a model whether a person's last words need a tool, and if they do, which.

        Args:
            backend: of the model; open.
            request: the conversation behind the tool prompt, the person's words last, without a reminder.
            catalog: what is offered.
            dialect: the wire format in which a call is begun for the model, where the server goes on from there.
            shown: the conversation from which the reply is generated, if tools are described behind the words: a tool is chosen
                by that, but not whether any is needed, since talk would have no such descriptions.

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
        need = await self._weighed(await ask_need(backend, request, threshold), backend, request, catalog, dialect)
        if not (need.is_sure and need.needs_tool and backend.capabilities.continues):
            return replace(need, usage=spent + need.usage)
        tool, choosing = await self._choices.choose(backend, shown or request, catalog, dialect)
        return replace(need, usage=spent + need.usage + choosing, tool=tool, begun=beginning(dialect, tool))

    async def _weighed(
        self, need: ToolNeed, backend: Backend, request: CompletionRequest, catalog: Catalog, dialect: Dialect
    ) -> ToolNeed:
        """Ask what the tool's name in a begun call says of the need, where that can change what was decided."""
        if not (need.is_sure and backend.capabilities.continues):
            return need
        by_itself = alone(backend, request)
        if len(catalog) == 1 and need.needs_tool:
            named, usage = await self._choices.named(backend, by_itself, catalog, dialect)
            return replace(need, named=None if named is None else round(named, 3), usage=need.usage + usage)
        least, most = (need.threshold - _log_odds_of(nats) for nats in (MOST_MOVED, 0.0))
        if len(catalog) == 1 or not least < need.log_odds <= most:
            return need
        moved, usage = await self._choices.moved(backend, by_itself, catalog, dialect)
        return replace(need, moved=None if moved is None else round(moved, 3), usage=need.usage + usage)

    async def _auto(self, backend: Backend, request: CompletionRequest, catalog: Catalog) -> tuple[float | None, Usage]:
        """Return the threshold of a tool prompt, and what it cost to find it."""
        first, *_ = alone(backend, request).messages
        system = first.content if first.role == "system" else ""
        async with self._finding:
            if system in self._found:
                self._found.move_to_end(system)
                return self._found[system], Usage()
            try:
                threshold, usage = await _between(backend, request, catalog)
            except (BackendProtocolError, BackendStatusError) as error:
                if isinstance(error, ContextOverflow):
                    raise
                if isinstance(error, BackendStatusError) and error.status_code not in _REFUSED:
                    return None, Usage()  # it may pass, and the reply itself tells if not
                threshold, usage = None, Usage()  # no probabilities: some servers refuse to be asked for them
            self._found[system] = threshold
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
            return threshold, usage


def _log_odds_of(nats: float) -> float:
    return WEIGHT * (min(nats, MOST_MOVED) - USUAL)


async def _between(backend: Backend, request: CompletionRequest, catalog: Catalog) -> tuple[float | None, Usage]:
    """Find the middle between messages that need no tool and those that need one; None where a model does not tell them apart."""
    tools = list(catalog)
    sides = (NEEDS_NONE, tuple(dict.fromkeys(plain_request(tool) for tool in (tools[0], tools[-1]))))
    usage, means = Usage(), list[float]()
    for messages in sides:
        asked: list[float] = []
        for text in messages:
            need = await ask_need(backend, in_place_of_last(request, text), 0.0)
            if not need.is_sure:
                return None, usage + need.usage
            usage = usage + need.usage
            asked.append(need.log_odds)
        means.append(math.fsum(asked) / len(asked))
    none, one = means
    return (round((none + one) / 2, 2) if one - none >= LEAST_SPREAD else None), usage


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
    told = await first_token(backend, alone(backend, request))
    if told.reasoning or not (told.candidates or told.text):  # llama.cpp says nothing of a token that is half a character
        return replace(undecided, usage=told.usage)
    if not told.candidates:
        raise BackendProtocolError(
            f"a call threshold needs a server that tells the probabilities of tokens (llama.cpp, vLLM, Ollama from 0.12.11 on); "
            f"{backend.model} came without: leave the threshold out"
        )
    return ToolNeed(log_odds=log_odds(told.candidates), threshold=threshold, usage=told.usage)


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
