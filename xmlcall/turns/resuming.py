"""A conversation is gone on with, also one whose program was killed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..agent.loop import ToolLoop
from ..records.as_json import call_from_json, message_from_json
from ..records.store import KeptEvent, Store, undamaged
from ..turn.events import CallFinished
from ..types.calls import Message, TextContent, ToolCall, ToolResult
from .keeping import Keeper

__all__ = ["InFlight", "KeptTask", "OnTask", "TaskMoment", "in_flight", "recovered"]

# -- what was cut off --------------------------------------------------------------------------------------------------


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


# -- going on ----------------------------------------------------------------------------------------------------------


TaskMoment = Literal["task_awaited", "task_unreachable", "task_ended"]
OnTask = Callable[[TaskMoment, str, CallFinished | str], None]
"""Told of a call that its server runs as a task: the moment, `server.tool`, and its end or why it cannot be asked about."""


def _silent(moment: TaskMoment, target: str, what: CallFinished | str) -> None:
    """Tell nobody."""


async def recovered(
    keeper: Keeper, store: Store, loop: ToolLoop, on_task: OnTask = _silent
) -> tuple[list[Message], InFlight | None]:
    """Return the messages of a conversation to go on with, and what was cut off; the repaired conversation is saved."""
    messages, cut = store.messages(keeper.id), in_flight(store.events(keeper.id), keeper.id)
    if cut and cut.tasks:
        await _ask_for_tasks(keeper, cut, loop, on_task)
        cut = in_flight(store.events(keeper.id), keeper.id)
    step = cut or InFlight()
    closed = await loop.closed(messages, step.reply, step.calls, step.ended)
    if cut or closed != messages:
        keeper.keep(closed, "recovered", unknown=list(step.unknown))
    return closed, cut


async def _ask_for_tasks(keeper: Keeper, cut: InFlight, loop: ToolLoop, on_task: OnTask) -> None:
    """Ask servers for the results of calls that they run as tasks; each is saved as it comes."""
    for call in cut.calls:
        if (task := cut.tasks.get(call.id)) is None:
            continue
        target = f"{task.server}.{task.tool}"
        on_task("task_awaited", target, "")
        ended, why = await loop.taken_up(call, task.server, task.tool, task.task)
        if ended is None:
            if why:
                on_task("task_unreachable", target, why)
            continue
        keeper.note(ended)
        on_task("task_ended", target, ended)
