"""A streamed chat completion as lists of choices, for gateways that have objects of their own for chunks.

The proxy's own writer of chunks says what is in them, so that a gateway's stream and ours say the same.
"""

import json
from typing import Any

from ..proxy.formats.contract import Asked, ResponseEvent
from ..proxy.formats.openai_chat import CHAT

__all__ = ["ChoiceWriter"]

Choices = list[dict[str, Any]]


class ChoiceWriter:
    """Writes one streamed answer.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Asked) -> None:
        self._writer = CHAT.writer(asked)

    def begin(self) -> Choices:
        """Return the choices of the first chunk."""
        return _choices(self._writer.begin())

    def write(self, event: ResponseEvent) -> Choices:
        """Return the choices of an event's chunk; none if it is not shown.

        Args:
            event: of the answer; of its end this is the chunk with the reason.
        """
        return _choices(self._writer.write(event))


def _choices(written: bytes) -> Choices:
    line = written.partition(b"\n\n")[0]
    choices: Choices = json.loads(line.removeprefix(b"data: "))["choices"] if line else []
    return choices
