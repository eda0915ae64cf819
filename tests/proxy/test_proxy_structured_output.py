"""`response_format` with tools on offer: a call passes, and what is no call is JSON that fits."""

import json
from typing import Any

import pytest
from proxy_harness import add, ask, block, body, double, texts

from xmlcall import LocalHost
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.engine.filters import value_in

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
ANSWER = '{"sum": 3}'
ASKED = "(When you answer without a tool, write one JSON value"

TEXTS: dict[str, tuple[str, str | None]] = {
    "as it should be": (ANSWER, ANSWER),
    "white space": (f"\n {ANSWER}\n", ANSWER),
    "in a fence": (f"Here it is:\n```json\n{ANSWER}\n```\nDone.", ANSWER),
    "in a fence without a name": (f"```{ANSWER}```", ANSWER),
    "between words": (f"The answer is {ANSWER}, I think.", ANSWER),
    "another value": ('{"sum": "three"}', None),
    "another field": ('{"sum": 3, "more": 1}', None),
    "words": ("It is 3.", None),
    "nothing": ("", None),
    "broken": ('{"sum": ', None),
    "deep": ("[" * 100_000 + "]" * 100_000, None),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_the_value_in_a_text(text: str, expected: str | None) -> None:
    assert value_in(text, SCHEMA) == expected


def test_a_schema_that_cannot_be_used_is_fitted_by_any_value() -> None:
    assert value_in("3", {"type": 5}) == "3"


@pytest.mark.parametrize("chunk_size", [1, None])
async def test_an_answer_that_fits_is_passed_on(chunk_size: int | None) -> None:
    backend = ScriptedBackend([f"Well: {ANSWER}"], chunk_size=chunk_size)
    turn = await ask(backend, body("1 + 2?", response_format=FORM))
    assert (turn.text, turn.calls, turn.finish_reason) == (ANSWER, (), "stop")
    ((_, system), (_, question)) = texts(backend)
    assert ASKED not in system
    assert json.dumps(SCHEMA) in question.partition(ASKED)[2]


async def test_one_that_does_not_is_asked_for_again_constrained() -> None:
    backend = ScriptedBackend(["It is three.", ANSWER])
    turn = await ask(backend, body("1 + 2?", response_format=FORM))
    assert turn.text == ANSWER
    assert [request.json_schema for request in backend.requests] == [None, SCHEMA]
    assert backend.requests[1].messages == backend.requests[0].messages


@pytest.mark.parametrize("chunk_size", [1, None])
@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_call_is_a_call_without_words(chunk_size: int | None, choice: str) -> None:
    """Clients read the text of an answer whose form they demand as JSON, also beside a call."""
    backend = ScriptedBackend([f"Let me see. {add(1, 2)}"], chunk_size=chunk_size)
    turn = await ask(backend, body("1 + 2?", response_format=FORM, tool_choice=choice))
    assert [call.arguments for call in turn.calls] == [{"a": 1, "b": 2}]
    assert (turn.text, turn.finish_reason) == ("", "tool_calls")


async def test_where_a_call_is_required_the_form_is_moot() -> None:
    backend = ScriptedBackend([add(1, 2)])
    turn = await ask(backend, body("1 + 2?", response_format=FORM, tool_choice="required"))
    assert [call.name for call in turn.calls] == ["add"]
    assert ASKED not in str(texts(backend))


async def test_results_of_the_proxys_own_tools_are_known_to_the_second_question() -> None:
    backend = ScriptedBackend([block(("double", {"n": 21})), "It is 42.", '{"sum": 42}'])
    data: dict[str, Any] = body("Twice 21?", response_format=FORM)
    turn = await ask(backend, data, hosts=[LocalHost([double])], allowed=["*"])
    assert turn.text == '{"sum": 42}'
    assert "42" in texts(backend)[-1][1]
    assert backend.requests[2].json_schema == SCHEMA
