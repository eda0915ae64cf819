"""The `mcpServers` file: the spellings of many clients, variables, and errors that say where and show no secret."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from xmlcall.cli.servers import described
from xmlcall.errors import UsageError
from xmlcall.hosts.config import load_servers, parse_servers
from xmlcall.hosts.server import HttpServer, OAuth, StdioServer

ENVIRON = {"TOKEN": "s3cret", "HOME": "/home/me", "EMPTY": "", "NESTED": "${TOKEN}", "NEWLINE": "s3cret\n"}


def read(entry: dict[str, Any], root: str = "mcpServers") -> Any:
    return parse_servers(json.dumps({root: {"srv": entry}}), ENVIRON, "file.json")["srv"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"command": "x"}, StdioServer(name="srv", command="x")),
        ({"type": "stdio", "command": "x", "args": ["-m", "y"]}, StdioServer(name="srv", command="x", args=("-m", "y"))),
        ({"type": "local", "command": "x", "cwd": "/tmp"}, StdioServer(name="srv", command="x", cwd="/tmp")),
        ({"command": "x", "env": {"K": "v"}}, StdioServer(name="srv", command="x", env={"K": "v"})),
        ({"url": "http://h/mcp"}, HttpServer(name="srv", url="http://h/mcp")),
        ({"serverUrl": "http://h/mcp"}, HttpServer(name="srv", url="http://h/mcp")),
        ({"httpUrl": "http://h/mcp"}, HttpServer(name="srv", url="http://h/mcp")),
        ({"type": "http", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"type": "streamable-http", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"type": "streamableHttp", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"transport": "streamable_http", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"transport": "sse", "url": "https://h/sse"}, HttpServer(name="srv", url="https://h/sse", transport="sse")),
        ({"url": "http://h", "headers": {"A": "b"}}, HttpServer(name="srv", url="http://h", headers={"A": "b"})),
        ({"command": "x", "timeout": 1500}, StdioServer(name="srv", command="x", timeout=1.5)),
        ({"command": "x", "timeout": 999}, StdioServer(name="srv", command="x", timeout=999)),  # Cline's seconds
        ({"command": "x", "timeout": 0.5}, StdioServer(name="srv", command="x", timeout=0.5)),
        ({"command": "x", "tool_timeout_sec": 1200}, StdioServer(name="srv", command="x", timeout=1200)),
        ({"type": "STDIO", "command": "x"}, StdioServer(name="srv", command="x")),
        ({"type": "HTTP", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"type": "SSE", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="sse")),
        ({"type": "streamablehttp", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"type": "Streamable_HTTP ", "url": "https://h"}, HttpServer(name="srv", url="https://h", transport="http")),
        ({"transport": {"type": "sse", "url": "https://h"}}, HttpServer(name="srv", url="https://h", transport="sse")),
        ({"type": "remote", "url": "https://h"}, HttpServer(name="srv", url="https://h")),
        ({"url": "https://h", "oauth": {"enabled": False}}, HttpServer(name="srv", url="https://h", oauth=None)),
        ({"command": "x", "url": "", "type": "", "cwd": "", "env": [], "args": {}}, StdioServer(name="srv", command="x")),
        ({"url": "http://h", "command": "", "headers": []}, HttpServer(name="srv", url="http://h")),
        ({"command": "x", "disabled": 0, "enabled": 1}, StdioServer(name="srv", command="x")),
        ({"command": "x", "autoApprove": True}, StdioServer(name="srv", command="x")),
        ({"url": "https://h", "oauth": {"clientId": "", "clientSecret": ""}}, HttpServer(name="srv", url="https://h")),
        (
            {"url": "https://h", "oauth": {"enabled": True, "scopes": ["a"], "clientId": None, "audiences": ["b"]}},
            HttpServer(name="srv", url="https://h", oauth=OAuth(scopes=("a",))),
        ),
        ({"command": "x", "tools": ["a"]}, StdioServer(name="srv", command="x", include_tools=("a",))),
        ({"command": "x", "tools": "*"}, StdioServer(name="srv", command="x")),
        ({"command": "x", "allowedTools": ["a"]}, StdioServer(name="srv", command="x", include_tools=("a",))),
        (
            {"command": "x", "enabled_tools": ["a*"], "disabled_tools": ["ab"]},
            StdioServer(name="srv", command="x", include_tools=("a*",), exclude_tools=("ab",)),
        ),
        ({"command": "x", "isActive": True, "enabled": True}, StdioServer(name="srv", command="x")),
        ({"command": "x", "includeTools": ["a*"]}, StdioServer(name="srv", command="x", include_tools=("a*",))),
        ({"command": "x", "excludeTools": ["a"]}, StdioServer(name="srv", command="x", exclude_tools=("a",))),
        ({"command": "x", "disabledTools": ["a"]}, StdioServer(name="srv", command="x", exclude_tools=("a",))),
        ({"command": "x", "autoApprove": ["a"]}, StdioServer(name="srv", command="x")),
        ({"command": "x", "roots": ["/a/../b"]}, StdioServer(name="srv", command="x", roots=("/b",))),
        ({"command": "x", "alwaysAllow": ["a"]}, StdioServer(name="srv", command="x")),
        ({"command": "x", "enabled": True, "disabled": False}, StdioServer(name="srv", command="x")),
        ({"command": "x", "enabled": "True", "disabled": "false"}, StdioServer(name="srv", command="x")),
        (
            {"command": "x", "args": ["--port", 3000, True], "env": {"PORT": 3000, "DEBUG": True, "RATE": 0.5, "NONE": None}},
            StdioServer(
                name="srv", command="x", args=("--port", "3000", "true"), env={"PORT": "3000", "DEBUG": "true", "RATE": "0.5"}
            ),
        ),
        ({"url": "http://h", "headers": {"X-Level": 3}}, HttpServer(name="srv", url="http://h", headers={"X-Level": "3"})),
        (
            dict.fromkeys(("url", "type", "env", "args", "headers", "disabled", "timeout", "oauth", "cwd", "roots", "note"))
            | {"command": "x"},
            StdioServer(name="srv", command="x"),
        ),
        ({"command": "x", "dev": {"a": 1}}, StdioServer(name="srv", command="x")),
    ],
)
@pytest.mark.parametrize("root", ["mcpServers", "servers"])
def test_spellings(entry: dict[str, Any], expected: object, root: str) -> None:
    assert read(entry, root) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${TOKEN}", "s3cret"),
        ("a-${TOKEN}-${HOME}", "a-s3cret-/home/me"),
        ("${env:TOKEN}", "s3cret"),
        ("${MISSING:-fallback}", "fallback"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${env:MISSING:-x}", "x"),
        ("${env:MISSING | env:TOKEN}", "s3cret"),
        ("${env:MISSING | value:plain}", "plain"),
        ("${NESTED}", "${TOKEN}"),  # one pass: a value is never expanded again
        ("$TOKEN", "s3cret"),
        ("Bearer-$TOKEN", "Bearer-s3cret"),
        ("pa$word$", "pa$word$"),
        ("pa$TOKEN", "pa$TOKEN"),  # within a word it may be part of a password
        ("${value:$TOKEN}", "$TOKEN"),
        ("${{ secrets.TOKEN }}", "s3cret"),
        ("${userHome}${/}x${pathSeparator}", "/home/me/x/"),
        ("{TOKEN}", "{TOKEN}"),
    ],
)
def test_variables(written: str, expected: str) -> None:
    server = read({"command": "x", "args": [written], "env": {"K": written}})
    assert server.args == (expected,)
    assert server.env == {"K": expected}


def test_variables_are_expanded_where_they_may_be_and_nowhere_else() -> None:
    remote = read({"url": "https://${env:TOKEN}.example/mcp", "headers": {"Authorization": "Bearer ${NEWLINE}"}})
    assert (remote.url, remote.headers) == ("https://s3cret.example/mcp", {"Authorization": "Bearer s3cret"})
    local = read({"command": "${HOME}/x", "cwd": "${HOME}", "includeTools": ["${TOKEN}"], "note": "${MISSING}"})
    assert (local.command, local.cwd, local.include_tools) == ("/home/me/x", "/home/me", ("${TOKEN}",))
    gemini = read({"httpUrl": "https://h/$TOKEN", "headers": {"Authorization": "Bearer $TOKEN"}})
    assert (gemini.url, gemini.headers) == ("https://h/s3cret", {"Authorization": "Bearer s3cret"})
    assert read({"command": "sh", "args": ["-c", "echo $TOKEN $MISSING"]}).args == ("-c", "echo $TOKEN $MISSING")  # the shell's


def test_a_tilde_is_the_folder_of_the_person() -> None:
    server = read({"command": "~/bin/x", "cwd": "~", "args": ["~/a"], "roots": ["~/b"]})
    assert (server.command, server.cwd, server.args, server.roots) == ("/home/me/bin/x", "/home/me", ("~/a",), ("/home/me/b",))


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("proj/.vscode/mcp.json", "proj"),
        ("proj/.cursor/mcp.json", "proj"),
        ("proj/.mcp.json", "proj"),
        ("elsewhere/mcp.json", "here"),
        (".cursor/mcp.json", "here"),  # the person's own, for whatever folder is open
    ],
)
def test_the_folder_of_the_project(file: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / file
    for made in (path.parent, tmp_path / "here"):
        made.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    names = [
        "${workspaceFolder}",
        "${workspaceFolder:app}",
        "${workspaceRoot}",
        "${CLAUDE_PROJECT_DIR}",
        "${workspaceFolderBasename}",
    ]
    path.write_text(json.dumps({"servers": {"a": {"command": "x", "args": [*names, "${extensionPath}", "${cwd}"]}}}))
    server = load_servers(path, {"HOME": str(tmp_path)})["a"]
    assert isinstance(server, StdioServer)
    assert server.args == (*[str(tmp_path / folder)] * 4, folder, str(path.parent), str(tmp_path / "here"))


WRONG = json.loads(Path(__file__).with_name("wrong_config.json").read_text(encoding="utf-8"))  # ... and what the error says of it


@pytest.mark.parametrize(
    ("entry", "parts"), [*WRONG["entries"], ({"command": "x", "timeout": 10**400}, ["srv.timeout", "milliseconds"])]
)
def test_a_wrong_entry_is_one_clear_error(entry: Any, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read(entry)
    message = str(caught.value)
    assert message.startswith("file.json: ")
    assert "\n" not in message
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://h", "oauth": {"grantType": "${TOKEN}"}},
        {"url": "https://h", "bearer_token_env_var": "s3cret"},
        {"url": "https://h", "env_http_headers": {"K": "s3cret"}},
    ],
)
def test_an_error_does_not_show_a_secret_in_place_of_a_name(entry: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        read(entry)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "args": ["--key", "${TOKEN}"], "env": {"K": "${TOKEN}"}},
        {"command": "x/${TOKEN}", "args": ["$TOKEN", "--key=${env:TOKEN}"]},
        {"command": ["x", "${{ secrets.TOKEN }}", "${MISSING | TOKEN}"]},
        {"url": "https://u:${TOKEN}@h/${TOKEN}?key=${TOKEN}", "headers": {"K": "${TOKEN}"}},
    ],
)
def test_secrets_do_not_show(entry: dict[str, Any]) -> None:
    server = read(entry)
    assert "s3cret" not in repr(server) + str(server) + server.address
    if isinstance(server, StdioServer):
        assert "s3cret" not in described(server)
        assert "s3cret" in server.command + " ".join(server.args)


SHOWN = [
    ("--key=${TOKEN}", "--key=${TOKEN}"),
    ("${env:TOKEN}", "${env:TOKEN}"),
    ("$TOKEN", "$TOKEN"),
    ("${{ secrets.TOKEN }}", "${{ secrets.TOKEN }}"),
    ("${TOKEN:-none}", "${TOKEN:-none}"),
    ("${MISSING | TOKEN}", "${MISSING | TOKEN}"),
    ("${value:TOKEN}", "TOKEN"),
    ("a${/}b", "a/b"),
    ("${workspaceFolder}/${TOKEN}", f"{os.getcwd()}/${{TOKEN}}"),
    ("plain", "plain"),
]


@pytest.mark.parametrize(("written", "shown"), SHOWN)
def test_of_an_argument_no_variable_of_the_environment_is_shown(written: str, shown: str) -> None:
    server = read({"command": "x", "args": [written]})
    assert isinstance(server, StdioServer)
    assert server.command_line == ("x", shown)


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "${TOKEN}"},
        {"url": "http://${TOKEN}:port"},
        {"url": "http://h", "headers": {"K": "a\n${TOKEN}"}},
        {"command": "x", "args": ["${TOKEN}", "${MISSING}"]},
    ],
)
def test_an_error_shows_no_expanded_value(entry: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        read(entry)
    assert "s3cret" not in str(caught.value)


def test_a_disabled_server_is_left_out_before_its_variables_are_read() -> None:
    entries = {
        "off": {"command": "${MISSING}", "disabled": True},
        "no": {"url": "${MISSING}", "enabled": False},
        "passive": {"url": "${MISSING}", "isActive": False},
    }
    assert parse_servers(json.dumps({"mcpServers": entries}), {}) == {}


def test_the_order_of_the_file_is_kept() -> None:
    entries = {name: {"command": "x"} for name in ("z", "a", "m")}
    assert list(parse_servers(json.dumps({"mcpServers": entries}), {})) == ["z", "a", "m"]


def test_comments_and_trailing_commas() -> None:
    text = """\ufeff// servers
    {"mcpServers": { /* all
      of them */ "a": {"command": "x", "args": ["http://h//p", "/* no */", "a,]", "\\"//"],}, // the end
    },}"""
    assert parse_servers(text.lstrip("\ufeff"), {})["a"].args == ("http://h//p", "/* no */", "a,]", '"//')  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "parts"),
    [*WRONG["files"], ("[" * 100_000, ["not JSON"]), ('{"mcpServers": ' + "1" * 5000 + "}", ["not JSON"])],
)
def test_a_wrong_file_is_one_clear_error(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_servers(path, ENVIRON)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert [part for part in parts if part not in message] == []


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent\.json.*No such file"):
        load_servers(tmp_path / "absent.json")
    with pytest.raises(UsageError, match=r"cannot read .*directory"):
        load_servers(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"mcpServers": {"\xe4": {}}}')
    with pytest.raises(UsageError, match="UTF-8"):
        load_servers(tmp_path / "latin.json")


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x"}}}', encoding="utf-8-sig")
    assert list(load_servers(path)) == ["a"]


@pytest.mark.parametrize(
    ("include", "exclude", "offered"),
    [
        (("*",), (), {"read_file", "write_file", "odd[1]"}),
        (("read_*",), (), {"read_file"}),
        (("*",), ("write_*",), {"read_file", "odd[1]"}),
        (("*_file",), ("read_file",), {"write_file"}),
        (("odd[1]",), (), {"odd[1]"}),  # a name is not taken for a glob only
        ((), (), set()),
        (("READ_FILE",), (), set()),
    ],
)
def test_tool_filters(include: tuple[str, ...], exclude: tuple[str, ...], offered: set[str]) -> None:
    server = StdioServer(name="s", command="x", include_tools=include, exclude_tools=exclude)
    assert {name for name in ("read_file", "write_file", "odd[1]") if server.offers(name)} == offered
