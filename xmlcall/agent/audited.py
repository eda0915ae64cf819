"""Writes audit notes for a call, from its events: before it runs and after.

The note before a call is written when its `CallStarted` is passed on, and the call runs only after that event was consumed: if
the note fails, the call does not run. After the call there is always a note, even if the run was abandoned meanwhile.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any

from ..binding.provenance import ValueSource, provenance
from ..hosts.router import Router
from ..turn.events import CallDenied, CallFinished, CallRejected, CallStarted, LoopEvent
from ..types.calls import CallNote, InvalidCall, Message, Tool, ToolCall

__all__ = ["Audit", "audited", "note_of"]

_Noted = CallStarted | CallFinished | CallDenied | CallRejected
Audit = Callable[[CallNote], None]
"""Records a note, and raises if it cannot; a call that has not started yet then does not run."""


async def audited(
    events: AsyncGenerator[LoopEvent], audit: Audit, router: Router, tool: Tool | None, conversation: Sequence[Message]
) -> AsyncGenerator[LoopEvent]:
    """Pass on the events of one call, and record notes of them.

    Args:
        tool: the tool that is called, as offered; None if there is no tool of that name.
    """
    started: CallNote | None = None
    ended: CallNote | None = None
    begun = 0.0
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, CallStarted):
                    started = note_of(event, router, tool, conversation)
                    audit(started)
                    begun = time.monotonic()
                elif isinstance(event, CallFinished) and started is not None:
                    took = time.monotonic() - begun
                    ended = replace(started, moment="ended", result=event.result, failure=event.failure, seconds=took)
                elif isinstance(event, CallFinished):
                    audit(note_of(event, router, tool, conversation))
                yield event
    finally:
        if started is not None and begun:
            audit(ended or replace(started, moment="interrupted", seconds=time.monotonic() - begun))


def note_of(
    event: _Noted,
    router: Router,
    tool: Tool | None,
    conversation: Sequence[Message],
) -> CallNote:
    """Return the note of an event.

    Args:
        tool: the tool that is called, as offered; None if there is no tool of that name.
    """
    call = event.call
    if isinstance(event, CallStarted):
        server, own_name = event.host, event.host_tool
    else:
        found = router.find(call.name)
        server, own_name = (found[0].name, found[1]) if found else ("", call.name)
    named: dict[str, Any] = {"call": call, "host": server, "host_tool": own_name}
    if isinstance(call, InvalidCall):
        return CallNote(moment="rejected", **named)
    named["sources"] = _sources(call, tool, conversation)
    match event:
        case CallStarted(by=by, reason=reason):
            return CallNote(moment="starts", by=by, reason=reason, **named)
        case CallDenied(by=by, reason=reason):
            return CallNote(moment="denied", by=by, reason=reason, **named)
    assert isinstance(event, CallFinished)
    return CallNote(moment="denied", by="the tool is gone", result=event.result, **named)  # it had not started


def _sources(call: ToolCall, tool: Tool | None, conversation: Sequence[Message]) -> dict[str, dict[str, Any]]:
    found = provenance(call, conversation, [tool] if tool else [])
    return {path: _fields(source) for path, source in found.items()}


def _fields(source: ValueSource) -> dict[str, Any]:
    return {name: part for name, part in asdict(source).items() if part not in (None, "")}
