"""A kept conversation as Markdown: what was asked, what the model wrote, and what came of each call.

Texts by models, tools and servers stand in fences that are longer than any run of backticks in them, so that they end where they
end.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..records.store import Conversation, KeptEvent
from .jsonform import json_text
from .plain import plain, shortened, visible

__all__ = ["UNKNOWN", "call_outcomes", "markdown"]

UNKNOWN: Final = "unknown"
"""The outcome of a call that had started and has no end: it may have run or not."""

_NOT_STARTED: Final = "not started"
_WIDTH: Final = 1000  # characters of a line, where not all is shown


def markdown(found: Conversation, events: Sequence[KeptEvent], *, lines: int | None = None) -> str:
    """Write a conversation as Markdown.

    Args:
        found: the conversation.
        events: of it, in order.
        lines: the most that are shown of arguments and results; None for all.
    """
    outcomes = call_outcomes(events)
    parts = [f"# {_inline(found.title)}", f"{found.id}, begun {found.begun}, {_inline(found.model)}"]
    parts += [part for event in events for part in _parts(event, outcomes, lines)]
    return "\n\n".join(parts) + "\n"


def call_outcomes(events: Iterable[KeptEvent]) -> dict[str, dict[str, Any]]:
    """Return what came of each call, by its id: `outcome`, `text`, and of one that started `server`, `tool` and `by`.

    Args:
        events: of a conversation, in order.
    """
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind == "started":
            named = {name: event.body[name] for name in ("server", "tool", "arguments", "by")}
            found[event.body["id"]] = {**named, "outcome": UNKNOWN, "text": ""}
        elif event.kind == "ended":
            found.setdefault(event.body["id"], {}).update(event.body)
    return found


def _parts(event: KeptEvent, outcomes: Mapping[str, Mapping[str, Any]], lines: int | None) -> Iterator[str]:
    body = event.body
    if event.kind == "asked":
        yield f"## The person, {event.time}"
        yield plain(body["text"]).strip()
    elif event.kind == "reply":
        if body["message"] is None:
            yield "### The model (not kept: it was asked again)"
        else:
            yield "### The model"
        if text := plain(body["text"]).strip():
            yield text
        for call in body["calls"]:
            yield from _call(call, outcomes.get(call["id"], {"outcome": _NOT_STARTED, "text": ""}), lines)
    elif event.kind == "answer" and body["stop_reason"] != "end":
        yield f"The turn ended without an answer: {_inline(body['stop_reason'])}."
    elif event.kind == "recovered":
        yield "The program had ended in the middle of a turn; the conversation was gone on with here."


def _call(call: Mapping[str, Any], outcome: Mapping[str, Any], lines: int | None) -> Iterator[str]:
    target = f"{outcome['server']}.{outcome['tool']}" if "server" in outcome else call["name"]
    by = f" ({_inline(outcome['by'])})" if outcome.get("by") and "server" in outcome else ""
    told = "unknown whether it ran" if outcome["outcome"] == UNKNOWN else outcome["outcome"]
    yield f"Call of `{_inline(target)}`: {told}{by}"
    if "arguments" in call:
        yield _fenced(json_text(outcome.get("arguments", call["arguments"])), lines, "json")
    else:
        yield _fenced(call["raw"]["text"], lines)
    if outcome["text"]:
        yield _fenced(outcome["text"], lines)


def _inline(text: str) -> str:
    return visible(text).replace("`", "'")


def _fenced(text: str, lines: int | None, language: str = "") -> str:
    text = plain(text).strip("\n") if lines is None else shortened(text, lines=lines, width=_WIDTH)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
