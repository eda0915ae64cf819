"""Writes the audit: one JSON object per line, appended before a call runs and after. No line is ever changed.

A line is on the disk (fsync) before `AuditFile` returns, so that each call that runs has its line, whatever happens next. Each
line is one write under a lock, so several programs may append to the same file. A file that has grown too large is renamed with a
number (`audit.jsonl.1`), and the oldest of these is deleted. After a line that was cut (a full disk), the next note begins a new
line.
"""

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ..errors import XmlcallError
from ..types.calls import CallNote, InvalidCall, TextContent, ToolCall, ToolResult
from .folder import FILE_MODE, append_line
from .secrets import masked, masked_text

LARGEST_FILE: Final = 10_000_000
"""Size in bytes from which on a new file is started."""

OLDER_FILES: Final = 9
"""How many full files are kept."""

_LONGEST_TEXT: Final = 10_000  # characters of a value, and of a call as the model wrote it
_MOST_SOURCES: Final = 200
_BEFORE: Final = ("starts", "denied", "rejected")  # moments at which the call has not run


class AuditFile:
    """Appends notes of calls to a file; a `ToolLoop` takes it as `audit`.

    Args:
        path: path of the file; created with the first note, readable only by its owner.
        conversation: id of the conversation, which each line contains.
    """

    def __init__(self, path: Path | str, conversation: str = "") -> None:
        self.path = Path(path)
        self.conversation = conversation

    def __call__(self, note: CallNote) -> None:
        """Append a note; it is on the disk when this returns.

        Raises:
            XmlcallError: the note could not be written; a call that has not started must not run.
        """
        try:
            line = json.dumps(audit_line(note, self.conversation))  # in ASCII: half a character of UTF-16 is no UTF-8
            with _opened(self.path) as descriptor:
                append_line(descriptor, line)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.fsync(descriptor)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            why = getattr(error, "strerror", None) or str(error)
            what = f"the audit of a call of {note.call.name!r} could not be written to {self.path}: {why}"
            ran = "it did not run" if note.moment in _BEFORE else "it had run, or was running"
            raise XmlcallError(f"{what}; {ran}") from error


def audit_line(note: CallNote, conversation: str = "") -> dict[str, Any]:
    """Return a note as a JSON object, with secrets masked by the names of their parameters."""
    call = note.call
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "conversation": conversation,
        "event": note.moment,
        "call": call.id,
        "server": note.host,
        "tool": note.host_tool or call.name,
        "by": note.by,
        "reason": note.reason,
    }
    if note.moment in _BEFORE:
        line |= _written(call) | _sources(note.sources)
    if note.result is not None:
        line |= _result(note.result)
    if note.failure:
        line["failure"] = _bounded(note.failure)
    if note.seconds is not None:
        line["seconds"] = round(note.seconds, 3)
    return line


def _written(call: ToolCall | InvalidCall) -> dict[str, Any]:
    """Return a call as the model wrote it and as it was read. Issues come without their messages, which quote values."""
    arguments = call.arguments if isinstance(call, ToolCall) else {}
    raw = masked_text(call.raw, arguments)
    row = {"raw": raw if raw is None else _bounded(raw)}
    if isinstance(call, InvalidCall):
        issues = [{"code": issue.code, "path": issue.path} for issue in call.issues]
        return row | {"issues": issues, "repairs": [repair.code for repair in call.raw.repairs]}
    return row | {"arguments": _bounded(masked(arguments)), "repairs": [repair.code for repair in call.repairs]}


def _sources(sources: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not sources:
        return {}
    kept = {path: dict(source) for path, source in islice(sources.items(), _MOST_SOURCES)}
    left = len(sources) - len(kept)
    return {"sources": kept} | ({"sources_left_out": left} if left else {})


def _result(result: ToolResult) -> dict[str, Any]:
    """Return the size and the hash of a result: of its text if it is a single text, else of its blocks as JSON."""
    only = result.content[0] if len(result.content) == 1 else None
    data = (only.text if isinstance(only, TextContent) else repr(result.content)).encode("utf-8", "surrogatepass")
    return {"is_error": result.is_error, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _bounded(value: Any) -> Any:
    """Cut long texts in a JSON value; add the length and hash of the full text."""
    if isinstance(value, Mapping):
        return {key: _bounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_bounded(part) for part in value]
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
        return value
    sha256 = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:_LONGEST_TEXT]}... ({len(value)} characters, sha256 {sha256})"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file exclusively to append to it; rename a full one first."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = os.fstat(descriptor)
        if stat.S_ISREG(now.st_mode):
            if now.st_size >= LARGEST_FILE and _is_at(path, now):
                _put_aside(path)
            if not _is_at(path, now):  # put aside, by this program or by another
                with _opened(path) as fresh:
                    yield fresh
                return
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), found)
    except FileNotFoundError:
        return False


def _put_aside(path: Path) -> None:
    numbered = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER_FILES + 1))]
    for older, newer in zip(reversed(numbered), list(reversed(numbered))[1:], strict=False):
        if newer.exists():
            newer.replace(older)
