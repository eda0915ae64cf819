"""`xmlcall log`, and conversations that are gone on with: real processes, a scripted model."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Terminal, call, configured, model_server, run_cli, run_here
from servers.started import ProcessFiles

from xmlcall import Message
from xmlcall.records.store import Store

PROMPT = ">\x08"
ADD = call("calculator", operation="add", a="1", b="2")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one conversation was had, with a good call, one that cannot run, and markup in it."""
    home = tmp_path_factory.mktemp("kept")
    with model_server(ADD, "It is **3**.", call("calculator", operation="pow"), "```\n\x1b[31mred") as (url, _):
        done = run_cli("chat", "--model", url, home=home, stdin="What is 1 + 2?\nAnd 北京 \x1b[31m?\n")
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def here(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XMLCALL_RECORDS", str(kept / "records"))
    return kept


def keep(home: Path, id: str, question: str) -> None:
    (home / "records").mkdir(exist_ok=True)
    with Store(home / "records" / "conversations.db") as store:
        store.write(id, "kept", {}, [Message(role="user", content=question), Message(role="assistant", content="Hm.")])


def the_id() -> str:
    return str(json.loads(run_here("log", "list", "--json").stdout)[0]["id"])


def test_the_list(here: Path) -> None:
    [line] = run_here("log").stdout.splitlines()
    assert line.split()[0] == the_id()
    assert line.endswith("What is 1 + 2?")


def test_a_conversation_is_shown(here: Path) -> None:
    done = run_here("log", "show", the_id()[:5])
    assert done.returncode == 0
    assert "## The person, " in done.stdout
    shown = r'Call of `demo\.calculator`: ok \(allow demo\.\*\), \d\.\d\d s\n\n```json\n\{\n  "operation": "add"'
    assert re.search(shown, done.stdout)
    assert "- `$.a`: said by the person" in done.stdout
    assert "- Mistake `missing-argument`" in done.stdout
    assert "Call of `demo.calculator`: rejected" in done.stdout
    assert "It is **3**." in done.stdout
    assert "\x1b" not in done.stdout


def test_all_of_it_is_exported(here: Path) -> None:
    told = json.loads(run_here("log", "export", the_id(), "--json").stdout)
    assert [message["role"] for message in told["messages"]] == ["user", "assistant", "user", "assistant", "user", "assistant"]
    [offered] = told["tools"].values()
    assert [tool["name"] for tool in offered] == ["calculator", "text_analyzer", "get_weather"]
    kinds = [event["kind"] for event in told["events"]]
    assert kinds[:8] == ["asked", "reply", "started", "ended", "step", "reply", "step", "answer"]
    assert told["events"][1]["body"]["raw"] == ADD
    assert run_here("log", "export", the_id()).stdout.startswith("# What is 1 + 2?\n")


def test_words_are_searched(here: Path) -> None:
    done = run_here("log", "search", "北京")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    heading, *found = run_here("log", "search", "3").stdout.splitlines()
    assert heading.startswith(the_id())
    assert len(found) > 1
    assert not any(line.startswith(the_id()) for line in found)
    assert json.loads(run_here("log", "search", "WHAT", "1 + 2", "--json").stdout)[0]["message"] == 0
    assert run_here("log", "search", "nowhere").returncode == 1


def test_the_reminder_below_a_question_is_not_searched(here: Path) -> None:
    found = json.loads(run_here("log", "search", "what is", "--json").stdout)
    assert [row["content"] for row in found] == ["What is 1 + 2?"]
    nothing = run_here("log", "search", "function_calls> block now", "--json")
    assert (json.loads(nothing.stdout), nothing.returncode) == ([], 1)


def test_the_audit_lies_beside_it(here: Path) -> None:
    audit = [json.loads(line) for line in (here / "records" / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in audit] == ["starts", "ended", "rejected"]
    assert {line["conversation"] for line in audit} == {the_id()}
    assert run_here("log", "path").stdout.splitlines()[1] == str(here / "records" / "audit.jsonl")


@pytest.mark.parametrize("words", [["show", "zz"], ["show"], ["delete"], ["delete", "--all", "ab"], ["search"]])
def test_bad_input_is_one_line(here: Path, words: list[str]) -> None:
    done = run_here("log", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_conversations_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, "abcd0001", "Hello")
    monkeypatch.setenv("XMLCALL_RECORDS", str(tmp_path / "records"))
    assert run_here("log", "delete", the_id()).returncode == 0
    nothing = run_here("log", "list")
    assert (nothing.stdout, nothing.stderr) == ("", "xmlcall: no conversation is kept yet\n")
    assert run_here("log", "list", "--json").stderr == ""
    assert b"Hello" not in (tmp_path / "records" / "conversations.db").read_bytes()


def said(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in body["messages"][1:]]


def test_a_chat_that_was_killed_in_a_call_goes_on(tmp_path: Path) -> None:
    options = ["--ask", "reminder=no", "--mcp", configured(tmp_path, "hang_call")]
    with model_server(call("echo", text="hi"), "It may have run.") as (url, fake):
        with Terminal("chat", "--yes", "--model", url, *options, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("Echo it\r")
            deadline = time.monotonic() + 20
            while "tools/call" not in ProcessFiles(tmp_path).received():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        options[-1] = configured(tmp_path, "good")
        done = run_cli("chat", "--continue", "--model", url, *options, home=tmp_path, stdin="Did it run?\n")
    assert (done.returncode, done.stdout) == (0, "It may have run.\n")
    resumed, unknown, cut = done.stderr.splitlines()
    assert resumed.endswith("messages: 1: Echo it")
    assert unknown == "xmlcall: files.echo had started when the program ended: unknown whether it ran"
    assert cut.startswith("xmlcall: its last question has no answer")
    asked, called, result, closed, question = said(fake.bodies[-1])
    assert (asked, question) == (("user", "Echo it"), ("user", "Did it run?"))
    assert called == ("assistant", call("echo", text="hi"))
    assert "<error>" in result[1] or "error" in result[1]
    assert "It is not known whether it did its work" in result[1]
    assert closed[0] == "assistant"


def test_a_conversation_is_chosen_on_a_terminal(tmp_path: Path) -> None:
    keep(tmp_path, "abcd0001", "first")
    time.sleep(0.01)
    keep(tmp_path, "abcd0002", "second")
    options = ["--ask", "reminder=no", "--mcp", configured(tmp_path, "good")]
    with model_server("Three.") as (url, fake):
        with Terminal("chat", *options, "--resume", "--model", url, home=tmp_path) as terminal:
            shown = terminal.expect("Which one?")
            assert shown.index("second") < shown.index("first")
            terminal.send("2\n", "messages: 2: first", PROMPT)
            terminal.send("third\r", "Three.\n")
    assert said(fake.bodies[-1]) == [("user", "first"), ("assistant", "Hm."), ("user", "third")]


def test_calls_are_counted_on_and_what_a_person_said_with_a_no_is_theirs(tmp_path: Path) -> None:
    calls = [call("echo", text=text) for text in ("hi", "Oslo", "Oslo", "Rome")]
    options = ["--mcp", configured(tmp_path, "good")]
    with model_server(calls[0], "One.", calls[1], "Two.", calls[2], "Three.", calls[3], "Four.") as (url, _):
        for more, asked in ([], ("y", "n use Oslo instead")), (["--continue"], ("y", "n Rome is wrong")):
            with Terminal("chat", *options, *more, "--model", url, home=tmp_path) as terminal:
                for answer in asked:
                    terminal.expect(PROMPT)
                    terminal.send("Echo hi\r")
                    question = terminal.expect("[s]top: ")
                    terminal.send(f"{answer}\n", ".\n")
                assert "is from the result" not in question
                terminal.expect(PROMPT)
                terminal.send("/open 3\r")
                shown = terminal.expect("result     " if more else "got '3'")
                assert ("from       text is from you" if more else "a call from 1 to 2") in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--continue"], "there is no conversation to continue yet"),
        (["--resume", "abcd"], "expected the id of a conversation"),
        (["--no-record", "--continue"], "not allowed with argument"),
        (["--continue", "--system", "x"], "--system starts a new conversation"),
    ],
)
def test_what_cannot_be_gone_on_with(options: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_RECORDS", str(tmp_path / "records"))
    done = run_here("chat", "--model", "http://127.0.0.1:9/v1", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


ECHO = call("echo", text="hi")


def test_nothing_is_kept_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "records"
    kept.mkdir()
    monkeypatch.setenv("XMLCALL_RECORDS", str(kept))
    usual = ("run", "--no-record", "--yes", "--mcp", configured(tmp_path, "good"))
    with model_server(ECHO, "Hi.", ECHO, "Hi.") as (url, _):
        assert run_here(*usual, "--model", url, "Echo hi.").returncode == 0
        assert list(kept.iterdir()) == []
        assert run_here(*usual, "--audit", kept / "calls.jsonl", "--model", url, "Echo hi.").returncode == 0
    assert [file.name for file in kept.iterdir()] == ["calls.jsonl"]
    assert len((kept / "calls.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("option", ["--no-record", "--verbose"])
def test_pictures_of_results_are_kept_with_the_records(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_FILES", str(tmp_path / "files"))
    monkeypatch.setenv("XMLCALL_RECORDS", str(tmp_path / "records"))
    script = Path(__file__).parents[1] / "servers" / "library.py"
    with model_server(call("cover"), "A cover.") as (url, fake):
        done = run_here("run", option, "--yes", "--mcp", script, "--model", url, "Show the cover.")
    assert done.stdout == "A cover.\n"
    assert "image/png" in fake.bodies[-1]["messages"][-1]["content"]
    assert (tmp_path / "files").exists() is (option != "--no-record")


def test_a_call_that_cannot_be_audited_does_not_run(tmp_path: Path) -> None:
    options = ("--yes", "--mcp", configured(tmp_path, "good"))
    with model_server(ECHO) as (url, _):
        done = run_here("run", *options, "--audit", "/dev/full", "--model", url, "Echo hi.")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("/dev/full: No space left on device; it did not run")
    assert "tools/call" not in ProcessFiles(tmp_path).received()
