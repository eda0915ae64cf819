"""The rest of a result of which a model was sent only the beginning and the end: it asks for it, piece by piece.

The conversation keeps every result whole, and only what is sent of it is cut (`fit_context`). So nothing is stored here: a handle
is a digest of the result's text, and the text is found in the conversation, also in one that was saved and goes on elsewhere.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from ..dialects.replies import named_results
from ..types.calls import Message
from .tokens import CHARACTERS_A_TOKEN, tokens_of

__all__ = ["LONG", "handle_of", "line_end", "line_start", "piece", "piece_tokens", "result_with", "texts_of"]

LONG: Final = 2000
"""Characters of a result that may be sent in part only, and so be asked for."""

_DIGITS: Final = 6
_NEAR: Final = 4  # a line end counts in the last quarter of what is kept, no more than that is lost to it


def handle_of(text: str) -> str:
    """Return the short name of a result."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def texts_of(messages: Iterable[Message]) -> list[str]:
    """Return the texts of all results in a conversation."""
    return [text for message in messages for _, text in named_results(message)]


def result_with(handle: str, messages: Sequence[Message]) -> str | None:
    """Find a result by its handle, the newest first."""
    texts = (text for text in reversed(texts_of(messages)) if len(text) > _DIGITS)
    return next((text for text in texts if handle_of(text) == handle.strip().lower()), None)


def piece_tokens(context_length: int | None) -> int:
    """Return how long a piece may be, in tokens: an eighth of the context."""
    return 1024 if context_length is None else max(context_length // 8, 128)


def piece(text: str, start: int, tokens: int) -> str:
    """Return as much of a text as is allowed, up to a line end where one is near."""
    found = text[start : start + round(tokens * CHARACTERS_A_TOKEN)]
    while (size := tokens_of(found)) > tokens and len(found) > 1:
        found = found[: max(int(len(found) * tokens / size), 1)]
    whole = start + len(found) == len(text)
    return found if whole else found[: line_end(found, len(found))]


def line_end(text: str, end: int) -> int:
    """Return where to end a beginning of a text: behind the last line end before `end`, if one is near; else there."""
    found = text.rfind("\n", end - end // _NEAR, end)
    return end if found < 0 else found + 1


def line_start(text: str, start: int) -> int:
    """Return where to begin an end of a text: behind the first line end from `start`, if one is near; else there."""
    found = text.find("\n", start, start + (len(text) - start) // _NEAR)
    return start if found < 0 else found + 1
