"""`xmlcall serve` with a settings file and with workers, from the outside; the same settings under other ASGI servers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import SECONDS, environment, lent_server, model_server, run_cli
from cli_process import begin
from redis_server import RedisServer
from servers.fake_openai import FakeOpenAI
from servers.run_server import free_port
from serving import CHAT, ENDLESS, TOOL, Serving

pytestmark = pytest.mark.sweep  # as processes of their own, all of them

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
        (["--mode", "xml"], "--mode is about one model"),
        (["--workers", "2", "--ui"], "--ui shows the requests of one process"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, options: list[str], told: str) -> None:
    file = settings(tmp_path, "http://127.0.0.1:1/v1")
    done = run_cli("serve", "--config", str(file), *options, home=tmp_path)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_workers_do_not_load_a_model_each(tmp_path: Path) -> None:
    done = run_cli("serve", "--workers", "2", "--model", "local", home=tmp_path)
    assert (done.returncode, "each would load 'local' for itself" in done.stderr) == (2, True)


def test_workers_do_not_count_limits_each_for_itself(tmp_path: Path) -> None:
    file = settings(tmp_path, "http://127.0.0.1:1/v1", "requests_per_minute = 5")
    done = run_cli("serve", "--workers", "2", "--config", str(file), home=tmp_path)
    assert (done.returncode, "--share redis://" in done.stderr) == (2, True)


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.full  # it comes after seconds
def test_a_server_that_comes_late_is_waited_for(tmp_path: Path, has_file: bool) -> None:
    port = free_port()
    file = settings(tmp_path, f"http://127.0.0.1:{port}/v1")
    what = ["--config", str(file)] if has_file else ["--model", f"http://127.0.0.1:{port}/v1"]
    late = run_cli("serve", *what, home=tmp_path)
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


# -- workers -----------------------------------------------------------------------------------------------------------


def workers_of(process: int) -> list[int]:
    """Return the processes that one has begun."""
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextmanager
def two_workers(folder: Path, fake: FakeOpenAI, *options: str) -> Iterator[Serving]:
    with lent_server(fake.app) as model, Serving("--model", f"{model}/v1", "--workers", "2", *options, home=folder) as proxy:
        yield proxy


def served(proxy: Serving, fresh: int = 20) -> list[int]:
    """Ask over connections of their own."""
    return [proxy.ask(tools=[TOOL]).status_code for _ in range(fresh)]


@pytest.mark.full  # several processes
def test_workers_answer_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    with two_workers(tmp_path, FakeOpenAI(), "--mode", "xml") as proxy:
        assert served(proxy) == [200] * 20
        first, second = workers_of(proxy.process.pid)
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while len(now := workers_of(proxy.process.pid)) < 2 or first in now:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert second in now
        assert served(proxy) == [200] * 20
        assert f"worker {first} ended with -9" in proxy.errors
        assert proxy.end(signal.SIGTERM)[0] == 0
        assert not [each for each in now if _is_alive(each)]


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    with two_workers(tmp_path, FakeOpenAI(), "--mode", "xml") as proxy:
        workers = workers_of(proxy.process.pid)
        proxy.process.kill()
        deadline = time.monotonic() + SECONDS
        while any(_is_alive(each) for each in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _is_alive(process: int) -> bool:
    """Say whether a process runs; one that ended and that nobody waits for does not."""
    try:
        return "Z (zombie)" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def requests_counted(proxy: Serving) -> int:
    counts = re.findall(rf'xmlcall_requests_total{{[^}}]*endpoint="{CHAT}"[^}}]*}} (\S+)', proxy.get("/metrics").text)
    return sum(int(float(each)) for each in counts)


@pytest.mark.full  # several processes
def test_metrics_add_up_over_workers(tmp_path: Path) -> None:
    with two_workers(tmp_path, FakeOpenAI(), "--mode", "xml") as proxy:
        assert served(proxy, 30) == [200] * 30
        deadline = time.monotonic() + SECONDS  # an answer arrives a moment before its worker has counted it
        while requests_counted(proxy) < 30 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert requests_counted(proxy) == 30


@pytest.mark.full  # several processes
def test_a_stream_of_a_worker_ends_with_an_error_when_it_is_stopped(tmp_path: Path) -> None:
    fake = FakeOpenAI(steps=ENDLESS)
    with two_workers(tmp_path, fake, "--grace", "0", "--mode", "xml") as proxy:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True, "tools": [TOOL]}
        with httpx.stream("POST", proxy.here + CHAT, json=body, timeout=SECONDS) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if "Hello" in line)
            proxy.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line.startswith("data:")]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "server_stopped"
        assert proxy.process.wait(SECONDS) == 0


def test_a_worker_that_cannot_begin_ends_all(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run_cli("serve", "--workers", "3", "--model", f"http://127.0.0.1:{free_port()}/v1", "--port", "0", home=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert time.monotonic() - begun < SECONDS


@contextmanager
def closing_redis(redis: RedisServer) -> Iterator[None]:
    redis.start()
    try:
        yield
    finally:
        redis.end()


@pytest.mark.full  # several processes
def test_workers_hold_a_limit_together(tmp_path: Path) -> None:
    fake = FakeOpenAI()
    redis = RedisServer(tmp_path)
    with closing_redis(redis), lent_server(fake.app) as model:
        file = settings(tmp_path, f"{model}/v1", "requests_per_minute = 10")
        with Serving("--config", str(file), "--workers", "2", "--share", redis.url, home=tmp_path) as proxy:
            statuses = [ask(proxy.url).status_code for _ in range(30)]
        assert {200, 429} == set(statuses)
        assert 10 <= statuses.count(200) <= 20, "the test may lie across two minutes"


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
