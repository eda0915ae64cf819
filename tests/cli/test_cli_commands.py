"""The commands that need no model: help, parse, prompt, tools, models."""

import errno
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, call, environment, run_cli

from xmlcall.cli import COMMANDS, main
from xmlcall.models import known as models
from xmlcall.models.known import KnownModel
from xmlcall.models.sources import Download, SourceFailed
from xmlcall.prompting import system as prompt
from xmlcall.prompting.format import PromptFormat
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import Tool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MCP_TOOL = {"name": "count", "description": "Count.", "inputSchema": SCHEMA}
OPENAI_TOOL = {"type": "function", "function": {"name": "count", "description": "Count.", "parameters": SCHEMA}}

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def tools_file(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"tools": [MCP_TOOL]}))
    return str(path)


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_shows_examples(command: str | None, capsys: Capture) -> None:
    assert main([command, "--help"] if command else ["--help"]) == 0
    out, err = capsys.readouterr()
    assert f"usage: xmlcall {command or 'COMMAND'}" in out
    assert "examples:\n  " in out
    assert err == ""


def test_the_overview_names_every_command(capsys: Capture) -> None:
    main(["-h"])
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "xmlcall 0.2.0\n"


@pytest.mark.parametrize("arguments", ["--help", "parse --help", "prompt --help", "models list"])
def test_light_commands_import_nothing_heavy(arguments: str) -> None:
    code = "import sys; from xmlcall.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "xmlcall.cli" in loaded
    assert not loaded & {"rich", "prompt_toolkit", "mcp", "httpx", "pydantic", "starlette", "xllamacpp"}


# -- parse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "where"),
    [
        ('{"model": "m", "choices": [{"message": {"content": "Hi."}}]}', ".choices[0].message.content"),
        ('{"model": "m", "message": {"content": "Hi."}, "done": false}\n{"model": "m"}', ".message.content"),
        ('{"model": "m", "response": "Hi.", "done": true}', ".response"),
        ('{"stop_reason": "end_turn", "content": [{"type": "text", "text": "Hi."}]}', ".content[].text // empty"),
        ('{"object": "response", "output": [{"content": [{"text": "Hi."}]}]}', ".output[].content[]?.text // empty"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--explain"]])
def test_parse_takes_no_response_for_a_text(
    response: str, where: str, options: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "response.json").write_text(response)
    assert main(["parse", *options, str(tmp_path / "response.json")]) == 2
    assert f"got the JSON of a whole response: pass its text, by `jq -rj '{where}'`" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"choices": 1}', '{"response": "Hi."}', '["choices", "model"]', "[" * 9999, "{"])
def test_parse_takes_a_text_that_is_json(text: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "reply.txt").write_text(text)
    assert main(["parse", str(tmp_path / "reply.txt")]) == 0


def test_parse_explains_each_piece(tmp_path: Path, tools_file: str, capsys: Capture) -> None:
    file = tmp_path / "reply.txt"
    said = 'Hm.\n<tool_call>{"name": "count", "arguments": {"n": 1,}}</tool_call>\n<think>I call {"name": "x"}'
    file.write_text(said)
    assert main(["parse", "--explain", "--tools", tools_file, str(file)]) == 0
    shown = capsys.readouterr().out.splitlines()
    kinds = [line.split()[2] for line in shown]
    assert " ".join(kinds) == "text markup call repair value end runs markup text markup reasoning"
    assert shown[6].split(None, 2)[2] == "runs as      count(n=1)"
    assert shown[3].split() == ["15", "56", "repair", "json-trailing-comma"]
    assert shown[-1].endswith('\'I call {"name": "x"}\'')
    assert main(["parse", "--explain", "--json", "--tools", tools_file, str(file)]) == 0
    pieces = json.loads(capsys.readouterr().out)
    assert "".join(piece["text"] for piece in pieces) == said
    assert {piece["type"] for piece in pieces} == {"Piece"}
    assert {(piece["kind"], piece["about"]) for piece in pieces} >= {("call", "count, hermes"), ("markup", "block_close")}


def test_a_lost_call_and_a_long_piece_are_explained(tmp_path: Path, tools_file: str, capsys: Capture) -> None:
    file = tmp_path / "reply.txt"
    file.write_text("<think>" + "thinking " * 20 + '<function_calls><invoke name="count"></invoke></function_calls>')
    assert main(["parse", "--explain", "--tools", tools_file, str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "'thinking thinking thinking thi ... " in lines[1]
    assert lines[-1].split(None, 2)[2] == "lost call    count: the reasoning has no end"


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({"n": "3"}, ["runs as      count(n=3)"]),
        ({"n": "three"}, ['cannot run   n: Expected integer, got "three".']),
        ({"N": "3"}, ["runs as      count(n=3)", "repair       parameter-name $.n"]),
    ],
)
def test_the_tools_explain_what_a_call_becomes(
    given: dict[str, str], lines: list[str], tmp_path: Path, tools_file: str, capsys: Capture
) -> None:
    (tmp_path / "reply.txt").write_text(call("count", **given))
    assert main(["parse", "--explain", "--tools", tools_file, str(tmp_path / "reply.txt")]) == 0
    shown = [line.split(None, 2)[2] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if line.startswith(("runs as", "cannot run", "repair"))] == lines


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("Hi.\nYou.", ["text       Hi.", "           You.", "calls      none"]),
        (f"<think>Hm.</think>{call('count', n='3')}", ["reasoning  Hm.", "call 1     count(n=3)  function_calls"]),
        (
            '<tool_call>{"name": "count", "arguments": {"n": "x",}}</tool_call>',
            [
                "call 1     count(n=x)  hermes",
                '           cannot run: n: Expected integer, got "x".',
                "repaired   json-trailing-comma: A comma before a closing bracket was dropped.",
            ],
        ),
    ],
)
def test_parse_shows_people_the_reply(reply: str, shown: list[str], tmp_path: Path, tools_file: str, capsys: Capture) -> None:
    (tmp_path / "reply.txt").write_text(reply)
    assert main(["parse", "--tools", tools_file, str(tmp_path / "reply.txt")]) == 0
    assert capsys.readouterr().out.splitlines() == shown


def test_parse_prints_the_reply_as_json(tmp_path: Path, tools_file: str, capsys: Capture) -> None:
    text = tmp_path / "reply.txt"
    text.write_text(f"Counting.\r\n{call('count', n='3')}", newline="")
    assert main(["parse", "--json", "--tools", tools_file, str(text)]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["type"], reply["text"], reply["finish_reason"]) == ("Reply", "Counting.\r\n", "stop")
    [made] = reply["calls"]
    assert (made["type"], made["name"], made["arguments"]) == ("ToolCall", "count", {"n": 3})
    assert made["raw"]["arguments"] == [
        {"type": "RawArgument", "name": "n", "text": "3", "span": made["raw"]["arguments"][0]["span"]}
    ]


@pytest.mark.parametrize(
    ("options", "text", "code"),
    [
        (["--tools"], call("count", n="three"), "wrong-type"),
        (["--tools"], call("sum", n="3"), "unknown-tool"),
        (["--finish-reason", "length"], call("count", n="3").partition("</parameter>")[0], "truncated-call"),
    ],
)
def test_calls_that_cannot_run_are_no_failure(
    options: list[str], text: str, code: str, tmp_path: Path, tools_file: str, capsys: Capture
) -> None:
    (tmp_path / "reply.txt").write_text(text)
    given = [*options, tools_file] if options == ["--tools"] else options
    assert main(["parse", "--json", *given, str(tmp_path / "reply.txt")]) == 0
    [made] = json.loads(capsys.readouterr().out)["calls"]
    assert made["type"] == "InvalidCall"
    assert [issue["code"] for issue in made["issues"]] == [code]


def test_reasoning_that_is_open_from_the_start(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "reply.txt").write_text("Hm.</think>Yes.")
    assert main(["parse", "--json", "--reasoning-open", str(tmp_path / "reply.txt")]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["reasoning"], reply["text"]) == ("Hm.", "Yes.")


# -- prompt ------------------------------------------------------------------------------------------------------------


def test_prompt_tells_what_was_changed_in_a_schema(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "tools.json"
    path.write_text('[{"name": "f", "inputSchema": {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}}}]')
    assert main(["prompt", "--tools", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "- x: integer (optional)" in out
    assert '$.type "OBJECT" read as "object"; $.properties.x.type "INTEGER" read as "integer"' in err


@pytest.mark.parametrize(
    "document", [{"tools": [MCP_TOOL]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [MCP_TOOL]}}, [MCP_TOOL], [OPENAI_TOOL]]
)
def test_prompt_reads_every_shape_of_tool_list(document: Any, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "tools.json"
    path.write_text("\ufeff" + json.dumps(document))
    assert main(["prompt", "--tools", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == prompt.system_prompt([MCP_TOOL]).rstrip("\n") + "\n"
    assert err == ""


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (["--ask", "parallel=no"], {"parallel": False}),
        (["--ask", "lang=zh"], {"lang": "zh"}),
        (["--ask", "dialect=qwen"], {"dialect": "qwen"}),
        ([], {}),
    ],
)
def test_prompt_options(options: list[str], keywords: dict[str, Any], tools_file: str, capsys: Capture) -> None:
    assert main(["prompt", "--tools", tools_file, *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        "system_prompt": prompt.system_prompt([MCP_TOOL], **keywords),
        "reminder": prompt.reminder([MCP_TOOL], PromptFormat(**keywords)),
    }


def test_prompt_prints_the_reminder(tools_file: str, capsys: Capture) -> None:
    assert main(["prompt", "--tools", tools_file, "--reminder"]) == 0
    assert capsys.readouterr().out == prompt.reminder([MCP_TOOL]) + "\n"


def test_a_prompt_is_exact_in_a_file_and_safe_on_a_terminal(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([MCP_TOOL | {"description": "Count\x1b[2J."}]))
    assert main(["prompt", "--tools", str(path)]) == 0
    assert "Count\x1b[2J." in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["prompt", "--tools", str(path)]) == 0
    assert "Count." in capsys.readouterr().out


@pytest.mark.sweep
def test_tools_of_the_demo_server_go_through_a_pipe_into_a_prompt(tmp_path: Path) -> None:
    listed = run_cli("tools", "--json", home=tmp_path)
    assert listed.returncode == 0
    document = json.loads(listed.stdout)
    assert [tool["name"] for tool in document["tools"]] == ["calculator", "text_analyzer", "get_weather"]
    assert {tool["_meta"]["xmlcall/server"] for tool in document["tools"]} == {"demo"}
    printed = run_cli("prompt", "--tools", "-", home=tmp_path, stdin=listed.stdout)
    assert printed.stdout == prompt.system_prompt(Catalog(document["tools"])).rstrip("\n") + "\n"


# -- tools -------------------------------------------------------------------------------------------------------------


def configured(tmp_path: Path, **modes: str) -> str:
    """Write a configuration of misbehaving servers, each by its mode."""
    servers = {name: {"command": sys.executable, "args": [HOSTILE, mode]} for name, mode in modes.items()}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def test_tools_tells_where_each_tool_lives(tmp_path: Path, capsys: Capture) -> None:
    assert main(["tools", "--mcp", configured(tmp_path, one="good", two="good")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "one.echo(text?: string)  (for the model: one__echo)",
        "    The tool echo.",
        "two.echo(text?: string)  (for the model: two__echo)",
        "    The tool echo.",
    ]
    assert err == ""


def test_a_tool_with_an_odd_schema_is_offered_with_a_notice(tmp_path: Path, capsys: Capture) -> None:
    assert main(["tools", "--mcp", configured(tmp_path, files="broken_schema")]) == 0
    out, err = capsys.readouterr()
    assert [line.partition("(")[0] for line in out.splitlines()[::2]] == [
        "files.echo",
        "files.bad_type",
        "files.bad_pattern",
        "files.network",
        "files.draft7",
    ]
    notices = err.splitlines()
    assert len(notices) == 3
    assert all(
        notice.startswith("xmlcall: files: The tool ") and "a changed schema: $.properties.a" in notice for notice in notices
    )


def test_a_person_sees_what_is_started(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.cli.servers.is_interactive", lambda: True)
    assert main(["tools", "--mcp", configured(tmp_path, files="good")]) == 0
    assert capsys.readouterr().err == f"xmlcall: starting files: {sys.executable} {HOSTILE} good\n"


def test_tools_of_the_others_are_listed_where_a_server_fails(tmp_path: Path, capsys: Capture) -> None:
    assert main(["tools", "--mcp", configured(tmp_path, broken="exit", files="good")]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "files.echo(text?: string)"
    [notice] = err.splitlines()
    assert re.fullmatch(r"xmlcall: broken: .* ended before .* set API_KEY.* \(its tools are left out until it answers\)", notice)


def test_prompt_says_whose_instructions_they_are(tmp_path: Path, capsys: Capture) -> None:
    assert main(["prompt", "--mcp", configured(tmp_path, files="good")]) == 0
    assert "> Be careful." in capsys.readouterr().out


def test_descriptions_cannot_act_on_the_terminal(capsys: Capture) -> None:
    from xmlcall.cli.offered import tool_lines

    class Origin:
        name = "a\x1b[2Jb"

    class Router:
        def origin(self, name: str) -> tuple[Any, str]:
            return Origin(), name

    tool = Tool(name="t", description="\x1b[31mred\x07\nsecond line", input_schema={"properties": {"\x9b1m": {"enum": ["\x1b"]}}})
    router: Any = Router()
    assert tool_lines([tool], router) == [r'a\u001b[2Jb.t(\u009b1m?: "\u001b")', "    red"]


# -- models ------------------------------------------------------------------------------------------------------------

DATA = b"GGUF" + bytes(1000)


class Source:
    """Delivers `DATA`, something else of its size, or an exception."""

    def __init__(self, data: bytes = DATA, failure: Exception | None = None) -> None:
        self._data, self._failure = data, failure

    def __str__(self) -> str:
        return "the fake source"

    def deliver(self, download: Download) -> None:
        if self._failure:
            raise self._failure
        for end in (500, len(self._data)):
            download.part.write_bytes(self._data[:end])
            download.report()


def know(monkeypatch: pytest.MonkeyPatch, folder: Path, source: Source) -> None:
    model = KnownModel(
        name="tiny",
        file="tiny.gguf",
        size=len(DATA),
        sha256=hashlib.sha256(DATA).hexdigest(),
        license="MIT",
        cache=0,
        sources=(source,),
    )
    monkeypatch.setattr(models, "KNOWN", {"tiny": model})
    monkeypatch.setattr(models, "DEFAULT_MODEL", "tiny")
    monkeypatch.setenv("XMLCALL_MODELS", str(folder))


def test_models_are_listed_fetched_found_and_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    know(monkeypatch, tmp_path, Source())
    file = tmp_path / "tiny.gguf"

    def said(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert main(["models", *arguments]) == code
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    assert said("list") == ("tiny                     0 MB  MIT          not fetched  (default)\n", "")
    assert said("path", code=1) == ("", f"xmlcall: tiny is not in {tmp_path}; fetch it with: xmlcall models pull tiny\n")
    out, err = said("pull", "local")
    assert out == f"{file}\n"
    assert err.startswith("tiny is fetched once: 0 MB on the disk")
    assert file.read_bytes() == DATA
    assert said("pull", "tiny", "--json") == (json.dumps({"name": "tiny", "path": str(file)}, indent=2) + "\n", "")
    assert said("path") == (f"{file}\n", "")
    assert "here  (default)" in said("list")[0]
    assert said() == said("list")
    [listed] = json.loads(said("list", "--json")[0])["models"]
    assert listed == {
        "name": "tiny", "size": 1004, "license": "MIT", "default": True,
        "present": True, "path": str(file),
    }  # fmt: skip
    assert said("rm", "tiny") == (f"removed tiny (0 MB) from {tmp_path}\n", "")
    assert said("rm", "tiny") == (f"nothing to remove: tiny is not in {tmp_path}\n", "")
    assert json.loads(said("rm", "tiny", "--json")[0]) == {"name": "tiny", "removed": False}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source(failure=SourceFailed("no such \x1b[31mhost")), "no such"),
        (Source(data=bytes(len(DATA))), "sha256"),
        (Source(failure=OSError(errno.ENOSPC, "No space left on device")), "free some space"),
    ],
)
def test_a_download_that_fails_is_one_message(
    source: Source, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    know(monkeypatch, tmp_path, source)
    assert main(["models", "pull"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("xmlcall: ")
    assert message in err.splitlines()[-1]
    assert "\x1b" not in err
    assert not [file for file in tmp_path.iterdir() if file.suffix != ".lock"]


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "code", "err"),
    [
        ("{} parse --explain < text | head -n 1 > first", 0, ""),
        ("{} parse text > /dev/full", 1, "xmlcall: cannot read or write: No space left on device\n"),
        ("{} models list > /dev/full", 1, "xmlcall: cannot read or write: No space left on device\n"),
        ("{} parse text >&-", 0, ""),
        ("{} models list >&- 2>&- <&-", 0, ""),
        ("{} parse <&- > empty", 0, ""),
        ("PYTHONIOENCODING=ascii {} parse --json text > ascii", 0, ""),
    ],
)
def test_streams_that_are_closed_full_or_narrow(shell: str, code: int, err: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("中文 " + call("f", a="x" * 100_000))
    command = shell.format(f"{sys.executable} -m xmlcall")
    buffered = environment(tmp_path, {"PYTHONUNBUFFERED": ""})  # what is left in a buffer fails again when the interpreter ends
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=buffered, check=False)
    assert (done.returncode, done.stderr) == (code, err)
    if (tmp_path / "ascii").exists():
        assert json.loads((tmp_path / "ascii").read_text())["text"] == "中文 "
