"""Lists that come in pages: a server may repeat cursors, make up new ones for ever, or list without end."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from ...types.served import Listing

__all__ = ["MAX_PAGES", "Original", "listed", "pages"]

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000

T = TypeVar("T")

Original = Callable[[Mapping[str, Any] | None], dict[str, Any]]
"""Returns an answer as it came, by the `_meta` of what the SDK was given in its place; raises if it is no complete answer."""


class Page(Protocol):
    """What the SDK returns for a page."""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """Carries the original."""


P = TypeVar("P", bound=Page)


async def listed(
    fetch: Callable[..., Awaitable[Page]], original: Original, key: str, read: Callable[[Mapping[str, Any]], T | None]
) -> Listing[T]:
    """List all that a server has of a kind.

    Args:
        fetch: a method of the SDK's `Client` that lists; gives a page, by its `cursor`.
    """
    items: list[T] = []
    notices: list[str] = []
    broken = 0
    async for _, page in pages(fetch, original, notices):
        entries = page.get(key)
        for entry in entries if isinstance(entries, list) else ():
            item = read(entry) if isinstance(entry, Mapping) else None
            if item is None:
                broken += 1
            else:
                items.append(item)
        if len(items) > MAX_ITEMS:
            notices.append(f"Listing stopped: there are more than {MAX_ITEMS:,} {key}.")
            break
    if broken:
        notices.append(f"{broken} of its {key} were left out: they lack what MCP asks for.")
    return Listing(items=tuple(items[:MAX_ITEMS]), notices=tuple(notices))


async def pages(
    fetch: Callable[..., Awaitable[P]], original: Original, notices: list[str]
) -> AsyncIterator[tuple[P, dict[str, Any]]]:
    """Yield the pages of a list: as the SDK read them, and as they came.

    Args:
        notices: gets a sentence if the list was not read to its end.
    """
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        answer = await fetch(cursor=cursor)
        page = original(answer.meta)
        yield answer, page
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):  # "" is a cursor like any other
            return
        if cursor in seen:
            notices.append("Listing stopped: the server repeats a page.")
            return
        seen.add(cursor)
    notices.append(f"Listing stopped after {MAX_PAGES} pages.")
