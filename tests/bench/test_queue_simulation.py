"""The simulation of many users gives what Erlang's formula gives where that holds, and what is plain elsewhere."""

import math
from statistics import fmean

import pytest
from profiles import is_deep
from queue_simulation import BEST, HOUR, ROUTES, Assumed, Capacity, erlang_c, erlang_slots, servers_needed, simulate, waits_longer

POOLED, HOME = "any server, one queue", "the server with the prompt"
# M/M/c: one reply to a question, no prompt, so that a slot is taken for an exponential time, of 5 s in the mean.
EXPONENTIAL = Assumed(questions=12, replies=1, prompt_tokens=0)


# From tables of Erlang C: the load, the slots, the chance to wait.
@pytest.mark.parametrize(
    ("load", "slots", "waits"), [(0.5, 1, 0.5), (1.0, 2, 1 / 3), (8.0, 10, 0.4092), (90.0, 100, 0.2169), (5.0, 5, 1.0)]
)
def test_erlang_c(load: float, slots: int, waits: float) -> None:
    assert erlang_c(load, slots) == pytest.approx(waits, abs=5e-4)


def test_erlang_c_of_very_many_slots_is_a_chance() -> None:
    assert 0 < erlang_c(19_900, 20_000) < 1


def test_the_fewest_slots_are_the_fewest() -> None:
    slots = erlang_slots(rate=3.0, service=5.0, seconds=2.0)
    assert waits_longer(3.0, 5.0, slots, 2.0) <= 0.01 < waits_longer(3.0, 5.0, slots - 1, 2.0)


@pytest.mark.sweep
def test_the_simulation_gives_what_the_formula_gives() -> None:
    """Chance to wait, mean wait, share of long waits, and use, under a load of 6; each replication is eight hours, or four."""
    users, slots = 360, 8
    seconds = (8 if is_deep() else 4) * HOUR
    rate, service = EXPONENTIAL.reply_rate(users), EXPONENTIAL.mean_service(0)
    assumed = Assumed(questions=12, replies=1, prompt_tokens=0, slots=slots)
    runs = [simulate(assumed, users=users, servers=1, route=POOLED, seconds=seconds, seed=seed) for seed in range(4)]
    waits = [wait for run in runs for wait in run.waits]
    waiting, long = erlang_c(rate * service, slots), 5.0
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(waiting, rel=0.1)
    assert fmean(waits) == pytest.approx(waiting / (slots / service - rate), rel=0.15)
    assert sum(wait > long for wait in waits) / len(waits) == pytest.approx(waits_longer(rate, service, slots, long), rel=0.25)
    assert fmean(run.used for run in runs) == pytest.approx(rate * service / slots, rel=0.03)


def test_a_simulation_is_that_of_its_seed() -> None:
    first, same, other = (
        simulate(Assumed(), users=50, servers=1, route=BEST, seconds=HOUR, seed=seed).firsts for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_routing_by_the_prompt_finds_what_is_cached() -> None:
    found = {route: simulate(Assumed(), users=100, servers=4, route=route, seconds=4 * HOUR) for route in ROUTES}
    assert found[POOLED].at_home == 0
    assert found[HOME].at_home == 1
    assert 0.9 < found[BEST].at_home <= 1
    assert fmean(found[HOME].firsts) < fmean(found[POOLED].firsts) / 2, "with few users nobody waits for a slot"


def test_what_many_users_take() -> None:
    needed = servers_needed(Assumed(), users=200, route=BEST, seconds=HOUR)
    assert needed is not None
    servers, found = needed
    assert found.first(99) <= Assumed().target
    fewer = servers - 1
    assert fewer == 0 or simulate(Assumed(), users=200, servers=fewer, route=BEST, seconds=HOUR).first(99) > Assumed().target


def test_a_target_that_the_prompt_alone_breaks_is_told() -> None:
    assert servers_needed(Assumed(target=0.01), users=20, route=POOLED, seconds=HOUR) is None


def test_replicas_of_xmlcall() -> None:
    capacity = Capacity(token_microseconds=100, request_milliseconds=5, busy=0.5)
    assert capacity.cores(10, 150) == pytest.approx(0.2)
    assert [capacity.replicas(rate, 150) for rate in (10, 100, 1000)] == [2, 5, 41]
    assert math.isclose(Assumed().reply_rate(1000), 1000 * 6 * 2 / 3600)
