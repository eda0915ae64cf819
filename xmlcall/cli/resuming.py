"""`xmlcall chat --resume`: a conversation is gone on with, also one whose program was killed.

Of a call that had started it is not known whether it ran, unless its server runs it as a task: then the server is asked. Ctrl-C
while it is waited for ends the program, and the next one asks again.
"""

from collections.abc import Callable
from typing import Final

from ..agent.loop import ToolLoop
from ..prompting.results import result_text
from ..records.in_flight import InFlight, in_flight
from ..records.store import Store
from ..types.calls import Message
from .keeping import Keeper
from .plain import shortened, visible
from .session import Session
from .words import Say, speaker

__all__ = ["recovered", "taken_up"]

_WIDTH: Final = 200  # characters of a result that are shown


async def taken_up(session: Session, start: list[Message]) -> list[Message]:
    """Return the messages that a chat begins with, and tell the person what is known of a turn that was cut off.

    Args:
        session: open; its keeper has the conversation.
        start: what a new conversation begins with.
    """
    keeper, display = session.keeper, session.display
    if keeper.store is None or not keeper.is_resumed:
        return list(start)
    found = keeper.store.find(keeper.id)
    display.notice(display.say("resumed", id=found.id, count=found.messages, title=visible(found.title)))
    messages, cut = await recovered(keeper, keeper.store, session.loop, display.notice, display.say)
    for target in cut.unknown if cut else ():
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and (cut.reply is None or cut.calls):
        display.notice(display.say("cut_off"))
    return messages


async def recovered(
    keeper: Keeper, store: Store, loop: ToolLoop, tell: Callable[[str], None] = lambda text: None, say: Say | None = None
) -> tuple[list[Message], InFlight | None]:
    """Return the messages of a conversation to go on with, and what was cut off; the repaired conversation is saved.

    Args:
        keeper: of the conversation.
        store: of the keeper.
        loop: open; it knows how the model is spoken to.
        tell: shows a line to the person.
        say: gives the texts of a language.
    """
    messages, cut = store.messages(keeper.id), in_flight(store.events(keeper.id))
    if cut and cut.tasks:
        await _ask_for_tasks(keeper, cut, loop, tell, say or speaker("en"))
        cut = in_flight(store.events(keeper.id))
    step = cut or InFlight()
    closed = await loop.closed(messages, step.reply, step.calls, step.ended)
    if cut or closed != messages:
        keeper.keep(closed, "recovered", unknown=list(step.unknown))
    return closed, cut


async def _ask_for_tasks(keeper: Keeper, cut: InFlight, loop: ToolLoop, tell: Callable[[str], None], say: Say) -> None:
    """Ask servers for the results of calls that they run as tasks; each is saved as it comes."""
    for call in cut.calls:
        if (task := cut.tasks.get(call.id)) is None:
            continue
        target = visible(f"{task.server}.{task.tool}")
        tell(say("task_awaited", target=target))
        ended, why = await loop.taken_up(call, task.server, task.tool, task.task)
        if ended is None:
            if why:
                tell(say("task_unreachable", target=target, why=visible(why)))
            continue
        keeper.note(ended)
        text = shortened(ended.failure or result_text(ended.result), lines=1, width=_WIDTH)
        tell(say("task_ended", target=target, text=text))
