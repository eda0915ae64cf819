"""Anthropic's messages as a server reads and writes them; streams are read back by Anthropic's own SDK."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from proxy_harness import bad_bodies

from xmlcall.proxy.formats.anthropic import MESSAGES, read_count
from xmlcall.proxy.formats.contract import (
    ApiError,
    Asked,
    CallPiece,
    ChatRequest,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    Sampling,
    TextPiece,
    ToolChoice,
    whole_response,
)
from xmlcall.types.calls import Message, RawCall, Tool, ToolCall
from xmlcall.types.completion import Usage

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TIME = {"name": "get_time", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
BASH = {"type": "bash_20250124", "name": "bash"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "files"}
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PNG_URL = "data:image/png;base64,aGk="
HI: Any = {"role": "user", "content": "Hi"}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages) or [HI], **fields}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "call_1", "content": content, **fields}


def use(name: str, arguments: Any, identity: str = "call_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": arguments}


def call(name: str, arguments: dict[str, Any], index: int = 0, identity: str = "call_1") -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments, raw=RawCall(index=index, name=name, dialect="native"))


def said(role: Any, content: str, **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def told(content: str, **fields: Any) -> Message:
    return said("tool", content, tool_call_id="call_1", **fields)


def request(data: dict[str, Any]) -> ChatRequest:
    return MESSAGES.read(data).request


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI], [said("user", "Hi")]),
        ([user(text("Zürich \u2028"), text("b"))], [said("user", "Zürich \u2028\nb")]),
        ([user()], [said("user", "")]),
        ([user({"type": "image", "source": PNG})], [said("user", "", images=(PNG_URL,))]),
        (
            [
                user(
                    text("a"),
                    {"type": "image", "source": {"type": "url", "url": "https://x/y"}, "cache_control": {"type": "ephemeral"}},
                )
            ],
            [said("user", "a", images=("https://x/y",))],
        ),
        (
            [user({"type": "document", "title": "T", "context": None, "source": {"type": "text", "data": "body"}}, text("a"))],
            [said("user", "T\nbody\na")],
        ),
        ([HI, {"role": "system", "content": "Now."}], [said("user", "Hi"), said("system", "Now.")]),
        ([HI, {"role": "assistant", "content": "Yo"}, HI], [said("user", "Hi"), said("assistant", "Yo"), said("user", "Hi")]),
        ([HI, assistant(), HI], [said("user", "Hi"), said("assistant", ""), said("user", "Hi")]),
    ],
)
def test_messages(messages: list[Any], expected: list[Message]) -> None:
    assert request(body(*messages)).messages == tuple(expected)


def test_an_answer_of_ours_comes_back_as_it_was_said() -> None:
    thinking = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "redacted_thinking", "data": "x"}]
    answer = assistant(*thinking, text("Let me "), use("a", {"city": "Zürich"}), text("see."), use("b", {}, "call_2"))
    expected = said(
        "assistant", "Let me see.", tool_calls=(call("a", {"city": "Zürich"}), call("b", {}, index=1, identity="call_2"))
    )
    assert request(body(HI, answer, HI)).messages[1] == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([result("18 °C")], [told("18 °C")]),
        ([result(None)], [told("")]),
        ([result([])], [told("")]),
        ([{"type": "tool_result", "tool_use_id": "call_1"}], [told("")]),
        ([result([text("a"), text("b"), {"type": "image", "source": PNG}])], [told("a\nb", images=(PNG_URL,))]),
        ([result("x"), result("y"), text("so?")], [told("x"), told("y"), said("user", "so?")]),
        ([text("before"), result("x"), text("after")], [told("x"), said("user", "before\nafter")]),
        ([result("x"), {"type": "image", "source": PNG}], [told("x"), said("user", "", images=(PNG_URL,))]),
        ([result("no such city", is_error=True)], [told("Error: no such city")]),
        ([result("", is_error=True)], [told("Error: ")]),
        ([result("no such city", is_error=False)], [told("no such city")]),
        ([result("Error: none", is_error=True)], [told("Error: none")]),
        ([result("\n ERROR 5", is_error=True)], [told("\n ERROR 5")]),
        ([result("<tool_use_error>gone</tool_use_error>", is_error=True)], [told("<tool_use_error>gone</tool_use_error>")]),
        ([result("File error.log is gone", is_error=True)], [told("Error: File error.log is gone")]),
    ],
)
def test_results_come_before_what_the_user_says(content: list[Any], expected: list[Message]) -> None:
    assert request(body(HI, assistant(use("f", {})), user(*content))).messages[2:] == tuple(expected)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("Be brief.", "Be brief."),
        ([{**text("Be"), "cache_control": {"type": "ephemeral"}}, text("brief.")], "Be\nbrief."),
        ("", None),
        ([], None),
        (None, None),
    ],
)
def test_the_system_prompt_is_the_first_message(system: Any, expected: str | None) -> None:
    first = [] if expected is None else [said("system", expected)]
    assert request(body(system=system)).messages == (*first, said("user", "Hi"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"tools": None, "tool_choice": None}, {}),
        ({"tool_choice": {"type": "none"}}, {"choice": ToolChoice(mode="none")}),
        ({"tool_choice": {"type": "auto", "name": "unknown"}}, {}),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, {"parallel": False}),
        ({"tools": [WEATHER], "tool_choice": {"type": "any"}}, {"choice": ToolChoice(mode="required")}),
        (
            {"tools": [WEATHER, TIME], "tool_choice": {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}},
            {"choice": ToolChoice(mode="required", name="get_time"), "parallel": False},
        ),
    ],
)
def test_choices(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    read = request(body(**fields))
    assert {"choice": read.choice, "parallel": read.parallel} == {"choice": ToolChoice(), "parallel": True, **expected}
    assert read.wire == "anthropic"


def test_tools() -> None:
    read = request(body(tools=[{**WEATHER, "type": "custom", "cache_control": {"type": "ephemeral"}}, TIME]))
    assert read.tools == (
        Tool(name="get_weather", description="Weather.", input_schema=WEATHER["input_schema"]),
        Tool(name="get_time", input_schema={"type": "object"}),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Sampling(max_tokens=9)),
        (
            {"temperature": 0, "top_p": 0.5, "top_k": 7, "stop_sequences": ["a", "b"]},
            Sampling(max_tokens=9, temperature=0, stop=("a", "b"), options={"top_p": 0.5, "top_k": 7}),
        ),
        ({"temperature": None, "top_p": None, "stop_sequences": None, "stream": None}, Sampling(max_tokens=9)),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"}}, Sampling(max_tokens=9)),
        ({"service_tier": "auto"}, Sampling(max_tokens=9, extra={"service_tier": "auto"})),
        (
            {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}},
            Sampling(max_tokens=9, json_schema={"type": "object"}),
        ),
        ({"output_config": {"effort": "low"}}, Sampling(max_tokens=9)),
    ],
)
def test_sampling(fields: dict[str, Any], expected: Sampling) -> None:
    assert request(body(**fields)).sampling == expected


@pytest.mark.parametrize(("given", "expected"), [({}, False), ({"stream": False}, False), ({"stream": True}, True)])
def test_answers_are_streamed_if_asked_for(given: dict[str, Any], expected: bool) -> None:
    asked = MESSAGES.read(body(**given))
    assert (asked.stream, asked.model) == (expected, "m")


def test_counting_needs_no_limit_and_no_user_at_the_end() -> None:
    data = body(HI, assistant(text("Yo")), tools=[WEATHER], system="S")
    del data["max_tokens"]
    asked = read_count(data)
    assert [message.role for message in asked.request.messages] == ["system", "user", "assistant"]
    assert ([tool.name for tool in asked.request.tools], asked.request.sampling, asked.stream) == (
        ["get_weather"],
        Sampling(),
        False,
    )


# -- bad requests ------------------------------------------------------------------------------------------------------

WRONG = [({}, "messages"), *((body(**fields), param) for fields, param in bad_bodies("anthropic"))]


@pytest.mark.parametrize(("data", "param"), WRONG)
def test_wrong_bodies(data: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        MESSAGES.read(data)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(f"{param}: ")
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (body(tools=[SEARCH]), ["custom", "input_schema", "web_search_20250305", "'web_search'"]),
        (body(tools=[BASH]), ["custom", "bash_20250124", "'bash'"]),
        (body(tool_choice={"type": "any"}), ["[]", "'any'"]),
        (body(tool_choice={"type": "tool", "name": "f"}, tools=[TIME, WEATHER]), ["['get_time', 'get_weather']", "'f'"]),
        (body(user(use("f", {}))), ["tool_use", "role assistant", "role user"]),
        (body(user({"type": "video"})), ["'video'", "'text', 'image', 'document'"]),
    ],
)
def test_messages_of_errors_say_what_to_do(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ApiError) as caught:
        MESSAGES.read(data)
    assert [word for word in words if word not in caught.value.message] == []


@pytest.mark.parametrize("data", [body(messages=[]), body(tools=[SEARCH]), body({"role": "user", "content": 5})])
def test_counting_refuses_the_same(data: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        read_count(data)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_type_of_their_status(status: int, kind: str) -> None:
    error = ApiError("no", status=status, kind="server_error", param="p", code="c")
    assert MESSAGES.error(error) == {"type": "error", "error": {"type": kind, "message": "no"}}


# -- answers -----------------------------------------------------------------------------------------------------------

ASKED = MESSAGES.read(body(stream=True))
PARIS, NOW = call("get_weather", {"city": "Zürich \u2028 \"'"}), call("get_time", {}, index=1, identity="call_2")
USAGE = Usage(prompt_tokens=30, completion_tokens=7, cached_tokens=20)


def called(made: ToolCall) -> CallPiece:
    return CallPiece(index=made.raw.index, call=made)


def ended(reason: str = "stop", usage: Usage = USAGE) -> ResponseEnded:
    return ResponseEnded(finish_reason=reason, usage=usage)


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": ""}


PARIS_USE, NOW_USE = use("get_weather", PARIS.arguments), use("get_time", {}, "call_2")

# Events, and the content blocks of the answer streamed and whole.
ANSWERS: list[tuple[list[ResponseEvent], list[Any], list[Any]]] = [
    ([ended()], [], []),
    ([TextPiece(text=""), ReasoningPiece(text=""), ended()], [], []),
    ([TextPiece(text="Zür"), TextPiece(text="ich \u2028"), ended()], [text("Zürich \u2028")], [text("Zürich \u2028")]),
    ([ReasoningPiece(text="h"), ReasoningPiece(text="m"), ended()], [thought("hm")], [thought("hm")]),
    (
        [ReasoningPiece(text="hm"), TextPiece(text="a"), called(PARIS), called(NOW), ended("tool_calls")],
        [thought("hm"), text("a"), PARIS_USE, NOW_USE],
        [thought("hm"), text("a"), PARIS_USE, NOW_USE],
    ),
    (
        [TextPiece(text="a"), called(PARIS), TextPiece(text="b"), ReasoningPiece(text="hm"), called(NOW), ended("tool_calls")],
        [text("a"), PARIS_USE, text("b"), thought("hm"), NOW_USE],
        [thought("hm"), text("ab"), PARIS_USE, NOW_USE],
    ),
]


def stream(events: list[ResponseEvent], asked: Asked = ASKED) -> bytes:
    writer = MESSAGES.writer(asked)
    return b"".join([writer.begin(), MESSAGES.ping, *(writer.write(event) for event in events)])


def client(content: bytes, media_type: str, status: int = 200) -> anthropic.Anthropic:
    def answer(asked: httpx2.Request) -> httpx2.Response:
        MESSAGES.read(json.loads(asked.content))
        return httpx2.Response(status, content=content, headers={"content-type": media_type})

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="none", base_url="http://proxy", http_client=http, max_retries=0)


def read_stream(content: bytes) -> anthropic.types.Message:
    with client(content, MESSAGES.media_type).messages.stream(model="m", max_tokens=9, messages=[HI]) as events:
        return events.get_final_message()


@pytest.mark.parametrize(("events", "streamed", "whole"), ANSWERS)
def test_the_sdk_reads_answers(events: list[ResponseEvent], streamed: list[Any], whole: list[Any]) -> None:
    stop_reason = "tool_use" if len(events) > 4 else "end_turn"
    data = MESSAGES.whole(ASKED, whole_response(events))
    received = client(json.dumps(data).encode(), "application/json").messages.create(model="m", max_tokens=9, messages=[HI])
    for message, content in ((read_stream(stream(events)), streamed), (received, whole)):
        assert [block.to_dict() for block in message.content] == content
        assert (message.model, message.role, message.stop_reason, message.stop_sequence) == ("m", "assistant", stop_reason, None)
        assert message.id.startswith("msg_")
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (10, 20, 7)


@pytest.mark.parametrize(("events", "streamed", "whole"), ANSWERS)
def test_blocks_of_a_stream_follow_each_other(events: list[ResponseEvent], streamed: list[Any], whole: list[Any]) -> None:
    lines = [json.loads(line[6:]) for line in stream(events).split(b"\n") if line.startswith(b"data: ")]
    of_blocks = [(line["type"].removeprefix("content_block_"), line["index"]) for line in lines if "index" in line]
    edges = [pair for pair in of_blocks if pair[0] != "delta"]
    assert edges == [(edge, number) for number in range(len(streamed)) for edge in ("start", "stop")]
    assert [index for _, index in of_blocks] == sorted(index for _, index in of_blocks)
    assert [line["type"] for line in lines[:2]] == ["message_start", "ping"]
    assert [line["type"] for line in lines[-2:]] == ["message_delta", "message_stop"]


def test_a_streamed_answer_can_be_sent_back() -> None:
    message = read_stream(stream(ANSWERS[-1][0]))
    answer = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
    assert request(body(HI, answer, HI)).messages[1] == said("assistant", "ab", tool_calls=(PARIS, NOW))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "end_turn"),
        ("tool_calls", "tool_use"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("other", "max_tokens"),
    ],
)
def test_stop_reasons(reason: str, expected: str) -> None:
    events: list[ResponseEvent] = [TextPiece(text="a"), ended(reason)]
    assert MESSAGES.whole(ASKED, whole_response(events))["stop_reason"] == expected
    assert read_stream(stream(events)).stop_reason == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(), {"input_tokens": 0, "output_tokens": 0}),
        (Usage(prompt_tokens=3, completion_tokens=4), {"input_tokens": 3, "output_tokens": 4}),
        (
            Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=0),
            {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 0},
        ),
        (
            Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=5),
            {"input_tokens": 0, "output_tokens": 4, "cache_read_input_tokens": 5},
        ),
    ],
)
def test_cached_tokens_are_counted_apart(usage: Usage, expected: dict[str, int]) -> None:
    assert MESSAGES.whole(ASKED, whole_response([ended(usage=usage)]))["usage"] == expected


def fixed(answer: bytes) -> bytes:
    """Replace the random id."""
    start = answer.index(b'"msg_') + 5
    return answer[:start] + answer[start + 24 :]


def lines(*events: tuple[str, str]) -> Iterator[bytes]:
    for kind, fields in events:
        yield f'event: {kind}\ndata: {{"type": "{kind}"{fields}}}\n\n'.encode()


def test_a_stream_to_the_byte() -> None:
    written = fixed(stream([ReasoningPiece(text="ü"), TextPiece(text="\ud83d"), called(NOW), ended("tool_calls")]))
    message = '"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null'
    assert written == b"".join(
        lines(
            ("message_start", f', "message": {{"id": "msg_", {message}, "usage": {{"input_tokens": 0, "output_tokens": 0}}}}'),
            ("ping", ""),
            ("content_block_start", ', "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}'),
            ("content_block_delta", ', "index": 0, "delta": {"type": "thinking_delta", "thinking": "ü"}'),
            ("content_block_delta", ', "index": 0, "delta": {"type": "signature_delta", "signature": ""}'),
            ("content_block_stop", ', "index": 0'),
            ("content_block_start", ', "index": 1, "content_block": {"type": "text", "text": ""}'),
            ("content_block_delta", ', "index": 1, "delta": {"type": "text_delta", "text": "?"}'),
            ("content_block_stop", ', "index": 1'),
            (
                "content_block_start",
                ', "index": 2, "content_block": {"type": "tool_use", "id": "call_2", "name": "get_time", "input": {}}',
            ),
            ("content_block_delta", ', "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}'),
            ("content_block_stop", ', "index": 2'),
            (
                "message_delta",
                ', "delta": {"stop_reason": "tool_use", "stop_sequence": null}, '
                '"usage": {"input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": 20}',
            ),
            ("message_stop", ""),
        )
    )


def test_empty_pieces_write_nothing() -> None:
    writer = MESSAGES.writer(ASKED)
    writer.begin()
    assert [writer.write(event) for event in (TextPiece(text=""), ReasoningPiece(text=""))] == [b"", b""]


def test_the_sdk_raises_an_error_in_mid_stream() -> None:
    writer = MESSAGES.writer(ASKED)
    failure = writer.fail(ApiError("the model server is gone", status=503))
    assert failure == (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "the model server is gone"}}\n\n'
    )
    with pytest.raises(anthropic.APIStatusError, match="the model server is gone"):
        read_stream(writer.begin() + writer.write(TextPiece(text="a")) + failure)


def test_the_sdk_raises_an_error_instead_of_an_answer() -> None:
    error = json.dumps(MESSAGES.error(ApiError("messages: none", status=400))).encode()
    with pytest.raises(anthropic.BadRequestError, match="messages: none"):
        client(error, "application/json", 400).messages.create(model="m", max_tokens=9, messages=[HI])
