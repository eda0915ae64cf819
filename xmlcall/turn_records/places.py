"""Finds the place in the reply, the source and the meaning of each value and mark of a call.

A parameter of a tagged format has its own place in the reply. In JSON all arguments share one, where a value is found by its text
if that occurs once. Sources are found as in `binding.provenance`, but only in the words of the conversation: text that this
program adds to a prompt (descriptions, examples, reminders) is no source. The cost is linear in the conversation, once for each
reply with calls.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..binding.provenance import SaidIndex, ValueSource, values_in
from ..dialects.replies import replies_of, start_in
from ..errors import ISSUES, REPAIRS
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Issue, Message, RawArgument, RawCall, Repair, Span, ToolCall
from ..types.events import CallInReasoning
from .record import MarkRecord, SourceRecord, ValueRecord

_BEGINNING: Final = 20_000  # characters of a value by which its source is found
_READ: Final = 200_000  # characters of a message in which sources are looked for
_LONGEST: Final = 2000  # characters of a value of which the place is looked for
_CASES: Final = 200  # characters of a value that is looked for in other cases as well

_Words = tuple[Message, int]  # a message of a prompt reduced to its author's words, and where these begin in it


class SaidBefore:
    """What was said before a reply, read on demand; `conversation` is without additions of this program, empty if unknown."""

    def __init__(self, prompt: Sequence[Message], conversation: Sequence[Message], catalog: Catalog) -> None:
        self._prompt, self._conversation, self._catalog = prompt, conversation, catalog
        self._index: SaidIndex | None = None
        self._words: list[_Words] = []
        self._results: dict[int, Span] = {}  # number of a call -> place of its result in its message

    def sources(self, call: ToolCall) -> dict[str, SourceRecord]:
        """Return the source of each value of a call."""
        index, tool, found = self._index or self._read(), self._catalog.get(call.name), dict[str, SourceRecord]()
        for path, name, value in values_in(call.arguments):
            beginning = value[:_BEGINNING] if isinstance(value, str) else value
            found[path] = self._record(index.source_of(beginning, tool, name), value)
        return found

    def _read(self) -> SaidIndex:
        self._words = list(_said_in(self._prompt, self._conversation, self._catalog))
        self._index = SaidIndex()
        messages = [replace(message, content=message.content[:_READ]) for message, _ in self._words]
        self._index.add_messages(messages)
        replies = (reply for message in messages for reply in replies_of(message))
        self._results = {number: (reply.start, reply.end) for number, reply in enumerate(replies, start=1)}
        return self._index

    def _record(self, source: ValueSource, value: Any) -> SourceRecord:
        place = None
        if source.message is not None:
            message, begins = self._words[source.message]
            within = self._results.get(source.call or 0) or (0, len(message.content))
            found = _found(value, message.content[slice(*within)])
            place = found and (found[0] + within[0] + begins, found[1] + within[0] + begins)
        start, end = place or (None, None)
        return SourceRecord(kind=source.kind, call=source.call, tool=source.tool, message=source.message, start=start, end=end)


def _said_in(prompt: Sequence[Message], conversation: Sequence[Message], catalog: Catalog) -> Iterator[_Words]:
    """Yield each message of a prompt, reduced to its author's words; messages of ours are empty."""
    said = iter(conversation)
    waiting = next(said, None)
    for message in prompt:
        at = -1 if waiting is None else start_in(message, waiting)
        if waiting is not None and at >= 0:
            is_ours = waiting.role == "system" and is_tool_prompt(waiting.content, catalog)
            yield replace(message, content="" if is_ours else waiting.content), at
            waiting = next(said, None)
        else:
            if waiting is not None and waiting.role == message.role and message.role != "system":
                waiting = next(said, None)  # sent in part
            yield (replace(message, content="") if message.role == "system" else message), 0


def is_tool_prompt(content: str, catalog: Catalog) -> bool:
    """Say whether a system message describes the tools, as this program's own does."""
    described = (f"{tool.name} {line}" for tool in catalog for line in tool.description.strip().splitlines()[:1])
    return len(catalog) > 0 and all(part in content for each in described for part in each.split(" ", 1))


def values_of(call: ToolCall, text: str, said: SaidBefore | None) -> tuple[ValueRecord, ...]:
    """Return the values of a call, with their places and sources."""
    sources = said.sources(call) if said is not None else {}
    places = _Places(call, text)
    return tuple(
        ValueRecord(
            path=path,
            value=value,
            **dict(zip(("start", "end"), places.of(path, name, value), strict=True)),
            source=sources.get(path),
            repairs=codes_of_value(path, name, call.repairs, call.raw),
        )
        for path, name, value in values_in(call.arguments)
    )


class _Places:
    """The places of a call's values in a reply."""

    def __init__(self, call: ToolCall, text: str) -> None:
        self._text = text
        (start, end), is_native = call.raw.span, call.raw.dialect == "native"
        self._whole = call.raw.span if start < end <= len(text) and not is_native else None
        self._arguments: dict[str, RawArgument] = {}
        meant = {repair.span: repair.path[2:] for repair in call.repairs if repair.code == "parameter-name"}
        for each in call.raw.arguments:
            self._arguments.setdefault(meant.get(each.span, each.name), each)
        self._shared = Counter(each.span for each in call.raw.arguments)

    def of(self, path: str, name: str, value: Any) -> Span | tuple[None, None]:
        """Return the place of a value, else of its parameter."""
        argument = self._arguments.get(name)
        span = argument.span if argument is not None and argument.span[0] < argument.span[1] else self._whole
        if span is None:
            return None, None
        is_own = argument is not None and self._shared[argument.span] == 1 and path in (f"$.{name}", f"$['{name}']")
        if is_own and argument is not None and span != self._whole:
            within = self._text[slice(*span)]
            if not within.lstrip().startswith("{") or (isinstance(value, str) and value == argument.text == within):
                return span
        return _only_place(value, self._text, span) or span


def _only_place(value: Any, text: str, span: Span) -> Span | None:
    """Return the place of a value's text in a part of a reply, if it occurs there once."""
    for written in _writings(value):
        pattern = re.compile(_as_word(written))
        found = [match.span() for match, _ in zip(pattern.finditer(text, *span), range(2), strict=False)]
        if len(found) == 1:
            return found[0]
    return None


def _writings(value: Any) -> list[str]:
    """Return how a value may be written, without its quotation marks."""
    if not isinstance(value, str):
        return [json.dumps(value)]
    if not value or len(value) > _LONGEST:
        return []
    return list(dict.fromkeys([value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]]))


def _as_word(text: str) -> str:
    before, after = (r"(?<!\w)" if text[0].isalnum() else ""), (r"(?!\w)" if text[-1].isalnum() else "")
    return f"{before}{re.escape(text)}{after}"


def _found(value: Any, text: str) -> Span | None:
    """Return where a value's text first occurs in a message."""
    written = value if isinstance(value, str) else json.dumps(value)
    if not written or len(written) > _LONGEST:
        return None
    cases = re.IGNORECASE if len(written) <= _CASES else 0
    found = re.search(_as_word(written), text, cases) or re.search(re.escape(written), text, cases)
    return found.span() if found else None


# -- repairs, conversions and mistakes of a call, each with what it means in words -------------------------------------
# A code of `errors.REPAIRS` or `errors.ISSUES` becomes a `MarkRecord` with its sentence and its place. A conversion of binding
# has the path of a value: it made that value, and every value inside it.

LOST_CALL: Final = "call-in-reasoning"  # code of the mark for a call in reasoning that never ended
_LOST: Final = "A call stands in reasoning that never ended, so it is none."


def whys() -> dict[str, dict[str, str]]:
    """Return all codes with what they mean: `repairs` and `issues`."""
    return {"repairs": {**REPAIRS, LOST_CALL: _LOST}, "issues": dict(ISSUES)}


def repairs_of(repairs: Iterable[Repair]) -> tuple[MarkRecord, ...]:
    """Return repairs with their meaning."""
    return tuple(
        MarkRecord(code=each.code, why=REPAIRS.get(each.code, ""), start=each.span[0], end=each.span[1], path=each.path)
        for each in repairs
    )


def lost_call(event: CallInReasoning) -> MarkRecord:
    """Return the mark of a call in reasoning that never ended."""
    return MarkRecord(code=LOST_CALL, why=_LOST, start=event.span[0], end=event.span[1], got=event.name)


def issues_of(call: ToolCall | InvalidCall, place: Span | None) -> tuple[MarkRecord, ...]:
    """Return what is wrong with a call."""
    if isinstance(call, ToolCall):
        return ()
    spans = {f"$.{each.name}": each.span for each in call.raw.arguments} if place is not None else {}
    placed = {parameter: span for parameter, span in spans.items() if span[0] < span[1]}
    return tuple(_issue(issue, placed, place) for issue in call.issues)


def _issue(issue: Issue, spans: Mapping[str, Span], whole: Span | None) -> MarkRecord:
    """Return the mark of an issue, at the place of the parameter that contains its path, or of the whole call."""
    start, end = next((span for parameter, span in spans.items() if _is_in(issue.path, parameter)), whole) or (None, None)
    why, readings = issue.message or ISSUES.get(issue.code, ""), tuple(issue.readings)
    about = {"path": issue.path, "expected": issue.expected, "got": issue.got}
    return MarkRecord(code=issue.code, why=why, start=start, end=end, readings=readings, **about)


def _is_in(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def codes_of_value(path: str, parameter: str, repairs: Sequence[Repair], raw: RawCall) -> tuple[str, ...]:
    """Return the codes of the conversions that made a value."""
    own = repairs[len(raw.repairs) :]
    made = [each.code for each in own if each.path and (each.path == f"$.{parameter}" or _is_in(path, each.path))]
    return tuple(dict.fromkeys(made))
