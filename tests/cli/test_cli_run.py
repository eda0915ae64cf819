"""`xmlcall run` from the outside: a scripted model server, real MCP servers."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, Terminal, call, configured, environment, model_server, run_cli
from cli_process import begin
from servers.fake_openai import Step, chunk, llama_props, reply
from servers.started import ProcessFiles, is_alive

from xmlcall import parse
from xmlcall.backends.openai import FALLBACK_TEMPLATE
from xmlcall.cli import main
from xmlcall.cli.session import says_no_tools
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.prompting.format import PromptFormat
from xmlcall.tools.catalog import Catalog

Capture = pytest.CaptureFixture[str]

ECHO = call("echo", text="hi")
ADD = call("calculator", operation="add", a="1", b="2")


def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(tmp_path: Path) -> None:
    with model_server(f"Let me see.\n{ADD}", "\n\nIt is **3**.\n\n") as (url, _):
        done = run_cli("run", "--model", url, "What is 1 + 2?", home=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "It is **3**.\n"
    assert done.stderr == 'Let me see.\ncall     demo.calculator(operation="add", a=1, b=2)\nresult   3\n'


def test_without_tools_the_model_alone_is_asked(tmp_path: Path) -> None:
    with model_server("Rain.") as (url, fake):
        done = run_cli("run", "--no-tools", "--model", url, "A haiku about rain?", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Rain.\n")
    assert "calculator" not in json.dumps(fake.bodies)
    done = run_cli("run", "--no-tools", "--mcp", configured(tmp_path), "Hello", home=tmp_path)
    assert (done.returncode, "--no-tools leaves out every server" in done.stderr) == (2, True)


@pytest.mark.full  # what it waits for is shown after two seconds
def test_on_a_terminal_text_is_shown_as_it_comes_until_it_is_interrupted(tmp_path: Path) -> None:
    said = [chunk({"content": text}) for text in ("\n\nIt is ", "\x1b", "[31m[b]3[/b] ", "or ")]
    endless: list[Step] = [2.5, *said, 60.0, *reply("never")]
    with model_server(f"Let me see.\n{ADD}", endless) as (url, fake):
        with Terminal("run", "--model", url, "1+2?", home=tmp_path) as terminal:
            terminal.expect('Let me see.\ncall     demo.calculator(operation="add", a=1, b=2)\nresult   3\n')
            terminal.expect("Waiting for the model to read the results, 1 s")
            terminal.expect("It is [b]3[/b] or")
            terminal.send("\x03")
            assert terminal.end() == 130
            assert terminal.rest().endswith("\nxmlcall: interrupted\n")
        assert fake.left.wait(5), "the generation goes on at the server"


@pytest.mark.parametrize(
    ("mode", "said", "options", "outcome", "shown"),
    [
        ("good", ECHO, ["--yes"], "ok", 'call     files.echo(text="hi")\nresult   {"text": "hi"}\n'),
        ("good", ECHO, ["--allow", "x.*", "--allow", "files.e*"], "ok", 'result   {"text": "hi"}\n'),
        ("good", ECHO, [], "denied", 'denied   files.echo(text="hi")\nxmlcall: files.echo did not run'),
        ("good", ECHO, ["--allow", "echo"], "denied", "--allow files.echo, or every tool with --yes\n"),
        ("good", call("echo", text="hi", size="5"), ["--yes"], "rejected", "rejected files.echo\n         "),
        ("good", call("sing"), ["--yes"], "rejected", "rejected sing\n         "),
        ("rpc_error", ECHO, ["--yes"], "failed", "failed   files: error -32042 while running 'echo': the moon is wrong\n"),
        ("die_in_call", ECHO, ["--yes"], "failed", "failed   files: the connection ended while running 'echo'"),
    ],
)
def test_what_becomes_of_a_call(
    mode: str, said: str, options: list[str], outcome: str, shown: str, tmp_path: Path, capsys: Capture
) -> None:
    with model_server(said, "Done.") as (url, _):
        code = main(["run", "--json", "--mcp", configured(tmp_path, mode), *options, "--model", url, "Go."])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert code == (outcome == "denied")  # there was no terminal to ask on
    assert (document["answer"], document["stop_reason"], document["replies"]) == ("Done.", "end", 2)
    counted = {"prompt_tokens": 64, "completion_tokens": 8, "cached_tokens": 60, "is_estimated": False}
    assert document["usage"] == counted
    assert document["tool_need"] is None
    [made] = document["calls"]
    assert (made["outcome"], made["name"]) == (outcome, "sing" if "sing" in said else "echo")
    assert made["server"] == (None if "sing" in said else "files")  # no server has that tool
    assert bool(made["issues"]) == (outcome == "rejected")
    assert shown in err


def test_a_call_that_waits_for_a_result(tmp_path: Path, capsys: Capture) -> None:
    weather, sums = (call("get_weather", location="Tokyo"), call("calculator", operation="multiply", a="21.5", b="2"))
    both = weather.replace("</function_calls>", "") + sums.replace("<function_calls>", "")
    with model_server(both, "Done.") as (url, _):
        assert main(["run", "--json", "--model", url, "Take the temperature of Tokyo twice."]) == 0
    out, err = capsys.readouterr()
    made, held = json.loads(out)["calls"]
    assert (made["name"], made["outcome"]) == ("get_weather", "ok")
    assert (held["name"], held["outcome"], held["result"]) == ("calculator", "held", None)
    said = "demo.calculator does not run yet: the conversation does not give a; the model writes the call again after the results"
    assert f"waits    {said}\n" in err


def test_an_error_of_a_tool_is_its_result(tmp_path: Path, capsys: Capture) -> None:
    wrong, zero = (call("calculator", operation="divide", a=a, b="0") for a in ("one", "1"))
    with model_server(wrong, zero, "Impossible.") as (url, _):
        assert main(["run", "--json", "--model", url, "Divide!"]) == 0
    out, err = capsys.readouterr()
    rejected, made = json.loads(out)["calls"]
    assert [issue["code"] for issue in rejected["issues"]] == ["wrong-type"]
    assert 'rejected demo.calculator\n         a: Expected number, got "one".\n' in err
    assert made == {
        "name": "calculator",
        "server": "demo",
        "arguments": {"operation": "divide", "a": 1, "b": 0},
        "outcome": "error",
        "result": "Error executing tool calculator: division by zero is not possible",
        "issues": [],
        "repairs": [],
    }
    assert "error    Error executing tool calculator: division by zero is not possible\n" in err


def test_a_configured_server_that_calls_itself_demo_is_asked_about(tmp_path: Path, capsys: Capture) -> None:
    with model_server(ECHO, "Done.") as (url, _):
        assert main(["run", "--mcp", configured(tmp_path, name="demo", autoApprove=["*"]), "--model", url, "Go."]) == 1
    assert "demo.echo did not run: no terminal to ask on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("replies", "options", "out", "message"),
    [
        ([ECHO, ECHO], ["--max-turns", "2"], "", "no answer after 2 replies: .* --max-turns"),
        ([reply("It is", finish_reason="length")], [], "It is\n", "cut off at the limit of tokens: .* --ask max_tokens=N"),
        (
            [reply("It is", finish_reason="content_filter")],
            [],
            "It is\n",
            "ended it early, with the reason 'content_filter'",
        ),
        ([" \n", ""], [], "", "the model's answer is empty"),
        (["<function_results>\n9"] * 4, [], "", "no answer: the model wrote results that no tool gave"),
        (["(Answer in plain words, without a tool.)"] * 4, [], "", "no answer: the model only repeated its instructions"),
        (["I am quite sure of it.\n" * 99], [], "I am quite sure of it.\n", "the model repeated itself and was stopped"),
    ],
)
def test_a_run_without_a_whole_answer_fails(
    replies: list[Any], options: list[str], out: str, message: str, tmp_path: Path, capsys: Capture
) -> None:
    with model_server(*replies) as (url, _):
        assert main(["run", "--yes", "--mcp", configured(tmp_path), *options, "--model", url, "Go."]) == 1
    printed = capsys.readouterr()
    assert printed.out == out
    assert re.fullmatch(f"xmlcall: .*{message}.*", printed.err.splitlines()[-1])


NO_ACCESS = "I'm sorry, but I don't have access to real-time weather data."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (NO_ACCESS, True),
        ("As an AI language model, I cannot provide real-time information.", True),
        ("I am unable to browse the internet.", True),
        ("I can't call any tools.", True),
        ("抱歉，我无法提供实时天气信息。", True),
        ("作为语言模型，我不能调用工具。", True),
        ("No, I can't help with that. The tools in the shed are not yours. I like real-time music.", False),
        ("没有人知道。这个工具很好。", False),
    ],
)
def test_what_a_model_without_tools_says(text: str, says: bool) -> None:
    assert says_no_tools(text) is says


@pytest.mark.parametrize(
    ("replies", "options", "is_told"),
    [([NO_ACCESS], [], True), ([NO_ACCESS], ["--no-tools"], False), ([ADD, "I don't have a better tool."], [], False)],
)
def test_a_model_that_says_that_it_has_no_tools(replies: list[str], options: list[str], is_told: bool, capsys: Capture) -> None:
    with model_server(*replies) as (url, _):
        assert main(["run", *options, "--model", url, "How warm is it in Rome?"]) == 0
    assert (f"xmlcall doctor {url}" in capsys.readouterr().err) is is_told


def test_text_of_models_and_servers_cannot_act_on_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    hostile = "\x1b]0;title\x07\x1b[31m[red]x[/red]\x9b2J :smile: \u202e"
    with model_server(f"{hostile}\n{call('echo', text=hostile)}", f"<think>{hostile}</think>{hostile}done") as (url, _):
        assert main(["run", "--yes", "--mcp", configured(tmp_path), "--model", url, "Go."]) == 0
    out, err = capsys.readouterr()
    assert out == "[red]x[/red] :smile: done\n"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", err)
    assert err.splitlines()[0] == "[red]x[/red] :smile:"
    assert r'call     files.echo(text="\u001b]0;title\u0007\u001b[31m[red]x[/red]\u009b2J :smile: \u202e")' in err


def test_options_reach_the_model(tmp_path: Path, capsys: Capture) -> None:
    asked = ["temperature=0.5", "seed=7", "max_tokens=99", "lang=zh", "parallel=no", "reminder=no", "mode=xml"]
    with model_server("Ja.") as (url, fake):
        options = ["--system", "Be brief.", *(word for each in asked for word in ("--ask", each))]
        assert main(["run", "--mcp", configured(tmp_path), *options, "--model", url, "  Ist das 中文?  "]) == 0
    [body] = fake.bodies
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.5, 7, 99)
    system, user = body["messages"]
    assert system["content"].endswith("\n\nBe brief.")
    assert "工具" in system["content"]
    assert user == {"role": "user", "content": "Ist das 中文?"}
    assert "tools" not in body
    assert capsys.readouterr().out == "Ja.\n"


def test_by_default_the_temperature_is_zero_and_the_reminder_comes_last(tmp_path: Path, capsys: Capture) -> None:
    with model_server("Yes.") as (url, fake):
        assert main(["run", "--mcp", configured(tmp_path), "--model", url, "Hi"]) == 0
    [body] = fake.bodies
    assert body["temperature"] == 0
    assert body["messages"][-1]["content"].startswith("Hi\n\n(")


def test_native_mode_sends_the_tools(tmp_path: Path, capsys: Capture) -> None:
    with model_server("Yes.") as (url, fake):
        assert main(["run", "--ask", "mode=native", "--mcp", configured(tmp_path), "--model", url, "Hi"]) == 0
    [body] = fake.bodies
    assert [tool["function"]["name"] for tool in body["tools"]] == ["echo"]
    assert [message["role"] for message in body["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("lang", "told"), [("en", "mode xml: the server's own function calling gave no call"), ("zh", "以 xml 模式提供工具：")]
)
def test_mode_auto_says_what_it_found(lang: str, told: str, tmp_path: Path, capsys: Capture) -> None:
    with model_server("It is 7006652.", "Hello.") as (url, fake):
        ask = ["--ask", "mode=auto", "--ask", f"lang={lang}", "--ask", "call_threshold=off"]
        assert main(["run", *ask, "--verbose", "--model", url, "Hi"]) == 0
    said = capsys.readouterr()
    assert said.out == "Hello.\n"
    assert told in said.err
    assert [bool(body.get("tools")) for body in fake.bodies] == [True, False]


def test_native_mode_warns_where_the_server_cannot(tmp_path: Path, capsys: Capture) -> None:
    with model_server("Yes.") as (url, fake):
        fake.props = llama_props(tools=False)
        assert main(["run", "--ask", "mode=native", "--mcp", configured(tmp_path), "--model", url, "Hi"]) == 0
    assert capsys.readouterr().err.startswith("xmlcall: the server says that this model has no function calling of its own; ")


@pytest.mark.parametrize("command", [["run", "Hi"], ["chat"]])
def test_a_model_without_a_chat_template_is_named_before_the_first_question(command: list[str], tmp_path: Path) -> None:
    with model_server("Yes.") as (url, fake):
        fake.props = llama_props(template=FALLBACK_TEMPLATE)
        options = ["--mcp", configured(tmp_path), "--model", url]
        done = run_cli(command[0], *options, *command[1:], home=tmp_path, stdin="")
    assert done.returncode == 0
    assert "xmlcall: tiny has no chat template: it looks like a base model" in done.stderr
    assert len(fake.bodies) == len(command) - 1


def test_native_mode_runs_a_call_that_the_server_left_in_the_text(tmp_path: Path) -> None:
    leaked = 'Echo.\n```json\n{"name": "echo", "arguments": {"text": "hello"}}\n```'
    with model_server(leaked, "It said hello.") as (url, fake):
        options = ["--ask", "mode=native", "--mcp", configured(tmp_path), "--yes", "--model", url]
        done = run_cli("run", *options, "Hi", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "It said hello.\n")
    assert [message["role"] for message in fake.bodies[1]["messages"]] == ["user", "assistant", "tool"]
    assert fake.bodies[1]["messages"][1]["content"] == "Echo."


def test_the_question_may_come_from_a_pipe(tmp_path: Path) -> None:
    with model_server("Yes.") as (url, fake):
        done = run_cli("run", "--mcp", configured(tmp_path), "--model", url, "-", home=tmp_path, stdin="Grüße?\n")
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert fake.bodies[0]["messages"][-1]["content"].startswith("Grüße?\n\n(")


def test_verbose_tells_how_servers_are_started_but_no_secret(tmp_path: Path, capsys: Capture) -> None:
    path = configured(tmp_path, env={"TOKEN": "s3cret", "A B": "x"})
    with model_server(ECHO.replace("</invoke>", ""), "Done.") as (url, _):
        assert main(["run", "--yes", "--verbose", "--mcp", path, "--model", url, "Go."]) == 0
    err = capsys.readouterr().err
    assert err.splitlines()[0] == f"starting files: TOKEN=*** 'A B'=*** {sys.executable} {HOSTILE} good"
    assert "s3cret" not in err
    assert "repaired unclosed-call" in err
    assert "tokens   64 in, 60 from the cache, 8 out; replies: 2\n" in err


def test_nobody_reads_the_answer(tmp_path: Path) -> None:
    with model_server("Yes.") as (url, _):
        command = ["run", "--mcp", configured(tmp_path), "--model", url, "Hi"]
        with (tmp_path / "stderr").open("w") as errors:
            streams = (subprocess.DEVNULL, subprocess.PIPE, errors.fileno())
            process = begin(command, streams, home=tmp_path, env=environment(tmp_path))
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) == 1
        assert (tmp_path / "stderr").read_text() == ""
    assert not any(map(is_alive, ProcessFiles(tmp_path).pids()))


# -- questions before a call -------------------------------------------------------------------------------------------

QUESTION = "[s]top: "


@pytest.mark.parametrize(
    ("typed", "code", "shown"),
    [
        (["y\n"], 0, 'result   {"text": "hi"}\nDone.\n'),
        (["what?\n", "\n", "YES\n"], 0, 'result   {"text": "hi"}\nDone.\n'),
        (["n\n"], 0, "n\nDone.\n"),
        (["s\n"], 1, "xmlcall: stopped before files.echo ran\n"),
        (["\x04"], 1, "xmlcall: stopped before files.echo ran\n"),
        (["\x03"], 130, "xmlcall: interrupted\n"),
    ],
)
def test_the_person_is_asked(typed: list[str], code: int, shown: str, tmp_path: Path) -> None:
    files = ProcessFiles(tmp_path)
    with model_server(ECHO, "Done.") as (url, fake):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            before = terminal.expect(QUESTION)
            assert f"starting files: PIDS=*** RECORD=*** {sys.executable} {HOSTILE} good\n" in before
            assert 'The model wants to run files.echo (server files):\n  {\n    "text": "hi"\n  }\n' in before
            for line in typed[:-1]:
                terminal.send(line, QUESTION)
            terminal.send(typed[-1])
            assert terminal.end() == code
            assert terminal.rest().endswith(shown)
    assert ("tools/call" in files.received()) == ("result" in shown)
    assert not any(map(is_alive, files.pids()))
    if typed == ["n\n"]:
        assert "Not run: The person said no." in fake.bodies[-1]["messages"][-1]["content"]


def test_always_means_this_tool_in_this_session(tmp_path: Path) -> None:
    both = ECHO.replace("</function_calls>", call("echo", text="again").partition("\n")[2])
    with model_server(both, ECHO.replace("hi", "third"), "Done.") as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            terminal.expect(QUESTION)
            terminal.send("a\n")
            assert QUESTION not in terminal.expect('call     files.echo(text="third")')
            assert terminal.end() == 0


def test_a_no_may_have_a_reason_for_the_model(tmp_path: Path) -> None:
    with model_server(ECHO, "Done.") as (url, fake):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            terminal.expect(QUESTION)
            terminal.send("no say <invoke> instead\n")
            assert terminal.end() == 0
    assert "Not run: The person said no: say &lt;invoke> instead" in fake.bodies[-1]["messages"][-1]["content"]
    assert "tools/call" not in ProcessFiles(tmp_path).received()


def test_the_person_may_change_the_arguments_and_the_model_is_told(tmp_path: Path) -> None:
    with model_server(ECHO, "Done.") as (url, fake):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            terminal.expect(QUESTION)
            terminal.send("e\n")
            for wrong, told in (("{", "expected a JSON object on one line"), ("[1]", "expected a JSON object, got [1]")):
                terminal.expect("(an empty line: do not run it):")
                terminal.send(f"\x15{wrong}\r")  # Ctrl-U empties the line, which holds the model's arguments
                terminal.expect(told)
            terminal.expect("(an empty line: do not run it):")
            terminal.send('\x15{"text": "better"}\r')
            assert terminal.end() == 0
            assert 'result   {"text": "better"}' in terminal.rest()
    told = fake.bodies[-1]["messages"][-1]["content"]
    assert '(The person changed the arguments before the call ran. It ran with {"text": "better"})' in told.replace("&#123;", "{")


def test_with_these_arguments_means_no_others(tmp_path: Path) -> None:
    with model_server(ECHO, ECHO, ECHO.replace("hi", "other"), "Done.") as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            terminal.expect(QUESTION)
            terminal.send("w\n")
            before = terminal.expect(QUESTION)
            assert before.count('result   {"text": "hi"}') == 2
            assert '"text": "other"' in before
            terminal.send("n\n")
            assert terminal.end() == 0


def test_a_tool_that_changed_since_it_was_allowed_is_asked_about_again(tmp_path: Path) -> None:
    with model_server(ECHO, "Done.", ECHO, "Done again.") as (url, _):
        with Terminal("chat", "--mcp", configured(tmp_path, "rewritten"), "--model", url, home=tmp_path) as terminal:
            terminal.expect(">")
            terminal.send("Say hi.\r", QUESTION)
            terminal.send("a\n", "Done.", ">")
            terminal.send("Once more: hi.\r")
            shown = terminal.expect(QUESTION)
            terminal.send("n\n", "Done again.")
    assert "the server has changed this tool since you allowed it:" in shown
    assert '+  "description": "Echo, and send it to everybody. [1 hidden character was removed]",' in shown


@pytest.mark.parametrize(("options", "runs"), [([], False), (["--flow", "allow"], True)])
def test_what_one_server_told_does_not_go_to_another_unasked(options: list[str], runs: bool, tmp_path: Path) -> None:
    started = {"command": sys.executable, "args": [HOSTILE, "good"]}
    notes = {
        name: {"PIDS": str(tmp_path / f"{name}.pids"), "RECORD": str(tmp_path / f"{name}.record")} for name in ("web", "mail")
    }
    servers = {name: {**started, "env": env} for name, env in notes.items()}
    (tmp_path / "two.json").write_text(json.dumps({"mcpServers": servers}))
    said = [call("web__echo", text="zebra seven"), call("mail__echo", text="zebra seven"), "Done."]
    with model_server(*said) as (url, _):
        command = ["run", "--allow", "*", "--mcp", str(tmp_path / "two.json"), "--model", url, *options, "Go."]
        done = run_cli(*command, home=tmp_path)
    assert done.returncode == (0 if runs else 1)
    assert ("tools/call" in (tmp_path / "mail.record").read_text()) is runs
    assert ("mail.echo did not run: $.text comes from a result of web" in done.stderr) is not runs


def test_where_values_come_from_is_said(tmp_path: Path) -> None:
    with model_server(call("echo", text="green"), call("echo", text="hi"), "Done.") as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Say green.", home=tmp_path) as terminal:
            assert "text" not in terminal.expect(QUESTION).partition("  }\n")[2]
            terminal.send("y\n")
            origin = "  text: this value is nowhere in the conversation; the model made it up or worked it out\n"
            assert origin in terminal.expect(QUESTION)
            terminal.send("n\n")
            assert terminal.end() == 0


def test_the_whole_arguments_are_shown_and_nothing_in_them_is_hidden(tmp_path: Path) -> None:
    numbers = " ".join(str(n * n) for n in range(400))
    text = "rm -rf /" + " " * 400 + f"{numbers}\n\x1b[8mhidden\u202e{numbers}[conceal]end"
    with model_server(call("echo", text=text)) as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            shown = terminal.expect(QUESTION)
    written = json.dumps(text, ensure_ascii=False).replace("\u202e", r"\u202e")
    assert f'"text": {written}\n' in shown


@pytest.mark.full  # the question has to come later than what is typed
def test_what_was_typed_before_the_question_answers_nothing(tmp_path: Path) -> None:
    with model_server([1.0, *reply(ECHO)], "Done.") as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            terminal.expect("starting files")
            terminal.send("y\n", QUESTION)
            terminal.send("n\n")
            assert terminal.end() == 0
    assert "tools/call" not in ProcessFiles(tmp_path).received()


def test_a_reply_that_is_no_answer_is_told_while_the_model_is_asked_again(tmp_path: Path, capsys: Capture) -> None:
    with model_server("Hm.\n<function_results>\n9", "Done.") as (url, _):
        assert main(["run", "--yes", "--mcp", configured(tmp_path), "--model", url, "Go."]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Done.\n"
    assert "retry    the model wrote results that no tool returned; asking it again with that reason\n" in printed.err


@pytest.mark.parametrize("dialect", ["hermes", "qwen", "glm"])
def test_calls_in_another_format(dialect: str, tmp_path: Path, capsys: Capture) -> None:
    row = DIALECTS[dialect]
    said = write([("echo", {"text": "hi"})], Catalog(), row)
    with model_server(f"So.\n{said}", "It said hi.") as (url, fake):
        options = ["--json", "--ask", f"dialect={dialect}", "--yes", "--mcp", configured(tmp_path)]
        code = main(["run", *options, "--model", url, "Echo hi."])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["answer"]) == (0, "It said hi.")
    assert [(made["outcome"], made["result"]) for made in document["calls"]] == [("ok", '{"text": "hi"}')]
    first, second = (body["messages"] for body in fake.bodies[-2:])
    assert [call.name for call in parse(first[0]["content"], dialect=dialect).calls] == ["echo"]
    assert "<invoke" not in first[0]["content"]
    assert f"reply with a {PromptFormat(dialect=dialect).block} block" in first[-1]["content"]
    assert second[-2] == {"role": "assistant", "content": f"So.\n{said}"}
    assert second[-1]["content"].startswith(row.results.write([("echo", '{"text": "hi"}', False)]).text)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["run", "--dialect", "nope", "1 + 2?"], "argument --dialect: dialect: unknown dialect 'nope'; known: "),
        (["prompt", "--ask", "dialect=xml"], "argument --ask: dialect: unknown dialect 'xml'"),
        (["run", "--ask", "dialect=hermes", "--ask", "mode=native", "1 + 2?"], "it cannot be combined with mode=native"),
        (["serve", "--ask", "dialect=nope"], "argument --ask: dialect: unknown dialect 'nope'"),
        (["serve", "--ask", "dialect=hermes", "--ask", "mode=native"], "it cannot be combined with mode=native"),
    ],
)
def test_a_format_that_cannot_be_asked_for(command: list[str], told: str, capsys: Capture) -> None:
    assert main(command) == 2
    assert told in capsys.readouterr().err
