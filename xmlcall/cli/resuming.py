"""`xmlcall chat --resume`: a conversation is gone on with, also one whose program was killed.

Of a call that had started it is not known whether it ran, unless its server runs it as a task: then the server is asked. Ctrl-C
while it is waited for ends the program, and the next one asks again.
"""

from typing import Final

from ..prompting.results import result_text
from ..turn.events import CallFinished
from ..turns.resuming import TaskMoment, recovered
from ..types.calls import Message
from .plain import shortened, visible
from .session import Session

__all__ = ["taken_up"]

_WIDTH: Final = 200  # characters of a result that are shown


async def taken_up(session: Session, start: list[Message]) -> list[Message]:
    """Return the messages that a chat begins with, and tell the person what is known of a turn that was cut off."""
    keeper, display = session.keeper, session.display
    if keeper.store is None or not keeper.is_resumed:
        return list(start)
    found = keeper.store.find(keeper.id)
    display.notice(display.say("resumed", id=found.id, count=found.messages, title=visible(found.title)))

    def on_task(moment: TaskMoment, target: str, what: CallFinished | str) -> None:
        told = what if isinstance(what, str) else what.failure or result_text(what.result)
        text = shortened(told, lines=1, width=_WIDTH)
        display.notice(display.say(moment, target=visible(target), why=text, text=text))

    messages, cut = await recovered(keeper, keeper.store, session.loop, on_task)
    for target in cut.unknown if cut else ():
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and (cut.reply is None or cut.calls):
        display.notice(display.say("cut_off"))
    return messages
