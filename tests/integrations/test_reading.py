"""What engines are given of a model's text: text and calls, the same however the stream is cut, and no call lost."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from cases import TOOLS as CORPUS_TOOLS
from cases import load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from soup import PIECES, TOOLS, pieces_of

from xmlcall import Catalog, Parser, ToolCall, parse
from xmlcall.dialects import DIALECTS
from xmlcall.integrations.reading import EngineCall, EngineReplyReader, EngineText, catalog_of, may_have_calls, read_whole
from xmlcall.types.events import ToolCallEnd

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 9}},
            "required": ["city"],
        },
    },
}
CATALOG = catalog_of([WEATHER])


def call(city: str = "Oslo", days: str = "3", name: str = "get_weather") -> str:
    values = f'<parameter name="city">{city}</parameter>\n<parameter name="days">{days}</parameter>'
    return f'<invoke name="{name}">\n{values}\n</invoke>'


def block(*calls: str) -> str:
    return "\n".join(("<function_calls>", *calls, "</function_calls>"))


OSLO = {"city": "Oslo", "days": 3}
TWICE = call().replace("</invoke>", '<parameter name="days">4</parameter>\n</invoke>')

# name -> what the model wrote, the text and the arguments that go out
REPLIES: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "plain": ("Hi.\n", "Hi.\n", []),
    "spaces only": (" \n ", " \n ", []),
    "one": (f"Let me see.\n\n{block(call())}\n", "Let me see.", [OSLO]),
    "two": (block(call(), call("Rome", "1")), "", [OSLO, {"city": "Rome", "days": 1}]),
    "text between": (f"A {block(call())} B {block(call())}", "A B", [OSLO, OSLO]),
    "another format": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>',
        "",
        [OSLO],
    ),
    "words for numbers": (block(call(days="03")), "", [{"city": "Oslo", "days": 3}]),
    "does not fit: as it was written": (block(call(days="many")), "", [{"city": "Oslo", "days": "many"}]),
    "out of range: as it was written": (block(call(days="12")), "", [{"city": "Oslo", "days": "12"}]),
    "unknown tool: stays text": (f"Hm. {block(call(name='rm'))}", f"Hm. {call(name='rm')}", []),
    "two values for one parameter: stays text": (block(TWICE), TWICE, []),
    "cut in a value: stays text": ("<function_calls>\n" + call()[:60], call()[:60], []),
    "cut after a value: stays text": ("<function_calls>\n" + call()[:-10], call()[:-10].rstrip(), []),
    "block not closed": ("<function_calls>\n" + call(), "", [OSLO]),
    "thoughts": (f"<think>{block(call())}</think>\nHi.", f"<think>{block(call())}</think>\nHi.", []),
    "thoughts that the prompt began": ("so</think>\nHi.", "so</think>\nHi.", []),
    "quoted": (f"Write `{block(call())}`.", f"Write `{block(call())}`.", []),
    "the beginning of a tag": ("a <function_c", "a <function_c", []),
    "half a surrogate": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "\\ud800"}}\n</tool_call>',
        "",
        [{"city": "\ud800"}],
    ),
}


def strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    text.encode()  # what a server has to send
    return json.loads(text, parse_constant=refuse)


def streamed(chunks: Sequence[str], catalog: Catalog) -> tuple[str, list[EngineCall]]:
    reader = EngineReplyReader(catalog)
    pieces = [piece for chunk in chunks for piece in reader.feed(chunk)] + reader.finish()
    said = "".join(piece.text for piece in pieces if isinstance(piece, EngineText))
    return said, [piece for piece in pieces if isinstance(piece, EngineCall)]


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply(name: str) -> None:
    written, text, arguments = REPLIES[name]
    said, calls = read_whole(written, CATALOG)
    assert said == text
    assert [strictly(each.arguments) for each in calls] == arguments
    assert [(each.index, each.name) for each in calls] == [(place, "get_weather") for place in range(len(arguments))]
    assert not arguments or may_have_calls(written)
    assert streamed(list(written), CATALOG) == (said, calls)


soup = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
dialect_soup = st.sampled_from(list(DIALECTS.values())).flatmap(
    lambda dialect: st.lists(st.sampled_from(pieces_of(dialect)), max_size=30).map("".join)
)


@settings(max_examples=examples(400), deadline=None)
@given(text=st.one_of(soup, dialect_soup, st.text(max_size=40)), data=st.data())
def test_any_text_cut_anywhere(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    chunks = [text[first:last] for first, last in zip([0, *places], [*places, len(text)], strict=True)]
    catalog = Catalog.of(TOOLS)
    said, calls = read_whole(text, catalog)
    assert streamed(chunks, catalog) == (said, calls)
    assert [each.index for each in calls] == list(range(len(calls)))
    assert all(isinstance(json.loads(each.arguments), dict) for each in calls)
    assert not calls or may_have_calls(text)


@settings(max_examples=examples(400), deadline=None)
@given(text=st.one_of(soup, dialect_soup))
def test_no_call_is_lost(text: str) -> None:
    parser = Parser(TOOLS)
    events = [*parser.feed(text), *parser.close("length")]
    said, calls = read_whole(text, Catalog.of(TOOLS))
    ends = [event.raw for event in events if isinstance(event, ToolCallEnd)]
    visible = [raw for raw in ends if "".join(raw.text.split()) in "".join(said.split())]
    assert len(calls) <= len(ends) <= len(calls) + len(visible)


def test_the_corpus() -> None:
    for name, case in (pair for pair in load("*/*.toml") if pair[1].get("tools")):
        catalog, text = CORPUS_TOOLS[case["tools"]], case["input"]
        reply = parse(text, catalog, finish_reason="length")
        valid = [(each.name, each.arguments) for each in reply.calls if isinstance(each, ToolCall)]
        sent = [(each.name, json.loads(each.arguments)) for each in read_whole(text, catalog)[1]]
        assert [pair for pair in sent if pair in valid] == valid, name
        assert len(valid) <= len(sent) <= len(reply.calls), name
        assert not sent or may_have_calls(text), name


def test_without_tools_all_is_text() -> None:
    assert read_whole(block(call()), Catalog()) == (block(call()), [])


TOOL_LISTS: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = [
    ([WEATHER, WEATHER], ("get_weather",)),
    ([{"type": "web_search"}, WEATHER], ("get_weather",)),
    ([{"type": "function", "name": "flat", "parameters": {"type": "object"}}], ("flat",)),
    ([{"type": "function", "name": "bare"}], ("bare",)),
    ([{"type": "function", "function": {"name": ""}}, WEATHER], ("get_weather",)),
]


@pytest.mark.parametrize(("tools", "names"), TOOL_LISTS)
def test_tools_of_requests(tools: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    assert catalog_of(tools).names() == names


def test_what_does_not_fit_is_logged_without_its_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "xmlcall.integrations"):
        read_whole(block(call("SECRET", "many"), call("SECRET", name="rm")), CATALOG)
    assert len(caplog.records) == 2
    assert "is passed on as it was written" in caplog.messages[0]
    assert "stays text" in caplog.messages[1]
    assert "SECRET" not in caplog.text
