"""A conversation as a model without tools gets it: of a call only what came of it, with the person's words that led to it.

After calls in its history a small model goes on in their tone: short, and without what the person asked for.
"""

from collections.abc import Sequence

from ..dialects.inert import inert_frame
from ..dialects.replies import named_results, replies_of
from ..types.calls import Message
from .placement import put_around

__all__ = ["without_calls"]


def without_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Leave out calls, and put their results behind the person's words.

    Args:
        messages: a conversation; results have the role `tool`, or stand in messages of role `user` as after a tool prompt.
    """
    kept: list[Message] = []
    for message in messages:
        asked = next((place for place in reversed(range(len(kept))) if kept[place].role == "user"), None)
        if not replies_of(message) or asked is None:
            kept.append(message)
            continue
        del kept[asked + 1 :]  # the replies that called
        results = [f"\n\n({name or 'result'}: {inert_frame(text.strip())})" for name, text in named_results(message)]
        kept[asked] = put_around(kept[asked], behind="".join(results))
    return tuple(kept)
