"""How many tokens a text has, estimated from its characters, and by what a server's own count corrects that.

No server's tokenizer is at hand here. `Scale` keeps what a server told in a conversation. `RequestScale` is for proxies: many
replicas of the proxy stand before one model server, and each turn of a conversation may reach another of them. Where a prompt is
cut must then follow from the request alone: a replica that had learned from other requests would cut elsewhere, and the server
would read all behind that place anew. So nothing is learned from replies here, unlike in `Scale`. Each request begins with the
same facts (`ServerFacts`): how many tokens the server counts in a text that is always the same, and what its context holds. A
refusal corrects the rate within its own request, in steps of `STEP`: a conversation that has grown by a turn, and is refused
again, is cut at the same places.

What a refusal tells of the context is a fact, too. The prompt is then cut as by a replica that has known it from the beginning.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["CHARACTERS_A_TOKEN", "RequestScale", "Scale", "ServerFacts", "tokens_of"]

CHARACTERS_A_TOKEN: Final = 3.2
"""Of ASCII without digits; fewer than of plain English, since code and markup have fewer."""

_DIGITS: Final = b"0123456789"
_NOT_ASCII: Final = bytes(range(128, 256))

STEP: Final = 1.125
MARGIN: Final = 1.05  # more than a refusal told is left free
MOST: Final = 8.0  # a server may say anything
UNTOLD: Final = 1.2  # by how much the rate grows where a refusal tells no count
SMALLER: Final = 0.75  # of what was refused: what a context is taken to hold where nobody says


def tokens_of(text: str) -> float:
    """Estimate: a digit is a token with most tokenizers, three bytes of anything beyond ASCII (one Han character) are one."""
    data = text.encode("utf-8", "surrogatepass")
    ascii_length = len(data.translate(None, _NOT_ASCII))
    digits = len(data) - len(data.translate(None, _DIGITS))
    return digits + (ascii_length - digits) / CHARACTERS_A_TOKEN + (len(data) - ascii_length) / 3


@dataclass(slots=True)
class Scale:
    """What a model server told of lengths.

    Args:
        rate: tokens of the server's for one that is estimated, a little more than was measured; None before any.
        context_length: tokens that prompt and reply share, as a refusal told or let guess; None before any.
    """

    rate: float | None = None
    context_length: int | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that the rate may be.

        By the least it is decided whether a prompt is cut, since words that are cut in vain are lost and a server refuses at once
        what is too long; by the most how far, since then some have to go anyhow and the reply needs its room.
        """
        return (0.8, 1.1) if self.rate is None else (self.rate, self.rate)

    def learn(self, told: int, estimated: float) -> None:
        """Take a server's count of a prompt; the rate stays as it is if it is about right, since a new one moves all cuts."""
        if estimated < 256 or told < estimated / 2:  # the template's words count too much; or what was cached is not counted
            return
        measured = min(told / estimated, 8.0)  # a server may say anything
        if self.rate is None or not self.rate / 1.5 < measured <= self.rate:
            self.rate = measured * 1.1

    def refused(self, estimated: float, told: int | None, context_length: int | None) -> bool:
        """Take a refusal; what it does not tell is guessed so that less is sent the next time."""
        if told:
            self.learn(told, estimated)
        least = self.bounds[0]
        self.context_length = context_length or self.context_length or round(estimated * least * 0.75)
        if not told:
            self.rate = 1.25 * max(least, self.context_length / max(estimated, 1.0))
        return False


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
