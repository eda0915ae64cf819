"""The parser's events, in stream order: a closed union of frozen values.

The spans of the events tile the reply: every character is text, reasoning, an argument's text or markup. The exceptions are
`Repaired` and `CallInReasoning`, which comment on a place that other events cover.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .calls import InvalidCall, RawCall, Span, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """Visible text, as written."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """Text between reasoning tags. Calls in it do not count."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """Characters that are neither text nor value: tags, the white space between them, dropped pieces.

    Args:
        kind: `block_open`, `block_close`, `parameter_open`, `parameter_close`, `list_close`, `cdata`, `newline`, `space`,
            `reasoning`, `fence`, `stray`, `dropped`, `mark`, `result` (the mark that begins a result).
        span: where.
    """

    kind: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStart:
    """A call has begun and its name is certain; the span is its opening tag, `dialect` the wire format it is written in."""

    index: int
    name: str
    span: Span
    dialect: str = "function_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentDelta:
    """Raw text of one parameter, not typed yet; `is_json` and `is_string` are set if an attribute marks it as such."""

    index: int
    parameter: str
    text: str
    span: Span
    is_json: bool = False
    is_string: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnd:
    """A call has ended; the span is its closing tag, empty if it had none. `call` is the bound call; None if not bound yet."""

    raw: RawCall
    span: Span
    call: ToolCall | InvalidCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A tolerance was used: a code of `errors.REPAIRS`."""

    code: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInReasoning:
    """The model called an offered tool only in its reasoning, where no call counts; without this event it would get lost.

    Args:
        name: the tool's name, as written.
        span: the end of the reply; the call itself is in the reasoning.
    """

    name: str
    span: Span


Event = TextDelta | ReasoningDelta | Markup | ToolCallStart | ToolArgumentDelta | ToolCallEnd | Repaired | CallInReasoning
"""What a parser reports of a reply, in the order of its text."""


def coalesce(events: Iterable[Event]) -> list[Event]:
    """Join neighbours that differ only in how the stream was cut.

    Args:
        events: of one reply, in order.

    Returns:
        The same events, with runs of text, of one argument's text and of one kind of markup joined.
    """
    joined: list[Event] = []
    for event in events:
        merged = _join(joined[-1], event) if joined else None
        if merged is None:
            joined.append(event)
        else:
            joined[-1] = merged
    return joined


def _join(left: Event, right: Event) -> Event | None:
    if left.span[1] != right.span[0]:
        return None
    span = (left.span[0], right.span[1])
    match left, right:
        case TextDelta(text=head), TextDelta(text=tail):
            return TextDelta(text=head + tail, span=span)
        case ReasoningDelta(text=head), ReasoningDelta(text=tail):
            return ReasoningDelta(text=head + tail, span=span)
        case ToolArgumentDelta(text=head), ToolArgumentDelta(text=tail) if _same_argument(left, right):
            return replace(left, text=head + tail, span=span)
        case Markup(kind=head), Markup(kind=tail) if head == tail:
            return Markup(kind=head, span=span)
    return None


def _same_argument(left: ToolArgumentDelta, right: ToolArgumentDelta) -> bool:
    return (left.index, left.parameter) == (right.index, right.parameter)
