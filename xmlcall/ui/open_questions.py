"""Questions to the person that are open, until a page answers one of them, or nobody does.

A question belongs to the program, not to a page: it is told to each page that comes, the first answer counts, and a second one is
told that it came too late. A question is open as long as a page is; once none has been open for `patience`, it ends as `late`.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..proxy.formats.contract import ApiError
from .news import News

__all__ = ["PATIENCE", "Given", "Misfit", "OpenQuestions"]

PATIENCE: Final = 600.0
"""Seconds without a page after which nobody answers any more."""

_REMEMBERED: Final = 1000  # questions that were answered
_SHORTEST: Final = 0.05  # seconds between two looks

Given = Mapping[str, Any]
"""What a page sends as an answer."""


class Misfit(Exception):
    """An answer that does not fit its question."""

    def __init__(self, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(slots=True, kw_only=True)
class _Open:
    event: str
    body: dict[str, Any]
    read: Callable[[Given], Any]
    answer: asyncio.Future[Any]


class OpenQuestions:
    """The questions that are open."""

    def __init__(self, news: News, patience: float = PATIENCE) -> None:
        self._news, self._patience = news, patience
        self._open: dict[str, _Open] = {}
        self._over: OrderedDict[str, None] = OrderedDict()

    async def ask(self, event: str, body: Mapping[str, Any], read: Callable[[Given], Any], late: Any) -> Any:
        """Ask, and wait."""
        id = f"q_{secrets.token_hex(8)}"
        loop = asyncio.get_running_loop()
        asked = loop.time()
        question = _Open(event=event, body={"id": id, **body}, read=read, answer=loop.create_future())
        self._open[id] = question
        self._news.tell(event, question.body)
        try:
            while not question.answer.done():
                left = self._patience - min(self._news.seconds_alone, loop.time() - asked)
                if left <= 0:
                    self._end(id, "late")
                    return late
                await asyncio.wait({question.answer}, timeout=max(left, _SHORTEST))
            return question.answer.result()
        finally:
            self._end(id, "gone")

    def answer(self, id: str, given: Given) -> None:
        """Take an answer."""
        if id in self._over:
            raise ApiError("this question has its answer", status=409)
        if (question := self._open.get(id)) is None:
            raise ApiError("there is no such question any more", status=404)
        question.answer.set_result(question.read(given))
        self._end(id, str(given.get("answer")))

    def open(self, conversation: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return the questions that are open, each with the name of its event."""
        found = [(each.event, each.body) for each in self._open.values()]
        return [each for each in found if conversation is None or each[1]["turn"].rpartition(".")[0] == conversation]

    def _end(self, id: str, answer: str) -> None:
        """Take a question away, once."""
        if self._open.pop(id, None) is None:
            return
        self._over[id] = None
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        self._news.tell("answered", {"id": id, "answer": answer})
