"""The conversation of a chat, question by question.

It can always be sent to a model: two user messages never follow each other, and every call has a result. The part of a stopped
turn that arrived is kept, because the user has seen it and a tool may have run; a note in place of the model's answer ends it. A
turn in which nothing arrived counts as not asked.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from ..types.calls import Message

__all__ = ["Conversation", "checked_text"]


class Conversation:
    """The messages, and where each question begins.

    Args:
        note: Replaces the model's answer if a turn ended without one.

    Attributes:
        messages: All messages, in order.
        question: The last question, whatever its outcome; "" before the first.
    """

    def __init__(self, start: Sequence[Message], note: str) -> None:
        self.messages = list(start)
        self.question = ""
        self._start, self._note = tuple(start), note
        self._begun: list[tuple[str, int]] = []  # each kept question, and its index
        self._is_kept = False  # whether the last question was kept

    def go_on(self, messages: Sequence[Message]) -> None:
        """Continue earlier messages. They are fixed: none of their questions can be dropped."""
        self.messages = list(messages)

    def as_said(self) -> list[Message]:
        """Return the messages with the user's own words only, without the reminder of the tools after them."""
        said = list(self.messages)
        for question, at in self._begun:
            said[at] = replace(said[at], content=question)
        return said

    def ask(self, question: str) -> list[Message]:
        """Record a question; return the messages to send."""
        self.question, self._is_kept = question, False
        return [*self.messages, Message(role="user", content=question)]

    def end(self, messages: Sequence[Message]) -> bool:
        """End the turn of the last question with the messages of its run; return whether the question is kept."""
        at = len(self.messages)
        if len(messages) <= at + 1:
            return False
        self.messages = [*messages]
        if messages[-1].role != "assistant":
            self.messages.append(Message(role="assistant", content=self._note))
        self._begun.append((self.question, at))
        self._is_kept = True
        return True

    def drop_last(self) -> str:
        """Drop the last question and everything after it; return it, or "" if there is none."""
        if not self._begun:
            return ""
        question, at = self._begun.pop()
        del self.messages[at:]
        self.question, self._is_kept = (self._begun[-1][0], True) if self._begun else ("", False)
        return question

    def take_back(self) -> str:
        """Undo the last question, so that it or another can be asked in its place; return it."""
        question = self.question
        if self._is_kept:
            self.drop_last()
            self.question = question
        return question

    def clear(self) -> None:
        """Start a new conversation."""
        self.messages, self.question = list(self._start), ""
        self._begun, self._is_kept = [], False


def checked_text(text: str, what: str) -> str:
    """Check that a text can be sent to a model, and return it."""
    if not text.strip():
        raise UsageError(f"expected {what}, got an empty text")
    if any("\ud800" <= char <= "\udfff" for char in text):  # how Python marks bytes of an argument that are not UTF-8
        raise UsageError(f"expected {what} in UTF-8, got bytes that are not")
    return text
