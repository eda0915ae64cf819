"""The store in Redis, against a real server: what it keeps, and what comes of a server that is gone, slow or holds garbage."""

import asyncio
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis_server import RedisServer

from xmlcall.errors import UsageError
from xmlcall.proxy.sharing import redis as module
from xmlcall.proxy.sharing.redis import RedisStore
from xmlcall.proxy.sharing.store import StoreError

PASSWORD = "open-sesame-17"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path_factory.mktemp("redis"), PASSWORD)
    started.start()
    yield started
    started.end()


@asynccontextmanager
async def client(server: RedisServer) -> AsyncIterator[Any]:
    plain = redis.asyncio.Redis.from_url(server.url)
    try:
        yield plain
    finally:
        await plain.aclose()


@pytest.mark.full
async def test_replicas_read_what_one_has_put(server: RedisServer) -> None:
    async with RedisStore(server.url) as one, RedisStore(server.url) as other:
        await one.put("a", b"\x00one\xff", seconds=60)
        assert [await other.get("a"), await other.get("b")] == [b"\x00one\xff", None]


@pytest.mark.full
async def test_a_value_and_a_sum_are_there_until_their_time(server: RedisServer) -> None:
    async with RedisStore(server.url) as store:
        await store.put("short", b"one", seconds=0.2)
        sums = [await store.add("short sum", 2, seconds=0.2), await store.add("short sum", 3, seconds=60)]
        await asyncio.sleep(0.3)
        assert (await store.get("short"), sums, await store.add("short sum", 7, seconds=60)) == (None, [2, 5], 7)


@pytest.mark.full
async def test_no_amount_is_lost_when_many_add_at_once(server: RedisServer) -> None:
    async with RedisStore(server.url) as one, RedisStore(server.url) as other:
        sums = await asyncio.gather(*(store.add("many", 1, seconds=60) for store in (one, other) for _ in range(100)))
    assert sorted(sums) == list(range(1, 201))


@pytest.mark.full
async def test_all_keys_have_the_prefix_and_a_time(server: RedisServer) -> None:
    async with RedisStore(server.url, prefix="mine:") as store, client(server) as plain:
        await store.put("a", b"one", seconds=60)
        await store.add("b", 1, seconds=60)
        assert sorted(await plain.keys("mine:*")) == [b"mine:a", b"mine:b"]
        assert [59_000 < await plain.pttl(key) <= 60_000 for key in ("mine:a", "mine:b")] == [True, True]


@pytest.mark.full
async def test_garbage_is_not_known_and_no_sum(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_LIMIT", 10)
    async with RedisStore(server.url) as store, client(server) as plain:
        await plain.rpush("xmlcall:list", "one")
        await plain.set("xmlcall:long", "x" * 11)
        await plain.set("xmlcall:word", "no number")
        assert [await store.get(key) for key in ("list", "long", "word")] == [None, None, b"no number"]
        for key in ("list", "word"):
            with pytest.raises(StoreError):
                await store.add(key, 1, seconds=60)


@pytest.mark.full
async def test_a_server_that_is_gone_fails_at_once_and_is_found_again(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    async with RedisStore(server.url) as store:
        try:
            await store.put("a", b"one", seconds=60)
            server.end()
            for asked in (store.get("a"), store.put("a", b"two", seconds=60), store.add("b", 1, seconds=60)):
                with pytest.raises(StoreError, match=f"127.0.0.1:{server.port} failed"):
                    await asked
            server.start()
            assert (await store.get("a"), await store.add("b", 1, seconds=60)) == (None, 1)
        finally:
            server.end()


async def test_a_silent_server_costs_no_more_than_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        store = RedisStore(f"redis://127.0.0.1:{silent.getsockname()[1]}", seconds=0.2)
        begun = time.monotonic()
        async with store:
            with pytest.raises(StoreError, match="TimeoutError"):
                await store.get("a")
        assert time.monotonic() - begun < 2


@pytest.mark.full
async def test_the_password_is_in_no_message(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with RedisStore(server.url.replace("17@", "18@")) as store:
        with pytest.raises(StoreError) as failed:
            await store.get("a")
    assert "AuthenticationError" in str(failed.value)
    assert "127.0.0.1" in caplog.text
    assert "sesame" not in f"{failed.value} {caplog.text} {failed.value.__cause__} {store!r}"


WRONG = ("http://:sesame@host", "redis://:sesame@", "redis://:ses/ame@host:6379", "redis://:sesame@host:port", "sesame", "")


@pytest.mark.parametrize("url", WRONG)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="redis://host:port") as refused:
        RedisStore(url)
    assert "ses" not in str(refused.value)


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(UsageError, match=r"pip install 'xmlcall\[redis\]'"):
        RedisStore("redis://127.0.0.1")


@pytest.mark.parametrize("ask", [lambda store: store.get("a"), lambda store: store.add("a", 1, seconds=1)])
async def test_a_store_that_is_not_open_says_so(ask: Callable[[RedisStore], Any]) -> None:
    with pytest.raises(UsageError, match="async with"):
        await ask(RedisStore("redis://127.0.0.1:1"))
