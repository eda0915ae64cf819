"""How long a call may take, on a clock that the test moves."""

import asyncio
import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xmlcall.hosts.mcp.callbacks import MOST, CallPatience

TICK = 0.25
STEPS = st.lists(st.tuples(st.sampled_from(["wait", "progress", "asked"]), st.integers(0, 12)), max_size=30)


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when everything waits."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        due = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if due and not self._ready:  # type: ignore[attr-defined]
            self.now = max(self.now, min(due))
        super()._run_once()  # type: ignore[misc]


def on_clock(work: Any) -> Any:
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(work)


async def lived_through(limit: float, steps: list[tuple[str, int]]) -> int:
    """Return how many steps a call survives."""
    done = 0
    try:
        async with CallPatience(limit) as patience:
            for what, ticks in steps:
                if what == "asked":
                    with patience.rest():
                        await asyncio.sleep(ticks * TICK)
                else:
                    await asyncio.sleep(ticks * TICK)
                if what == "progress":
                    patience.renew()
                done += 1
    except TimeoutError:
        pass
    return done


def expected(limit: float, steps: list[tuple[str, int]]) -> int:
    """The same, worked out: a limit since the last sign of life or question, and one for the whole."""
    since, whole = 0.0, 0.0
    for number, (what, ticks) in enumerate(steps):
        if what == "asked":
            since = 0.0
            continue
        since, whole = since + ticks * TICK, whole + ticks * TICK
        if since >= limit or whole >= limit * MOST:
            return number
        if what == "progress":
            since = 0.0
    return len(steps)


@given(steps=STEPS, limit=st.sampled_from([1.1, 2.1, 0.6]))
def test_a_call_lives_as_long_as_it_should(steps: list[tuple[str, int]], limit: float) -> None:
    assert on_clock(lived_through(limit, steps)) == expected(limit, steps)


def test_a_message_names_the_limit_that_has_run_out() -> None:
    async def seconds(progress: bool) -> float:
        patience = CallPatience(2.0)
        with contextlib.suppress(TimeoutError):
            async with patience:
                while True:
                    await asyncio.sleep(1.5 if progress else 3)
                    patience.renew()
        return patience.seconds

    assert on_clock(seconds(progress=False)) == 2.0
    assert on_clock(seconds(progress=True)) == 2.0 * MOST


def test_it_may_be_used_again_and_two_may_ask_at_once() -> None:
    async def twice() -> None:
        patience = CallPatience(1.0)
        for _ in range(2):
            async with patience:
                with patience.rest(), patience.rest():
                    await asyncio.sleep(5)
                await asyncio.sleep(0.9)
        with patience.rest():
            patience.renew()  # nothing runs any more

    on_clock(twice())
