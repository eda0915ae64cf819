"""Rounds in which the proxy ran tools itself, kept until the caller comes back with the results of its own calls.

What the model said is written from what the caller sends (`prompting/writer.py`), so that every replica of the proxy writes the
same. But a caller knows nothing of the proxy's own tools: their calls and results are kept in this process, under the id of the
caller's first call. The id is random, so that nobody can ask for the rounds of others. What is kept is shown to the model again
only behind the same calls with the same arguments.

Another process does not have them: a balancer before several has to keep a client on one. Rounds that are not known are left out.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ...prompting.results import result_text
from ...prompting.writer import Known, OwnRounds, rounds_behind
from ...types.calls import Message, TextContent

__all__ = ["RoundsKept", "with_own_results"]

CHARACTERS_LIMIT: Final = 16_000_000
"""What all rounds together may take; the oldest go first."""

SECONDS: Final = 86_400.0
"""After which rounds are forgotten."""


class RoundsKept:
    """Rounds in the memory of a process; all its engines may share them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, int, OwnRounds]] = OrderedDict()
        self._size = 0

    def recall(self, messages: Iterable[Message]) -> Known:
        """Return the rounds behind a conversation."""
        asked = [message.tool_calls[0].id for message in messages if message.tool_calls]
        found = ((each, self._kept[each]) for each in asked if each in self._kept)
        return {each: rounds for each, (until, _, rounds) in found if until > self._clock()}

    def keep(self, rounds: OwnRounds) -> None:
        """Keep rounds until the caller has run its calls."""
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


def with_own_results(messages: Iterable[Message], known: Known) -> tuple[Message, ...]:
    """Return a conversation with what the proxy's own tools returned in it, as far as that is known."""
    whole: list[Message] = []
    for message in messages:
        found = rounds_behind(message, known)
        if found is None:
            whole.append(message)
            continue
        own = [(call, result) for call, result in found.calls if result is not None]
        told = [Message(role="tool", name=call.name, content=result_text(result)) for call, result in own]
        whole += [*found.before, message, *told]
    return tuple(whole)
