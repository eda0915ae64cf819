"""`/health` says that the process lives, `/ready` that its model server answers; lines of the log are JSON, whatever is said."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from observed_harness import observed
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, llama_props
from servers.run_server import Stage, run_server
from starlette.requests import Request
from starlette.responses import JSONResponse

from xmlcall.backends.base import Backend
from xmlcall.backends.connect import connect
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.proxy.http.access import Guard, key_of
from xmlcall.proxy.observed import probes
from xmlcall.proxy.observed.observer import Metrics, Observer, Observing, trace_id_in
from xmlcall.proxy.observed.probes import JsonFormatter

KEY = "secret-5d1c"
POD = {"host": "10.1.2.3:8485"}  # as the kubelet asks


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_key_and_no_name(path: str) -> None:
    async with observed(guard=Guard(keys=(key_of(KEY),))) as client:
        told = await client.get(path, headers=POD)
        assert (told.status_code, told.json()) == (200, {"status": "ok" if path == "/health" else "ready"})
        assert (await client.head(path)).status_code == 200
        assert (await client.get(path, headers={"origin": "http://evil.example"})).status_code == 403
        assert (await client.get("/", headers={"authorization": f"Bearer {KEY}"})).json()["model"] == "scripted"


async def test_a_proxy_that_stops_is_not_ready() -> None:
    observer = Observer()
    async with observed(observer=observer) as client:
        assert (await client.get("/ready")).status_code == 200
        observer.is_stopping = True
        told = await client.get("/ready")
        assert (told.status_code, told.json()) == (503, {"status": "the server is about to stop"})
        assert (await client.get("/health")).status_code == 200


class Health:
    """llama.cpp's `/v1/health`: 503 while it loads, an endless wait if it is stuck."""

    def __init__(self, fake: FakeOpenAI) -> None:
        self.fake, self.status, self.asked, self.answered, self.is_stuck = fake, 200, 0, 0, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/v1/health":
            await self.fake.app(scope, receive, send)
            return
        self.asked += 1
        await Request(scope, receive).body()
        while self.is_stuck:  # noqa: ASYNC110 -- set from another thread
            await asyncio.sleep(0.01)
        self.answered += 1
        await JSONResponse({"status": "ok"}, self.status)(scope, receive, send)


@pytest.fixture
async def health(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[Health, Any]]:
    monkeypatch.setattr(probes, "KEPT_SECONDS", 0.2)
    server = Health(FakeOpenAI(props=llama_props()))
    with run_server(server) as url:
        async with observed(connect(f"{url}/v1")) as client:
            yield server, client
        server.is_stuck = False


async def test_a_model_that_loads_is_not_ready(health: tuple[Health, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "KEPT_SECONDS", 0.05)
    server, client = health
    server.status = 503
    told = await client.get("/ready")
    assert (told.status_code, told.json()) == (503, {"status": "the model server does not answer"})
    server.status = 200
    await asyncio.sleep(0.1)
    assert (await client.get("/ready")).status_code == 200


async def test_many_who_ask_at_once_cost_one_question(health: tuple[Health, Any]) -> None:
    server, client = health
    await asyncio.gather(*(client.get("/ready") for _ in range(20)))
    assert server.asked == 1


async def test_a_model_server_that_is_stuck_is_not_waited_for(
    health: tuple[Health, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.05)
    server, client = health
    server.is_stuck = True
    assert (await client.get("/ready")).status_code == 503
    assert (server.asked, server.answered) == (1, 0)


@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_a_model_server_that_is_gone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "KEPT_SECONDS", 0.0)
    stage = Stage()
    stage.app = FakeOpenAI().app if kind == "openai" else FakeOllama().app
    statuses = []
    with run_server(stage) as url:
        backend: Backend = connect(f"{url}/v1") if kind == "openai" else OllamaBackend("tiny", host=url)
        async with observed(backend) as client:
            statuses.append((await client.get("/ready")).status_code)
            stage.app = JSONResponse({"error": "no"}, 401)  # it is there, whatever it says
            statuses.append((await client.get("/ready")).status_code)
            stage.app = JSONResponse({"error": "no"}, 502)
            statuses.append((await client.get("/ready")).status_code)
    assert statuses == [200, 200, 503]


# -- the JSON log ---------------------------------------------------------------------------------------------------------

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def written(message: str, *values: Any, error: Exception | None = None, **more: Any) -> str:
    try:
        if error is not None:
            raise error
    except Exception:
        more["exc_info"] = sys.exc_info()
    record = logging.makeLogRecord({"msg": message, "args": values, "levelno": 30, "levelname": "WARNING", "name": "x", **more})
    return JsonFormatter().format(record)


@pytest.mark.parametrize("said", ["two\nlines", "a colour \x1b[31m", "right to left \u202e", "half a pair \ud800", "Zürich"])
def test_a_line_is_a_line(said: str) -> None:
    line = written("said %s", said)
    assert line.isascii()
    assert line.isprintable()
    told = json.loads(line)
    assert (told["message"], told["level"], told["logger"]) == (f"said {said}", "warning", "x")


def test_an_exception_comes_with_its_traceback() -> None:
    told = json.loads(written("unforeseen", error=ValueError("why")))
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("ValueError: why")


def test_facts_stand_beside_the_message() -> None:
    told = json.loads(written("said", facts={"status": 200, "model": "m"}))
    assert (told["status"], told["model"]) == (200, "m")


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-01\n", None),
        ("secret-5d1c", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
    ],
)
def test_a_trace_is_named_only_if_it_is_one(header: str, trace: str | None) -> None:
    observing = Observing(Metrics(), endpoint="/", method="GET", trace_id=trace_id_in({"traceparent": header}))
    assert observing.over(status=200, error=None, has_left=False).get("trace_id") == trace


def test_the_name_of_a_key_is_told() -> None:
    metrics = Metrics()
    observing = Observing(metrics, endpoint="/", method="GET")
    observing.key = "team-a"
    assert observing.over(status=200, error=None, has_left=False)["key"] == "team-a"
    assert 'key="team-a"' in metrics.exposition()[0].decode()
