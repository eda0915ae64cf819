"""What answers need whose calls the model server reads itself, and answers without tools: events are passed on as they come."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...agent.drive import drive
from ...backends.base import Backend, KeptOpen
from ...tools.catalog import Catalog
from ...turn.events import TurnEnded, TurnStarted
from ...turn.generate import Binder, Generated
from ...turn.machine import Machine
from ...turn.native import generate_native
from ...types.calls import Message
from ...types.completion import UNCUT, Chunk, CompletionRequest
from ...types.events import ReasoningDelta, TextDelta
from ..formats.contract import ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece

if TYPE_CHECKING:
    from ..observed.listeners import Hearing

__all__ = ["WithWholeMessages", "plain_answer"]


async def plain_answer(
    backend: Backend, completion: CompletionRequest, recording: "Hearing | None" = None, *, number: int = 1
) -> AsyncGenerator[ResponseEvent]:
    """Generate an answer without tools."""
    if backend.capabilities.reasoning_open:  # the text would begin inside the thinking; the server is to part them
        completion = replace(completion, extra={"reasoning_format": "auto", **completion.extra})
    if recording is not None:
        recording.note(TurnStarted(turn=number))
    machine = Machine(generate_native(completion, Binder(catalog=Catalog()), backend.capabilities))
    async with aclosing(drive(machine, backend)) as events:
        async for event in events:
            if recording is not None:
                recording.note(event)
            if piece := _piece(event):
                yield piece
    assert machine.result is not None
    if recording is not None:
        _record(recording, machine.result, number)
    yield ResponseEnded(finish_reason=machine.result.reply.finish_reason, usage=machine.result.usage)


def _record(recording: "Hearing", generated: Generated, number: int) -> None:
    reply, message = generated.reply, Message(role="assistant", content=generated.text)
    recording.note(TurnEnded(turn=number, reply=reply, usage=generated.usage, raw=generated.raw, message=message))
    recording.answered("end" if reply.finish_reason in UNCUT else reply.finish_reason, reply.text)


class WithWholeMessages(KeptOpen):
    """A backend that is sent a caller's messages as they came, in the server's own format, with what was added behind them."""

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
