"""Writes the audit: one JSON object per line, appended before a call runs and after. No line is ever changed.

A line is on the disk (fsync) before `AuditFile` returns, so that each call that runs has its line, whatever happens next. Each
line is one write under a lock, so several programs may append to the same file. A file that has grown too large is renamed with a
number (`audit.jsonl.1`), and the oldest of these is deleted. After a line that was cut (a full disk), the next note begins a new
line.
"""

import hashlib
import html
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from ..errors import XmlcallError
from ..types.calls import MISSING, CallNote, InvalidCall, RawCall, Span, TextContent, ToolCall, ToolResult
from .folder import FILE_MODE, append_line

LARGEST_FILE: Final = 10_000_000
"""Size in bytes from which on a new file is started."""

OLDER_FILES: Final = 9
"""How many full files are kept."""

_LONGEST_TEXT: Final = 10_000  # characters of a value, and of a call as the model wrote it
_MOST_SOURCES: Final = 200
_IN_USE: Final = (PermissionError,) if sys.platform == "win32" else ()
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
            line = json.dumps(audit_line(note, self.conversation))  # in ASCII, because UTF-8 has no lone surrogates
            _put_aside_if_full(self.path)
            append_line(self.path, line, durably=True)
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


def _put_aside_if_full(path: Path) -> None:
    """Rename a full file, whichever program is first. Windows does not rename one that is open: the next note finds it closed."""
    if not _is_full(path):
        return
    from filelock import FileLock

    with FileLock(f"{path}.lock", mode=FILE_MODE), suppress(*_IN_USE):
        if _is_full(path):
            numbered = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER_FILES + 1))]
            for older, newer in pairwise(reversed(numbered)):
                if newer.exists():
                    newer.replace(older)


def _is_full(path: Path) -> bool:
    return path.is_file() and path.stat().st_size >= LARGEST_FILE


# -- what is masked ----------------------------------------------------------------------------------------------------
# Names are compared in lower case without separators, so `API-Key`, `apiKey` and `api_key` are the same. Values are masked at
# any depth of the arguments. In a call as the model wrote it, the same values are masked as text; if the text contains a
# secret's name but not one of these values, the whole text is left out, because a partial mask protects nothing.


MASK: Final = "***"

# Names that mean a secret as a whole, and endings that do with any word before them (`github_token`, `dbPassword`).
_NAMES: Final = frozenset(
    [
        *("auth", "authorization", "proxyauthorization", "bearer", "cookie", "setcookie", "credential", "credentials", "otp"),
        *("passphrase", "passwd", "password", "passwords", "pat", "pin", "pwd", "secret", "secrets", "sessionid", "token"),
        *("apikey", "accesskey", "accesstoken", "authtoken", "clientsecret", "privatekey", "refreshtoken", "secretkey"),
        *("密码", "口令", "密钥", "令牌"),
    ]
)
_ENDINGS: Final = ("apikey", "accesskey", "password", "passwd", "passphrase", "privatekey", "secret", "secretkey", "token")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_SHORTEST: Final = 4  # characters of a value that is searched for in a text; a shorter one occurs by chance
_NEAR: Final = 60  # characters after a name within which its mask is expected
# A value after a name: in quotes, bare (with the word that some headers have before it), and as the text of an element.
_NAMED: Final = r"(?<![\w-])([\w-]{3,40}+)"
_GIVEN: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}"((?:[^"\\\n]|\\.)+)\"""",
        rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}'((?:[^'\\\n]|\\.)+)\'""",
        rf"""{_NAMED}["']?\s{{0,3}}[=:]\s{{0,3}}(?:(?:bearer|basic|token)\s+)?((?!null\b|true\b|false\b)[^\s"',;<>{{}}\[\]]{{4,}}+)""",
        rf"""{_NAMED}["']?(?:\s[^<>\n]{{0,60}})?>([^<]*[^<\s])""",
    )
)
# A word where a parameter's name may be: in quotes, as a tag, as a key or before an equals sign.
_KEY: Final = re.compile(r"""(?<![\w-])[\w-]++(?=["'>\\]*\s*[=:>])|(?<=["'=<>])[\w-]++(?=["'<>\s])""")


def is_secret(name: str) -> bool:
    plain = _SEPARATORS.sub("", name).lower()
    return plain in _NAMES or plain.endswith(_ENDINGS)


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with a mask in place of each secret."""
    if name and is_secret(name):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): masked(part, str(key)) for key, part in value.items()}
    return [masked(part) for part in value] if isinstance(value, list | tuple) else value


def masked_text(raw: RawCall, arguments: Mapping[str, Any]) -> str | None:
    """Return a call as the model wrote it, with its secrets masked; None if a secret cannot be separated from the rest."""
    text = raw.text
    values = {each.text for each in raw.arguments if is_secret(each.name)} | {*secrets_in(arguments)}
    for each in raw.arguments:
        if each.value is not MISSING:
            values.update(secrets_in(each.value, each.name))
    for written in sorted({spelling for value in values for spelling in _spellings(value)}, key=len, reverse=True):
        text = text.replace(written, MASK) if len(written) >= _SHORTEST else text
    return None if shows_secret(text) else text


def shows_secret(text: str) -> bool:
    """Say whether a call, or a text that may be one, contains the name of a secret without a mask after it."""
    named = (found for found in _KEY.finditer(text) if is_secret(found[0]) and text[found.start() - 1 : found.start()] != "/")
    return any(MASK not in text[found.end() : found.end() + _NEAR] for found in named)


def secret_places(text: str, known: Iterable[str] = ()) -> list[Span]:
    """Return the spans of secrets in any text, sorted and disjoint: known values, and values after a secret's name."""
    written = {each for value in known for each in _spellings(value) if len(each) >= _SHORTEST}
    places = [found.span(2) for given in _GIVEN for found in given.finditer(text) if is_secret(found[1])]
    for each in written:
        places += [found.span() for found in re.finditer(re.escape(each), text)]
    return apart(places)


def apart(places: Iterable[Span]) -> list[Span]:
    """Return spans sorted, with those that touch joined into one; empty ones are left out."""
    joined: list[Span] = []
    for start, end in sorted(place for place in places if place[0] < place[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def secrets_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from secrets_in(part, str(key) if not (name and is_secret(name)) else name)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from secrets_in(part, name)
    elif name and is_secret(name):
        yield value if isinstance(value, str) else json.dumps(value)


def _spellings(value: str) -> tuple[str, ...]:
    """Return a text as the formats of calls write it."""
    as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return value, value.strip(), html.escape(value), html.escape(value, quote=False), *as_json
