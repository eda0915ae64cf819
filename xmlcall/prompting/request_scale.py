"""What one request knows of a model server's lengths: facts of the server, and what this request was refused.

Many replicas of the proxy stand before one model server, and each turn of a conversation may reach another of them. Where a
prompt is cut must then follow from the request alone: a replica that had learned from other requests would cut elsewhere, and the
server would read all behind that place anew. So nothing is learned from replies here, unlike in `Scale`. Each request begins
with the same facts (`ServerFacts`): how many tokens the server counts in a text that is always the same, and what its context
holds. A refusal corrects the rate within its own request, in steps of `STEP`: a conversation that has grown by a turn, and is
refused again, is cut at the same places.

What a refusal tells of the context is a fact, too. The prompt is then cut as by a replica that has known it from the beginning.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .fit_context import Scale

__all__ = ["RequestScale", "ServerFacts"]

STEP: Final = 1.125
MARGIN: Final = 1.05  # more than a refusal told is left free
MOST: Final = 8.0  # a server may say anything
UNTOLD: Final = 1.2  # by how much the rate grows where a refusal tells no count
SMALLER: Final = 0.75  # of what was refused: what a context is taken to hold where nobody says


@dataclass(slots=True)
class ServerFacts:
    """What is the same whoever asks the model server.

    Args:
        rate: tokens of the server's for one that is estimated, of a text that is always the same, and a little more; None if it
            was not measured, or cannot be.
        context_length: tokens that prompt and reply share, as a refusal told; None before any.
    """

    rate: float | None = None
    context_length: int | None = None


@dataclass(slots=True)
class RequestScale:
    """The lengths of one request (see `Scale`)."""

    facts: ServerFacts
    _corrected: float | None = field(init=False, default=None)
    _guessed: int | None = field(init=False, default=None)

    @property
    def rate(self) -> float | None:
        """Tokens of the server's for one that is estimated; None where that is not known."""
        return self._corrected or self.facts.rate

    @property
    def context_length(self) -> int | None:
        """Tokens that prompt and reply share; None if no refusal told."""
        return self.facts.context_length or self._guessed

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the rate may be (see `Scale.bounds`)."""
        return Scale(rate=self.rate).bounds

    def learn(self, told: int, estimated: float) -> None:
        """Take a server's count of a prompt that it has answered: nothing follows from it for another."""

    def refused(self, estimated: float, told: int | None, context_length: int | None) -> bool:
        """Take a refusal.

        Returns:
            Whether it told what the context holds, which was not known, and so corrects nothing yet.
        """
        if context_length and context_length != self.context_length:
            self.facts.context_length = context_length
            return True
        least = self.bounds[0]
        length = self.context_length
        if length is None:
            length = self._guessed = round(_step(estimated * least * SMALLER, math.floor))
        least_told = UNTOLD * max(least, length / max(estimated, 1.0))
        measured = min(told / max(estimated, 1.0), MOST) if told else least_told
        if not told or self.rate is None or measured > self.rate:  # else it is the reply that there was no room for
            self._corrected = _step(measured * MARGIN, math.ceil)
        return False


def _step(number: float, whole: Callable[[float], int]) -> float:
    """Return a power of `STEP` near a number."""
    return STEP ** whole(math.log(max(number, 0.01), STEP))
