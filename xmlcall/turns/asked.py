"""What a person asks, before a model is asked: kept with the tools on offer, and put where another question stood."""

from collections.abc import Sequence
from typing import Any

from ..agent.loop import ToolLoop
from ..dialects.replies import says
from ..errors import UsageError
from ..records.store import Store
from ..types.calls import Message, Tool
from .keeping import Keeper

__all__ = ["branched", "keep_question"]


async def keep_question(keeper: Keeper, loop: ToolLoop, messages: Sequence[Message]) -> Sequence[Tool]:
    """Keep what a person asks, with the tools that are on offer, before the model is asked."""
    is_xml = loop.mode == "xml"
    offered = tuple((await loop.tool_prompt()).catalog if is_xml else await loop.catalog())
    how: dict[str, Any] = {"mode": loop.mode, "family": loop.format.family, "lang": loop.format.lang}
    how |= {"dialect": loop.format.dialect} if is_xml else {}
    how |= {"reasoning_open": loop.backend.capabilities.reasoning_open}
    keeper.asked(messages, offered, loop.backend.model, how)
    return offered


def branched(store: Store, conversation: str, turn: int) -> str:
    """Begin a conversation as another was before one of its turns.

    Raises:
        UsageError: there is no such turn, or what was said before it is not kept any more.
    """
    return store.branch(conversation, turn, _before(store, conversation, turn))


def _before(store: Store, conversation: str, turn: int) -> list[Message]:
    """Return the messages before a turn: they are still the first of the conversation, unless earlier ones were asked anew."""
    messages = store.messages(conversation)
    asked = [event.body for event in store.events(conversation) if event.kind == "asked"]
    if not 0 < turn <= len(asked):
        raise UsageError(f"conversation {conversation} has no turn {turn}")
    places = _places(asked, messages)
    at, later = places[turn - 1], places[turn:]
    if at is None or at > len(messages) or any(each is not None and each < at for each in later):
        raise UsageError(f"what was said before turn {turn} of conversation {conversation} is not kept any more")
    return messages[:at]


def _places(asked: Sequence[dict[str, Any]], messages: Sequence[Message]) -> list[int | None]:
    """Return where each question stands or stood; older versions did not keep that, so theirs are looked for."""
    places: list[int | None] = []
    for body in asked:
        if not isinstance(at := body.get("at"), int):
            start = 1 + max((each for each in places if each is not None), default=-1)
            found = (place for place in range(start, len(messages)) if says(messages[place], body["text"]))
            at = next(found, None)
        places.append(at)
    return places
