"""Files of servers as many clients write them: formats, places, entries that are left out, and keys that are not obeyed."""

import json
from pathlib import Path
from typing import Any

import pytest

from xmlcall.errors import UsageError
from xmlcall.hosts.config import load_servers, parse_servers
from xmlcall.hosts.config_file import read_env_file
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer

ENVIRON = {"TOKEN": "s3cret", "HOME": "/home/me"}

CODEX = """
model = "local"
[mcp_servers.files]
command = "npx"
args = ["-y", "files"]
env_vars = ["TOKEN", "UNSET"]
tool_timeout_sec = 1200
enabled_tools = ["read"]
[mcp_servers.files.env]
PORT = 3000
[mcp_servers.web]
url = "https://h/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-A" = "a" }
env_http_headers = { "X-B" = "TOKEN" }
[mcp_servers.off]
command = "x"
enabled = false
"""
GOOSE = """
GOOSE_MODEL: local
extensions:
  files:
    type: stdio
    name: files
    cmd: npx
    args: [-y, files]
    env_keys: [TOKEN]
    envs: {PORT: 3000}
    timeout: 300
    enabled: true
  web: {type: streamable_http, uri: "https://h/mcp", enabled: true}
  developer: {type: builtin, enabled: false}
"""
CONTINUE = """
mcpServers:
  - name: files
    command: npx
    args: [-y, files]
    env: {KEY: "${{ secrets.TOKEN }}"}
  - name: web
    type: streamable-http
    url: https://h/mcp
    requestOptions: {headers: {Authorization: "Bearer ${{ secrets.TOKEN }}"}}
"""
ARGS = ("-y", "files")


@pytest.mark.parametrize(
    ("name", "text", "servers"),
    [
        (
            "config.toml",
            CODEX,
            [
                StdioServer(
                    name="files",
                    command="npx",
                    args=ARGS,
                    env={"TOKEN": "s3cret", "PORT": "3000"},
                    timeout=1200,
                    include_tools=("read",),
                ),
                HttpServer(
                    name="web", url="https://h/mcp", headers={"X-A": "a", "X-B": "s3cret", "Authorization": "Bearer s3cret"}
                ),
            ],
        ),
        (
            "config.yaml",
            GOOSE,
            [
                StdioServer(name="files", command="npx", args=ARGS, env={"TOKEN": "s3cret", "PORT": "3000"}, timeout=300),
                HttpServer(name="web", url="https://h/mcp", transport="http"),
            ],
        ),
        (
            "config.yml",
            CONTINUE,
            [
                StdioServer(name="files", command="npx", args=ARGS, env={"KEY": "s3cret"}),
                HttpServer(name="web", url="https://h/mcp", transport="http", headers={"Authorization": "Bearer s3cret"}),
            ],
        ),
        ("settings.json", json.dumps({"mcp": {"servers": {"a": {"command": "x"}}}}), [StdioServer(name="a", command="x")]),
        (
            "settings.json",
            json.dumps({"context_servers": {"a": {"command": {"path": "x", "args": ["y"], "env": {"K": "v"}}}}}),
            [StdioServer(name="a", command="x", args=("y",), env={"K": "v"})],
        ),
        (
            "settings.json",
            json.dumps(
                {"mcpServers": {name: {"command": "x"} for name in "abc"}, "mcp": {"allowed": ["a", "b"], "excluded": ["b"]}}
            ),
            [StdioServer(name="a", command="x")],
        ),
        (
            "opencode.json",
            json.dumps({"mcp": {"a": {"type": "local", "command": ["x", "y"], "environment": {"K": "v"}, "enabled": True}}}),
            [StdioServer(name="a", command="x", args=("y",), env={"K": "v"})],
        ),
        ("both.json", json.dumps({"mcpServers": {}, "servers": {"a": {"command": "x"}}}), [StdioServer(name="a", command="x")]),
        ("null.json", json.dumps({"mcpServers": None, "servers": {"a": {"command": "x"}}}), [StdioServer(name="a", command="x")]),
    ],
)
def test_files_of_other_clients(name: str, text: str, servers: list[ServerConfig], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    told: list[str] = []
    assert list(load_servers(path, ENVIRON, told.append).values()) == servers
    assert told == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "[mcp_servers", "not TOML: Expected"),
        ("a.toml", "x = 1", r"expected an object \{\"mcpServers\""),
        ("a.yaml", "a: [b", "not YAML: .*at line 1"),
        ("a.yaml", "!!python/object:os.system x", "not YAML"),
        ("a.yaml", "mcpServers: [{command: x}]", 'server 1: expected a "name"'),
        ("a.yaml", "mcpServers: [{name: a, command: x}, {name: a, command: x}]", 'server 2: expected a "name" that no other has'),
        ("a.yaml", "- 2020-01-01", "expected an object"),
        (
            "a.yaml",
            "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
            "at most 100,000 values",
        ),
        ("a.yaml", "mcpServers: &a {a: *a}", "at most 100,000 values"),
        ("a.json", '{"mcpServers": {"a": {"type": {"a": 1}, "url": "http://h"}}}', "a.type: .* got an object with the keys 'a'"),
        ("a.yaml", "mcpServers: {a: {command: 2020-01-01}}", "a.command: expected a string, got"),
    ],
)
def test_files_that_cannot_be_read(name: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_servers(text, ENVIRON, name)


def test_yaml_is_read_only_where_a_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(UsageError, match=r"a\.yaml: YAML is read only where the package PyYAML is installed: .* JSON"):
        parse_servers(GOOSE, ENVIRON, "a.yaml")


def test_the_projects_of_claude_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above, here, other = tmp_path, tmp_path / "app", tmp_path / "other"
    (here / "src").mkdir(parents=True)
    other.mkdir()
    servers = {"a": {"command": "of here"}, "b": {"command": "x"}, "c": {"command": "x"}}
    projects: dict[str, Any] = {
        str(above): {"mcpServers": {"z": {"command": "x"}}},
        str(here): {"mcpServers": servers, "disabledMcpServers": ["c"]},
        "broken": None,
    }
    document = {"mcpServers": {"a": {"command": "of all"}, "g": {"command": "x"}}, "projects": projects}
    monkeypatch.chdir(here / "src")
    found = parse_servers(json.dumps(document), {})
    assert {name: server.address for name, server in found.items()} == {"a": "of here", "g": "x", "b": "x"}
    monkeypatch.chdir(other)
    assert list(parse_servers(json.dumps(document), {})) == ["a", "g", "z"]
    del projects[str(above)]
    with pytest.raises(UsageError, match=rf"belong to other folders than this one: {here} \(a, b, c\): run xmlcall in one"):
        parse_servers(json.dumps({"mcpServers": {}, "projects": projects}), {})


ODD: list[tuple[dict[str, Any], str]] = [
    ({"type": "ws", "url": "ws://h"}, "srv.type"),
    ({"command": "x", "env": {"K": "${MISSING}"}}, "'MISSING' is not set"),
    ({"url": "http://h", "headers": {"A": "${input:key}"}}, "asks the person"),
    ({"command": "x", "args": "y"}, "srv.args"),
    ({}, "srv: expected either"),
]


@pytest.mark.parametrize(("entry", "words"), ODD)
def test_an_odd_entry_is_left_out_alone(entry: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture) -> None:
    text = json.dumps({"mcpServers": {"srv": entry, "good": {"command": "x"}}})
    told: list[str] = []
    assert list(parse_servers(text, ENVIRON, "f.json", told.append)) == ["good"]
    assert len(told) == 1
    assert words in told[0]
    assert told[0].startswith("f.json: srv")
    assert told[0].endswith("; this server is left out")
    parse_servers(text, ENVIRON, "f.json")
    assert words in caplog.text  # said where nobody listens, too


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"sandbox": {"network": False}}, ["f.json: srv.sandbox: xmlcall does not know what it limits, and does not obey it"]),
        ({"toolFilter": "x", "readOnly": True}, ["srv.toolFilter: ", "srv.readOnly: "]),
        ({"tools": {"a": {"enabled": False}}}, ["srv.tools: it is not a list of names, and is not obeyed"]),
        ({"sandboxEnabled": False, "permissions": [], "dev": {"a": 1}, "description": "d", "autoApprove": ["a"]}, []),
    ],
)
def test_a_limit_that_is_not_obeyed_is_told(entry: dict[str, Any], told: list[str]) -> None:
    said: list[str] = []
    parse_servers(json.dumps({"mcpServers": {"srv": {"command": "x"} | entry}}), {}, "f.json", said.append)
    assert len(said) == len(told)
    assert [part for part, line in zip(told, said, strict=True) if part not in line] == []


def test_keys_of_oauth_that_are_not_known_are_told() -> None:
    said: list[str] = []
    entry = {"url": "http://h", "oauth": {"enabled": True, "tokenUrl": "http://t", "scopes": ["a"]}}
    assert parse_servers(json.dumps({"mcpServers": {"srv": entry}}), {}, "f.json", said.append)
    assert [line.partition(":")[2].partition(": known")[0] for line in said] == [" srv.oauth: ignored tokenUrl"]


def test_a_file_of_variables(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    lines = [
        "# mine",
        "",
        "A=1",
        "export B = two words # a comment",
        "C='$x #'",
        'D="a\\n\\"b"',
        "E=",
        "TOKEN=from file",
        "H=a#b",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    path = tmp_path / ".vscode" / "mcp.json"
    for written in ("${workspaceFolder}/.env", ".env", str(tmp_path / ".env")):
        path.write_text(json.dumps({"servers": {"a": {"command": "x", "envFile": written, "env": {"TOKEN": "own"}}}}))
        server = load_servers(path, ENVIRON)["a"]
        assert isinstance(server, StdioServer)
        assert server.env == {"A": "1", "B": "two words", "C": "$x #", "D": 'a\n"b', "E": "", "TOKEN": "own", "H": "a#b"}


@pytest.mark.parametrize(("content", "words"), [(b"A=1\nsecret", "line 2: expected NAME=value"), (b"\xff", "not UTF-8")])
def test_a_file_of_variables_that_cannot_be_read(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        read_env_file(str(tmp_path / ".env"), "f.json: a.envFile")
    assert "secret" not in str(caught.value)
