"""`xmlcall chat --resume`: a conversation is gone on with, also one whose program was killed."""

from ..agent.loop import ToolLoop
from ..records.in_flight import InFlight, in_flight
from ..records.store import Store
from ..types.calls import Message
from .keeping import Keeper
from .plain import visible
from .session import Session

__all__ = ["recovered", "taken_up"]


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
    messages, cut = await recovered(keeper, keeper.store, session.loop)
    for target in cut.unknown if cut else ():
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and (cut.reply is None or cut.calls):
        display.notice(display.say("cut_off"))
    return messages


async def recovered(keeper: Keeper, store: Store, loop: ToolLoop) -> tuple[list[Message], InFlight | None]:
    """Return the messages of a conversation to go on with, and what was cut off; the repaired conversation is saved.

    Args:
        keeper: of the conversation.
        store: of the keeper.
        loop: open; it knows how the model is spoken to.
    """
    messages, cut = store.messages(keeper.id), in_flight(store.events(keeper.id))
    step = cut or InFlight()
    closed = await loop.closed(messages, step.reply, step.calls, step.ended)
    if cut or closed != messages:
        keeper.keep(closed, "recovered", unknown=list(step.unknown))
    return closed, cut
