"""Where the tool prompt, descriptions of tools and the reminder stand in a conversation.

The tool prompt comes first and is the same in every request; the caller's own system message follows in the same message, because
models expect one. Descriptions that a request brings up stand behind the person's last words. The reminder ends the person's
message, since small models follow what stands last.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..dialects.replies import ends_in, replies_of
from ..types.calls import Message
from ..types.conversation import ToolReply, Written

__all__ = ["joined", "put_around", "with_fitting", "with_note", "with_reminder", "with_system", "without_reminder"]


def put_around(message: Message, *, before: str = "", behind: str = "") -> Message:
    """Put words of ours, with what parts them from it, before or after what a message says."""
    content, replies = before + message.content + behind, tuple(reply.moved(len(before)) for reply in replies_of(message))
    return replace(message, content=content, written=Written(text=content, replies=replies))


def joined(messages: Sequence[Message]) -> Message:
    """Make one message of neighbours of one role; what the first holds, results or a person's words, it is."""
    content, start, replies = "\n\n".join(message.content for message in messages), 0, list[ToolReply]()
    for message in messages if replies_of(messages[0]) else ():
        replies += [reply.moved(start) for reply in replies_of(message)]
        start += len(message.content) + 2
    images = tuple(url for message in messages for url in message.images)
    return replace(messages[0], content=content, images=images, written=Written(text=content, replies=tuple(replies)))


def with_system(system: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a system prompt in front.

    Args:
        system: the tool prompt; without it nothing changes.
        messages: what was said so far; not empty.
    """
    if not system:
        return tuple(messages)
    if messages[0].role == "system":
        return (put_around(messages[0], before=f"{system}\n\n"), *messages[1:])
    return (Message(role="system", content=system), *messages)


def with_fitting(describe: Callable[[str], str], messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with descriptions of tools behind the person's last words; nothing else in it changes.

    Args:
        describe: renders them for the words (`ToolPrompt.fitting`); "" for none.
        messages: what was said so far.
    """
    places = [at for at, message in enumerate(messages) if message.role == "user" and not replies_of(message)]
    at = places[-1] if places else None
    if at is None or not (text := describe(messages[at].content)):
        return tuple(messages)
    return (*messages[:at], put_around(messages[at], behind=f"\n\n{text}"), *messages[at + 1 :])


def with_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a reminder at the end of the person's message, if that comes last.

    Args:
        reminder: a short text; without it, or where it stands already, nothing changes.
        messages: what was said so far; not empty.
    """
    last = messages[-1]
    if not reminder or last.role != "user" or ends_in(last, reminder):
        return tuple(messages)
    return (*messages[:-1], put_around(last, behind=f"\n\n{reminder}"))


def with_note(note: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with words of ours for the next reply alone; after results of a native call they are a message."""
    if note and messages[-1].role == "tool":
        return (*messages, Message(role="user", content=note))
    return with_reminder(note, messages)


def without_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation as it was before `with_reminder`."""
    *before, last = messages
    if not reminder or not ends_in(last, reminder):
        return tuple(messages)
    return (*before, replace(last, content=last.content[: -len(reminder) - 2]))
