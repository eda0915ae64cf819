"""Stores conversations in SQLite: what happened, in order, saved after every step.

A conversation has two parts. Its *events* are append-only: the user's requests, each reply as the model wrote it, the outcome of
each call. Its *messages* make up the next request; they change with every step, each time in one transaction with the event that
caused the change. So if the program is killed, the conversation is in the state after one step or the next, and the events show
what the interrupted step had begun.

The write-ahead log and `synchronous=FULL` make each step durable when `write` returns; after a kill nothing has to be repaired,
because SQLite rolls back an open transaction. Saving costs one read of the conversation's messages and one fsync per step, which
takes seconds anyway.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, Self, get_args

from ..errors import UsageError, XmlcallError
from ..systems import free_byte, hold_byte
from ..types.calls import MISSING, Message, RawArgument, RawCall, Role, Tool, ToolCall, ToolReply, Written, WrittenCall
from .folder import FILE_MODE

# -- messages, calls and tools as JSON objects and back, so that a conversation can be continued and read later --------


_WRITTEN: Final = {"replies": ToolReply, "calls": WrittenCall}  # fields of `Written`


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message as a JSON object; fields without a value are left out."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [call_to_json(call) for call in message.tool_calls]
    for name in ("tool_call_id", "name", "images"):
        if value := getattr(message, name):
            data[name] = value
    if message.written is not None and message.written.text == message.content:
        data |= {name: [asdict(each) for each in found] for name in _WRITTEN if (found := getattr(message.written, name))}
        if message.written.said_to is not None:
            data["said_to"] = message.written.said_to
    return data


def message_from_json(data: Mapping[str, Any]) -> Message:
    """Read what `message_to_json` wrote; raise a ValueError, TypeError or KeyError if this is not a message."""
    if not (data["role"] in get_args(Role) and isinstance(data["content"], str)):
        raise ValueError("no message has this role, or no text")
    calls = tuple(call_from_json(call) for call in data.get("tool_calls", ()))
    named = {name: data[name] for name in ("role", "content", "tool_call_id", "name") if name in data}
    found: dict[str, Any] = {name: tuple(make(**each) for each in data.get(name, ())) for name, make in _WRITTEN.items()}
    said_to = int(data["said_to"]) if "said_to" in data else None
    written = Written(text=data["content"], said_to=said_to, **found) if any(found.values()) or said_to is not None else None
    return Message(tool_calls=calls, images=tuple(data.get("images", ())), written=written, **named)


def call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "raw": raw_to_json(call.raw)}


def call_from_json(data: Mapping[str, Any]) -> ToolCall:
    """Read a call; an invalid call has no arguments."""
    return ToolCall(id=data["id"], name=data["name"], arguments=data.get("arguments") or {}, raw=raw_from_json(data["raw"]))


def raw_to_json(raw: RawCall) -> dict[str, Any]:
    arguments = [
        {"name": each.name, "text": each.text} | ({} if each.value is MISSING else {"value": each.value})
        for each in raw.arguments
    ]
    return {"index": raw.index, "name": raw.name, "arguments": arguments, "dialect": raw.dialect, "text": raw.text}


def raw_from_json(data: Mapping[str, Any]) -> RawCall:
    arguments = tuple(
        RawArgument(name=each["name"], text=each["text"], value=each.get("value", MISSING)) for each in data["arguments"]
    )
    return RawCall(index=data["index"], name=data["name"], arguments=arguments, dialect=data["dialect"], text=data["text"])


def tool_to_json(tool: Tool) -> dict[str, Any]:
    """Return a tool as `Tool.from_mcp` reads it."""
    data = {"name": tool.name, "title": tool.title, "description": tool.description, "inputSchema": tool.input_schema}
    data |= {"outputSchema": tool.output_schema, "annotations": tool.annotations}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items() if value is not None}


# -- the store ---------------------------------------------------------------------------------------------------------


_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE conversation (
    id TEXT PRIMARY KEY, begun TEXT NOT NULL, changed TEXT NOT NULL, model TEXT NOT NULL, title TEXT NOT NULL);
CREATE TABLE message (
    conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE, place INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (conversation, place));
CREATE TABLE event (
    number INTEGER PRIMARY KEY, conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
    time TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX event_of_conversation ON event (conversation, number);
CREATE TABLE catalog (sha256 TEXT PRIMARY KEY, tools TEXT NOT NULL);
"""
_BRANCHES: Final = (  # in files of earlier versions, too, which know nothing of it and keep it right
    "CREATE INDEX IF NOT EXISTS branch_of_conversation ON event (json_extract(body, '$.from')) WHERE kind = 'branched'"
)
_OPEN: Final = os.O_RDWR | os.O_CREAT
_WAIT: Final = 10.0  # seconds for another program that writes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    id: str
    begun: str
    changed: str
    model: str
    title: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvent:
    time: str
    kind: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A conversation that branched off another before one of its turns."""

    id: str
    parent: str
    turn: int
    title: str


def _make(path: Path) -> None:
    """Make a file for its owner alone, if there is none.

    An existing file is not opened: POSIX frees all locks that a process has on a file when it closes any opening of it, including
    those of SQLite's connections. Another program would then believe that it is the last one, and remove the write-ahead log.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, _OPEN | os.O_EXCL, FILE_MODE))


@contextmanager
def undamaged(conversation: str, what: str = "") -> Iterator[None]:
    """Report damaged data that was read; other conversations are not affected."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, XmlcallError):
            raise
        advice = f"to remove it: `xmlcall log delete {conversation}`" if conversation else "its messages can be read"
        name = what or (f"conversation {conversation} is" if conversation else "a conversation is")
        raise XmlcallError(f"{name} damaged and cannot be read ({type(error).__name__}); {advice}") from error


def new_conversation_id() -> str:
    return secrets.token_hex(4)


class Store:
    """The conversations of a file, made readable only by its owner; without a file, in memory. Use it with `with`.

    All methods may raise an `XmlcallError`: the file cannot be read or written, is no store, or has a later version.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock: int | None = None
        with self._errors_of_ours(), ExitStack() as stack:
            if path is not None:
                _make(path)
            self._database = sqlite3.connect(path or ":memory:", timeout=_WAIT, isolation_level=None)
            stack.callback(self._database.close)
            self._prepare()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # -- reading -------------------------------------------------------------------------------------------------------------

    def listed(self, most: int = -1) -> list[ConversationSummary]:
        rows = self._rows(f"{_LINES} GROUP BY id ORDER BY changed DESC, begun DESC, conversation.rowid DESC LIMIT ?", most)
        return [_conversation(row) for row in rows]

    def find(self, start: str) -> ConversationSummary:
        rows = self._rows(f"{_LINES} WHERE substr(id, 1, ?) = ? GROUP BY id LIMIT 2", len(start), start.lower())
        if len(rows) != 1 or not start:
            what = "begins several ids" if rows and start else "is the beginning of none"
            raise UsageError(f"expected the id of a conversation (see `xmlcall log list`): {start[:80]!r} {what}")
        return _conversation(rows[0])

    def messages(self, conversation: str) -> list[Message]:
        rows = self._rows("SELECT body FROM message WHERE conversation = ? ORDER BY place", conversation)
        with undamaged(conversation):
            return [message_from_json(json.loads(body)) for (body,) in rows]

    def events(self, conversation: str) -> list[KeptEvent]:
        rows = self._rows("SELECT time, kind, body FROM event WHERE conversation = ? ORDER BY number", conversation)
        with undamaged(conversation):
            return [KeptEvent(time=time, kind=kind, body=dict(json.loads(body).items())) for time, kind, body in rows]

    def tools(self, sha256: str) -> list[dict[str, Any]]:
        """Return tools that were offered, in MCP's format; none if they are not stored."""
        rows = self._rows("SELECT tools FROM catalog WHERE sha256 = ?", sha256)
        with undamaged("", "the tools of a conversation are"):
            return list(json.loads(rows[0][0])) if rows else []

    def search(self, words: Sequence[str]) -> Iterator[tuple[ConversationSummary, int, Message]]:
        """Find messages that contain all the words, ignoring case: conversation, place of the message from 0, and the message.

        What was changed last comes first.
        """
        folded = [word.casefold() for word in words]
        damage: XmlcallError | None = None
        for found in self.listed():
            try:
                messages = self.messages(found.id)
            except XmlcallError as error:
                damage = damage or error
                continue
            for place, message in enumerate(messages):
                content = message.content.casefold()
                if all(word in content for word in folded):
                    yield found, place, message
        if damage is not None:
            raise damage

    # -- writing -------------------------------------------------------------------------------------------------------------

    def write(
        self,
        conversation: str,
        kind: str,
        body: dict[str, Any],
        messages: Sequence[Message] | None = None,
        *,
        model: str | None = None,
    ) -> None:
        """Save an event, with the messages that the conversation has from now on, as one transaction."""
        with self._writing() as database:
            _write(database, conversation, kind, body, messages, model=model)

    def branch(self, parent: str, turn: int, messages: Sequence[Message]) -> str:
        """Branch off a conversation before one of its turns, with everything that happened until then."""
        branch = new_conversation_id()
        row = self._rows(f"{_ASKED} LIMIT 1 OFFSET ?", parent, turn - 1) if turn > 0 else []
        if not row:
            raise UsageError(f"conversation {parent} has no turn {turn}")
        model = self.find(parent).model
        copied = (
            "SELECT ?, time, kind, body FROM event WHERE conversation = ? AND number < ? AND kind <> 'branched' ORDER BY number"
        )
        with self._writing() as database:
            _write(database, branch, "branched", {"from": parent, "turn": turn}, messages, model=model)
            database.execute(f"INSERT INTO event (conversation, time, kind, body) {copied}", (branch, parent, row[0][0]))
        return branch

    def branches(self, parent: str) -> list[Branch]:
        of_parent = "kind = 'branched' AND json_extract(body, '$.from') = ?"
        rows = self._rows(f"{_BRANCHED} WHERE {of_parent} ORDER BY number", parent)
        return [_branch(row) for row in rows]

    def branch_of(self, conversation: str) -> Branch | None:
        rows = self._rows(f"{_BRANCHED} WHERE kind = 'branched' AND conversation = ?", conversation)
        return _branch(rows[0]) if rows else None

    def keep_tools(self, sha256: str, tools: Sequence[dict[str, Any]]) -> None:
        """Save the offered tools; identical ones are saved once."""
        if not self._rows("SELECT 1 FROM catalog WHERE sha256 = ?", sha256):
            with self._writing() as database:
                database.execute("INSERT OR IGNORE INTO catalog VALUES (?, ?)", (sha256, json.dumps(list(tools))))

    def delete(self, conversations: Iterable[str]) -> None:
        """Delete conversations, and tools that no other conversation was offered; nothing of them is left in the file."""
        with self._writing() as database:
            database.executemany("DELETE FROM conversation WHERE id = ?", [(each,) for each in conversations])
            used = "SELECT 1 FROM event WHERE kind = 'asked' AND json_extract(body, '$.tools') = sha256"
            database.execute(f"DELETE FROM catalog WHERE NOT EXISTS ({used})")
        with self._errors_of_ours():
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- several programs ------------------------------------------------------------------------------------------------------

    def hold(self, conversation: str) -> None:
        """Keep other programs from continuing a conversation until `free`, or until this program ends in any way."""
        if (lock := self._lock_file()) is None:
            return
        try:
            hold_byte(lock, int(conversation, 16))
        except BlockingIOError as error:
            raise UsageError(f"conversation {conversation} is open in another program; close it there first") from error

    def free(self, conversation: str) -> None:
        if self._lock is not None:
            free_byte(self._lock, int(conversation, 16))

    def _lock_file(self) -> int | None:
        """Open the file whose bytes are held, once, and not to read alone (see `_make`); None for a store in memory."""
        if self._lock is None and self.path is not None:
            with self._errors_of_ours():
                self._lock = os.open(self.path.with_name(f"{self.path.name}.lock"), _OPEN, FILE_MODE)
            self._stack.callback(os.close, self._lock)
        return self._lock

    # -- the file --------------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        database = self._database
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            database.execute(f"PRAGMA {pragma}")
        with self._writing():
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise XmlcallError(f"{self.path} was written by a later version of xmlcall: use that, or move the file away")
            if not version:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_VERSION}")
            database.execute(_BRANCHES)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._errors_of_ours(), closing(self._database.execute(query, values)) as found:
            return found.fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._errors_of_ours():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.rollback()
                raise
            self._database.commit()

    @contextmanager
    def _errors_of_ours(self) -> Iterator[None]:
        """Raise what goes wrong with the file as an error of ours."""
        try:
            yield
        except (OSError, sqlite3.Error, ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, XmlcallError):
                raise
            why = getattr(error, "strerror", None) or str(error)
            raise XmlcallError(f"cannot keep conversations in {self.path or 'memory'}: {why}; --no-record keeps none") from error


_LINES: Final = (
    "SELECT id, begun, changed, model, title, count(message.place) "
    "FROM conversation LEFT JOIN message ON message.conversation = conversation.id"
)


_ASKED: Final = "SELECT number FROM event WHERE conversation = ? AND kind = 'asked' ORDER BY number"
_BRANCHED: Final = "SELECT conversation.id, body, title FROM event JOIN conversation ON conversation.id = event.conversation"


def _branch(row: tuple[Any, ...]) -> Branch:
    id, body, title = row
    with undamaged(id):
        data = json.loads(body)
        return Branch(id=id, parent=data["from"], turn=data["turn"], title=_text(title))


def _conversation(row: tuple[Any, ...]) -> ConversationSummary:
    id, begun, changed, model, title, messages = row
    return ConversationSummary(id=id, begun=begun, changed=changed, model=model, title=_text(title), messages=messages)


def _text(value: Any) -> str:
    """Return the text of a column; SQLite accepts bytes in any column."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _title(messages: Iterable[Message]) -> str:
    """Return the first line of the user's first message, in characters that SQLite can hold."""
    said = next((message.content for message in messages if message.role == "user"), "")
    return (said.strip().splitlines() or [""])[0][:80].encode("utf-8", "replace").decode()


def _write(
    database: sqlite3.Connection,
    conversation: str,
    kind: str,
    body: dict[str, Any],
    messages: Sequence[Message] | None,
    *,
    model: str | None,
) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    title = _title(messages or ())
    begun = (conversation, now, now, model or "", title)
    database.execute("INSERT INTO conversation VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", begun)
    database.execute(
        "UPDATE conversation SET changed = ?, model = coalesce(?, model), title = iif(title = '', ?, title) WHERE id = ?",
        (now, model, title, conversation),
    )
    event = (conversation, now, kind, json.dumps(body))
    database.execute("INSERT INTO event (conversation, time, kind, body) VALUES (?, ?, ?, ?)", event)
    if messages is not None:
        _save(database, conversation, messages)


def _save(database: sqlite3.Connection, conversation: str, messages: Sequence[Message]) -> None:
    bodies = [json.dumps(message_to_json(message)) for message in messages]  # ASCII: SQLite takes no half characters
    kept = [
        body for (body,) in database.execute("SELECT body FROM message WHERE conversation = ? ORDER BY place", [conversation])
    ]
    same = next(place for place in count() if place >= min(len(bodies), len(kept)) or bodies[place] != kept[place])
    database.execute("DELETE FROM message WHERE conversation = ? AND place >= ?", (conversation, same))
    rows = ((conversation, place, bodies[place]) for place in range(same, len(bodies)))
    database.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)
