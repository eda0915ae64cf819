"""OpenAI's responses as the proxy serves them; what it writes is read by OpenAI's own client."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import (
    ParsedResponseFunctionToolCall,
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
    ResponseStreamEvent,
)
from proxy_harness import bad_bodies
from pydantic import BaseModel, TypeAdapter

from xmlcall.proxy.formats.contract import (
    ApiError,
    Asked,
    CallPiece,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    TextPiece,
    ToolChoice,
    whole_response,
)
from xmlcall.proxy.formats.openai_responses import RESPONSES
from xmlcall.types.calls import Message, RawCall, Tool, ToolCall
from xmlcall.types.completion import Usage

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
WEATHER_TOOL = Tool(name="get_weather", description="Weather.", input_schema=WEATHER["parameters"])
TIME = {"type": "function", "name": "get_time"}
HI = {"role": "user", "content": "Hi"}
USER = Message(role="user", content="Hi")


def given(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Hi"} | fields


def function_call(identity: str = "call_a", arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": identity, "name": "get_weather", "arguments": arguments} | fields


def output(identity: str = "call_a", text: Any = "rain") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": identity, "output": text}


def said(*texts: str, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text} for text in texts]} | fields


def calling(content: str, *calls: tuple[str, dict[str, Any]]) -> Message:
    made = tuple(
        ToolCall(
            id=identity, name="get_weather", arguments=arguments, raw=RawCall(index=index, name="get_weather", dialect="native")
        )
        for index, (identity, arguments) in enumerate(calls)
    )
    return Message(role="assistant", content=content, tool_calls=made)


def result(identity: str = "call_a", text: str = "rain") -> Message:
    return Message(role="tool", content=text, tool_call_id=identity)


# -- reading: the history ----------------------------------------------------------------------------------------------

REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "x"}
PICTURE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="}

HISTORIES: dict[str, tuple[Any, list[Message]]] = {
    "a text": ("Grüße, 世界 \U0001f600", [Message(role="user", content="Grüße, 世界 \U0001f600")]),
    "an empty text": ("", [Message(role="user", content="")]),
    "a message without a type": ([HI], [USER]),
    "a message whose type is null": ([HI | {"type": None}], [USER]),
    "no parts": ([{"role": "user", "content": []}], [Message(role="user", content="")]),
    "parts": (
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}, PICTURE, {"type": "input_text", "text": "b"}]}],
        [Message(role="user", content="a\nb", images=("data:image/png;base64,AA==",))],
    ),
    "system and developer": (
        [{"role": "system", "content": "S"}, {"role": "developer", "content": "D"}, HI],
        [Message(role="system", content="S"), Message(role="system", content="D"), USER],
    ),
    "a call with its message before": (
        [HI, said("Let me see.", id="msg_1", status="completed"), function_call(arguments='{"city": "Zürich"}'), output()],
        [USER, calling("Let me see.", ("call_a", {"city": "Zürich"})), result()],
    ),
    "a call alone, with what a client may send back": (
        [
            function_call(id="fc_1", status="completed", namespace="n", arguments=""),
            output() | {"id": None, "status": "completed"},
        ],
        [calling("", ("call_a", {})), result()],
    ),
    "calls at once": (
        [said("Two."), function_call("call_a", '{"n": 1}'), function_call("call_b", '{"n": 2}'), output("call_b"), output()],
        [calling("Two.", ("call_a", {"n": 1}), ("call_b", {"n": 2})), result("call_b"), result()],
    ),
    "calls one after the other": (
        [function_call("call_a"), output("call_a"), function_call("call_b"), output("call_b"), said("Rain.")],
        [
            calling("", ("call_a", {})),
            result("call_a"),
            calling("", ("call_b", {})),
            result("call_b"),
            Message(role="assistant", content="Rain."),
        ],
    ),
    "text between calls": (
        [said("A"), function_call("call_a"), said("\n\nB"), function_call("call_b"), said("C"), output("call_a")],
        [calling("A\n\nBC", ("call_a", {}), ("call_b", {})), result("call_a")],
    ),
    "nothing stands between a call and its output": (
        [function_call("call_a"), said("A"), said("B"), function_call("call_b"), said("C"), output("call_a"), output("call_b")],
        [calling("ABC", ("call_a", {}), ("call_b", {})), result("call_a"), result("call_b")],
    ),
    "only the message before the call is the call's": (
        [said("A"), said("B"), function_call()],
        [Message(role="assistant", content="A"), calling("B", ("call_a", {}))],
    ),
    "a person's message ends an answer": (
        [function_call("call_a"), HI, function_call("call_b")],
        [calling("", ("call_a", {})), USER, calling("", ("call_b", {}))],
    ),
    "reasoning is not shown again": (
        [HI, REASONING, said("A"), REASONING, function_call(), {"type": "reasoning"}, output()],
        [USER, calling("A", ("call_a", {})), result()],
    ),
    "an output of parts": (
        [output(text=[{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}, PICTURE])],
        [Message(role="tool", content="a\nb", tool_call_id="call_a", images=("data:image/png;base64,AA==",))],
    ),
    "an output of nothing": ([output(text=[]), output(text="")], [result(text=""), result(text="")]),
    "a refusal": (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, HI],
        [Message(role="assistant", content="No."), USER],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_items_become_the_messages_of_a_chat(name: str) -> None:
    items, messages = HISTORIES[name]
    assert list(RESPONSES.read(given(input=items)).request.messages) == messages


def test_instructions_come_first() -> None:
    read = RESPONSES.read(given(instructions="Be brief.", input=[{"role": "developer", "content": "D"}, HI]))
    assert [message.content for message in read.request.messages] == ["Be brief.", "D", "Hi"]
    assert read.request.messages[0].role == "system"
    assert RESPONSES.read(given(instructions="")).request.messages == (USER,)


def test_many_calls_are_joined_in_linear_time() -> None:
    items = [function_call(f"call_{number}") for number in range(20_000)]
    (message,) = RESPONSES.read(given(input=items)).request.messages
    assert [call.raw.index for call in message.tool_calls] == list(range(20_000))


# -- reading: everything else ------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}

REQUESTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"tools": (), "choice": ToolChoice(), "parallel": True, "wire": "openai-responses"}),
    ({"tools": None, "tool_choice": None, "parallel_tool_calls": None}, {"tools": (), "choice": ToolChoice(), "parallel": True}),
    ({"tools": [WEATHER]}, {"tools": (WEATHER_TOOL,)}),
    ({"tools": [TIME | {"parameters": None, "description": None}]}, {"tools": (Tool(name="get_time"),)}),
    ({"tools": [WEATHER], "tool_choice": "required"}, {"choice": ToolChoice(mode="required")}),
    ({"tools": [WEATHER], "tool_choice": "none"}, {"choice": ToolChoice(mode="none")}),
    (
        {"tools": [WEATHER, TIME], "tool_choice": {"type": "function", "name": "get_weather"}},
        {"choice": ToolChoice(mode="required", name="get_weather")},
    ),
    (
        {
            "tools": [TIME, WEATHER],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
        },
        {"choice": ToolChoice(mode="required", allowed=frozenset({"get_weather"}))},
    ),
    ({"parallel_tool_calls": False}, {"parallel": False}),
    ({"previous_response_id": None, "conversation": None, "background": False, "prompt": None}, {"messages": (USER,)}),
]


@pytest.mark.parametrize(("fields", "parts"), REQUESTS)
def test_requests(fields: dict[str, Any], parts: dict[str, Any]) -> None:
    request = RESPONSES.read(given(**fields)).request
    assert {name: getattr(request, name) for name in parts} == parts


def form(**fields: Any) -> dict[str, Any]:
    return {"text": {"format": fields}}


SAMPLINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"max_tokens": None, "temperature": None, "json_schema": None, "options": {}, "extra": {}, "stop": (), "seed": None}),
    ({"max_output_tokens": 7, "temperature": 0, "top_p": 1}, {"max_tokens": 7, "temperature": 0, "options": {"top_p": 1}}),
    ({"top_k": 5, "chat_template_kwargs": {"x": 1}}, {"options": {"top_k": 5}, "extra": {"chat_template_kwargs": {"x": 1}}}),
    (form(type="text"), {"json_schema": None}),
    ({"text": {"verbosity": "low"}}, {"json_schema": None}),
    ({"text": {"format": None}}, {"json_schema": None}),
    (form(type="json_object"), {"json_schema": {"type": "object"}}),
    (form(type="json_schema", name="reply", schema=SCHEMA, strict=True), {"json_schema": SCHEMA}),
    (
        {
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"a": "b"},
            "store": True,
            "include": ["reasoning.encrypted_content"],
            "user": "u",
            "truncation": "auto",
        },
        {"extra": {}, "options": {}},
    ),
]


@pytest.mark.parametrize(("fields", "parts"), SAMPLINGS)
def test_sampling(fields: dict[str, Any], parts: dict[str, Any]) -> None:
    sampling = RESPONSES.read(given(**fields)).request.sampling
    assert {name: getattr(sampling, name) for name in parts} == parts


def test_whether_to_stream_and_the_model() -> None:
    asked = [RESPONSES.read(given(**fields)) for fields in ({}, {"stream": None}, {"stream": False}, {"stream": True})]
    assert [each.stream for each in asked] == [False, False, False, True]
    assert {each.model for each in asked} == {"m"}
    assert RESPONSES.read({"input": "Hi"}).model == ""


BAD: list[tuple[dict[str, Any], str]] = [
    *bad_bodies("responses"),
    ({"input": [function_call(arguments="[" * 100_000)]}, "input.0.arguments"),
    ({"tools": [TIME | {"name": f"t{number}"} for number in range(1001)]}, "tools"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=lambda value: str(value)[:60])
def test_bad_bodies_are_refused_by_the_name_of_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        RESPONSES.read(given(**fields))
    error = caught.value
    assert (error.status, error.kind, error.param) == (400, "invalid_request_error", param)
    assert param in error.message
    assert len(error.message) < 400
    assert RESPONSES.error(error)["error"] | {"message": ""} == {
        "message": "",
        "type": "invalid_request_error",
        "param": param,
        "code": None,
    }


def test_a_body_without_input_is_refused() -> None:
    with pytest.raises(ApiError, match="input: Field required"):
        RESPONSES.read({"model": "m"})


@pytest.mark.parametrize("kind", ["web_search", "file_search", "code_interpreter", "computer_use_preview", "mcp", None, []])
def test_tools_that_are_no_functions_are_refused_by_their_type(kind: Any) -> None:
    with pytest.raises(ApiError, match="type") as caught:
        RESPONSES.read(given(tools=[WEATHER, {"type": kind, "name": "x"}]))
    assert caught.value.param == "tools.1"
    assert repr(kind) in caught.value.message


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "prompt"])
def test_a_field_that_needs_a_memory_says_what_to_do_instead(field: str) -> None:
    with pytest.raises(ApiError, match="keeps no state: send the whole input"):
        RESPONSES.read(given(**{field: {"id": "x"} if field == "prompt" else "x"}))


# -- writing: what the client reads ------------------------------------------------------------------------------------

USAGE = Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=5)
STOP = ResponseEnded(finish_reason="stop", usage=USAGE)
CALLED = ResponseEnded(finish_reason="tool_calls", usage=USAGE)
CUT = ResponseEnded(finish_reason="length", usage=USAGE)


def called(index: int, city: str) -> CallPiece:
    raw = RawCall(index=index, name="get_weather")
    return CallPiece(index=index, call=ToolCall(id=f"call_{index}", name="get_weather", arguments={"city": city}, raw=raw))


def texts(*pieces: str) -> list[ResponseEvent]:
    return [TextPiece(text=piece) for piece in pieces]


# Events, and the items of the output that they make: kind, text or arguments, status.
ANSWERS: dict[str, tuple[list[ResponseEvent], list[tuple[str, str, str]]]] = {
    "text": ([*texts("Hel", "lo"), STOP], [("message", "Hello", "completed")]),
    "nothing": ([STOP], [("message", "", "completed")]),
    "nothing but pieces of nothing": ([*texts("", ""), ReasoningPiece(text=""), STOP], [("message", "", "completed")]),
    "white space": ([*texts("\n", " "), STOP], [("message", "\n ", "completed")]),
    "hard characters": (
        [*texts("世界 \U0001f600 \u2028\u0085", '"\\\r\n\r\ndata: x\n\n', "\0"), STOP],
        [("message", '世界 \U0001f600 \u2028\u0085"\\\r\n\r\ndata: x\n\n\0', "completed")],
    ),
    "a call": ([called(0, "Zürich"), CALLED], [("function_call", '{"city": "Zürich"}', "completed")]),
    "text and a call": (
        [*texts("\n", "Let me see.", "\n"), called(0, "Bern"), CALLED],
        [("message", "\nLet me see.\n", "completed"), ("function_call", '{"city": "Bern"}', "completed")],
    ),
    "white space after a call": (
        [*texts("A"), called(0, "Bern"), *texts("\n", "\n"), CALLED],
        [("message", "A", "completed"), ("function_call", '{"city": "Bern"}', "completed")],
    ),
    "two calls": (
        [called(0, "Bern"), *texts("\n"), called(1, ""), CALLED],
        [("function_call", '{"city": "Bern"}', "completed"), ("function_call", '{"city": ""}', "completed")],
    ),
    "text after a call is a new message": (
        [*texts("A"), called(0, "Bern"), *texts("\n", "B", "\n"), called(1, "Basel"), *texts(" "), CALLED],
        [
            ("message", "A", "completed"),
            ("function_call", '{"city": "Bern"}', "completed"),
            ("message", "\nB\n", "completed"),
            ("function_call", '{"city": "Basel"}', "completed"),
        ],
    ),
    "reasoning": (
        [ReasoningPiece(text="Hm, "), ReasoningPiece(text="世界"), *texts("\n\n", "Hello"), STOP],
        [("reasoning", "Hm, 世界", "completed"), ("message", "\n\nHello", "completed")],
    ),
    "reasoning and a call": (
        [ReasoningPiece(text="Hm"), called(0, "Bern"), CALLED],
        [("reasoning", "Hm", "completed"), ("function_call", '{"city": "Bern"}', "completed")],
    ),
    "reasoning in between": (
        [*texts("A"), ReasoningPiece(text="Hm"), *texts("B"), STOP],
        [("message", "A", "completed"), ("reasoning", "Hm", "completed"), ("message", "B", "completed")],
    ),
    "cut text": ([*texts("Hel"), CUT], [("message", "Hel", "incomplete")]),
    "cut reasoning": ([ReasoningPiece(text="Hm"), CUT], [("reasoning", "Hm", "completed"), ("message", "", "incomplete")]),
}
# What a whole answer, which is text and then calls, has in another way.
STREAMED_ONLY = {
    "white space after a call",
    "text after a call is a new message",
    "reasoning in between",
}


def serving(body: bytes, media_type: str) -> openai.OpenAI:
    """Make a client for which every answer is the same."""
    answer = httpx2.MockTransport(lambda request: httpx2.Response(200, content=body, headers={"content-type": media_type}))
    return openai.OpenAI(api_key="none", base_url="http://proxy/v1", max_retries=0, http_client=httpx2.Client(transport=answer))


def streamed(events: Iterable[ResponseEvent], asked: Asked) -> bytes:
    writer = RESPONSES.writer(asked)
    return writer.begin() + RESPONSES.ping + b"".join(writer.write(event) for event in events)


def sse(body: bytes) -> Iterator[dict[str, Any]]:
    for block in body.decode().split("\n\n")[:-1]:
        if not block.startswith(":"):
            event, data = block.split("\n")
            read = json.loads(data.removeprefix("data: "))
            assert event == f"event: {read['type']}"
            yield read


def seen(response: Response) -> list[tuple[str, str, str]]:
    """Return what the client has of an answer, in the form of the table."""
    found: list[tuple[str, str, str]] = []
    for item in response.output:
        if isinstance(item, ResponseFunctionToolCall):
            found.append((item.type, item.arguments, str(item.status)))
        else:
            assert isinstance(item, ResponseOutputMessage | ResponseReasoningItem)
            parts: Sequence[Any] = item.content or ()
            found.append((item.type, "".join(part.text for part in parts), str(item.status)))
    return found


def check_response(response: Response, end: ResponseEvent) -> None:
    assert Response.model_validate(response.model_dump(by_alias=True, warnings=False)).id.startswith("resp_")
    assert response.model == "m"
    assert response.status == ("completed" if end is not CUT else "incomplete")
    assert (response.incomplete_details and response.incomplete_details.reason) == ("max_output_tokens" if end is CUT else None)
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (5, 0)
    calls = [item for item in response.output if item.type == "function_call"]
    assert [(call.call_id, call.name) for call in calls] == [(f"call_{n}", "get_weather") for n in range(len(calls))]


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - STREAMED_ONLY))
def test_the_client_reads_whole_answers(name: str) -> None:
    events, expected = ANSWERS[name]
    data = RESPONSES.whole(RESPONSES.read(given(tools=[WEATHER])), whole_response(events))
    Response.model_validate(data)
    client = serving(json.dumps(data).encode(), "application/json")
    response = client.responses.create(model="m", input="Hi", tools=[WEATHER])
    assert seen(response) == expected
    assert response.output_text == "".join(text for kind, text, _ in expected if kind == "message")
    check_response(response, events[-1])


def test_a_whole_answer_has_text_before_calls() -> None:
    events, _ = ANSWERS["text after a call is a new message"]
    data = RESPONSES.whole(RESPONSES.read(given()), whole_response(events))
    assert [item["type"] for item in data["output"]] == ["message", "function_call", "function_call"]
    assert data["output"][0]["content"][0]["text"] == "A\nB\n "


@pytest.mark.parametrize("name", ANSWERS)
def test_the_client_reads_streamed_answers(name: str) -> None:
    events, expected = ANSWERS[name]
    body = streamed(events, RESPONSES.read(given(tools=[WEATHER], stream=True)))
    client = serving(body, "text/event-stream")
    with client.responses.stream(model="m", input="Hi", tools=[WEATHER]) as stream:
        told: list[Any] = list(stream)
    response = told[-1].response
    assert told[-1].type == f"response.{response.status}"
    assert seen(response) == expected
    check_response(response, events[-1])


def test_the_client_gives_the_final_response() -> None:
    events, expected = ANSWERS["text and a call"]
    client = serving(streamed(events, RESPONSES.read(given(tools=[WEATHER]))), "text/event-stream")
    with client.responses.stream(model="m", input="Hi", tools=[WEATHER]) as stream:
        final = stream.get_final_response()
    assert seen(final) == expected
    assert final.output_text == "\nLet me see.\n"
    called = final.output[1]
    assert isinstance(called, ParsedResponseFunctionToolCall)
    assert called.parsed_arguments == {"city": "Bern"}


class Answer(BaseModel):
    n: int


def test_the_client_reads_structured_text() -> None:
    client = serving(streamed([*texts('{"n"', ": 5}"), STOP], RESPONSES.read(given())), "text/event-stream")
    with client.responses.stream(model="m", input="Hi", text_format=Answer) as stream:
        assert stream.get_final_response().output_parsed == Answer(n=5)


EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_event_is_one_that_the_client_knows(name: str) -> None:
    asked = RESPONSES.read(given(tools=[WEATHER], metadata={"a": "b"}, text={"format": {"type": "json_object"}}))
    for event in sse(streamed(ANSWERS[name][0], asked)):
        assert EVENT.validate_python(event).type == event["type"]


@pytest.mark.parametrize("name", ANSWERS)
def test_events_are_numbered_and_their_pieces_make_the_items(name: str) -> None:
    """Build the answer again from deltas alone, as a client without our last event would."""
    events, expected = ANSWERS[name]
    told = list(sse(streamed(events, RESPONSES.read(given()))))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    built: dict[int, str] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in told[2:-1]:
        place = event["output_index"]
        if event["type"] == "response.output_item.added":
            assert place == len(built)
            assert event["item"]["status"] == "in_progress"
            built[place], items[place] = "", event["item"]
        elif event["type"] == "response.output_item.done":
            assert event["item"] | {"status": "", "content": "", "arguments": ""} == items[place] | {
                "status": "",
                "content": "",
                "arguments": "",
            }
            items[place] = event["item"]
        else:
            assert event["item_id"] == items[place]["id"]
            assert event.get("content_index", 0) == 0
            assert items[place]["status"] == "in_progress"
            built[place] += event.get("delta", "")
            ended = event["type"].endswith("part.done") and event["part"]["text"]
            assert (event.get("text") or event.get("arguments") or ended or built[place]) == built[place]
    assert [(items[place]["type"], built[place], items[place]["status"]) for place in items] == expected
    assert told[-1]["response"]["output"] == [items[place] for place in items]
    assert told[-1]["response"]["id"] == told[0]["response"]["id"]
    assert len({item["id"] for item in items.values()}) == len(items)


def kinds(events: Iterable[ResponseEvent]) -> list[str]:
    told = sse(streamed(events, RESPONSES.read(given())))
    return [event["type"].removeprefix("response.") for event in told][2:]


def test_the_order_of_events() -> None:
    events = [ReasoningPiece(text="Hm"), *texts("A", "B"), called(0, "Bern"), CALLED]
    part = ["output_item.added", "content_part.added"]
    done = ["content_part.done", "output_item.done"]
    assert kinds(events) == [
        *(*part, "reasoning_text.delta", "reasoning_text.done", *done),
        *(*part, "output_text.delta", "output_text.delta", "output_text.done", *done),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]


def test_pieces_are_told_at_once() -> None:
    writer = RESPONSES.writer(RESPONSES.read(given()))
    writer.begin()
    assert b'"delta": "A"' in writer.write(TextPiece(text="A"))
    written = writer.write(called(0, "Paris"))
    assert all(each in written for each in (b"output_text.done", b"function_call_arguments.delta", b"output_item.done"))


def test_half_of_a_surrogate_pair_is_written_as_utf8() -> None:
    body = streamed([*texts("\ud83d"), STOP], RESPONSES.read(given()))
    assert "?" in body.decode()


def test_a_ping_is_a_comment() -> None:
    ping = RESPONSES.ping
    assert ping.startswith(b":")
    assert ping.endswith(b"\n\n")
    assert list(sse(ping)) == []


FINISH_REASONS = [
    ("stop", "completed", None),
    ("tool_calls", "completed", None),
    ("length", "incomplete", {"reason": "max_output_tokens"}),
    ("content_filter", "incomplete", {"reason": "content_filter"}),
    ("other", "incomplete", {"reason": "max_output_tokens"}),
]


@pytest.mark.parametrize(("reason", "status", "details"), FINISH_REASONS)
def test_finish_reasons(reason: str, status: str, details: Any) -> None:
    events = [*texts("A"), ResponseEnded(finish_reason=reason, usage=Usage())]
    asked = RESPONSES.read(given())
    *_, last = sse(streamed(events, asked))
    for response in (last["response"], RESPONSES.whole(asked, whole_response(events))):
        assert (response["status"], response["incomplete_details"]) == (status, details)
        assert response["output"][0]["status"] == status
        assert ("completed_at" in response) == (status == "completed")
        assert response["usage"]["total_tokens"] == 0


def test_an_answer_repeats_the_request() -> None:
    fields = {
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "get_weather"},
        "tools": [WEATHER],
        "top_p": 0.9,
        "truncation": "auto",
        "user": "u",
    }
    data = RESPONSES.whole(RESPONSES.read(given(**fields, store=True)), whole_response([STOP]))
    assert {name: data[name] for name in fields} == fields
    assert (data["store"], data["object"], data["error"], data["previous_response_id"]) == (False, "response", None, None)
    plain = RESPONSES.whole(RESPONSES.read(given()), whole_response([STOP]))
    assert (plain["tools"], plain["tool_choice"], plain["parallel_tool_calls"]) == ([], "auto", True)
    assert (plain["text"], plain["truncation"], plain["temperature"]) == ({"format": {"type": "text"}}, "disabled", None)


FAILURES = [
    (ApiError("no\nway", status=502, kind="server_error", code="model_server_error"), "model_server_error", "server_error"),
    (ApiError("too long", code="context_length_exceeded"), "context_length_exceeded", "context_length_exceeded"),
    (ApiError("wait", status=429), None, "rate_limit_exceeded"),
    (ApiError("wrong", param="tools"), None, "invalid_prompt"),
]


@pytest.mark.parametrize(("error", "code", "failure"), FAILURES, ids=str)
def test_a_failure_ends_the_stream(error: ApiError, code: str | None, failure: str) -> None:
    writer = RESPONSES.writer(RESPONSES.read(given()))
    events = [*texts("A"), ReasoningPiece(text="Hm")]
    body = writer.begin() + b"".join(writer.write(event) for event in events) + writer.fail(error)
    with serving(body, "text/event-stream").responses.stream(model="m", input="Hi") as stream:
        received: list[Any] = list(stream)
    *_, told, failed = received
    assert (told.type, told.message, told.code, told.param) == ("error", error.message, code, error.param or None)
    assert failed.sequence_number == told.sequence_number + 1
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert (failed.response.error.code, failed.response.error.message) == (failure, error.message)
    assert seen(failed.response) == [("message", "A", "completed")]  # the reasoning was not done


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["text and a call", "two calls", "text after a call is a new message", "reasoning and a call"])
def test_an_answer_sent_back_is_the_message_that_it_was(name: str) -> None:
    """The engine knows its answers again by visible text and calls."""
    events, _ = ANSWERS[name]
    *_, last = sse(streamed(events, RESPONSES.read(given())))
    turn = whole_response(events)
    for sent in (last["response"]["output"], RESPONSES.whole(RESPONSES.read(given()), turn)["output"]):
        outputs = [output(call.id) for call in turn.calls]
        user, message, *results = RESPONSES.read(given(input=[HI, *sent, *outputs])).request.messages
        assert user == USER
        assert message.content.strip() == turn.text.strip()
        assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
            (call.id, call.name, call.arguments) for call in turn.calls
        ]
        assert [each.tool_call_id for each in results] == [call.id for call in turn.calls]
