"""Who hears what the engine does for one request: its metrics and its trace always, its recording if there is one.

The engine knows one listener, so that nothing in it branches by who listens.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...backends.base import Backend
from ...prompting.format import PromptFormat
from ...tools.catalog import Catalog
from ...turn.events import LoopEvent
from .observer import Observing

if TYPE_CHECKING:
    from ..engine.recording import Recording

__all__ = ["Hearing"]


class Hearing:
    """What hears a request.

    Attributes:
        note: takes each event of the turn.
    """

    def __init__(self, observing: Observing, recording: "Recording | None" = None) -> None:
        self._observing, self._recording = observing, recording
        self.note: Callable[[LoopEvent], None] = observing.note if recording is None else self._both

    def _both(self, event: LoopEvent) -> None:
        self._observing.note(event)
        if self._recording is not None:
            self._recording.note(event)

    def backend(self, backend: Backend, fitted: Callable[..., Backend]) -> Backend:
        """Return the model as it is asked: with what fits, and heard as it goes out and comes back."""
        observed = self._observing.around(backend)
        if self._recording is None:
            return fitted(observed)
        return fitted(observed, on_sent=self._recording.prompt, on_text=self._recording.texts.append)

    def goes(self, way: str, tools: Catalog | tuple[()], format: PromptFormat) -> None:
        """Note which way a request goes (see `Recording.goes`)."""
        if self._recording is not None:
            self._recording.goes(way, tools, format)

    def answered(self, reason: str, text: str) -> None:
        """Note that the turn is over (see `Recording.answered`)."""
        if self._recording is not None:
            self._recording.answered(reason, text)
