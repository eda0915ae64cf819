"""The audit: a line before a call runs and one after it, whatever comes of it; without the line the call does not run."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from xmlcall import CallFinished, CallStarted, LocalHost, Message, ToolLoop, XmlcallError, render
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.records import audit as audit_module
from xmlcall.records.audit import AuditFile, audit_line
from xmlcall.types.calls import CallNote, RawCall, ToolCall

RAN: list[str] = []


def send(to: str, text: str = "", api_key: str = "") -> str:
    """Send a mail."""
    RAN.append(to)
    return f"sent to {to}"


def fail() -> str:
    """Fail."""
    raise ValueError("no")


def called(name: str, **arguments: Any) -> str:
    return render([{"name": name, "arguments": arguments}])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def audited(path: Path, *replies: str, policy: Any = ("*",), question: str = "Write to Ann.") -> list[Any]:
    RAN.clear()
    options: dict[str, Any] = {"policy": policy, "audit": AuditFile(path, "abc")}
    async with ToolLoop(ScriptedBackend([*replies, "Done."]), [LocalHost([send, fail], name="mail")], **options) as loop:
        return [event async for event in loop.run([Message(role="user", content=question)])]


async def test_a_call_has_a_line_before_it_and_one_after(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await audited(path, called("send", to="Ann", text="two\nlines", api_key="k-123456"))
    starts, ended = lines(path)
    assert (starts["event"], starts["server"], starts["tool"], starts["by"]) == ("starts", "mail", "send", "allow *")
    assert starts["arguments"] == {"to": "Ann", "text": "two\nlines", "api_key": "***"}
    assert starts["sources"]["$.to"] == {"kind": "person", "message": 0}
    assert starts["sources"]["$.text"] == {"kind": "invented"}
    assert starts["raw"].startswith('<invoke name="send">')
    assert "k-123456" not in path.read_text()
    assert ended["event"] == "ended"
    assert ended["call"] == starts["call"]
    assert ended["bytes"] == len("sent to Ann")
    assert ended["sha256"] == hashlib.sha256(b"sent to Ann").hexdigest()
    assert ended["is_error"] is False
    assert ended["seconds"] >= 0
    assert starts["conversation"] == ended["conversation"] == "abc"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_line_says_what_may_be_a_translation(tmp_path: Path) -> None:
    await audited(tmp_path / "audit.jsonl", called("send", to="Anna", text="hi"), question="写信给安娜")
    starts, _ = lines(tmp_path / "audit.jsonl")
    assert starts["sources"]["$.to"] == {"kind": "invented", "may_be_translation": True}


async def test_the_line_is_there_before_the_call_runs(tmp_path: Path) -> None:
    path, seen = tmp_path / "audit.jsonl", []

    def look() -> str:
        """Look."""
        seen.append(path.read_text().count("\n"))
        return ""

    backend = ScriptedBackend([called("look"), "Done."])
    async with ToolLoop(backend, [LocalHost([look])], policy=["*"], audit=AuditFile(path)) as loop:
        await loop.ask("Look.")
    assert seen == [1]


async def test_calls_that_do_not_run_have_a_line(tmp_path: Path) -> None:
    async def no(proposal: Proposal) -> Decision:
        return Decision(allowed=False, reason="not to Bob", by="person")

    path = tmp_path / "audit.jsonl"
    await audited(path, called("send", to="Bob"), called("send", to=7, nobody="x"), called("nothing"), policy=no)
    denied, rejected, unknown = lines(path)
    assert (denied["event"], denied["by"], denied["reason"]) == ("denied", "person", "not to Bob")
    assert denied["arguments"] == {"to": "Bob"}
    assert rejected["event"] == unknown["event"] == "rejected"
    assert {"code": "unexpected-argument", "path": "$.nobody"} in rejected["issues"]
    assert "arguments" not in rejected
    assert unknown["server"] == ""
    assert RAN == []


async def test_an_error_is_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await audited(path, called("fail"))
    assert lines(path)[1]["is_error"] is True


async def test_what_a_person_changed_is_what_ran(tmp_path: Path) -> None:
    async def edits(proposal: Proposal) -> Decision:
        return Decision(allowed=True, arguments={"to": "Cy"}, by="person")

    path = tmp_path / "audit.jsonl"
    await audited(path, called("send", to="Bob"), policy=edits)
    starts, _ = lines(path)
    assert starts["arguments"] == {"to": "Cy"}
    assert "Bob" in starts["raw"]


@pytest.mark.parametrize("where", ["missing/audit.jsonl", ".", "/dev/full"])
async def test_a_call_without_its_line_does_not_run(where: str, tmp_path: Path) -> None:
    with pytest.raises(XmlcallError, match=r"the audit of a call of 'send' could not be written to .*; it did not run"):
        await audited(tmp_path / where, called("send", to="Ann"))
    assert RAN == []


async def test_a_call_without_its_line_is_kept_as_one_that_has_not_begun(tmp_path: Path) -> None:
    kept: list[tuple[Message, ...]] = []
    audit, backend = AuditFile(tmp_path / "missing" / "audit.jsonl"), ScriptedBackend([called("send", to="Ann")])
    async with ToolLoop(backend, [LocalHost([send])], policy=["*"], audit=audit) as loop:
        with pytest.raises(XmlcallError, match="it did not run"):
            [event async for event in loop.run([Message(role="user", content="Write to Ann.")], on_stop=kept.append)]
    assert "Not run: the turn was ended before it." in kept[0][-1].content


async def test_a_call_that_is_left_is_told_as_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    async def run() -> None:
        async with ToolLoop(ScriptedBackend([called("hang")]), [LocalHost([hang])], policy=["*"], audit=AuditFile(path)) as loop:
            async for event in loop.run([Message(role="user", content="Hang.")]):
                if isinstance(event, CallStarted):
                    asyncio.get_running_loop().call_later(0.05, task.cancel)

    task = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line["event"] for line in lines(path)] == ["starts", "interrupted"]


async def test_a_result_is_told_although_its_line_fails(tmp_path: Path) -> None:
    """What ran has run: the one who keeps the conversation must not lose it."""
    notes: list[str] = []

    def audit(note: CallNote) -> None:
        notes.append(note.moment)
        if note.moment == "ended":
            raise XmlcallError("full")

    seen = []

    async def run() -> None:
        async with ToolLoop(ScriptedBackend([called("send", to="Ann")]), [LocalHost([send])], policy=["*"], audit=audit) as loop:
            async for event in loop.run([Message(role="user", content="Go")]):
                seen.append(type(event))

    with pytest.raises(XmlcallError, match="full"):
        await run()
    assert notes == ["starts", "ended"]
    assert CallFinished in seen


CALL = ToolCall(id="call_1", name="t", arguments={"a": 1}, raw=RawCall(index=0, name="t", text="<t>"))


def test_a_line_is_bounded() -> None:
    call = ToolCall(id="i", name="t", arguments={"a": ["x" * 50_000]}, raw=RawCall(index=0, name="t", text="y" * 50_000))
    sources = {f"$.a[{number}]": {"kind": "person"} for number in range(300)}
    line = audit_line(CallNote(moment="starts", call=call, sources=sources))
    assert line["arguments"]["a"][0].endswith(f"(50000 characters, sha256 {hashlib.sha256(b'x' * 50_000).hexdigest()})")
    assert len(line["raw"]) < 11_000
    assert (len(line["sources"]), line["sources_left_out"]) == (200, 100)


def test_half_a_character_and_no_number_can_be_written(tmp_path: Path) -> None:
    call = ToolCall(id="i", name="t\ud800", arguments={"a": "\udfff\x1b\n", "b": float("nan")}, raw=RawCall(index=0, name="t"))
    AuditFile(tmp_path / "a")(CallNote(moment="starts", call=call))
    assert lines(tmp_path / "a")[0]["arguments"]["a"] == "\udfff\x1b\n"


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    call = ToolCall(id="i", name="t", arguments={"a": deep}, raw=RawCall(index=0, name="t"))
    with pytest.raises(XmlcallError, match="it did not run"):
        AuditFile(tmp_path / "a")(CallNote(moment="starts", call=call))


def test_after_a_line_that_was_cut_a_new_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"whole": 1}\n{"cut')
    AuditFile(path)(CallNote(moment="starts", call=CALL))
    first, cut, last = path.read_text().splitlines()
    assert (first, cut) == ('{"whole": 1}', '{"cut')
    assert json.loads(last)["call"] == "call_1"


def test_full_files_are_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "LARGEST_FILE", 500)
    monkeypatch.setattr(audit_module, "OLDER_FILES", 3)
    path = tmp_path / "audit.jsonl"
    for number in range(40):
        AuditFile(path)(CallNote(moment="starts", call=CALL, by=str(number)))
    names = [f"audit.jsonl{end}" for end in (".3", ".2", ".1", "")]
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "audit.jsonl.lock"])
    kept = [int(line["by"]) for name in names for line in lines(tmp_path / name)]
    assert kept == [*range(kept[0], 40)]


SMALL = {"LARGEST_FILE": 2_000, "OLDER_FILES": 1_000}


def append(path: Path, who: int) -> None:
    vars(audit_module).update(SMALL)
    for number in range(50):
        AuditFile(path)(CallNote(moment="starts", call=CALL, by=f"{who}.{number}"))


def kept_by_three(folder: Path) -> bool:
    """Whether the files of a folder have each line of three that appended, once."""
    found = [line["by"] for file in folder.iterdir() for line in lines(file)]
    return sorted(found) == sorted(f"{who}.{number}" for who in range(3) for number in range(50))


def test_threads_that_append_side_by_side_lose_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(audit_module, name, value)  # which `append` does again
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(append, tmp_path / "audit.jsonl", who) for who in range(3)]:
            done.result(30)
    assert kept_by_three(tmp_path)


@pytest.mark.full  # several processes
def test_programs_that_append_side_by_side_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=append, args=(path, who)) for who in range(3)]
    for program in programs:
        program.start()
    for program in programs:
        program.join(30)
    assert kept_by_three(tmp_path)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    read, write = os.pipe()
    AuditFile(f"/dev/fd/{write}")(CallNote(moment="starts", call=CALL))
    assert json.loads(os.read(read, 1 << 16))["call"] == "call_1"
    os.close(read)
    os.close(write)
