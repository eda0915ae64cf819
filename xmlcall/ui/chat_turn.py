"""One turn of a chat, from the saved question to the end, and the model that all turns share.

A turn may end with an answer, because the user stopped it, or because the model server failed. In each case the conversation can
continue, and the turn's record states the reason. Incomplete output is kept, as in the terminal. Each step is saved before the
next one, so if the program is killed, `turns.keeping.in_flight` can read what it left.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ..agent.asking_person import Stopped
from ..agent.loop import ToolLoop
from ..backends.base import Backend, KeptOpen
from ..errors import XmlcallError
from ..prompting.results import result_text
from ..records.audit import AuditFile
from ..turn.events import Answer, CallFinished, CallStarted, LoopEvent
from ..turns.builder import TurnBuilder
from ..turns.conversation import Conversation
from ..turns.keeping import Keeper, OnTask, keep_question, recovered
from ..turns.recorder import Recorder
from ..types.calls import CallNote, Message
from ..types.completion import Chunk, CompletionRequest
from ..types.events import ReasoningDelta, TextDelta, ToolArgumentDelta
from .questions import CURRENT

__all__ = ["PageAudit", "SharedBackend", "TurnUnderWay"]

_STEP: Final = 8192  # characters after which the text of a turn is counted
_TEXTS: Final = (TextDelta, ReasoningDelta, ToolArgumentDelta)
_ENDED: Final = "left"  # outcome of a turn that a person stopped


class SharedBackend(KeptOpen):
    """One model for all turns: requests wait for each other, and each turn is notified of its own requests."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the model."""
        await self._backend.__aexit__(kind, error, trace)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`), once it is its turn."""
        turn = CURRENT.get()
        async with self._one_at_a_time:
            if turn is not None:
                turn.prompt(request.messages)
            async with aclosing(self._backend.stream(request)) as chunks:
                async for chunk in chunks:
                    if turn is not None and chunk.text:
                        turn.wrote(chunk.text)
                    yield chunk


class PageAudit:
    """Appends notes of calls to one file, each with the conversation of its turn."""

    def __init__(self, file: AuditFile) -> None:
        self._file = file

    def __call__(self, note: CallNote) -> None:
        """Append a note."""
        turn = CURRENT.get()
        self._file.conversation = turn.id.rpartition(".")[0] if turn else ""
        self._file(note)


@dataclass(slots=True, kw_only=True)
class TurnUnderWay:
    """A turn that is running.

    Args:
        on_task: notified of calls of an earlier turn that servers still run.
    """

    loop: ToolLoop
    keeper: Keeper
    said: Conversation
    question: str
    builder: TurnBuilder
    recorder: Recorder
    goes_on: bool = False
    on_task: OnTask
    messages: Sequence[Message] = ()
    task: asyncio.Task[None] | None = None
    servers: dict[str, str] = field(default_factory=dict)
    uncounted: int = 0
    is_settled: bool = False

    async def keep_question(self) -> None:
        """Keep the question, before the model is asked; what was cut off before it is closed first."""
        assert self.keeper.store is not None
        if self.goes_on:
            before, _ = await recovered(self.keeper, self.keeper.store, self.loop, self.on_task)
            self.said.go_on(before or self.said.messages)
        messages = self.said.ask(self.question)
        tools = await keep_question(self.keeper, self.loop, messages)
        self.messages = messages
        self.builder.know(tools=tools, conversation=messages)
        self.recorder.changed(self.builder)

    async def run(self) -> None:
        """Run the turn to its end; only a mistake of this program is raised."""
        CURRENT.set(self.builder)
        outcome, error = "", ""
        try:
            if not self.messages:
                await self.keep_question()
            await self._answered()
        except (asyncio.CancelledError, Stopped):
            outcome = _ENDED
        except XmlcallError as failure:
            outcome, error = "error", str(failure)
        except Exception as mistake:
            error = f"{type(mistake).__name__}: {mistake}"
            raise
        finally:
            self._end(outcome or "error", error)

    def leave(self) -> None:
        """End what was stopped before it had begun to run; it has no effect on a turn that ran."""
        if not self.is_settled:
            self._end(_ENDED, "")

    async def _answered(self) -> None:
        async with aclosing(self.loop.run(self.messages, on_stop=self._stopped)) as events:
            async for event in events:
                self.keeper.note(event)
                self._note(event)
                if isinstance(event, Answer):
                    self.said.end(event.messages)

    def _stopped(self, messages: tuple[Message, ...]) -> None:
        self.said.end(messages)

    def _note(self, event: LoopEvent) -> None:
        if isinstance(event, CallStarted):
            self.servers[event.call.id] = event.host
        elif isinstance(event, CallFinished):
            self.servers.pop(event.call.id, None)
        self.builder.note(event)
        self.uncounted += len(event.text) if isinstance(event, _TEXTS) else 0
        if self.uncounted >= _STEP or isinstance(event, CallFinished):
            self.uncounted += len(result_text(event.result)) if isinstance(event, CallFinished) else 0
            self.recorder.grew(self.builder, self.uncounted)
            self.uncounted = 0
        self.recorder.changed(self.builder)

    def _end(self, outcome: str, error: str) -> None:
        """Keep the conversation as it is now, and let others continue it."""
        self.is_settled = True
        try:
            if self.messages:
                self.keeper.keep(self.said.messages, **({"error": error} if error else {}))
        except XmlcallError as failure:
            outcome, error = "error", f"{error} {failure}".strip()
        finally:
            self.keeper.leave()
            if not self.builder.is_over or error:
                self.builder.end(outcome, error=error)
            self.recorder.grew(self.builder, self.uncounted + sum(len(each.content) for each in self.messages))
            self.recorder.done(self.builder)
