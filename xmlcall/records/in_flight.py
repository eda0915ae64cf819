"""What a conversation had begun when its program ended: read from its events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..types.calls import Message, TextContent, ToolCall, ToolResult
from .as_json import call_from_json, message_from_json
from .store import KeptEvent, undamaged

__all__ = ["InFlight", "KeptTask", "in_flight"]

_WHOLE: Final = frozenset({"answer", "kept", "recovered"})  # the turn has ended
_MARKS: Final = _WHOLE | {"asked", "step"}  # behind these the messages are those that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTask:
    """A call that its server runs as a task."""

    server: str
    tool: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A step that was cut off.

    Args:
        reply: as it stands in the conversation; None if it was not complete, or not kept.
        calls: of that reply, also those that could not be read: without arguments.
        ended: id of a call -> its result; None for one that had started and has none.
        tasks: id of such a call -> the task that its server has made of it.
    """

    reply: Message | None = None
    calls: tuple[ToolCall, ...] = ()
    ended: Mapping[str, ToolResult | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    tasks: Mapping[str, KeptTask] = field(default_factory=dict)


def in_flight(events: Sequence[KeptEvent], conversation: str = "") -> InFlight | None:
    """Return what was cut off; None if the last turn had ended."""
    with undamaged(conversation):
        return _in_flight(events)


def _in_flight(events: Sequence[KeptEvent]) -> InFlight | None:
    last = max((place for place, event in enumerate(events) if event.kind in _MARKS), default=-1)
    if last < 0 or events[last].kind in _WHOLE:
        return None
    reply: Message | None = None
    calls: tuple[ToolCall, ...] = ()
    ended: dict[str, ToolResult | None] = {}
    places: dict[str, tuple[str, str]] = {}
    tasks: dict[str, KeptTask] = {}
    for event in events[last + 1 :]:
        body = event.body
        match event.kind:
            case "reply":
                reply = message_from_json(body["message"]) if body["message"] else None
                calls = tuple(map(call_from_json, body["calls"])) if reply else ()
            case "started":
                ended[body["id"]], places[body["id"]] = None, (body["server"], body["tool"])
            case "task":
                server, tool = places[body["id"]]
                tasks[body["id"]] = KeptTask(server=server, tool=tool, task=body["task"])
            case "ended":
                ended[body["id"]] = _result(body)
                tasks.pop(body["id"], None)
    unknown = tuple(".".join(places[id]) for id, result in ended.items() if result is None)
    return InFlight(reply=reply, calls=calls, ended=ended, unknown=unknown, tasks=tasks)


def _result(body: Mapping[str, Any]) -> ToolResult:
    return ToolResult(content=(TextContent(text=body["text"]),), is_error=body["outcome"] != "ok", call_id=body["id"])
