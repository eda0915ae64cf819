"""The parts of a chat: the conversation, the log of calls, the status line."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xmlcall import LocalHost, Tool, ToolLoop, parse
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.cli.call_panel import CallLog, call_line, call_lines
from xmlcall.cli.chat import StatusLine
from xmlcall.cli.words import speaker
from xmlcall.hosts.router import HostState
from xmlcall.prompting.format import LANGUAGES
from xmlcall.turn.events import Answer, CallDenied, CallFinished, CallStarted, ReplyEnded, ReplyStarted
from xmlcall.turn_records.keeping import Conversation
from xmlcall.types.calls import Message, RawCall, TextContent, ToolCall, ToolResult
from xmlcall.types.completion import Usage
from xmlcall.types.events import TextDelta

START = [Message(role="system", content="Be brief.")]
ACTIONS = st.lists(st.sampled_from(["answer", "results", "nothing", "undo", "retry", "clear"]), max_size=20)


@given(ACTIONS)
def test_a_conversation_can_always_go_on(actions: list[str]) -> None:
    conversation = Conversation(START, "(ended)")
    for number, action in enumerate(actions):
        match action:
            case "undo":
                conversation.drop_last()
            case "clear":
                conversation.clear()
            case _:
                question = conversation.take_back() if action == "retry" else str(number)
                sent = conversation.ask(question or "again")
                assert [message.role for message in sent].count("user") >= 1
                more = {"answer": ["assistant"], "results": ["assistant", "user"]}.get(action, [])
                conversation.end([*sent, *(Message(role=role, content=role) for role in more)])  # type: ignore[arg-type]
        roles = [message.role for message in conversation.messages]
        assert roles[0] == "system"
        assert len(roles) == 1 or roles[-1] == "assistant"
        assert all(roles[at : at + 2] != ["user", "user"] for at in range(len(roles)))


def test_a_dropped_question_can_be_asked_again() -> None:
    conversation = Conversation([], "(ended)")
    assert not conversation.end(conversation.ask("one"))
    assert (conversation.messages, conversation.take_back()) == ([], "one")


def logged(text: str, result: str, arguments: dict[str, Any]) -> CallLog:
    log, call = CallLog(), ToolCall(id="1", name="echo", arguments=arguments, raw=RawCall(index=0, name="echo"))
    log.ask(text)
    log.note(ReplyEnded(number=1, reply=parse(""), usage=Usage()))
    log.note(CallStarted(call=call, host="files", host_tool="echo"))
    log.note(CallFinished(call=call, result=ToolResult(content=(TextContent(text=result),))))
    return log


RESULTS = st.one_of(st.text(max_size=300), st.dictionaries(st.text(max_size=9), st.text(max_size=300)).map(json.dumps))


@given(st.text(max_size=300), RESULTS, st.booleans(), st.sampled_from([30, 80, 200]), st.sampled_from(LANGUAGES))
def test_a_call_is_one_line_that_fits_and_obeys_nothing(value: str, result: str, alone: bool, width: int, lang: str) -> None:
    [entry] = logged("Go.", result, {"text": value} if alone else {"text": value, "more": [value]}).calls
    line = call_line(entry, speaker(lang), width, 9).plain
    assert cell_len(line) <= width
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line)
    opened = "".join(text for _, text in call_lines(entry, speaker(lang), ()))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", opened)


WEATHER = '{"location": "Paris", "temperature": 13.5, "condition": "rain", "humidity": 66}'


@pytest.mark.parametrize(
    ("width", "arguments", "result", "line"),
    [
        (60, {"location": "Paris"}, WEATHER, "call 1   files.echo(Paris) -> 13.5, rain, 66  0.0 s"),
        (
            100,
            {"location": "Paris"},
            WEATHER,
            "call 1   files.echo(Paris) -> temperature 13.5, condition rain, humidity 66  0.0 s",
        ),
        (60, {"a": 1, "b": True}, "2", "call 1   files.echo(a=1, b=true) -> 2  0.0 s"),
        (60, {"text": "a) -> 18 C"}, "", 'call 1   files.echo(text="a) -> 18 C") -> ok  0.0 s'),
        (60, {"text": True}, "[1]", "call 1   files.echo(true) -> [1]  0.0 s"),
        (60, {}, "one " * 40, "call 1   files.echo() -> one one one one one one one one..."),
    ],
)
def test_a_call_shows_its_value(width: int, arguments: dict[str, Any], result: str, line: str) -> None:
    [entry] = logged("Go.", result, arguments).calls
    assert call_line(entry, speaker("en"), width, 9).plain == line


async def test_a_call_that_does_not_run_names_its_server() -> None:
    """With two servers of one tool each says whose it was, under the name there, whoever refused it."""

    def echo(text: str, times: int) -> str:
        """Say it again."""
        return text * times

    def block(name: str, **values: Any) -> str:
        parameters = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in values.items())
        return f'<function_calls><invoke name="{name}">{parameters}</invoke></function_calls>'

    denied, unreadable = block("b__echo", text="hi", times=3), block("a__echo", text="hi")
    backend = ScriptedBackend([denied, unreadable, block("sing", text="hi"), "Done."])
    log = CallLog()
    async with ToolLoop(backend, [LocalHost([echo], name="a"), LocalHost([echo], name="b")], policy=[]) as loop:
        async for event in loop.run([Message(role="user", content="Say hi 3 times.")]):
            log.note(event)
    shown = [(entry.outcome, entry.target) for entry in log.calls]
    assert shown == [("denied", "b.echo"), ("rejected", "a.echo"), ("rejected", "sing")]


@pytest.mark.parametrize(("lang", "line"), [("en", "-> not allowed: no"), ("zh", "-> 未允许：no")])
def test_an_outcome_and_its_reason_are_joined_as_the_language_does_it(lang: str, line: str) -> None:
    log = CallLog()
    denied = ToolCall(id="1", name="echo", arguments={}, raw=RawCall(index=0, name="echo"))
    entry = log.note(CallDenied(call=denied, reason="no"))
    assert entry is not None
    assert call_line(entry, speaker(lang), 60, 9).plain.endswith(line)


def test_a_value_says_where_it_came_from_also_after_other_calls() -> None:
    log = logged("Look up Paula.", "Her id is 8821", {"text": "Paula"})
    call = ToolCall(id="2", name="send", arguments={"to": "8821", "text": "zebra"}, raw=RawCall(index=0, name="send"))
    log.note(ReplyEnded(number=2, reply=parse(""), usage=Usage()))
    log.note(CallStarted(call=call, host="mail", host_tool="send"))
    stopped = log.stop()
    assert stopped is not None
    shown = dict(call_lines(stopped, speaker("en"), ()))
    assert shown["from"].splitlines() == [
        "to is from the result of echo (call 1)",
        "text: this value is nowhere in the conversation; the model made it up or worked it out",
    ]
    assert shown["outcome"] == "stopped, unknown whether it ran"


PLACE = Tool(name="echo", input_schema={"properties": {"place": {"description": "such as Paris"}}})


@pytest.mark.parametrize(
    ("lang", "value", "words"),
    [
        ("en", "Paris", "place may be a translation of what you wrote; if not, it is from the tool's own description"),
        ("en", "Rome", "place may be a translation of what you wrote; if not, the model made it up or worked it out"),
        ("zh", "Paris", "place 可能是你所写内容的翻译；如果不是，就来自工具自己的描述"),
        ("zh", "Rome", "place 可能是你所写内容的翻译；如果不是，就是模型编造或推算的"),
    ],
)
def test_a_value_may_be_a_translation_of_the_request(lang: str, value: str, words: str) -> None:
    [entry] = logged("巴黎天气怎么样", "13.5", {"place": value}).calls
    assert words in [text for _, text in call_lines(entry, speaker(lang), [PLACE])]


@pytest.mark.parametrize(
    ("by", "shown"),
    [
        ("person", "you"),
        ("person, always", "you, for all such calls of this session"),
        ("--yes", "--yes"),
        ("allow files.read_* (xmlcall.toml, rule 2)\x1b[2J", r"allow files.read_* (xmlcall.toml, rule 2)\u001b[2J"),
    ],
)
def test_who_allowed_a_call_is_shown(by: str, shown: str) -> None:
    log, call = CallLog(), ToolCall(id="1", name="echo", arguments={}, raw=RawCall(index=0, name="echo"))
    log.note(CallStarted(call=call, host="files", host_tool="echo", by=by))
    log.note(CallFinished(call=call, result=ToolResult(content=(TextContent(text="hi"),))))
    log.note(CallDenied(call=call, reason="No.", by=by, host="files", host_tool="echo"))
    assert [entry.target for entry in log.calls] == ["files.echo", "files.echo"]
    allowed, denied = (dict(call_lines(entry, speaker("en"), ())) for entry in log.calls)
    assert (allowed["allowed by"], denied["denied by"]) == (shown, shown)
    assert ("denied by" in allowed, "allowed by" in denied) == (False, False)
    assert dict(call_lines(logged("Go.", "x", {}).calls[0], speaker("en"), ())).keys().isdisjoint({"allowed by", "denied by"})


@pytest.mark.parametrize(
    ("by", "lang", "shown"),
    [
        ("no person to ask", "en", "xmlcall: there was no terminal to ask on"),
        ("no person to ask", "zh", "xmlcall：没有终端可供询问"),
        ("repeated too often", "zh", "xmlcall：同样的调用连续出现太多次"),
    ],
)
def test_a_refusal_of_xmlcall_itself_is_told_in_words(by: str, lang: str, shown: str) -> None:
    log, call = CallLog(lang=lang), ToolCall(id="1", name="echo", arguments={}, raw=RawCall(index=0, name="echo"))
    entry = log.note(CallDenied(call=call, reason="No.", by=by))
    assert entry is not None
    say = speaker(lang)
    assert dict(call_lines(entry, say, ()))[say("denied_by_whom")] == shown


def test_the_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    line, usage = StatusLine(speaker("en")), Usage(prompt_tokens=1000, completion_tokens=40, cached_tokens=900)
    hosts = [HostState(name=kind, kind=kind, tools=1) for kind in ("answers", "failed", "off")]
    assert line.text("m\x1b", "xml", None, hosts, 80) == r"m\u001b | xml | servers 1/2"
    line.note(ReplyStarted(number=1))
    line.note(TextDelta(text="x", span=(0, 1)))
    now[0] += 2
    line.note(ReplyEnded(number=1, reply=parse("x"), usage=usage))
    line.note(Answer(text="x", stop_reason="end", messages=(), replies=1, usage=usage))
    whole = "m | xml | servers 1/2 | 1,040 of 4,096 tokens | 90% cached | 20 tokens/s"
    assert line.text("m", "xml", 4096, hosts, 80) == whole
    assert line.text("m", "xml", 4096, hosts, 40) == "m | xml | servers 1/2"
    assert all(cell_len(line.text("模型" * 40, "xml", 4096, hosts, width)) < width for width in range(3, 80))
