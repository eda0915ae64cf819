"""What the model really said before a call, remembered until the call's result comes back.

A caller keeps our answer in its own form: visible text and calls. Written anew from that, the history would differ in small
ways from what the model server has cached, and the rounds in which the proxy itself ran tools would be missing. So each answer
with calls is remembered by the ids of its calls, which are random; if the caller comes back with the same ids, text and
arguments, the model gets its own words again. If not (a restart, an edited history, memory full), the history is written from
what the caller sent.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ...types.calls import Message, ToolCall, ToolResult

__all__ = ["Memory", "Remembered"]

CHARACTER_LIMIT: Final = 16_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """An answer with calls of the caller's tools.

    Args:
        before: messages between the caller's last one and the reply: rounds in which the proxy ran tools itself.
        text: the reply as the model wrote it.
        visible: the text that the caller was shown.
        calls: all calls of the reply in order, with the results of those that the proxy ran; the caller's have none yet.
        results: texts of all results of tools that the proxy ran.
    """

    before: tuple[Message, ...]
    text: str
    visible: str
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]
    results: tuple[str, ...] = ()

    @property
    def theirs(self) -> tuple[ToolCall, ...]:
        """The calls that the caller was given."""
        return tuple(call for call, result in self.calls if result is None)

    @property
    def size(self) -> int:
        """Characters, roughly; contents of results that are no text count, too."""
        texts = (self.text, self.visible, *self.results, *(message.content for message in self.before))
        return sum(map(len, texts)) + sum(len(repr(result.content)) for _, result in self.calls if result is not None)


class Memory:
    """Answers by the id of their first call; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Remembered] = OrderedDict()
        self._size = 0

    def keep(self, remembered: Remembered) -> None:
        """Remember an answer that has at least one call of the caller's."""
        self._kept[remembered.theirs[0].id] = remembered
        self._size += remembered.size
        while self._size > CHARACTER_LIMIT:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size

    def results_before(self, message: Message) -> tuple[str, ...]:
        """Return the texts of results that the model is shown with a message."""
        found = self.find(message)
        return found.results if found else ()

    def find(self, message: Message) -> Remembered | None:
        """Return what the model said where the caller has this message; None if that is not known, or not the same any more."""
        found = self._kept.get(message.tool_calls[0].id) if message.tool_calls else None
        if found is None or found.visible.strip() != message.content.strip():
            return None
        return found if _same(found.theirs, message.tool_calls) else None


def _same(kept: tuple[ToolCall, ...], sent: tuple[ToolCall, ...]) -> bool:
    return [(call.id, call.name, call.arguments) for call in kept] == [(call.id, call.name, call.arguments) for call in sent]
