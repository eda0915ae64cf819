"""The line below the prompt of a chat: the model, how it is asked, its servers, and what the last reply cost.

What is not known is left out, and what does not fit the terminal is left out from the right.
"""

import time
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from ..hosts.router import HostState
from ..turn.events import Answer, LoopEvent, TurnEnded, TurnStarted
from ..types.completion import Usage
from ..types.events import ReasoningDelta, TextDelta, ToolArgumentDelta
from .plain import visible
from .words import Say

__all__ = ["StatusLine"]

_LEAST_TOKENS, _LEAST_SECONDS = 5, 0.05  # of a reply whose speed says something


class StatusLine:
    """Gathers what the line tells."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.forget()

    def forget(self) -> None:
        """Begin anew: another conversation, or another model."""
        self._last: Usage = Usage()  # of the last reply
        self._run: Usage = Usage()  # of all replies to the last question
        self._speed: float | None = None
        self._first: float | None = None

    def note(self, event: LoopEvent) -> None:
        """Take the next event."""
        match event:
            case TurnStarted():
                self._first = None
            case TextDelta() | ReasoningDelta() | ToolArgumentDelta() if self._first is None:
                self._first = time.monotonic()
            case TurnEnded(usage=usage):
                self._last = usage
                self._measure(usage)
            case Answer(usage=usage):
                self._run = usage

    def _measure(self, usage: Usage) -> None:
        seconds = time.monotonic() - self._first if self._first is not None else 0.0
        tokens = usage.completion_tokens or 0
        if tokens >= _LEAST_TOKENS and seconds >= _LEAST_SECONDS:
            self._speed = tokens / seconds

    def text(self, model: str, way: str, context: int | None, hosts: Iterable[HostState], width: int) -> str:
        """Write the line."""
        states = [state for state in hosts if state.kind != "off"]
        answering = sum(state.kind == "answers" for state in states)
        parts = [visible(model), way, self._say("status_servers", count=answering, all=len(states)), *self._counts(context)]
        line = ""
        for part in parts:
            longer = f"{line} | {part}" if line else part
            if cell_len(longer) > width - 1:
                break
            line = longer
        return line or set_cell_size(visible(model), max(width - 1, 1))

    def _counts(self, context: int | None) -> Iterable[str]:
        if (prompt := self._last.prompt_tokens) is not None:
            used = f"{'~' if self._last.is_estimated else ''}{prompt + (self._last.completion_tokens or 0):,}"
            yield (
                self._say("status_tokens_of", used=used, all=f"{context:,}") if context else self._say("status_tokens", used=used)
            )
        if self._run.prompt_tokens and self._run.cached_tokens is not None:
            yield self._say("status_cached", share=round(100 * self._run.cached_tokens / self._run.prompt_tokens))
        if self._speed is not None:
            yield self._say("status_speed", speed=f"{self._speed:,.0f}")
