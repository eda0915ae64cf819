"""Recorded turns: saved conversations, runs of `bench`, and files of turns.

Runs and files are those that the user named at the program's start; nothing that a page sends is ever used as a path. Each one is
read in a thread when it is first opened, and then cached: a run is judged once, then filtered and shown page by page. A turn is
built only when it is opened. The conversation store is reopened for each request, because other programs write to it.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..bench.as_turns import turn_of_row
from ..bench.funnel import Verdict
from ..bench.report import judged
from ..bench.store import RecordedRun, read_run
from ..errors import UsageError
from ..proxy.formats.contract import ApiError
from ..records.store import Store
from ..turn_records.kept import turns_of
from ..turn_records.lines import read_lines
from ..turn_records.record import TurnRecord, record_to_json, summary_of
from ..types.calls import InvalidCall
from .api import guarded, json_answer, matching, number_of

LIMIT: Final = 500  # rows in one answer
_FILTERS: Final = ("way", "failure", "repair", "tool")
Row = Mapping[str, Any]


@dataclass(slots=True)
class Recorded:
    store: Path
    runs: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    opened: dict[str, Any] = field(default_factory=dict)
    reading: threading.Lock = field(default_factory=threading.Lock)

    def once(self, kind: str, name: str, read: Callable[[Path], Any]) -> Any:
        """Read a run or a file on first use, and cache it; safe to call from several threads."""
        paths: Mapping[str, Path] = getattr(self, kind)
        if name not in paths:
            raise ApiError(f"{name[:80]!r} is not among the runs and files given at startup", status=404)
        with self.reading:
            key = f"{kind} {name}"
            if key not in self.opened:
                self.opened[key] = read(paths[name])
            return self.opened[key]


def named_paths(paths: Iterable[str]) -> tuple[dict[str, Path], dict[str, Path]]:
    """Separate runs of `bench` from files, and name each."""
    runs: dict[str, Path] = {}
    files: dict[str, Path] = {}
    for given in paths:
        path = Path(given).expanduser()
        if (path / "run.json").is_file():
            runs[_free(path.resolve().name, runs)] = path
        elif path.is_dir() and (found := sorted(path.glob("*.jsonl"))):
            files |= {_free(each.name, files): each for each in found}
        elif path.is_file():
            files[_free(path.name, files)] = path
        else:
            raise UsageError(
                f"{given}: expected the folder of a run, a file of turns or replies (.jsonl), or a folder of such files"
            )
    return runs, files


def _free(name: str, taken: Mapping[str, Path]) -> str:
    number = 1
    while (free := name if number == 1 else f"{name} ({number})") in taken:
        number += 1
    return free


def turn_at(recorded: Recorded, address: str) -> TurnRecord | None:
    """Return a turn by its address on the page; None if there is none. It may read files."""
    kind, *parts = map(unquote, address.split("/"))
    match kind, parts:
        case "run", (name, case, way):
            return _turn_of_run(recorded, name, case, way)
        case "file", (name, id):
            return _turn_of_file(recorded, name, id)
        case "conversation", (conversation, id):
            return next((turn for turn in _turns_of_conversation(recorded, conversation)[1] if turn.id == id), None)
    return None


def routes(recorded: Recorded, live: Callable[[str], TurnRecord | None] = lambda id: None) -> list[Route]:
    """Return the routes of recordings; `live` finds turns of the running program, which may be newer than their record."""
    answers: Sequence[tuple[str, Callable[[Recorded, Request], Awaitable[Response]]]] = (
        ("recorded", _recorded),
        ("conversations/{id}", partial(_conversation, live)),
        ("runs/{name}", _run),
        ("files/{name}", _file),
    )
    return [Route(f"/api/{path}", guarded(partial(answer, recorded)), methods=["GET"]) for path, answer in answers]


async def _recorded(recorded: Recorded, request: Request) -> Response:
    def listed() -> list[dict[str, Any]]:
        with Store(recorded.store) as store:
            return [asdict(each) for each in store.listed(LIMIT)]

    runs, files = [{"name": name} for name in recorded.runs], [{"name": name} for name in recorded.files]
    return json_answer({"conversations": await asyncio.to_thread(listed), "runs": runs, "files": files})


async def _conversation(live: Callable[[str], TurnRecord | None], recorded: Recorded, request: Request) -> Response:
    about, turns = await asyncio.to_thread(_turns_of_conversation, recorded, request.path_params["id"])
    return json_answer({"conversation": about, "turns": [record_to_json(live(turn.id) or turn) for turn in turns]})


def _turns_of_conversation(recorded: Recorded, id: str) -> tuple[dict[str, Any], list[TurnRecord]]:
    with Store(recorded.store) as store:
        found = store.find(id)
        return asdict(found), turns_of(store, found.id)


# -- runs --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    run: RecordedRun
    verdicts: Mapping[tuple[str, str], Verdict]
    rows: Sequence[Row]


def _judged(path: Path) -> _Judged:
    run = read_run(path)
    found = asyncio.run(judged(run))
    verdicts = {(verdict.case.id, way): verdict for way, all in found.items() for verdict in all}
    rows = [_row(run, way, verdict) for (_, way), verdict in verdicts.items()]
    return _Judged(run=run, verdicts=verdicts, rows=rows)


def _row(run: RecordedRun, way: str, verdict: Verdict) -> Row:
    """Return what a list shows of a reply, with its calls as judged."""
    usages = [kept.get("usage") or {} for kept in verdict.row.get("rounds", ())]
    last = usages[-1] if usages else {}
    calls = [
        {"name": call.name, "outcome": "rejected" if isinstance(call, InvalidCall) else "not started"}
        for call in verdict.reply.calls
    ]
    issues = {issue.code for call in verdict.reply.calls if isinstance(call, InvalidCall) for issue in call.issues}
    row = dict.fromkeys(("began", "client", "dialect", "error"), "") | {"seconds": None, "first_token_seconds": None}
    return row | {
        "id": f"{verdict.case.id} {way}",
        "case": verdict.case.id,
        "source": "run",
        "model": run.about["model"],
        "way": way,
        "outcome": "end",
        "verdict": verdict.failure,
        "question": str(verdict.case.messages[-1]["content"])[:200],
        "replies": len(usages) or 1,
        **{name: last.get(name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
        "calls": calls,
        "repairs": sorted(set(verdict.repairs)),
        "issues": sorted(issues),
    }


def _values(row: Row) -> dict[str, set[str]]:
    tools = {call["name"] for call in row["calls"]}
    return {"way": {row["way"]}, "failure": {row["verdict"] or "none"}, "repair": set(row["repairs"]), "tool": tools}


async def _run(recorded: Recorded, request: Request) -> Response:
    found: _Judged = await asyncio.to_thread(recorded.once, "runs", request.path_params["name"], _judged)
    wanted = {name: value for name in _FILTERS if (value := request.query_params.get(name))}
    rows = [row for row in matching(request, found.rows) if all(value in _values(row)[name] for name, value in wanted.items())]
    counted = [_values(row) for row in rows]
    offset, limit = number_of(request, "offset", 0, 10**9), number_of(request, "limit", 100, LIMIT)
    filters = {name: dict(Counter(value for each in counted for value in each[name]).most_common(200)) for name in _FILTERS}
    about = {name: found.run.about.get(name) for name in ("model", "suite", "ways", "started")}
    return json_answer({"about": about, "rows": rows[offset : offset + limit], "total": len(rows), "filters": filters})


def _turn_of_run(recorded: Recorded, name: str, case: str, way: str) -> TurnRecord:
    found: _Judged = recorded.once("runs", name, _judged)
    verdict = found.verdicts.get((case, way))
    if verdict is None:
        raise ApiError(f"the run has no reply to {case[:80]!r} in the way {way[:40]!r}", status=404)
    return replace(turn_of_row(found.run, verdict.case, verdict.row, way), verdict=verdict.failure)


# -- files -------------------------------------------------------------------------------------------------------------------


def _turns_in(path: Path) -> dict[str, tuple[Row, TurnRecord]]:
    """Read the turns of a file by id; one whose id is missing or already taken has the number of its line."""
    turns: dict[str, tuple[Row, TurnRecord]] = {}
    for number, turn in enumerate(read_lines(path), start=1):
        id = turn.id if turn.id and turn.id not in turns else f"line-{number}"
        named = replace(turn, id=id)
        turns[id] = summary_of(named), named
    return turns


async def _file(recorded: Recorded, request: Request) -> Response:
    found = await asyncio.to_thread(recorded.once, "files", request.path_params["name"], _turns_in)
    rows = list(matching(request, (row for row, _ in found.values())))
    offset, limit = number_of(request, "offset", 0, 10**9), number_of(request, "limit", 100, LIMIT)
    return json_answer({"turns": rows[offset : offset + limit], "total": len(rows)})


def _turn_of_file(recorded: Recorded, name: str, id: str) -> TurnRecord:
    found: Mapping[str, tuple[Row, TurnRecord]] = recorded.once("files", name, _turns_in)
    if (kept := found.get(id)) is None:
        raise ApiError("the file has no such turn", status=404)
    return kept[1]
