"""Does a question need a tool? The model's probabilities against a threshold, through the loop, the proxy and the harness."""

import asyncio
import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_harness import add, ask, block, body, texts
from scored import asked_need, choose, need_for

from xmlcall import Answer, Catalog, LocalHost, Message, ToolLoop, ToolNeed
from xmlcall.agent.scores import Scores
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.bench.case import Case, Expects
from xmlcall.bench.probe import threshold_of
from xmlcall.bench.store import create_or_resume
from xmlcall.bench.subjects import model_subject
from xmlcall.bench.ways import AskedCase, Settings, prompt_hash, way_of
from xmlcall.cli.run import Record
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import beginning
from xmlcall.errors import BackendProtocolError, BackendStatusError, ContextOverflow, UsageError
from xmlcall.hosts.router import Router
from xmlcall.profiles.profile import asking_by
from xmlcall.prompting import system as prompt
from xmlcall.prompting.format import LANGUAGES, PromptFormat
from xmlcall.prompting.results import results
from xmlcall.prompting.system import tool_prompt
from xmlcall.turn import turn_setup
from xmlcall.turn.asking import Asking, AskingFields, Threshold
from xmlcall.turn.events import LoopEvent, RetryAsked
from xmlcall.turn.tool_need import (
    AFTER_TOOL,
    LEAST_SPREAD,
    LONGEST,
    MOST_NUMBERED,
    NEEDS_NONE,
    NEEDS_TOOL,
    SHORT_AFTER_TOOL,
    SURE_NUMBER,
    TOOLS,
    alone,
    best_split,
    log_odds,
    number_odds,
)
from xmlcall.turn.turn_setup import READ_AGAIN
from xmlcall.types.calls import RawCall, Tool, ToolCall, ToolResult
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, PromptProgress, Usage
from xmlcall.types.events import Markup, TextDelta, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from xmlcall.wire import ollama, openai

PLAIN, CALL = "(Answer in plain words", "(If one of the tools is for this"
ADD = block(("plus", {"a": 1, "b": 2}))


def first_token(*shares: tuple[str, float]) -> list[Chunk]:
    """Make the answer to a request for one token with its probabilities."""
    candidates = tuple((token, math.log(share)) for token, share in shares)
    usage = Usage(prompt_tokens=10, completion_tokens=1)
    return [Chunk(text=candidates[0][0], top_logprobs=candidates), Chunk(finish_reason="length", usage=usage)]


LIKELY, UNLIKELY = first_token(("<", 0.9), ("The", 0.1)), first_token(("The", 0.9999), ("<", 0.0001))
DIALECT, FORMAT = DIALECTS["function_calls"], PromptFormat()
BEGUN = beginning(DIALECT, "plus")
REST = ADD.removeprefix(BEGUN)
CONTINUES = Capabilities(server="llama.cpp", continues=True, most_logprobs=77)
REFUSED = BackendStatusError("this template ends in no message of the assistant's", status_code=400)


def odds(*values: float) -> list[list[Chunk]]:
    """Make an answer to a request for one token for each of these log-odds of a call."""
    shares = [1 / (1 + math.exp(-value)) for value in values]
    return [first_token(("<", share), ("The", 1 - share)) for share in shares]


def number(value: float) -> list[Chunk]:
    """Make an answer to the question for a number, with these log-odds of any tool."""
    share = 1 / (1 + math.exp(-value))
    return first_token(("1", share / 2), ("2", share / 2), ("0", 1 - share))


def plus(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def ping() -> str:
    """Check the connection."""
    return "pong"


# -- probabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([("<", 0.5), ("The", 0.5)], 0.0),
        ([("<", 0.6), ("```", 0.2), ("The", 0.2)], math.log(1.5)),
        ([("<function", 0.1), (" <", 0.1), ("The", 0.8)], math.log(0.25)),
        ([("{", 0.25), ("[", 0.25), ("I", 0.5)], 0.0),
        ([("The", 1.0)], -SURE_NUMBER),
        ([("<", 1.0)], SURE_NUMBER),
        ([("<", 1.0), ("{", 1.0)], SURE_NUMBER),
        ([("<think>", 0.9), ("The", 0.1)], math.log(9)),
        ([("", 1.0)], -SURE_NUMBER),
    ],
)
def test_log_odds_of_a_call(shares: list[tuple[str, float]], expected: float) -> None:
    assert log_odds([(token, math.log(share)) for token, share in shares]) == pytest.approx(expected, abs=0.01)


@given(st.lists(st.tuples(st.sampled_from(["<", "```", "The", "{", ""]), st.floats(max_value=0.01))))
def test_log_odds_are_finite_whatever_a_server_says(candidates: list[tuple[str, float]]) -> None:
    assert -SURE_NUMBER <= log_odds(candidates) <= SURE_NUMBER


def test_requests_ask_for_probabilities_only_if_told() -> None:
    messages = (Message(role="user", content="Hi"),)
    asking, usual = CompletionRequest(messages=messages, top_logprobs=20), CompletionRequest(messages=messages)
    for written in (openai.request_body(asking, "m"), ollama.chat_body(asking, "m", num_ctx=10)):
        assert (written["logprobs"], written["top_logprobs"]) == (True, 20)
    for written in (openai.request_body(usual, "m"), ollama.chat_body(usual, "m", num_ctx=10)):
        assert not {"logprobs", "top_logprobs"} & written.keys()


STRANGE = [("a", math.nan), ("b", math.inf), ("c", 10**400), ("d", -(10**400)), ("e", -math.inf), ("f", True), ("g", 5)]

TOLD: list[tuple[Any, tuple[tuple[str, float], ...]]] = [
    (
        [{"token": "<", "top_logprobs": [{"token": "<", "logprob": -0.5}, {"token": "I", "logprob": -1}]}],
        (("<", -0.5), ("I", -1.0)),
    ),
    ([{"token": "<", "top_logprobs": [{"token": 3, "logprob": "x"}, {"logprob": -1}, 7]}], (("", -1.0),)),
    ([{"token": "<", "top_logprobs": [{"token": t, "logprob": v} for t, v in STRANGE]}], (("d", -1e6), ("e", -1e6))),
    ([{"token": "<", "logprob": -0.5}], ()),
    ([], ()),
    ("<", ()),
    (None, ()),
]


@pytest.mark.parametrize(("tokens", "expected"), TOLD)
def test_probabilities_as_servers_tell_them(tokens: Any, expected: tuple[tuple[str, float], ...]) -> None:
    chunk = openai.StreamReader().feed({"choices": [{"index": 0, "delta": {"content": "<"}, "logprobs": {"content": tokens}}]})
    line = ollama.stream_chunk({"message": {"content": "<"}, "logprobs": tokens}, calls_before=0)
    assert chunk is not None
    assert line is not None
    assert chunk.top_logprobs == line.top_logprobs == expected


# -- what is asked -----------------------------------------------------------------------------------------------------


def request_of(*said: str, system: str = "Tools.") -> CompletionRequest:
    """A conversation in which the person speaks first and last."""
    roles = itertools.cycle(("user", "assistant"))
    messages = (Message(role=role, content=text) for role, text in zip(roles, said, strict=False))  # type: ignore[arg-type]
    return CompletionRequest(messages=(Message(role="system", content=system), *messages))


async def test_a_message_is_asked_about_alone() -> None:
    backend = ScriptedBackend([UNLIKELY], capabilities=CONTINUES)
    await asked_need(backend, request_of("Hi", "Hello.", "1 + 2?"), 0.0, TWO, FORMAT)
    (asked,) = backend.requests
    assert [(message.role, message.content) for message in asked.messages] == [("system", "\nTools."), ("user", "1 + 2?")]
    assert (asked.max_tokens, asked.temperature, asked.top_logprobs) == (1, 0.0, CONTINUES.most_logprobs)


@pytest.mark.parametrize(
    ("server", "said", "system"),
    [
        ("llama.cpp", ("Hi",), "Tools."),
        ("llama.cpp", ("Hi", "Hey", "1 + 2?"), "Tools."),
        ("llama.cpp", ("Hi", "Hello.", "1 + 2?"), "\nTools."),
        ("ollama", ("Hi", "Hello.", "1 + 2?"), "Tools."),
        ("openai-compatible", ("Hi", "Hello." * 100, "1 + 2?"), "Tools."),
    ],
)
async def test_what_is_asked_alone_begins_in_its_own_way_where_a_cache_would_lose_the_conversation(
    server: str, said: tuple[str, ...], system: str
) -> None:
    asked = alone(replace(CONTINUES, server=server), request_of(*said, system="Tools." * 2))
    assert asked.messages[0].content == system + "Tools."
    assert asked.messages[1:] == (Message(role="user", content=said[-1]),)
    assert asked.aside


async def test_a_server_that_keeps_what_is_asked_aside_needs_no_other_beginning() -> None:
    asked = alone(replace(CONTINUES, server="llama.cpp", keeps_aside=True), request_of("Hi", "Hello." * 9, "1 + 2?"))
    assert asked.messages[0].content == "Tools."


async def test_a_habit_is_asked_about_in_the_same_way() -> None:
    """Words that need no tool, after the tool prompt alone, would else take the place of a long conversation."""
    told = first_token(("plus", 0.5), ("ping", 0.3), ("echo", 0.2))
    backend = ScriptedBackend([told, told], capabilities=CONTINUES)
    await choose(backend, request_of("Hi", "Hello." * 9, "1 + 2?"), TWO, DIALECT)
    assert {request.messages[-2].content: request.messages[0].content for request in backend.requests} == {
        "Thanks!": "\nTools.",
        "1 + 2?": "Tools.",
    }


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1, 100 * LONGEST])
async def test_a_long_message_is_cut_in_its_middle(length: int) -> None:
    half = length // 2
    text = "b" * half + "e" * (length - half)
    backend = ScriptedBackend([UNLIKELY])
    await asked_need(backend, request_of(text), 0.0, TWO, FORMAT)
    kept = LONGEST // 2
    shown = text if length <= LONGEST else f"{'b' * kept}\n...\n{'e' * kept}"
    assert backend.requests[0].messages[-1].content == shown


# -- the second opinion ------------------------------------------------------------------------------------------------

TWO = Catalog([Tool(name="plus", description="Add two numbers. They may be long."), Tool(name="ping"), Tool(name="echo")])


@pytest.mark.parametrize(
    ("log_odds", "told", "expected"),
    [
        (2.0, None, True),  # whatever the second opinion is, it is a call
        (-1.5, 2.0, True),
        (-1.5, 1.0, False),
        (0.5, -0.8, False),
        (-5.5, 9.0, True),  # counts as 6
        (-6.5, None, False),
    ],
)
async def test_a_second_opinion_is_asked_for_where_it_can_change_the_decision(
    log_odds: float, told: float | None, expected: bool
) -> None:
    backend = ScriptedBackend([*odds(log_odds), *([] if told is None else [number(told)])])
    need = await need_for(0.0, backend, request_of("Hi", "Hello.", "What is there?"), TWO, FORMAT)
    assert need is not None
    assert need.needs_tool is expected
    assert need.number == (None if told is None else pytest.approx(told, abs=0.01))
    assert len(backend.requests) == 1 + (told is not None)


async def test_the_second_opinion_is_asked_of_a_list_of_the_tools() -> None:
    backend = ScriptedBackend([*odds(-1), number(3)])
    await asked_need(backend, request_of("Hi", "Hello.", "1 + 2?"), 0.0, TWO, FORMAT)
    [asked] = backend.requests[1].messages
    assert asked.role == "user"
    assert "\n1. plus: Add two numbers.\n2. ping\n3. echo\n\nRequest: 1 + 2?\n" in asked.content
    assert (backend.requests[1].max_tokens, backend.requests[1].temperature) == (1, 0.0)


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([("0", 0.25), ("1", 0.5), ("2", 0.25)], math.log(3)),
        ([("10", 0.5), ("0.", 0.5)], 0.0),
        ([(" 3", 0.9), ("The", 0.1)], SURE_NUMBER + math.log(0.9)),
        ([("0", 1.0)], -SURE_NUMBER),
        ([("None", 1.0)], None),
        ([("٣", 0.5), ("²", 0.5)], None),
        ([("9" * 5000, 0.5), ("0" * 5000, 0.5)], 0.0),
        ([], None),
    ],
)
def test_log_odds_of_numbers(candidates: list[tuple[str, float]], expected: float | None) -> None:
    told = number_odds([(token, math.log(share)) for token, share in candidates])
    assert told == (None if expected is None else pytest.approx(expected, abs=0.01))


async def test_where_no_number_is_told_the_usual_one_counts() -> None:
    for words, expected in ((-2.5, True), (-3.5, False)):
        need = await need_for(0.0, ScriptedBackend([*odds(words), "I"]), request_of("1 + 2?"), TWO, FORMAT)
        assert need is not None
        assert (need.number, need.needs_tool) == (None, expected)


RESULT = results([(ToolCall(id="1", name="plus", arguments={}, raw=RawCall(index=0, name="plus")), ToolResult(content=()))])


@pytest.mark.parametrize(
    ("before", "follows"),
    [
        ((), False),
        ((Message(role="user", content="Hi"), Message(role="assistant", content="Hello.")), False),
        ((RESULT, Message(role="assistant", content="It is 3.")), True),
        ((Message(role="tool", content="3"), Message(role="assistant", content="It is 3.")), True),
        (
            (
                RESULT,
                Message(role="assistant", content="It is 3."),
                Message(role="user", content="Thanks"),
                Message(role="assistant", content="Welcome."),
            ),
            False,
        ),
        ((Message(role="user", content="And 4?"), Message(role="assistant", content="Please tell me the other number.")), True),
        ((Message(role="user", content="天气怎么样？"), Message(role="assistant", content="请告诉我你的位置。")), True),
    ],
    ids=["first", "talk", "a result", "a result of its own", "talk since", "a question for a value", "and in Chinese"],
)
async def test_right_after_a_tool_the_threshold_is_lower(before: tuple[Message, ...], follows: bool) -> None:
    longer = "And what are 4 and 5 together?"
    for words, lower in (("and 4?", SHORT_AFTER_TOOL), ("那首尔的天气呢？", SHORT_AFTER_TOOL), (longer, AFTER_TOOL)):
        request = CompletionRequest(messages=(*before, Message(role="user", content=words)))
        need = await need_for(0.0, ScriptedBackend(odds(9)), request, TWO, FORMAT)
        assert need is not None
        assert need.threshold == (-lower if follows else 0.0)


@pytest.mark.parametrize("count", [1, MOST_NUMBERED + 1])
async def test_one_tool_and_many_are_not_numbered(count: int) -> None:
    many = Catalog(Tool(name=f"tool_{number}") for number in range(count))
    backend = ScriptedBackend(odds(-1))
    assert (await asked_need(backend, request_of("1 + 2?"), 0.0, many, FORMAT)).number is None
    assert len(backend.requests) == 1


# -- auto --------------------------------------------------------------------------------------------------------------


def anchored(none: float, one: float) -> list[list[Chunk]]:
    """Make the answers about the anchors: these log-odds for each, and a second opinion of 0."""
    values = [none] * len(NEEDS_NONE) + [one] * len(NEEDS_TOOL)
    return [answer for value in values for answer in (*odds(value), number(0))]


ANCHORS = anchored(-8, 3)
ASKED = len(ANCHORS)


async def test_auto_takes_what_parts_messages_of_which_the_answer_is_known() -> None:
    backend = ScriptedBackend([*ANCHORS, *odds(4, -12)])
    scores = Scores()
    first, second = [await need_for("auto", backend, request_of("Hi", "Hello.", "1 + 2?"), TWO, FORMAT, scores) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (first.threshold, second.threshold) == (-4.3, -4.3)
    assert (first.needs_tool, second.needs_tool) == (True, False)
    words = [request.messages[-1].content for request in backend.requests]
    assert words[:ASKED:2] == [*NEEDS_NONE, *NEEDS_TOOL]
    assert words[ASKED:] == ["1 + 2?", "1 + 2?"]
    assert {request.messages[0].content for request in backend.requests[:ASKED:2]} == {tool_prompt(TOOLS, FORMAT)}
    assert (first.usage.completion_tokens, second.usage.completion_tokens) == (ASKED + 1, 1)


@pytest.mark.parametrize(
    ("none", "one", "expected"),
    [
        ([-8, -6], [2, 4], -2.0),
        ([-8, -6, 3], [2, 4, 5], 0.75),  # one is on the wrong side anyway: between -6 and 2, or between 3 and 4
        ([-8, 3], [2, 9, 9, 9], 1.5),
        ([1], [1], 1.0),
    ],
)
def test_the_best_split(none: list[float], one: list[float], expected: float) -> None:
    assert best_split(none, one) == expected


async def test_auto_asks_once_for_conversations_that_begin_at_the_same_time() -> None:
    backend = ScriptedBackend([*ANCHORS, LIKELY, LIKELY])
    scores = Scores()
    asking = (need_for("auto", backend, request_of(text), TWO, FORMAT, scores) for text in ("Hi", "1 + 2?"))
    found = await asyncio.gather(*asking)
    assert [need.threshold for need in found if need] == [-4.3, -4.3]
    assert len(backend.requests) == ASKED + 2


@pytest.mark.parametrize(
    ("replies", "count"),
    [
        (anchored(-1, LEAST_SPREAD - 1.1), ASKED),
        (anchored(5, -5), ASKED),
        (["I"], 1),
        ([REFUSED], 1),
        ([*odds(-9), number(0), [Chunk(reasoning="Okay"), Chunk(finish_reason="length")]], 3),
    ],
    ids=["little spread", "upside down", "no probabilities", "refused", "thinks"],
)
async def test_where_auto_decides_nothing_it_is_not_tried_again(replies: list[Any], count: int) -> None:
    backend = ScriptedBackend([*replies, "Hello.", "Hello again."])
    async with ToolLoop(backend, [LocalHost([plus, ping])], call_threshold="auto") as loop:
        first = [event async for event in loop.run([Message(role="user", content="Hi")])]
        assert len(backend.requests) == count + 1
        answer = first[-1]
        assert isinstance(answer, Answer)
        second = [event async for event in loop.run([*answer.messages, Message(role="user", content="Hi again")])]
    assert not [event for event in (*first, *second) if isinstance(event, ToolNeed)]
    assert len(backend.requests) == count + 2
    assert [CALL in message.content for message in backend.requests[-1].messages[1:]] == [True, False, True]


async def test_a_context_that_is_too_small_for_the_tool_prompt_is_told() -> None:
    overflow = ContextOverflow("too long", status_code=400)
    with pytest.raises(ContextOverflow):
        await need_for("auto", ScriptedBackend([overflow]), request_of("Hi"), TWO, FORMAT)


async def test_a_failure_that_may_pass_is_no_reason_to_decide_nothing_from_then_on() -> None:
    busy = BackendStatusError("loading", status_code=503)
    backend, scores = ScriptedBackend([busy, *ANCHORS, LIKELY]), Scores()
    found = [await need_for("auto", backend, request_of("1 + 2?"), TWO, FORMAT, scores) for _ in range(2)]
    assert [need and need.threshold for need in found] == [None, -4.3]


# -- the loop ----------------------------------------------------------------------------------------------------------


async def events_of(backend: ScriptedBackend, *said: Message, **options: Any) -> list[LoopEvent]:
    async with ToolLoop(backend, [LocalHost([plus])], policy=["*"], **options) as loop:
        return [event async for event in loop.run(said or (Message(role="user", content="1 + 2?"),))]


def recorded(events: Iterable[LoopEvent]) -> dict[str, Any]:
    """What `xmlcall run --json` prints."""
    record = Record(Router([]))
    for event in events:
        record.note(event)
    return record.to_json()


def last_words(backend: ScriptedBackend) -> list[str]:
    return [request.messages[-1].content for request in backend.requests]


async def test_a_question_below_the_threshold_gets_plain_words() -> None:
    backend = ScriptedBackend([UNLIKELY, "Good morning."])
    events = await events_of(backend, call_threshold=-1.0)
    need, answer = events[1], events[-1]
    assert isinstance(need, ToolNeed)
    assert isinstance(answer, Answer)
    assert need.log_odds == pytest.approx(-9.21)
    assert not need.needs_tool
    assert last_words(backend) == ["1 + 2?", "1 + 2?"]
    assert [message.role for message in backend.requests[1].messages] == ["user"], "it is answered as without tools"
    assert [request.max_tokens for request in backend.requests] == [1, None]
    assert answer.usage == Usage(prompt_tokens=10, completion_tokens=2, is_estimated=True)  # one for the question, one counted
    assert answer.messages[0].content == "1 + 2?"
    assert recorded(events)["tool_need"] == {"log_odds": need.log_odds, "number": None, "threshold": -1.0, "tool": ""}


async def test_a_question_above_it_gets_the_usual_reminder_and_is_not_asked_again_after_results() -> None:
    backend = ScriptedBackend([UNLIKELY, ADD, "3."])
    events = await events_of(backend, call_threshold=-12.0)
    assert [event.needs_tool for event in events if isinstance(event, ToolNeed)] == [True]
    words = last_words(backend)
    assert (words[0], CALL in words[1]) == ("1 + 2?", True)
    assert "<function_results>" in words[2]


async def test_a_model_that_calls_nevertheless_is_read() -> None:
    backend = ScriptedBackend([UNLIKELY, ADD, "3."])
    answer = (await events_of(backend, call_threshold=0.0))[-1]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.replies) == ("3.", 2)
    assert [message.role for message in backend.requests[-1].messages] == ["user", "assistant", "user"]


async def test_a_model_that_repeats_its_call_answers_from_the_result_alone() -> None:
    """A small model that sees its call writes it again, whatever it is told."""
    backend = ScriptedBackend([LIKELY, ADD, ADD, ADD, "3."])
    answer = (await events_of(backend, call_threshold=0.0))[-1]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.stop_reason) == ("3.", "end")
    assert [(each.role, each.content) for each in backend.requests[-1].messages] == [("user", "1 + 2?\n\n(plus: 3)")]
    assert [each.role for each in answer.messages] == ["user", *["assistant", "user"] * 3, "assistant"]
    assert answer.messages[0].content == backend.requests[2].messages[1].content, "as the server has it cached"


async def test_a_long_conversation_keeps_the_tool_prompt() -> None:
    before = [Message(role="user", content="Hi"), Message(role="assistant", content="Hello. " * (READ_AGAIN // 7))]
    for said, keeps in (("1", False), ("1 + 2?", True)):
        backend = ScriptedBackend([UNLIKELY, "3."])
        await events_of(backend, *before, Message(role="user", content=said), call_threshold=0.0)
        messages = backend.requests[-1].messages
        assert (messages[0].role == "system", PLAIN in messages[-1].content) == (keeps, keeps)


async def test_plain_words_are_asked_for_in_their_own_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_setup, "READ_AGAIN", 0)
    backend = ScriptedBackend([UNLIKELY, "Hello.", UNLIKELY, "Welcome."])
    async with ToolLoop(backend, [LocalHost([plus])], call_threshold=0.0) as loop:
        hello = await loop.ask("Hi")
        thanks = [event async for event in loop.run([*hello.messages, Message(role="user", content="Thanks")])][-1]
    assert isinstance(thanks, Answer)
    assert [message.content for message in thanks.messages] == ["Hi", "Hello.", "Thanks", "Welcome."]
    assert [PLAIN in message.content for message in backend.requests[-1].messages[1:]] == [False, False, True]


NO_ACCESS = "I'm sorry, but I don't have access to a calculator."
OPEN = beginning(DIALECT)
NO_CALL = block(("plus", {"a": 3, "b": 3})).removeprefix(OPEN)


@pytest.mark.parametrize("chunk_size", [1, None])
@pytest.mark.parametrize(
    ("told", "after", "text"),
    [
        (3.0, [ADD.removeprefix(OPEN), "3."], "3."),
        (3.0, [REFUSED, ADD, "3."], "3."),
        (3.0, [NO_CALL, NO_ACCESS], NO_ACCESS),
        (-0.5, [], NO_ACCESS),
    ],
    ids=["a call", "a beginning that is refused", "a call of the example", "no tool that it names"],
)
async def test_a_model_that_says_it_has_no_access_is_asked_once_more_with_a_call_begun(
    told: float, after: list[Any], text: str, chunk_size: int | None
) -> None:
    said: list[Any] = [*odds(-1.0), number(told), NO_ACCESS, *after]
    backend = ScriptedBackend(said, capabilities=CONTINUES, chunk_size=chunk_size)
    async with ToolLoop(backend, [LocalHost([plus, ping])], policy=["*"], call_threshold=4.0) as loop:
        events = [event async for event in loop.run([Message(role="user", content="1 + 2?")])]
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert (answer.text, len(backend.requests)) == (text, len(said))
    assert [event.refusal for event in events if isinstance(event, RetryAsked)] == ["no_access"] * bool(after)
    assert NO_ACCESS not in str(answer.messages[:-1])
    if after:
        assert backend.requests[3].messages[-1] == Message(role="assistant", content=OPEN)


async def test_after_a_call_no_access_is_an_answer() -> None:
    backend = ScriptedBackend([*odds(-1.0), number(3.0), block(("ping", {})), NO_ACCESS], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([plus, ping])], policy=["*"], call_threshold=4.0) as loop:
        assert (await loop.ask("1 + 2?")).text == NO_ACCESS


@pytest.mark.parametrize("chunk_size", [1, None])
async def test_of_an_answer_that_says_no_access_the_proxy_passes_on_nothing(chunk_size: int | None) -> None:
    said: list[Any] = [*odds(-1.0), number(3.0), NO_ACCESS, add(1, 2).removeprefix(OPEN)]
    backend = ScriptedBackend(said, capabilities=CONTINUES, chunk_size=chunk_size)
    turn = await ask(backend, body("Add 1 and 2."), call_threshold=4.0)
    assert ([call.name for call in turn.calls], turn.text) == (["add"], "")


@pytest.mark.parametrize("chunk_size", [1, None])
async def test_a_call_that_is_needed_is_begun_for_the_model(chunk_size: int | None) -> None:
    said: list[Any] = [LIKELY, [Chunk(progress=PromptProgress(read=1, total=2)), REST], "3."]
    backend = ScriptedBackend(said, capabilities=CONTINUES, chunk_size=chunk_size)
    events = await events_of(backend, call_threshold=0.0)
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert [message.content for message in answer.messages[:2]] == ["1 + 2?", ADD]
    assert [(message.role, message.content) for message in backend.requests[1].messages[1:]] == [
        ("user", "1 + 2?"),
        ("assistant", BEGUN),
    ]
    assert backend.requests[2].messages[-1].role == "user"
    assert sum(isinstance(event, PromptProgress) for event in events) == 1
    assert not [request for request in backend.requests if CALL in str(request.messages[1:])]


async def test_a_begun_call_of_nothing_but_the_example_is_taken_back() -> None:
    copied = block(("plus", {"a": 3, "b": 3})).removeprefix(BEGUN)
    backend = ScriptedBackend([LIKELY, copied, "Why did the chicken ..."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([plus])], policy=["*"], call_threshold=0.0) as loop:
        answer = await loop.ask("Tell me a joke.")
    assert [message.content for message in answer.messages] == ["Tell me a joke.", "Why did the chicken ..."]
    assert [message.content for message in backend.requests[2].messages] == ["Tell me a joke."], "as without tools"


@pytest.mark.parametrize(
    ("log_odds_", "said", "values", "is_kept"),
    [
        (-1.0, "What is 17 and 4?", {"a": 17, "b": 4}, True),
        (-1.0, "Write a poem.", {"a": 2, "b": 4}, False),
        (-1.0, "Write a poem.", {"a": "the sea"}, False),
        (-1.0, "What is 17 and 4?", {"a": 17}, True),
        (4.0, "Write a poem.", {"a": "a poem"}, True),
    ],
    ids=["of the request", "of nobody", "no call that can run", "half a call of the request", "without a doubt"],
)
async def test_in_doubt_a_begun_call_stands_on_the_request(
    log_odds_: float, said: str, values: dict[str, Any], is_kept: bool
) -> None:
    call = block(("plus", values)).removeprefix(BEGUN)
    backend = ScriptedBackend([*odds(log_odds_), call, "Plain.", "Plain."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([plus])], policy=["*"], call_threshold=1.0) as loop:
        await loop.ask(said)
    assert any(BEGUN in message.content for message in backend.requests[-1].messages) is is_kept


@pytest.mark.parametrize(
    ("threshold", "score", "is_doubtful"),
    [(2.0, 1.9, False), (2.0, 2.1, True), (2.0, 4.3, True), (2.0, 4.5, False), (-3.7, -1.0, True), (-3.7, 0.1, False)],
)
def test_a_call_is_in_doubt_near_the_threshold_and_where_the_odds_are_against_it(
    threshold: float, score: float, is_doubtful: bool
) -> None:
    need = ToolNeed(log_odds=score - 1.0, number=1.0, threshold=threshold, usage=Usage())
    assert need.is_doubtful is is_doubtful


@pytest.mark.parametrize(("again", "is_kept"), [("What did 1 + 2 give?", False), ("What is 1 + 2 now?", True)])
async def test_in_doubt_no_call_of_an_earlier_turn_is_made_again(again: str, is_kept: bool) -> None:
    rest = ADD.removeprefix(BEGUN)
    backend = ScriptedBackend([LIKELY, rest, "3.", *odds(-1.0), rest, "Plain.", "Plain."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([plus])], policy=["*"], call_threshold=0.0) as loop:
        await loop.ask("1 + 2?")
        loop.ask_by(call_threshold=1.0)
        answer = await loop.ask(again)
    assert (answer.replies == 2 and BEGUN in answer.messages[-3].content) is is_kept


def parsed(events: Iterable[LoopEvent]) -> list[LoopEvent]:
    """What is shown of replies and calls, without their ids, which are random."""
    kinds = (Markup, TextDelta, ToolArgumentDelta, ToolCallStart, ToolCallEnd)
    shown = [event for event in events if isinstance(event, kinds)]
    return [replace(event, call=None) if isinstance(event, ToolCallEnd) else event for event in shown]


@pytest.mark.parametrize("chunk_size", [1, None])
async def test_a_server_that_refuses_the_beginning_gets_the_usual_reminder(chunk_size: int | None) -> None:
    usual = ScriptedBackend([LIKELY, ADD, "3."], chunk_size=chunk_size)
    refuses = ScriptedBackend([LIKELY, REFUSED, ADD, "3."], chunk_size=chunk_size, capabilities=CONTINUES)
    expected, events = [await events_of(backend, call_threshold=0.0) for backend in (usual, refuses)]
    assert parsed(events) == parsed(expected)
    assert refuses.requests[2].messages == usual.requests[1].messages
    assert CALL in refuses.requests[2].messages[-1].content


@pytest.mark.parametrize(
    "said",
    [
        [BackendStatusError("busy", status_code=503)],
        [ContextOverflow("too long", status_code=400)],
        [REST[:30], BackendStatusError("gone", status_code=400)],
    ],
    ids=["busy", "too long", "in the middle"],
)
async def test_other_failures_of_a_begun_reply_are_failures(said: list[Any]) -> None:
    backend = ScriptedBackend([LIKELY, said, ADD], capabilities=CONTINUES)
    with pytest.raises(BackendStatusError):
        await events_of(backend, call_threshold=0.0)


def test_the_hash_of_a_prompt_covers_both_reminders(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes() -> list[str]:
        return [prompt_hash(way_of("xml"), Settings(call_threshold=threshold)) for threshold in (None, 0.0)]

    usual, before = hashes(), prompt.reminder
    monkeypatch.setattr(prompt, "reminder", lambda *args, **shown: before(*args, **shown) + "!" * (not shown["needs_tool"]))
    assert (hashes()[0] == usual[0], hashes()[1] == usual[1]) == (True, False)


@pytest.mark.parametrize(
    ("options", "capabilities"),
    [
        ({}, None),
        ({"call_threshold": 0.0, "reminder": False}, None),
        ({"call_threshold": 0.0, "mode": "native"}, None),
        ({"call_threshold": 0.0}, Capabilities(server="llama.cpp", reasoning_open=True)),
    ],
    ids=["no threshold", "no reminder", "native", "thinking"],
)
async def test_where_nothing_is_asked(options: dict[str, Any], capabilities: Capabilities | None) -> None:
    backend = ScriptedBackend(["</think>3." if capabilities else "3."], capabilities=capabilities)
    answer = (await events_of(backend, **options))[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "3."
    assert PLAIN not in last_words(backend)[0]


async def test_no_threshold_without_tools() -> None:
    backend = ScriptedBackend(["Hello."])
    async with ToolLoop(backend, call_threshold=0.0) as loop:
        assert (await loop.ask("Hi")).text == "Hello."


async def test_a_server_that_tells_no_probabilities_is_reported() -> None:
    with pytest.raises(BackendProtocolError, match="leave the threshold out"):
        await events_of(ScriptedBackend(["<"]), call_threshold=0.0)


async def test_a_first_token_that_decides_nothing() -> None:
    thinks = [Chunk(reasoning="Okay", top_logprobs=(("Okay", -0.1),)), Chunk(finish_reason="length")]
    backend = ScriptedBackend([thinks, "3."])
    events = await events_of(backend, call_threshold=0.0)
    assert [event.needs_tool for event in events if isinstance(event, ToolNeed)] == [True]
    assert CALL in last_words(backend)[1]


async def test_half_a_character_begins_no_call() -> None:
    backend = ScriptedBackend([[Chunk(finish_reason="length")], "3."])
    events = await events_of(backend, call_threshold=2.0)
    assert [(event.log_odds, event.needs_tool) for event in events if isinstance(event, ToolNeed)] == [(-2.0, False)]
    assert CALL not in last_words(backend)[1]


async def test_results_at_the_end_are_no_question() -> None:
    said = (
        Message(role="user", content="1 + 2?"),
        Message(role="assistant", content=ADD),
        Message(role="user", content='<function_results>\n<result name="plus">\n3\n</result>\n</function_results>'),
    )
    backend = ScriptedBackend(["3."])
    assert not [event for event in await events_of(backend, *said, call_threshold=0.0) if isinstance(event, ToolNeed)]


async def test_the_question_is_asked_without_the_callers_own_fields() -> None:
    backend = ScriptedBackend([LIKELY, ADD])
    extra = {"logprobs": False, "top_logprobs": 1, "n_predict": 50, "think": False}
    asked = CompletionRequest(messages=(Message(role="user", content="Hi"),), stop=("x",), extra=extra)
    await asked_need(backend, asked, 0.0, TWO, FORMAT)
    assert (backend.requests[0].extra, backend.requests[0].stop) == ({"think": False}, ())


@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_is_a_number(threshold: float) -> None:
    with pytest.raises(UsageError, match="finite number"):
        ToolLoop(ScriptedBackend([]), call_threshold=threshold)


async def test_a_conversation_goes_on() -> None:
    """The question is asked without the reminder even if the caller sends back a message that has it."""
    tool = Tool(name="plus", description="Add two numbers.")
    said = Message(role="user", content=f"1 + 2?\n\n{prompt.reminder([tool])}")
    backend = ScriptedBackend([LIKELY, "3."])
    await events_of(backend, said, call_threshold=0.0)
    assert last_words(backend) == ["1 + 2?", said.content]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_both_reminders_are_in_all_languages(lang: str) -> None:
    tool = Tool(name="plus")
    usual, plain = (prompt.reminder([tool], PromptFormat(lang=lang), needs_tool=needs_tool) for needs_tool in (True, False))
    assert len({usual, plain, ""}) == 3
    assert prompt.reminder([], PromptFormat(lang=lang), needs_tool=False) == ""


# -- the proxy ---------------------------------------------------------------------------------------------------------

FUNCTION = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
ADDED: list[dict[str, Any]] = [
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": FUNCTION}]},
    {"role": "tool", "tool_call_id": "1", "content": "3"},
]


async def test_the_proxy_asks_before_it_answers() -> None:
    backend = ScriptedBackend([UNLIKELY, "Good morning."])
    turn = await ask(backend, body("Good morning!"), call_threshold=0.0)
    assert turn.text == "Good morning."
    assert [texts(backend, number)[-1][1] for number in (0, 1)] == ["Good morning!"] * 2
    assert turn.usage.completion_tokens == 2


TALK = ("Hi", {"role": "assistant", "content": "Hello."})


async def test_the_proxy_begins_a_call_that_is_needed() -> None:
    begun = beginning(DIALECT, "add")
    choosing = [first_token(("echo", 0.3), ("add", 0.7)), first_token(("echo", 0.5), ("add", 0.5))]
    backend = ScriptedBackend([LIKELY, *choosing, add(1, 2).removeprefix(begun)], capabilities=CONTINUES)
    turn = await ask(backend, body(*TALK, "1 + 2?"), call_threshold=0.0)
    assert [(call.name, call.arguments) for call in turn.calls] == [("add", {"a": 1, "b": 2})]
    assert texts(backend, 0)[1:] == [("user", "1 + 2?")]
    assert texts(backend, 3)[1:] == [("user", "Hi"), ("assistant", "Hello."), ("user", "1 + 2?"), ("assistant", begun)]


ONCE = add(99, 4)
TWICE = ONCE.replace("</invoke>\n", f"</invoke>\n{add(17, 4).partition(chr(10))[2].rpartition(chr(10))[0]}\n", 1)


@pytest.mark.parametrize("chunk_size", [1, None])
@pytest.mark.parametrize(
    ("said", "written", "calls", "text"),
    [
        ("Write a poem.", ONCE, [], "The sea."),
        ("Add 99 and 4.", ONCE, [99], ""),
        ("Add 17 and 4, and something else.", TWICE, [99, 17], ""),
    ],
    ids=["of nobody", "of the request", "one of the request after one of nobody"],
)
async def test_in_doubt_the_proxy_passes_on_a_call_only_once_it_stands(
    said: str, written: str, calls: list[int], text: str, chunk_size: int | None
) -> None:
    begun = beginning(DIALECT, "add")
    choosing = first_token(("echo", 0.1), ("add", 0.9))
    replies: list[Any] = [*odds(0.5), number(1.0), choosing, written.removeprefix(begun), "The sea."]
    backend = ScriptedBackend(replies, capabilities=CONTINUES, chunk_size=chunk_size)
    turn = await ask(backend, body(said), call_threshold=1.0)
    assert ([call.arguments["a"] for call in turn.calls], turn.text) == (calls, text)


async def test_the_proxy_reminds_where_the_server_refuses_to_choose_a_tool_and_to_begin() -> None:
    backend = ScriptedBackend([LIKELY, REFUSED, REFUSED, add(1, 2)], capabilities=CONTINUES)
    turn = await ask(backend, body(*TALK, "1 + 2?"), call_threshold=0.0)
    assert [call.name for call in turn.calls] == ["add"]
    assert texts(backend)[-1][1].startswith("1 + 2?\n\n")
    assert CALL in texts(backend)[-1][1]


async def test_a_call_that_is_cut_off_after_one_of_the_example_shows_nothing() -> None:
    copied = add(3, 3).removeprefix(beginning(DIALECT, "add")).removesuffix("</function_calls>")
    cut = [Chunk(text=copied + '<invoke name="add">\n<parameter name="a">5'), Chunk(finish_reason="length")]
    choosing = [first_token(("echo", 0.3), ("add", 0.7)), first_token(("echo", 0.5), ("add", 0.5))]
    backend = ScriptedBackend([LIKELY, *choosing, cut, "Why did the chicken ..."], capabilities=CONTINUES)
    turn = await ask(backend, body("Tell me a joke.", max_tokens=80), call_threshold=0.0)
    assert (turn.text, texts(backend)) == ("Why did the chicken ...", [("user", "Tell me a joke.")]), "as without tools"


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (body("1 + 2?", tool_choice="required"), {"call_threshold": 0.0}),
        (body("1 + 2?", tool_choice={"type": "function", "function": {"name": "add"}}), {"call_threshold": 0.0}),
        (body("1 + 2?", *ADDED), {"call_threshold": 0.0}),
        (body("1 + 2?", *ADDED, "Go on."), {"call_threshold": 0.0}),
        (body("1 + 2?"), {"call_threshold": 0.0, "reminder": False}),
        (body("1 + 2?"), {}),
    ],
    ids=["required", "named", "after a result", "beside a result", "no reminder", "no threshold"],
)
async def test_where_the_proxy_asks_nothing(data: dict[str, Any], options: dict[str, Any]) -> None:
    backend = ScriptedBackend([add(1, 2)])
    await ask(backend, data, **options)
    assert all(request.top_logprobs == 0 for request in backend.requests)


# -- the harness -------------------------------------------------------------------------------------------------------

TOOL = Tool(name="plus", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
EXPECTED: list[tuple[str, Expects]] = [("one", "calls"), ("two", "no_call")]
CASES = [
    Case(
        id=name,
        category="simple",
        messages=({"role": "user", "content": f"{name}?"},),
        tools=(TOOL,),
        answers=({"plus": {"a": [1]}},) if expects == "calls" else (),
        expects=expects,
    )
    for name, expects in EXPECTED
]


async def test_a_run_keeps_what_decided_and_what_was_said(tmp_path: Path) -> None:
    settings = Settings(call_threshold=0.0)
    about = {"ways": ["xml", "origin"], "settings": settings.to_json(), "model": "m", "suite": "s"}
    run = create_or_resume(tmp_path / "run", about, CASES)
    called = [Chunk(text=ADD), Chunk(finish_reason="stop", usage=Usage(prompt_tokens=20))]
    backend = ScriptedBackend([LIKELY, called, "no.", UNLIKELY, "no.", "no."])
    assert await runner.execute(run, [way_of("xml"), way_of("origin")], model_subject(backend)) == 0
    rounds = [(reply["case"], reply["way"], reply["rounds"][0].get("log_odds")) for reply in run.replies]
    assert rounds == [("one", "xml", 2.197), ("one", "origin", None), ("two", "xml", -9.21), ("two", "origin", None)]
    assert PLAIN in backend.requests[4].messages[-1].content
    decided, origin = (reply["rounds"][0] for reply in run.replies[:2])
    assert (decided["need_usage"]["prompt_tokens"], decided["usage"]["prompt_tokens"]) == (10, 20)
    assert "need_usage" not in origin
    shown = [
        AskedCase(way_of("xml"), case, settings).sent(reply["rounds"])[-1].content
        for case, reply in zip(CASES, run.replies[::2], strict=True)
    ]
    assert (CALL in shown[0], PLAIN in shown[1]) == (True, True)
    assert run.settings == settings


async def test_a_run_keeps_the_threshold_and_that_a_call_was_begun(tmp_path: Path) -> None:
    settings = Settings(call_threshold="auto")
    about = {"ways": ["xml"], "settings": settings.to_json(), "model": "m", "suite": "s"}
    run = create_or_resume(tmp_path / "run", about, CASES)
    anchors = anchored(-9, 5)
    backend = ScriptedBackend([*anchors, *odds(5), REST, *odds(-12), "no."], capabilities=CONTINUES)
    assert await runner.execute(run, [way_of("xml")], model_subject(backend), concurrency=1) == 0
    first, second = (reply["rounds"][0] for reply in create_or_resume(tmp_path / "run", about, CASES).replies)
    assert (first["threshold"], first["begun"], first["text"]) == (-3.8, True, ADD)
    assert (second["threshold"], "begun" in second) == (-3.8, False)
    generating = [request.messages for request in backend.requests if not request.top_logprobs]
    shown = [AskedCase(way_of("xml"), case, settings).sent([kept]) for case, kept in zip(CASES, (first, second), strict=True)]
    assert (*shown[0], Message(role="assistant", content=BEGUN)) == generating[0]
    assert shown[1] == generating[1]
    assert PLAIN in shown[1][-1].content


@pytest.mark.parametrize(
    ("need", "reminder"),
    [
        (None, CALL),
        (ToolNeed(log_odds=SURE_NUMBER, threshold=0.0, usage=Usage(), is_sure=False), CALL),
        (ToolNeed(log_odds=1.0, threshold=0.0, usage=Usage()), CALL),
        (ToolNeed(log_odds=1.0, threshold=0.0, usage=Usage(), begun=BEGUN), ""),
        (ToolNeed(log_odds=-4.0, threshold=0.0, usage=Usage()), PLAIN),
    ],
    ids=["nothing", "not sure", "a call", "a call that can be begun", "plain words"],
)
def test_what_a_decision_does(need: ToolNeed | None, reminder: str) -> None:
    messages = AskedCase(way_of("xml"), CASES[0], Settings()).decided(need)
    assert messages[-1].content.removeprefix("one?").strip().startswith(reminder)
    assert bool(reminder) == (messages[-1].content != "one?")


def test_a_run_without_a_threshold_has_the_keys_that_it_always_had() -> None:
    assert "call_threshold" not in Settings().to_json()


async def test_ways_without_a_reminder_of_ours_are_not_asked() -> None:
    backend = ScriptedBackend([])
    for way in ("native", "origin"):
        assert await AskedCase(way_of(way), CASES[0], Settings(call_threshold=0.0)).need(backend) is None


THRESHOLDS = [
    ([1.397, 2.397, 3.397], [1.396], 1.0, 1.396),  # a narrow gap is not rounded over
    *(
        ([3, 2, 1, 0, -1, -2, -3, -4, -5, -6], [-3.5, -4.5, -8, 2.5], share, threshold)
        for share, threshold in ((1.0, -7.0), (0.9, -5.5), (0.8, -4.25), (0.0, 4.0))
    ),
]


@pytest.mark.parametrize(("calls", "others", "share", "threshold"), THRESHOLDS)
def test_a_threshold_keeps_the_calls_and_spares_what_it_can(
    calls: list[float], others: list[float], share: float, threshold: float
) -> None:
    assert threshold_of(calls, others, share) == threshold


ODDS = st.lists(st.integers(-1000, 1000).map(lambda value: value / 50), min_size=1, max_size=30)


@given(ODDS, ODDS, st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0]))
def test_a_threshold_never_loses_more_than_it_may(calls: list[float], others: list[float], share: float) -> None:
    threshold = threshold_of(calls, others, share)
    assert sum(value > threshold for value in calls) >= share * len(calls) - 1e-6


# -- how a model is asked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "auto"),
        ({"call_threshold": -2.5}, -2.5),
        ({"call_threshold": 0.0}, 0.0),
        ({"call_threshold": None}, None),
        ({"reminder": False}, None),
        ({"mode": "native"}, None),
        ({"mode": "native-only"}, None),
    ],
)
def test_the_threshold_of_a_model_without_a_profile(given: AskingFields, expected: Threshold | None) -> None:
    assert asking_by(Asking(), given).call_threshold == expected


@pytest.mark.parametrize("more", [{"reminder": False}, {"mode": "native"}])
def test_thresholds_that_nothing_comes_of(more: AskingFields) -> None:
    with pytest.raises(UsageError, match="reminder=no"):
        asking_by(Asking(), {"call_threshold": 1.0, **more})


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is 1 + 2?", "en"),
        ("/srv/notes-01/shopping.txt 里写了什么？", "zh"),
        ("What does 你好 mean?", "en"),
        ("Paris和Sydney现在哪个城市更暖和？", "zh"),
        ("東京は今何時ですか", "en"),  # Japanese is none of ours
        ("12 + 7", "en"),
        ("看看 a//b_c.txt里的内容", "zh"),
        (f"{'.' * 200_000} 你好", "zh"),  # in linear time
    ],
)
def test_what_asks_for_plain_words_is_in_the_language_of_the_person(text: str, language: str) -> None:
    assert prompt.language_of(text, "en") == language
    assert prompt.language_of("12 + 7", "zh") == "zh"


@pytest.mark.parametrize("thinks", [False, True])
async def test_a_threshold_decides_nothing_where_a_reply_begins_with_thinking(thinks: bool) -> None:
    """So each question of the caller's carries a reminder."""
    server = Capabilities(server="llama.cpp", reasoning_open=thinks)
    backend = ScriptedBackend(["</think>3."] if thinks else [*odds(-9.0), "3."], capabilities=server)
    await ask(backend, body("Hi", {"role": "assistant", "content": "Hello."}, "Add 1 and 2"), call_threshold=0.0)
    first = next(words for role, words in texts(backend) if role == "user")
    assert (first != "Hi") is thinks
