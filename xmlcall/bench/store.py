"""A run on disk: one folder, which is only ever appended to.

`run.json` states what was measured, and with what. `cases.jsonl` holds the cases, so that a run can be read, judged and shown
again without its source data. `replies.jsonl` has one line per case and way, written when the reply is complete. So a crash loses
at most the replies in progress, and a line that it cut off is dropped on the next start. The key of a line is the hash of its
request, so a changed request is never mistaken for one that was answered.

A finished run may be packed: `replies.jsonl.gz`, and in place of `cases.jsonl` the file `../../cases/FINGERPRINT.jsonl.gz`, which
all runs of these cases share. It reads as before, and is unpacked when replies are added.

Everything that is read is checked first. Otherwise a line that is not a reply would cause a traceback, and cases other than those
that were asked would cause wrong figures.
"""

import contextlib
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast, get_args, get_type_hints

import filelock
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ..backends.base import Backend, KeptOpen
from ..errors import UsageError, XmlcallError
from ..prompting.results import result_text
from ..tools.catalog import Catalog
from ..turn.asking import Sampling
from ..turn.events import Answer, CallDenied, CallFinished, CallRejected, LoopEvent, ReplyEnded
from ..turn.tool_need import ToolNeed
from ..types.calls import InvalidCall, Tool, ToolCall
from ..types.completion import Chunk, CompletionRequest, Usage
from .case import Case, case_to_json
from .ways import OF_WAY, AskedCase, Settings

_FORMAT = 1  # version of the files' format; raised when older readers would misread them
_DESCRIPTIVE = ("started", "command", "commit", "machine", "python")  # may differ when a run is continued
_UNFINISHED = frozenset({"lock", "cases.jsonl", "cases.jsonl.part", "run.json.part"})  # left by an interrupted start
_REMOVE_LINE = "take the line out, or begin a new run"
_RESTORE_FILE = "bring the file back from a copy, or begin a new run"


class RunError(XmlcallError):
    """A run cannot be read or added to."""


class RecordedRun:
    def __init__(self, folder: Path, about: dict[str, Any], cases: list[Case], replies: list[dict[str, Any]]) -> None:
        self.folder, self.about, self.cases, self.replies = folder, about, cases, replies
        self.by_id = {case.id: case for case in cases}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other processes, and load its replies; an incomplete last line is removed."""
        with _locked(self.folder):
            file, packed = self.folder / "replies.jsonl", self.folder / "replies.jsonl.gz"
            if packed.is_file() and not file.exists():
                write_whole(file, gzip.decompress(packed.read_bytes()))
                packed.unlink()
            if file.exists():
                os.truncate(file, len(_whole_lines(file.read_bytes())))
            self.replies = _read_replies(self.folder, _ADDED)
            yield

    @property
    def settings(self) -> Settings:
        """The settings that all replies were generated with."""
        return Settings(**{name: value for name, value in self.about["settings"].items() if name not in _GONE})

    def done(self) -> set[str]:
        return {reply["key"] for reply in self.replies}

    def add(self, reply: dict[str, Any]) -> None:
        """Append a reply; when this returns, the system has its complete line."""
        self.replies.append(reply)
        line = json.dumps(reply, ensure_ascii=False) + "\n"
        with open(self.folder / "replies.jsonl", "ab") as file:
            file.write(line.encode("utf-8", "surrogatepass"))

    def of_way(self, way: str) -> list[tuple[Case, dict[str, Any]]]:
        """Return the cases of a way that have a reply, in the order drawn."""
        found = {reply["case"]: reply for reply in self.replies if reply["way"] == way}
        return [(case, found[case.id]) for case in self.cases if case.id in found]


def create_or_resume(folder: Path, about: Mapping[str, Any], cases: Iterable[Case]) -> RecordedRun:
    about = {"format": _FORMAT, **about}
    folder.mkdir(parents=True, exist_ok=True)
    names = {file.name for file in folder.iterdir()}
    if "run.json" not in names:
        # Every run takes the lock first. Without a lock, files of these names belong to another program.
        if others := sorted(names - (_UNFINISHED if "lock" in names else frozenset())):
            raise UsageError(
                f"expected a new folder or a run in {folder}, got a folder with other files in it ({', '.join(others[:3])}): "
                "give another folder with --out"
            )
        _create(folder, about, cases)
    run = read_run(folder)
    known = json.loads(json.dumps(about))
    # What an earlier version did not record yet cannot be compared.
    changed = [key for key in (run.about.keys() & known.keys()) - {*_DESCRIPTIVE} if run.about[key] != known[key]]
    if changed:
        differences = "; ".join(f"{key}: was {run.about[key]!r:.80}, is {known[key]!r:.80}" for key in sorted(changed))
        raise UsageError(
            f"the run in {folder} was made with another configuration ({differences}): give another folder with --out"
        )
    return run


def _create(folder: Path, about: Mapping[str, Any], cases: Iterable[Case]) -> None:
    """Write the first files of a run, `run.json` last: a folder without it is not yet a run."""
    with _locked(folder):
        if (folder / "run.json").exists():  # left by a process that had the lock before
            return
        lines = (json.dumps(case_to_json(case), ensure_ascii=False) + "\n" for case in cases)
        write_whole(folder / "cases.jsonl", "".join(lines))
        write_whole(folder / "run.json", json.dumps(about, ensure_ascii=False, indent=1) + "\n")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        held = filelock.FileLock(folder / "lock", timeout=0).acquire()
    except filelock.Timeout:
        raise RunError(f"another process is adding to the run in {folder}: wait for it, or give another folder") from None
    with held:
        yield


def write_whole(file: Path, content: str | bytes) -> None:
    """Replace a file at once: readers see its old content or its new content, never a part."""
    part = file.with_name(file.name + ".part")
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    part.replace(file)


# -- packed runs -------------------------------------------------------------------------------------------------------


def open_file(folder: Path, name: str) -> BinaryIO:
    """Open `cases.jsonl` or `replies.jsonl` of a run, packed or not."""
    if (folder / name).is_file():
        return open(folder / name, "rb")
    packed = shared_cases(folder) if name == "cases.jsonl" else folder / f"{name}.gz"
    return cast(BinaryIO, gzip.open(packed, "rb"))


def shared_cases(folder: Path) -> Path:
    """Return the file that packed runs of the same cases share."""
    fingerprint = str(read_about(folder).get("cases", "none"))
    return folder.resolve().parents[1] / "cases" / f"{fingerprint}.jsonl.gz"


# -- reading -----------------------------------------------------------------------------------------------------------


def read_run(folder: Path) -> RecordedRun:
    about = read_about(folder)
    run = RecordedRun(folder, about, _read_cases(folder, about), _read_replies(folder, _REPLY))
    _check_conversations(run)
    return run


def read_about(folder: Path) -> dict[str, Any]:
    if not (folder / "run.json").is_file():
        raise UsageError(f"expected the folder of a run of `xmlcall bench run`, got {folder}, which has no run.json")
    about: dict[str, Any] = read_json(folder / "run.json", {"type": "object"}, _RESTORE_FILE)
    if about.get("format") != _FORMAT:
        raise UsageError(f"the run in {folder} has format {about.get('format')!r:.80}, this version reads {_FORMAT}")
    _check(about, _ABOUT, folder / "run.json", _RESTORE_FILE)
    return about


def read_json(file: Path, schema: Mapping[str, Any], remedy: str) -> Any:
    content = _parsed(_decoded(file.read_bytes(), file, remedy), file, remedy)
    _check(content, schema, file, remedy)
    return content


def _read_cases(folder: Path, about: dict[str, Any]) -> list[Case]:
    """Read the cases, which must be those that were asked, if that was recorded."""
    file, content = folder / "cases.jsonl", _content(folder, "cases.jsonl")
    if content is None:
        raise RunError(f"expected the cases of the run in {file}, which is missing: {_RESTORE_FILE}")
    rows = list(_lines(content, file, _RESTORE_FILE))
    cases = [_case_from_json(row, f"{file}, line {number}") for number, row in rows]
    found = _fingerprint(row for _, row in rows)
    if about.get("cases", found) != found:
        raise RunError(f"{file} is damaged: it holds {len(cases)} cases that are not those of run.json: {_RESTORE_FILE}")
    return cases


def _fingerprint(rows: Iterable[Mapping[str, Any]]) -> str:
    """Hash cases as `suites.fingerprint` does, but in their saved form: without fields that were added to `Case` later."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()[:16]


def _case_from_json(row: Any, place: str) -> Case:
    try:
        return Case(
            **{
                **row,
                "messages": tuple(row["messages"]),
                "tools": tuple(Tool(**tool) for tool in row["tools"]),
                "answers": tuple(row["answers"]),
                "exact": tuple((name, arguments) for name, arguments in row["exact"]),
                "servers": tuple(row.get("servers", ())),
                "turns": tuple(row.get("turns", ())),
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        problem = f"expected a case, got {_shortened(repr(row))} ({type(error).__name__}: {error})"
        raise RunError(f"{place} is damaged: {problem}: {_RESTORE_FILE}") from error


def _read_replies(folder: Path, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the replies without a last line that was cut, or that another process is writing."""
    file, content = folder / "replies.jsonl", _content(folder, "replies.jsonl")
    rows = list(_lines(_whole_lines(content or b""), file, _REMOVE_LINE))
    for number, reply in rows:
        _check(reply, schema, f"{file}, line {number}", _REMOVE_LINE)
    return [reply for _, reply in rows]


def _check_conversations(run: RecordedRun) -> None:
    """Check that conversations were kept with all that is needed to judge each turn again."""
    for reply in run.replies:
        case = run.by_id.get(reply["case"])
        if case is not None and case.expects == "talk":
            turns = _array(_TALK_TURN, minItems=len(case.turns), maxItems=len(case.turns))
            schema = _object("outcome", outcome=_object("folder", "turns", folder=_STRING, turns=turns))
            _check(reply, schema, f"{run.folder / 'replies.jsonl'}, conversation {case.id}", _REMOVE_LINE)


def _content(folder: Path, name: str) -> bytes | None:
    try:
        with open_file(folder, name) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error) as error:
        raise RunError(f"{folder / name} is damaged: {error}: {_RESTORE_FILE}") from error


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def _lines(content: bytes, file: Path, remedy: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_decoded(content, file, remedy).split("\n"), 1):
        if line.strip():
            yield number, _parsed(line, f"{file}, line {number}", remedy)


def _decoded(content: bytes, file: Path, remedy: str) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is damaged: {error}: {remedy}") from error


def _parsed(text: str, place: Path | str, remedy: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place} is damaged: {error}: {remedy}") from error


def _check(content: Any, schema: Mapping[str, Any], place: Path | str, remedy: str) -> None:
    if error := best_match(Draft202012Validator(schema).iter_errors(content)):
        raise RunError(f"{place} is damaged: {_shortened(error.message)}, at {error.json_path}: {remedy}")


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-80:]}"


# -- keys --------------------------------------------------------------------------------------------------------------


def request_key(asked: AskedCase, model: str) -> str:
    """Hash a request: the same key means that the same reply is expected."""
    way, case = asked.way, asked.case
    tools = [[tool.name, tool.description, tool.input_schema] for tool in case.tools] if way.is_native else []
    messages = [[message.role, message.content] for message in asked.messages]
    request = [model, way.name, case.id, messages, tools, asked.settings.to_json()]
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


# -- what the files of a run must look like ----------------------------------------------------------------------------
# A later version may add fields anywhere except in the settings, because they decide how a run is read.


_GONE: Final = frozenset({"constrain"})
"""Settings of recorded runs that no longer exist. They never affected how a reply is judged."""


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _array(items: Mapping[str, Any], **more: int) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_STRING, _NUMBER, _NUMBER_OR_NOT = {"type": "string"}, {"type": "number"}, {"type": ["number", "null"]}
_USAGE = {"type": ["object", "null"], "properties": {"is_estimated": {"type": "boolean"}}, "additionalProperties": _NUMBER_OR_NOT}
_ROUND = _object(
    **dict.fromkeys(("text", "reasoning", "finish_reason"), _STRING),
    **dict.fromkeys(("usage", "need_usage"), _USAGE),
    **dict.fromkeys(("seconds", "first_event_seconds"), _NUMBER),
    **dict.fromkeys(("log_odds", "score", "moved", "named", "threshold"), _NUMBER_OR_NOT),
    calls=_array(_array(_STRING, minItems=2, maxItems=2)),
    described=_array(_STRING),
)
_TURN = _object("replies", "calls", "stop_reason", replies=_array(_STRING), calls=_array(_object()), stop_reason=_STRING)
_TOOL = _object(*("name", "description", "input_schema"), name=_STRING, description=_STRING, input_schema=_object())
_OUTCOME = _object(
    *("valid", "error", "turns"), valid={"type": "boolean"}, error=_STRING, turns=_array(_TURN, minItems=1), tools=_array(_TOOL)
)
_KEY = {"key": _STRING, "case": _STRING, "way": _STRING}
_REPLY = _object(*_KEY, "rounds", **_KEY, rounds=_array(_ROUND, minItems=1), outcome=_OUTCOME)
_PLAYED_CALL = {**_object("name", name=_STRING, result=_STRING), "dependentRequired": {"result": ["is_error"]}}
_TALK_TURN = _object(
    *("calls", "answer", "stop_reason", "files", "usage", "seconds"),
    calls=_array(_PLAYED_CALL),
    answer=_STRING,
    files={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    usage=_USAGE,
    seconds=_NUMBER,
)
_ADDED = _object(*_KEY, **_KEY)  # required of a line that another process added after the run was read
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_SETTINGS: dict[str, Any] = {
    name: {"type": [_JSON_TYPES[each] for each in get_args(hint) or (hint,) if each in _JSON_TYPES]}
    for name, hint in get_type_hints(Settings).items()
    if name not in OF_WAY
}
_SETTINGS["call_threshold"] = {"anyOf": [_NUMBER_OR_NOT, {"const": "auto"}]}
_SETTINGS["sampling"] = {"enum": list(get_args(Sampling))}
_SETTINGS |= {name: {} for name in _GONE}
_ABOUT = _object(
    *("ways", "settings"), ways=_array(_STRING, minItems=1), settings={**_object(**_SETTINGS), "additionalProperties": False}
)


# -- what is kept of a played conversation -----------------------------------------------------------------------------


class ReplyRecorder(KeptOpen):
    """A backend that keeps what the model writes, turn by turn; calls that the server parsed are kept as it reported them."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._replies: list[str] = []

    def begin_turn(self) -> list[str]:
        """Return the list to which replies are added from now on."""
        self._replies = []
        return self._replies

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        replies, text = self._replies, ""
        try:
            async with aclosing(self._backend.stream(request)) as stream:
                async for chunk in stream:
                    text += chunk.text + "".join(call.text for call in chunk.tool_calls)
                    yield chunk
        finally:
            if not request.top_logprobs:  # the question whether a tool is needed is not a reply
                replies.append(text)


@dataclass(slots=True)
class PlayedTurn:
    replies: list[str]
    calls: list[dict[str, Any]] = field(default_factory=list)
    answer: str = ""
    stop_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    need: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    seconds: float = 0.0

    def note(self, event: LoopEvent) -> None:
        match event:
            case ToolNeed():
                self.need = {name: getattr(event, name) for name in ("log_odds", "number", "threshold", "tool")}
            case ReplyEnded(usage=usage):
                self.usage = self.usage + usage
            case CallFinished(call=call, result=result):
                self._keep(call, arguments=call.arguments, result=result_text(result), is_error=result.is_error)
            case CallDenied(call=call, reason=reason):
                self._keep(call, arguments=call.arguments, denied=reason)
            case CallRejected(call=call):
                issues = [{"code": issue.code, "path": issue.path, "message": issue.message} for issue in call.issues]
                self._keep(call, issues=issues)
            case Answer(text=text, stop_reason=stop_reason):
                self.answer, self.stop_reason = text, stop_reason

    def _keep(self, call: ToolCall | InvalidCall, **more: Any) -> None:
        self.calls.append({"name": call.name, "reply": len(self.replies), **more})  # the number of the reply, from 1


def kept_tools(catalog: Catalog, turns: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the tools that were called, to recognize values that come from their schemas."""
    called = dict.fromkeys(call["name"] for calls in turns for call in calls)
    tools = [tool for name in called if (tool := catalog.get(name))]
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]


def tools_kept_in(outcome: Mapping[str, Any]) -> list[Tool]:
    rows = outcome.get("tools", ())
    return [Tool(name=row["name"], description=row["description"], input_schema=row["input_schema"]) for row in rows]
