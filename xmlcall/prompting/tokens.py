"""Estimates how many tokens a text has from its characters, and corrects the estimate by a server's own counts.

No server's tokenizer is available here. `Scale` keeps what a server reports during a conversation. `RequestScale` is for proxies:
many replicas of the proxy may serve one model server, and each turn of a conversation may reach another replica. The request
alone must then determine where a prompt is cut: a replica that had learned from other requests would cut elsewhere, and the
server would have to reprocess everything after that place. So, unlike `Scale`, it learns nothing from replies. Each request
begins with the same facts (`CommonScale`): how many tokens the server counts in a constant text, and how many its context holds.
A refusal corrects the rate within its own request, in steps of `STEP`. So a conversation that has grown by a turn, and is refused
again, is cut at the same places.

The context length that a refusal reports is a fact, too. The prompt is then cut as by a replica that knew it from the beginning.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

CHARACTERS_A_TOKEN: Final = 3.2
"""For ASCII without digits; lower than for plain English, because code and markup have fewer."""

_DIGITS: Final = b"0123456789"
_NOT_ASCII: Final = bytes(range(128, 256))

STEP: Final = 1.125
MARGIN: Final = 1.05  # reserve on top of the rate that a refusal implies
MOST: Final = 8.0  # a server's count is untrusted
UNTOLD: Final = 1.2  # factor by which the rate grows if a refusal reports no count
SMALLER: Final = 0.75  # assumed context length, as a share of the refused prompt, if the refusal reports none


def tokens_of(text: str) -> float:
    """Estimate the tokens of a text: most tokenizers make one token of a digit, or of three non-ASCII bytes (a Han character)."""
    data = text.encode("utf-8", "surrogatepass")
    ascii_length = len(data.translate(None, _NOT_ASCII))
    digits = len(data) - len(data.translate(None, _DIGITS))
    return digits + (ascii_length - digits) / CHARACTERS_A_TOKEN + (len(data) - ascii_length) / 3


@dataclass(slots=True)
class Scale:
    """What a model server has reported about lengths."""

    # The server's tokens for each estimated one, a little above the measured ratio; None before the first report.
    rate: float | None = None
    # Tokens that prompt and reply share, as a refusal reported it or as guessed from one; None before that.
    context_length: int | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the rate.

        The lower bound decides whether a prompt is cut, because needlessly cut words are lost, while a server refuses a prompt
        that is too long at once. The upper bound decides how far it is cut, because then some words are lost anyway and the reply
        needs room.
        """
        return (0.8, 1.1) if self.rate is None else (self.rate, self.rate)

    def learn(self, counted: int, estimated: float) -> None:
        """Learn from a server's count of a prompt; an approximately right rate is kept, because a new one moves all cuts."""
        if estimated < 256 or counted < estimated / 2:  # the template's words weigh too much, or the cached part is not counted
            return
        measured = min(counted / estimated, 8.0)  # a server's count is untrusted
        if self.rate is None or not self.rate / 1.5 < measured <= self.rate:
            self.rate = measured * 1.1

    def refused(self, estimated: float, counted: int | None, context_length: int | None) -> bool:
        """Learn from a refusal; values that it does not report are guessed so that less is sent next time."""
        if counted:
            self.learn(counted, estimated)
        least = self.bounds[0]
        self.context_length = context_length or self.context_length or round(estimated * least * 0.75)
        if not counted:
            self.rate = 1.25 * max(least, self.context_length / max(estimated, 1.0))
        return False


@dataclass(slots=True)
class CommonScale:
    """Facts about the model server that are the same for all callers."""

    # The server's tokens for each estimated one in a constant text, rounded up a little; None if it was not, or cannot be,
    # measured.
    rate: float | None = None
    context_length: int | None = None  # tokens that prompt and reply share, as a refusal reported it; None before that


@dataclass(slots=True)
class RequestScale:
    facts: CommonScale
    _corrected: float | None = field(init=False, default=None)
    _guessed: int | None = field(init=False, default=None)

    @property
    def rate(self) -> float | None:
        """The server's tokens for each estimated one; None if unknown."""
        return self._corrected or self.facts.rate

    @property
    def context_length(self) -> int | None:
        """Tokens that prompt and reply share; None before a refusal reported or implied it."""
        return self.facts.context_length or self._guessed

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the rate (see `Scale.bounds`)."""
        return Scale(rate=self.rate).bounds

    def learn(self, counted: int, estimated: float) -> None:
        """Ignore a server's count of a prompt, because it must not affect other requests."""

    def refused(self, estimated: float, counted: int | None, context_length: int | None) -> bool:
        """Learn from a refusal; return whether it reported a new context length: then the rate is not corrected yet."""
        if context_length and context_length != self.context_length:
            self.facts.context_length = context_length
            return True
        least = self.bounds[0]
        length = self.context_length
        if length is None:
            length = self._guessed = round(_step(estimated * least * SMALLER, math.floor))
        least_told = UNTOLD * max(least, length / max(estimated, 1.0))
        measured = min(counted / max(estimated, 1.0), MOST) if counted else least_told
        if not counted or self.rate is None or measured > self.rate:  # else there was no room for the reply
            self._corrected = _step(measured * MARGIN, math.ceil)
        return False


def _step(number: float, whole: Callable[[float], int]) -> float:
    return STEP ** whole(math.log(max(number, 0.01), STEP))
