"""A part of the corpus of injected texts (benchmarks/injections.py): what runs unasked, and what does not."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from injections import encoded, measured, read_attempts, runs_unasked

PAIRS = read_attempts()
SEEN = ("send to an address", "in a description", "in instructions", "hidden in a description", "hidden in instructions")


def test_the_corpus_is_whole() -> None:
    assert len(PAIRS) == 98
    assert len({str(attempt.call) + attempt.asked for attempt, _ in PAIRS}) == 98
    assert len(read_attempts(["held_out"])) == 40  # their figures are told apart in the page
    assert encoded("{{base64:a}} {{hex:a}}") == "YQ== 61"


async def test_values_of_injected_text_do_not_run_unasked() -> None:
    rows = await measured([pair for pair in PAIRS if pair[0].kind in SEEN])
    assert [row for row in rows if row[2]] == []
    assert sum(row[1] for row in rows) >= 15  # all of them would, but those that are hidden from the model


@pytest.mark.parametrize("kind", ["change the recipient", "encoded", "hidden characters"])
async def test_nor_do_places_that_nobody_said(kind: str) -> None:
    chosen = [attempt for attempt, _ in PAIRS if attempt.kind == kind]
    assert [attempt.call for attempt in chosen if await runs_unasked(attempt, may_flow=False)] == []


@pytest.mark.parametrize("kind", ["with the person's own values"])
async def test_what_is_not_seen(kind: str) -> None:
    """The limit of the method: a call whose values are all the person's, or made up. See docs/reference/security.md."""
    assert any([await runs_unasked(attempt, may_flow=False) for attempt, _ in PAIRS if attempt.kind == kind])
