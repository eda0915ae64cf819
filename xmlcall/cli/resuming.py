"""`xmlcall chat --resume`: a conversation is gone on with, also one whose program was killed."""

from ..records.in_flight import InFlight, in_flight
from ..types.calls import Message
from .plain import visible
from .session import Session

__all__ = ["taken_up"]


async def taken_up(session: Session, start: list[Message]) -> list[Message]:
    """Return the messages that a chat begins with, and tell the person what is known of a turn that was cut off.

    Args:
        session: open; its keeper has the conversation.
        start: what a new conversation begins with.
    """
    keeper, display = session.keeper, session.display
    if keeper.store is None or not keeper.is_resumed:
        return list(start)
    messages, cut = keeper.store.messages(keeper.id), in_flight(keeper.store.events(keeper.id))
    found = keeper.store.find(keeper.id)
    display.notice(display.say("resumed", id=found.id, count=found.messages, title=visible(found.title)))
    step = cut or InFlight()
    closed = await session.loop.closed(messages, step.reply, step.calls, step.ended)
    for target in step.unknown:
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and len(closed) > len(messages) + (cut.reply is not None and not cut.calls):
        display.notice(display.say("cut_off"))
    if closed != messages or cut:
        keeper.keep(closed, "recovered", unknown=list(step.unknown))
    return closed
