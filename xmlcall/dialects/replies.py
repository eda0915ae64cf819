"""Finds the results of calls in a message: from what the message was written from, else from its text.

Messages that xmlcall did not write have only their text: dicts of a caller, rows of an old database, the chat of another program.
This is the only place that searches a text for our own words. It never treats a person's words as a result.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..types.calls import Message, Role, Speaker, ToolReply
from . import result_form_of

_ROLES: Final[Mapping[Speaker, Role]] = {"tool": "tool", "person": "user", "program": "system"}
_REMINDER: Final = re.compile(r"\n\n[(（][^\n]{15,}[)）]\s*\Z")  # its form in each language; a shorter paragraph is a person's


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


def said_by_whom(
    messages: Iterable[Message], called: dict[str, str] | None = None
) -> Iterator[tuple[int, Role, str | None, str]]:
    """Yield what is said in a conversation, without our words around results: the message's index, a role, the tool, the text.

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
            yield place, message.role, None, message.content


def named_results(message: Message) -> list[tuple[str, str]]:
    """Return each tool's result in a message, including errors, with the tool's name if the message states it."""
    ended = (reply for reply in replies_of(message) if reply.is_ended)
    return [(reply.name if reply.is_named else "", reply.text_in(message.content)) for reply in ended]


def told_together(messages: Iterable[Message]) -> Iterator[str]:
    """Yield, for messages with several results, the text from first to last with our words between, which may read as one."""
    for message in messages:
        if len(replies := replies_of(message)) > 1:
            yield message.content[replies[0].start : replies[-1].end]


def ends_in(message: Message, ours: str) -> bool:
    """Say whether a message ends in these words of ours, after a blank line."""
    return message.content.endswith(f"\n\n{ours}")


def before_reminder(text: str) -> str:
    """Return the words of a person without a reminder after them, which earlier messages keep."""
    return _REMINDER.sub("", text)


def says(message: Message, words: str, role: Role = "user") -> bool:
    """Say whether a message begins with somebody's words, which words of ours may follow."""
    return message.role == role and message.content.startswith(words)


def start_in(message: Message, said: Message) -> int:
    """Return the offset of a message's words in the message that was sent; -1 if it does not contain them."""
    if message.role != said.role or not said.content:
        return -1
    return message.content.rfind(said.content) if said.role == "system" else message.content.find(said.content)
