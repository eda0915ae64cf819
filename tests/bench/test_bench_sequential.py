"""The test that may be looked at after every pair: its chances of error, exact and simulated, and what it says of counts."""

import random
from math import log, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from xmlcall import UsageError
from xmlcall.bench.stats import MATTERS, Standing, standing_of

COUNTS = st.integers(0, 400)


def decision(wins: int, losses: int, ties: int, left: int = 1000) -> str:
    return standing_of(wins, losses, ties, left).decision


# Wins, losses, ties, left -> decision.
SAID = [
    ((0, 0, 0, 300), "go on"),
    ((0, 0, 0, 0), "cannot tell"),
    ((1, 0, 0, 0), "cannot tell"),
    ((15, 5, 130, 150), "go on"),
    ((15, 5, 130, 0), "cannot tell"),
    ((15, 5, 130, 3), "cannot tell"),  # three wins more would not do
    ((18, 5, 130, 0), "cannot tell"),
    ((25, 5, 130, 0), "better"),
    ((5, 25, 130, 400), "worse"),
    ((0, 0, 150, 0), "cannot tell"),
    ((0, 0, 150, 200), "go on"),
    ((0, 0, 250, 0), "no difference that matters"),
    ((2, 2, 600, 9), "no difference that matters"),
    ((30, 30, 240, 0), "cannot tell"),
    ((9000, 8000, 1_000_000, 0), "better"),  # by 0.1 points, for certain
]


@pytest.mark.parametrize(("counts", "said"), SAID)
def test_what_is_said(counts: tuple[int, int, int, int], said: str) -> None:
    assert standing_of(*counts).decision == said


@settings(deadline=None, max_examples=examples(60))
@given(COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([0.01, 0.05, 0.2]))
def test_a_verdict_agrees_with_its_interval(wins: int, losses: int, ties: int, left: int, alpha: float) -> None:
    found = standing_of(wins, losses, ties, left, alpha=alpha)
    assert -100 <= found.low <= found.estimate <= found.high <= 100
    assert (found.low > 0) == (found.decision == "better") or abs(found.low) < 1e-6
    assert (found.high < 0) == (found.decision == "worse") or abs(found.high) < 1e-6
    if found.decision == "no difference that matters":
        assert -MATTERS <= found.low <= found.high <= MATTERS
    assert not (found.decision == "go on" and left == 0)
    other = standing_of(losses, wins, ties, left, alpha=alpha)
    assert (other.estimate, other.low, other.high) == (-found.estimate, -found.high, -found.low)
    exchanged = {"better": "worse", "worse": "better"}
    assert other.decision == exchanged.get(found.decision, found.decision)


@settings(deadline=None, max_examples=examples(60))
@given(COUNTS, COUNTS, COUNTS)
def test_more_of_the_same_moves_the_interval_that_way(wins: int, losses: int, ties: int) -> None:
    now, won = standing_of(wins, losses, ties, 0), standing_of(wins + 1, losses, ties, 0)
    assert won.low >= now.low - 1e-6
    cautious = standing_of(wins, losses, ties, 0, alpha=0.01)
    assert cautious.low <= now.low
    assert now.high <= cautious.high


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 25), st.integers(0, 25), st.integers(0, 25), st.integers(0, 8), st.data())
def test_where_it_cannot_tell_no_outcome_of_the_pairs_left_decides_for_one(
    wins: int, losses: int, ties: int, left: int, data: st.DataObject
) -> None:
    if decision(wins, losses, ties, left) == "cannot tell":
        won = data.draw(st.integers(0, left))
        lost = data.draw(st.integers(0, left - won))
        assert decision(wins + won, losses + lost, ties + left - won - lost, 0) == "cannot tell"


def false_alarms(pairs: int) -> float:
    """How often two equals are ever told apart within so many discordant pairs, by summing over all ways to get there."""
    alarms, reached = 0.0, {0: 1.0}  # wins -> chance of having come here undecided
    for number in range(1, pairs + 1):
        after: dict[int, float] = {}
        for wins, chance in reached.items():
            for now in (wins, wins + 1):
                after[now] = after.get(now, 0.0) + chance / 2
        ends = sorted(after)
        told = {wins for side in (ends, ends[::-1]) for wins in leading(side, number)}
        alarms += sum(after.pop(wins) for wins in told)
        reached = after
    return alarms


def leading(ordered: list[int], number: int) -> list[int]:
    """The most extreme numbers of wins, as far as they are told apart."""
    found = []
    for wins in ordered:
        if decision(wins, number - wins, 0) not in ("better", "worse"):
            break
        found.append(wins)
    return found


def test_false_alarms_with_a_look_after_every_pair_are_rarer_than_alpha() -> None:
    """Exactly, for equals; pairs that tie change no capital where the difference is 0."""
    chance = false_alarms(150)
    assert 0.01 < chance <= 0.05  # nor is it so cautious that it never speaks
    assert standing_of(20, 5, 0, 1).decision == standing_of(20, 5, 300, 1).decision == "better"


@pytest.mark.parametrize(
    ("win", "loss"), [(0.2, 0.1), *(pytest.param(each, each, marks=pytest.mark.full) for each in (0.02, 0.5))]
)
def test_the_true_difference_stays_in_the_interval(win: float, loss: float) -> None:
    """Simulated with a seed, and a look after every tenth pair; the bound of 100 runs is three standard errors above alpha."""
    randomly, missed, runs = random.Random(f"{win} {loss}"), 0, 100
    for _ in range(runs):
        pairs = randomly.choices((1, -1, 0), (win, loss, 1 - win - loss), k=60)
        looks = (pairs[:count] for count in range(10, 61, 10))
        missed += any(not contains(seen, 100 * (win - loss)) for seen in looks)
    assert missed <= runs * 0.05 + 3 * (runs * 0.05 * 0.95) ** 0.5


def contains(pairs: list[int], difference: float) -> bool:
    found = standing_of(pairs.count(1), pairs.count(-1), pairs.count(0), 0)
    return found.low <= difference <= found.high


def test_the_capital_is_that_of_bets_made_one_after_the_other() -> None:
    """The bound, worked out by hand: four wins, and each bet's capital is the product of its factors."""
    found = standing_of(4, 0, 0, 0, alpha=0.5)
    mean = found.low / 100
    bets = [number / 50 for number in range(1, 50)]
    capital = sum(prod([1 + bet * (1 - mean) / (1 + mean)] * 4) for bet in bets) / len(bets)
    assert log(capital) == pytest.approx(log(2 / 0.5), abs=1e-6)


@pytest.mark.parametrize("counts", [(-1, 0, 0, 0), (0, 0, 0, -1)])
def test_counts_below_zero_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="counts from 0"):
        standing_of(*counts)


@pytest.mark.parametrize("alpha", [0, 1, float("nan")])
def test_a_chance_of_error_is_between_0_and_1(alpha: float) -> None:
    with pytest.raises(UsageError, match="alpha"):
        standing_of(1, 1, 1, 1, alpha=alpha)


def test_a_verdict_is_a_value() -> None:
    assert standing_of(3, 2, 1, 0) == standing_of(3, 2, 1, 0)
    assert isinstance(hash(standing_of(3, 2, 1, 0)), int)
    assert isinstance(standing_of(3, 2, 1, 0), Standing)
