"""The conversation of a chat: what was said, question by question.

It is always one that a model can be sent: two messages of the person never follow each other, and no call is without a result. A
turn that was stopped stays as far as it came, because the person has seen it and a tool may have done its work; a note in the
model's place ends it. A turn in which nothing came counts as not asked.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from ..types.calls import Message

__all__ = ["Conversation", "checked_text"]


class Conversation:
    """Messages, and where each question begins.

    Args:
        note: stands in the model's place where a turn ended without its words.

    Attributes:
        messages: what was said, in order.
        question: that was asked last, whatever came of it; "" before the first.
    """

    def __init__(self, start: Sequence[Message], note: str) -> None:
        self.messages = list(start)
        self.question = ""
        self._start, self._note = tuple(start), note
        self._begun: list[tuple[str, int]] = []  # each question that stayed, and where it stands
        self._is_kept = False  # the last question stayed

    def go_on(self, messages: Sequence[Message]) -> None:
        """Go on with what was said before, which stays as it is: no question of it can be dropped."""
        self.messages = list(messages)

    def as_said(self) -> list[Message]:
        """Return the messages with the person's own words, without the reminder of the tools behind them."""
        said = list(self.messages)
        for question, at in self._begun:
            said[at] = replace(said[at], content=question)
        return said

    def ask(self, question: str) -> list[Message]:
        """Note a question; return what is to be sent."""
        self.question, self._is_kept = question, False
        return [*self.messages, Message(role="user", content=question)]

    def end(self, messages: Sequence[Message]) -> bool:
        """End the turn of the last question; return whether it stays.

        Args:
            messages: of the run, whether it ended in an answer or was stopped.
        """
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
        """Drop the last question with all that followed; return it, "" if there is none."""
        if not self._begun:
            return ""
        question, at = self._begun.pop()
        del self.messages[at:]
        self.question, self._is_kept = (self._begun[-1][0], True) if self._begun else ("", False)
        return question

    def take_back(self) -> str:
        """Make the last question one that was not asked, so that it or another can take its place; return it."""
        question = self.question
        if self._is_kept:
            self.drop_last()
            self.question = question
        return question

    def clear(self) -> None:
        """Begin anew."""
        self.messages, self.question = list(self._start), ""
        self._begun, self._is_kept = [], False


def checked_text(text: str, what: str) -> str:
    """Return a text that can be sent to a model."""
    if not text.strip():
        raise UsageError(f"expected {what}, got an empty text")
    if any("\ud800" <= char <= "\udfff" for char in text):  # how Python marks bytes of an argument that are not UTF-8
        raise UsageError(f"expected {what} in UTF-8, got bytes that are not")
    return text
