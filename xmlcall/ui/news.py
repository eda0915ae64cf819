"""What a chat tells the pages that are open: questions, answers, servers, notices.

Each page has a queue of its own; one that reads so slowly that it is full is left to connect anew, and is then told again what is
open. So nothing that waits for a person depends on a page that was there when it began.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

__all__ = ["News"]

_MOST: Final = 1000  # events that a page may be behind
_NOTICES: Final = 20  # that a new page is told

Told = tuple[str, Any]


class News:
    """Tells the pages that are open.

    Attributes:
        opening: gives what a page is told first.
    """

    def __init__(self) -> None:
        self.opening: Callable[[], Sequence[Told]] = tuple
        self._pages: set[asyncio.Queue[Told | None]] = set()
        self._notices: list[str] = []
        self._last_left = time.monotonic()
        self._is_closed = False

    @property
    def seconds_alone(self) -> float:
        """For how long no page has been open; 0 while one is."""
        return 0.0 if self._pages else time.monotonic() - self._last_left

    def tell(self, name: str, data: Any) -> None:
        """Tell all pages."""
        for page in tuple(self._pages):
            if page.qsize() >= _MOST:
                self._leave(page)
                page.get_nowait()
                page.put_nowait(None)
            else:
                page.put_nowait((name, data))

    def notice(self, text: str) -> None:
        """Tell all pages a line, also some that come later."""
        self._notices = [*self._notices[1 - _NOTICES :], text]
        self.tell("notice", {"text": text})

    async def watch(self) -> AsyncGenerator[Told]:
        """Be a page, from the first `anext` on."""
        if self._is_closed:
            return
        page: asyncio.Queue[Told | None] = asyncio.Queue()
        self._pages.add(page)
        try:
            for told in (*self.opening(), *(("notice", {"text": text}) for text in self._notices)):
                yield told
            while (next_told := await page.get()) is not None:
                yield next_told
        finally:
            self._leave(page)

    def close(self) -> None:
        """End what pages watch."""
        self._is_closed = True
        for page in tuple(self._pages):
            page.put_nowait(None)

    def _leave(self, page: asyncio.Queue[Told | None]) -> None:
        if page in self._pages:
            self._pages.discard(page)
            self._last_left = time.monotonic()
