"""Which tool a message asks for: the model's own probabilities of the tools' names, held against its habits.

A small model has favourites. It calls the tool whose name it has seen most, `read_file` also for a folder, `calculator` for an
umbrella. How much of that is habit can be measured: have a call begun for the same model behind words that need no tool
("Thanks!"), and see which name it goes on with. So a part of the habit's log-probability is taken off, and the tool with the most
left is called. This is contextual calibration (Zhao et al., 2021, arXiv:2102.09690) by half: taken off whole, tools win by being
unheard of, and a larger model, which chooses well by itself, is made worse.

Where a model is sure of a name, its habit is not asked for. Of 116 turns of two models 72 have a name with 0.8 of the
probability, and none of these was decided otherwise (benchmarks/results/tools.jsonl). What is asked behind the person's words
is a beginning of the reply itself, which the server then has read; the habit is another prompt, and costs reading the message
anew.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from ..dialects import Dialect
from ..dialects.write import beginning
from ..errors import BackendStatusError
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.completion import Capabilities, CompletionRequest, Usage
from .asked_alone import alone, ask_first_token, in_place_of_last
from .generate import is_refused_beginning
from .machine import FirstToken, Script

__all__ = ["choose_tool"]

NEEDS_NONE: Final = "Thanks!"
PART: Final = 0.5  # of a habit's log-probability that is taken off
MOST_STEPS: Final = 50  # tokens of a name
PLAIN: Final = 0.8  # probability of a name from which on habits make no difference

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
        habit: behind words that need no tool; empty in the same cases, and where `here` is plain.
    """

    here: Shares
    habit: Shares
    usage: Usage


def choose_tool(
    request: CompletionRequest, server: Capabilities, catalog: Catalog, dialect: Dialect
) -> Script[tuple[str, Usage]]:
    """Choose the tool that is called for a person's last words.

    Args:
        server: what is known of it; it continues a last message of the model's own.

    Returns:
        The tool's name, "" where the server refuses the beginning or tells no probabilities; and what asking cost.
    """
    written, left, usage = beginning(dialect), _names(catalog, dialect), Usage()
    for _ in range(MOST_STEPS):
        if len(left) == 1:
            return next(iter(left)), usage
        left, written = _past_shared(left, written)
        place = yield from _place(request, server, written, left)
        usage = usage + place.usage
        if not (token := best_token(left, place.here, place.habit)):
            break
        left, written = _after(left, token), written + token
    return "", usage


def _place(request: CompletionRequest, server: Capabilities, written: str, left: Names) -> Script[_Place]:
    """Ask how the model goes on with the names that are left."""
    told = yield from _told(_begun(request, written), server)
    here = _shares(left, told.candidates)
    if not here or _is_plain(left, here):
        return _Place(here=here, habit={}, usage=told.usage)
    idle = alone(server, in_place_of_last(request, NEEDS_NONE))
    habit = yield from _told(_begun(idle, written), server, keep=True)
    return _Place(here=here, habit=_shares(left, habit.candidates), usage=habit.usage + told.usage)


def best_token(left: Names, here: Shares, habit: Shares) -> str:
    """Return the next token of the name of the tool that is called."""
    if not here or not (habit or _is_plain(left, here)):
        return ""
    unheard = min(habit.values(), default=1.0)

    def gain(rest: str) -> float:
        return math.log(_share(rest, here)) - PART * math.log(_share(rest, habit) or unheard)

    best = max((rest for rest in left.values() if _share(rest, here)), key=gain)
    return max((token for token in here if _goes_on_with(best, token)), key=here.__getitem__)


def _is_plain(left: Names, here: Shares) -> bool:
    return max((_share(rest, here) for rest in left.values()), default=0.0) >= PLAIN


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
    lengths = {len(rest) for rest in whole}

    def goes_on(token: str) -> bool:
        at = bisect_left(ordered, token)
        begins_one = at < len(ordered) and ordered[at].startswith(token)
        return bool(token) and (begins_one or any(token[:length] in whole for length in lengths))

    return goes_on


def _begun(request: CompletionRequest, written: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages, Message(role="assistant", content=written)))


def _told(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask how the model goes on; nothing is told where the server refuses the beginning."""
    try:
        return (yield from ask_first_token(request, server, keep=keep))
    except BackendStatusError as error:
        if not is_refused_beginning(error):
            raise
        return FirstToken()
