"""A conversation made to fit into the model's context, as little of it lost as can be.

Only what is sent is cut; the conversation itself stays whole. In this order, until it fits:

1. results of earlier turns are shortened hard: what they said is mostly in the answer that followed;
2. the oldest turns are left out whole, the person's message with all replies to it;
3. results of this turn are shortened to what is left, each to the same length at most: those tools have run, so nobody may
   have to run them again;
4. the oldest calls of this turn are left out with their results.

System messages at the head, the person's last message and the newest results always stay. A shortened result keeps its beginning
and its end, its frame, and the instruction behind the frame, and says how much is missing.

A server reads anew what differs from the request before. So places of cuts come from fixed grids: results are cut to lengths of
`LENGTHS`, turns are left out in steps of a quarter of the room. A conversation that grows is then cut at the same places many
times in a row. What is decided depends on the conversation alone, not on earlier requests.

Tokens are estimated from characters: no server's tokenizer is at hand here. `Scale` keeps what a server told of its own count.
"""

import functools
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..types.calls import Message, Tool
from .result_frame import RESULT_CLOSER, RESULT_OPENER, is_result_message
from .templates import render

__all__ = ["LENGTHS", "Cut", "Fitted", "Scale", "estimate", "estimate_tools", "fit", "tokens_of"]

LENGTHS: Final = tuple(round(256 * (4 / 3) ** step) for step in range(60))
"""To which a result may be shortened, in characters; a step is a quarter less."""

OLD_RESULT: Final = 1024
"""Characters that a result of an earlier turn keeps."""

STEP: Final = 0.25
"""Of the room beside the system messages: how much of the earlier turns is left out at a time."""

TOKENS_A_MESSAGE: Final = 5
TOKENS_A_PICTURE: Final = 768
TOKENS_A_NOTE: Final = 40
CHARACTERS_A_TOKEN: Final = 3.2
"""Of ASCII without digits; fewer than of plain English, since code and markup have fewer."""

_OPENER: Final = f'{RESULT_OPENER}"'
_CLOSER: Final = f"\n{RESULT_CLOSER}"
_DIGITS: Final = b"0123456789"
_NOT_ASCII: Final = bytes(range(128, 256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A result that was shortened.

    Args:
        name: the tool's.
        characters: of the whole result.
        left_out: characters that are missing.
    """

    name: str
    characters: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A conversation as it is sent.

    Args:
        messages: the conversation.
        cuts: results that were shortened.
        left_out: messages that are missing.
        fits: False if even this is too much, by the estimate.
    """

    messages: tuple[Message, ...]
    cuts: tuple[Cut, ...] = ()
    left_out: int = 0
    fits: bool = True


# -- tokens ------------------------------------------------------------------------------------------------------------


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
        """Take a server's count of a prompt; the rate stays as it is if it is about right, since a new one moves all cuts.

        Args:
            told: tokens, the cached part included.
            estimated: tokens.
        """
        if estimated < 256 or told < estimated / 2:  # the template's words count too much; or what was cached is not counted
            return
        measured = min(told / estimated, 8.0)  # a server may say anything
        if self.rate is None or not self.rate / 1.5 < measured <= self.rate:
            self.rate = measured * 1.1

    def refused(self, estimated: float, told: int | None, context_length: int | None) -> None:
        """Take a refusal; what it does not tell is guessed so that less is sent the next time.

        Args:
            estimated: tokens that were sent.
            told: how many the server counted.
            context_length: what the context holds, as far as it is known.
        """
        if told:
            self.learn(told, estimated)
        least = self.bounds[0]
        self.context_length = context_length or self.context_length or round(estimated * least * 0.75)
        if not told:
            self.rate = 1.25 * max(least, self.context_length / max(estimated, 1.0))


def estimate(messages: Iterable[Message]) -> float:
    """Estimate how many tokens messages have.

    Args:
        messages: with their calls and pictures.
    """
    return sum(
        TOKENS_A_MESSAGE
        + TOKENS_A_PICTURE * len(message.images)
        + tokens_of(message.content)
        + sum(tokens_of(call.name + _json(call.arguments)) for call in message.tool_calls)
        for message in messages
    )


def estimate_tools(tools: Iterable[Tool]) -> float:
    """Estimate how many tokens tools have that a server's own function calling is given.

    Args:
        tools: of the request.
    """
    return sum(tokens_of(tool.name + tool.description + _json(tool.input_schema)) for tool in tools)


def tokens_of(text: str) -> float:
    """Estimate: a digit is a token with most tokenizers, three bytes of anything beyond ASCII (one Han character) are one.

    Args:
        text: of a prompt.
    """
    data = text.encode("utf-8", "surrogatepass")
    ascii_length = len(data.translate(None, _NOT_ASCII))
    digits = len(data) - len(data.translate(None, _DIGITS))
    return digits + (ascii_length - digits) / CHARACTERS_A_TOKEN + (len(data) - ascii_length) / 3


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


# -- fitting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages that stay or go together, results in them shortened or not."""

    messages: tuple[Message, ...]
    cuts: tuple[Cut, ...]
    size: float


def fit(messages: Sequence[Message], limit: float, *, lang: str = "en") -> Fitted:
    """Return the conversation as it fits.

    Args:
        messages: system messages first.
        limit: tokens that it may have, by `estimate`.
        lang: of the notes in the places of what is missing, `en` or `zh`.

    Returns:
        The same messages where they fit.
    """
    if estimate(messages) <= limit:
        return Fitted(messages=tuple(messages))
    head, turns, rounds = _split(messages)
    room = limit - estimate(head) - TOKENS_A_NOTE
    old = [_shortened(turn, OLD_RESULT, lang) for turn in turns]
    now = [_shortened(each, LENGTHS[-1], lang) for each in rounds]
    if _size(old + now) > room:
        least = [_shortened(each, LENGTHS[0], lang) for each in rounds]
        share = 1 - STEP if _size(now) <= STEP * room else 0.5
        old = _without_oldest(old, min(share * room, room - _size(least)), step=STEP * room)
        now = _longest(rounds, room - _size(old), lang) or least
    if _size(now) > room:
        now = [*now[:1], *_without_oldest(now[1:-1], room - _size(now[:1] + now[-1:]), step=STEP * room), *now[1:][-1:]]
    gone_turns, gone_rounds = len(turns) - len(old), len(rounds) - len(now)
    kept = (*head, *_noted(old, now, _count(turns[:gone_turns]), _count(rounds[1 : 1 + gone_rounds]), lang))
    cuts = tuple(cut for part in (*old, *now) for cut in part.cuts)
    return Fitted(messages=kept, cuts=cuts, left_out=len(messages) - len(kept), fits=estimate(kept) <= limit)


def _split(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Sequence[Message]], list[Sequence[Message]]]:
    """Return the head, the earlier turns, and this turn: the person's message, then each reply with the results of its calls."""
    head = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    starts = [place for place in range(head, len(messages)) if _is_person(messages[place])]
    last = starts[-1] if starts else head
    turns = _between(messages, head, starts, last)
    replies = (place for place in range(last, len(messages) - 1) if messages[place].role == "assistant")  # the very last goes on
    return messages[:head], turns, _between(messages, last, replies, len(messages))


def _between(messages: Sequence[Message], begin: int, starts: Iterable[int], end: int) -> list[Sequence[Message]]:
    """Cut messages before each of `starts`."""
    places = [begin, *(place for place in starts if begin < place < end), end]
    return [messages[a:b] for a, b in itertools.pairwise(places) if a < b]


def _is_person(message: Message) -> bool:
    return message.role == "user" and not is_result_message(message.content)


def _size(parts: Iterable[_Part]) -> float:
    return sum(part.size for part in parts)


def _count(pieces: Iterable[Sequence[Message]]) -> int:
    return sum(len(piece) for piece in pieces)


def _without_oldest(parts: list[_Part], room: float, *, step: float) -> list[_Part]:
    """Leave out parts from the oldest on, in whole steps, until the others fit."""
    excess = _size(parts) - room
    if excess <= 0:
        return parts
    goal = math.ceil(excess / step) * step if step > 0 else math.inf
    sums = itertools.accumulate(part.size for part in parts)
    return parts[next((number + 1 for number, gone in enumerate(sums) if gone >= goal), len(parts)) :]


def _longest(rounds: Sequence[Sequence[Message]], room: float, lang: str) -> list[_Part] | None:
    """Shorten results as little as needed; None if no length is short enough."""
    ceiling = max(room, 0) * CHARACTERS_A_TOKEN  # longer ones cannot fit: not worth a try
    for length in reversed(LENGTHS):
        if length <= ceiling and _size(parts := [_shortened(each, length, lang) for each in rounds]) <= room:
            return parts
    return None


def _noted(old: list[_Part], now: list[_Part], gone_turns: int, gone_rounds: int, lang: str) -> list[Message]:
    """Return the messages of the parts, with a note behind the place where some are missing."""
    first = [message for part in (*old, *now[:1]) for message in part.messages]
    note = _note(lang, "left_out")
    if gone_turns and first:
        first[0] = replace(first[0], content=f"{note.format(count=gone_turns)}\n\n{first[0].content}")
    if gone_rounds and first:
        first[-1] = replace(first[-1], content=f"{first[-1].content}\n\n{note.format(count=gone_rounds)}")
    return first + [message for part in now[1:] for message in part.messages]


@functools.cache
def _note(lang: str, name: str) -> str:
    """Return what stands in the place of what is missing, with a place for its count."""
    return render(lang, name, count="{count:,}")


# -- results -----------------------------------------------------------------------------------------------------------


def _shortened(messages: Iterable[Message], length: int, lang: str) -> _Part:
    """Shorten each result in messages to `length` characters."""
    cuts: list[Cut] = []
    written = tuple(_with_short_results(message, length, lang, cuts) for message in messages)
    return _Part(written, tuple(cuts), estimate(written))


def _with_short_results(message: Message, length: int, lang: str, cuts: list[Cut]) -> Message:
    if len(message.content) <= length:
        return message
    if message.role == "tool":
        return replace(message, content=_head_and_tail(message.content, message.name or "a tool", length, lang, cuts))
    if message.role != "user" or not is_result_message(message.content):
        return message
    *framed, behind = message.content.split(_CLOSER)  # results hold no such closer: the prompt makes their tags inert
    return replace(message, content=_CLOSER.join([*(_short_frame(each, length, lang, cuts) for each in framed), behind]))


def _short_frame(text: str, length: int, lang: str, cuts: list[Cut]) -> str:
    """Shorten what stands behind the first line with an opener."""
    opener = text.find(_OPENER)
    begin = text.find("\n", opener) + 1
    if opener < 0 or begin == 0:
        return text
    name = text[opener + len(_OPENER) : begin].partition('"')[0]
    return text[:begin] + _head_and_tail(text[begin:], name, length, lang, cuts)


def _head_and_tail(text: str, name: str, length: int, lang: str, cuts: list[Cut]) -> str:
    """Keep two thirds of `length` from the beginning and one from the end; a text that is hardly longer stays."""
    left_out = len(text) - length
    note = f"\n{_note(lang, 'shortened').format(count=left_out)}\n"
    if left_out <= len(note):
        return text
    cuts.append(Cut(name=name, characters=len(text), left_out=left_out))
    tail = length // 3
    return f"{text[: length - tail]}{note}{text[-tail:]}"
