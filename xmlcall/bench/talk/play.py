"""Plays a conversation with a model, through the same `ToolLoop` that `xmlcall chat` uses, with real MCP servers.

The history is the model's own, so a wrong turn affects the turns after it, as it would for a user. A turn that does not end in an
answer leaves the conversation unchanged, as in `xmlcall chat`. Every call is allowed.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...agent.loop import ToolLoop
from ...backends.base import Backend
from ...errors import ContextOverflow
from ...hosts.base import Host, OnProgress
from ...hosts.local import LocalHost
from ...hosts.mcp.host import McpHost
from ...prompting.writer import in_text
from ...tools.catalog import Catalog
from ...turn.events import Answer, CallFinished, LoopEvent
from ...turn.tool_need import ToolNeed
from ...types.calls import Message, TextContent, ToolResult
from ...types.completion import Usage
from ..case import Case, messages_of
from ..own_suites import CANNED, canned_tools
from ..store import PlayedTurn, ReplyRecorder, kept_tools
from .judge import CALLED, judge_turn
from .servers import lay_out, occupied, server_of

_FILE_LIMIT = 10_000  # characters of a file that are kept
_START_SECONDS = 180.0  # for a server to start, beside a model that takes the whole machine


@dataclass(slots=True)
class _Played(PlayedTurn):
    need: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    seconds: float = 0.0

    def note(self, event: LoopEvent) -> None:
        if isinstance(event, ToolNeed):
            self.need = {name: getattr(event, name) for name in ("log_odds", "number", "threshold", "tool")}
        PlayedTurn.note(self, event)


async def converse(case: Case, backend: Backend, *, offers: bool = True, **options: Any) -> dict[str, Any]:
    """Play a conversation and judge its turns.

    Returns:
        A JSON object: `valid` (all turns are right), `error` and `failed_turn` (of the first that is not), `folder`, `turns`
        (each with `replies`, all that the model wrote, `calls`, `answer`, `stop_reason`, `files`, `need`, `usage`, `seconds`),
        their `usage`, and `tools`, those that were called.
    """
    if all(name.startswith(CANNED) for name in case.servers):
        return await _converse(case, backend, Path(), offers, options)
    async with occupied(case.id):
        return await _converse(case, backend, lay_out(case.id, case.servers, case.category), offers, options)


async def _converse(case: Case, backend: Backend, place: Path, offers: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    hosts = [_host(name, place) for name in case.servers] if offers else []
    recorder, turns = ReplyRecorder(backend), list[_Played]()
    async with ToolLoop(recorder, hosts, policy=["*"], **options) as loop:
        messages = await _before(case, loop)
        for expected in case.turns:
            turns.append(turn := _Played(replies=recorder.begin_turn()))
            asked = Message(role="user", content=expected["say"].replace("{folder}", str(place)))
            messages = await _turn(loop, [*messages, asked], turn, expected.get("ends_with_call", False)) or messages
            turn.files = _files(place, expected)
        tools = kept_tools(await loop.catalog(), [turn.calls for turn in turns])
    return {**_outcome(case, turns, str(place)), "tools": tools}


def _host(name: str, place: Path) -> Host:
    if name.startswith(CANNED):
        catalog = name.removeprefix(CANNED)
        return CannedHost(catalog, canned_tools(catalog))
    return McpHost(server_of(name, place), connect_timeout=_START_SECONDS)


async def _before(case: Case, loop: ToolLoop) -> list[Message]:
    """Return what was said before the turns that are played; without tools, what was called is left out."""
    rows, catalog = case.messages[: -len(case.turns)], await loop.catalog()
    if not catalog:
        rows = tuple(row for row in rows if row["content"] and row["role"] != "tool")
    messages = messages_of(rows)
    return in_text(messages, catalog, loop.format) if loop.mode == "xml" else messages


async def _turn(loop: ToolLoop, messages: Sequence[Message], turn: _Played, ends_with_call: bool) -> list[Message]:
    """Play a turn; return the conversation after it, none if it did not end in an answer."""
    started = time.monotonic()
    after: list[Message] = []
    try:
        async with aclosing(loop.run(messages)) as events:
            async for event in events:
                turn.note(event)
                if ends_with_call and isinstance(event, CallFinished):
                    turn.stop_reason = CALLED
                    break
                if isinstance(event, Answer) and event.messages[-1].role == "assistant":
                    after = list(event.messages)
    except ContextOverflow:
        turn.stop_reason = "context_overflow"
    turn.seconds = round(time.monotonic() - started, 3)
    return after


def _files(place: Path, expected: Mapping[str, Any]) -> dict[str, str | None]:
    """Read the file that a turn had to change; a file that is not there is kept as None."""
    if not (state := expected.get("state")):
        return {}
    file = place / state["path"]
    return {state["path"]: file.read_text(encoding="utf-8", errors="replace")[:_FILE_LIMIT] if file.is_file() else None}


def _outcome(case: Case, turns: Sequence[_Played], folder: str) -> dict[str, Any]:
    played = [asdict(turn) for turn in turns]
    errors = [judge_turn(expected, turn, folder) for expected, turn in zip(case.turns, played, strict=True)]
    failed = next((number for number, error in enumerate(errors) if error), None)
    return {
        "valid": failed is None,
        "error": "" if failed is None else errors[failed],
        "failed_turn": failed,
        "folder": folder,
        "turns": played,
        "usage": asdict(sum((turn.usage for turn in turns), Usage())),
    }


# -- a server of the suites ordinary and needed ------------------------------------------------------------------------


class CannedHost(LocalHost):
    """A `Host` whose tools all say that they are done."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        super().__init__((), name=name)
        self._tools = list(catalog)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        return ToolResult(content=(TextContent(text="Done."),))
