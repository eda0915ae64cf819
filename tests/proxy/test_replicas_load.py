"""The load of the benchmark of replicas: its cheap model server, its cheap client, and the figures that it makes of them."""

import json
from collections.abc import Iterator

import httpx
import pytest
import replicas_load
from load_client import request_of
from polling_client import Streams
from prepared_upstream import Flow, prepared, prepared_upstream
from replicas_load import CASES, Measured, Pair, measure
from scripted_upstream import Target, question

ASKED = {"model": "tiny", "stream": True}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Target]:
    with prepared_upstream() as running:
        yield running


@pytest.mark.parametrize("flow", [Flow(tokens=1), Flow(tokens=7, burst=3), Flow(tokens=5, pace=0.01), Flow(tokens=4, burst=9)])
def test_a_prepared_reply_is_a_stream_of_chunks(flow: Flow, upstream: Target) -> None:
    body = {**ASKED, "messages": [{"role": "user", "content": question(flow)}]}
    answer = httpx.post(f"{upstream.url}/v1/chat/completions", json=body, timeout=10)
    *events, done, rest = answer.text.split("\n\n")
    deltas = [choice["delta"] for event in events for choice in json.loads(event[6:])["choices"]]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == " ".join(["word", *(f"word{number}" for number in range(1, flow.tokens))])
    assert (done, rest) == ("data: [DONE]", "")


def test_tokens_go_out_in_bursts() -> None:
    _, bursts = prepared(json.dumps({"tokens": 7, "burst": 3, "pace": 0.5}).encode())
    assert [burst.count(b'"word') + burst.count(b'" word') for burst in bursts] == [3, 3, 1]


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/counts", 200), ("/props", 404)])
def test_other_pages(path: str, status: int, upstream: Target) -> None:
    assert httpx.get(upstream.url + path, timeout=10).status_code == status


def test_nothing_is_open_when_callers_have_left(upstream: Target) -> None:
    flow = Flow(tokens=100, pace=10.0)
    streams = Streams([upstream.url], request_of(upstream.url, flow, with_tools=False), count=3, tokens=100)
    streams.all_begun()
    with httpx.Client() as client:
        assert client.get(f"{upstream.url}/counts").json()["open"] == 3
        streams.close()
        for _ in range(100):
            if client.get(f"{upstream.url}/counts").json()["open"] == 0:
                break
        assert client.get(f"{upstream.url}/counts").json() == {"open": 0, "connections": 0}


def test_the_client_counts_each_word_and_each_answer(upstream: Target) -> None:
    flow = Flow(tokens=10, burst=4)
    streams = Streams([upstream.url], request_of(upstream.url, flow, with_tools=False), count=5, tokens=flow.tokens)
    counted = streams.run(0.5)
    under_way = sum(stream.words for stream in streams.streams.values())
    streams.close()
    assert counted.answers > 5
    assert counted.words == counted.answers * flow.tokens + under_way


def test_an_answer_that_is_short_ends_the_run(upstream: Target) -> None:
    streams = Streams([upstream.url], request_of(upstream.url, Flow(tokens=3), with_tools=False), count=1, tokens=4)
    with pytest.raises(SystemExit, match="expected 4 words, got 3"):
        streams.run(5)
    streams.close()


@pytest.mark.full
@pytest.mark.timeout(120)  # two replicas start
def test_a_measurement_of_two_replicas(upstream: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_load, "WINDOW_SECONDS", 0.5)
    with replicas_load.replica(upstream.url) as one, replicas_load.replica(upstream.url) as two:
        found = measure(CASES[0], upstream, [one, two])
        held = replicas_load.memory(one, [0, 5], with_tools=True)
    assert found.rate > 0
    assert 0 < found.replicas < 3
    assert found.per_core == pytest.approx(found.rate / found.replicas, rel=0.05)
    assert len(held) == 2


def measured(rate: float) -> Measured:
    return Measured(rate=rate, per_core=rate, replicas=1, upstream=0, generator=0, others=0)


def test_the_ratio_has_an_interval() -> None:
    pair = Pair(one=[measured(100), measured(100), measured(100)], two=[measured(180), measured(190), measured(200)])
    mean, half = pair.ratio()
    assert mean == pytest.approx(1.9)
    assert half == " ± 0.25"  # t of 2 degrees, 4.303, times 0.1, by the root of 3
    assert Pair(one=[measured(100)], two=[measured(150)]).ratio() == (1.5, "")
    assert pair.of("two", "rate") == 190
