"""`xmlcall serve` with a settings file, from the outside; the same settings under other ASGI servers."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import SECONDS, environment, model_server, run_cli
from cli_process import begin
from servers.run_server import free_port
from serving import CHAT, TOOL, Serving

KEY = "alice-key-91c2"


def settings(folder: Path, address: str, more: str = "") -> Path:
    path = folder / "proxy.toml"
    path.write_text(
        f'[[model]]\nname = "small"\naddress = "{address}"\nprofile = "off"\nway = "xml"\n{more}\n'
        f'[[key]]\nname = "alice"\nkey = "{KEY}"\n',
        encoding="utf-8",
    )
    return path


def ask(url: str, **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return httpx.post(url + CHAT, json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=SECONDS)


@pytest.mark.sweep  # as a program of its own, too
def test_a_settings_file_is_served(tmp_path: Path) -> None:
    with model_server("Hello.", "Hello.") as (model, _):
        file = settings(tmp_path, model)
        with Serving("--config", str(file), home=tmp_path) as proxy:
            assert ask(proxy.url, tools=[TOOL]).json()["choices"][0]["message"]["content"] == "Hello."
            assert ask(proxy.url, model="other").status_code == 404
            assert proxy.get("/v1/models").status_code == 401
            assert KEY not in proxy.errors
            assert "serving small;" in proxy.errors


def test_the_environment_names_the_file_and_goes_before_it(tmp_path: Path) -> None:
    with model_server() as (model, _):
        port = free_port()
        file = settings(tmp_path, model, "\n[serve]\nport = 1\n")
        env = {"XMLCALL_CONFIG": str(file), "XMLCALL_SERVE__PORT": str(port)}
        streams = (subprocess.DEVNULL, subprocess.PIPE, subprocess.DEVNULL)
        process = begin(["serve"], streams, home=tmp_path, env=environment(tmp_path, env))
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}"
            process.terminate()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "ollama:x"], "--model: "),
        (["--ask", "mode=xml"], "--ask mode is for a single model"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, options: list[str], told: str) -> None:
    file = settings(tmp_path, "http://127.0.0.1:1/v1")
    done = run_cli("serve", "--config", str(file), *options, home=tmp_path)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("where", "told"), [("share", "balancer"), ("workers", "uvicorn --factory")])
def test_a_setting_that_was_removed_is_told(tmp_path: Path, where: str, told: str) -> None:
    value = {"share": '"redis://redis:6379"', "workers": "2"}[where]
    file = settings(tmp_path, "http://127.0.0.1:1/v1", f"\n[serve]\n{where} = {value}\n")
    done = run_cli("serve", "--config", str(file), home=tmp_path)
    assert done.returncode == 2
    assert f"serve.{where}: was removed: " in done.stderr
    assert told in done.stderr


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.full  # it comes after seconds
def test_a_server_that_comes_late_is_waited_for(tmp_path: Path, has_file: bool) -> None:
    port = free_port()
    file = settings(tmp_path, f"http://127.0.0.1:{port}/v1")
    what = ["--config", str(file)] if has_file else ["--model", f"http://127.0.0.1:{port}/v1"]
    late = run_cli("serve", *what, "--port", "0", home=tmp_path)
    assert late.returncode == 1
    program = "import time,sys; time.sleep(1.5); import uvicorn; sys.path.insert(0, sys.argv[1]); "
    program += (
        "from servers.fake_openai import FakeOpenAI; uvicorn.run(FakeOpenAI().app, port=int(sys.argv[2]), log_level='error')"
    )
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen([sys.executable, "-c", program, tests, str(port)]) as model:
        try:
            with Serving(*what, "--wait", "20", home=tmp_path) as proxy:
                assert ask(proxy.url).status_code == 200
        finally:
            model.kill()


# -- any ASGI server ---------------------------------------------------------------------------------------------------

SERVERS = {
    "uvicorn": ["uvicorn", "--factory", "xmlcall.proxy:configured_app", "--port", "{port}", "--workers", "2"],
    "hypercorn": ["hypercorn", "xmlcall.proxy.configured:configured_app()", "--bind", "127.0.0.1:{port}"],
}


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.full  # other programs
def test_other_servers_serve_the_same_settings(tmp_path: Path, name: str) -> None:
    if name == "hypercorn":
        pytest.importorskip("hypercorn", reason="needs hypercorn")
    port = free_port()
    with model_server(*["Hello."] * 9) as (model, _):
        env = environment(tmp_path, {"XMLCALL_CONFIG": str(settings(tmp_path, model))})
        command = [sys.executable, "-m", *(each.format(port=port) for each in SERVERS[name])]
        with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
            try:
                await_port(port)
                assert ask(f"http://127.0.0.1:{port}", tools=[TOOL]).json()["choices"][0]["message"]["content"] == "Hello."
                server.terminate()
                assert server.wait(SECONDS) in (0, -signal.SIGTERM)
            finally:
                server.kill()


def await_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")
