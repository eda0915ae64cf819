"""The same question asked in other ways, side by side: one reply for each way, and no tool runs.

Each way is a `ToolLoop` of its own over the tools of the turn; it is left as soon as its first reply is complete, before any of
its calls is checked. The ways run one after the other, and only one page at a time may ask, because the model server has one
model. When the page is closed, generation ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..dialects import DIALECTS
from ..dialects.write import says
from ..errors import BackendError, UsageError
from ..hosts.local import LocalHost
from ..prompting.format import FAMILIES
from ..proxy.formats.contract import ApiError
from ..tools.catalog import Catalog
from ..turn.asking import AskingFields, Mode
from ..turn.attempts import RepairPolicy
from ..turn.events import ReplyEnded
from ..turn_records.builder import RecordingBackend, TurnBuilder
from ..turn_records.reading import as_messages
from ..turn_records.record import TurnRecord, is_tool_prompt, record_to_json
from ..types.calls import Message, Tool
from .api import ShownPage, Told, body_of, event_stream, guarded, merged

MOST_WAYS: Final = 8
MOST_TOKENS: Final = 1024  # most tokens of a reply
TELL_SECONDS: Final = 0.2  # between two words on a reply that is being written
_MODES: Final[Mapping[str, Mode]] = {"xml": "xml", "native": "native"}


def routes(shown: ShownPage, backend: Callable[[], Backend]) -> list[Route]:
    asking = asyncio.Lock()

    async def ask(request: Request) -> Response:
        body = await body_of(request)
        id, ways = str(body.get("turn") or ""), [_way(each) for each in _ways(body)]
        turn, builder = await shown.turn(id), shown.recorder.find(id)
        if asking.locked():
            raise ApiError("another page is asking just now; wait until it has its answers", status=409, code="other_page_asks")
        said = _to_question((builder.conversation if builder else ()) or _messages(turn), turn.question)
        return event_stream(merged(_answers(asking, backend(), turn, said, ways)))

    return [Route("/api/ask", guarded(ask), methods=["POST"])]


def _ways(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    ways = body.get("ways")
    if not isinstance(ways, list) or not 1 <= len(ways) <= MOST_WAYS or not all(isinstance(way, dict) for way in ways):
        raise ApiError(f"ways: expected 1 to {MOST_WAYS} objects such as {{'mode': 'xml'}}")
    return ways


def _way(given: Mapping[str, Any]) -> AskingFields:
    mode, threshold = _MODES.get(str(given.get("mode"))), given.get("call_threshold")
    dialect, family = given.get("dialect") or "function_calls", given.get("family") or "list"
    if mode is None or dialect not in DIALECTS or family not in FAMILIES:
        raise ApiError(f"expected a way with a mode of {', '.join(_MODES)}, a known format and family, got {str(given)[:200]}")
    if not (threshold in (None, "auto") or isinstance(threshold, int | float)):
        raise ApiError(f"call_threshold: expected a number, 'auto' or null, got {str(threshold)[:40]!r}")
    return {"mode": mode, "dialect": dialect, "family": family, "call_threshold": threshold}


def _messages(turn: TurnRecord) -> tuple[Message, ...]:
    """Return the conversation of a turn that is kept, without the description of its tools, which are described again."""
    catalog = Catalog.of(turn.tools)
    prompt = turn.replies[0].prompt if turn.replies else ()
    said = [each for each in prompt if not (each.role == "system" and is_tool_prompt(each.content, catalog))]
    return as_messages(said)


def _to_question(messages: Sequence[Message], question: str) -> tuple[Message, ...]:
    """Cut a conversation after the user's last message, and drop what this program appended to that message."""
    asked = max((place for place, each in enumerate(messages) if each.role == "user"), default=None)
    if asked is None:
        return (Message(role="user", content=question),)
    last = messages[asked]
    content = question if question and says(last, question) else last.content
    return (*messages[:asked], replace(last, content=content))


async def _answers(
    asking: asyncio.Lock, backend: Backend, turn: TurnRecord, messages: Sequence[Message], ways: Sequence[AskingFields]
) -> AsyncGenerator[Told]:
    async with asking:
        for place, way in enumerate(ways):
            async with aclosing(_answer(backend, turn, messages, way)) as events:
                async for each in events:
                    yield "way", {"place": place, **each}
    yield "end", {}


async def _answer(
    backend: Backend, turn: TurnRecord, messages: Sequence[Message], way: AskingFields
) -> AsyncGenerator[dict[str, Any]]:
    tools = [Tool.from_mcp(tool) for tool in turn.tools]
    shown = {"way": way["mode"], "dialect": way["dialect"]}
    builder = TurnBuilder(id="asked", source="chat", tools=tools, conversation=messages, **shown)
    asked: AskingFields = {**way, "lang": turn.lang if turn.lang in ("en", "zh") else "en", "max_tokens": MOST_TOKENS}
    clock = asyncio.get_running_loop().time
    reported, error = clock(), ""
    try:
        loop = ToolLoop(RecordingBackend(backend, builder), [_Offered(tools)], repair=RepairPolicy(max_replies=1), **asked)
        async with loop, aclosing(loop.run(list(messages))) as events:
            async for event in events:
                builder.note(event)
                if clock() - reported >= TELL_SECONDS:
                    reported = clock()
                    yield _reply(builder, is_over=False)
                if isinstance(event, ReplyEnded):
                    break
    except (BackendError, UsageError) as failure:
        error = str(failure)
    yield _reply(builder, is_over=True) | {"error": error}


def _reply(builder: TurnBuilder, *, is_over: bool) -> dict[str, Any]:
    replies = builder.record().replies
    return {"reply": record_to_json(replies[-1]) if replies else None, "is_over": is_over, "error": ""}


class _Offered(LocalHost):
    """Tools that are on offer and never run: a host that has none of their functions."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__((), name="offered")
        self._tools = list(tools)
