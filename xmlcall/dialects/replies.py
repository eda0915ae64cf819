"""What came of calls in a message: as it was written, else as its text says.

Messages that were not written here have only their text: dicts of a caller, rows of an old database, the chat of another program.
This is the one place that looks for our own words in a text. What it takes for a result is never a person's words.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..types.calls import Message, Role, ToolReply
from . import result_form_of

__all__ = ["as_message", "ends_in", "named_results", "replies_of", "said_by_whom", "says", "start_in", "told_together"]


def as_message(told: Message | Mapping[str, Any]) -> Message:
    """Return a message, also of a dict with `role` and `content`; what is no text in it is left out."""
    if isinstance(told, Message):
        return told
    content = told.get("content")
    named: dict[str, Any] = {key: value for key in ("name", "tool_call_id") if isinstance(value := told.get(key), str) and value}
    return Message(role=told.get("role", "user"), content=content if isinstance(content, str) else "", **named)


def replies_of(message: Message) -> tuple[ToolReply, ...]:
    """Return what came of calls in a message; a person's words have nothing of that."""
    content, written = message.content, message.written
    if message.role == "tool":
        return (ToolReply(name=message.name or "", start=0, end=len(content)),)
    if message.role != "user":
        return ()
    if written is not None and written.text == content:
        return written.replies
    form = result_form_of(content)
    if form is None:
        return ()
    return tuple(form.places(content)) or (ToolReply(name="", start=0, end=len(content), is_ended=False),)


def said_by_whom(
    messages: Iterable[Message], called: dict[str, str] | None = None
) -> Iterator[tuple[int, Role, str | None, str]]:
    """Yield what is said in a conversation, without our words around results: place and role of the message, tool, text.

    Args:
        messages: from its beginning. The tool is None for what is no result, and "" where it is not known.
        called: ids of earlier calls and the names of their tools, to which those in these messages are added.
    """
    called = {} if called is None else called
    for place, message in enumerate(messages):
        called.update({call.id: call.name for call in message.tool_calls})
        replies = replies_of(message)
        for reply in replies:
            tool = reply.name or called.get(message.tool_call_id or "", "")
            yield place, message.role, tool, reply.text_in(message.content)
        if not replies:
            yield place, message.role, None, message.content


def named_results(message: Message) -> list[tuple[str, str]]:
    """Return what each tool told in a message, errors too, with its name if the message says it."""
    ended = (reply for reply in replies_of(message) if reply.is_ended)
    return [(reply.name if reply.is_named else "", reply.text_in(message.content)) for reply in ended]


def told_together(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the results of messages that hold several, with our words between them: they may be read as one text."""
    for message in messages:
        if len(replies := replies_of(message)) > 1:
            yield message.content[replies[0].start : replies[-1].end]


def ends_in(message: Message, ours: str) -> bool:
    """Say whether words of ours stand at the end of a message, behind a blank line."""
    return message.content.endswith(f"\n\n{ours}")


def says(message: Message, words: str, role: Role = "user") -> bool:
    """Say whether a message has somebody's words, behind which words of ours may stand."""
    return message.role == role and message.content.startswith(words)


def start_in(message: Message, said: Message) -> int:
    """Return where words stand in the message in which they were sent; -1 if they do not."""
    if message.role != said.role or not said.content:
        return -1
    return message.content.rfind(said.content) if said.role == "system" else message.content.find(said.content)
