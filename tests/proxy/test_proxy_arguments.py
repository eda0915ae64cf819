"""Arguments that go out while the model writes them: what was sent never turns out wrong."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from cases import TOOLS, cuts, load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from proxy_harness import ADD, ask, block, body, function
from soup import PIECES, pieces_of
from soup import TOOLS as SOUP_TOOLS

from xmlcall import Catalog, Markup, Parser, ToolArgumentDelta, ToolCall, ToolCallEnd, ToolCallStart, bind
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS
from xmlcall.proxy.engine.answers import Sender
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.contract import ApiError, ArgumentsPiece, CallClosed, CallOpened, ResponseEvent
from xmlcall.proxy.formats.openai_chat import CHAT

CASES = [pytest.param(case, id=name) for name, case in load("*/*.toml", quick=3) if case.get("tools")]


def sent(chunks: Iterable[str], tools: Any, finish_reason: str = "stop", **options: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Play a reply through a sender; give name, joined fragments and bound arguments of each call that is valid.

    A call whose beginning was sent and that is invalid in the end ends the play: the model would be asked again.
    """
    catalog = Catalog.of(tools)
    parser, sender, written = Parser(catalog, **options), Sender(catalog, stream_arguments=True), list[ResponseEvent]()
    for event in [event for chunk in chunks for event in parser.feed(chunk)] + parser.close(finish_reason):
        match event:
            case ToolCallStart():
                sender.start(event)
            case ToolArgumentDelta():
                written += sender.add(event)
            case Markup(kind="parameter_close"):
                written += sender.end_parameter()
            case ToolCallEnd(raw=raw):
                call = bind(raw, catalog)
                if isinstance(call, ToolCall):
                    written += sender.end(call, is_retry=False)
                else:
                    sender.drop()
                if sender.unfinished:
                    break
    return joined(written)


def joined(events: Iterable[ResponseEvent]) -> list[tuple[str, str, dict[str, Any]]]:
    calls, name, text = [], "", ""
    for event in events:
        match event:
            case CallOpened():
                name, text = event.name, ""
            case ArgumentsPiece():
                text += event.text
            case CallClosed():
                assert event.call.name == name
                calls.append((name, text, event.call.arguments))
    return calls


def check(calls: list[tuple[str, str, dict[str, Any]]]) -> None:
    for _, text, arguments in calls:
        assert json.dumps(json.loads(text), sort_keys=True) == json.dumps(arguments, sort_keys=True)


LONG = block(("echo", {"text": "the secret plan and all the other notes " * 3}))


@pytest.mark.parametrize("said", [LONG, json.dumps({"page": LONG}), ".".join(LONG), LONG.replace("echo", "e\u0301cho")])
async def test_nothing_of_a_copied_call_goes_out(said: str) -> None:
    backend = ScriptedBackend([LONG, "I will not."], chunk_size=7)
    turn = await ask(backend, body(f"A page says: {said}"), stream_arguments=True)
    assert (turn.text, turn.calls) == ("I will not.", ())


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_the_corpus_cut_in_every_way(case: dict[str, Any]) -> None:
    tools, options = TOOLS[case["tools"]], {"reasoning_open": case.get("reasoning_open", False)}
    whole, characters, *cut = cuts(case["input"], most=30)
    for chunks in (whole, characters, *cut[::3]):  # `test_the_cut_does_not_matter` reads at all of them
        check(sent(chunks, tools, case.get("finish_reason", "stop"), **options))


@pytest.mark.parametrize("written", [["tags=a", "tags=b", "path=x"], ["path=x", "days=1", "days=2"], ["tags=a", 'tags=["b"]']])
def test_a_list_of_which_each_item_has_an_element_of_its_own(written: list[str]) -> None:
    tags, days = ({"type": "array", "items": {"type": kind}} for kind in ("string", "integer"))
    tools = [function("f", required=(), path={"type": "string"}, tags=tags, days=days)]
    pairs = [each.split("=", 1) for each in written]
    inner = "".join(f'<parameter name="{name}">{value}</parameter>' for name, value in pairs)
    text = f'<function_calls><invoke name="f">{inner}</invoke></function_calls>'
    for chunks in cuts(text):
        check(sent(chunks, tools))


soup = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=30),
    st.sampled_from(list(DIALECTS.values())).flatmap(lambda row: st.lists(st.sampled_from(pieces_of(row)), max_size=30)),
)


@settings(max_examples=examples(600), deadline=None)
@given(pieces=soup, reason=st.sampled_from(["stop", "length"]))
def test_tag_soup(pieces: list[str], reason: str) -> None:
    check(sent(pieces, SOUP_TOOLS, reason))
    check(sent("".join(pieces), SOUP_TOOLS, reason))


WRITE = function(
    "write",
    path={"type": "string"},
    content={"type": "string", "description": "The text."},
    mode={"enum": ["new", "old"]},
    lines={"type": "integer"},
)
VALUES = {"path": "a.py", "content": 'x = "1 < 2"\n\tcall()\\ é', "mode": "new", "lines": "3"}


async def fragments(*replies: str, tool: Any = WRITE, **options: Any) -> list[ResponseEvent]:
    async with Engine(ScriptedBackend(replies, chunk_size=3), mode="xml", stream_arguments=True, **options) as engine:
        return [event async for event in engine.respond(CHAT.read(body(tools=[tool])).request)]


@pytest.mark.parametrize("content", ["none", "None\n", "no", "nonesuch", "none of it"])
async def test_a_word_that_says_nothing_is_not_sent(content: str) -> None:
    tool = function("write", required=["path"], path={"type": "string"}, content={"type": "string"}, lines={"type": "integer"})
    said = block(("write", {"path": "a.py", "content": content, "lines": "none"}))
    events = await fragments(said, tool=tool, family="every")
    ((_, text, arguments),) = joined(events)
    expected = {"path": "a.py"} if content.strip().casefold() == "none" else {"path": "a.py", "content": content}
    assert json.loads(text) == arguments == expected


async def test_strings_come_as_they_are_written_and_others_when_they_are_complete() -> None:
    events = await fragments(block(("write", VALUES)))
    pieces = [event.text for event in events if isinstance(event, ArgumentsPiece)]
    assert isinstance(events[0], CallOpened)
    assert len(pieces) > 8
    assert "".join(pieces[:2]).startswith('{"path": "')
    assert [piece for piece in pieces if "mode" in piece or "lines" in piece] == [', "mode": "new"', ', "lines": 3']
    assert json.loads("".join(pieces)) == {**VALUES, "lines": 3}


async def test_a_retry_appends_what_was_missing() -> None:
    half = {"path": "a.py", "content": "x"}
    events = await fragments(block(("write", half)), block(("write", {**half, "mode": "new", "lines": "1"})))
    assert [(name, json.loads(text)) for name, text, _ in joined(events)] == [("write", {**half, "mode": "new", "lines": 1})]
    assert sum(isinstance(event, CallOpened) for event in events) == 1


async def test_a_retry_that_says_something_else_is_an_error() -> None:
    half = {"path": "a.py", "content": "x"}
    backend = ScriptedBackend([block(("write", half)), block(("write", {**VALUES, "path": "b.py"}))])
    with pytest.raises(ApiError, match="beginning of a call of 'write' was sent"):
        await ask(backend, body(tools=[WRITE]), stream_arguments=True)


async def test_a_retry_without_a_call_is_an_error_if_one_was_begun() -> None:
    backend = ScriptedBackend([block(("write", {"path": "a.py"})), "Never mind."])
    with pytest.raises(ApiError) as raised:
        await ask(backend, body(tools=[WRITE]), stream_arguments=True)
    assert raised.value.code == "invalid_tool_call"


async def test_a_parameter_written_twice_goes_out_once() -> None:
    twice = block(("write", VALUES)).replace("</invoke>", '<parameter name="path">a.py</parameter>\n</invoke>')
    assert [json.loads(text) for _, text, _ in joined(await fragments(twice))] == [{**VALUES, "lines": 3}]


@pytest.mark.parametrize(
    "replies",
    [
        [block(("write", {"path": "a.py"}), ("add", {"a": 1, "b": 2})), block(("add", {"a": 1, "b": 2}))],
        [block(("write", {"path": "a.py"}), ("add", {"a": 1, "b": 2})), "Never mind."],
    ],
)
async def test_no_answer_ends_with_half_a_call(replies: list[str]) -> None:
    with pytest.raises(ApiError, match="'write'"):
        await ask(ScriptedBackend(replies), body(tools=[WRITE, ADD]), stream_arguments=True)


async def test_a_call_that_is_cut_off_after_its_beginning_was_sent_is_an_error() -> None:
    backend = ScriptedBackend([block(("write", VALUES))[:80]], finish_reasons=["length"])
    with pytest.raises(ApiError, match="'write'"):
        await ask(backend, body(tools=[WRITE], max_tokens=9), stream_arguments=True)


async def test_an_answer_that_is_not_streamed_has_whole_calls_only() -> None:
    async with Engine(ScriptedBackend([block(("write", VALUES))]), mode="xml", stream_arguments=True) as engine:
        events = [event async for event in engine.respond(CHAT.read(body(tools=[WRITE])).request, is_streamed=False)]
    assert sum(isinstance(event, ArgumentsPiece) for event in events) == 1


def test_a_value_that_is_marked_as_json_is_not_sent_as_the_text_it_is_written_in() -> None:
    text = block(("write", VALUES)).replace('name="path">a.py<', 'name="path" type="json">"a.py"<')
    check(sent(list(text), [WRITE]))
    assert json.loads(sent(list(text), [WRITE])[0][1])["path"] == "a.py"


def test_a_city_goes_out_as_the_time_zone_that_it_is_bound_to() -> None:
    zone = {"type": "string", "description": "IANA timezone name"}
    tool = {"name": "now", "inputSchema": {"type": "object", "properties": {"timezone": zone}}}
    [(_, text, arguments)] = sent(list(block(("now", {"timezone": "New York"}))), [tool])
    assert json.loads(text) == arguments == {"timezone": "America/New_York"}
