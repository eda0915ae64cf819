"""`xmlcall chat --resume`: a conversation is gone on with, also one whose program was killed."""

from ..turns.resuming import recovered
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
    found = keeper.store.find(keeper.id)
    display.notice(display.say("resumed", id=found.id, count=found.messages, title=visible(found.title)))
    messages, cut = await recovered(keeper, keeper.store, session.loop)
    for target in cut.unknown if cut else ():
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and (cut.reply is None or cut.calls):
        display.notice(display.say("cut_off"))
    return messages
