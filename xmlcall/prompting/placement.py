"""Where the tool prompt, descriptions of tools and the reminder stand in a conversation.

The tool prompt comes first and is the same in every request; the caller's own system message follows in the same message, because
models expect one. Descriptions that a request brings up stand behind the person's last words. The reminder ends the person's
message, since small models follow what stands last.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..types.calls import Message
from .result_frame import is_result_message

__all__ = ["with_fitting", "with_note", "with_reminder", "with_system", "without_reminder"]


def with_system(system: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a system prompt in front.

    Args:
        system: the tool prompt; without it nothing changes.
        messages: what was said so far; not empty.
    """
    if not system:
        return tuple(messages)
    if messages[0].role == "system":
        return (replace(messages[0], content=f"{system}\n\n{messages[0].content}"), *messages[1:])
    return (Message(role="system", content=system), *messages)


def with_fitting(describe: Callable[[str], str], messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with descriptions of tools behind the person's last words; nothing else in it changes.

    Args:
        describe: renders them for the words (`ToolPrompt.fitting`); "" for none.
        messages: what was said so far.
    """
    places = [at for at, message in enumerate(messages) if message.role == "user" and not is_result_message(message.content)]
    at = places[-1] if places else None
    if at is None or not (text := describe(messages[at].content)):
        return tuple(messages)
    return (*messages[:at], replace(messages[at], content=f"{messages[at].content}\n\n{text}"), *messages[at + 1 :])


def with_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a reminder at the end of the person's message, if that comes last.

    Args:
        reminder: a short text; without it, or where it stands already, nothing changes.
        messages: what was said so far; not empty.
    """
    last = messages[-1]
    if not reminder or last.role != "user" or last.content.endswith(reminder):
        return tuple(messages)
    return (*messages[:-1], replace(last, content=f"{last.content}\n\n{reminder}"))


def with_note(note: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with words of ours for the next reply alone; after results of a native call they are a message.

    Args:
        note: the words; without them nothing changes.
        messages: what was said so far; not empty.
    """
    if note and messages[-1].role == "tool":
        return (*messages, Message(role="user", content=note))
    return with_reminder(note, messages)


def without_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation as it was before `with_reminder`.

    Args:
        reminder: the text.
        messages: what was said so far; not empty.
    """
    *before, last = messages
    return (*before, replace(last, content=last.content.removesuffix(f"\n\n{reminder}") if reminder else last.content))
