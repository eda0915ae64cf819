"""The proxy on a cluster of Ray: streams, replicas that come and go, refusals, and an end that is told.

The tests share one cluster and run in the order in which they stand; the last one stops the application.
"""

import asyncio
import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from integrations.ray_stage import KEY, RayStage, ray_stage
from scripted_upstream import WORD, Script, Target, question, upstream

from xmlcall.errors import UsageError

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'xmlcall[ray]'"),
    pytest.mark.timeout(120),
]

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
SECONDS = 60.0
SETTINGS: dict[str, Any] = {
    "mode": "xml",
    "min_replicas": 1,
    "max_replicas": 2,
    "target_ongoing_requests": 2,
    "max_ongoing_requests": 3,
    "max_queued_requests": 2,
    "grace": 1,
    "autoscaling": {"upscale_delay_s": 0.5, "downscale_delay_s": 8, "metrics_interval_s": 1, "look_back_period_s": 3},
}
HEADERS = {"authorization": f"Bearer {KEY}"}
ENDLESS = Script(tokens=600, pace=0.1)


CONFIG = """
[[model]]
name = "small"
address = "{url}/v1"
way = "xml"

[[model]]
name = "large"
address = "{url}/v1"
way = "xml"

[[key]]
name = "alice"
key = "key-of-alice"
models = ["small"]

[[key]]
name = "bob"
key = "key-of-bob"
"""


@pytest.fixture(scope="module")
def model() -> Iterator[Target]:
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def stage(model: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayStage]:
    settings = SETTINGS | {"model": f"{model.url}/v1"}
    with ray_stage(tmp_path_factory.mktemp("ray"), settings) as running:
        yield running


def body(script: Script) -> dict[str, Any]:
    return {"model": "any", "messages": [{"role": "user", "content": question(script)}], "stream": True, "max_tokens": 999}


def errors_of(text: str) -> list[dict[str, Any]]:
    """Return the errors among the events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [event["error"] for event in map(json.loads, filter(lambda line: line.startswith("{"), lines)) if "error" in event]


def broken_off(stage: RayStage, path: str, order: str) -> str:
    """Ask for an endless answer, give the stage an order after some words; return all that came, up to the answer's end."""
    with httpx.stream("POST", stage.url + path, json=body(ENDLESS), headers=HEADERS, timeout=SECONDS) as response:
        pieces = response.iter_text()
        received = next(pieces)
        while f"{WORD}3" not in received:
            received += next(pieces)
        stage.tell(order)
        return received + "".join(pieces)  # raises where the connection is dropped


def test_events_pass_one_by_one(stage: RayStage) -> None:
    asked, times = body(Script(tokens=8, pace=0.2)), list[float]()
    with httpx.stream("POST", stage.url + CHAT, json=asked, headers=HEADERS, timeout=SECONDS) as response:
        for _ in response.iter_raw():
            times.append(time.monotonic())
    assert len(times) >= 8
    assert times[-1] - times[0] > 1.0  # 7 pauses of 0.2 s: nothing is gathered on the way


def test_who_may_call_is_looked_at_in_the_replica(stage: RayStage) -> None:
    refused = httpx.post(stage.url + CHAT, json=body(Script()), timeout=SECONDS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx.get(f"{stage.url}/", headers=HEADERS, timeout=SECONDS).json() == {"status": "ok", "model": "tiny"}
    assert httpx.get(f"{stage.url}/health", timeout=SECONDS).json() == {"status": "ok"}, "probes send no key"


async def streamed(client: httpx.AsyncClient, url: str) -> tuple[int, str]:
    """Ask for 6 s of words, less than Ray waits before it stops a replica; give the status and all that was said."""
    answer = await client.post(url, json=body(Script(tokens=60, pace=0.1)), headers=HEADERS)
    return answer.status_code, answer.text


async def crowd(stage: RayStage) -> tuple[list[tuple[int, str]], list[dict[str, Any]]]:
    """Have three callers ask until a second replica has come, then twelve more at once; give the answers and the replicas."""
    answers: list[tuple[int, str]] = []
    grown = asyncio.Event()

    async def caller(client: httpx.AsyncClient) -> None:
        while not grown.is_set():
            answers.append(await streamed(client, stage.url + CHAT))

    async with httpx.AsyncClient(timeout=SECONDS, limits=httpx.Limits(max_connections=None)) as client:
        callers = [asyncio.create_task(caller(client)) for _ in range(3)]
        try:
            replicas = await asyncio.to_thread(stage.until, 2, "RUNNING")
        finally:
            grown.set()
        answers += await asyncio.gather(*(streamed(client, stage.url + CHAT) for _ in range(12)))
        await asyncio.gather(*callers)
        return answers, replicas


def test_replicas_come_and_go_with_the_load_and_what_is_too_much_is_refused(stage: RayStage) -> None:
    answers, replicas = asyncio.run(crowd(stage))
    assert len({each["node_id"] for each in replicas}) == 2
    statuses = sorted(status for status, _ in answers)
    refusals = [text for status, text in answers if status == 503]
    assert set(statuses) == {200, 503}
    assert all("[DONE]" in text and f"{WORD}59" in text for status, text in answers if status == 200)
    assert "max_queued_requests=2" in refusals[0], "in Ray's own words"
    stage.until(1)


def test_the_model_may_be_on_ray_too(stage: RayStage) -> None:
    stage.tell("model", url=stage.url)
    asked, times = body(Script(tokens=8, pace=0.2)), list[float]()
    with httpx.stream("POST", f"{stage.url}/behind{CHAT}", json=asked, headers=HEADERS, timeout=SECONDS) as response:
        received = ""
        for text in response.iter_text():
            received += text
            times.append(time.monotonic())
    assert f"{WORD}7" in received
    assert times[-1] - times[0] > 1.0  # through Ray twice, and still nothing is gathered
    refused = httpx.post(f"{stage.url}/behind{MESSAGES}", json={}, headers=HEADERS, timeout=SECONDS)
    assert (refused.status_code, refused.json()["type"]) == (400, "error")


def test_a_file_may_name_several_models_and_keys(stage: RayStage, model: Target, tmp_path: Path) -> None:
    file = tmp_path / "xmlcall.toml"
    file.write_text(CONFIG.format(url=model.url), encoding="utf-8")
    stage.tell("configured", file=str(file))
    url = f"{stage.url}/configured"

    def asked(key: str, name: str) -> int:
        headers, question = {"authorization": f"Bearer {key}"}, body(Script()) | {"model": name}
        return httpx.post(url + CHAT, json=question, headers=headers, timeout=SECONDS).status_code

    assert [asked("key-of-alice", name) for name in ("small", "large")] == [200, 404]
    assert [asked("key-of-bob", name) for name in ("small", "large")] == [200, 200]
    assert asked(KEY, "small") == 401


def test_a_stream_under_way_ends_with_an_error_when_the_application_is_stopped(stage: RayStage) -> None:
    started = time.monotonic()
    received = broken_off(stage, CHAT, "delete")
    (error,) = errors_of(received)
    assert error["message"] == "the server was stopped before the answer was whole: ask again"
    assert "[DONE]" not in received
    assert time.monotonic() - started < 20  # the words would take 60


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments")  # Ray's own, on import
def test_a_setting_that_is_unknown_is_named() -> None:
    from xmlcall.integrations.ray import app

    with pytest.raises(UsageError, match=r"max_replica\b"):
        app(model="http://127.0.0.1:9/v1", max_replica=3)


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either a model or a config"),
        ({"model": "http://127.0.0.1:9/v1", "config": "xmlcall.toml"}, "either a model or a config"),
        ({"config": "xmlcall.toml", "mode": "xml", "allow": "a.*"}, "write allow, mode there"),
        ({"model": "http://127.0.0.1:9/v1", "mcp": "servers.json"}, "write max_replicas=1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any], told: str) -> None:
    from xmlcall.integrations.ray import app

    with pytest.raises(UsageError, match=told):
        app(**given)
