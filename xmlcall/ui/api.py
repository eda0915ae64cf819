"""The page's API: facts about the program, its turns, and texts to read again. All answers are JSON, including errors.

A handler is a function of the `ShownPage` and a request. Handlers here change nothing outside this program's memory; the code
that runs tools is in `chat`.

The JSON is readable by every browser: it is ASCII, so that lone surrogates pass, and it has no numbers that JSON lacks.

An answer may be a stream of server-sent events (WHATWG HTML, section 9.2) while the page is open. A stream waits for several
sources at once and sends their events, or a comment if none arrives for a while. Sources coalesce by themselves
(`Recorder.watch`), and a send waits until the reader has taken the previous one. So a slow page costs no memory, and misses only
states that were already superseded.

For a turn that is open in a page, the whole record is sent at first and whenever its structure changes; while a reply is written,
only the additions are sent. So the cost of a reply grows with its length, not with the square of it.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ..dialects import DIALECTS
from ..errors import UsageError, XmlcallError
from ..proxy.formats.contract import ApiError
from ..schema.references import deeper_than
from ..turn_records.builder import Recorder
from ..turn_records.reading import as_bench_case, as_corpus_case, as_curl, read_reply
from ..turn_records.record import MessageRecord, ReplyRecord, TurnRecord, record_to_json, summary_of, whys

BODY_LIMIT: Final = 8 * 1024 * 1024  # bytes
DEPTH_LIMIT: Final = 100
LIST_LIMIT: Final = 500  # turns in one answer

PING_SECONDS: Final = 15.0
_RETRY: Final = "retry: 1000\n\n"

Told = tuple[str, Any]  # name of an event, and its data as JSON
Handler = Callable[[Request], Awaitable[Response]]
Summary = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class ShownPage:
    recorder: Recorder
    about: Callable[[], Mapping[str, Any]]
    url: str
    instance: str
    news: Callable[[], AsyncIterator[Told]] | None = None  # returns a chat's events, once for each stream
    find: Callable[[str], TurnRecord | None] = lambda id: None  # returns a turn that the recorder does not have
    # Returns a turn that is kept elsewhere; runs in another thread, because it may read a file.
    recorded: Callable[[str], TurnRecord | None] = lambda address: None
    summaries: dict[str, tuple[int, Summary]] = field(default_factory=dict)

    async def turn(self, id: str) -> TurnRecord:
        """Return a turn of the running program by its id, or a recorded one by its address (see `recorded.turn_at`)."""
        builder = self.recorder.find(id)
        found = builder.record() if builder else self.find(id) or await asyncio.to_thread(self.recorded, id)
        if found is None:
            raise ApiError(f"there is no turn {id[:80]!r}; only the newest ones are kept", status=404, code="no_turn")
        return found

    def summary(self, id: str) -> Summary | None:
        """Return the list entry of a turn of the running program, cached until the turn changes; None if the turn is gone."""
        if (builder := self.recorder.find(id)) is None:
            self.summaries.pop(id, None)
            return None
        kept = self.summaries.get(id)
        if kept is None or kept[0] != builder.version:
            kept = self.summaries[id] = (builder.version, summary_of(builder.record()))
        return kept[1]


def routes(shown: ShownPage) -> list[Route]:
    answers: tuple[tuple[str, str, Callable[[ShownPage, Request], Awaitable[Response]]], ...] = (
        ("GET", "about", _about),
        ("GET", "events", _events),
        ("GET", "turns", _turns),
        ("GET", "turns/{id:path}/events", _turn_events),
        ("GET", "turns/{id:path}/copy", _copy),
        ("GET", "turns/{id:path}", _turn),
        ("POST", "read", _read),
    )
    return [Route(f"/api/{path}", guarded(partial(answer, shown)), methods=[method]) for method, path, answer in answers]


def guarded(answer: Handler) -> Handler:
    """Make a handler that answers errors as JSON."""

    async def handle(request: Request) -> Response:
        try:
            return await answer(request)
        except ApiError as error:
            return json_answer({"error": {"message": error.message, "code": error.code}}, error.status)
        except UsageError as error:
            return json_answer({"error": {"message": str(error)}}, 422)
        except XmlcallError as error:
            return json_answer({"error": {"message": str(error)}}, 502)
        except ClientDisconnect:
            return Response(status_code=499)

    return handle


async def body_of(request: Request) -> dict[str, Any]:
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > BODY_LIMIT:
            raise ApiError(f"expected at most {BODY_LIMIT} bytes", status=413)
    try:
        data = json.loads(bytes(content) or b"{}")
    except (ValueError, RecursionError) as error:
        raise ApiError(f"expected a JSON object: {str(error)[:200]}") from error
    if not isinstance(data, dict) or deeper_than(DEPTH_LIMIT, data):
        raise ApiError(f"expected a JSON object of at most {DEPTH_LIMIT} levels")
    return data


def number_of(request: Request, name: str, default: int, most: int) -> int:
    """Return a query parameter as a whole number, at least 0 and at most `most`."""
    given = request.query_params.get(name, "")
    if given and not (given.isdecimal() and given.isascii() and len(given) < 10):
        raise ApiError(f"{name}: expected a whole number, got {given[:40]!r}")
    return min(int(given), most) if given else default


_FAILED: Final = frozenset(
    [
        *("error", "left", "invalid_calls", "tool_errors", "repeated_call", "invented_results"),
        *("own_words", "no_tool_call", "max_turns", "repetition"),
    ]
)
MATCHES: Final[Mapping[str, Callable[[Summary], bool]]] = {
    "": lambda row: True,
    "calls": lambda row: bool(row["calls"]),
    "repairs": lambda row: bool(row["repairs"]),
    "issues": lambda row: bool(row["issues"]),
    "errors": lambda row: bool(row["error"] or row["verdict"] or row["outcome"] in _FAILED),
}
"""The values of `only`, each with the condition for the turns that it keeps."""


def matching(request: Request, rows: Iterable[Summary]) -> Iterable[Summary]:
    """Return the turns that match a list's filters."""
    only, text = request.query_params.get("only", ""), request.query_params.get("text", "").casefold()
    if only not in MATCHES:
        raise ApiError(f"only: expected one of {', '.join(filter(None, MATCHES))}, got {only[:40]!r}")
    return (row for row in rows if MATCHES[only](row) and (not text or text in _searched(row)))


def _searched(row: Summary) -> str:
    calls = (call["name"] for call in row["calls"])
    return "\n".join((row["question"], row["client"], row["model"], row["error"], *calls)).casefold()


async def _about(shown: ShownPage, request: Request) -> Response:
    return json_answer({"instance": shown.instance, **whys(), "dialects": list(DIALECTS), **shown.about()})


async def _events(shown: ShownPage, request: Request) -> Response:
    async def events() -> AsyncGenerator[Told]:
        yield "hello", {"instance": shown.instance}
        async for ids in shown.recorder.watch():
            for id in ids:
                if (row := shown.summary(id)) is not None:
                    yield "turn", row

    return event_stream(merged(events(), *([shown.news()] if shown.news else [])))


async def _turns(shown: ShownPage, request: Request) -> Response:
    ids = [builder.id for builder in shown.recorder.turns()]
    for gone in shown.summaries.keys() - set(ids):
        del shown.summaries[gone]
    if (before := request.query_params.get("before")) in ids:
        ids = ids[ids.index(before) + 1 :]
    limit = number_of(request, "limit", 100, LIST_LIMIT)
    rows = matching(request, (row for id in ids if (row := shown.summary(id)) is not None))
    found = list(islice(rows, limit + 1))
    return json_answer({"turns": found[:limit], "more": len(found) > limit})


async def _turn(shown: ShownPage, request: Request) -> Response:
    return json_answer(record_to_json(await shown.turn(request.path_params["id"])))


async def _turn_events(shown: ShownPage, request: Request) -> Response:
    id = request.path_params["id"]
    if shown.recorder.find(id) is not None:
        return event_stream(merged(turn_events(shown.recorder, id)))
    data = record_to_json(await shown.turn(id))

    async def kept() -> AsyncGenerator[Told]:
        yield "turn", data
        yield "end", {"id": id}

    return event_stream(merged(kept()))


async def _copy(shown: ShownPage, request: Request) -> Response:
    turn, number = await shown.turn(request.path_params["id"]), number_of(request, "reply", 1, 10_000)
    if not 1 <= number <= len(turn.replies):
        raise ApiError(f"the turn has {len(turn.replies)} replies, and no number {number}", status=404)
    wanted = request.query_params.get("as", "")
    curl = partial(as_curl, base_url=shown.url)
    ways: dict[str, Callable[[TurnRecord, int], str]] = {"corpus": as_corpus_case, "curl": curl, "bench": as_bench_case}
    if wanted not in ways:
        raise ApiError(f"as: expected corpus, curl or bench, got {wanted[:40]!r}")
    return PlainTextResponse(ways[wanted](turn, number))


async def _read(shown: ShownPage, request: Request) -> Response:
    asked = await body_of(request)
    text = asked.get("text")
    if not isinstance(text, str):
        raise ApiError("text: expected the reply, a string")
    turn = await shown.turn(str(asked["turn"])) if asked.get("turn") else None
    tools = asked.get("tools", turn.tools if turn else [])
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise ApiError("tools: expected a list of tools as MCP has them, each an object with a name and an inputSchema")
    reply = await asyncio.to_thread(
        read_reply,
        text,
        tools,
        dialect=str(asked.get("dialect") or "auto"),
        reasoning_open=asked.get("reasoning_open") is True,
        finish_reason=str(asked.get("finish_reason") or "stop"),
        conversation=_prompt(turn, asked.get("reply")) if turn else (),
    )
    return json_answer({"reply": record_to_json(reply) | {"prompt": []}})


def _prompt(turn: TurnRecord, number: Any) -> tuple[MessageRecord, ...]:
    """Return the prompt of a reply of a turn; that of its first reply if no reply has this number."""
    found = next((reply for reply in turn.replies if reply.number == number), None)
    return (found or turn.replies[0]).prompt if turn.replies else ()


# -- answers: JSON and events -----------------------------------------------------------------------------------------


def _json_text(data: Any) -> str:
    """Write a value as JSON; infinities and NaN become strings."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data))


def json_answer(data: Any, status: int = 200) -> Response:
    return Response(_json_text(data), status, media_type="application/json")


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def event_stream(events: AsyncGenerator[Told | None]) -> StreamingResponse:
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
    """Return the event for what is new in a turn: `delta` if only the last reply has grown, else `turn`; None without change.

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
    pairs = zip(old.spans, new.spans, strict=False)
    shared = min(len(old.spans), len(new.spans))
    at = next((place for place, (one, other) in enumerate(pairs) if one != other), shared)
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
