"""What stands behind `--mcp`: files, URLs, scripts and command lines, mixed."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, run_cli
from servers.started import demo_server

from xmlcall.cli.servers import servers_given
from xmlcall.errors import UsageError
from xmlcall.hosts.server import HttpServer, StdioServer

COMMANDS = [
    ("python3 -I tools/weather.py --units c", "weather", "python3", ("-I", "tools/weather.py", "--units", "c")),
    ("sh -c 'exit 1'", "exit-1", "sh", ("-c", "exit 1")),
    ("env npx -y @modelcontextprotocol/server-filesystem@2.1 '/my data'", "server-filesystem", "env", None),
    ("cat", "cat", "cat", ()),
    ("bash", "bash", "bash", ()),
    ("python3 -m some.server", "some-server", "python3", ("-m", "some.server")),
    ("cat $HOME `x` ${Y}", "cat", "cat", ("$HOME", "`x`", "${Y}")),  # no shell
]


@pytest.mark.parametrize(("given", "name", "command", "args"), COMMANDS)
def test_a_command_line_is_a_server(given: str, name: str, command: str, args: tuple[str, ...] | None) -> None:
    [server] = servers_given([given])
    assert isinstance(server, StdioServer)
    assert (server.name, server.command) == (name, command)
    assert server.args == (tuple(shlex.split(given)[1:]) if args is None else args)


@pytest.mark.parametrize("arguments", ["", " --fast"])
def test_a_script_runs_with_this_python(arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_server.py").write_text("print()")
    [server] = servers_given([f"my_server.py{arguments}"])
    assert isinstance(server, StdioServer)
    assert (server.name, server.command) == ("my_server", sys.executable)
    assert server.args == ("my_server.py", *arguments.split())


FAST = "from mcp.server.fastmcp import FastMCP\n"
SDK_1 = [FAST, "import mcp.server.fastmcp as f\n", "import mcp\n@server.list_tools()\nasync def tools(): ...\n"]


@pytest.mark.parametrize("text", SDK_1)
def test_a_script_for_version_1_of_the_sdk_names_the_command_that_runs_it(text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my server.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        servers_given(["'my server.py' --fast"])
    command = str(caught.value).partition(" --mcp ")[2]
    assert shlex.split(shlex.split(command)[0]) == ["uv", "run", "--with", "mcp<2", "my server.py", "--fast"]


def test_a_script_for_version_1_of_the_sdk_runs_in_its_own_environment(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    script, package = tmp_path / "src" / "one.py", tmp_path / ".venv/lib/python3.11/site-packages/mcp/server/fastmcp"
    script.write_text(FAST)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    [server] = servers_given([str(script)])
    assert isinstance(server, StdioServer)
    assert (server.name, server.command, server.args) == ("one", str(tmp_path / ".venv/bin/python"), (str(script),))


def test_a_script_for_both_versions_runs_with_this_python(tmp_path: Path) -> None:
    script = tmp_path / "both.py"
    script.write_text(f"try:\n    from mcp.server import MCPServer\nexcept ImportError:\n    {FAST}")
    [server] = servers_given([str(script)])
    assert isinstance(server, StdioServer)
    assert server.command == sys.executable


def test_a_script_whose_path_has_white_space(tmp_path: Path) -> None:
    script = tmp_path / "my server.py"
    script.write_text("print()")
    [server] = servers_given([str(script)])
    assert isinstance(server, StdioServer)
    assert (server.name, server.args) == ("my-server", (str(script),))


@pytest.mark.parametrize(
    ("url", "name"), [("http://127.0.0.1:8000/mcp", "127-0-0-1"), ("https://search.example/mcp?key=s3cret", "search-example")]
)
def test_a_url_is_a_server(url: str, name: str) -> None:
    [server] = servers_given([url])
    assert isinstance(server, HttpServer)
    assert (server.name, server.url, server.transport) == (name, url, "either")
    assert "s3cret" not in repr(server)


def test_files_of_other_formats_are_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('[mcp_servers.a]\ncommand = "x"\n[mcp_servers.b]\ntype = "ws"\n')
    (tmp_path / "config.yaml").write_text("extensions: {c: {type: stdio, cmd: x}}\n")
    given = [str(tmp_path / name) for name in ("config.toml", "config.yaml")]
    for _ in range(2):
        assert [server.name for server in servers_given(given)] == ["a", "c"]
    assert capsys.readouterr().err.count("b.type: expected one of") == 1  # a file may be read more than once, and is told of once
    [server] = servers_given([f"cat --config {given[0]}"])
    assert isinstance(server, StdioServer)
    assert server.command == "cat"
    (tmp_path / "config.ini").write_text("[a]\n")
    with pytest.raises(UsageError, match=r"a file that cannot be run, and no configuration, which ends in \.json, .*\.toml"):
        servers_given([str(tmp_path / "config.ini")])


@pytest.mark.parametrize("name", ["servers.json", "servers"])
def test_a_json_file_is_a_configuration(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("\ufeff // mine\n" + json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h/"}}}))
    assert [server.name for server in servers_given([str(path)])] == ["a", "b"]


def test_forms_are_mixed_and_made_up_names_give_way_to_configured_ones(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"cat": {"command": "x"}}}))
    names = [server.name for server in servers_given(["cat a", "http://host/1", "cat b", str(path), "http://host/2"])]
    assert names == ["cat-2", "host", "cat-3", "cat", "host-2"]


@pytest.mark.parametrize("url", ["http://", "http://[::1", "https://host/\x1b[2J", "http://ho st/"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="expected a URL") as caught:
        servers_given([url])
    assert "\x1b" not in str(caught.value)


@pytest.mark.sweep
def test_servers_of_every_form_serve(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(f"import runpy, sys\nsys.argv = ['x', 'good']\nrunpy.run_path({HOSTILE!r}, run_name='__main__')\n")
    with demo_server("http") as server:
        assert isinstance(server, HttpServer)
        given = [server.url, str(script), f"{shlex.quote(sys.executable)} {shlex.quote(HOSTILE)} good"]
        done = run_cli("tools", *(word for each in given for word in ("--mcp", each)), home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line.partition("(")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert {"127-0-0-1.calculator", "echo.echo", "hostile.echo"} <= set(heads)
