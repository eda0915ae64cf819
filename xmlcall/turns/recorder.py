"""The turns of a running program, as many as fit into bounded memory, and who is told when one changes.

A turn is kept as the `TurnBuilder` that its events go to; a record is made of it only when somebody looks. At most so many turns
are kept, with so much text in all: those that ended first leave first, and those under way stay. What one turn may have of that
is bounded as well (`room`), so that a turn without end cannot drive all others out.

Everything here runs in the thread of the event loop, but for the file that finished turns are appended to. A change costs
nothing while nobody watches, and an entry in a set for each watcher else.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..backends.base import Around, Backend, KeptOpen, Tries, tries_of
from ..records.secrets import MASK
from ..types.completion import Chunk, CompletionRequest
from .builder import TurnBuilder

__all__ = ["MOST_TURNS", "Recorder", "RecordingBackend", "new_id"]

MOST_TURNS: Final = 500
MOST_TEXT: Final = 64 * 1024 * 1024
"""Characters of all turns together: prompts, replies and results."""
SHARE: Final = 16  # of the text, that one turn may have: a sixteenth
WATCH_SECONDS: Final = 0.2  # between two words to a watcher


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A turn, and what is counted of it.

    Args:
        tell: has its builder told what is held back; None if nothing is.
    """

    builder: TurnBuilder
    text: int = 0
    tell: Callable[[], object] | None = None

    def up_to_date(self) -> TurnBuilder:
        """Return its builder, told of everything."""
        if self.tell is not None:
            self.tell()
        return self.builder


class _Watcher:
    """Somebody who waits for changes.

    Attributes:
        ids: of turns that changed since the last word.
        called: set if there is one.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.called = asyncio.Event()


class Recorder:
    """The turns of a running program.

    Args:
        keep: told of each finished turn, to write it somewhere; it must not block.

    Attributes:
        watchers: those who watch; while there are none, `changed` need not be called.
    """

    def __init__(
        self,
        *,
        most_turns: int = MOST_TURNS,
        most_text: int = MOST_TEXT,
        keep: Callable[[TurnBuilder], None] | None = None,
        source: str = "proxy",
        hidden: Iterable[str] = (),
    ) -> None:
        self._most_turns, self._most_text = most_turns, most_text
        self._keep, self._source = keep, source
        self._hidden = tuple(sorted({key for key in hidden if key}, key=len, reverse=True))
        self._turns: dict[str, _Kept] = {}  # in the order of their beginnings
        self._finished: dict[str, None] = {}  # in the order of their ends
        self._text = 0
        self.watchers: list[_Watcher] = []
        self._is_closed = False

    def begin(self, **facts: Any) -> TurnBuilder:
        """Begin a turn.

        Args:
            facts: of the turn, as a `TurnBuilder` takes them; its id and source unless they are given.
        """
        return self.add(TurnBuilder(**{"id": new_id(), "source": self._source, **facts}))

    def add(self, builder: TurnBuilder) -> TurnBuilder:
        """Take a turn that somebody else began.

        Args:
            builder: of the turn; one with its id that is kept is replaced.
        """
        self._leave(builder.id)
        self._turns[builder.id] = _Kept(builder=builder)
        self.changed(builder)
        self._make_room()
        return builder

    def holds_back(self, builder: TurnBuilder, tell: Callable[[], object]) -> None:
        """Say that a turn under way is told to its builder in batches, while nobody looks.

        Args:
            tell: tells it what is held back; called before somebody looks at the turn.
        """
        if kept := self._turns.get(builder.id):
            kept.tell = tell

    def changed(self, builder: TurnBuilder) -> None:
        """Wake those who watch."""
        for watcher in self.watchers:
            watcher.ids.add(builder.id)
            watcher.called.set()

    def grew(self, builder: TurnBuilder, text: int) -> int:
        """Count text of a turn; turns that are over leave if it is too much.

        Returns:
            How much more the turn may have; with none left, nothing more of it is to be kept.
        """
        if (kept := self._turns.get(builder.id)) is None:
            return 0
        kept.text += text
        self._text += text
        self._make_room()
        return min(self._most_text // SHARE - kept.text, self._most_text - self._text)

    @property
    def room(self) -> int:
        """Characters that one turn may have."""
        return self._most_text // SHARE

    def done(self, builder: TurnBuilder) -> None:
        """Count a turn among those that are over, and have it written where all are."""
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
        """Watch all turns, from the first `anext` on.

        Yields:
            The ids of turns that changed since the last time, at most 5 times a second; whoever is slow misses what was between.
            It ends when the recorder is closed.
        """
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
        """Return a text without the keys that are to be in no record."""
        for key in self._hidden:
            text = text.replace(key, MASK)
        return text

    def close(self) -> None:
        """End what watches: a server that stops waits for its streams."""
        self._is_closed = True
        for watcher in self.watchers:
            watcher.called.set()

    def size(self) -> Mapping[str, int]:
        """Return how many turns are kept and how much text they have."""
        return {"turns": len(self._turns), "under way": len(self._turns) - len(self._finished), "text": self._text}

    def _make_room(self) -> None:
        """Let turns go, those that ended first at first; those under way stay."""
        while self._finished and (len(self._turns) > self._most_turns or self._text > self._most_text):
            self._leave(next(iter(self._finished)))

    def _leave(self, id: str) -> None:
        if (kept := self._turns.pop(id, None)) is None:
            return
        self._finished.pop(id, None)
        self._text -= kept.text
        for watcher in self.watchers:  # one that is slow would gather ids without end
            watcher.ids.discard(id)


def new_id() -> str:
    """Make an id of a turn, which nobody can guess."""
    return f"turn_{secrets.token_hex(8)}"


# -- what goes over the wire -------------------------------------------------------------------------------------------


class RecordingBackend(Around, KeptOpen):
    """A backend that is listened to.

    Args:
        listener: told of each prompt before it goes out and of each piece before it is passed on; None for nobody.

    Attributes:
        listener: may be changed between two requests.
    """

    def __init__(self, backend: Backend, listener: TurnBuilder | None = None) -> None:
        super().__init__(backend)
        self.listener = listener

    def tries(self, request: CompletionRequest) -> Tries:
        """Return how a request is made."""
        listener = self.listener
        if listener is None:
            return tries_of(self._backend, request)
        listener.prompt(request.messages)
        return _Heard(self._backend, request, listener)


class _Heard(Tries):
    """A request that is listened to."""

    def __init__(self, backend: Backend, request: CompletionRequest, listener: TurnBuilder) -> None:
        super().__init__(backend, request)
        self._listener = listener
        self.hears = (self._hear,)

    def _hear(self, chunk: Chunk) -> None:
        if chunk.text:
            self._listener.wrote(chunk.text)
