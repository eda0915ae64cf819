"""Turns stored conversations into the same records as running turns.

A turn is the events of the store that follow a question. Each reply is parsed again from its raw text, so that every piece has
its place. But the calls and their outcomes are taken from the events, whatever the current parser makes of the text. A call that
is not in the text, because the model server found it, has no place. Fields that an older version did not save stay empty: the
content of a store never makes this module raise.

The prompt of a reply is the conversation before it, without the description of the tools, which is not kept. If a conversation
was changed later, replies that were removed from it have no prompt.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise, takewhile
from typing import Any, Final

from ..binding.bind import bind
from ..dialects.write import says
from ..errors import REPAIRS
from ..prompting.format import FAMILIES
from ..records.store import ConversationSummary, KeptEvent, Store, raw_from_json
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Issue, Message, RawCall, Repair, ToolCall
from ..types.events import TextDelta
from ..wire.openai import count, mapping
from .builder import MOST_RESULT
from .reading import ReadCall, Reading, ReadText, call_record, prompt_of, read_text, readable_tools, tools_told
from .record import CallRecord, MarkRecord, ReplyRecord, SaidBefore, TurnRecord, repairs_of

_OUTCOMES: Final = frozenset({"ok", "error", "failed", "denied", "rejected", "held"})


def turns_of(store: Store, conversation_id: str) -> list[TurnRecord]:
    """Return the turns of a stored conversation, oldest first."""
    found = store.find(conversation_id)
    events, messages = store.events(found.id), _Messages(store.messages(found.id))
    catalogs: dict[str, Catalog] = {}
    turns = []
    for number, (asked, later) in enumerate(_split(events), start=1):
        sha256 = _text(asked.body, "tools")
        if sha256 not in catalogs:
            catalogs[sha256] = readable_tools(store.tools(sha256) if sha256 else ())
        turns.append(_KeptTurn(asked, later, catalogs[sha256], messages).record(f"{found.id}.{number}", found))
    return turns


def _split(events: Sequence[KeptEvent]) -> Iterator[tuple[KeptEvent, Sequence[KeptEvent]]]:
    """Yield each question with its events until the next question."""
    places = [place for place, event in enumerate(events) if event.kind == "asked"]
    for place, following in pairwise([*places, len(events)]):
        yield events[place], events[place + 1 : following]


class _Messages:
    """The current messages of a conversation; the messages of its turns are looked up in them, front to back."""

    def __init__(self, all: Sequence[Message]) -> None:
        self._all = tuple(all)
        self._next = 0
        self._questions: dict[int, str] = {}

    def said(self, prompt: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages of a prompt without additions after the user's words, such as a reminder."""
        known = self._all[: len(prompt)]
        if len(known) < len(prompt) or any(one is not other for one, other in zip(known, prompt, strict=True)):
            return tuple(prompt)
        words = (self._questions.get(place, message.content) for place, message in enumerate(prompt))
        return tuple(replace(message, content=content) for message, content in zip(prompt, words, strict=True))

    def asked(self, question: str, at: Any) -> tuple[Message, ...]:
        """Return the conversation up to a question; only the question if the conversation no longer has it."""
        if not isinstance(at, int) or not self._is_asked(at, question):
            at = next((place for place in range(self._next, len(self._all)) if self._is_asked(place, question)), None)
        if at is None:
            return (Message(role="user", content=question),)
        self._next, self._questions[at] = at + 1, question
        return self._all[: at + 1]

    def before(self, reply: Any) -> tuple[Message, ...]:
        """Return the conversation before a kept reply; if that is not stored, the messages found so far."""
        content = reply.get("content") if isinstance(reply, Mapping) else None
        if isinstance(content, str):
            for place in range(self._next, len(self._all)):
                if self._all[place].role == "assistant" and self._all[place].content == content:
                    self._next = place + 1
                    return self._all[:place]
        return self._all[: self._next]

    def _is_asked(self, place: int, question: str) -> bool:
        return 0 <= place < len(self._all) and says(self._all[place], question)


class _KeptTurn:
    def __init__(self, asked: KeptEvent, events: Sequence[KeptEvent], catalog: Catalog, messages: _Messages) -> None:
        self._asked, self._events, self._catalog = asked, events, catalog
        self._question = _text(asked.body, "text")
        self._mode = _text(asked.body, "mode") or "xml"
        self._messages = messages
        self._begun = messages.asked(self._question, asked.body.get("at"))
        self._facts = _facts_of(events)

    def record(self, id: str, found: ConversationSummary) -> TurnRecord:
        places = [place for place, event in enumerate(self._events) if event.kind == "reply"]
        replies = tuple(self._reply(number, place) for number, place in enumerate(places, start=1))
        answer = next((event for event in self._events if event.kind == "answer"), None)
        last = self._events[places[-1]].body if places else {}
        error = next((_text(event.body, "error") for event in self._events if event.kind == "kept"), "")
        # Without an answer, these events show that the turn has ended; otherwise it may still be running.
        left = "left" if any(event.kind in ("kept", "recovered") for event in self._events) else ""
        outcome = _text(answer.body, "stop_reason") if answer is not None else left
        return TurnRecord(
            id=id,
            source="conversation",
            began=self._asked.time,
            model=found.model,
            way={"xml": "xml", "none": "plain"}.get(self._mode, "native"),
            dialect=_text(self._asked.body, "dialect"),
            lang=_text(self._asked.body, "lang") or "en",
            family=_text(self._asked.body, "family"),
            question=self._question,
            tools=tools_told(self._catalog),
            replies=replies,
            outcome="error" if error else outcome,
            error=error,
            answer=_text(last, "text") if answer is not None else "",
            seconds=_between(self._asked, answer) if answer is not None else None,
        )

    def _reply(self, number: int, place: int) -> ReplyRecord:
        event, body, later = self._events[place], self._events[place].body, self._events[place + 1 :]
        message = body.get("message")
        is_empty = not _text(body, "text").strip() and not _list(body, "calls")
        was_asked_again = is_empty and any(each.kind == "reply" for each in later)
        before = self._messages.before(message)
        prompt = self._begun if number == 1 else before
        raw = _text(body, "raw") or ("" if "raw" in body else _text(message, "content"))
        calls = [call for call in _list(body, "calls") if isinstance(call, Mapping)]
        read = self._read(raw, body, prompt, calls)
        _settle(read.reading, calls, self._catalog, _held_in(later))
        said = SaidBefore(prompt, self._messages.said(prompt), self._catalog)
        usage = mapping(body.get("usage"))
        tokens = {name: count(usage.get(name)) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
        reasoning = "" if any(span.kind == "reasoning" for span in read.reading.spans(len(raw))) else _text(body, "reasoning")
        marks = read.reading.marks()
        return ReplyRecord(
            number=number,
            prompt=prompt_of(prompt),
            raw=raw,
            spans=read.reading.spans(len(raw)) if raw else (),
            repairs=(*marks, *_more_marks(body, marks, read.reading)),
            calls=tuple(self._call(each, raw, said) for each in read.reading.calls),
            reasoning=reasoning,
            finish_reason=_text(body, "finish_reason") or read.reply.finish_reason,
            is_kept=message is not None and not was_asked_again,
            refusal=read.refusal,
            **tokens,
            seconds=_between(self._events[place - 1] if place else self._asked, event),
        )

    def _read(self, raw: str, body: Mapping[str, Any], prompt: Sequence[Message], calls: Sequence[Mapping[str, Any]]) -> ReadText:
        family = _text(self._asked.body, "family")
        unsaid = FAMILIES[family].unsaid if self._mode == "xml" and family in FAMILIES else ""
        read = read_text(
            raw,
            self._catalog,
            prompt,
            reasoning_open=bool(self._asked.body.get("reasoning_open")),
            finish_reason=_text(body, "finish_reason") or "stop",
            unsaid=unsaid,
        )
        if self._mode != "xml" and not any((text := _raw(call).text) and text in raw for call in calls):
            read = ReadText(reading=Reading(), reply=read.reply, refusal="")
            read.reading.take([TextDelta(text=raw, span=(0, len(raw)))])
        return read

    def _call(self, read: ReadCall, text: str, said: SaidBefore) -> CallRecord:
        if read.call is None:
            return call_record(read, text, None)
        facts = dict(self._facts.get(read.call.id, {}))
        ran = facts.pop("arguments", None)
        if isinstance(read.call, ToolCall) and isinstance(ran, dict) and repr(ran) != repr(read.call.arguments):
            facts["ran_with"] = ran
        return call_record(read, text, said, **facts)


# -- calls -------------------------------------------------------------------------------------------------------------------


def _facts_of(events: Sequence[KeptEvent]) -> dict[str, dict[str, Any]]:
    """Return the outcome of each call, as fields of its record; `arguments` are those that it ran with."""
    facts: dict[str, dict[str, Any]] = {}
    started: dict[str, KeptEvent] = {}
    for event in events:
        body, id = event.body, _text(event.body, "id")
        if event.kind == "started":
            started[id] = event
            named = {name: _text(body, name) for name in ("server", "tool", "by", "reason")}
            facts[id] = {**named, "arguments": body.get("arguments"), "outcome": "unknown"}
        elif event.kind == "ended":
            facts.setdefault(id, {}).update(_ended(body))
            if id in started:
                facts[id]["seconds"] = _between(started[id], event)
    return facts


def _ended(body: Mapping[str, Any]) -> dict[str, Any]:
    outcome, text = _text(body, "outcome"), _text(body, "text")
    ended: dict[str, Any] = {"outcome": outcome if outcome in _OUTCOMES else "unknown"}
    if outcome in ("ok", "error", "failed"):
        return ended | {"result": text[:MOST_RESULT], "result_size": len(text), "failure": _text(body, "failure")}
    named = {name: _text(body, name) for name in ("server", "tool", "by") if name in body}  # "server" since 0.3
    return ended | ({"reason": text} if outcome in ("denied", "held") else {}) | named


def _held_in(later: Iterable[KeptEvent]) -> Mapping[str, Any] | None:
    """Return the end of the call that waits; it is not among the calls kept with its reply."""
    of_reply = takewhile(lambda event: event.kind not in ("reply", "answer"), later)
    return next((event.body for event in of_reply if event.kind == "ended" and event.body.get("outcome") == "held"), None)


def _settle(reading: Reading, calls: Sequence[Mapping[str, Any]], catalog: Catalog, held: Mapping[str, Any] | None) -> None:
    """Restore the calls of a reply: match each parsed call to a kept one, in order, or mark it as not counted."""
    waiting = [call for call in reading.calls if not call.is_left_out]
    for kept in calls:
        raw = _raw(kept)
        found = next((each for each in waiting if each.call is not None and each.call.raw.text == raw.text and raw.text), None)
        if found is None:
            found = ReadCall(len(reading.calls), raw.name, raw.dialect, 0, 0, bind(raw, catalog))
            reading.calls.append(found)
        else:
            waiting = waiting[waiting.index(found) + 1 :]
        assert found.call is not None
        found.call = _as_kept(found.call, kept)
    if held is not None:
        found = next((each for each in waiting if each.call is not None and each.call.name == held.get("name")), None)
        if found is not None and found.call is not None:
            found.call = replace(found.call, id=_text(held, "id"))
            if (place := found.place) is not None:
                reading.cut(place[1])


def _as_kept(call: ToolCall | InvalidCall, kept: Mapping[str, Any]) -> ToolCall | InvalidCall:
    id, name = _text(kept, "id") or call.id, _text(kept, "name") or call.name
    arguments = kept.get("arguments")
    if isinstance(arguments, dict):
        is_same = isinstance(call, ToolCall) and repr(call.arguments) == repr(arguments)
        known = call.repairs if isinstance(call, ToolCall) and is_same else ()
        left = Counter(_codes(kept)) - Counter(repair.code for repair in known)
        more = (Repair(code=code, span=call.raw.span) for code in left.elements())
        return ToolCall(id=id, name=name, arguments=arguments, repairs=(*known, *more), raw=call.raw)
    issues = tuple(_issue(issue) for issue in _list(kept, "issues") if isinstance(issue, Mapping))
    return InvalidCall(id=id, name=name, issues=issues, raw=call.raw)


def _codes(kept: Mapping[str, Any]) -> list[str]:
    return [code for code in _list(kept, "repairs") if isinstance(code, str)]


def _more_marks(body: Mapping[str, Any], marks: Iterable[MarkRecord], reading: Reading) -> Iterator[MarkRecord]:
    """Yield repairs that were reported originally but are not found now, at the place of their call if it has one."""
    left = Counter(_codes(body)) - Counter(mark.code for mark in marks)
    made = [repair for each in reading.calls if isinstance(each.call, ToolCall) for repair in each.call.repairs]
    for code in left.elements():
        repair = next((each for each in made if each.code == code), None)
        yield from repairs_of([repair]) if repair else [MarkRecord(code=code, why=REPAIRS.get(code, ""))]


def _issue(data: Mapping[str, Any]) -> Issue:
    texts = {name: _text(data, name) for name in ("code", "expected", "got", "message")}
    readings = tuple(each for each in _list(data, "readings") if isinstance(each, str))
    return Issue(**texts, path=_text(data, "path") or "$", readings=readings)


def _raw(kept: Mapping[str, Any]) -> RawCall:
    raw = kept.get("raw")
    try:
        return raw_from_json(mapping(raw))
    except (KeyError, TypeError, AttributeError):
        text = _text(raw, "text")
        return RawCall(index=0, name=_text(kept, "name"), text=text, dialect=_text(raw, "dialect"))


# -- what may be missing -----------------------------------------------------------------------------------------------------


def _text(body: Any, name: str) -> str:
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, str) else ""


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _between(one: KeptEvent, other: KeptEvent) -> float | None:
    """Return the seconds between two events; None if their times cannot be read."""
    try:
        return max((datetime.fromisoformat(other.time) - datetime.fromisoformat(one.time)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
