"""A conversation is gone on with, also one whose program was killed."""

from ..agent.loop import ToolLoop
from ..records.in_flight import InFlight, in_flight
from ..records.store import Store
from ..types.calls import Message
from .keeping import Keeper

__all__ = ["recovered"]


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
