"""`xmlcall login`, `logout`, and the question before a session: a person with a browser, a real authorization server."""

import json
import stat
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import Terminal, call, model_server, run_cli
from servers.fake_openai import llama_props
from servers.guarded import Grants, guarded_server

from xmlcall.cli import login
from xmlcall.hosts.mcp.oauth import SystemTokens, key_of
from xmlcall.hosts.server import HttpServer
from xmlcall.installed import install_command

QUESTION = "Open it in your browser?"


@pytest.fixture
def grants() -> Grants:
    return Grants()


@pytest.fixture
def config(tmp_path: Path, grants: Grants) -> Iterator[str]:
    with guarded_server(grants) as url:
        path = tmp_path / "mcp.json"
        servers = {"web": {"url": url}, "local": {"command": "true"}}
        path.write_text(json.dumps({"mcpServers": servers}))
        yield str(path)


def env(home: Path) -> dict[str, str]:
    return {"BROWSER": "true", "XDG_DATA_HOME": str(home / "data")}


def address(before: str) -> str:
    """The address that is shown on the terminal."""
    return next(line.strip() for line in before.splitlines() if line.startswith("  http"))


def visit(url: str) -> None:
    """Open an address as the person's own browser."""
    threading.Thread(target=lambda: urllib.request.urlopen(url, timeout=20).read(), daemon=True).start()


def test_one_signs_in_and_the_tokens_are_used_until_they_are_forgotten(tmp_path: Path, config: str, grants: Grants) -> None:
    with Terminal("login", "--mcp", config, home=tmp_path, env=env(tmp_path)) as terminal:
        shown = address(terminal.expect(QUESTION))
        terminal.send("\n", "Waiting until you have signed in")
        visit(shown)
        terminal.expect("signed in to web")
        terminal.expect("no keyring was found: the tokens are in")
        assert terminal.end() == 0
    kept = tmp_path / "data" / "xmlcall" / "tokens.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    listed = run_cli("tools", "--mcp", config, home=tmp_path, env=env(tmp_path))
    assert "add" in listed.stdout
    assert "access-" not in listed.stdout + listed.stderr

    done = run_cli("logout", "web", "--mcp", config, home=tmp_path, env=env(tmp_path))
    assert (done.returncode, done.stderr) == (0, "xmlcall: deleted the tokens of web\n")
    again = run_cli("logout", "--mcp", config, home=tmp_path, env=env(tmp_path))
    assert again.stderr == "xmlcall: there are no tokens of web\n"
    assert json.loads(kept.read_text()) == {}


async def test_who_lacks_the_package_keyring_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def signed_in(server: HttpServer) -> bool:
        return True

    server = HttpServer(name="web", url="http://127.0.0.1:9/mcp")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(login, "sign_in", signed_in)
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = SystemTokens()
    store.set(key_of(server), "{}")
    assert await login._login(server) == 0
    said = capsys.readouterr().err.splitlines()[-1]
    advice = f"the system's keyring needs the package keyring: install it with: {install_command('login')}"
    assert said == f"xmlcall: {advice} (the tokens are in {store.path}, which only you can read)"


def test_a_session_on_a_terminal_asks_before_it_begins(tmp_path: Path, config: str, grants: Grants) -> None:
    with Terminal("tools", "--mcp", config, home=tmp_path, env=env(tmp_path)) as terminal:
        shown = address(terminal.expect(QUESTION))
        terminal.send("y\n")  # BROWSER=true opens nothing
        terminal.expect("Waiting until you have signed in")
        visit(shown)
        terminal.expect("add")
        terminal.end()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_server_that_wants_it_in_the_middle_of_a_session(answer: str, tmp_path: Path, config: str, grants: Grants) -> None:
    file = Path(config)
    file.write_text(json.dumps({"mcpServers": {"web": json.loads(file.read_text())["mcpServers"]["web"]}}))
    with model_server(call("add", a="1", b="2"), "Good.", "Yes.") as (model, fake):
        fake.props = llama_props()
        arguments = ("chat", "--yes", "--model", model, "--mcp", config)
        with Terminal(*arguments, home=tmp_path, env=env(tmp_path)) as terminal:
            shown = address(terminal.expect(QUESTION))
            terminal.send("\n", "Waiting until you have signed in")
            visit(shown)
            terminal.expect("servers 1/1")
            grants.tokens.clear()
            grants.refreshing.clear()
            terminal.send("1 + 2?\r")
            shown = address(terminal.expect(QUESTION))
            terminal.send(f"{answer}\n")
            if answer == "y":
                terminal.expect("Waiting until you have signed in")
                visit(shown)
            terminal.expect("Good.")
            said = fake.bodies[1]["messages"][-1]["content"]
            if answer == "n":
                assert "The tool did not run" in said
            else:
                assert "3" in said
                assert grants.events.count("exchange") == 2


def test_no_is_an_answer(tmp_path: Path, config: str, grants: Grants) -> None:
    with Terminal("login", "--mcp", config, home=tmp_path, env=env(tmp_path)) as terminal:
        terminal.expect(QUESTION)
        terminal.send("what\n", QUESTION)
        terminal.send("n\n", "web: signing in to it failed: the sign-in was declined")
        assert terminal.end() == 1
    assert "exchange" not in grants.events


def test_without_a_terminal_the_command_is_named(tmp_path: Path, config: str) -> None:
    listed = run_cli("tools", "--mcp", config, home=tmp_path, env=env(tmp_path))
    assert 'sign in by "xmlcall login web --mcp FILE"' in listed.stderr
    done = run_cli("login", "--mcp", config, home=tmp_path, env=env(tmp_path))
    assert done.returncode == 2
    assert done.stderr == "xmlcall: signing in needs a terminal, because a person has to agree\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected --mcp SERVERS"),
        (["nobody", "--mcp", "{config}"], "(there are: 'web'), got 'nobody'"),
        (["local", "--mcp", "{config}"], "(there are: 'web'), got 'local'"),
    ],
)
def test_which_server_is_meant(tmp_path: Path, arguments: list[str], said: str) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"web": {"url": "http://127.0.0.1:9/mcp"}, "local": {"command": "true"}}}))
    done = run_cli("login", *(argument.format(config=config) for argument in arguments), home=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
