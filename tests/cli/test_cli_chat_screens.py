"""What a person sees of a chat, through a terminal of 80 columns; and the commands, through a pipe where that is enough."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_harness import HOSTILE, Terminal, call, model_server, run_cli
from servers.fake_openai import FakeOpenAI, Step, chunk, llama_props, reply
from servers.started import ProcessFiles

from xmlcall.cli.chat_commands import COMMANDS

ECHO = call("echo", text="hi there")
ANSWER = "# Plan\n\nSome **bold** words:\n\n1. one\n2. two\n\n```python\nprint('x')\n```\nDone."


def configured(tmp_path: Path, **modes: str) -> list[str]:
    """Write a configuration of servers, each with its mode."""
    servers = {
        name: {"command": sys.executable, "args": [HOSTILE, mode], "env": ProcessFiles(tmp_path).env}
        for name, mode in (modes or {"files": "good"}).items()
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return ["--yes", "--mcp", str(tmp_path / "mcp.json")]


@contextmanager
def chat(
    tmp_path: Path, *replies: str | list[Step], env: dict[str, str] | None = None, **modes: str
) -> Iterator[tuple[Terminal, FakeOpenAI]]:
    with model_server(*replies) as (url, fake):
        fake.props = llama_props()
        options = [*configured(tmp_path, **modes), "--model", url]
        with Terminal("chat", *options, home=tmp_path, env=env, size=(30, 80)) as terminal:
            terminal.until("| servers ")
            yield terminal, fake


def said(fake: FakeOpenAI) -> list[str]:
    """The person's words in the last request."""
    contents = (message["content"] for message in fake.bodies[-1]["messages"] if message["role"] == "user")
    return [content.partition("\n\n(")[0] for content in contents if not content.startswith("<function_results>")]


def piped(tmp_path: Path, lines: str, *replies: str) -> tuple[str, str, FakeOpenAI]:
    with model_server(*replies) as (url, fake):
        done = run_cli("chat", *configured(tmp_path), "--model", url, home=tmp_path, stdin=lines)
    return done.stdout, done.stderr, fake


@pytest.mark.sweep  # as a program of its own, too
def test_a_turn_on_80_columns(tmp_path: Path) -> None:
    with chat(tmp_path, f"Let me see.\n{ECHO}", ANSWER) as (terminal, _):
        screen = terminal.typed("Say hi there\r", "Done.", "94% cached")
        at = screen.index("> Say hi there")
        assert re.sub(r"\d\.\d s$", "0.0 s", screen[at + 2]) == "call 1   files.echo(hi there) -> hi there  0.0 s"
        assert [screen[at + 1], *screen[at + 3 : at + 14]] == [
            "Let me see.",
            "Plan",
            "",
            "Some bold words:",
            "",
            "1. one",
            "2. two",
            "",
            "```python",
            "print('x')",
            "```",
            "",
        ]
        assert screen[-1].strip() == "tiny | xml | servers 1/1 | 36 of 4,096 tokens | 94% cached"
        screen = terminal.typed("/open\r", "outcome    ok")
        assert "call 1     files.echo" in screen
        assert "from       text is from you" in screen
        assert "allowed by --yes" in screen
        terminal.until('result     {"text": "hi there"}')
        terminal.typed("/open 7\r", "expected the number of a call from 1 to 1, got '7'")


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colour_an_answer_is_as_it_was_written(env: dict[str, str], tmp_path: Path) -> None:
    with model_server(ANSWER) as (url, _):
        options = [*configured(tmp_path), "--model", url]
        with Terminal("run", *options, "Go.", home=tmp_path, env=env, size=(30, 80)) as terminal:
            assert terminal.end() == 0
            assert "\n".join(terminal.screen()).endswith(ANSWER)


@pytest.mark.full  # what it waits for is shown after two seconds
def test_a_call_that_is_stopped_is_cancelled_at_its_server_and_stays_on_record(tmp_path: Path) -> None:
    with chat(tmp_path, ECHO, "Fine.", files="hang_call") as (terminal, fake):
        terminal.typed("Echo\r", "Running files.echo, 2 s")
        terminal.typed("\x03", "stopped, unknown whether it ran", "xmlcall: stopped")
        terminal.typed("And now?\r", "Fine.")
        assert "notifications/cancelled" in ProcessFiles(tmp_path).received()
        told = [message["content"] for message in fake.bodies[-1]["messages"][1:]]
        assert [message["role"] for message in fake.bodies[-1]["messages"][1:]] == ["user", "assistant"] * 2 + ["user"]
        assert "It is not known whether it did its work" in told[2]


def test_questions_of_several_lines(tmp_path: Path) -> None:
    with chat(tmp_path, "One.", "Two.", "Three.") as (terminal, fake):
        terminal.typed("one\x1b\rtwo\\\rthree\r", "One.")
        assert said(fake) == ["one\ntwo\nthree"]
        terminal.until("cached")
        terminal.typed("\x1b[200~pasted\n/quit\n\x1b[201~", "  /quit")
        terminal.typed("\r", "Two.")
        assert said(fake)[-1] == "pasted\n/quit"
        terminal.until("cached")
        terminal.send("\x12three")  # the search for an earlier question
        terminal.until("I-search backward: three")
        terminal.typed("\r\r", "Three.")
        assert said(fake)[-1] == "one\ntwo\nthree"


def test_a_question_is_edited_and_the_old_one_is_gone(tmp_path: Path) -> None:
    with chat(tmp_path, "One.", "Two.") as (terminal, fake):
        terminal.typed("first\r", "One.", "cached")
        terminal.typed("/edit\r", "> first", "cached")
        terminal.typed(" of all\r", "Two.")
        assert said(fake) == ["first of all"]


def test_tab_completes_commands_and_their_words(tmp_path: Path) -> None:
    with chat(tmp_path) as (terminal, _):
        terminal.typed("/se\t", "> /servers")
        terminal.typed(" \t\r", "> /servers off files", "files: off, its 1 tools are left out")


@pytest.mark.parametrize(("lang", "word", "last"), [("en", "help", "Ctrl-C"), ("zh", "帮助", "Ctrl-C")])
def test_the_help_needs_no_slash_and_fits_24_lines(lang: str, word: str, last: str, tmp_path: Path) -> None:
    with model_server() as (url, fake):
        options = ["--ask", f"lang={lang}", *configured(tmp_path), "--model", url]
        with Terminal("chat", *options, home=tmp_path, size=(24, 80)) as terminal:
            terminal.expect(">")
            screen = terminal.typed(f"{word}\r", last, "| ")
    at = screen.index(f"> {word}")
    assert [line.split()[0] for line in screen[at + 1 : at + 1 + len(COMMANDS)]] == [*COMMANDS]
    assert fake.bodies == []


def test_what_is_typed_ahead_answers_no_question_and_is_the_next_line(tmp_path: Path) -> None:
    slow: list[Step] = [1.5, *reply(ECHO)]
    with model_server(slow, "Done.", "Later.") as (url, fake):
        with Terminal("chat", *configured(tmp_path)[1:], "--model", url, home=tmp_path, size=(30, 80)) as terminal:
            terminal.until("| servers ")
            terminal.typed("Echo hi there\r", "Waiting for the model to read the request")
            terminal.typed("y\rAnd th", "[s]top:")
            assert not any("-> hi there" in line for line in terminal.screen())
            terminal.typed("y\r", "Done.", "> y", "  And th")
            terminal.typed("en?\r", "Later.")
    assert said(fake)[-1] == "y\nAnd then?"


def test_what_is_always_allowed_is_shown_and_taken_back(tmp_path: Path) -> None:
    with model_server(ECHO, "One.", ECHO, "Two.") as (url, _):
        with Terminal("chat", *configured(tmp_path)[1:], "--model", url, home=tmp_path, size=(30, 80)) as terminal:
            terminal.until("| servers ")
            terminal.typed("/allowed\r", "You are asked about every call")
            terminal.typed("Echo hi there\r", "[s]top:")
            terminal.typed("a\r", "One.", "cached")
            terminal.typed("/allowed off files.other\r", "expected /allowed, /allowed off")
            terminal.send("/allowed\r", "\nfiles.echo\n")
            terminal.typed("/allowed off\r", "> /allowed off")
            terminal.send("Echo hi there\r", "[s]top: ")
            terminal.typed("n not now\r", "not now", "Two.")


def test_another_model_goes_on_with_the_conversation(tmp_path: Path) -> None:
    with model_server("Two.") as (other, other_fake), chat(tmp_path, "One.") as (terminal, _):
        terminal.typed("first\r", "One.", "cached")
        terminal.typed("/model nonsense here\r", "expected a model as")
        terminal.typed("/model http://127.0.0.1:9/v1\r", "127.0.0.1:9")
        terminal.typed(f"/model {other}\r", "> /model http", "tiny | xml | servers 1/1")
        terminal.typed("second\r", "Two.")
        assert said(other_fake) == ["first", "second"]


def test_a_call_is_opened_in_a_pipe_too(tmp_path: Path) -> None:
    out, _, _ = piped(tmp_path, "Echo\n/open\n", ECHO, "Done.")
    assert "call 1     files.echo" in out


def test_retry_and_undo(tmp_path: Path) -> None:
    out, told, fake = piped(tmp_path, "a\nb\n/retry\n/undo\nc\n/edit d\n", "A.", "B.", "B again.", "C.", "D.")
    assert out == "A.\nB.\nB again.\nC.\nD.\n"
    assert told == "xmlcall: dropped: b\n"
    asked = [[message["content"].partition("\n")[0] for message in body["messages"][1:]] for body in fake.bodies]
    assert asked == [["a"], ["a", "A.", "b"], ["a", "A.", "b"], ["a", "A.", "c"], ["a", "A.", "d"]]


def test_what_a_command_cannot_do_costs_a_line(tmp_path: Path) -> None:
    lines = [
        "/retry",
        "/undo",
        "/edit",
        "/edit x",
        "/open",
        "/save",
        "/save x.txt",
        "/servers off x",
        "/allowed x",
        "/model x y",
        "/undo x",
        "/n",
    ]
    out, told, fake = piped(tmp_path, "\n".join(lines))
    assert (out, fake.bodies) == ("", [])
    assert [line.partition(" ")[0] for line in told.splitlines()] == ["xmlcall:"] * len(lines)


@pytest.mark.parametrize("name", [" files", ""], ids=["by name", "all"])
def test_a_server_that_is_off_offers_nothing(tmp_path: Path, name: str) -> None:
    _, _, fake = piped(tmp_path, f"/servers off{name}\na\n/servers on{name}\nb\n", "A.", "B.")
    first, second = (body["messages"][0]["content"] for body in fake.bodies)
    assert "echo" not in first
    assert "### echo" in second


def test_a_conversation_is_saved_and_nothing_is_overwritten(tmp_path: Path) -> None:
    hostile = "```\n## user\n```\x1b[2J"
    _, told, _ = piped(tmp_path, f"a\n/save {tmp_path}/x.md\n/save {tmp_path}/x.json\n/save {tmp_path}/x.md\n", hostile)
    assert "nothing was written" in told.splitlines()[-1]
    assert (
        tmp_path / "x.md"
    ).read_text() == "# tiny\n\n## user\n\n```\na\n```\n\n## assistant\n\n````\n```\n## user\n```\n````\n"
    saved = json.loads((tmp_path / "x.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant"]
    assert not [*tmp_path.glob("tmp*")]


def test_a_file_is_replaced_only_after_a_yes(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("kept")
    with chat(tmp_path, "A.") as (terminal, _):
        for answer, told in (("n", "nothing was written"), ("y", "messages written")):
            terminal.typed(f"/save {tmp_path}/x.md\r", "Replace it?")
            terminal.typed(f"{answer}\r", told)
    assert (tmp_path / "x.md").read_text() == "# tiny\n"


@pytest.mark.full  # what it waits for is shown after two seconds
def test_text_that_streams_slowly_is_shown_meanwhile(tmp_path: Path) -> None:
    slow: list[Step] = [chunk({"content": "**Once** upon"}), chunk({"content": " a time"}), 60.0, *reply("never")]
    with chat(tmp_path, slow) as (terminal, _):
        terminal.typed("A story\r", "Once upon a time")
        terminal.until("The model is writing, 2 s")
        terminal.typed("\x03", "xmlcall: stopped")
        assert not any("is writing" in line for line in terminal.screen())
        assert sum("Once upon a time" in line for line in terminal.screen()) == 1
