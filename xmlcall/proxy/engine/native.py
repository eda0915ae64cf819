"""What answers need whose calls the model server reads itself, and answers without tools: events are passed on as they come."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...agent.events import TurnEnded, TurnStarted
from ...agent.generate import Binder, Generated
from ...agent.native import generate_native
from ...backends.base import Backend, KeptOpen
from ...tools.catalog import Catalog
from ...types.calls import Message
from ...types.completion import UNCUT, Chunk, CompletionRequest, PromptProgress
from ...types.events import Event, ReasoningDelta, TextDelta
from ..formats.contract import ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece

if TYPE_CHECKING:
    from ..observed.hearing import Hearing

__all__ = ["WithWholeMessages", "plain_answer"]


async def plain_answer(
    backend: Backend, completion: CompletionRequest, recording: "Hearing | None" = None, *, number: int = 1
) -> AsyncGenerator[ResponseEvent]:
    """Generate an answer without tools.

    Args:
        backend: open.
        completion: how to generate.
        recording: told each event, if anybody wants to hear.
        number: of the reply in its turn.

    Raises:
        BackendError: the model server failed.
    """
    if backend.capabilities.reasoning_open:  # the text would begin inside the thinking; the server is to part them
        completion = replace(completion, extra={"reasoning_format": "auto", **completion.extra})
    if recording is not None:
        recording.note(TurnStarted(turn=number))
    async with aclosing(generate_native(backend, completion, Binder(catalog=Catalog()))) as events:
        async for event in events:
            if recording is not None:
                _record(recording, event, number)
            if isinstance(event, Generated):
                yield ResponseEnded(finish_reason=event.reply.finish_reason, usage=event.usage)
            elif piece := _piece(event):
                yield piece


def _record(recording: "Hearing", event: Event | PromptProgress | Generated, number: int) -> None:
    if not isinstance(event, Generated):
        recording.note(event)
        return
    reply, message = event.reply, Message(role="assistant", content=event.text)
    recording.note(TurnEnded(turn=number, reply=reply, usage=event.usage, raw=event.raw, message=message))
    recording.answered("end" if reply.finish_reason in UNCUT else reply.finish_reason, reply.text)


class WithWholeMessages(KeptOpen):
    """A backend that is sent a caller's messages as they came, in the server's own format, with what was added behind them.

    Args:
        backend: open.
        count: of the messages of the first request.
        write: writes a message in the server's format.
    """

    def __init__(self, backend: Backend, count: int, write: Callable[[Message], dict[str, Any]]) -> None:
        super().__init__(backend)
        self._count, self._write = count, write

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        whole, added = request.extra.get("messages"), request.messages[self._count :]
        if isinstance(whole, list) and added:
            request = replace(request, extra={**request.extra, "messages": [*whole, *map(self._write, added)]})
        return self._backend.stream(request)


def _piece(event: Any) -> ResponseEvent | None:
    match event:
        case TextDelta(text=text):
            return TextPiece(text=text)
        case ReasoningDelta(text=text):
            return ReasoningPiece(text=text)
    return None
