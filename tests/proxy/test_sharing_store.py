"""The store of one process: values and sums that are forgotten in time, and a bound on what it holds."""

import pytest

from xmlcall.proxy.sharing import store as module
from xmlcall.proxy.sharing.store import MemoryStore


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_value_is_there_until_its_time() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    await store.put("a", b"one", seconds=10)
    clock.now += 9.9
    assert await store.get("a") == b"one"
    clock.now += 0.1
    assert await store.get("a") is None


async def test_a_sum_begins_anew_after_its_time() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    sums = [await store.add("a", 2, seconds=60), await store.add("a", 3, seconds=60), await store.add("a", -1, seconds=60)]
    clock.now += 60
    assert (sums, await store.add("a", 7, seconds=60)) == ([2, 5, 4], 7)


async def test_the_oldest_values_go_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_LIMIT", 10)
    store = MemoryStore()
    for key in "abc":
        await store.put(key, b"1234", seconds=60)
    assert [await store.get(key) for key in "abc"] == [None, b"1234", b"1234"]
