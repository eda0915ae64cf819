"""`xmlcall chat`, on a terminal and through a pipe."""

import json
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, Terminal, call, configured, environment, model_server, run_cli
from cli_process import XMLCALL
from servers.fake_openai import Step, chunk, llama_props, reply
from servers.started import ProcessFiles, is_alive

from xmlcall.cli.chat_commands import COMMANDS

# What prompt_toolkit draws for "> " before anything is typed: the sign, one step back, two steps forward.
PROMPT = ">\x08"
QUESTION = "[s]top: "
ECHO = call("echo", text="hi")


def said_to(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The conversation of a request without the tool prompt: roles and first lines."""
    return [(message["role"], message["content"].partition("\n")[0]) for message in body["messages"][1:]]


def test_a_model_that_says_that_it_has_no_tools(tmp_path: Path) -> None:
    with model_server("I don't have access to real-time data.") as (url, _):
        done = run_cli("chat", "--model", url, home=tmp_path, stdin="How warm is it in Rome?\n")
    told = f"xmlcall: the model called none of the tools on offer; `xmlcall doctor {url}` tests why\n"
    assert (done.returncode, done.stderr[-len(told) :]) == (0, told)


@pytest.mark.sweep  # as a program of its own, too
def test_a_conversation_on_a_terminal(tmp_path: Path) -> None:
    with model_server("Grüß Gott.", ECHO, "Done.", "New.") as (url, fake):
        with Terminal("chat", "--mcp", configured(tmp_path), "--model", url, home=tmp_path) as terminal:
            assert "tiny, tools: 1 (/servers off to talk without them); /help lists the commands" in terminal.expect(PROMPT)
            terminal.send("Hällo, 世界!\r", "Grüß Gott.\n", PROMPT)
            terminal.send("Echo\r", QUESTION)
            terminal.send("y\n", "files.echo(hi) -> hi  ", " s\n", "Done.\n", PROMPT)
            terminal.send("/tools\r", "files.echo(text?: string)\n    The tool echo.\n", PROMPT)
            terminal.send("/help\r")
            shown = terminal.expect("/quit")
            assert [line.split()[0] for line in shown.splitlines()[1:] if line.startswith("/")] == list(COMMANDS)[:-1]
            terminal.expect(PROMPT)
            terminal.send("/nonsense\r", "xmlcall: expected a question or one of /help, ", PROMPT)
            terminal.send("/clear\r", "a new conversation", PROMPT)
            terminal.send("Again\r", "New.\n", PROMPT)
            terminal.send("/quit\r")
            assert terminal.end() == 0
    first, second, third, last = map(said_to, fake.bodies)
    assert first == [("user", "Hällo, 世界!")]
    assert second == [*first, ("assistant", "Grüß Gott."), ("user", "Echo")]
    assert third == [*second, ("assistant", "<function_calls>"), ("user", "<function_results>")]
    assert last == [("user", "Again")]
    history = tmp_path / "xmlcall" / "chat_history"
    assert "+Hällo, 世界!\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert not any(map(is_alive, ProcessFiles(tmp_path).pids()))


def test_what_was_typed_is_not_kept_without_records(tmp_path: Path) -> None:
    with model_server("Hello.", "Hello.") as (url, _):
        with Terminal("chat", "--no-record", "--no-tools", "--model", url, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("My secret\r", "Hello.\n", PROMPT)
            terminal.send("/quit\r")
            assert terminal.end() == 0
    assert not (tmp_path / "xmlcall" / "chat_history").exists()


def test_interrupting_ends_the_turn_and_not_the_program(tmp_path: Path) -> None:
    endless: list[Step] = [chunk({"content": "Once upon "}), chunk({"content": "a time"}), 60.0, *reply("never")]
    with model_server(endless, ECHO, "Fine.") as (url, fake):
        with Terminal("chat", "--mcp", configured(tmp_path), "--model", url, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("A story\r", "Once upon a")
            terminal.send("\x03", "stopped\n")
            assert fake.left.wait(5), "the generation goes on at the server"
            terminal.expect(PROMPT)
            terminal.send("Echo\r")  # at a question, too
            terminal.expect(QUESTION)
            terminal.send("\x03", "stopped\n", PROMPT)
            terminal.send("half a line\x03")  # only clears the line
            terminal.expect(PROMPT)
            terminal.send("Better?\r", "Fine.\n", PROMPT)
            terminal.send("\x04")
            assert terminal.end() == 0
    story, answer, echo, call, results, note, better = said_to(fake.bodies[-1])
    assert [story, answer, echo, better] == [
        ("user", "A story"),
        ("assistant", "Once upon a time"),
        ("user", "Echo"),
        ("user", "Better?"),
    ]
    assert [call, results] == [("assistant", "<function_calls>"), ("user", "<function_results>")]
    assert note == ("assistant", "(no answer: the turn was ended here)")


@pytest.mark.full  # what it waits for is shown after two seconds
def test_a_call_can_be_interrupted(tmp_path: Path) -> None:
    with model_server(ECHO, "Fine.") as (url, _):
        with Terminal("chat", "--yes", "--mcp", configured(tmp_path, "hang_call"), "--model", url, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("Echo\r", "Running files.echo, 2 s")
            terminal.send("\x03", "stopped, unknown whether it ran", "stopped\n", PROMPT)
            terminal.send("Better?\r", "Fine.\n")


def clean(terminal: Terminal) -> bool:
    """Whether what is on the screen is whole: no traceback, no rest of an escape sequence."""
    return "Traceback" not in terminal.rest() and not re.search(r"\x1b|\[\??[0-9;]*[a-zA-Z]", terminal.rest())


@pytest.mark.full  # what it waits for is shown after two seconds
def test_interrupting_while_it_loads_ends_the_program(tmp_path: Path) -> None:
    with model_server() as (url, _):
        with Terminal("chat", "--mcp", configured(tmp_path, "hang"), "--model", url, home=tmp_path) as terminal:
            terminal.expect("Loading")
            terminal.send("\x03")
            assert terminal.end() == 130
            assert terminal.rest().endswith("xmlcall: interrupted\n")
            assert clean(terminal)
    assert not any(map(is_alive, ProcessFiles(tmp_path).pids()))


@pytest.mark.full  # what it waits for is shown after two seconds
def test_waiting_tells_how_far_the_prompt_and_a_call_are(tmp_path: Path) -> None:
    progress = {"total": 3000, "cache": 24, "processed": 1240, "time_ms": 5123}
    begun = '<function_calls>\n<invoke name="echo">\n<parameter name="text">'
    writing: list[Step] = [chunk({"content": begun}), *[chunk({"content": "word "})] * 5, 60.0, *reply("never")]
    steps: list[Step] = [chunk({"role": "assistant", "content": None}, prompt_progress=progress), 3.0, *writing]
    with model_server(steps) as (url, fake):
        fake.props = llama_props()
        with Terminal("chat", "--mcp", configured(tmp_path), "--model", url, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("Go\r", "Reading the prompt: 1,240 of 3,000 tokens, 2 s")
            assert fake.bodies[0]["return_progress"] is True
            terminal.expect("Writing a call: 25 characters, 2 s")
            terminal.send("\x03", "stopped\n", PROMPT)
            assert clean(terminal)


@pytest.mark.full  # what it waits for is shown after two seconds
def test_waiting_tells_how_far_a_tool_is(tmp_path: Path) -> None:
    options = ["--yes", "--ask", "lang=zh", "--mcp", configured(tmp_path, "telling_hang")]
    with model_server(ECHO) as (url, _), Terminal("chat", *options, "--model", url, home=tmp_path) as terminal:
        terminal.expect(PROMPT)
        terminal.send("Go\r", r"正在运行 files.echo （3 / 10） page\u001b[31m 3，2 秒")
        terminal.send("\x03", "已停止\n")


@pytest.mark.parametrize("word", ["exit", "QUIT", ":q", "退出", "/exit"])
def test_words_that_end_a_chat(word: str, tmp_path: Path) -> None:
    with model_server() as (url, fake):
        done = run_cli("chat", "--mcp", configured(tmp_path), "--model", url, home=tmp_path, stdin=f" {word} \nmore\n")
    assert (done.returncode, done.stdout, done.stderr, fake.bodies) == (0, "", "", [])


def test_a_chat_in_chinese(tmp_path: Path) -> None:
    with model_server(ECHO, "好的。") as (url, _):
        with Terminal("chat", "--ask", "lang=zh", "--mcp", configured(tmp_path), "--model", url, home=tmp_path) as terminal:
            assert "tiny，工具：1 个" in terminal.expect(PROMPT)
            terminal.send("说 hi\r")
            assert "模型想运行 files.echo（服务器 files）：" in terminal.expect("[s] 停止：")
            terminal.send("是\n", "好的。\n", PROMPT)
            terminal.send("/help\r", "开始新的对话")
            terminal.send("退出\r")
            assert terminal.end() == 0


def test_a_server_that_fails_costs_a_line(tmp_path: Path) -> None:
    servers = {name: {"command": sys.executable, "args": [HOSTILE, name]} for name in ("good", "exit")}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with model_server("One.", "Two.") as (url, _):
        done = run_cli("chat", "--mcp", "mcp.json", "--model", url, home=tmp_path, stdin="1\n2\n")
    assert (done.returncode, done.stdout) == (0, "One.\nTwo.\n")
    [notice] = done.stderr.splitlines()
    assert notice.startswith("xmlcall: exit: ")


def test_tools_that_are_shown_in_part_cost_a_line(tmp_path: Path) -> None:
    describing = (
        '<function_calls><invoke name="describe_tools"><parameter name="names">["echo"]</parameter></invoke></function_calls>'
    )
    with model_server("One.", describing, "Two.") as (url, fake):
        given = ("--mcp", configured(tmp_path), "--model", url, "--ask", "tool_tokens=500")
        done = run_cli("chat", *given, home=tmp_path, stdin="1\nEcho this.\n")
    assert (done.returncode, done.stdout) == (0, "One.\nTwo.\n")
    notice, *calls = done.stderr.splitlines()
    told = r"xmlcall: 1 tools are too many to describe in full .*: the model sees .* \(see --ask tool_tokens\)"
    assert re.fullmatch(told, notice)
    assert "xmlcall.describe_tools" in calls[0]
    assert "### echo" in fake.bodies[-1]["messages"][-1]["content"]


def test_tools_are_listed_and_one_is_shown_by_name(tmp_path: Path) -> None:
    with model_server() as (url, _):
        with Terminal("chat", "--mcp", configured(tmp_path, "tall"), "--model", url, home=tmp_path) as terminal:
            terminal.expect(PROMPT)
            terminal.send("/tools\r", "files.tool_29(text?: string)", PROMPT)
            terminal.send("/tools files.tool_3\r")
            terminal.expect("files.tool_3(text?: string)  The tool's title\n    The tool tool_3.\n    text: string, optional\n")
            terminal.expect(PROMPT)
            terminal.send("/tools nothing\r", "expected the name of a tool, got 'nothing'")


@pytest.mark.sweep  # as a program of its own, too
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_no_server_behind(number: signal.Signals, tmp_path: Path) -> None:
    with model_server() as (url, _), Terminal("chat", "--mcp", configured(tmp_path), "--model", url, home=tmp_path) as terminal:
        terminal.expect(PROMPT)
        terminal.signal(number)
        assert terminal.end() == 130
    pids = ProcessFiles(tmp_path).pids()
    assert pids
    assert not any(map(is_alive, pids))


@pytest.mark.sweep  # as a program of its own, too
def test_each_line_of_a_pipe_is_a_question(tmp_path: Path) -> None:
    lines = "What is 1 + 2?\n\n/tools\nUnd zweimal Köln?"  # the last one without its end
    with model_server(call("calculator", operation="add", a="1", b="2"), "3.", "Köln Köln.") as (url, fake):
        done = run_cli("chat", "--model", url, home=tmp_path, stdin=lines)
    assert done.returncode == 0
    first, *tools, last = done.stdout.splitlines()
    assert (first, last) == ("3.", "Köln Köln.")
    assert [line.partition("(")[0] for line in tools[::2]] == ["demo.calculator", "demo.text_analyzer", "demo.get_weather"]
    assert done.stderr == 'call     demo.calculator(operation="add", a=1, b=2)\nresult   3\n'
    assert said_to(fake.bodies[-1])[-2:] == [("assistant", "3."), ("user", "Und zweimal Köln?")]


def test_a_turn_that_fails_does_not_end_the_chat(tmp_path: Path) -> None:
    with model_server([b"no event stream\n\n"], ECHO, ECHO, "Fine.") as (url, fake):
        options = ["--max-turns", "2", "--yes", "--mcp", configured(tmp_path), "--model", url]
        done = run_cli("chat", *options, home=tmp_path, stdin="one\ntwo\nthree\n")
    assert done.stdout == "Fine.\n"
    messages = [line for line in done.stderr.splitlines() if line.startswith("xmlcall: ")]
    assert len(messages) == 2
    assert "no answer after 2 replies" in messages[1]
    assert done.returncode == 1
    assert [role for role, _ in said_to(fake.bodies[-1])] == [*["user", "assistant"] * 3, "user"]
    assert said_to(fake.bodies[-1])[-2:] == [("assistant", "(no answer: the turn was ended here)"), ("user", "three")]


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    """A program may drive the chat: an answer must not wait for the end of input."""
    with model_server("One.", "Two.") as (url, _):
        command = [*XMLCALL, "chat", "--mcp", configured(tmp_path), "--model", url]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **streams, env=environment(tmp_path)) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for answer in (b"One.\n", b"Two.\n"):
                process.stdin.write(b"Go on\n")
                process.stdin.flush()
                assert process.stdout.readline() == answer
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            assert process.wait(10) == 130
    assert time.monotonic() - begun < 5
