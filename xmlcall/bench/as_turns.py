"""Turns a line of a run into a turn: what the model was sent, what it wrote, and how that is parsed now.

A question has one reply, or several if the model got feedback on the errors in its calls; none of the calls runs. A task of
several turns is played, so its line has the texts of the replies and the outcome of each call. Both become one `TurnRecord`, the
form in which the page shows every turn. What a line does not contain (the beginning of a reply that the prompt wrote, results of
an older version) is missing here, too. A call that is not found in the text of its reply has no place.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..agent.drive import drive
from ..parsing.repetition import once
from ..tools.catalog import Catalog
from ..turn.attempts import none_can_run
from ..turn.generate import Generated
from ..turn_records.builder import MOST_RESULT
from ..turn_records.reading import ReadCall, Reading, ReadText, call_record, prompt_of, read_reply, read_text, tools_told
from ..turn_records.record import CallRecord, ReplyRecord, SaidBefore, TurnRecord
from ..types.calls import InvalidCall, Issue, Message, RawCall, ToolCall
from ..types.events import Event
from .case import Case, messages_of
from .store import RecordedRun, tools_kept_in
from .ways import AskedCase, way_of

_TOKENS: Final = ("prompt_tokens", "cached_tokens", "completion_tokens")


def turn_of_row(run: RecordedRun, case: Case, row: Mapping[str, Any], way: str) -> TurnRecord:
    chosen = way_of(way)
    if "outcome" in row:
        catalog, replies = _played(run, case, row["outcome"])
        last = row["outcome"]["turns"][-1]
        answer, outcome = str(last.get("answer", "")), str(last["stop_reason"])
    else:
        asked = AskedCase(chosen, case, run.settings)
        catalog, replies = asked.catalog, asyncio.run(_rounds(run, asked, row["rounds"]))
        answer = replies[-1].text if replies else ""
        calls = any(call.arguments is not None for reply in replies for call in reply.calls)
        outcome = "tool_calls" if calls else "end"
    first = row["rounds"][0] if row["rounds"] else {}
    return TurnRecord(
        id=f"{case.id}.{way}",
        source="run",
        began=str(run.about.get("started", "")),
        model=str(run.about.get("model", "")),
        way="native" if chosen.is_native else "xml",
        dialect=chosen.dialect,
        lang=run.settings.lang,
        family=str(run.about["settings"].get("family", "")),
        question=next((str(each["content"]) for each in reversed(case.messages) if each.get("role") == "user"), ""),
        tools=tools_told(catalog),
        replies=tuple(replies),
        outcome=outcome,
        answer=answer,
        first_token_seconds=first.get("first_event_seconds"),
        seconds=sum(kept.get("seconds", 0.0) for kept in row["rounds"]),
    )


# -- a question ----------------------------------------------------------------------------------------------------------------


async def _rounds(run: RecordedRun, asked: AskedCase, rounds: Sequence[Mapping[str, Any]]) -> list[ReplyRecord]:
    """Read the replies to a question, each with the prompt that it answers."""
    case, catalog, reasoning_open = asked.case, asked.catalog, bool(run.about.get("reasoning_open"))
    prompt, replies = asked.sent(rounds), list[ReplyRecord]()
    said = tuple(messages_of(case.messages))
    for kept in rounds:
        for text in kept.get("described", ()):  # replies that only asked for descriptions of tools
            replies.append(read_reply(text, catalog, number=len(replies) + 1, conversation=prompt))
        reading, generated = await _generated(asked, kept, reasoning_open=reasoning_open)
        reply, _ = once(generated.reply, str(case.messages[-1]["content"]) if case.messages else "")
        reading.settle(reply)
        raw, usage, before = kept.get("text", ""), kept.get("usage") or {}, SaidBefore(prompt, said, catalog)
        tokens: dict[str, Any] = {name: usage.get(name) for name in _TOKENS}
        replies.append(
            ReplyRecord(
                number=len(replies) + 1,
                prompt=prompt_of(prompt),
                raw=raw,
                spans=reading.spans(len(raw)),
                repairs=reading.marks(),
                calls=tuple(_call(read, raw, before) for read in reading.calls),
                reasoning="".join(reading.reasoning),
                finish_reason=reply.finish_reason,
                refusal=generated.refusal,
                first_token_seconds=kept.get("first_event_seconds"),
                seconds=kept.get("seconds"),
                **tokens,
            )
        )
        calls = generated.reply.calls
        feedback = [asked.feedback(calls)] if none_can_run(calls) else []
        prompt = (*prompt, Message(role="assistant", content=generated.text), *feedback)
    return replies


async def _generated(asked: AskedCase, kept: Mapping[str, Any], *, reasoning_open: bool) -> tuple[Reading, Generated]:
    """Read a kept reply as if it came from the model now."""
    machine, backend = asked.replay(kept, reasoning_open=reasoning_open)
    reading = Reading()
    async for event in drive(machine, backend):
        if isinstance(event, Event):
            reading.take([event])
    assert machine.result is not None
    return reading, machine.result


def _call(read: ReadCall, raw: str, said: SaidBefore, **facts: Any) -> CallRecord:
    outcome = {"outcome": "not started"} if read.call is None else {}
    return call_record(read, raw, said, **{"id": f"call_{read.index}", **outcome, **facts})


# -- a task --------------------------------------------------------------------------------------------------------------------


def _played(run: RecordedRun, case: Case, outcome: Mapping[str, Any]) -> tuple[Catalog, list[ReplyRecord]]:
    """Read the replies of a task, or of a turn of a conversation."""
    catalog = Catalog(tools_kept_in(outcome) or case.tools)
    words = [str(each["content"]) for each in case.messages if each.get("role") == "user"]
    before, turns = list(outcome.get("before") or ()), list(outcome["turns"])
    said: list[Message] = []
    replies: list[ReplyRecord] = []
    for place, played in enumerate((*before, *turns)):
        texts = played.get("said") or words[place : place + 1]
        said += [Message(role="user", content=str(text)) for text in texts]
        waiting = list(played["calls"])
        for number, text in enumerate(played["replies"], start=1):
            reading = read_text(text, catalog, said, reasoning_open=bool(run.about.get("reasoning_open")))
            calls = _calls_of(waiting, number, reading, is_last=number == len(played["replies"]))
            waiting = [call for call in waiting if not any(call is each for each in calls)]
            if place >= len(before):
                replies.append(_played_reply(reading, text, len(replies) + 1, calls, said, catalog))
            said.append(Message(role="assistant", content=text))
            said += [Message(role="tool", name=str(call["name"]), content=_answer(call)) for call in calls]
    return catalog, replies


def _calls_of(waiting: Sequence[Mapping[str, Any]], number: int, read: ReadText, *, is_last: bool) -> list[Mapping[str, Any]]:
    """Return a reply's calls from the remaining calls of its turn: by reply number, else as many as the text contains.

    If we began a call for the model, the reply's text may contain no call although the reply is one.
    """
    if any("reply" in call for call in waiting):
        return [call for call in waiting if call.get("reply") == number]
    found = sum(call.call is not None and not call.is_left_out for call in read.reading.calls)
    return list(waiting if is_last else waiting[: found or 1])


def _played_reply(
    read: ReadText, text: str, number: int, calls: Sequence[Mapping[str, Any]], said: Sequence[Message], catalog: Catalog
) -> ReplyRecord:
    """Return a reply of a task, with its recorded calls and their outcomes."""
    reading, before = read.reading, SaidBefore(tuple(said), tuple(said), catalog)
    left = [each for each in reading.calls if each.call is not None and not each.is_left_out]
    facts: dict[int, dict[str, Any]] = {}
    for call in calls:
        found = next((each for each in left if each.call is not None and _is_of(each.call, call)), None)
        if found is None:
            raw = RawCall(index=len(reading.calls), name=str(call["name"]), dialect="")
            found = ReadCall(len(reading.calls), raw.name, "", 0, 0, _as_played(call, raw))
            reading.calls.append(found)
        else:
            left = left[left.index(found) + 1 :]
        facts[found.index] = _facts(call)
    return ReplyRecord(
        number=number,
        prompt=prompt_of(said),
        raw=text,
        spans=reading.spans(len(text)),
        repairs=reading.marks(),
        calls=tuple(_call(each, text, before, **facts.get(each.index, {})) for each in reading.calls),
        finish_reason=read.reply.finish_reason,
        refusal=read.refusal,
    )


def _is_of(call: ToolCall | InvalidCall, played: Mapping[str, Any]) -> bool:
    is_alike = "arguments" not in played or (isinstance(call, ToolCall) and call.arguments == played["arguments"])
    return is_alike and call.name == played["name"]


def _as_played(played: Mapping[str, Any], raw: RawCall) -> ToolCall | InvalidCall:
    id, arguments = f"call_{raw.index}", played.get("arguments")
    if isinstance(arguments, dict) and not played.get("issues"):
        return ToolCall(id=id, name=raw.name, arguments=arguments, raw=raw)
    issues = (
        Issue(code=str(row.get("code", "")), path=str(row.get("path", "$")), message=str(row.get("message", "")))
        for row in played.get("issues", ())
    )
    return InvalidCall(id=id, name=raw.name, issues=tuple(issues), raw=raw)


def _facts(played: Mapping[str, Any]) -> dict[str, Any]:
    if "result" in played:
        text = str(played["result"])
        outcome = "error" if played.get("is_error") else "ok"
        return {"outcome": outcome, "result": text[:MOST_RESULT], "result_size": len(text)}
    if "denied" in played:
        return {"outcome": "denied", "reason": str(played["denied"])}
    return {"outcome": "rejected"} if played.get("issues") else {}


def _answer(played: Mapping[str, Any]) -> str:
    """Return the result or the feedback that the model got for a call."""
    issues = " ".join(str(issue.get("message", "")) for issue in played.get("issues", ()))
    return str(played.get("result") or played.get("denied") or issues)
