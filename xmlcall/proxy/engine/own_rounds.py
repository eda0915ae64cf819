"""Rounds in which the proxy ran tools itself, kept until the caller comes back with the results of its own calls.

What the model said is written from what the caller sends (`history.py`), so that every replica of the proxy writes the same. But
a caller knows nothing of the proxy's own tools: their calls and results are kept in this process, under the id of the caller's
first call. The id is random, so that nobody can ask for the rounds of others. What is kept is shown to the model again only
behind the same calls with the same arguments.

Another process does not have them: a balancer before several has to keep a client on one. Rounds that are not known are left out.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...types.calls import Message, TextContent, ToolCall, ToolResult

__all__ = ["Known", "OwnRounds", "RoundsKept", "rounds_behind"]

CHARACTERS_LIMIT: Final = 16_000_000
"""What all rounds together may take; the oldest go first."""

SECONDS: Final = 86_400.0
"""After which rounds are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRounds:
    """What the model is shown with calls of the caller's tools, and the caller does not know.

    Args:
        before: messages between the caller's last one and the reply: rounds in which the proxy ran tools itself.
        shown: text of these replies, which the caller was shown.
        calls: all calls of the reply in order, with the results of those that the proxy ran; the caller's have none yet.
        results: texts of all results of tools that the proxy ran.
    """

    before: tuple[Message, ...]
    shown: str
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]
    results: tuple[str, ...]

    @property
    def theirs(self) -> tuple[ToolCall, ...]:
        """The calls that the caller was given."""
        return tuple(call for call, result in self.calls if result is None)

    def rest_of(self, content: str) -> str:
        """Return the part of a message's text that belongs to the reply with the calls; some callers take white space off."""
        for text, begun in ((content, self.shown), (content.strip(), self.shown.strip())):
            if text.startswith(begun):
                return text[len(begun) :]
        return content


Known = Mapping[str, OwnRounds]
"""Rounds by the id of the first call that the caller was given behind them."""


def rounds_behind(message: Message, known: Known) -> OwnRounds | None:
    """Return the proxy's own rounds behind a message of the model's; None if there are none, or the calls are not the same.

    Args:
        message: the caller's.
        known: what was kept for the conversation.
    """
    found = known.get(message.tool_calls[0].id) if message.tool_calls else None
    return found if found is not None and _told(found.theirs) == _told(message.tool_calls) else None


def _told(calls: Iterable[ToolCall]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(call.id, call.name, call.arguments) for call in calls]


class RoundsKept:
    """Rounds in the memory of a process; all its engines may share them.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, int, OwnRounds]] = OrderedDict()
        self._size = 0

    def recall(self, messages: Iterable[Message]) -> Known:
        """Return the rounds behind a conversation.

        Args:
            messages: the caller's.
        """
        asked = [message.tool_calls[0].id for message in messages if message.tool_calls]
        found = ((each, self._kept[each]) for each in asked if each in self._kept)
        return {each: rounds for each, (until, _, rounds) in found if until > self._clock()}

    def keep(self, rounds: OwnRounds) -> None:
        """Keep rounds until the caller has run its calls.

        Args:
            rounds: with at least one call of the caller's.
        """
        identity, size = rounds.theirs[0].id, sum(map(len, _texts(rounds)))
        self._forget(identity)
        self._kept[identity] = (self._clock() + SECONDS, size, rounds)
        self._size += size
        while self._size > CHARACTERS_LIMIT:
            self._forget(next(iter(self._kept)))

    def _forget(self, identity: str) -> None:
        if (found := self._kept.pop(identity, None)) is not None:
            self._size -= found[1]


def _texts(rounds: OwnRounds) -> Iterator[str]:
    """Yield what takes memory; a call's arguments as they are written."""
    for message in rounds.before:
        yield from (message.content, *message.images)
    for call, result in rounds.calls:
        yield repr(call.arguments)
        yield from (each.text for each in (result.content if result else ()) if isinstance(each, TextContent))
    yield from (rounds.shown, *rounds.results)
