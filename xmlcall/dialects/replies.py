"""Finds the results of calls in a message: from what the message was written from, else from its text.

Messages that xmlcall did not write have only their text: dicts of a caller, rows of an old database, the chat of another program.
This is the only place that searches a text for our own words. It never treats a person's words as a result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..types.calls import Message, Role, Speaker, ToolCall, ToolReply, WrittenCall
from . import result_form_of

_ROLES: Final[Mapping[Speaker, Role]] = {"tool": "tool", "person": "user", "program": "system"}


def as_message(message: Message | Mapping[str, Any]) -> Message:
    """Return a message, converting a dict with `role` and `content`; fields that are not text are dropped."""
    if isinstance(message, Message):
        return message
    content = message.get("content")
    named: dict[str, Any] = {
        key: value for key in ("name", "tool_call_id") if isinstance(value := message.get(key), str) and value
    }
    return Message(role=message.get("role", "user"), content=content if isinstance(content, str) else "", **named)


def replies_of(message: Message) -> tuple[ToolReply, ...]:
    """Return the results of calls in a message; none if it has a person's words."""
    content, written = message.content, message.written
    if message.role not in ("tool", "user"):
        return ()
    if written is not None and written.text == content:
        return written.replies
    if message.role == "tool":
        return (ToolReply(name=message.name or "", start=0, end=len(content)),)
    form = result_form_of(content)
    if form is None:
        return ()
    return tuple(form.places(content)) or (ToolReply(name="", start=0, end=len(content), is_ended=False),)


def calls_of(message: Message) -> Sequence[ToolCall | WrittenCall]:
    """Return the calls in a message, in a separate field or written in its text."""
    return message.tool_calls or (message.written.calls if message.written else ())


def said_in(message: Message) -> str:
    """Return a message's words without ours after them, such as a reminder, which earlier messages keep."""
    written = message.written
    return message.content[: written.said_to] if written is not None and written.text == message.content else message.content


def said_by_whom(
    messages: Iterable[Message], called: dict[str, str] | None = None
) -> Iterator[tuple[int, Role, str | None, str]]:
    """Yield what is said in a conversation, without our words around it: the message's index, a role, the tool, the text.

    The tool is None for text that answers no call, and "" if unknown. An answer has the role of who wrote it: `tool`, or if the
    call did not run, `user` or `system`, of whom the reason is. `called` has the tools of earlier calls by their ids; the calls
    in these messages are added to it.
    """
    called = {} if called is None else called
    for place, message in enumerate(messages):
        called.update({call.id: call.name for call in message.tool_calls})
        replies = replies_of(message)
        for reply in replies:
            tool = reply.name or called.get(message.tool_call_id or "", "")
            yield place, _ROLES[reply.by], tool, reply.text_in(message.content)
        if not replies:
            yield place, message.role, None, said_in(message)


def named_results(message: Message, by: Speaker | None = None) -> list[tuple[str, str]]:
    """Return each result in a message, also errors, with the tool's name if it is stated; with `by`, only what this one wrote."""
    ended = (reply for reply in replies_of(message) if reply.is_ended and by in (None, reply.by))
    return [(reply.name if reply.is_named else "", reply.text_in(message.content)) for reply in ended]


def told_together(messages: Iterable[Message]) -> Iterator[str]:
    """Yield texts with words of ours in them, which may read as one: from a message's first result to its last, or a reminder."""
    for message in messages:
        if len(replies := replies_of(message)) > 1:
            yield message.content[replies[0].start : replies[-1].end]
        elif not replies and said_in(message) != message.content:
            yield message.content


def ends_in(message: Message, ours: str) -> bool:
    """Say whether a message ends in these words of ours, after a blank line."""
    return message.content.endswith(f"\n\n{ours}")


def says(message: Message, words: str, role: Role = "user") -> bool:
    """Say whether a message begins with somebody's words, which words of ours may follow."""
    return message.role == role and message.content.startswith(words)


def start_in(message: Message, said: Message) -> int:
    """Return the offset of a message's words in the message that was sent; -1 if it does not contain them."""
    if message.role != said.role or not said.content:
        return -1
    return message.content.rfind(said.content) if said.role == "system" else message.content.find(said.content)
