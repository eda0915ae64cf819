"""A backend that tells what the model is sent, word by word: what stands in a record is what went out, after all cutting.

It stands next to the model, below whatever shortens or changes a prompt. It costs one call for each request, and nothing for
what comes back.
"""

from collections.abc import AsyncGenerator, Callable, Sequence

from ..backends.base import Backend, KeptOpen
from ..types.calls import Message
from ..types.completion import Chunk, CompletionRequest

__all__ = ["RecordingBackend", "Tell"]

Tell = Callable[[Sequence[Message]], None]
"""Takes the messages of a request, such as `TurnBuilder.prompt`."""


class RecordingBackend(KeptOpen):
    """A backend whose prompts are told.

    Args:
        backend: open.
        tell: told of each prompt before it goes out; None for nobody.

    Attributes:
        tell: may be changed between two turns.
    """

    def __init__(self, backend: Backend, tell: Tell | None = None) -> None:
        super().__init__(backend)
        self.tell = tell

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        if self.tell is not None:
            self.tell(request.messages)
        return self._backend.stream(request)
