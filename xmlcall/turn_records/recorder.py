"""Keeps the turns of a running program in bounded memory, and notifies watchers when one changes.

A turn is kept as its `TurnBuilder`, and a record is made on demand. The number of turns and their text are limited: the turns
that ended first leave first, and running turns stay. One turn may have only a part of the text (`room`), so that an endless turn
cannot displace all others. Everything runs in the thread of the event loop, except the file of finished turns.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..backends.base import Around, Backend, KeptOpen, Tries
from ..records.secrets import MASK
from ..types.completion import Chunk, CompletionRequest
from .builder import TurnBuilder

MOST_TURNS: Final = 500
MOST_TEXT: Final = 64 * 1024 * 1024  # characters of all turns together: prompts, replies and results
SHARE: Final = 16  # one turn may have a sixteenth of the text
WATCH_SECONDS: Final = 0.2  # between two notifications of a watcher


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A turn and the size of its text; `tell` passes batched events to its builder."""

    builder: TurnBuilder
    text: int = 0
    tell: Callable[[], object] | None = None

    def up_to_date(self) -> TurnBuilder:
        """Return its builder, with all events."""
        if self.tell is not None:
            self.tell()
        return self.builder


class _Watcher:
    """Waits for changes; `ids` are the turns that have changed since the last notification."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.called = asyncio.Event()


class Recorder:
    """The turns of a running program; `keep` writes each that has finished, and no record has a `hidden` key."""

    def __init__(
        self,
        *,
        most_turns: int = MOST_TURNS,
        most_text: int = MOST_TEXT,
        keep: Callable[[TurnBuilder], None] | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self._most_turns, self._most_text = most_turns, most_text
        self._keep = keep
        self._hidden = tuple(sorted({key for key in hidden if key}, key=len, reverse=True))
        self._turns: dict[str, _Kept] = {}  # in the order of their beginnings
        self._finished: dict[str, None] = {}  # in the order of their ends
        self._text = 0
        self.watchers: list[_Watcher] = []  # while there are none, `changed` need not be called
        self._is_closed = False
        self.room = most_text // SHARE  # characters that one turn may have

    def begin(self, **facts: Any) -> TurnBuilder:
        """Begin a turn with facts for its `TurnBuilder`; id and source have defaults."""
        return self.add(TurnBuilder(**{"id": new_id(), "source": "proxy", **facts}))

    def add(self, builder: TurnBuilder) -> TurnBuilder:
        """Add a turn that started elsewhere; it replaces one with the same id."""
        self._leave(builder.id)
        self._turns[builder.id] = _Kept(builder=builder)
        self.changed(builder)
        self._make_room()
        return builder

    def holds_back(self, builder: TurnBuilder, tell: Callable[[], object]) -> None:
        """Note that a running turn's events arrive in batches; `tell` passes on the current batch before the turn is read."""
        if kept := self._turns.get(builder.id):
            kept.tell = tell

    def changed(self, builder: TurnBuilder) -> None:
        """Notify the watchers."""
        for watcher in self.watchers:
            watcher.ids.add(builder.id)
            watcher.called.set()

    def grew(self, builder: TurnBuilder, text: int) -> int:
        """Count text of a turn, and return how much more it may have; finished turns leave if there is too much text."""
        if (kept := self._turns.get(builder.id)) is None:
            return 0
        kept.text += text
        self._text += text
        self._make_room()
        return min(self.room - kept.text, self._most_text - self._text)

    def done(self, builder: TurnBuilder) -> None:
        """Note that a turn has finished, and have it written."""
        if kept := self._turns.get(builder.id):
            self._finished[builder.id] = kept.tell = None
        self.changed(builder)
        self._make_room()
        if self._keep is not None:
            self._keep(builder)

    def turns(self) -> list[TurnBuilder]:
        """Return the turns, newest first."""
        return [kept.up_to_date() for kept in reversed(self._turns.values())]

    def find(self, id: str) -> TurnBuilder | None:
        """Return a turn; None if it is not kept."""
        kept = self._turns.get(id)
        return kept.up_to_date() if kept else None

    async def watch(self) -> AsyncGenerator[set[str]]:
        """Yield the ids of turns that changed since the last time, at most 5 times a second, until the recorder is closed."""
        watcher = _Watcher()
        self.watchers.append(watcher)
        try:
            while not self._is_closed:
                await watcher.called.wait()
                watcher.called.clear()
                if watcher.ids:
                    ids, watcher.ids = watcher.ids, set()
                    yield ids
                    await asyncio.sleep(0 if self._is_closed else WATCH_SECONDS)
        finally:
            self.watchers.remove(watcher)

    def hide(self, text: str) -> str:
        """Mask the hidden keys in a text."""
        for key in self._hidden:
            text = text.replace(key, MASK)
        return text

    def close(self) -> None:
        """End the watchers, because a server that stops waits for its streams."""
        self._is_closed = True
        for watcher in self.watchers:
            watcher.called.set()

    def size(self) -> Mapping[str, int]:
        """Return how many turns are kept and how much text they have."""
        return {"turns": len(self._turns), "under way": len(self._turns) - len(self._finished), "text": self._text}

    def _make_room(self) -> None:
        """Drop finished turns, those that ended first first."""
        while self._finished and (len(self._turns) > self._most_turns or self._text > self._most_text):
            self._leave(next(iter(self._finished)))

    def _leave(self, id: str) -> None:
        if (kept := self._turns.pop(id, None)) is None:
            return
        self._finished.pop(id, None)
        self._text -= kept.text
        for watcher in self.watchers:  # a slow watcher would collect ids without end
            watcher.ids.discard(id)


def new_id() -> str:
    """Make an id of a turn that cannot be guessed."""
    return f"turn_{secrets.token_hex(8)}"


# -- what goes over the wire -------------------------------------------------------------------------------------------


class RecordingBackend(Around, KeptOpen):
    """A backend whose prompts and pieces a listener receives first."""

    def __init__(self, backend: Backend, listener: TurnBuilder) -> None:
        super().__init__(backend)
        self._listener = listener

    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts to make a request."""
        self._listener.prompt(request.messages)
        tries = Tries(self._backend, request)
        tries.listeners = (self._hear,)
        return tries

    def _hear(self, chunk: Chunk) -> None:
        if chunk.text:
            self._listener.wrote(chunk.text)
