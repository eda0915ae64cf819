"""Which tool a call is for, where the call is begun for the model: its own probabilities, without its habits.

A small model has favourites. It calls the tool whose name it has seen most, `read_file` also for a folder, `calculator` for an
umbrella, and in a conversation the one that it called last. How much of that is habit can be measured: ask the same model the
same thing behind words that need no tool ("Thanks!"). A tool's gain is the difference of the two log-probabilities, and the tool
that gains most is called. This is contextual calibration (Zhao et al., 2021, arXiv:2102.09690); that only tools are compared
which the model finds likely at all is the plausibility constraint of contrastive decoding (Li et al., 2022, arXiv:2210.15097),
without which a tool would win by being unheard of. Measured: docs/decisions.md, "Which tool".

A name is several tokens, so the choice is made token by token: of the tools that are left, the best one's next token is written,
and those that do not begin like that are out. Behind names stands what ends them, so that `list` is no beginning of `list_all`.
A name that no tool has cannot come out.

Costs a token for each place where names part, two or three for 30 tools, behind a prompt that the reply goes on from; and as many
for the habit, which is kept for each tool prompt.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from .backends.base import Backend
from .catalog import Catalog
from .completion import CompletionRequest, Usage
from .dialects import Dialect
from .errors import BackendStatusError
from .firsttoken import first_token
from .generation import is_refused_beginning
from .reply import beginning
from .types import Message

__all__ = ["ToolChoices"]

NEEDS_NONE: Final = "Thanks!"
PLAUSIBLE: Final = 3.0  # log-probability that a tool may have less than the likeliest: a twentieth of its probability
MOST_STEPS: Final = 50  # tokens of a name
KEPT: Final = 500  # places in tool prompts

Candidates = tuple[tuple[str, float], ...]


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
        written = beginning(dialect)
        left = {tool.name: beginning(dialect, tool.name).removeprefix(written) for tool in catalog}
        usage = Usage()
        for _ in range(MOST_STEPS):
            if len(left) == 1:
                return next(iter(left)), usage
            try:
                habit, spent = await self._habit(backend, request, written)
                usage = usage + spent
                if not habit:
                    break
                here = await first_token(backend, _begun(request, written))
            except BackendStatusError as error:
                if not is_refused_beginning(error):
                    raise
                break
            usage = usage + here.usage
            token = best_token(left, here.candidates, habit)
            if not token:
                break
            left = {name: rest[len(token) :] for name, rest in left.items() if _goes_on_with(rest, token)}
            written += token
        return "", usage

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


def best_token(left: Mapping[str, str], here: Candidates, habit: Candidates) -> str:
    """Return the next token of the name of the tool that gains most.

    Args:
        left: the tools that may still be meant -> what is left of their names, with what ends them.
        here: the likeliest tokens behind the person's words, each with the natural logarithm of its probability.
        habit: the same behind words that need no tool; not empty.

    Returns:
        "" where no token goes on with any of the names.
    """
    shares = {name: share for name, rest in left.items() if (share := _share(rest, here)) is not None}
    if not shares:
        return ""
    least = max(shares.values()) - PLAUSIBLE
    unheard = min(logprob for _, logprob in habit)  # of a token that is not told
    usual = {name: _share(left[name], habit) for name, share in shares.items() if share >= least}
    gains = {name: shares[name] - (unheard if share is None else share) for name, share in usual.items()}
    best = max(gains, key=lambda name: (gains[name], shares[name]))
    return max((each for each in here if _goes_on_with(left[best], each[0])), key=lambda each: each[1])[0]


def _share(rest: str, candidates: Iterable[tuple[str, float]]) -> float | None:
    """Return the log-probability of the tokens that go on with a name; None if none does."""
    shares = [math.exp(min(logprob, 0.0)) for token, logprob in candidates if _goes_on_with(rest, token)]
    return math.log(max(math.fsum(shares), math.exp(-700))) if shares else None


def _goes_on_with(rest: str, token: str) -> bool:
    """Say whether a token is the beginning of what is left of a name, or all of it and more."""
    return bool(token) and (rest.startswith(token) or token.startswith(rest.rstrip("\n")))


def _begun(request: CompletionRequest, written: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages, Message(role="assistant", content=written)))
