"""The harness on Ray gives what it gives without: the same files, whoever answered, and whoever died."""

import asyncio
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_harness import XMLCALL, environment
from rescore_all import unpacked
from servers.fake_openai import DONE, chunk, final
from servers.run_server import run_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'xmlcall[ray]'"),
    pytest.mark.timeout(180),
]

RUNS = Path(__file__).parents[2] / "benchmarks" / "results" / "runs"
SECONDS = 100.0
TIMES = ("seconds", "first_event_seconds")


class Model:
    """A model whose reply follows from the question alone, and a server of it that counts; it can fail, or be slow."""

    def __init__(self, pause: float = 0.0, fails_after: int = sys.maxsize) -> None:
        self.asked, self._pause, self._fails_after = 0, pause, fails_after
        chat = Route("/v1/chat/completions", self._chat, methods=["POST"])
        self.app = Starlette(routes=[chat, Route("/v1/models", self._models)])

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked += 1
        if self.asked > self._fails_after:
            return JSONResponse({"error": {"message": "full"}}, 500)
        number = int(hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest(), 16)
        texts = ["In plain words.", '<function_calls>\n<invoke name="get_weather">\n', f"It is {number % 97}."]
        await asyncio.sleep(self._pause)
        steps = [chunk({"role": "assistant", "content": texts[number % 3]}), chunk({}, "stop"), final(prompt_tokens=1), DONE]
        return StreamingResponse(iter(steps), media_type="text/event-stream")


CLUSTER = """
import ray, sys
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**27, _node_ip_address="127.0.0.1")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
# 0: Ray looks for no address but loopback
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": 4 * "0123456789abcdef",
}
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}


@dataclass
class Cluster:
    """A cluster of Ray with two cores, for all tests: each start of one takes ten seconds and more."""

    address: str
    session: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-W", "ignore", "-c", CLUSTER]
    with (
        open(home / "log", "wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, env=environment(home, QUIET), **PIPES) as process,
    ):
        assert process.stdout is not None
        try:
            yield Cluster(process.stdout.readline().strip(), process.pid)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(SECONDS)


def xmlcall(*arguments: object, home: Path, cluster: Cluster | None = None, **env: str) -> "subprocess.Popen[str]":
    """Start a command; without a cluster it starts one of its own, if it needs one."""
    address = {"RAY_ADDRESS": cluster.address} if cluster else {}
    command = [*XMLCALL, "bench", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment(home, {**QUIET, **address, **env}), **PIPES)


def done(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for a command; give its code and what it said."""
    out, errors = process.communicate(timeout=SECONDS)
    return process.returncode, out, errors


WORDS = ("--suite", "wire", "--limit", 60, "--call-threshold", "off", "--way", "xml", "--way", "hermes")


def running_on(servers: list[str], out: Path, cluster: Cluster | None = None) -> "subprocess.Popen[str]":
    """Run a suite against servers of one model; on Ray if there is a cluster."""
    further = [word for url in servers[1:] for word in ("--server", f"{url}/v1")]
    on = ["--on", "ray"] if cluster else []
    command = ["run", "--model", f"{servers[0]}/v1", *further, *on, *WORDS, "--out", out]
    return xmlcall(*command, home=out.parent, cluster=cluster)


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Give the replies of a run in their order, without how long they took."""
    rows = [json.loads(line) for line in (run / "replies.jsonl").read_text(encoding="utf-8").splitlines()]
    for kept in (kept for row in rows for kept in row["rounds"]):
        for name in TIMES:
            kept.pop(name, None)
    return rows


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one server, without Ray."""
    out = tmp_path_factory.mktemp("alone") / "run"
    with run_server(Model().app) as url:
        code, _, errors = done(running_on([url], out))
    assert (code, errors) == (0, "")
    assert len(rows_of(out)) == 120
    return out


def assert_same(run: Path, alone: Path) -> None:
    assert rows_of(run) == rows_of(alone)
    for name in ("cases.jsonl", "scores.json"):
        assert (run / name).read_bytes() == (alone / name).read_bytes()


def test_a_run_on_two_servers_is_the_same_as_on_one(alone: Path, cluster: Cluster, tmp_path: Path) -> None:
    fast, slow = Model(), Model(pause=0.03)
    with run_server(fast.app) as first, run_server(slow.app) as second:
        code, _, errors = done(running_on([first, second], tmp_path / "run", cluster))
    assert (code, errors) == (0, "")
    assert min(fast.asked, slow.asked) > 8
    assert fast.asked + slow.asked == 120
    assert_same(tmp_path / "run", alone)


def test_what_a_server_leaves_others_do(alone: Path, cluster: Cluster, tmp_path: Path) -> None:
    whole, failing = Model(pause=0.01), Model(fails_after=9)
    with run_server(whole.app) as first, run_server(failing.app) as second:
        code, _, errors = done(running_on([first, second], tmp_path / "run", cluster))
    assert code == 0
    assert f"{second}/v1 gets no more cases" in errors
    assert_same(tmp_path / "run", alone)


def test_a_run_without_a_server_left_gives_up_and_goes_on_later(alone: Path, cluster: Cluster, tmp_path: Path) -> None:
    with run_server(Model(fails_after=9).app) as first, run_server(Model(fails_after=14).app) as second:
        code, _, errors = done(running_on([first, second], tmp_path / "run", cluster))
    assert code == 1
    assert "gave up" in errors
    assert 9 < len(rows_of(tmp_path / "run")) < 24
    with run_server(Model().app) as first, run_server(Model().app) as second:
        code, _, errors = done(running_on([first, second], tmp_path / "run", cluster))
    assert (code, errors) == (0, "")
    assert sorted(map(json.dumps, rows_of(tmp_path / "run"))) == sorted(map(json.dumps, rows_of(alone)))


@contextmanager
def killed(session: int, name: str, deaths: list[int]) -> Iterator[None]:
    """Kill the first process of a session that Ray gave a name, as soon as it is there."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                if is_named(pid, session, name):
                    os.kill(pid, signal.SIGKILL)
                    deaths.append(pid)
                    return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def is_named(pid: int, session: int, name: str) -> bool:
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_text() and os.getsid(pid) == session
    except (OSError, UnicodeDecodeError):
        return False


def test_cases_of_a_process_that_dies_are_asked_again(alone: Path, cluster: Cluster, tmp_path: Path) -> None:
    deaths: list[int] = []
    with run_server(Model(pause=0.02).app) as first, run_server(Model(pause=0.02).app) as second:
        process = running_on([first, second], tmp_path / "run", cluster)
        with killed(cluster.session, "ray::Asker.ask", deaths):
            code, _, _ = done(process)
    assert (code, len(deaths)) == (0, 1)
    assert_same(tmp_path / "run", alone)


JUDGED = ("talk-final-1.5b", "bfcl-mt-1.5b", "right-bfcl-report-1.5b-ours")


def judged(folder: Path, *on: str, cluster: Cluster | None = None) -> "subprocess.Popen[str]":
    """Judge copies of recorded runs again."""
    for name in JUDGED:
        unpacked(RUNS / name, folder / name)
    return xmlcall("rescore", *(folder / name for name in JUDGED), *on, home=folder.parent, cluster=cluster)


def test_replies_are_judged_on_ray_as_without_also_when_a_process_dies(cluster: Cluster, tmp_path: Path) -> None:
    deaths: list[int] = []
    here = done(judged(tmp_path / "here"))
    process = judged(tmp_path / "ray", "--on", "ray", cluster=cluster)
    with killed(cluster.session, "ray::_judge", deaths):
        code, out, _ = done(process)
    assert (code, out.replace(str(tmp_path / "ray"), str(tmp_path / "here")), "") == here
    assert len(deaths) == 1
    for name in JUDGED:
        assert (tmp_path / "here" / name / "scores.json").read_bytes() == (tmp_path / "ray" / name / "scores.json").read_bytes()


def test_a_damaged_line_is_named_as_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    unpacked(RUNS / "right-bfcl-report-1.5b-ours", run)
    lines = (run / "replies.jsonl").read_text().splitlines()
    lines[120] = lines[120].replace('"rounds"', '"round"')
    (run / "replies.jsonl").write_text("\n".join(lines) + "\n")
    said = [
        done(xmlcall("rescore", run, home=tmp_path)),
        done(xmlcall("rescore", run, "--on", "ray", home=tmp_path, cluster=cluster)),
    ]
    assert said[0] == said[1]
    assert "replies.jsonl, line 121 is damaged" in said[0][2]


def test_without_an_address_ray_is_started_here_beside_another(cluster: Cluster, tmp_path: Path) -> None:
    """Ray by itself would join the cluster whose address the last program on this machine left in its folder."""
    run = tmp_path / "run"
    unpacked(RUNS / "bfcl-mt-1.5b", run)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # its sockets' paths have to be short
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray/ray_current_cluster").write_text(cluster.address)
        code, out, errors = done(xmlcall("rescore", run, "--on", "ray", "--workers", "1", home=tmp_path, RAY_TMPDIR=folder))
    assert (code, errors) == (0, "")
    assert "replies judged again" in out
