"""A kept conversation as Markdown: what was asked, what the model wrote, how its calls were read, and what came of each.

It is written from the records of the turns (`turns.model`), as the page and the JSON are. Texts by models, tools and servers
stand in fences that are longer than any run of backticks in them, so that they end where they end.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..records.store import ConversationSummary
from ..turns.model import CallRecord, MarkRecord, ReplyRecord, SourceRecord, TurnRecord, ValueRecord
from .jsonform import json_text
from .plain import plain, shortened, visible

__all__ = ["markdown"]

_WIDTH: Final = 1000  # characters of a line, where not all is shown
_OUTCOMES: Final = {
    "unknown": "unknown whether it ran",
    "held": "not run, it has to wait for results",
    "failed": "its server failed",
    "writing": "not written to its end",
}
_SOURCES: Final = {
    "person": "said by the person",
    "system": "in the instructions of the program",
    "schema": "in the tool's own description",
    "assistant": "said by the model before",
    "invented": "said by nobody; the model made it up or worked it out",
}


def markdown(found: ConversationSummary, turns: Sequence[TurnRecord], *, lines: int | None = None) -> str:
    """Write a conversation as Markdown.

    Args:
        lines: the most that are shown of arguments and results; None for all.
    """
    parts = [f"# {_inline(found.title)}", f"{found.id}, begun {found.begun}, {_inline(found.model)}"]
    parts += [part for turn in turns for part in _turn(turn, lines)]
    return "\n\n".join(parts) + "\n"


def _turn(turn: TurnRecord, lines: int | None) -> Iterator[str]:
    yield f"## The person, {turn.began}"
    yield plain(turn.question).strip()
    for reply in turn.replies:
        yield from _reply(reply, lines)
    if turn.outcome == "left":
        yield "The turn has no answer: it was stopped, or the program ended in the middle of it."
    elif turn.outcome not in ("", "end"):
        yield f"The turn ended without an answer: {_inline(turn.outcome)}."


def _reply(reply: ReplyRecord, lines: int | None) -> Iterator[str]:
    why = f": {_inline(reply.refusal)}" if reply.refusal else ""
    yield "### The model" if reply.is_kept else f"### The model (not kept: it was asked again{why})"
    if text := plain(_shown(reply)).strip():
        yield text
    in_calls = {mark.code for call in reply.calls for mark in call.repairs}
    if repairs := [mark for mark in reply.repairs if mark.code not in in_calls]:
        yield "\n".join(_repairs(repairs))
    for call in reply.calls:
        yield from _call(call, lines)


def _shown(reply: ReplyRecord) -> str:
    """Return what a person is shown of a reply."""
    return "".join(reply.raw[span.start : span.end] for span in reply.spans if span.kind == "text")


def _call(call: CallRecord, lines: int | None) -> Iterator[str]:
    target = f"{call.server}.{call.tool}" if call.server else call.name
    by = f" ({_inline(call.by)})" if call.by else ""
    took = f", {call.seconds:.2f} s" if call.seconds is not None else ""
    yield f"Call of `{_inline(target)}`: {_OUTCOMES.get(call.outcome, call.outcome)}{by}{took}"
    if call.arguments is None:
        yield _fenced(call.text, lines)
    else:
        yield _fenced(json_text(call.arguments), lines, "json")
    if call.ran_with is not None:
        yield "It ran with other arguments, as a person changed them:"
        yield _fenced(json_text(call.ran_with), lines, "json")
    if notes := [*_repairs(call.repairs), *_issues(call.issues), *_sources(call.values, lines)]:
        yield "\n".join(notes)
    for text in (call.result, call.reason, call.failure):
        if text:
            yield _fenced(text, lines)


def _repairs(repairs: Sequence[MarkRecord]) -> Iterator[str]:
    """Yield each kind of repair once, with the values that it made."""
    for code, why in {mark.code: mark.why for mark in repairs}.items():
        paths = dict.fromkeys(mark.path for mark in repairs if mark.code == code and mark.path)
        at = f" of `{_inline(', '.join(paths))}`" if paths else ""
        yield f"- Repair `{_inline(code)}`{at}: {_inline(why)}"


def _issues(issues: Sequence[MarkRecord]) -> Iterator[str]:
    for mark in issues:
        at = f" at `{_inline(mark.path)}`" if mark.path not in ("", "$") else ""
        yield f"- Mistake `{_inline(mark.code)}`{at}: {_inline(mark.why)}"


def _sources(values: Sequence[ValueRecord], lines: int | None) -> Iterator[str]:
    told = [(value.path, value.source) for value in values if value.source and value.source.kind != "trivial"]
    for path, source in told[:lines]:
        yield f"- `{_inline(path)}`: {_source(source)}"
    if lines is not None and len(told) > lines:
        yield f"- ... and {len(told) - lines} more values"


def _source(source: SourceRecord) -> str:
    if source.kind != "result":
        return _SOURCES.get(source.kind, _inline(source.kind))
    of = f" of `{_inline(source.tool)}`" if source.tool else ""
    return f"from the result{of} (call {source.call})"


def _inline(text: str) -> str:
    return visible(text).replace("`", "'")


def _fenced(text: str, lines: int | None, language: str = "") -> str:
    text = plain(text).strip("\n") if lines is None else shortened(text, lines=lines, width=_WIDTH)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
