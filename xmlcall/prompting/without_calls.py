"""A conversation as a model without tools gets it: of a call only what came of it, with the person's words that led to it.

After calls in its history a small model goes on in their tone: short, and without what the person asked for.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..types.calls import Message
from .result_frame import inert_frame, is_result_message, named_results

__all__ = ["without_calls"]


def without_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Leave out calls, and put their results behind the person's words.

    Args:
        messages: a conversation; results have the role `tool`, or stand in messages of role `user` as after a tool prompt.
    """
    kept: list[Message] = []
    for message in messages:
        asked = next((place for place in reversed(range(len(kept))) if kept[place].role == "user"), None)
        results = _results(message)
        if results is None or asked is None:
            kept.append(message)
            continue
        del kept[asked + 1 :]  # the replies that called
        kept[asked] = replace(kept[asked], content="\n\n".join([kept[asked].content, *results]))
    return tuple(kept)


def _results(message: Message) -> list[str] | None:
    """Return what came of calls, each with the tool's name; None of a message that holds no results."""
    if message.role == "tool":
        return [f"({message.name or 'result'}: {inert_frame(message.content)})"]
    if message.role == "user" and is_result_message(message.content):
        return [f"({name or 'result'}: {text.strip()})" for name, text in named_results(message.content)]
    return None
