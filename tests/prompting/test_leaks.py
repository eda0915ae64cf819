"""What of a reply is our own prompt (tests/prompting/leaks.toml), whole and in chunks."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import examples

from xmlcall import Message, Parser, ToolCall, ToolResult, parse
from xmlcall.prompting.format import LANGUAGES, PromptFormat
from xmlcall.prompting.leaks import Leaks, refusal, results_in
from xmlcall.prompting.results import results
from xmlcall.types.calls import TextContent
from xmlcall.types.events import Event, Repaired, TextDelta

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).with_name("leaks.toml")).read_text(encoding="utf-8"))["case"]


def read(text: str, given: list[str], size: int) -> tuple[str, str, str, bool, list[str]]:
    """Return what is shown and kept, what was found, whether the reply was ended, and the codes of repairs."""
    parser, leaks = Parser(), Leaks(frozenset(given))
    events: list[Event] = []
    for at in range(0, len(text), size):
        events += [shown for event in parser.feed(text[at : at + size]) for shown in leaks.pass_on(event)]
    events += [shown for event in parser.close() for shown in leaks.pass_on(event)]
    events += leaks.close()
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    codes = [event.code for event in events if isinstance(event, Repaired)]
    return shown, leaks.kept(text, len(text)), leaks.found, leaks.stopped, codes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_shown_and_kept(case: dict[str, Any]) -> None:
    for size in (1, 2, 5, 19, 10_000):
        shown, kept, found, ended, codes = read(case["reply"], case.get("results", []), size)
        assert shown == kept == case["shown"], size
        assert (found, ended) == (case.get("found", ""), case.get("ends", False)), size
        assert ("own-words" in codes) is (found == "own_words")
        assert ("results-frame" in codes) is (ended and not found)


PIECES = [
    "<function_results>",
    '<result name="add">',
    "3",
    "</result>",
    "</function_results>",
    "\n",
    "```",
    "`",
    " ",
    "<result",
    "- ",
]
PIECES += ["The values above only show the form.", "(Answer in plain words, without a tool.)", "Answer in plain", "words"]
PIECES += ["<function_calls>", "</think>"]


@settings(max_examples=examples(300), deadline=None)
@example(pieces=["3", "```", "\n", "The values above only show the form.", "<function_results>"], size=1, given_results=[])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12), size=st.integers(1, 30), given_results=st.sampled_from([[], ["3"]]))
def test_chunks_do_not_matter(pieces: list[str], size: int, given_results: list[str]) -> None:
    text = "".join(pieces)
    assert read(text, given_results, size) == read(text, given_results, max(len(text), 1))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_results_are_known_as_the_model_was_given_them(lang: str) -> None:
    call = parse('<invoke name="add"></invoke>').calls[0]
    assert isinstance(call, ToolCall)
    told = [ToolResult(content=(TextContent(text="a <result> of\ntwo lines"),)), ToolResult.error("no luck")]
    message = results([(call, result) for result in told], (), PromptFormat(lang=lang))
    assert results_in([message]) == {"a &lt;result> of\ntwo lines"}
    assert results_in([replace(message, role="assistant"), Message(role="user", content="Hi")]) == frozenset()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", ["invented_results", "own_words"])
def test_what_the_model_is_told_is_ours_too(kind: Any, lang: str) -> None:
    told = refusal(kind, PromptFormat(lang=lang))
    assert "<function_calls>" in told
    assert read(told, [], 10_000)[0] == ""


def test_a_long_line_is_passed_on() -> None:
    leaks = Leaks()
    held = leaks.pass_on(TextDelta(text="-" * 390, span=(0, 390)))
    assert held == []
    assert leaks.pass_on(TextDelta(text="-" * 20, span=(390, 410))) == [TextDelta(text="-" * 410, span=(0, 410))]
