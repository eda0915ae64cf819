"""Which of llama.cpp's slots a request goes to, so that what is asked beside a conversation never takes its place.

A slot keeps the prompt that it read last. Whether a message needs a tool is asked behind the tool prompt alone. In the slot of
the conversation, which begins with the same tool prompt, that would cut the conversation off, and the reply would read all of it
again: 1.5 to 7 s at each of the first messages, measured with eight tools and 1.5 billion parameters on two cores
(`benchmarks/decision_time.py`). So each has a slot of its own. What both begin with is read once, and copied to the other slot
(30 ms for a thousand tokens). Slots share the memory of one context, and llama.cpp clears idle ones where that is full.
"""

from typing import Final

from ..types.completion import CompletionRequest

__all__ = ["SLOTS", "Slots"]

SLOTS: Final = 4
"""A conversation with the tool prompt and one without, what is asked beside each."""
_Use = tuple[str, bool]  # the system message, and whether it is asked aside


class Slots:
    """What each slot was last used for; the one that was not used for longest is taken for something new."""

    def __init__(self) -> None:
        self._used: dict[_Use, int] = {}  # the latest last
        self._free = list(range(SLOTS))

    def place(self, request: CompletionRequest) -> tuple[int, int | None]:
        """Choose a request's slot.

        Returns:
            The slot, and another that is copied to it first, since it begins alike; None where none is.
        """
        first = request.messages[0]
        system = first.content if first.role == "system" else ""
        use = (system, request.aside)
        source = self._used.get((system, not request.aside)) if system and use not in self._used else None
        slot = self._used.pop(use, None)
        if slot is None:
            slot = self._free.pop(0) if self._free else self._used.pop(self._oldest(but=source))
        self._used[use] = slot
        return slot, source

    def _oldest(self, *, but: int | None) -> _Use:
        return next(use for use, slot in self._used.items() if slot != but)
