"""The harness on Ray gives what it gives without: the same files, whoever answered, and whoever died."""

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_harness import XMLCALL, environment
from servers.fake_openai import DONE, chunk, event, final
from servers.run_server import run_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

pytestmark = [
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
        time.sleep(self._pause)
        steps = [chunk({"role": "assistant", "content": texts[number % 3]}), chunk({}, "stop"), final(prompt_tokens=1), DONE]
        return StreamingResponse(iter(steps), media_type="text/event-stream")


def xmlcall(*arguments: object, home: Path, **env: str) -> "subprocess.Popen[str]":
    """Start a command; Ray and all that it starts end with it."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **env}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [*XMLCALL, "bench", *map(str, arguments)], env=environment(home, quiet), start_new_session=True, **pipes
    )


def done(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for a command; give its code and what it said."""
    out, errors = process.communicate(timeout=SECONDS)
    return process.returncode, out, errors


def run_on(servers: list[str], out: Path, *more: object) -> tuple[int, str, str]:
    """Run a suite against servers of one model."""
    further = [word for url in servers[1:] for word in ("--server", f"{url}/v1")]
    on = ["--on", "ray"] if further or "--on" in more else []
    ways = ["--way", "xml", "--way", "hermes"]
    options = ["--suite", "wire", "--limit", 60, "--call-threshold", "off", *ways, "--out", out]
    return done(xmlcall("run", "--model", f"{servers[0]}/v1", *further, *on, *options, home=out.parent))


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
        code, _, errors = run_on([url], out)
    assert (code, errors) == (0, "")
    assert len(rows_of(out)) == 120
    return out


def assert_same(run: Path, alone: Path) -> None:
    assert rows_of(run) == rows_of(alone)
    for name in ("cases.jsonl", "scores.json"):
        assert (run / name).read_bytes() == (alone / name).read_bytes()


def test_a_run_on_two_servers_is_the_same_as_on_one(alone: Path, tmp_path: Path) -> None:
    fast, slow = Model(), Model(pause=0.03)
    with run_server(fast.app) as first, run_server(slow.app) as second:
        code, _, errors = run_on([first, second], tmp_path / "run")
    assert (code, errors) == (0, "")
    assert min(fast.asked, slow.asked) > 8
    assert fast.asked + slow.asked == 120
    assert_same(tmp_path / "run", alone)


def test_what_a_server_leaves_others_do(alone: Path, tmp_path: Path) -> None:
    whole, failing = Model(pause=0.01), Model(fails_after=9)
    with run_server(whole.app) as first, run_server(failing.app) as second:
        code, _, errors = run_on([first, second], tmp_path / "run")
    assert code == 0
    assert f"{second}/v1 gets no more cases" in errors
    assert_same(tmp_path / "run", alone)


def test_a_run_without_a_server_left_gives_up_and_goes_on_later(alone: Path, tmp_path: Path) -> None:
    with run_server(Model(fails_after=9).app) as first, run_server(Model(fails_after=14).app) as second:
        code, _, errors = run_on([first, second], tmp_path / "run")
    assert code == 1
    assert "gave up" in errors
    assert 9 < len(rows_of(tmp_path / "run")) < 24
    with run_server(Model().app) as first, run_server(Model().app) as second:
        code, _, errors = run_on([first, second], tmp_path / "run")
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


def test_cases_of_a_process_that_dies_are_asked_again(alone: Path, tmp_path: Path) -> None:
    deaths: list[int] = []
    with run_server(Model(pause=0.02).app) as first, run_server(Model(pause=0.02).app) as second:
        words = ["--suite", "wire", "--limit", 60, "--call-threshold", "off", "--way", "xml", "--way", "hermes", "--on", "ray"]
        urls = ["--model", f"{first}/v1", "--server", f"{second}/v1"]
        process = xmlcall("run", *urls, *words, "--out", tmp_path / "run", home=tmp_path)
        with killed(process.pid, "ray::Asker.ask", deaths):
            code, _, errors = done(process)
    assert (code, errors, len(deaths)) == (0, "", 1)
    assert_same(tmp_path / "run", alone)


def test_replies_are_judged_on_ray_as_without_also_when_a_process_dies(tmp_path: Path) -> None:
    names, deaths = ("talk-final-1.5b", "bfcl-mt-1.5b", "right-bfcl-report-1.5b-ours"), list[int]()
    outs = []
    for place in ("here", "ray"):
        (tmp_path / place).mkdir()
        for name in names:
            shutil.copytree(RUNS / name, tmp_path / place / name, ignore=shutil.ignore_patterns("scores.json"))
        on = ["--on", "ray", "--workers", "2"] if place == "ray" else []
        process = xmlcall("rescore", *(tmp_path / place / name for name in names), *on, home=tmp_path)
        with killed(process.pid, "ray::_judge", deaths):
            code, out, errors = done(process)
        assert (code, errors) == (0, "")
        outs.append(out.replace(str(tmp_path / place), ""))
    assert outs[0] == outs[1]
    assert len(deaths) == 1
    for name in names:
        here, ray = (tmp_path / place / name / "scores.json" for place in ("here", "ray"))
        assert here.read_bytes() == ray.read_bytes()


def test_a_damaged_line_is_named_as_without_ray(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUNS / "talk-final-1.5b", run)
    lines = (run / "replies.jsonl").read_text().splitlines()
    lines[40] = lines[40].replace('"rounds"', '"round"')
    (run / "replies.jsonl").write_text("\n".join(lines) + "\n")
    said = [done(xmlcall("rescore", run, *on, home=tmp_path)) for on in ([], ["--on", "ray", "--workers", "2"])]
    assert said[0] == said[1]
    assert "replies.jsonl, line 41 is damaged" in said[0][2]


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    server = ["run", "--model", "http://127.0.0.1:9/v1", "--server", "http://127.0.0.1:9/v1", "--out", tmp_path / "run"]
    code, _, errors = done(xmlcall(*server, home=tmp_path))
    assert (code, "--on ray" in errors) == (2, True)
    code, _, errors = done(xmlcall("run", "--model", "oracle", "--on", "ray", "--out", tmp_path / "run", home=tmp_path))
    assert (code, "stand-in" in errors) == (2, True)
    assert not (tmp_path / "run").exists()


def test_without_ray_the_way_to_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('not here')\n")
    words = ["rescore", RUNS / "talk-final-1.5b", "--on", "ray"]
    code, _, errors = done(xmlcall(*words, home=tmp_path, PYTHONPATH=str(tmp_path)))
    assert (code, "pip install 'xmlcall[ray]'" in errors) == (2, True)
