"""Answers to the page: JSON, and server-sent events (WHATWG HTML, section 9.2) while the page is open.

The JSON is readable by every browser: it is ASCII, so that lone surrogates pass, and it has no numbers that JSON lacks.

A stream waits for several sources at once and sends their events, or a comment if none arrives for a while. Sources coalesce by
themselves (`Recorder.watch`), and a send waits until the reader has taken the previous one. So a slow page costs no memory, and
misses only states that were already superseded.

For a turn that is open in a page, the whole record is sent at first and whenever its structure changes; while a reply is written,
only the additions are sent. So the cost of a reply grows with its length, not with the square of it.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from ..turns.record import ReplyRecord, SpanRecord, TurnRecord, record_to_json
from ..turns.recorder import Recorder

PING_SECONDS: Final = 15.0
_RETRY: Final = "retry: 1000\n\n"
Told = tuple[str, Any]  # name of an event, and its data as JSON


def _json_text(data: Any) -> str:
    """Write a value as JSON; infinities and NaN become strings."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data))


def json_answer(data: Any, status: int = 200) -> Response:
    """Answer with a value as JSON."""
    return Response(_json_text(data), status, media_type="application/json")


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def event_stream(events: AsyncGenerator[Told | None]) -> StreamingResponse:
    """Answer with events as they arrive."""

    async def written() -> AsyncGenerator[str]:
        yield _RETRY
        async with aclosing(events):
            async for event in events:
                yield f"event: {event[0]}\ndata: {_json_text(event[1])}\n\n" if event else ": still here\n\n"

    return StreamingResponse(written(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def merged(*sources: AsyncIterator[Told], every: float = PING_SECONDS) -> AsyncGenerator[Told | None]:
    """Yield the events of several sources until the first one ends, and None after `every` seconds without an event."""
    waiting = {asyncio.ensure_future(anext(source)): source for source in sources}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, timeout=every, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield None
            for task in done:
                source = waiting.pop(task)
                if isinstance(task.exception(), StopAsyncIteration):
                    return
                yield task.result()
                waiting[asyncio.ensure_future(anext(source))] = source
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for source in sources:
            if (close := getattr(source, "aclose", None)) is not None:
                await close()


async def turn_events(recorder: Recorder, id: str) -> AsyncGenerator[Told]:
    """Follow one turn until it is over: yield `turn` with all of it, `delta` with the addition to a reply, `end`."""
    watched = recorder.watch()
    first = asyncio.ensure_future(anext(watched))
    before: TurnRecord | None = None
    try:
        await asyncio.sleep(0)  # starts the watch before the first record is read, so that no change in between is missed
        while (builder := recorder.find(id)) is not None:
            is_over = builder.is_over  # read before the record, because the turn may end while the record is sent
            now = builder.record()
            if event := change(before, now):
                yield event
            before = now
            if is_over:
                break
            while id not in await first:
                first = asyncio.ensure_future(anext(watched))
            first = asyncio.ensure_future(anext(watched))
    except StopAsyncIteration:
        return  # the recorder was closed; the page will reconnect
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await watched.aclose()
    yield "end", {"id": id}


def change(before: TurnRecord | None, now: TurnRecord) -> Told | None:
    """Return the event for what is new in a turn: `delta` if only the last reply has grown, otherwise `turn`; None for nothing.

    Of a `delta`, `reply` is the reply's number, `raw` the text after the offset `from`, `spans` replaces all spans that begin at
    `from_span` or later, and `rest` has all other fields of the reply except its prompt.
    """
    if before is None or not before.replies or len(before.replies) != len(now.replies):
        return None if before == now else ("turn", record_to_json(now))
    old, new = before.replies[-1], now.replies[-1]
    if replace(before, replies=now.replies) != now or before.replies[:-1] != now.replies[:-1]:
        return "turn", record_to_json(now)
    if old.prompt != new.prompt or not new.raw.startswith(old.raw):
        return "turn", record_to_json(now)
    return None if old == new else ("delta", _delta(old, new))


def _delta(old: ReplyRecord, new: ReplyRecord) -> Mapping[str, Any]:
    at = _first_difference(old.spans, new.spans)
    start = new.spans[at].start if at < len(new.spans) else len(new.raw)
    rest = record_to_json(replace(new, raw="", spans=(), prompt=()))
    for name in ("raw", "spans", "prompt"):
        del rest[name]
    return {
        "reply": new.number,
        "from": len(old.raw),
        "raw": new.raw[len(old.raw) :],
        "from_span": start,
        "spans": [record_to_json(span) for span in new.spans[at:]],
        "rest": rest,
    }


def _first_difference(old: tuple[SpanRecord, ...], new: tuple[SpanRecord, ...]) -> int:
    pairs = zip(old, new, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))
