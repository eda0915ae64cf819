"""Which tool a message asks for: the model's own probabilities of the tools' names, held against its habits.

A small model has favourites. It calls the tool whose name it has seen most, `read_file` also for a folder, `calculator` for an
umbrella. How much of that is habit can be measured: have a call begun for the same model behind words that need no tool
("Thanks!"), and see which name it goes on with. Two things follow from the difference.

*Which tool.* A part of the habit's log-probability is taken off, and the tool with the most left is called. This is contextual
calibration (Zhao et al., 2021, arXiv:2102.09690) by half: taken off whole, tools win by being unheard of, and a larger model,
which chooses well by itself, is made worse.

*Whether any.* Words that need no tool move the choice little: behind them the model begins the call that it always begins. How
far the words move it, as the relative entropy of the two distributions in nats, tells a question for a tool from talk,
independently of the first token of a reply (`tool_need`).

*Whether the only one.* With one tool there is nothing to choose. But a model whose request the tool is not for would rather name
another one, which nobody offers: how likely the begun call names the tool tells that, without a habit.

All are measured: docs/decisions/tool-need.md.

A name is several tokens, so it is read token by token: a token is written, and the tools whose names do not go on like that are
out. Behind names stands what ends them, so that `list` is no beginning of `list_all`; a name that no tool has
cannot come out. What all names that are left begin with is not asked about, up to the last separator, before which tokens end.
Costs a token for each place where names part, two or three for 30 tools, and as many for the habit, which is kept for each tool
prompt. A conversation's first message is asked about once for both.
"""

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from ..backends.base import Backend
from ..dialects import Dialect
from ..dialects.write import beginning
from ..errors import BackendStatusError
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.completion import CompletionRequest, Usage
from .asked_alone import alone, in_place_of_last
from .first_token import FirstToken, first_token
from .generate import is_refused_beginning

__all__ = ["ToolChoices"]

NEEDS_NONE: Final = "Thanks!"
PART: Final = 0.5  # of a habit's log-probability that is taken off
MOST_STEPS: Final = 50  # tokens of a name
NAME_STEPS: Final = 4  # tokens of the only tool's name that are asked about: a name that is another one parts early
LEAST_PROBABILITY: Final = 1e-12  # of what is not among the tokens that are told
LEAST_SHARE: Final = 0.05  # of the probability behind a place, below which the names there are not looked at
KEPT: Final = 500  # places in tool prompts
LAST: Final = 20  # places behind a person's words: those of the message that is looked at

Candidates = tuple[tuple[str, float], ...]
Names = Mapping[str, str]
"""Tools that may still be meant -> what is left of their names, with what ends them."""
Shares = Mapping[str, float]
"""Tokens that go on with any of these -> their probabilities among each other, which add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How a model goes on from a place in the beginning of a call.

    Args:
        here: behind the person's words; empty where the server refuses the beginning, or tells nothing of the names.
        habit: behind words that need no tool; empty in the same cases.
        usage: what asking cost.
    """

    here: Shares
    habit: Shares
    usage: Usage


class ToolChoices:
    """Chooses for one model; keeps its habits for each tool prompt."""

    def __init__(self) -> None:
        self._habits: OrderedDict[tuple[str, str], Candidates] = OrderedDict()
        self._asked: OrderedDict[tuple[tuple[str, str], ...], FirstToken] = OrderedDict()  # behind a person's words, just now

    async def choose(self, backend: Backend, request: CompletionRequest, catalog: Catalog, dialect: Dialect) -> tuple[str, Usage]:
        """Choose the tool that is called for a person's last words.

        Args:
            backend: of the model; open; it continues a last message of the model's own.
            request: the conversation behind the tool prompt, the person's words last.
            catalog: what is offered.
            dialect: the wire format in which the call is begun.

        Returns:
            The tool's name, "" where the server refuses the beginning or tells no probabilities; and what asking cost.

        Raises:
            BackendError: from the stream.
        """
        written, left, usage = beginning(dialect), _names(catalog, dialect), Usage()
        for _ in range(MOST_STEPS):
            if len(left) == 1:
                return next(iter(left)), usage
            left, written = _past_shared(left, written)
            place = await self._place(backend, request, written, left)
            usage = usage + place.usage
            if not (token := best_token(left, place.here, place.habit)):
                break
            left, written = _after(left, token), written + token
        return "", usage

    async def moved(
        self, backend: Backend, request: CompletionRequest, catalog: Catalog, dialect: Dialect
    ) -> tuple[float | None, Usage]:
        """Say how far a message moves the model's choice of a tool away from its habit.

        Args:
            backend: of the model; open; it continues a last message of the model's own.
            request: the message behind the tool prompt.
            catalog: what is offered, more than one tool.
            dialect: the wire format in which a call is begun.

        Returns:
            Nats, along the likeliest name; None where the server refuses the beginning or tells no probabilities; and what asking
            cost.

        Raises:
            BackendError: from the stream.
        """
        written, left, usage = beginning(dialect), _names(catalog, dialect), Usage()
        nats, weight = 0.0, 1.0
        for step in range(MOST_STEPS):
            if len(left) == 1 or weight < LEAST_SHARE:
                break
            left, written = _past_shared(left, written)
            place = await self._place(backend, request, written, left)
            usage = usage + place.usage
            if not place.here or not place.habit:
                return (nats if step else None), usage
            nats += weight * divergence(place.here, place.habit)
            token = max(place.here, key=place.here.__getitem__)
            left, written, weight = _after(left, token), written + token, weight * place.here[token]
        return nats, usage

    async def named(
        self, backend: Backend, request: CompletionRequest, catalog: Catalog, dialect: Dialect
    ) -> tuple[float | None, Usage]:
        """Say how likely a call that is begun for the model names the only tool.

        Args:
            backend: of the model; open; it continues a last message of the model's own.
            request: the message behind the tool prompt.
            catalog: what is offered, one tool.
            dialect: the wire format in which a call is begun.

        Returns:
            The natural logarithm of the probability of the name's first tokens; None where the server refuses the beginning or
            tells no probabilities; and what asking cost.

        Raises:
            BackendError: from the stream.
        """
        (rest,), written = _names(catalog, dialect).values(), beginning(dialect)
        nats, usage = 0.0, Usage()
        for step in range(NAME_STEPS):
            told = await _told(backend, _begun(request, written))
            usage = usage + told.usage
            if not told.candidates:
                return (nats if step else None), usage
            fitting = [(token, logprob) for token, logprob in told.candidates if _goes_on_with(rest, token)]
            nats += math.log(max(math.fsum(math.exp(min(logprob, 0.0)) for _, logprob in fitting), LEAST_PROBABILITY))
            token = max(fitting, key=lambda each: each[1])[0] if fitting else ""
            if not token or len(token) >= len(rest):
                break
            rest, written = rest[len(token) :], written + token
        return min(nats, 0.0), usage

    async def _place(self, backend: Backend, request: CompletionRequest, written: str, left: Names) -> _Place:
        """Ask how the model goes on with the names that are left."""
        habit, usage = await self._habit(backend, request, written)
        told = await self._here(backend, request, written) if habit else _UNTOLD
        return _Place(here=_shares(left, told.candidates), habit=_shares(left, habit), usage=usage + told.usage)

    async def _here(self, backend: Backend, request: CompletionRequest, written: str) -> FirstToken:
        """Ask how the model goes on; the first message of a conversation is asked about alone and for the choice: once."""
        begun = _begun(request, written)
        key = tuple((message.role, message.content) for message in begun.messages)
        if key in self._asked:
            return replace(self._asked[key], usage=Usage())
        self._asked[key] = told = await _told(backend, begun)
        while len(self._asked) > LAST:
            self._asked.popitem(last=False)
        return told

    async def _habit(self, backend: Backend, request: CompletionRequest, written: str) -> tuple[Candidates, Usage]:
        """Return what the model goes on with where no tool is needed, and what it cost to ask."""
        idle = alone(backend, in_place_of_last(request, NEEDS_NONE))
        key = (idle.messages[0].content, written)
        if key in self._habits:
            self._habits.move_to_end(key)
            return self._habits[key], Usage()
        told = await _told(backend, _begun(idle, written))
        self._habits[key] = told.candidates
        while len(self._habits) > KEPT:
            self._habits.popitem(last=False)
        return told.candidates, told.usage


def best_token(left: Names, here: Shares, habit: Shares) -> str:
    """Return the next token of the name of the tool that is called.

    Args:
        left: the tools that may still be meant.
        here: how the model goes on behind the person's words.
        habit: how it does behind words that need no tool.

    Returns:
        "" where nothing is told of the names.
    """
    if not here or not habit:
        return ""
    unheard = min(habit.values())

    def gain(rest: str) -> float:
        return math.log(_share(rest, here)) - PART * math.log(_share(rest, habit) or unheard)

    best = max((rest for rest in left.values() if _share(rest, here)), key=gain)
    return max((token for token in here if _goes_on_with(best, token)), key=here.__getitem__)


def divergence(here: Shares, habit: Shares) -> float:
    """Return the relative entropy of a distribution to a habit, in nats.

    Args:
        here: the distribution.
        habit: not empty; a token that it has not is as likely as its least likely one.
    """
    unheard = min(habit.values())
    return max(math.fsum(share * math.log(share / habit.get(token, unheard)) for token, share in here.items()), 0.0)


def _shares(left: Names, candidates: Candidates) -> dict[str, float]:
    goes_on = _with_any(left.values())
    fitting = {token: math.exp(max(min(logprob, 0.0), -700.0)) for token, logprob in candidates if goes_on(token)}
    whole = math.fsum(fitting.values())
    return {token: share / whole for token, share in fitting.items() if share / whole > 0}


def _share(rest: str, shares: Shares) -> float:
    """Return the probability of the tokens that go on with a name."""
    return math.fsum(share for token, share in shares.items() if _goes_on_with(rest, token))


def _names(catalog: Catalog, dialect: Dialect) -> dict[str, str]:
    begun = beginning(dialect)
    return {tool.name: beginning(dialect, tool.name).removeprefix(begun) for tool in catalog}


def _past_shared(left: Names, written: str) -> tuple[dict[str, str], str]:
    """Write what all names that are left go on with, up to the last separator in it, before which a token ends."""
    first, last = min(left.values(), default=""), max(left.values(), default="")  # these two differ first
    shared = takewhile(lambda place: first[place] == last[place], range(min(len(first), len(last))))
    end = max((place for place in shared if not first[place].isalnum()), default=0)
    return {name: rest[end:] for name, rest in left.items()}, written + first[:end]


def _after(left: Names, token: str) -> dict[str, str]:
    """Return the tools that may still be meant behind one more token."""
    return {name: rest[len(token) :] for name, rest in left.items() if _goes_on_with(rest, token)}


def _goes_on_with(rest: str, token: str) -> bool:
    """Say whether a token is the beginning of what is left of a name, or all of it and more."""
    return bool(token) and (rest.startswith(token) or token.startswith(rest.rstrip("\n")))


def _with_any(rests: Iterable[str]) -> Callable[[str], bool]:
    """Return `_goes_on_with` for any of many names: a search among them in order, and not a look at each."""
    ordered = sorted(rests)
    whole = {rest.rstrip("\n") for rest in ordered}

    def goes_on(token: str) -> bool:
        at = bisect_left(ordered, token)
        begins_one = at < len(ordered) and ordered[at].startswith(token)
        return bool(token) and (begins_one or any(token[:end] in whole for end in range(len(token) + 1)))

    return goes_on


def _begun(request: CompletionRequest, written: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages, Message(role="assistant", content=written)))


async def _told(backend: Backend, request: CompletionRequest) -> FirstToken:
    """Ask how the model goes on; nothing is told where the server refuses the beginning."""
    try:
        return await first_token(backend, request)
    except BackendStatusError as error:
        if not is_refused_beginning(error):
            raise
        return _UNTOLD


_UNTOLD: Final = FirstToken(candidates=(), text="", reasoning="", usage=Usage())
