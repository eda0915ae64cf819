"""What each piece of a reply was read as: the parser's events, each beside the text that it is about.

The spans of the events tile the reply, so the pieces put together are the reply. A repair is a remark on a place; it stands where
it was noticed, without text of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..types.calls import Span
from ..types.events import (
    CallInReasoning,
    Event,
    Markup,
    ReasoningDelta,
    Repaired,
    TextDelta,
    ToolArgumentDelta,
    ToolCallEnd,
    ToolCallStart,
)

__all__ = ["Piece", "explained", "lines"]

_LONGEST: Final = 60  # characters of a piece in a line; a longer one is shown by its two ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a reply.

    Args:
        kind: `text`, `reasoning`, `markup`, `call`, `value`, `end of call`, `repair` or `lost call`.
        about: what is known of it: the kind of markup, the tool, the parameter, the code.
    """

    kind: str
    about: str
    text: str
    span: Span


_KINDS: Final[dict[type[Any], tuple[str, Callable[[Any], str]]]] = {
    TextDelta: ("text", lambda event: ""),
    ReasoningDelta: ("reasoning", lambda event: ""),
    Markup: ("markup", lambda event: event.kind),
    ToolCallStart: ("call", lambda event: f"{event.name}, {event.dialect}"),
    ToolArgumentDelta: ("value", lambda event: event.parameter or "all arguments"),
    ToolCallEnd: ("end of call", lambda event: _end(event)),
    Repaired: ("repair", lambda event: event.code),
    CallInReasoning: ("lost call", lambda event: f"{event.name}: the reasoning has no end"),
}
_REMARKS: Final = (Repaired, CallInReasoning)


def explained(text: str, events: Iterable[Event]) -> Iterator[Piece]:
    """Name each piece of a reply."""
    for event in events:
        kind, about = _KINDS[type(event)]
        piece = "" if isinstance(event, _REMARKS) else text[slice(*event.span)]
        yield Piece(kind=kind, about=about(event), text=piece, span=event.span)


def _end(event: ToolCallEnd) -> str:
    codes = [issue.code for issue in event.raw.issues]
    return ", ".join([event.raw.name, *codes] if codes else [event.raw.name])


def lines(pieces: Iterable[Piece]) -> Iterator[str]:
    """Write a line for each piece."""
    for piece in pieces:
        start, end = piece.span
        shown = _shown(piece.text) if piece.text else ""
        yield f"{start:>6} {end:>6}  {piece.kind:<11}  {piece.about:<28}  {shown}".rstrip()


def _shown(text: str) -> str:
    """Write a text in one line, with what cannot be seen escaped."""
    half = _LONGEST // 2
    short = text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
    return ascii(short) if not short.isprintable() and not short.isascii() else repr(short)
