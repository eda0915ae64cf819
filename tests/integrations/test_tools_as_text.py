"""Requests written for a model that knows nothing of tools, and its replies read, without any gateway."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cases import cuts
from proxy_harness import ADD, ECHO, add, block, body

from xmlcall import Asking
from xmlcall.errors import UsageError
from xmlcall.integrations.tools_as_text import Rewriter, Rewritten, StreamedReply, read_asking
from xmlcall.proxy.formats.contract import ApiError, CallPiece, ResponseEnded, TextPiece, whole_response

ASKED = "What is 17 + 25?"
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "1 + 2?"},
    {"role": "assistant", "content": "I add.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "3"},
]


def rewritten(data: Mapping[str, Any], mark: Any = True) -> Rewritten:
    settings = read_asking(mark)
    assert settings is not None
    made = Rewriter().rewritten(data, settings)
    assert made is not None
    return made


def reading(**fields: Any) -> StreamedReply:
    made = rewritten(body(ASKED, **fields))
    assert made.reading is not None
    return made.reading()


def sent(data: Mapping[str, Any], mark: Any = True) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in rewritten(data, mark).messages]


def read(pieces: Sequence[str], reason: str = "stop", **fields: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """Read a reply in pieces; give its text, its calls and why it ended."""
    reply = reading(**fields)
    events = [event for piece in pieces for event in reply.feed(piece)]
    answer = whole_response([*events, *reply.end(reason)])
    return answer.text, [(call.name, dict(call.arguments)) for call in answer.calls], answer.finish_reason


# -- requests ----------------------------------------------------------------------------------------------------------


def test_tools_are_in_the_prompt_and_nowhere_else() -> None:
    data = {**body(ASKED, tool_choice="auto", parallel_tool_calls=True, temperature=0.5), "metadata": {"of": "the gateway"}}
    made = rewritten(data).over(data)
    assert made.keys() == {"model", "messages", "temperature", "metadata"}
    system, user = made["messages"]
    assert "Add two integers." in system["content"]
    assert "<function_calls>" in system["content"]
    assert user["content"].startswith(f"{ASKED}\n\n")
    assert data["tools"] == [ADD, ECHO]


def test_calls_and_results_of_the_history_are_text() -> None:
    messages = sent(body(*HISTORY))
    assert [role for role, _ in messages] == ["system", "user", "assistant", "user"]
    assert messages[0][1].endswith("Be short.")
    assert messages[2][1] == f"I add.\n\n{add(1, 2)}"
    assert messages[3][1].startswith("<function_results>")
    assert "3" in messages[3][1]


def test_a_history_with_calls_is_text_where_no_tools_are_sent_any_more() -> None:
    made = rewritten(body(*HISTORY, tools=()))
    assert made.reading is None
    assert [message["role"] for message in made.messages] == ["system", "user", "assistant", "user"]
    assert made.messages[0]["content"] == "Be short."


def test_without_tools_and_calls_a_request_goes_as_it_is() -> None:
    assert Rewriter().rewritten(body(ASKED, tools=()), Asking()) is None


def test_a_picture_stays() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    said = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}
    assert rewritten(body(said)).messages[-1]["content"][1] == picture


SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "title": "Unlikely"}}}
# field of the request -> words at the end of what the model is sent
DEMANDS: list[tuple[dict[str, Any], str, bool]] = [
    ({"tool_choice": "required"}, "Call a tool now", True),
    ({"tool_choice": {"type": "function", "function": {"name": "echo"}}}, "Call the tool echo now", True),
    ({"tool_choice": "auto"}, "now:", False),
    ({"response_format": SCHEMA}, "Unlikely", True),
]


@pytest.mark.parametrize(("fields", "words", "there"), DEMANDS)
def test_what_is_demanded_is_asked_for_in_words(fields: dict[str, Any], words: str, there: bool) -> None:
    data = body(ASKED, **fields)
    assert (words in sent(data)[-1][1]) is there
    assert not {"tool_choice", "response_format"} & rewritten(data).over(data).keys()


def test_with_tool_choice_none_nothing_is_offered_and_nothing_read() -> None:
    data = body(ASKED, tool_choice="none", response_format=SCHEMA)
    made = rewritten(data)
    assert made.reading is None
    assert made.over(data) == {"model": "any", "messages": [{"role": "user", "content": ASKED}], "response_format": SCHEMA}


MARKS: list[tuple[Any, str]] = [
    (True, "<function_calls>"),
    ({}, "<function_calls>"),
    ({"dialect": "hermes"}, "<tool_call>"),
    ({"lang": "zh"}, "工具"),
    ({"family": "schema"}, '"integer"'),
]


@pytest.mark.parametrize(("mark", "words"), MARKS)
def test_how_a_model_is_asked(mark: Any, words: str) -> None:
    assert words in sent(body(ASKED), mark)[0][1]


def test_the_reminder_can_be_left_out() -> None:
    assert sent(body(ASKED), {"reminder": False})[-1] == ("user", ASKED)


@pytest.mark.parametrize("mark", [1, "yes", [], {"dialect": "klingon"}, {"dialect": 3}, {"color": "red"}, {"reminder": "no"}])
def test_a_wrong_mark_is_refused(mark: Any) -> None:
    with pytest.raises(UsageError):
        read_asking(mark)


@pytest.mark.parametrize("mark", [None, False])
def test_a_model_that_is_not_marked_has_no_settings(mark: Any) -> None:
    assert read_asking(mark) is None


@pytest.mark.parametrize(
    "fields", [{"n": 2}, {"logprobs": True}, {"tool_choice": {"name": "fly"}}, {"messages": [{"role": "x"}]}]
)
def test_what_cannot_be_done_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as error:
        Rewriter().rewritten(body(ASKED) | fields, Asking())
    assert error.value.status == 400


# -- replies -----------------------------------------------------------------------------------------------------------

INVOKE = '<invoke name="{}">\n<parameter name="a">1</parameter>\n</invoke>'
UNKNOWN = INVOKE.format("fly")
ADDED = ("add", {"a": 17, "b": 25})
TWICE = block(ADDED, ADDED)

# the reply -> text, calls, why it ended
REPLIES: dict[str, tuple[str, tuple[str, list[tuple[str, Any]], str]]] = {
    "text": ("It is 3.", ("It is 3.", [], "stop")),
    "a call": (add(17, 25), ("", [ADDED], "tool_calls")),
    "text and a call": (f"I add. {add(17, 25)}", ("I add. ", [ADDED], "tool_calls")),
    "two calls": (block(ADDED, ("echo", {"text": "好"})), ("", [ADDED, ("echo", {"text": "好"})], "tool_calls")),
    "one call twice": (TWICE, ("", [ADDED], "tool_calls")),
    "a wrong value": (add("one", 2), ("", [("add", {"a": "one", "b": 2})], "tool_calls")),
    "a value is missing": (block(("add", {"a": 5})), ("", [("add", {"a": 5})], "tool_calls")),
    "an unknown tool": (block(("fly", {"a": 1})), (UNKNOWN, [], "stop")),
    "a call and an unknown one": (block(ADDED, ("fly", {"a": 1})), (UNKNOWN, [ADDED], "tool_calls")),
    "text after the calls": (f"{add(17, 25)}\nIt is 42.", ("", [ADDED], "tool_calls")),
    "Hermes": ('<tool_call>\n{"name": "add", "arguments": {"a": 17, "b": 25}}\n</tool_call>', ("", [ADDED], "tool_calls")),
}


@pytest.mark.parametrize("case", REPLIES)
def test_what_a_reply_is_read_as(case: str) -> None:
    reply, expected = REPLIES[case]
    assert read([reply]) == expected


@pytest.mark.sweep
@pytest.mark.parametrize("case", REPLIES)
def test_however_a_reply_is_cut_it_is_read_the_same(case: str) -> None:
    reply, expected = REPLIES[case]
    assert [pieces for pieces in cuts(reply) if read(pieces) != expected] == []


def test_text_goes_out_as_it_comes_and_a_call_when_it_is_whole() -> None:
    reply = reading()
    assert reply.feed("I add. ") == [TextPiece(text="I add. ")]
    assert reply.feed(add(17, 25)[:-20]) == []
    [called] = reply.feed(add(17, 25)[-20:])
    assert isinstance(called, CallPiece)
    assert (called.index, called.call.name, called.call.arguments) == (0, "add", {"a": 17, "b": 25})
    assert [type(event) for event in reply.end("stop")] == [ResponseEnded]


def test_a_call_runs_as_often_as_the_person_said() -> None:
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "Add 17 and 25 two times"}]}
    assert read([TWICE], **said)[1] == [ADDED, ADDED]


def test_a_call_that_is_cut_off_is_text_and_told_as_cut() -> None:
    begun = add(17, 25)[:-40]
    text, calls, reason = read([begun], "length")
    assert (text and text in begun, calls, reason) == (True, [], "length")


def test_a_call_that_was_copied_does_not_run() -> None:
    copied = f"What does {add(17, 25)} do?"
    text, calls, _ = read([add(17, 25)], messages=[{"role": "user", "content": copied}])
    assert calls == []
    assert '<parameter name="a">17</parameter>' in text


def test_only_what_was_chosen_may_be_called() -> None:
    choice: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "echo"}}}
    text, calls, _ = read([add(17, 25)], **choice)
    assert calls == []
    assert 'name="add"' in text


def test_only_one_call_where_no_more_are_wanted() -> None:
    assert read([block(ADDED, ("echo", {"text": "x"}))], parallel_tool_calls=False)[1] == [ADDED]


def test_a_name_that_no_model_can_write_is_the_callers_again() -> None:
    tool = {"type": "function", "function": {**ADD["function"], "name": "add two"}}
    assert read([add(17, 25).replace('"add"', '"add_two"')], tools=[tool])[1] == [("add two", ADDED[1])]


def test_thinking_is_told_apart_from_text() -> None:
    reply = reading()
    answer = whole_response([*reply.feed("", "First. "), *reply.feed("<think>Then.</think>It is 3."), *reply.end("stop")])
    assert (answer.reasoning, answer.text) == ("First. Then.", "It is 3.")


@pytest.mark.parametrize(("text", "code"), [("<function_results>3</function_results>", "invented_results")])
def test_what_is_no_answer_is_an_error(text: str, code: str) -> None:
    with pytest.raises(ApiError) as error:
        read([text])
    assert error.value.code == code


TOLD: list[tuple[str, dict[str, Any], str]] = [
    (add("secret", 2), {}, "does not fit its schema"),
    (block(("fly", {"a": "secret"})), {}, "cannot run"),
    ("secret", {"tool_choice": "required"}, "a call was required"),
]


@pytest.mark.parametrize(("reply", "fields", "words"), TOLD)
def test_the_log_tells_what_went_wrong_without_values(
    caplog: pytest.LogCaptureFixture, reply: str, fields: dict[str, Any], words: str
) -> None:
    read([reply], **fields)
    assert words in caplog.text
    assert "secret" not in caplog.text
