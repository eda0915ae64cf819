"""Writes turns to files, one JSON object per line, as they end, and reads them again. Also reads replies of any origin as turns.

Secrets are masked before writing (`masking`). Each line is one write under a lock, so several programs can append to one file. If
a line was cut off, for example by a full disk, the next turn starts a new line.

The input may be hostile, so every value is checked against the fields of the records, and every place against its text, before a
turn is built. Reading stops at the first line that is not a turn, with an error that gives the line's number.
"""

import dataclasses
import fcntl
import functools
import json
import logging
import os
import queue
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import UsageError
from ..records.folder import FILE_MODE, append_line
from ..tools.catalog import Catalog
from .builder import TurnBuilder
from .masking import without_secrets
from .reading import as_messages, read_reply, tools_told
from .record import ReplyRecord, TurnRecord

__all__ = ["LineFile", "LineThread", "read_lines"]

_LONGEST: Final = 64 * 1024 * 1024  # bytes of a line
_TEXTS: Final = ("raw", "text", "reply")
_SHOWN: Final = 100  # characters of a value in an error


class LineFile:
    """A file to which turns are appended.

    Args:
        path: Path of the file. The first turn creates it, readable only by its owner.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def append(self, turn: TurnRecord) -> None:
        """Append a turn, with its secrets masked."""
        line = json.dumps(without_secrets(turn))  # in ASCII, because lone surrogates are not valid UTF-8
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            append_line(descriptor, line)
        finally:
            os.close(descriptor)


def read_lines(path: Path | str) -> Iterator[TurnRecord]:
    """Read a file of turns, or of replies.

    Args:
        path: Path of the file. A line is a turn as `LineFile` writes it, or a reply: a JSON string, or an object with its text as
            `raw`, `text` or `reply`, and optionally `tools`, `question`, `messages`, `dialect`, `reasoning_open`,
            `finish_reason`, `model` and `id`. Empty lines are ignored, and so is a last line that is still being written.

    Raises:
        UsageError: the file cannot be read, or a line is neither a turn nor a reply.
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
                except _WrongLine as error:
                    if not line.endswith(b"\n") and error.is_unfinished:
                        return
                    raise UsageError(f"{place}: {error}") from None
                except UsageError as error:
                    raise UsageError(f"{place}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


class _WrongLine(Exception):
    """A line is neither a turn nor a reply."""

    def __init__(self, message: str, *, is_unfinished: bool = False) -> None:
        super().__init__(message)
        self.is_unfinished = is_unfinished


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise _WrongLine(f"expected JSON: {str(error)[:_SHOWN]}", is_unfinished=True) from None


def _turn(row: Any, number: int) -> TurnRecord:
    if isinstance(row, str):
        return _turn_of_reply({"text": row}, number)
    if not isinstance(row, dict):
        raise _WrongLine(f"expected a turn or a reply, got {_short(row)}")
    if "replies" in row:
        return _read_turn(row)
    return _turn_of_reply(row, number)


def _turn_of_reply(row: Mapping[str, Any], number: int) -> TurnRecord:
    """Read a reply of unknown origin."""
    text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if text is None:
        raise _WrongLine(f"expected the text of a reply as one of {', '.join(_TEXTS)}, got {_short(dict(row))}")
    texts = {name: row.get(name, "") for name in ("question", "dialect", "model", "finish_reason")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise _WrongLine(f"expected {name} to be a string, got {_short(value)}")
    tools, messages = row.get("tools") or [], row.get("messages") or []
    for name, value in {"tools": tools, "messages": messages}.items():
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise _WrongLine(f"expected {name} to be a list of objects, got {_short(value)}")
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
        answer="".join(text[span.start : span.end] for span in reply.spans if span.kind == "text"),
    )


def _catalog(tools: list[dict[str, Any]]) -> Catalog:
    try:
        return Catalog.of(tools)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise _WrongLine(f"its tools cannot be read: {error}") from None


# -- records from JSON, held against their fields ------------------------------------------------------------------------------

_Check = Callable[[Any], Any]
"""Converts a JSON value to the type of a field, or raises."""


class _Misplaced(Exception):
    """A value does not fit the type of its field."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str] = []  # from the inside out


def _read_turn(row: Any) -> TurnRecord:
    try:
        turn: TurnRecord = _check_of(TurnRecord)(row)
    except _Misplaced as error:
        raise _WrongLine(f"expected turn{''.join(reversed(error.path))} {error}") from None
    for reply in turn.replies:
        _check_places(reply)
    return turn


@functools.cache
def _check_of(kind: Any) -> _Check:
    """Return the check for a type; cached, because a file may have thousands of lines."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_check(kind)
    if origin is Literal:
        return _literal_check(frozenset(parts), ", ".join(map(str, parts)))
    if origin in (Union, types.UnionType):
        inner = _check_of(next(part for part in parts if part is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _list_check(_check_of(parts[0]))
    wanted: Any = dict if origin is not None else (int, float) if kind is float else kind
    return _plain_check(wanted, kind is bool, "an object" if origin is not None else kind.__name__)


def _record_check(record: type[Any]) -> _Check:
    """Check an object, and ignore fields that a later version added."""
    checks = {name: _check_of(kind) for name, kind in get_type_hints(record).items()}
    required = [
        each.name
        for each in dataclasses.fields(record)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]

    def check(row: Any) -> Any:
        if not isinstance(row, dict):
            raise _Misplaced(f"to be an object, got {_short(row)}")
        if missing := [name for name in required if name not in row]:
            raise _Misplaced(f"to have {' and '.join(missing)}, got {_short(row)}")
        named, name = {}, ""
        try:
            for name, value in row.items():
                if name in checks:
                    named[name] = checks[name](value)
        except _Misplaced as error:
            error.path.append(f".{name}")
            raise
        return record(**named)

    return check


def _list_check(inner: _Check) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misplaced(f"to be a list, got {_short(value)}")
        checked: list[Any] = []
        try:
            for each in value:
                checked.append(inner(each))
        except _Misplaced as error:
            error.path.append(f"[{len(checked)}]")
            raise
        return tuple(checked)

    return check


def _literal_check(values: frozenset[Any], named: str) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise _Misplaced(f"to be one of {named}, got {_short(value)}")
        return value

    return check


def _plain_check(wanted: Any, takes_bool: bool, named: str) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, wanted) or (isinstance(value, bool) and not takes_bool):
            raise _Misplaced(f"to be {named}, got {_short(value)}")
        return value

    return check


def _check_places(reply: ReplyRecord) -> None:
    """Check that the spans tile the text, and that all other places are inside it."""
    at, length = 0, len(reply.raw)
    for span in reply.spans:
        if span.start != at or span.end <= at:
            raise _WrongLine(f"the spans of reply {reply.number} do not tile its text: one goes from {span.start} to {span.end}")
        at = span.end
    if at != length:
        raise _WrongLine(f"the spans of reply {reply.number} end at {at}, and its text at {length}")
    values = (value for call in reply.calls for value in call.values)
    marks = (mark for call in reply.calls for mark in (*call.repairs, *call.issues))
    everything: Iterable[Any] = (*reply.repairs, *reply.calls, *values, *marks)
    for placed in everything:
        start, end = placed.start, placed.end
        if (start is None) != (end is None) or (start is not None and end is not None and not 0 <= start <= end <= length):
            raise _WrongLine(f"a place in reply {reply.number} goes from {start} to {end}, and its text to {length}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# -- turns written by a thread of its own: whoever finishes one never waits for a disk ---------------------------------
# Turns wait in a bounded queue. If the disk is full or slower than the turns arrive, turns are left out of the file. This is
# logged once, and again only after a turn has been written in between. Nothing here ends the program.


MOST_WAITING: Final = 2000
"""Turns in the queue; each holds its text."""
CLOSE_SECONDS: Final = 5.0  # for turns that wait when the program ends

log = logging.getLogger("xmlcall.turns")


class LineThread:
    """Appends turns to a file of JSON lines."""

    def __init__(self, path: Path, say: Callable[[str], None] = log.warning) -> None:
        self.path = path
        self._file = LineFile(path)
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
                self._file.append(turn.record())
                self._is_said = False
            except OSError as error:
                self._complain(error.strerror or str(error))
            except Exception:
                log.exception("a turn could not be recorded")

    def _complain(self, why: str) -> None:
        if not self._is_said:
            self._is_said = True
            self._say(f"turns are not written to {self.path}: {why}; it is tried again with each that ends")
