"""Files of turns: what is written has no secrets, what is read is a turn or one clear error."""

import json
import logging
import os
import re
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from turn_harness import add, block, call, tiles, turn, turn_from_json

from xmlcall import Tool
from xmlcall.dialects import DIALECTS
from xmlcall.errors import UsageError
from xmlcall.turn_records import lines as turn_lines
from xmlcall.turn_records.builder import Recorder, TurnBuilder
from xmlcall.turn_records.lines import LineFile, LineThread, read_lines, without_secrets
from xmlcall.turn_records.reading import read_reply
from xmlcall.turn_records.record import MessageRecord, TurnRecord, record_to_json

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "dialects.md").read_text(encoding="utf-8")
[EXAMPLE] = re.findall(r'```toml\n(name = "square".*?)```', PAGE, flags=re.DOTALL)
SECRET = "hunter2-x y"
LOGIN = {
    "name": "login",
    "inputSchema": {
        "type": "object",
        "properties": {"user": {"type": "string"}, "password": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["n"],
    },
}


def turn_of(text: str, *, question: str = "", **fields: Any) -> TurnRecord:
    said = [{"role": "user", "content": question}] if question else []
    reply = replace(read_reply(text, [LOGIN], conversation=said), **fields)
    return TurnRecord(id="t", source="proxy", question=question, tools=(LOGIN,), replies=(reply,), outcome="end")


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


async def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    record = await turn([f"Let me see. {block(call('add', a=1, b=2))}", "It is 3. \ud83d"])
    file = LineFile(tmp_path / "turns.jsonl")
    file.append(record)
    file.append(replace(record, id="other"))
    assert list(read_lines(file.path)) == [record, replace(record, id="other")]
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600


FORMS = [
    block(call("login", user="me", password=SECRET, n=1)),
    f'<tool_call>{{"name": "login", "arguments": {{"user": "me", "password": {json.dumps(SECRET)}, "n": 1}}}}</tool_call>',
    block(call("login", user="me", password=SECRET, n="x")),
    block(call("login", user="me", password=SECRET)),
    f'<tool_call>{{"name": "login", "arguments": {{"password": "{SECRET}", "n": "x"}}}}</tool_call>',
    f'<function_calls><invoke name="login"><parameter name="password">{SECRET}',
    f'```\n<invoke name="login"><parameter name="password">{SECRET}</parameter>\n```',
    f"Your password: '{SECRET}'",
    f"Send `Authorization: Bearer {SECRET.replace(' ', '')}` as a header.",
    block(call("login", user=SECRET, password=SECRET, n=1)) + f" and {SECRET}",
]


@pytest.mark.parametrize("text", FORMS)
def test_no_secret_is_written(text: str, tmp_path: Path) -> None:
    record = turn_of(text, question=f'Log me in with password="{SECRET}"', reasoning=f"The password: '{SECRET}'")
    prompt = MessageRecord(role="assistant", content=text)
    record = replace(record, replies=(replace(record.replies[0], prompt=(*record.replies[0].prompt, prompt)),))
    calls = [replace(each, result=json.dumps({"token": SECRET, "user": "me"}), outcome="ok") for each in record.replies[0].calls]
    record = replace(record, replies=(replace(record.replies[0], calls=tuple(calls)),))
    file = LineFile(tmp_path / "turns.jsonl")
    file.append(record)
    shown = file.path.read_text()
    assert "hunter2" not in shown
    [again] = read_lines(file.path)
    tiles(again.replies[0])
    for each in again.replies[0].calls:
        if each.start is not None:
            assert again.replies[0].raw[each.start : each.end] == each.text
        for value in each.values:
            if value.path == "$.password":
                assert value.value == "***"


def test_what_is_no_secret_stays() -> None:
    record = turn_of(block(call("login", user="me", n=1)), question="Log me in, user me")
    assert without_secrets(record) == record_to_json(record)


def test_places_move_with_the_masks() -> None:
    masked = turn_from_json(without_secrets(turn_of(f"Hi. {block(call('login', password=SECRET, user='me', n=7))} ...")))
    [reply] = masked.replies
    tiles(reply)
    places = {value.path: reply.raw[value.start : value.end] for value in reply.calls[0].values}
    assert places == {"$.password": "***", "$.user": "me", "$.n": "7"}


def test_a_line_that_was_cut_ends_where_it_is(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "turns.jsonl")
    file.append(turn_of("Hi."))
    with open(file.path, "ab") as opened:
        opened.write(b'{"id": "cut')
    assert len(list(read_lines(file.path))) == 1  # it may be written just now
    file.append(turn_of("Hi."))
    found = read_lines(file.path)
    assert next(found).id == "t"
    with pytest.raises(UsageError, match=r"turns\.jsonl, line 2: expected JSON"):
        next(found)


def test_a_full_disk_is_told() -> None:
    with pytest.raises(OSError, match="No space"):
        LineFile("/dev/full").append(turn_of("Hi."))


def test_replies_of_any_origin(tmp_path: Path) -> None:
    text = block(call("add", a="+1", b=2))
    tools = [{"name": "add", "inputSchema": Tool.from_function(add).input_schema}]
    path = written(
        tmp_path / "replies.jsonl",
        text,
        json.dumps(text),
        {"text": text, "tools": tools, "question": "1 + 2?"},
        {"raw": text, "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}], "id": 7},
        {"reply": "Hi.", "messages": [{"role": "user", "content": "Hello"}], "model": "m", "finish_reason": "length"},
        "",
    )
    with pytest.raises(UsageError, match="line 1"):
        list(read_lines(path))
    written(path, *path.read_text().splitlines()[1:])
    plain, typed, named, other = read_lines(path)
    assert plain.replies[0].calls[0].arguments == {"a": "+1", "b": "2"}
    assert typed.replies[0].calls[0].arguments == {"a": 1, "b": 2}
    assert [mark.code for mark in typed.replies[0].repairs] == ["number-format"]
    assert (typed.question, typed.tools[0]["name"], named.id) == ("1 + 2?", "add", "7")
    assert (other.question, other.answer, other.replies[0].finish_reason) == ("Hello", "Hi.", "length")
    assert [each.source for each in (plain, other)] == ["file", "file"]


WRONG: list[tuple[Any, str]] = [
    ("{", "expected JSON"),
    (3, "expected a turn or a reply"),
    ([], "expected a turn or a reply"),
    ({}, "expected the text of a reply"),
    ({"text": 3}, "expected the text of a reply"),
    ({"text": "a", "tools": 3}, "expected tools to be a list"),
    ({"text": "a", "tools": [{"nothing": 1}]}, "tool"),
    ({"text": "a", "messages": ["x"]}, "expected messages"),
    ({"text": "a", "dialect": "martian"}, "martian"),
    ({"text": "a", "question": []}, "expected question"),
    ({"replies": []}, "expected turn to have id"),
    ({"id": "x", "source": "moon", "replies": []}, "expected turn.source to be one of"),
    ({"id": "x", "source": "proxy", "replies": {}}, "expected turn.replies to be a list"),
    ({"id": "x", "source": "proxy", "replies": [{"number": "1"}]}, r"turn.replies\[0\].number to be int"),
    ({"id": "x", "source": "proxy", "replies": [{"number": True}]}, r"turn.replies\[0\].number to be int"),
    ({"id": "x", "source": "proxy", "replies": [{"number": 1, "raw": "ab"}]}, "end at 0, and its text at 2"),
    (
        {"id": "x", "source": "proxy", "replies": [{"number": 1, "raw": "a", "spans": [{"start": 0, "end": 9, "kind": "text"}]}]},
        "end at 9",
    ),
    (
        {"id": "x", "source": "proxy", "replies": [{"number": 1, "calls": [{"id": "c", "index": 0, "name": "n", "start": -4}]}]},
        "a place in reply 1",
    ),
    ("[" * 100_000, "expected JSON"),
]


@pytest.mark.parametrize(("line", "problem"), WRONG)
def test_a_broken_line_is_one_error_with_its_place(line: Any, problem: str, tmp_path: Path) -> None:
    path = written(tmp_path / "replies.jsonl", '"Hi."', line, '"Ho."')
    found = read_lines(path)
    assert next(found).replies[0].raw == "Hi."
    with pytest.raises(UsageError, match=problem) as told:
        next(found)
    assert str(told.value).startswith(f"{path}, line 2: ")
    assert len(str(told.value)) < 600


def test_a_line_names_no_file_of_a_format(tmp_path: Path) -> None:
    """A file of replies may come from anybody, and must not make us read files."""
    row = tmp_path / "row.toml"
    row.write_text(EXAMPLE, encoding="utf-8")
    known = dict(DIALECTS)
    for named in (str(row), str(tmp_path / "none.toml")):
        with pytest.raises(UsageError, match="line 1: expected the name of a wire format, got '") as told:
            next(read_lines(written(tmp_path / "replies.jsonl", {"text": "a", "dialect": named})))
        assert "No such file" not in str(told.value)
    assert known == DIALECTS


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        next(read_lines(tmp_path / "none.jsonl"))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="line 1: expected JSON"):
        next(read_lines(tmp_path / "x.jsonl"))


def test_what_a_later_version_added_is_left_out(tmp_path: Path) -> None:
    told = record_to_json(turn_of("Hi.")) | {"colour": "red"}
    del told["verdict"]
    [again] = read_lines(written(tmp_path / "x.jsonl", told))
    assert again == turn_of("Hi.")


PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(PLAIN, lambda each: st.lists(each, max_size=3), max_leaves=6)


@given(VALUES, st.data())
@settings(max_examples=examples(100), deadline=None)
def test_any_change_of_a_line_is_a_turn_or_an_error(value: Any, data: st.DataObject) -> None:
    told = json.loads(json.dumps(record_to_json(turn_of(block(call("login", user="me", n="+1")), question="I am me"))))
    node: Any = told
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            node[key] = value
            break
        node = node[key]
    path = Path(os.environ["XMLCALL_RECORDS"]) / "changed.jsonl"
    path.parent.mkdir(exist_ok=True)
    problem, found = "", list[TurnRecord]()
    try:
        found = list(read_lines(written(path, told)))
    except UsageError as error:
        problem = str(error)
    assert len(found) == 1 or ", line 1: " in problem
    for again in found:
        json.dumps(without_secrets(again))
        for reply in again.replies:
            tiles(reply)


def test_masking_keeps_the_rest_whatever_was_written() -> None:
    for _, case in load("function_calls/*.toml"):
        reply = read_reply(case["input"], ())
        masked = turn_from_json(without_secrets(TurnRecord(id="t", source="file", replies=(reply,))))
        tiles(masked.replies[0])


def test_ten_thousand_turns_are_read_in_seconds(tmp_path: Path) -> None:
    line = json.dumps(record_to_json(turn_of(block(call("login", user="me", n=1)), question="I am me")))
    path = written(tmp_path / "x.jsonl", *[line] * 10_000)
    begun = time.perf_counter()
    assert sum(1 for _ in read_lines(path)) == 10_000
    assert time.perf_counter() - begun < 30


# -- finished turns in a file, written by a thread: nobody waits for the disk, and a full one ends nothing -------------


def finished(number: int) -> TurnBuilder:
    turn = TurnBuilder(id=f"t{number}", source="proxy", question="Hi")
    turn.end("end", answer="Hello")
    return turn


def test_each_finished_turn_is_a_line(tmp_path: Path) -> None:
    said: list[str] = []
    lines = LineThread(tmp_path / "turns.jsonl", said.append)
    recorder = Recorder(most_turns=1, keep=lines.append)
    for _ in range(20):
        turn = recorder.begin(question="Hi")
        turn.end("end")
        recorder.done(turn)
    lines.close()
    written = (tmp_path / "turns.jsonl").read_text().splitlines()
    assert len({turn_from_json(json.loads(line)).id for line in written}) == 20
    assert (tmp_path / "turns.jsonl").stat().st_mode & 0o777 == 0o600
    assert said == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_once() -> None:
    said: list[str] = []
    lines = LineThread(Path("/dev/full"), said.append)
    for number in range(5):
        lines.append(finished(number))
    lines.close()
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_it_is_told_again_when_some_could_be_written_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    lines = LineThread(tmp_path / "turns.jsonl", said.append)
    append = lines._file.append

    def refused(turn: TurnRecord) -> None:
        if turn.id != "t2":
            raise OSError(28, "No space left on device")
        append(turn)

    monkeypatch.setattr(lines._file, "append", refused)
    for number in range(5):
        lines.append(finished(number))
    lines.close()
    assert len(said) == 2
    assert len((tmp_path / "turns.jsonl").read_text().splitlines()) == 1


def test_a_disk_that_is_slow_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_lines, "MOST_WAITING", 3)
    said: list[str] = []
    lines, waits = LineThread(tmp_path / "turns.jsonl", said.append), threading.Event()
    monkeypatch.setattr(lines._file, "append", lambda turn: waits.wait(10))
    begun = time.monotonic()
    for number in range(50):
        lines.append(finished(number))
    assert time.monotonic() - begun < 5
    assert said == [f"turns are not written to {lines.path}: they come faster than they can be written; "
                    "each later turn is tried again"]  # fmt: skip
    lines.close(0.1)  # and the end of the program does not wait for long
    waits.set()


def test_a_turn_that_cannot_be_written_is_logged_and_the_next_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines, broken = LineThread(tmp_path / "turns.jsonl"), finished(0)

    def fails() -> TurnRecord:
        raise RuntimeError("broken")

    monkeypatch.setattr(broken, "record", fails)
    with caplog.at_level(logging.ERROR):
        lines.append(broken)
        lines.append(finished(1))
        lines.close()
    assert "a turn could not be recorded" in caplog.text
    assert len((tmp_path / "turns.jsonl").read_text().splitlines()) == 1
