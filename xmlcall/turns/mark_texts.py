"""Repairs, conversions and mistakes of a call, each with what it means in words.

A code of `errors.REPAIRS` or `errors.ISSUES` becomes a `MarkRecord` with its sentence and its place. A conversion of binding has
the path of a value: it made that value, and every value inside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..errors import ISSUES, REPAIRS
from ..types.calls import InvalidCall, Issue, RawCall, Repair, Span, ToolCall
from ..types.events import CallInReasoning
from .model import MarkRecord

__all__ = ["LOST_CALL", "codes_of_value", "is_in", "issues_of", "lost_call", "repairs_of", "whys"]

LOST_CALL: Final = "call-in-reasoning"
"""Code of the mark for a call that nobody hears."""

_LOST: Final = "A call stands in reasoning that never ended, so it is none."


def whys() -> dict[str, dict[str, str]]:
    """Return all codes with what they mean: `repairs` and `issues`."""
    return {"repairs": {**REPAIRS, LOST_CALL: _LOST}, "issues": dict(ISSUES)}


def repairs_of(repairs: Iterable[Repair]) -> tuple[MarkRecord, ...]:
    """Say what tolerances and conversions mean."""
    return tuple(
        MarkRecord(code=each.code, why=REPAIRS.get(each.code, ""), start=each.span[0], end=each.span[1], path=each.path)
        for each in repairs
    )


def lost_call(event: CallInReasoning) -> MarkRecord:
    """Say that a call stands where it is none."""
    return MarkRecord(code=LOST_CALL, why=_LOST, start=event.span[0], end=event.span[1], got=event.name)


def issues_of(call: ToolCall | InvalidCall, place: Span | None) -> tuple[MarkRecord, ...]:
    """Say what is wrong with a call."""
    if isinstance(call, ToolCall):
        return ()
    spans = {f"$.{each.name}": each.span for each in call.raw.arguments} if place is not None else {}
    return tuple(_issue(issue, _place(issue.path, spans) or place) for issue in call.issues)


def _issue(issue: Issue, place: Span | None) -> MarkRecord:
    start, end = place or (None, None)
    return MarkRecord(
        code=issue.code,
        why=issue.message or ISSUES.get(issue.code, ""),
        start=start,
        end=end,
        path=issue.path,
        expected=issue.expected,
        got=issue.got,
        readings=tuple(issue.readings),
    )


def _place(path: str, spans: Mapping[str, Span]) -> Span | None:
    """Return where the parameter stands that a path is in."""
    return next((span for parameter, span in spans.items() if span[0] < span[1] and is_in(path, parameter)), None)


def is_in(path: str, outer: str) -> bool:
    """Say whether a JSON path is another, or inside what that names."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def codes_of_value(path: str, parameter: str, repairs: Sequence[Repair], raw: RawCall) -> tuple[str, ...]:
    """Return the codes of the conversions that made a value."""
    own = repairs[len(raw.repairs) :]
    made = [each.code for each in own if each.path and (each.path == f"$.{parameter}" or is_in(path, each.path))]
    return tuple(dict.fromkeys(made))
