"""What a perfect model says in a conversation: the calls that a turn has as `right`, and then an answer.

The answer is the turn's `reply`; without one it is what the tools told, since times are known only while a conversation is
played, and a plain sentence where nothing was called. Nothing is remembered: what to say follows from the messages.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from ...backends.base import KeptOpen
from ...backends.scripted import ScriptedBackend
from ...dialects.replies import named_results, replies_of
from ...tools.catalog import Catalog
from ...types.calls import Message
from ...types.completion import Chunk, CompletionRequest
from ..case import Case
from ..oracle import calling
from ..ways import Way
from .servers import folder_of

__all__ = ["RightTurns"]

_PLAIN: Final = {"english": "All right.", "chinese": "好的。"}


class RightTurns(KeptOpen):
    """A backend that is right in every turn of a conversation."""

    def __init__(self, case: Case, way: Way) -> None:
        super().__init__(ScriptedBackend([]))
        self._case, self._way = case, way

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Say what comes next (see `Backend.stream`)."""
        for chunk in self._said(request.messages):
            yield chunk
        yield Chunk(finish_reason="stop")

    def _said(self, messages: Sequence[Message]) -> list[Chunk]:
        asked = sum(message.role == "user" and not replies_of(message) for message in messages)
        before = sum(row["role"] == "user" for row in self._case.messages[: -len(self._case.turns)])
        turn, results = self._case.turns[asked - before - 1], list(_results(messages))
        if "right" in turn and not results:
            calls = [each for call in _placed(turn["right"], str(folder_of(self._case.id))) for each in call.items()]
            return calling(calls, Catalog(()), self._way)
        return [Chunk(text=turn.get("reply") or "\n".join(results) or _PLAIN[self._case.category])]


def _results(messages: Sequence[Message]) -> Iterator[str]:
    """Yield what the tools told since the last reply: in messages of their own, or all in one of role `user`."""
    new = list(takewhile(lambda message: message.role != "assistant", reversed(messages)))
    for message in reversed(new):
        yield from (text for _, text in named_results(message))


def _placed(value: Any, folder: str) -> Any:
    """Put the folder in place of its mark, in all strings of a JSON value."""
    if isinstance(value, str):
        return value.replace("{folder}", folder)
    if isinstance(value, list):
        return [_placed(item, folder) for item in value]
    return {name: _placed(item, folder) for name, item in value.items()} if isinstance(value, dict) else value
