"""Decides where a reply ends: as soon as nothing useful can follow.

Once a block is finished (or a call without wrapper), only white space or another opener may follow. Anything else means that the
model invents results; that text is neither shown nor kept. If a format allows one block per reply, nothing may follow the block,
because small models then call every tool that was described (docs/decisions/loop.md). The reply also ends where `leaks.py`
ends it.

A call that needs the result of an earlier call (`waiting.py`) ends the reply as well. It is not kept, because its values are
invented and a model repeats what its history shows. The values of calls after it would be invented too, or depend on what it
does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..dialects import DIALECTS
from ..dialects.write import ends_with_calls
from ..prompting.leaks import Leaks
from ..types.calls import ToolCall
from ..types.events import Event, Markup, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart

Waits = Callable[[ToolCall, Sequence[ToolCall]], tuple[str, ...]]
"""Takes a call and the earlier calls of its reply; returns the JSON paths of the values it waits for, none if it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A call that needs the result of an earlier call in the same reply."""

    call: ToolCall
    paths: tuple[str, ...]


class Watch:
    """Passes events on until nothing useful can follow.

    Args:
        waits: says for which values a later call has to wait; None if no call has to.

    Attributes:
        held: the call that has to wait, if such a call ended the reply.
    """

    def __init__(self, *, parallel: bool, leaks: Leaks, one_tool: bool = False, waits: Waits | None = None) -> None:
        self.kept: list[Event] = []
        self.done = False
        self.end: int | None = None  # offset of the end of the last call or block
        self.inside = False  # a wrapper is open
        self.calling = False  # a call is open
        self.leaks = leaks
        self.held: Held | None = None
        self._parallel = parallel
        self._one_tool = one_tool
        self._first_name = ""
        self._waits = waits
        self._ready: list[ToolCall] = []
        self._finished = False
        self._one_block = False  # the last call was written in a format with one block a reply
        self._no_more_calls = False  # that block is closed
        self._waiting: list[Event] = []

    def pass_on(self, events: list[Event]) -> list[Event]:
        """Process events of the parser; return those to show."""
        if self.held:
            return []
        shown: list[Event] = []
        for event in events:
            shown += [shown for passed in self._one(event) for shown in self.leaks.pass_on(passed)]
            self.done = self.done or self.leaks.stopped
        self.kept += shown
        if self.held:
            self._leave_out_open_call()
        return shown

    def close(self, events: list[Event]) -> list[Event]:
        """Process the last events of a reply; return those to show."""
        shown = [*self.pass_on(events), *(rest := self.leaks.close())]
        self.kept += rest
        return shown

    def _one(self, event: Event) -> list[Event]:
        if self.done:
            return []
        if isinstance(event, ToolCallStart) and self.end is not None and not self._may_call(event.name):
            self.done = True
            return []
        if self._finished and not _may_follow(event, calls=not self._no_more_calls):
            self.done = True
            return []
        if isinstance(event, ToolCallEnd) and isinstance(event.call, ToolCall) and self._holds(event.call):
            return []
        self._note(event)
        if self._finished and isinstance(event, TextDelta):  # white space, perhaps before another block
            self._waiting.append(event)
            return []
        released, self._waiting = self._waiting, []
        return [*released, event]

    def _may_call(self, name: str) -> bool:
        """Say whether another call, of this tool, may follow."""
        return self._parallel and (not self._one_tool or name == self._first_name)

    def _holds(self, call: ToolCall) -> bool:
        """End the reply if a call has to wait; the first call never does."""
        if self._waits and self._ready and (paths := self._waits(call, self._ready)):
            self.held, self.done = Held(call=call, paths=paths), True
            return True
        self._ready.append(call)
        return False

    def _leave_out_open_call(self) -> None:
        """Drop the beginning of the call that has to wait."""
        starts = [place for place, event in enumerate(self.kept) if isinstance(event, ToolCallStart)]
        ends = [place for place, event in enumerate(self.kept) if isinstance(event, ToolCallEnd)]
        del self.kept[next(place for place in starts if place > ends[-1]) :]

    def _note(self, event: Event) -> None:
        match event:
            case Markup(kind="block_open"):
                self.inside, self._finished = True, False
            case ToolCallStart(name=name):
                self._finished, self.calling = False, True
                self._first_name = self._first_name or name
            case ToolCallEnd(span=span, raw=raw):
                row = DIALECTS.get(raw.dialect)
                self.inside = self.inside and not (row and ends_with_calls(row))
                self.end, self._finished, self.calling = span[1], not self.inside, False
                self._one_block = row is not None and row.one_block
            case Markup(kind="block_close" | "fence" | "stray", span=span) if self.end is not None:
                self.end, self.inside, self._finished = span[1], False, True
                self._no_more_calls = self._no_more_calls or (event.kind == "block_close" and self._one_block)


def _may_follow(event: Event, *, calls: bool) -> bool:
    if isinstance(event, TextDelta):
        return not event.text.strip()
    if calls:
        return isinstance(event, (Markup, ToolCallStart, Repaired))
    return isinstance(event, Markup) and event.kind != "block_open"


def text_until(events: list[Event], end: int) -> list[Event]:
    """Drop text after an offset."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta)) and event.span[1] > end:
            start = event.span[0]
            kept += [replace(event, text=event.text[: end - start], span=(start, end))] if start < end else []
        else:
            kept.append(event)
    return kept
