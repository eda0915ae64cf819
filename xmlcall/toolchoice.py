"""Which tool a message asks for: the model's own probabilities of the tools' names, held against its habits.

A small model has favourites. It calls the tool whose name it has seen most, `read_file` also for a folder, `calculator` for an
umbrella. How much of that is habit can be measured: have a call begun for the same model behind words that need no tool
("Thanks!"), and see which name it goes on with. Two things follow from the difference.

*Which tool.* A part of the habit's log-probability is taken off, and the tool with the most left is called. This is contextual
calibration (Zhao et al., 2021, arXiv:2102.09690) by half: taken off whole, tools win by being unheard of, and a larger model,
which chooses well by itself, is made worse.

*Whether any.* Words that need no tool move the choice little: behind them the model begins the call that it always begins. How
far the words move it, as the relative entropy of the two distributions in nats, tells a question for a tool from talk,
independently of the first token of a reply (`toolneed`).

Both are measured: docs/decisions.md, "Which tool, and whether any".

A name is several tokens, so it is read token by token: a token is written, and the tools whose names do not go on like that are
out. Behind names stands what ends them, so that `list` is no beginning of `list_all`; a name that no tool has
cannot come out. Costs a token for each place where names part, two or three for 30 tools, and as many for the habit, which is
kept for each tool prompt.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from .backends.base import Backend
from .catalog import Catalog
from .completion import CompletionRequest, Usage
from .dialects import Dialect
from .errors import BackendStatusError
from .firsttoken import FirstToken, first_token
from .generation import is_refused_beginning
from .reply import beginning
from .types import Message

__all__ = ["ToolChoices"]

NEEDS_NONE: Final = "Thanks!"
PART: Final = 0.5  # of a habit's log-probability that is taken off
MOST_STEPS: Final = 50  # tokens of a name
LEAST_SHARE: Final = 0.05  # of the probability behind a place, below which the names there are not looked at
KEPT: Final = 500  # places in tool prompts

Candidates = tuple[tuple[str, float], ...]
Names = Mapping[str, str]
"""Tools that may still be meant -> what is left of their names, with what ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How a model goes on from a place in the beginning of a call.

    Args:
        here: the likeliest tokens behind the person's words, each with the natural logarithm of its probability.
        habit: the same behind words that need no tool.
        usage: what asking cost.
    """

    here: Candidates
    habit: Candidates
    usage: Usage


class ToolChoices:
    """Chooses for one model; keeps its habits for each tool prompt."""

    def __init__(self) -> None:
        self._habits: OrderedDict[tuple[str, str], Candidates] = OrderedDict()

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
            place = await self._place(backend, request, written)
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
            place = await self._place(backend, request, written)
            usage = usage + place.usage
            shares = _shares(left, place.here)
            if not shares:
                return (nats if step else None), usage
            nats += weight * divergence(shares, _shares(left, place.habit))
            token = max(shares, key=lambda each: shares[each])
            left, written, weight = _after(left, token), written + token, weight * shares[token]
        return nats, usage

    async def _place(self, backend: Backend, request: CompletionRequest, written: str) -> _Place:
        """Ask how the model goes on; without candidates where the server refuses the beginning or tells none."""
        try:
            habit, usage = await self._habit(backend, request, written)
            told = await first_token(backend, _begun(request, written)) if habit else _UNTOLD
        except BackendStatusError as error:
            if not is_refused_beginning(error):
                raise
            return _Place(here=(), habit=(), usage=Usage())
        return _Place(here=told.candidates, habit=habit, usage=usage + told.usage)

    async def _habit(self, backend: Backend, request: CompletionRequest, written: str) -> tuple[Candidates, Usage]:
        """Return what the model goes on with where no tool is needed, and what it cost to ask."""
        system = request.messages[:1] if request.messages[0].role == "system" else ()
        key = (system[0].content if system else "", written)
        if key in self._habits:
            self._habits.move_to_end(key)
            return self._habits[key], Usage()
        idle = replace(request, messages=(*system, Message(role="user", content=NEEDS_NONE)))
        told = await first_token(backend, _begun(idle, written))
        self._habits[key] = told.candidates
        while len(self._habits) > KEPT:
            self._habits.popitem(last=False)
        return told.candidates, told.usage


def best_token(left: Names, here: Candidates, habit: Candidates) -> str:
    """Return the next token of the name of the tool that is called.

    Args:
        left: the tools that may still be meant.
        here: the likeliest tokens behind the person's words, each with the natural logarithm of its probability.
        habit: the same behind words that need no tool.

    Returns:
        "" where no token goes on with any of the names, or nothing is told.
    """
    shares = {name: share for name, rest in left.items() if (share := _share(rest, here)) is not None}
    if not shares or not habit:
        return ""
    unheard = min(logprob for _, logprob in habit)  # of a token that is not told
    habits = {name: _share(left[name], habit) for name in shares}
    gains = {name: shares[name] - PART * (unheard if share is None else share) for name, share in habits.items()}
    best = max(gains, key=lambda name: gains[name])
    return max((each for each in here if _goes_on_with(left[best], each[0])), key=lambda each: each[1])[0]


def divergence(shares: Mapping[str, float], habit: Mapping[str, float]) -> float:
    """Return the relative entropy of a distribution to a habit, in nats.

    Args:
        shares: token -> its probability; they add up to 1.
        habit: the same; a token that it has not is as likely as its least likely one.
    """
    unheard = min(habit.values(), default=1.0)
    return max(math.fsum(share * math.log(share / habit.get(token, unheard)) for token, share in shares.items()), 0.0)


def _shares(left: Names, candidates: Candidates) -> dict[str, float]:
    """Return the tokens that go on with any of the names -> their probabilities among each other."""
    fitting = {
        token: math.exp(max(min(logprob, 0.0), -700.0))
        for token, logprob in candidates
        if any(_goes_on_with(rest, token) for rest in left.values())
    }
    whole = math.fsum(fitting.values())
    return {token: share / whole for token, share in fitting.items() if share / whole > 0}


def _share(rest: str, candidates: Iterable[tuple[str, float]]) -> float | None:
    """Return the log-probability of the tokens that go on with a name; None if none does."""
    shares = [math.exp(min(logprob, 0.0)) for token, logprob in candidates if _goes_on_with(rest, token)]
    return math.log(max(math.fsum(shares), math.exp(-700))) if shares else None


def _names(catalog: Catalog, dialect: Dialect) -> dict[str, str]:
    begun = beginning(dialect)
    return {tool.name: beginning(dialect, tool.name).removeprefix(begun) for tool in catalog}


def _after(left: Names, token: str) -> dict[str, str]:
    """Return the tools that may still be meant behind one more token."""
    return {name: rest[len(token) :] for name, rest in left.items() if _goes_on_with(rest, token)}


def _goes_on_with(rest: str, token: str) -> bool:
    """Say whether a token is the beginning of what is left of a name, or all of it and more."""
    return bool(token) and (rest.startswith(token) or token.startswith(rest.rstrip("\n")))


def _begun(request: CompletionRequest, written: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages, Message(role="assistant", content=written)))


_UNTOLD: Final = FirstToken(candidates=(), text="", reasoning="", usage=Usage())
