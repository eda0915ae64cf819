"""`xmlcall launch` with a client that keeps what it is started with."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import SECONDS, Terminal, environment, model_server, run_here
from cli_process import begin
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, reply
from servers.run_server import free_port, run_server

from xmlcall.cli.launch_clients import CLIENTS, ProxyAddress
from xmlcall.proxy import configured_app, create_app

SCRIPT = Path(__file__).parents[1] / "servers" / "fake_client.py"
STARTED = [name for name, client in CLIENTS.items() if client.programs]
KEY = "alice-key-5d1f"


class Desk:
    """A home, and a folder with programs that are all the fake client."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *programs: str) -> None:
        self.patch = patch
        self.home, self.kept, programs_folder = folder / "home", folder / "kept", folder / "bin"
        for each in (self.home, self.kept, programs_folder, folder / "tmp"):
            each.mkdir()
        for program in programs:
            (programs_folder / program).write_text(f"#!{sys.executable}\n{SCRIPT.read_text()}")
            (programs_folder / program).chmod(0o755)
        self.env = {"PATH": f"{programs_folder}:{os.defpath}", "FAKE_CLIENT": str(self.kept), "TMPDIR": str(folder / "tmp")}

    def order(self, **orders: Any) -> None:
        (self.kept / "orders.json").write_text(json.dumps(orders))

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.kept.glob("run-*"))]

    def launch(self, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        with self.patch.context() as patch:
            for name, value in environment(self.home, {**self.env, **(env or {})}).items():
                patch.setenv(name, value)
            patch.setattr(tempfile, "tempdir", None)  # which it keeps
            return run_here("launch", *arguments)

    @property
    def left(self) -> list[str]:
        """What is left in the home folder and the one of temporary files."""
        return [str(path) for folder in (self.home, self.home.parent / "tmp") for path in folder.rglob("*")]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch, *(program for client in CLIENTS.values() for program in client.programs[:1]))


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """The port of a proxy that runs, with a context of 70,000 tokens."""
    models = [{"id": "tiny", "max_model_len": 70_000}]
    with run_server(FakeOpenAI(steps=reply("Hello."), models=models).app) as model:
        with run_server(create_app(f"{model}/v1", mode="xml"), lifespan="on") as url:
            yield url.rpartition(":")[2]


# -- every client ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STARTED)
def test_a_client_is_told_of_the_proxy(name: str, desk: Desk, port: str) -> None:
    desk.order(code=7)
    done = desk.launch(name, "--port", port, "--", "hello", "--there")
    assert (done.returncode, done.stderr) == (7, ""), done.stderr
    run = desk.runs[-1]
    assert (run["argv"][-2:], run["answer"], run["open"]) == (["hello", "--there"], "Hello.", 0)
    told = json.dumps(run)
    assert "local" in told or name in ("n8n", "ollmcp", "open-webui", "oterm"), "these choose a model of /v1/models or /api/tags"
    assert (told.count("70000") > 0) == (name not in ("cline", "copilot", "llm", "n8n", "ollmcp", "open-webui", "oterm"))
    assert not any(Path(folder).exists() for folder in run["folders"])
    assert desk.left == []


@pytest.mark.parametrize("name", CLIENTS)
def test_the_settings_are_shown(name: str, tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_API_KEY", KEY)
    client = CLIENTS[name]
    shown = run_here("launch", name, "--port", port, "--print").stdout
    whole = json.loads(run_here("launch", name, "--port", port, "--print", "--json").stdout)
    assert shown.startswith(f"# {client.title}: {client.get}\n")
    assert f"http://127.0.0.1:{port}" in shown
    assert KEY not in shown + json.dumps(whole)
    assert "/xmlcall-" not in shown + json.dumps(whole)
    for place, text in whole["files"].items():
        read(place, text)
        assert f"# {place}\n{text.rstrip()}\n" in shown
    exports = "\n".join(line for line in shown.splitlines() if line.startswith("export "))
    set_by = subprocess.run(
        ["sh", "-c", f"{exports}\nenv -0"], env={"PATH": os.defpath}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert whole["env"].items() <= dict(each.split("=", 1) for each in set_by.stdout.split("\0") if each).items()
    assert whole["command"][:1] == list(client.programs[:1])


@pytest.mark.parametrize("instead", ["--print", "--write"])
def test_without_a_proxy_the_settings_come_with_the_line_that_starts_one(instead: str, desk: Desk) -> None:
    port = f"{free_port()}"
    done = desk.launch("codex", instead, "--port", port, "--model", "my model.gguf", "--context", "16384")
    line = f"xmlcall serve --model 'my model.gguf' --port {port} --context 16384"
    told = f"xmlcall: no proxy runs at http://127.0.0.1:{port} yet; start one before the client: {line}"
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, told)
    file = desk.home / ".codex" / "config.toml"
    assert "model_context_window = 16384" in (done.stdout if instead == "--print" else file.read_text())


def read(place: str, text: str) -> Any:
    """Read a file as the client does; JSON is YAML."""
    return tomllib.loads(text) if place.endswith(".toml") else text if place.endswith(".txt") else json.loads(text)


ODD = 'a "b" \\c ü 𝄞 {x} $HOME `id` #y'


@pytest.mark.parametrize("name", CLIENTS)
def test_a_name_of_a_model_is_a_name(name: str) -> None:
    """Whatever a server calls its models: no file breaks, and nothing is added to it."""
    usual, odd = (CLIENTS[name].settings(ProxyAddress(url="http://127.0.0.1:1", model=model)) for model in ("local", ODD))
    for path, text in odd.files.items():
        other = json.dumps(read(path, usual.files[path]), ensure_ascii=False).replace(
            "local", json.dumps(ODD, ensure_ascii=False)[1:-1]
        )
        assert json.dumps(read(path, text), ensure_ascii=False) == other
    values = [value for value in odd.env.values() if value.startswith("{")]
    assert all(isinstance(json.loads(value), dict) for value in values)


def test_the_table_is_whole() -> None:
    for name, client in CLIENTS.items():
        settings = client.settings(ProxyAddress(url="http://127.0.0.1:1", folder=Path("/folder")))
        shown = client.settings(ProxyAddress(url="http://127.0.0.1:1"))
        assert {*shown.files} == {*client.places}, name
        assert "/folder" not in repr(shown), name
        assert not settings.files or "/folder" in repr((settings.env, settings.arguments)) or not client.programs, name
        assert name == name.lower()


# -- the list, errors -----------------------------------------------------------------------------------------------------


def test_without_a_name_the_clients_are_listed(desk: Desk) -> None:
    lines = desk.launch(env={"PATH": desk.env["PATH"].partition(":")[0]}).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(CLIENTS)
    assert sum(" here " in line for line in lines) == len(STARTED)
    assert {line[35] for line in lines} == set("hs")  # the column of `here` and `settings only`
    rows = json.loads(desk.launch("--json").stdout)["clients"]
    assert rows["codex"]["get"] == "npm install -g @openai/codex"
    assert rows["codex"]["program"].endswith("/bin/codex")
    assert rows["librechat"]["program"] is None


def test_errors(tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path, monkeypatch)
    for arguments, told in (
        (["clawd"], "qwen, zed), got 'clawd'. Did you mean claude?"),
        (["codex", "--port", port], "Codex is not installed: there is no program codex; get it: npm install -g @openai/codex"),
        (["zed"], "there is no program zed or zeditor; get it: https://zed.dev/download"),
        (["librechat"], "LibreChat is not started from here (https://www.librechat.ai/docs/local): --print shows"),
        (["claude", "--write"], "Claude Code takes variables and arguments, and needs no file: see --print"),
        (["claude", "--write", "--print"], "not allowed with argument"),
        (
            ["codex", "--print", "--port", port, "--name", "a\x1b[2J"],
            "expected a name of a model that can be printed, got a\\u001b[2J",
        ),
    ):
        done = desk.launch(*arguments)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr, done.stderr
        assert "\x1b" not in done.stderr
    assert desk.runs == []


def test_a_model_is_named_where_a_proxy_runs(desk: Desk, port: str) -> None:
    done = desk.launch("claude", "--port", port, "--model", "ollama:x")
    assert done.returncode == 2
    assert f"a proxy with tiny runs at http://127.0.0.1:{port} already: leave --model and --context out" in done.stderr


@pytest.mark.parametrize("what", ["silent", "another", "endless"])
def test_a_port_that_something_else_has(what: str, desk: Desk) -> None:
    if what == "another":
        with run_server(FakeOpenAI().app) as url:
            taken(desk, url.rpartition(":")[2])
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=speak, args=(listener, what), daemon=True)
        thread.start()
        taken(desk, str(listener.getsockname()[1]))
        thread.join(SECONDS)


def speak(listener: socket.socket, what: str) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        if what == "endless":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            connection.settimeout(SECONDS)
            try:
                for _ in range(10_000):
                    connection.sendall(b" " * 4096)
            except OSError:  # nobody reads on, as it should be
                return


def taken(desk: Desk, port: str) -> None:
    done = desk.launch("claude", "--port", port)
    assert done.returncode == 2
    assert "is not `xmlcall serve`: choose another port with --port, or stop that program" in done.stderr
    assert desk.runs == []


def test_a_proxy_with_a_key(desk: Desk, tmp_path: Path) -> None:
    with run_server(FakeOpenAI(steps=reply("Hello.")).app) as model:
        with run_server(create_app(f"{model}/v1", api_key=KEY), lifespan="on") as url:
            port = url.rpartition(":")[2]
            done = desk.launch("codex", "--port", port)
            assert (done.returncode, "requires a key: set XMLCALL_API_KEY" in done.stderr) == (2, True), done.stderr
            assert desk.launch("codex", "--port", port, env={"XMLCALL_API_KEY": KEY}).returncode == 0
    (run,) = desk.runs
    assert run["answer"] == "Hello."
    assert 'model_providers.xmlcall.env_key="XMLCALL_API_KEY"' in run["argv"]


def test_a_context_that_is_too_short(desk: Desk) -> None:
    with run_server(FakeOpenAI(models=[{"id": "tiny", "max_model_len": 32_768}]).app) as model:
        with run_server(create_app(f"{model}/v1"), lifespan="on") as url:
            done = desk.launch("hermes", "--port", url.rpartition(":")[2])
    assert done.returncode == 2
    assert "at least 64000 tokens, the model has 32768: start one with --context 64512" in done.stderr


def test_the_model_of_several(desk: Desk, tmp_path: Path) -> None:
    ollama = FakeOllama(models=["one:1b", "two:1b"])
    with run_server(ollama.app) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_HOST", model)
        (tmp_path / "all.toml").write_text('[[model]]\nname = "*"\naddress = "ollama"\n')
        with run_server(configured_app(tmp_path / "all.toml"), lifespan="on") as url:
            shown = [
                json.loads(desk.launch("pi", "--port", url.rpartition(":")[2], "--print", "--json", *name).stdout)
                for name in ([], ["--name", "two:1b"])
            ]
            unknown = desk.launch("pi", "--port", url.rpartition(":")[2], "--name", "three")
    assert [each["command"][-1] for each in shown] == ["one:1b", "two:1b"]
    assert ['"contextWindow": 16384' in json.dumps(each["files"]) for each in shown] == [False, False]
    assert all("16384" in text for each in shown for text in each["files"].values())
    assert "has no such model: model: expected one of 'one:1b', 'two:1b', got 'three'" in unknown.stderr


# -- written --------------------------------------------------------------------------------------------------------------


def test_files_are_written_only_once_and_only_if_that_is_asked(desk: Desk, port: str) -> None:
    done = desk.launch("codex", "--write", "--port", port)
    file = desk.home / ".codex" / "config.toml"
    assert (done.returncode, done.stderr) == (0, f"xmlcall: written: {file}\n")
    assert tomllib.loads(file.read_text())["model_context_window"] == 70_000
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("mine")
    again = desk.launch("codex", "--write", "--port", port)
    assert (again.returncode, file.read_text()) == (2, "mine")
    assert f"{file}: exists already and is not overwritten: add what --print shows" in again.stderr
    assert desk.runs == []


# -- a proxy of its own ---------------------------------------------------------------------------------------------------


def is_served(run: Mapping[str, Any]) -> bool:
    try:
        httpx.get(run["env"]["ANTHROPIC_BASE_URL"], timeout=2)
    except httpx.ConnectError:
        return False
    return True


@pytest.mark.sweep  # as a program of its own, too
def test_a_proxy_is_started_and_ended(desk: Desk) -> None:
    desk.order(code=3)
    with model_server("No.", "Hello.") as (model, _):
        done = desk.launch(
            "claude", "--port", "0", "--model", model, env={"HTTP_PROXY": "http://10.0.0.1:1", "no_proxy": "x.example"}
        )
    (run,) = desk.runs
    assert (done.returncode, run["answer"], run["argv"]) == (3, "Hello.", [])
    assert "xmlcall: serving tiny; " in done.stderr
    assert "POST /v1/chat/completions" not in done.stderr, "its log is not in the client's way"
    assert (run["env"]["NO_PROXY"], run["env"]["no_proxy"]) == ("127.0.0.1", "x.example,127.0.0.1")
    assert not is_served(run)
    assert desk.left == []


def test_a_proxy_that_does_not_start(desk: Desk) -> None:
    done = desk.launch("claude", "--port", "0", "--model", f"http://127.0.0.1:{free_port()}/v1")
    assert (done.returncode, desk.runs) == (1, [])
    assert "cannot connect to http://127.0.0.1:" in done.stderr
    assert done.stderr.endswith("xmlcall: the proxy did not start\n")


def test_a_proxy_that_ends_is_told(desk: Desk) -> None:
    desk.order(kills=True)
    with model_server("No.", "Hello.") as (model, _):
        done = desk.launch("claude", "--port", "0", "--model", model)
    assert "xmlcall: the proxy had ended with -9; its last lines:\n" in done.stderr
    assert "/v1/models/local 200" in done.stderr


@pytest.mark.sweep  # as a program of its own, too
def test_ctrl_c_is_for_the_client(desk: Desk) -> None:
    """The first one interrupts what it does, the second one ends it, and with it the proxy."""
    desk.order(waits=2, code=130)
    with model_server("No.", "Hello.") as (model, _):
        arguments = ["launch", "claude", "--port", "0", "--model", model]
        with Terminal(*arguments, home=desk.home, env=desk.env) as terminal:
            terminal.until("client is ready")
            terminal.typed("\x03", "client was interrupted")
            assert is_served(desk.runs[0])
            terminal.send("\x03")
            assert terminal.end() == 130
    assert not is_served(desk.runs[0])
    assert desk.left == []


def test_ctrl_c_while_the_proxy_starts(desk: Desk) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        arguments = ["launch", "claude", "--port", "0", "--model", f"http://127.0.0.1:{silent.getsockname()[1]}/v1"]
        with Terminal(*arguments, home=desk.home, env=desk.env) as terminal:
            silent.settimeout(SECONDS)
            asked, _ = silent.accept()
            with asked:  # the proxy waits for an answer of the model server
                terminal.typed("\x03", "interrupted")
                assert terminal.end() == 130
    assert (desk.runs, desk.left) == ([], [])


@pytest.mark.sweep  # as a program of its own, too
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_both(number: signal.Signals, desk: Desk) -> None:
    desk.order(waits=1)
    with model_server("No.", "Hello.") as (model, _):
        streams = (subprocess.DEVNULL, subprocess.PIPE, subprocess.DEVNULL)
        command = ["launch", "claude", "--port", "0", "--model", model]
        process = begin(command, streams, home=desk.home, env=environment(desk.home, desk.env))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "client is ready\n"
            process.send_signal(number)
            assert process.wait(SECONDS) == 128 + number
        finally:
            process.kill()
            process.communicate()
    assert not is_served(desk.runs[0])
    assert desk.left == []
