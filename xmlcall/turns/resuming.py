"""A conversation is gone on with, also one whose program was killed."""

from collections.abc import Callable
from typing import Literal

from ..agent.loop import ToolLoop
from ..records.in_flight import InFlight, in_flight
from ..records.store import Store
from ..turn.events import CallFinished
from ..types.calls import Message
from .keeping import Keeper

__all__ = ["OnTask", "TaskMoment", "recovered"]

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
