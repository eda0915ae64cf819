"""Conversations in SQLite: saved step by step, private, one program at a time, and gone when deleted."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Message, ToolCall, UsageError, XmlcallError
from xmlcall.records.audit import AuditFile
from xmlcall.records.folder import audit_path, private_folder, store_path
from xmlcall.records.store import KeptEvent, Store, new_conversation_id
from xmlcall.turn_records.keeping import InFlight, KeptTask, in_flight
from xmlcall.types.calls import CallNote, RawArgument, RawCall

ARGUMENTS = (RawArgument(name="a", text="1", value=None), RawArgument(name="b", text=""))
RAW = RawCall(index=0, name="f", text="<f>", arguments=ARGUMENTS)
CALL = ToolCall(id="c1", name="f", arguments={"a": [1, None]}, raw=RAW)
TALK = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="  Grüße,\n世界 \ud800", images=("data:x",)),
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="42", tool_call_id="c1", name="f"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


def test_messages_come_back_as_they_were(path: Path) -> None:
    with Store(path) as store:
        store.write("abcd0001", "asked", {"tools": "x"}, TALK, model="m")
    with Store(path) as store:
        assert store.messages("abcd0001") == TALK
        [found] = store.listed()
        assert (found.id, found.model, found.title, found.messages) == ("abcd0001", "m", "Grüße,", 4)
        assert [(event.kind, event.body) for event in store.events("abcd0001")] == [("asked", {"tools": "x"})]
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


MESSAGES = st.lists(st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=st.text()), max_size=6)


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_whatever_changes_what_is_kept_is_the_last(states: list[list[Message]]) -> None:
    with Store(Path(f"/dev/shm/xmlcall-test-{os.getpid()}.db")) as store:
        conversation = new_conversation_id()
        for state in states:
            store.write(conversation, "step", {}, state)
        assert store.messages(conversation) == states[-1]
        store.delete([conversation])
    for file in Path("/dev/shm").glob(f"xmlcall-test-{os.getpid()}.db*"):
        file.unlink()


def test_an_id_may_be_shortened(path: Path) -> None:
    with Store(path) as store:
        for id in ("abcd0001", "abce0002"):
            store.write(id, "asked", {}, TALK)
        assert store.find("ABCE").id == "abce0002"
        for start in ("ab", "f", "", "%", "abcd00012"):
            with pytest.raises(UsageError, match="expected the id of a conversation"):
                store.find(start)


def test_words_are_found_in_any_case(path: Path) -> None:
    with Store(path) as store:
        store.write("abcd0001", "asked", {}, TALK)
        assert [(place, message.role) for _, place, message in store.search(["GRÜSSE", "世"])] == [(1, "user")]
        assert list(store.search(["GRÜSSE", "42"])) == []


def test_what_is_deleted_is_not_in_the_files_any_more(path: Path) -> None:
    with Store(path) as store:
        for id, tools in (("abcd0001", "t1"), ("abcd0002", "t2")):
            store.keep_tools(tools, [{"name": f"tool-of-{id}"}])
            store.write(id, "asked", {"tools": tools}, [Message(role="user", content=f"secret of {id}")])
        store.delete(["abcd0001"])
        data = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert b"abcd0001" not in data
        assert b"secret of abcd0002" in data
        assert store.tools("t1") == []
        assert store.tools("t2") == [{"name": "tool-of-abcd0002"}]


def test_one_program_at_a_time_goes_on_with_a_conversation(path: Path) -> None:
    code = "import sys; from pathlib import Path; from xmlcall.records.store import Store\n"
    code += "with Store(Path(sys.argv[1])) as s:\n s.hold(sys.argv[2]); print('held', flush=True); sys.stdin.read()"

    def start(id: str) -> "subprocess.Popen[str]":
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", code, str(path), id], text=True, **streams)

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(start("abcd0001"))
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        with Store(path) as store:
            with pytest.raises(UsageError, match="open in another program"):
                store.hold("abcd0001")
            store.hold("abcd0002")
            first.kill()
            first.wait()
            store.hold("abcd0001")


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"\x00" * 5000])
def test_a_file_that_is_none_is_one_clear_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(XmlcallError, match=r"cannot keep conversations in .*: .*--no-record"):
        Store(path)


DAMAGE = [
    *(f"UPDATE message SET body = {body}" for body in ("'{'", "'[]'", "'7'", "x'ff'", """'{"role": 5, "content": 7}'""")),
    *(f"UPDATE message SET body = {body}" for body in ("'{}'", f"'{'[' * 100_000}'", f"'[1{'0' * 5000}]'")),
    """UPDATE message SET body = '{"role": "assistant", "content": "", "tool_calls": [{}]}'""",
    *(f"UPDATE event SET body = {body}" for body in ("'{'", "'[]'", "x'ff'")),
    *(f"UPDATE event SET kind = '{kind}', body = '{{}}' WHERE number = 2" for kind in ("ended", "started", "reply", "task")),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage[:60])
def test_a_damaged_conversation_is_named_and_the_others_stay_readable(path: Path, damage: str) -> None:
    ids = ("0000000a", "0000000b")
    with Store(path) as store:
        for each in ids:
            store.write(each, "asked", {"tools": "x"}, TALK, model="m")
            store.write(each, "reply", {"message": None})
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(damage + (" AND " if "WHERE" in damage else " WHERE ") + "conversation = '0000000a'")
    with Store(path) as store:
        with pytest.raises(XmlcallError, match=r"^conversation 0000000a is damaged .*; .* `xmlcall log delete 0000000a`"):
            assert [store.messages("0000000a"), in_flight(store.events("0000000a"), "0000000a")] == []
        assert (store.messages("0000000b"), in_flight(store.events("0000000b"), "0000000b")) == (TALK, InFlight())
        found, told = [], ""
        try:
            found += [conversation.id for conversation, _, _ in store.search(["brief"])]
        except XmlcallError as error:
            told = str(error)
        assert "message" not in damage or told
        assert {each.id for each in store.listed()} == {*ids}
        store.delete(["0000000a"])
        assert [conversation.id for conversation, _, _ in store.search(["brief"])] == ["0000000b"]


def test_a_search_finds_what_it_can_before_it_tells_of_damage(path: Path) -> None:
    with Store(path) as store:
        for each in ("0000000a", "0000000b", "0000000c"):
            store.write(each, "asked", {}, TALK)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE message SET body = '{' WHERE conversation = '0000000b'")
    with Store(path) as store:
        found = store.search(["brief"])
        assert {next(found)[0].id, next(found)[0].id} == {"0000000a", "0000000c"}
        with pytest.raises(XmlcallError, match="0000000b"):
            next(found)


def test_other_damage_is_told(path: Path) -> None:
    with Store(path) as store:
        store.write("0000000a", "branched", {}, TALK)
        store.keep_tools("x", [])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE catalog SET tools = '{'")
        database.execute("UPDATE conversation SET title = x'ff41'")
    with Store(path) as store:
        assert [each.title for each in store.listed()] == ["\ufffdA"]
        with pytest.raises(XmlcallError, match="conversation 0000000a is damaged"):
            store.branch_of("0000000a")
        with pytest.raises(XmlcallError, match="the tools of a conversation are damaged"):
            store.tools("x")


def test_a_later_version_is_left_alone(path: Path) -> None:
    Store(path).__exit__(None, None, None)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(XmlcallError, match="later version"):
        Store(path)


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077, 0o277])
def test_a_folder_that_is_made_is_closed_to_others(mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b" / "records"
    monkeypatch.setenv("XMLCALL_RECORDS", str(folder))
    with umask(mask):
        private_folder()
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.parents[:2])} == {0o700}


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o2775])
def test_a_folder_that_is_there_and_was_chosen_stays_as_it_is(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("XMLCALL_RECORDS", str(folder))
    with umask(0), Store(store_path()) as store:
        store.write("abcd0001", "asked", {}, TALK, model="m")
        AuditFile(audit_path())(CallNote(moment="denied", call=CALL))
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_the_default_folder_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XMLCALL_RECORDS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    private_folder().chmod(0o755)
    assert stat.S_IMODE(private_folder().stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["conversations.db", "conversations.db-wal", "audit.jsonl", "page-secret"])
def test_in_a_file_of_somebody_else_nothing_is_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_RECORDS", str(tmp_path))
    (tmp_path / name).touch(0o666)
    private_folder()
    if os.geteuid() == 0:  # whose files are never a stranger's
        os.chown(tmp_path / name, 1234, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    with pytest.raises(UsageError, match="belongs to another user"):
        private_folder()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "records"):
        monkeypatch.setenv("XMLCALL_RECORDS", str(path))
        with pytest.raises(UsageError, match=r"expected a folder for records at .*/file"):
            private_folder()


def event(kind: str, **body: object) -> KeptEvent:
    return KeptEvent(time="", kind=kind, body=dict(body))


REPLY = {"message": {"role": "assistant", "content": "x"}, "calls": [{"id": "c1", "name": "f", "raw": {"index": 0} | {
    "name": "f", "arguments": [], "dialect": "function_calls", "text": ""}}]}  # fmt: skip


def test_what_is_in_flight() -> None:
    asked, reply = event("asked"), event("reply", **REPLY)
    started = event("started", id="c1", server="s", tool="f")
    ended = event("ended", id="c1", outcome="error", text="no")
    assert in_flight([]) is None
    for whole in ("answer", "kept", "recovered"):
        assert in_flight([asked, reply, started, event(whole)]) is None
    cut = in_flight([asked, reply, started])
    assert cut is not None
    assert (cut.unknown, cut.ended, [call.id for call in cut.calls]) == (("s.f",), {"c1": None}, ["c1"])
    cut = in_flight([asked, reply, started, ended])
    assert cut is not None
    assert cut.unknown == ()
    assert cut.ended["c1"] is not None
    assert cut.ended["c1"].is_error
    cut = in_flight([asked, reply, started, ended, event("step")])
    assert cut is not None
    assert (cut.reply, cut.calls) == (None, ())
    cut = in_flight([asked, reply, started, event("task", id="c1", name="f", task="t1")])
    assert cut is not None
    assert (cut.unknown, dict(cut.tasks)) == (("s.f",), {"c1": KeptTask(server="s", tool="f", task="t1")})
    cut = in_flight([asked, reply, started, event("task", id="c1", name="f", task="t1"), ended])
    assert cut is not None
    assert (cut.unknown, dict(cut.tasks)) == ((), {})


def test_a_store_in_memory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store(None) as store:
        store.hold("abcd0001")
        store.write("abcd0001", "asked", {"text": "Hi"}, TALK)
        store.free("abcd0001")
        assert store.messages("abcd0001") == TALK
    with Store(None) as store:
        assert store.listed() == []
    assert list(tmp_path.iterdir()) == []


def test_reading_beside_it_does_not_free_what_is_held(path: Path) -> None:
    """POSIX frees the locks of a program as soon as it closes any of its openings of the file."""
    code = "import sys; from pathlib import Path; from xmlcall.records.store import Store\n"
    code += "with Store(Path(sys.argv[1])) as store: store.hold('abcd0001')"
    with Store(path) as store:
        store.write("abcd0001", "asked", {}, TALK)
        store.hold("abcd0001")
        with Store(path) as other:
            assert other.messages("abcd0001") == TALK
        held = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
        assert "is open in another program" in held.stderr
        store.free("abcd0001")
    freed = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (freed.returncode, freed.stderr) == (0, "")


def test_a_branch_has_what_happened_before_its_turn(path: Path) -> None:
    with Store(path) as store:
        for text in ("One", "Two"):
            store.write("abcd0001", "asked", {"text": text}, TALK, model="m")
            store.write("abcd0001", "kept", {"of": text})
        branch = store.branch("abcd0001", 2, TALK[:1])
        events = [(event.kind, event.body.get("text") or event.body.get("of")) for event in store.events(branch)]
        assert events == [("branched", None), ("asked", "One"), ("kept", "One")]
        assert (store.messages(branch), store.find(branch).model) == (TALK[:1], "m")
        assert store.messages("abcd0001") == TALK
        assert [(each.id, each.parent, each.turn) for each in store.branches("abcd0001")] == [(branch, "abcd0001", 2)]
        assert store.branch_of(branch) == store.branches("abcd0001")[0]
        assert store.branch_of("abcd0001") is None
        assert in_flight(store.events(branch)) is None
        for turn in (0, -1, 3):
            with pytest.raises(UsageError, match="has no turn"):
                store.branch("abcd0001", turn, [])
        assert len(store.listed()) == 2


def test_a_file_of_before_there_were_branches(path: Path) -> None:
    with Store(path) as store:
        store.write("abcd0001", "asked", {"text": "One"}, TALK)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DROP INDEX branch_of_conversation")
        database.commit()
    with Store(path) as store:
        assert store.branches("abcd0001") == []
        assert store.messages("abcd0001") == TALK


def test_another_program_leaves_the_file_to_those_that_have_it_open_twice(path: Path) -> None:
    """Locks of a process go when it closes the file once; the other program would take the log away as the last one."""
    with Store(path) as first:
        first.write("abcd0001", "asked", {"text": "One"}, TALK)
        with Store(path) as second:
            assert second.messages("abcd0001") == TALK
        listing = "import sys; from pathlib import Path; from xmlcall.records.store import Store\n"
        listing += "with Store(Path(sys.argv[1])) as store: print(len(store.listed()))"
        done = subprocess.run([sys.executable, "-c", listing, str(path)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1"
        first.write("abcd0002", "asked", {"text": "Two"}, TALK)
        with Store(path) as third:
            assert len(third.listed()) == 2
