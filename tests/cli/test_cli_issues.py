"""What a person reads of a call that cannot run: what was expected, what came and what to do, in either language."""

import json
import re
from pathlib import Path

import pytest

from xmlcall import parse
from xmlcall.binding.grounds import groundless_call
from xmlcall.cli.call_panel import CallLog, call_line, call_lines
from xmlcall.cli.words import issue_line, speaker, texts_of
from xmlcall.errors import ISSUES
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.events import CallRejected
from xmlcall.turn_records.record import issues_of
from xmlcall.types.calls import InvalidCall, Issue, RawCall, ToolCall

MADE_UP = groundless_call(
    ToolCall(id="1", name="get_weather", arguments={"city": "Paris"}, raw=RawCall(index=0, name="get_weather")), ["city"]
)
WROTE = "The conversation and its results lack a value that the call needs. State the value in your request."

LINES = [
    (
        MADE_UP.issues[0],
        f"city: {WROTE} The model wrote: 'Paris'.",
        "city：对话和结果中都没有调用所需的一个值。请在请求中写明它。模型写的是：'Paris'。",
    ),
    (
        Issue(code="wrong-type", path="$.a", expected="number", got='"one"', message='Expected number, got "one".'),
        'a: Expected number, got "one".',
        'a：值的类型不符合参数定义。应为：number。模型写的是："one"。',
    ),
    (
        Issue(
            code="unknown-tool",
            expected="add or greet",
            got="sing",
            message="There is no tool 'sing'. The nearest: add or greet.",
        ),
        "There is no tool 'sing'. The nearest: add or greet.",
        "没有提供这个名称的工具。应为：add or greet。模型写的是：sing。",
    ),
    (
        Issue(
            code="ambiguous",
            path="$.a",
            readings=("1", "2"),
            message="The value of 'a' can be read as 1 or as 2. Write it as JSON.",
        ),
        "a: The call can be read in two ways with different arguments, and nothing says which is meant. It may mean: 1; or 2.",
        "a：这个调用有两种读法，参数不同，无法确定是哪一种。可以读作：1；或 2。",
    ),
    (
        Issue(code="mentioned-call", message="The call stands in a sentence. Write a call on a line of its own."),
        "The call is in a sentence, a quotation, an example or a made-up result, which may only mention it. "
        "To have it run, ask for it directly.",
        "这个调用在句子、引文或示例中，可能只是提到它。如果需要执行，请直接提出。",
    ),
    (Issue(code="of-another-version", message="It is odd."), "It is odd.", "It is odd."),
]


@pytest.mark.parametrize(("issue", "english", "chinese"), LINES, ids=lambda each: each.code if isinstance(each, Issue) else "")
def test_an_issue_is_told_to_a_person(issue: Issue, english: str, chinese: str) -> None:
    assert (issue_line(issue, "en"), issue_line(issue, "zh")) == (english, chinese)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_chat_tells_it_in_its_language(lang: str) -> None:
    log = CallLog(lang=lang)
    entry = log.note(CallRejected(call=MADE_UP))
    assert entry is not None
    line = issue_line(MADE_UP.issues[0], lang)
    assert line in [text for _, text in call_lines(entry, speaker(lang), ())]
    assert call_line(entry, speaker(lang), 400, 9).plain.endswith(line)


def test_each_code_has_words_and_none_speaks_to_the_model() -> None:
    assert {code: f"issue_{code}" in texts_of("zh") for code in ISSUES} == dict.fromkeys(ISSUES, True)
    assert [
        text for text in ISSUES.values() if re.search(r"Do not|Leave it out|Write (?:a|the|it)|answer in plain words", text)
    ] == []


def test_the_page_says_it_in_the_same_chinese() -> None:
    script = (Path(__file__).parents[2] / "xmlcall/ui/static/i18n_codes_zh.js").read_text(encoding="utf-8")
    told = dict(re.findall(r'"?([a-z-]+)"?: ("[^"]*")', script.partition("const MARKUP")[0]))
    assert {code: json.loads(text) for code, text in told.items()} == {code: texts_of("zh")[f"issue_{code}"] for code in ISSUES}


def test_a_record_has_the_words_for_a_person_and_those_for_the_model() -> None:
    [mark] = issues_of(MADE_UP, None)
    assert (mark.why, mark.told) == (WROTE, MADE_UP.issues[0].message)
    call = parse(
        '<function_calls><invoke name="f"></invoke></function_calls>', Catalog([{"name": "g", "inputSchema": {}}])
    ).calls[0]
    assert isinstance(call, InvalidCall)
    [mark] = issues_of(call, None)
    assert mark.why == mark.told == "There is no tool 'f'. The nearest: g."
