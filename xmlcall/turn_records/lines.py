"""Writes turns to files, one JSON object per line, as they end, and reads them again. Also reads replies of any origin as turns.

Secrets are masked before writing. Names of parameters identify them, as in the audit; the same values are masked everywhere. A
mask and the secret it replaces differ in length, so the places in the text of a reply are moved accordingly. If a reply contains
the name of a secret but its value cannot be identified, the whole text of the reply is left out.

Each line is one write under a lock, so several programs can append to one file. If a line was cut off, for example by a full
disk, the next turn starts a new line.

The input may be hostile, so every value is checked against the fields of the records, and every place against its text, before a
turn is built. Reading stops at the first line that is not a turn, with an error that gives the line's number.
"""

import dataclasses
import json
import logging
import queue
import threading
import types
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from ..errors import UsageError
from ..records.audit import MASK, apart, is_secret, masked, secret_places, secrets_in, shows_secret
from ..records.folder import append_line
from ..tools.catalog import Catalog
from ..types.calls import Span
from .builder import TurnBuilder
from .reading import as_messages, read_reply, tools_told
from .record import ReplyRecord, TurnRecord, record_to_json

_LONGEST: Final = 64 * 1024 * 1024  # bytes of a line
_TEXTS: Final = ("raw", "text", "reply")
_SHOWN: Final = 100  # characters of a value in an error


def append_turn(path: Path | str, turn: TurnRecord) -> None:
    """Append a turn to a file, which is its owner's alone, with its secrets masked."""
    append_line(Path(path), json.dumps(without_secrets(turn)))  # in ASCII, because lone surrogates are not valid UTF-8


def read_lines(path: Path | str) -> Iterator[TurnRecord]:
    """Read a file of turns, or of replies; a `UsageError` says which line is neither.

    A line is a turn as `append_turn` writes it, or a reply: a string, or an object with its text as `raw`, `text` or `reply`,
    and optionally `tools`, `question`, `messages`, `dialect`, `reasoning_open`, `finish_reason`, `model` and `id`. Empty lines
    are ignored, and so is a last line that is still being written.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST + 1), b""), start=1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                if len(line) > _LONGEST:
                    raise UsageError(f"{place}: expected at most {_LONGEST} bytes in a line")
                try:
                    yield _turn(_parsed(line), number)
                except UsageError as error:
                    if isinstance(error, _NotJson) and not line.endswith(b"\n"):
                        return
                    raise UsageError(f"{place}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


class _NotJson(UsageError):
    """A line is not JSON; the last one of a file may still be written."""


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise _NotJson(f"expected JSON: {str(error)[:_SHOWN]}") from None


def _turn(row: Any, number: int) -> TurnRecord:
    if isinstance(row, str):
        return _turn_of_reply({"text": row}, number)
    if not isinstance(row, dict):
        raise UsageError(f"expected a turn or a reply, got {_short(row)}")
    return _read_turn(row) if "replies" in row else _turn_of_reply(row, number)


def _turn_of_reply(row: Mapping[str, Any], number: int) -> TurnRecord:
    text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if text is None:
        raise UsageError(f"expected the text of a reply as one of {', '.join(_TEXTS)}, got {_short(dict(row))}")
    texts = {name: row.get(name, "") for name in ("question", "dialect", "model", "finish_reason")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"expected {name} to be a string, got {_short(value)}")
    tools, messages = row.get("tools") or [], row.get("messages") or []
    for name, value in {"tools": tools, "messages": messages}.items():
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise UsageError(f"expected {name} to be a list of objects, got {_short(value)}")
    if not messages and texts["question"]:
        messages = [{"role": "user", "content": texts["question"]}]
    said = as_messages(messages)
    question = texts["question"] or next((each.content for each in reversed(said) if each.role == "user"), "")
    catalog = _catalog(tools)
    reply = read_reply(
        text,
        catalog,
        dialect=texts["dialect"] or "auto",
        reasoning_open=row.get("reasoning_open") is True,
        finish_reason=texts["finish_reason"] or "stop",
        conversation=said,
    )
    return TurnRecord(
        id=str(row.get("id", number))[:_SHOWN],
        source="file",
        model=texts["model"],
        way="xml",
        dialect=texts["dialect"],
        question=question,
        tools=tools_told(catalog),
        replies=(reply,),
        outcome="end",
        answer=reply.text,
    )


def _catalog(tools: list[dict[str, Any]]) -> Catalog:
    try:
        return Catalog.of(tools)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise UsageError(f"its tools cannot be read: {error}") from None


# -- records from JSON, checked against their fields ---------------------------------------------------------------------------


def _read_turn(row: Any) -> TurnRecord:
    turn: TurnRecord = _fitting(TurnRecord, row, "turn")
    for reply in turn.replies:
        _check_places(reply)
    return turn


def _fitting(kind: Any, value: Any, path: str) -> Any:
    """Convert a JSON value to a type; a value that does not fit is an error with its path."""
    if kind is Any or type(value) is kind:
        return value
    origin, parts = _parts_of(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, path)
    if origin in (Union, types.UnionType):
        return None if value is None else _fitting(parts[0], value, path)
    if origin is tuple:
        items = value if isinstance(value, list) else _refuse(path, "be a list", value)
        return tuple(_fitting(parts[0], each, f"{path}[{place}]") for place, each in enumerate(items))
    if origin is Literal:
        fits, expected = isinstance(value, str) and value in parts, f"be one of {', '.join(map(str, parts))}"
    elif origin is not None:
        fits, expected = isinstance(value, dict), "be an object"
    else:
        fits, expected = kind is float and isinstance(value, int) and not isinstance(value, bool), f"be {kind.__name__}"
    return value if fits else _refuse(path, expected, value)


def _record(kind: Any, row: Any, path: str) -> Any:
    """Read an object, and ignore fields that a later version added."""
    if not isinstance(row, dict):
        _refuse(path, "be an object", row)
    kinds, required = _fields_of(kind)
    if missing := [name for name in required if name not in row]:
        _refuse(path, f"have {' and '.join(missing)}", row)
    return kind(**{name: _fitting(kinds[name], value, f"{path}.{name}") for name, value in row.items() if name in kinds})


@cache
def _parts_of(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _fields_of(kind: Any) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Return the types of a record's fields, and the names of those without a default."""
    none = dataclasses.MISSING
    required = [each.name for each in dataclasses.fields(kind) if each.default is none and each.default_factory is none]
    return get_type_hints(kind), required


def _refuse(path: str, expected: str, got: Any) -> NoReturn:
    raise UsageError(f"expected {path} to {expected}, got {_short(got)}")


def _check_places(reply: ReplyRecord) -> None:
    """Check that the spans tile the text, and that all other places are inside it."""
    at, length = 0, len(reply.raw)
    for span in reply.spans:
        if span.start != at or span.end <= at:
            raise UsageError(f"the spans of reply {reply.number} do not tile its text: one goes from {span.start} to {span.end}")
        at = span.end
    if at != length:
        raise UsageError(f"the spans of reply {reply.number} end at {at}, and its text at {length}")
    values = (value for call in reply.calls for value in call.values)
    marks = (mark for call in reply.calls for mark in (*call.repairs, *call.issues))
    everything: Iterable[Any] = (*reply.repairs, *reply.calls, *values, *marks)
    for placed in everything:
        start, end = placed.start, placed.end
        if (start is None) != (end is None) or (start is not None and end is not None and not 0 <= start <= end <= length):
            raise UsageError(f"a place in reply {reply.number} goes from {start} to {end}, and its text to {length}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# -- turns written by a thread of its own, so that no turn waits for a disk --------------------------------------------
# Turns wait in a bounded queue. If the disk is full or slower than the turns arrive, turns are left out of the file. This is
# logged once, and again only after a turn has been written in between. Nothing here ends the program.

MOST_WAITING: Final = 2000  # turns in the queue; each holds its text
CLOSE_SECONDS: Final = 5.0  # for turns that wait when the program ends

log = logging.getLogger("xmlcall.turn_records")


class LineThread:
    def __init__(self, path: Path, say: Callable[[str], None] = log.warning) -> None:
        self.path = path
        self._say = say
        self._is_said = False
        self._waiting: queue.Queue[TurnBuilder | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="xmlcall-record", daemon=True)
        self._thread.start()

    def append(self, turn: TurnBuilder) -> None:
        """Queue a turn to be written; return at once."""
        try:
            self._waiting.put_nowait(turn)
        except queue.Full:
            self._complain("they come faster than they can be written")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the waiting turns, and end the thread."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            self._complain("the program ends")
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (turn := self._waiting.get()) is not None:
            try:
                append_turn(self.path, turn.record())
                self._is_said = False
            except OSError as error:
                self._complain(error.strerror or str(error))
            except Exception:
                log.exception("a turn could not be recorded")

    def _complain(self, why: str) -> None:
        if not self._is_said:
            self._is_said = True
            self._say(f"turns are not written to {self.path}: {why}; each later turn is tried again")


# -- secrets -------------------------------------------------------------------------------------------------------------

_KEPT = 65_536  # characters; for a longer message of a prompt, the result is not cached


def without_secrets(turn: TurnRecord) -> dict[str, Any]:
    """Return a turn as a JSON object, with a mask in place of each secret."""
    data = record_to_json(turn)
    known = frozenset(_known(data))
    prompts = (message["content"] for reply in data["replies"] for message in reply["prompt"])
    if known or any(map(_shows_any, _texts(data))) or any(map(_prompt_shows_any, prompts)):
        for reply in data["replies"]:
            _mask_reply(reply, known)
        for name in ("question", "answer", "error"):
            data[name] = _text(data[name], known)
    return data


def _known(turn: dict[str, Any]) -> Iterator[str]:
    for reply in turn["replies"]:
        for span in reply["spans"]:
            if span["kind"] == "value" and is_secret(span["about"]):
                yield reply["raw"][span["start"] : span["end"]].strip()
        for call in reply["calls"]:
            yield from secrets_in(call["arguments"] or {})
            yield from secrets_in(call["ran_with"] or {})


def _shows_any(text: str) -> bool:
    return bool(secret_places(text)) or shows_secret(text)


def _prompt_shows_any(text: str) -> bool:
    """Do the same for a message of a prompt; cached, because the description of the tools is the same in every turn."""
    return _shows_any_again(text) if len(text) <= _KEPT else _shows_any(text)


_shows_any_again = lru_cache(maxsize=32)(_shows_any)


def _texts(turn: dict[str, Any]) -> Iterator[str]:
    yield from (turn[name] for name in ("question", "answer", "error"))
    for reply in turn["replies"]:
        yield from (reply["raw"], reply["reasoning"])
        for call in reply["calls"]:
            yield from (call["text"], call["result"] or "", call["reason"], call["failure"])


def _text(text: str, known: frozenset[str]) -> str:
    return _Moved(text, secret_places(text, known)).text


class _Moved:
    """A masked text (`text`), and the new positions of its places."""

    def __init__(self, text: str, places: Sequence[Span]) -> None:
        ends = [0, *(end for _, end in places)]
        kept = [text[end:start] for end, (start, _) in zip(ends, places, strict=False)]
        self.text = "".join(piece + MASK for piece in kept) + text[ends[-1] :]
        self._starts = [start for start, _ in places]
        self._places = places
        self._shifts = [0, *accumulate(len(MASK) - (end - start) for start, end in places)]

    def of(self, place: int) -> int:
        """Return the new position of a place; a place inside a secret moves to the start of its mask."""
        count = bisect_right(self._starts, place - 1)
        if count and place < self._places[count - 1][1]:
            return self._places[count - 1][0] + self._shifts[count - 1]
        return place + self._shifts[count]


def _mask_reply(reply: dict[str, Any], known: frozenset[str]) -> None:
    spans = [(span["start"], span["end"]) for span in reply["spans"] if span["kind"] == "value" and is_secret(span["about"])]
    moved = _Moved(reply["raw"], apart([*secret_places(reply["raw"], known), *spans]))
    if shows_secret(moved.text):
        reply["raw"], reply["spans"] = "", []
    else:
        reply["raw"] = moved.text
        reply["spans"] = [span for span in map(dict, reply["spans"]) if _move(span, moved) and span["start"] < span["end"]]
    prompts = [_Moved(message["content"], secret_places(message["content"], known)) for message in reply["prompt"]]
    for message, there in zip(reply["prompt"], prompts, strict=True):
        message["content"] = there.text
    reply["reasoning"] = _text(reply["reasoning"], known)
    for place in (reply, *reply["calls"]):
        for mark in (*place["repairs"], *place.get("issues", ())):
            _mask_mark(mark, known)
    for placed in _placed(reply):
        _move(placed, moved)
        if not reply["raw"]:
            placed["start"] = placed["end"] = None
    for call in reply["calls"]:
        _mask_call(call, known, prompts)


def _placed(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield everything that has a place in the text of a reply, except its spans."""
    yield from reply["repairs"]
    for call in reply["calls"]:
        yield call
        yield from (*call["repairs"], *call["issues"], *call["values"])


def _move(placed: dict[str, Any], moved: _Moved) -> bool:
    for name in ("start", "end"):
        placed[name] = None if placed[name] is None else moved.of(placed[name])
    return True


def _leads_to_secret(path: str) -> bool:
    return any(is_secret(part) for part in path.removeprefix("$.").replace("[", ".").split("."))


def _mask_mark(mark: dict[str, Any], known: frozenset[str]) -> None:
    hides = _leads_to_secret(mark["path"])
    for name in ("why", "told", "expected", "got"):
        mark[name] = _text(mark[name], known)
    mark["got"] = MASK if hides and mark["got"] else mark["got"]
    mark["readings"] = [MASK if hides else _text(each, known) for each in mark["readings"]]


def _mask_call(call: dict[str, Any], known: frozenset[str], prompts: Sequence[_Moved]) -> None:
    text = _text(call["text"], known)
    call["text"] = "" if shows_secret(text) else text
    for name in ("arguments", "ran_with"):
        call[name] = None if call[name] is None else _value(masked(call[name]), known)
    for value in call["values"]:
        value["value"] = MASK if _leads_to_secret(value["path"]) else _value(value["value"], known)
        source = value["source"]
        if source and source["message"] is not None and source["message"] < len(prompts):
            _move(source, prompts[source["message"]])
    for name in ("reason", "failure"):
        call[name] = _text(call[name], known)
    call["result"] = None if call["result"] is None else _result(call["result"], known)


def _value(value: Any, known: frozenset[str]) -> Any:
    """Mask known secrets in a JSON value, whatever its name is."""
    if isinstance(value, dict):
        return {key: _value(part, known) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_value(part, known) for part in value]
    return _text(value, known) if isinstance(value, str) else value


def _result(result: str, known: frozenset[str]) -> str:
    """Mask a result; if it is JSON, by the names in it."""
    if result.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(result)
        except (ValueError, RecursionError):
            return _text(result, known)
        if any(True for _ in secrets_in(value)):
            return _text(json.dumps(masked(value), ensure_ascii=False), known)
    return _text(result, known)
