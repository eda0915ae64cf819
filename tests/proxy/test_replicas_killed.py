"""Replicas that are killed under load: the benchmark of it with few streams, and the checks that it rests on."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import replicas_killed
from scripted_upstream import Script, upstream
from stream_checks import PATHS, Answer, verdict

SEED = 7


@pytest.mark.full
@pytest.mark.timeout(240)  # starts a dozen processes
def test_each_caller_learns_how_its_answer_ended(tmp_path: Path) -> None:
    """Whole, with an error in its format, or by a connection that breaks off; and nothing stays behind."""
    given = ["--streams", "300", "--together", "60", "--every", "1.0", "--seed", str(SEED)]
    with upstream() as model:
        found = asyncio.run(replicas_killed.run(model, tmp_path, replicas_killed.arguments(given)))
    assert found.faults() == [], f"seed {SEED}"
    assert found.exceptions == {}
    assert found.kills.total() >= 2
    assert all(found.books.ended[path]["whole"] for path in PATHS)
    assert sum(counts.total() for counts in found.books.ended.values()) == 300


# -- the checks find what they are for ---------------------------------------------------------------------------------

CHAT = "/v1/chat/completions"
WORDS = "word word1 word2"
SAID = Script(tokens=3)
CALLED = Script(tokens=3, call=True)


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": finish_reason}]}).encode() + b"\n\n"


def call(number: str = "c1", arguments: str = json.dumps({"title": "x", "text": WORDS}), index: int = 0) -> bytes:
    return chunk({"tool_calls": [{"index": index, "id": number, "function": {"name": "write_note", "arguments": arguments}}]})


TEXT, STOP, CALLS = chunk({"content": WORDS}), chunk({}, "stop"), chunk({}, "tool_calls")
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "stopped"}}\n\n'
# The script, the body, whether HTTP says that nothing is missing: how it ended.
JUDGED: dict[str, tuple[Script, bytes, bool, str]] = {
    "whole": (SAID, TEXT + STOP + DONE, True, "whole"),
    "a whole call": (CALLED, call() + CALLS + DONE, True, "whole"),
    "an error": (SAID, TEXT + ERROR, True, "an error in the format"),
    "broken off": (SAID, TEXT, False, "broken off in the middle"),
    "half of a call, broken off": (CALLED, call(arguments='{"ti'), False, "broken off in the middle"),
    "half of an event, broken off": (SAID, TEXT[:-9], False, "broken off in the middle"),
    "silence": (SAID, TEXT, True, "wrong"),
    "silence after the reason": (SAID, TEXT + STOP, True, "wrong"),
    "a short text": (SAID, chunk({"content": "word"}) + STOP + DONE, True, "wrong"),
    "a short text, broken off": (SAID, chunk({"content": "word"}) + STOP, False, "wrong"),
    "no reason": (SAID, TEXT + DONE, True, "wrong"),
    "half of a call": (CALLED, call(arguments='{"ti') + CALLS, False, "wrong"),
    "a call without its reason": (CALLED, call() + STOP + DONE, True, "wrong"),
    "a call twice": (CALLED, call() + call() + CALLS + DONE, True, "wrong"),
    "a call twice under two ids": (CALLED, call() + call("c2", index=1) + CALLS + DONE, True, "wrong"),
    "a call that was text": (SAID, call() + CALLS + DONE, True, "wrong"),
    "no JSON": (SAID, b"data: {\n\n", True, "wrong"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_verdicts(name: str) -> None:
    script, body, is_complete, ended = JUDGED[name]
    found, wrong = verdict(CHAT, script, Answer(status=200, body=body, is_complete=is_complete))
    assert (found, bool(wrong)) == (ended, ended == "wrong")


@pytest.mark.parametrize(("body", "is_in_format"), [(b'{"error": {"message": "stopped"}}', True), (b"Bad Gateway", False)])
def test_verdict_on_a_refusal(body: bytes, is_in_format: bool) -> None:
    _, wrong = verdict(CHAT, SAID, Answer(status=503, body=body, is_complete=True))
    assert (wrong == "") is is_in_format


def state(megabytes: float, **held: int) -> replicas_killed.State:
    return replicas_killed.State(open=Counter(held), megabytes=megabytes, answered=1)


GREW = {
    "nothing": (state(90, files=8), {"open": 0, "connections": 0}, 0),
    "less": (state(80, files=7), {"open": 0, "connections": 0}, 0),
    "files": (state(90, files=9), {"open": 0, "connections": 0}, 1),
    "a task": (state(90, files=8, task=1), {"open": 0, "connections": 0}, 1),
    "memory": (state(140, files=8), {"open": 0, "connections": 0}, 1),
    "the model server": (state(90, files=8), {"open": 2, "connections": 1}, 2),
}


@pytest.mark.parametrize("name", GREW)
def test_what_stays_behind_is_told(name: str) -> None:
    after, model, count = GREW[name]
    assert len(replicas_killed.left_behind({"replica-1": state(90, files=8)}, {"replica-1": after}, model)) == count


def test_plans_are_those_of_the_seed() -> None:
    first, same, other = (list(replicas_killed.plans(seed, 200)) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert {plan.path for plan in first} == {*PATHS}
    assert any(plan.script.call for plan in first)
    assert any(plan.leaves for plan in first)
