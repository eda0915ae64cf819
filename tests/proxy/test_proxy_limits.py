"""Limits: no more in a minute than was said, however many ask at once, and what was taken is put right."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall.proxy.formats.contract import ApiError
from xmlcall.proxy.http.counting import refunded, tokens_told
from xmlcall.proxy.http.limits import Limit, Spending, Taken, tokens_wanted
from xmlcall.proxy.sharing.store import MemoryStore, StoreError


class Clock:
    def __init__(self, now: float = 600.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Slow(MemoryStore):
    """A store that is asked over a network: others come in between."""

    async def add(self, key: str, amount: int, *, seconds: float) -> int:
        await asyncio.sleep(0)
        return await super().add(key, amount, seconds=seconds)


def spending(clock: Clock, store: MemoryStore | None = None) -> Spending:
    return Spending(store or MemoryStore(clock), clock)


async def taken(spent: Spending, limit: Limit, tokens: int = 1) -> Taken | ApiError | None:
    try:
        return await spent.take([("key a", limit)], tokens)
    except ApiError as error:
        return error


async def count(spent: Spending, limit: Limit, asked: int, tokens: int = 1) -> int:
    """Ask so often at once; return how many were let in."""
    answers = await asyncio.gather(*(taken(spent, limit, tokens) for _ in range(asked)))
    return sum(isinstance(answer, Taken) for answer in answers)


@pytest.mark.parametrize("store", [MemoryStore, Slow])
@pytest.mark.parametrize("limit", [1, 7, 30])
async def test_fifty_at_once_never_have_more_than_the_limit(store: type[MemoryStore], limit: int) -> None:
    clock = Clock()
    spent = spending(clock, store(clock))
    assert 0 < await count(spent, Limit(requests=limit), 50) <= limit


@given(
    limit=st.integers(1, 40),
    waits=st.lists(st.floats(0, 90), min_size=1, max_size=40),
    tokens=st.integers(1, 5),
)
def test_no_sixty_seconds_of_the_clock_have_more_than_twice_the_limit_and_no_minute_more(
    limit: int, waits: list[float], tokens: int
) -> None:
    async def play() -> None:
        clock = Clock()
        spent = spending(clock)
        let_in: list[tuple[float, int]] = []
        for wait in waits:
            clock.now += wait
            for _ in range(3):
                if isinstance(await taken(spent, Limit(tokens=limit), tokens), Taken):
                    let_in.append((clock.now, tokens))
        minutes = {int(at // 60) for at, _ in let_in}
        assert all(sum(each for at, each in let_in if at // 60 == minute) <= limit for minute in minutes)
        assert all(sum(each for at, each in let_in if start <= at < start + 60) <= 2 * limit for start, _ in let_in)

    asyncio.run(play())


async def test_what_was_taken_at_the_end_of_a_minute_counts_in_the_next() -> None:
    clock = Clock(659.0)
    spent = spending(clock)
    assert await count(spent, Limit(requests=10), 10) == 10
    clock.now = 661.0
    assert await count(spent, Limit(requests=10), 10) == 0
    clock.now = 690.0
    assert await count(spent, Limit(requests=10), 10) == 5
    clock.now = 721.0 + 60
    assert await count(spent, Limit(requests=10), 10) == 10


async def test_a_refusal_says_when_there_is_room_and_then_there_is() -> None:
    clock = Clock(630.0)
    spent, limit = spending(clock), Limit(tokens=100)
    assert isinstance(await taken(spent, limit, 90), Taken)
    refused = await taken(spent, limit, 30)
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    assert f"ask again in {refused.retry_after} s" in refused.message
    clock.now += refused.retry_after - 1.5
    assert isinstance(await taken(spent, limit, 30), ApiError)
    clock.now += 1.5
    assert isinstance(await taken(spent, limit, 30), Taken)


async def test_tokens_are_put_right_when_they_are_known() -> None:
    spent, limit = spending(Clock()), Limit(tokens=100)
    first = await taken(spent, limit, 80)
    assert isinstance(first, Taken)
    assert isinstance(await taken(spent, limit, 30), ApiError)
    await first.settle(10)
    assert isinstance(await taken(spent, limit, 90), Taken)


@pytest.mark.parametrize(("status", "room"), [(400, 100), (503, 100), (200, 20), (0, 20)])
async def test_an_error_in_place_of_an_answer_takes_no_tokens(status: int, room: int) -> None:
    spent, limit = spending(Clock()), Limit(tokens=100, requests=2)
    first = await taken(spent, limit, 80)
    assert isinstance(first, Taken)
    async with refunded(first, lambda: status):
        pass
    assert isinstance(await taken(spent, limit, room), Taken)
    assert isinstance(await taken(spent, limit, 0), ApiError), "the request itself counts"


async def test_what_raises_takes_no_tokens_and_one_that_was_put_right_is_given_back_once() -> None:
    spent, limit = spending(Clock()), Limit(tokens=100)
    first = await taken(spent, limit, 80)
    assert isinstance(first, Taken)

    async def fail() -> None:
        async with refunded(first, lambda: 0):
            await first.settle(30)
            raise ApiError("no")

    with pytest.raises(ApiError, match="no"):
        await fail()
    assert await count(spent, limit, 3, tokens=50) == 2


async def test_a_refusal_of_one_limit_takes_nothing_of_the_others() -> None:
    spent = spending(Clock())
    limits = [("key a", Limit(requests=2)), ("model m", Limit(tokens=10))]
    for _ in range(5):
        with pytest.raises(ApiError, match=r"model m: .* may take 11 tokens"):
            await spent.take(limits, 11)
    assert [isinstance(await spent.take(limits, 5), Taken) for _ in range(2)] == [True, True]


async def test_a_request_that_no_minute_admits_is_told_so() -> None:
    refused = await taken(spending(Clock()), Limit(tokens=100), 101)
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.code, refused.retry_after) == (413, "request_too_large", 0)


async def test_where_nobody_can_count_nobody_is_let_in() -> None:
    class Dead(MemoryStore):
        async def add(self, key: str, amount: int, *, seconds: float) -> int:
            raise StoreError("gone")

    refused = await taken(Spending(Dead()), Limit(requests=5))
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.code) == (503, "limits_unavailable")
    assert await Spending(Dead()).take([("key a", Limit())], 5) is None, "without a limit nothing is counted"


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        ({}, 1024),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9, "max_tokens": 3}, 9),
        ({"max_output_tokens": 5}, 5),
        ({"options": {"num_predict": 11}}, 11),
        ({"options": {"num_predict": -1}, "max_tokens": True}, 1024),
        ({"max_tokens": "many", "options": []}, 1024),
    ],
)
def test_a_request_wants_its_prompt_and_the_longest_reply(data: dict[str, object], tokens: int) -> None:
    assert tokens_wanted(b"x" * 40, data) == 10 + tokens


@pytest.mark.parametrize(
    ("tail", "tokens"),
    [
        (b'{"usage": {"prompt_tokens": 1, "total_tokens": 12}}', 12),
        (b'data: {"usage":{"total_tokens":3}}\n\ndata: {"usage":{"total_tokens" : 5}}\n\ndata: [DONE]\n\n', 5),
        (b'{"done":true,"prompt_eval_count":4,"eval_count":6}\n', 10),
        (b'data: {"choices":[]}\n\n', None),
        (b"", None),
    ],
)
def test_what_an_answer_tells_of_its_tokens(tail: bytes, tokens: int | None) -> None:
    assert tokens_told(tail) == tokens
