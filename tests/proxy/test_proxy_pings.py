"""Pings of a stream whose model says nothing for long: they wait for each other, end with it, and leave nothing behind."""

import asyncio
import gc
import time

import pytest
from proxy_harness import body, client_of

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.http import exchange
from xmlcall.proxy.http.exchange import Exchange, Pings


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.1)


async def sent_in(seconds: float, *, spoken_every: float = 0.0, taken: float = 0.0) -> list[float]:
    """Return when pings were sent in a while, in seconds from its beginning.

    Args:
        spoken_every: seconds between two words of the stream; 0 for none.
        taken: seconds that a ping waits for its reader.
    """
    begun, times = time.monotonic(), list[float]()

    async def send() -> None:
        times.append(time.monotonic() - begun)
        await asyncio.sleep(taken)

    with Pings(send) as stream:
        while time.monotonic() < begun + seconds:
            await asyncio.sleep(spoken_every or seconds)
            stream.spoken()
    known = len(times)
    await asyncio.sleep(0.15)
    assert len(times) == known, "a ping after the end of its stream"
    return times


def test_none_comes_while_the_model_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BEGIN_SECONDS", 0.7)
    assert asyncio.run(sent_in(0.8, spoken_every=0.01)) == []


def test_one_waits_until_the_last_was_taken() -> None:
    assert len(asyncio.run(sent_in(0.4, taken=60))) == 1


def exchanges() -> int:
    """Count the requests that are still in memory."""
    return sum(type(each) is Exchange for each in gc.get_objects())


async def asked(times: int) -> int:
    """Stream answers without the garbage collector; return how many of the requests are still in memory."""
    async with client_of(ScriptedBackend(["Hello there."] * times)) as client:
        gc.collect()
        before = exchanges()
        gc.disable()
        try:
            for _ in range(times):
                answer = await client.post("/v1/chat/completions", json=body("Hello", stream=True))
                assert "there" in answer.text, answer.text
            await asyncio.sleep(0.05)
            return exchanges() - before
        finally:
            gc.enable()


def test_a_stream_leaves_nothing_for_the_garbage_collector() -> None:
    """A cycle of each request would be 25 KB that only the collector frees, while all callers wait."""
    assert asyncio.run(asked(5)) <= 1  # the last one may still be a local of the client's
