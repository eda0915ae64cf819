"""Ollama's native API as the proxy serves it; what it writes is read by Ollama's own client."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import ollama
import pytest
from proxy_harness import bad_bodies

from xmlcall.proxy.formats.contract import (
    ApiError,
    CallPiece,
    Format,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    Sampling,
    TextPiece,
    ToolChoice,
    whole_response,
)
from xmlcall.proxy.formats.ollama import (
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    VERSION,
    loaded,
    running,
    show,
    tags,
    with_tools,
)
from xmlcall.types.calls import Message, RawCall, Tool, ToolCall
from xmlcall.types.completion import CompletionRequest, Usage
from xmlcall.wire.ollama import chat_body, context_length_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WEATHER_TOOL = Tool.from_openai(WEATHER)
USER = {"role": "user", "content": "Hi"}


def picture(head: bytes) -> str:
    return base64.b64encode(head + b"\x00rest").decode()


def history_call(identity: str, arguments: dict[str, Any], index: int = 0) -> ToolCall:
    raw = RawCall(index=index, name="get_weather", dialect="native")
    return ToolCall(id=identity, name="get_weather", arguments=arguments, raw=raw)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "gemma3:4b", "messages": [USER]} | fields


def generate(**fields: Any) -> dict[str, Any]:
    return {"model": "gemma3:4b", "prompt": "Hi"} | fields


# -- reading messages --------------------------------------------------------------------------------------------------

PNG, JPEG, GIF, WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\n\x00\x00\x00WEBPVP8 "
BROKEN_LINES = base64.encodebytes(PNG + bytes(100)).decode()

MESSAGES: list[tuple[dict[str, Any], Message]] = [
    (USER, Message(role="user", content="Hi")),
    ({"role": "user"}, Message(role="user", content="")),
    ({"role": "user", "content": None, "images": None, "tool_calls": None}, Message(role="user", content="")),
    ({"role": "user", "content": "Grüße 你好 \U0001f600\u2028"}, Message(role="user", content="Grüße 你好 \U0001f600\u2028")),
    ({"role": "system", "content": "Be brief."}, Message(role="system", content="Be brief.")),
    ({"role": "assistant", "content": "Yes", "thinking": "Hm", "images": []}, Message(role="assistant", content="Yes")),
    (
        {"role": "user", "content": "?", "images": [picture(PNG), picture(JPEG), picture(GIF), picture(WEBP), picture(b"BM")]},
        Message(
            role="user",
            content="?",
            images=(
                f"data:image/png;base64,{picture(PNG)}",
                f"data:image/jpeg;base64,{picture(JPEG)}",
                f"data:image/gif;base64,{picture(GIF)}",
                f"data:image/webp;base64,{picture(WEBP)}",
                f"data:image/png;base64,{picture(b'BM')}",
            ),
        ),
    ),
    (
        {"role": "user", "content": "?", "images": [picture(b"RIFF\n\x00\x00\x00WAVE")]},
        Message(role="user", content="?", images=("data:image/png;base64," + picture(b"RIFF\n\x00\x00\x00WAVE"),)),
    ),
    (
        {"role": "user", "content": "?", "images": [BROKEN_LINES]},
        Message(role="user", content="?", images=("data:image/png;base64," + BROKEN_LINES.replace("\n", ""),)),
    ),
    (
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_9", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Zürich", "n": 1}}},
                {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'}},
                {"id": None, "function": {"name": "get_weather"}},
                {"function": {"name": "get_weather", "arguments": ""}},
            ],
        },
        Message(
            role="assistant",
            content="",
            tool_calls=(
                history_call("call_9", {"city": "Zürich", "n": 1}),
                history_call("", {"city": "Bern"}, 1),
                history_call("", {}, 2),
                history_call("", {}, 3),
            ),
        ),
    ),
    ({"role": "tool", "tool_name": "get_weather", "content": "rain"}, Message(role="tool", content="rain", name="get_weather")),
    (
        {"role": "tool", "name": "get_weather", "tool_call_id": "call_9", "content": ""},
        Message(role="tool", content="", name="get_weather", tool_call_id="call_9"),
    ),
    # langchain-ollama, whose ids Ollama's client drops
    ({"role": "tool", "content": "rain", "images": []}, Message(role="tool", content="rain")),
    ({"role": "tool", "content": "rain", "tool_name": "", "tool_call_id": ""}, Message(role="tool", content="rain")),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES)
def test_messages(data: dict[str, Any], message: Message) -> None:
    assert OLLAMA_CHAT.read(chat(messages=[USER, data])).request.messages == (Message(role="user", content="Hi"), message)


# -- reading the rest --------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}

SAMPLING: list[tuple[dict[str, Any], Sampling]] = [
    ({}, Sampling()),
    ({"options": None, "format": None, "keep_alive": None, "think": None, "truncate": None}, Sampling()),
    ({"options": {}, "format": ""}, Sampling()),
    ({"options": {"num_predict": 5, "temperature": 0, "seed": 0}}, Sampling(max_tokens=5, temperature=0.0, seed=0)),
    ({"options": {"num_predict": 5.0, "seed": 7.0, "top_k": 40.0}}, Sampling(max_tokens=5, seed=7, options={"top_k": 40})),
    ({"options": {"num_predict": -1, "seed": -1}}, Sampling()),
    ({"options": {"num_predict": -2}}, Sampling()),
    ({"options": {"num_predict": 0}}, Sampling()),
    ({"options": {"stop": ["a", "b"]}}, Sampling(stop=("a", "b"))),
    ({"options": {"stop": "</s>"}}, Sampling(stop=("</s>",))),
    ({"options": {"stop": [], "temperature": None, "top_p": None}}, Sampling()),
    (
        {"options": {"top_p": 1, "top_k": 0, "min_p": 0, "presence_penalty": -1, "frequency_penalty": 2, "repeat_penalty": 1.1}},
        Sampling(
            options={
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "presence_penalty": -1.0,
                "frequency_penalty": 2.0,
                "repeat_penalty": 1.1,
            }
        ),
    ),
    (
        {"options": {"num_ctx": 8192, "mirostat": 2, "temperature": 0.5}},
        Sampling(temperature=0.5, extra={"options": {"num_ctx": 8192, "mirostat": 2}}),
    ),
    (
        {"keep_alive": 0, "think": False, "truncate": False, "shift": False, "logprobs": True, "top_logprobs": 3},
        Sampling(extra={"keep_alive": 0, "think": False, "truncate": False, "shift": False, "logprobs": True, "top_logprobs": 3}),
    ),
    (
        {"keep_alive": "5m", "think": "high", "new_field": [1]},
        Sampling(extra={"keep_alive": "5m", "think": "high", "new_field": [1]}),
    ),
    ({"keep_alive": 1.5}, Sampling(extra={"keep_alive": 1.5})),
    ({"format": "json"}, Sampling(json_schema={"type": "object"})),
    ({"format": SCHEMA}, Sampling(json_schema=SCHEMA)),
    ({"format": {}}, Sampling(json_schema={})),
]


@pytest.mark.parametrize(("fields", "sampling"), SAMPLING)
@pytest.mark.parametrize(("form", "body"), [(OLLAMA_CHAT, chat), (OLLAMA_GENERATE, generate)], ids=["chat", "generate"])
def test_sampling(form: Format, body: Callable[..., dict[str, Any]], fields: dict[str, Any], sampling: Sampling) -> None:
    assert form.read(body(**fields)).request.sampling == sampling


@pytest.mark.parametrize(
    ("given", "streams"), [({}, True), ({"stream": None}, True), ({"stream": True}, True), ({"stream": False}, False)]
)
@pytest.mark.parametrize(("form", "body"), [(OLLAMA_CHAT, chat), (OLLAMA_GENERATE, generate)], ids=["chat", "generate"])
def test_answers_stream_by_default(
    form: Format, body: Callable[..., dict[str, Any]], given: dict[str, Any], streams: bool
) -> None:
    asked = form.read(body(**given))
    assert (asked.stream, asked.model, asked.request.wire) == (streams, "gemma3:4b", "ollama")
    assert (form.name, form.media_type) == ("ollama", "application/x-ndjson")


TIME = {"type": "function", "function": {"name": "get_time"}}
TOOLS: list[tuple[dict[str, Any], tuple[str, ...], ToolChoice]] = [
    ({}, (), ToolChoice()),
    ({"tools": None}, (), ToolChoice()),
    ({"tools": []}, (), ToolChoice()),
    ({"tools": [WEATHER]}, ("get_weather",), ToolChoice()),
    ({"tools": [WEATHER["function"]]}, ("get_weather",), ToolChoice()),
    ({"tools": [TIME | {"type": None}, WEATHER]}, ("get_time", "get_weather"), ToolChoice()),
    ({"tools": [WEATHER], "tool_choice": "none"}, ("get_weather",), ToolChoice(mode="none")),
    ({"tools": [WEATHER], "tool_choice": "required"}, ("get_weather",), ToolChoice(mode="required")),
    (
        {"tools": [TIME, WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        ("get_time", "get_weather"),
        ToolChoice(mode="required", name="get_weather"),
    ),
]


@pytest.mark.parametrize(("fields", "names", "choice"), TOOLS)
def test_tools(fields: dict[str, Any], names: tuple[str, ...], choice: ToolChoice) -> None:
    request = OLLAMA_CHAT.read(chat(**fields)).request
    assert (tuple(tool.name for tool in request.tools), request.choice, request.parallel) == (names, choice, True)


def test_a_tool_keeps_its_whole_schema() -> None:
    assert OLLAMA_CHAT.read(chat(tools=[WEATHER])).request.tools == (WEATHER_TOOL,)


GENERATE: list[tuple[dict[str, Any], tuple[Message, ...]]] = [
    ({"prompt": "Hi"}, (Message(role="user", content="Hi"),)),
    (
        {"prompt": "Hi", "system": "Be brief.", "suffix": "", "template": "", "raw": False, "context": [1, 2]},
        (Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
    ),
    ({"prompt": "Hi", "system": "", "suffix": None, "raw": None, "context": None}, (Message(role="user", content="Hi"),)),
    (
        {"prompt": "?", "images": [picture(JPEG)]},
        (Message(role="user", content="?", images=(f"data:image/jpeg;base64,{picture(JPEG)}",)),),
    ),
]


@pytest.mark.parametrize(("fields", "messages"), GENERATE)
def test_generate_is_a_conversation_of_one_question(fields: dict[str, Any], messages: tuple[Message, ...]) -> None:
    asked = OLLAMA_GENERATE.read({"model": "m"} | fields)
    assert (asked.request.messages, asked.shape["load"], dict(asked.request.sampling.extra)) == (messages, False, {})


def test_what_a_chat_would_say_does_not_replace_the_prompt() -> None:
    asked = OLLAMA_GENERATE.read(generate(messages=[], tools=[WEATHER], tool_choice="none", other=1))
    assert (asked.request.tools, asked.request.sampling.extra) == ((), {"other": 1})


LOADING: list[tuple[Format, dict[str, Any]]] = [
    (OLLAMA_CHAT, {"model": "m"}),
    (OLLAMA_CHAT, {"model": "m", "messages": []}),
    (OLLAMA_CHAT, {"model": "m", "messages": None, "keep_alive": -1}),
    (OLLAMA_GENERATE, {"model": "m"}),
    (OLLAMA_GENERATE, {"model": "m", "prompt": "", "keep_alive": "10m"}),
    (OLLAMA_GENERATE, {"model": "m", "prompt": None, "system": "Be brief."}),
]


@pytest.mark.parametrize(("form", "body"), LOADING)
def test_nothing_to_say_loads_the_model(form: Format, body: dict[str, Any]) -> None:
    asked = form.read(body)
    assert asked.shape["load"] is True
    assert asked.request.messages == (Message(role="user", content=""),)
    answer = loaded(asked)
    assert datetime.fromisoformat(answer.pop("created_at")).tzinfo == UTC
    said = {"response": ""} if form is OLLAMA_GENERATE else {"message": {"role": "assistant", "content": ""}}
    assert answer == {"model": "m", "done": True, "done_reason": "load"} | said


def test_a_conversation_does_not_load() -> None:
    assert OLLAMA_CHAT.read(chat()).shape["load"] is False


def test_an_ollama_behind_the_proxy_is_sent_what_came() -> None:
    body = chat(messages=[USER | {"images": [picture(GIF)]}], think=False, options={"num_ctx": 4096, "seed": 3})
    request = OLLAMA_CHAT.read(body).request
    upstream = CompletionRequest(messages=request.messages, seed=request.sampling.seed, extra=request.sampling.extra)
    assert chat_body(upstream, "gemma3:4b", num_ctx=16384) == body | {"truncate": False, "shift": False, "stream": True}


# -- bad bodies --------------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    *bad_bodies("ollama"),
    ({"options": {"temperature": float("nan")}}, "options.temperature"),
    ({"options": {"top_p": float("inf")}}, "options.top_p"),
    ({"options": {"num_predict": float("inf")}}, "options.num_predict"),
]
CASES = [
    *((OLLAMA_CHAT, chat(messages=[USER, message]), f"messages.1{path}") for message, path in bad_bodies("ollama, a message")),
    *((OLLAMA_CHAT, chat(**fields), param) for fields, param in BAD + bad_bodies("ollama, a chat")),
    *((OLLAMA_GENERATE, generate(**fields), param) for fields, param in BAD + bad_bodies("ollama, a prompt")),
    (OLLAMA_CHAT, {}, "model"),
    (OLLAMA_GENERATE, {}, "model"),
]


@pytest.mark.parametrize(("form", "body", "param"), CASES)
def test_bad_bodies(form: Format, body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        form.read(body)
    # Where a field may be of several types, pydantic says after its name which of them it tried.
    assert (
        caught.value.status,
        re.sub(r"\.(str|literal\[.*|list\[str\].*|dict\[.*|bool|int|float)$", "", caught.value.param),
    ) == (400, param)
    assert form.error(caught.value) == {"error": caught.value.message}
    assert param.rpartition(".")[2] in caught.value.message


# -- writing -----------------------------------------------------------------------------------------------------------

CALLS = (history_call("call_a", {"city": "Zürich"}), history_call("call_b", {"city": "a\u2028b", "days": 2}, 1))
USAGE = Usage(prompt_tokens=11, completion_tokens=7)


def called(index: int) -> CallPiece:
    return CallPiece(index=index, call=CALLS[index])


EVENTS: list[ResponseEvent] = [
    ReasoningPiece(text="Hm"),
    TextPiece(text="Let me\x85 "),
    TextPiece(text="check\u2028, 你好."),
    called(0),
    called(1),
    ResponseEnded(finish_reason="tool_calls", usage=USAGE),
]


def streamed(form: Format, body: dict[str, Any], events: list[ResponseEvent]) -> bytes:
    writer = form.writer(form.read(body))
    return writer.begin() + b"".join(writer.write(event) for event in events)


def lines(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock go on by 10 nanoseconds each time that it is read."""
    times: Iterator[int] = iter(range(1000, 9000, 10))
    monkeypatch.setattr("xmlcall.proxy.formats.ollama.time", SimpleNamespace(monotonic_ns=lambda: next(times)))


def without_time(answer: dict[str, Any]) -> dict[str, Any]:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", answer["created_at"])
    return {name: value for name, value in answer.items() if name != "created_at"}


WRITTEN_CALLS = [
    {"id": "call_a", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Zürich"}}},
    {"id": "call_b", "function": {"index": 1, "name": "get_weather", "arguments": {"city": "a\u2028b", "days": 2}}},
]


def ended(total: int, prompt: int, generation: int) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "stop",
        "total_duration": total,
        "load_duration": 0,
        "prompt_eval_count": 11,
        "prompt_eval_duration": prompt,
        "eval_count": 7,
        "eval_duration": generation,
    }


@pytest.mark.usefixtures("clock")
def test_a_streamed_chat_answer() -> None:
    written = lines(streamed(OLLAMA_CHAT, chat(), EVENTS))
    said: list[dict[str, Any]] = [
        {"content": "", "thinking": "Hm"},
        {"content": "Let me\x85 "},
        {"content": "check\u2028, 你好."},
        {"content": "", "tool_calls": WRITTEN_CALLS[:1]},
        {"content": "", "tool_calls": WRITTEN_CALLS[1:]},
    ]
    head: dict[str, Any] = {"model": "gemma3:4b"}
    last = ended(total=60, prompt=10, generation=50)  # six events
    assert [without_time(line) for line in written] == [
        *(head | {"message": {"role": "assistant"} | part, "done": False} for part in said),
        head | {"message": {"role": "assistant", "content": ""}} | last,
    ]


@pytest.mark.usefixtures("clock")
def test_a_streamed_generate_answer_has_no_calls() -> None:
    written = lines(streamed(OLLAMA_GENERATE, generate(), EVENTS))
    head: dict[str, Any] = {"model": "gemma3:4b"}
    assert [without_time(line) for line in written] == [
        head | {"response": "", "thinking": "Hm", "done": False},
        head | {"response": "Let me\x85 ", "done": False},
        head | {"response": "check\u2028, 你好.", "done": False},
        head | {"response": ""} | ended(total=60, prompt=10, generation=50),
    ]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("form", "body", "said"),
    [
        (
            OLLAMA_CHAT,
            chat(stream=False),
            {
                "message": {
                    "role": "assistant",
                    "content": "Let me\x85 check\u2028, 你好.",
                    "thinking": "Hm",
                    "tool_calls": WRITTEN_CALLS,
                }
            },
        ),
        (OLLAMA_GENERATE, generate(stream=False), {"response": "Let me\x85 check\u2028, 你好.", "thinking": "Hm"}),
    ],
    ids=["chat", "generate"],
)
def test_a_whole_answer(form: Format, body: dict[str, Any], said: dict[str, Any]) -> None:
    answer = form.whole(form.read(body), whole_response(EVENTS))
    assert without_time(answer) == {"model": "gemma3:4b"} | said | ended(total=10, prompt=0, generation=0)


@pytest.mark.parametrize(
    ("reason", "said"),
    [("stop", "stop"), ("tool_calls", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("other", "length")],
)
@pytest.mark.parametrize(("form", "body"), [(OLLAMA_CHAT, chat()), (OLLAMA_GENERATE, generate())], ids=["chat", "generate"])
def test_an_empty_answer(form: Format, body: dict[str, Any], reason: str, said: str) -> None:
    events: list[ResponseEvent] = [ResponseEnded(finish_reason=reason, usage=Usage())]
    (line,) = lines(streamed(form, body, events))
    whole = form.whole(form.read(body), whole_response(events))
    for answer in (line, whole):
        assert (answer["done"], answer["done_reason"], answer["prompt_eval_count"], answer["eval_count"]) == (True, said, 0, 0)
    assert line["eval_duration"] == 0
    assert {"message", "response"} & line.keys() == {"message", "response"} & whole.keys()


def test_a_silent_connection_gets_no_line() -> None:
    writer = OLLAMA_CHAT.writer(OLLAMA_CHAT.read(chat()))
    assert (writer.begin(), OLLAMA_CHAT.ping) == (b"", b"")


def test_half_a_surrogate_pair_is_written() -> None:
    (line,) = lines(streamed(OLLAMA_CHAT, chat(), [TextPiece(text="a\ud83d")]))
    assert line["message"]["content"] == "a?"


# -- Ollama's own client -----------------------------------------------------------------------------------------------

SERVED = {"/api/chat": OLLAMA_CHAT, "/api/generate": OLLAMA_GENERATE}


def client(events: list[ResponseEvent], *, error: ApiError | None = None) -> ollama.Client:
    """Make a client of a server that reads with our formats and always answers with these events, or their error."""

    def serve(request: httpx.Request) -> httpx.Response:
        form = SERVED[request.url.path]
        try:
            asked = form.read(json.loads(request.content))
        except ApiError as refused:
            return httpx.Response(refused.status, json=form.error(refused))
        if asked.shape["load"]:
            return httpx.Response(200, json=loaded(asked))
        if not asked.stream:
            return httpx.Response(200, json=form.whole(asked, whole_response(events)))
        writer = form.writer(asked)
        content = writer.begin() + b"".join(map(writer.write, events)) + (writer.fail(error) if error else b"")
        return httpx.Response(200, content=content, headers={"content-type": form.media_type})

    return ollama.Client("http://proxy", transport=httpx.MockTransport(serve))


def get_weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: where.
        days: how many.
    """
    return f"{city}, {days}"


MESSAGE = ollama.Message(role="user", content="Weather?")
CLIENT_CALLS = [("get_weather", {"city": "Zürich"}), ("get_weather", {"city": "a\u2028b", "days": 2})]


def made(messages: list[ollama.Message]) -> list[tuple[str, Any]]:
    return [(call.function.name, call.function.arguments) for message in messages for call in message.tool_calls or ()]


def test_the_client_reads_a_stream_with_calls() -> None:
    parts = list(client(EVENTS).chat("m", [MESSAGE], tools=[get_weather], stream=True))
    messages = [part.message for part in parts]
    assert "".join(message.content or "" for message in messages) == "Let me\x85 check\u2028, 你好."
    assert "".join(message.thinking or "" for message in messages) == "Hm"
    assert made(messages) == CLIENT_CALLS
    assert [part.done for part in parts] == [False] * 5 + [True]
    assert (parts[-1].done_reason, parts[-1].prompt_eval_count, parts[-1].eval_count) == ("stop", 11, 7)


def test_the_client_reads_a_whole_answer_and_gives_results_back() -> None:
    answer = client(EVENTS).chat("m", [MESSAGE], tools=[get_weather], options=ollama.Options(num_predict=5), think=True)
    assert (answer.model, answer.message.content, answer.message.thinking) == ("m", "Let me\x85 check\u2028, 你好.", "Hm")
    assert made([answer.message]) == CLIENT_CALLS
    results = [{"role": "tool", "tool_name": "get_weather", "content": "rain"}, {"role": "tool", "content": "sun"}]
    after: list[ResponseEvent] = [TextPiece(text="Rain."), ResponseEnded(finish_reason="stop", usage=USAGE)]
    assert client(after).chat("m", [MESSAGE, answer.message, *results]).message.content == "Rain."


def test_what_the_client_sends_is_read() -> None:
    bodies: list[dict[str, Any]] = []

    def serve(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=loaded(OLLAMA_CHAT.read(bodies[-1])))

    given = ollama.Client("http://proxy", transport=httpx.MockTransport(serve))
    given.chat("m", [MESSAGE], tools=[get_weather], format=SCHEMA, options={"num_ctx": 1}, think="low", keep_alive=3)
    asked = OLLAMA_CHAT.read(bodies[0])
    assert asked.request.tools[0].name == "get_weather"
    assert asked.request.tools[0].input_schema["properties"].keys() == {"city", "days"}
    assert asked.request.sampling == Sampling(
        json_schema=SCHEMA, extra={"options": {"num_ctx": 1}, "think": "low", "keep_alive": 3}
    )
    assert not asked.stream


def test_the_client_reads_generated_text() -> None:
    parts = list(client(EVENTS).generate("m", "Hi", stream=True))
    assert "".join(part.response or "" for part in parts) == "Let me\x85 check\u2028, 你好."
    assert (parts[-1].done, parts[-1].eval_count) == (True, 7)
    whole = client(EVENTS).generate("m", "Hi", system="Be brief.", context=[1], images=[PNG])
    assert (whole.response, whole.thinking, whole.done_reason) == ("Let me\x85 check\u2028, 你好.", "Hm", "stop")


@pytest.mark.parametrize("stream", [True, False])
def test_the_client_loads_a_model(stream: bool) -> None:
    loading: Any = client(EVENTS)
    answers = [loading.chat("m", stream=stream), loading.generate("m", stream=stream)]
    for answer in answers:
        (read,) = list(answer) if stream else [answer]
        assert (read.done, read.done_reason) == (True, "load")


def test_the_client_raises_our_errors() -> None:
    with pytest.raises(ollama.ResponseError, match="two tools are named 'get_weather'") as caught:
        client(EVENTS).chat("m", [MESSAGE], tools=[get_weather, get_weather])
    assert caught.value.status_code == 400
    broken = client(EVENTS[:2], error=ApiError("the model server\u2028 is gone: start it", status=502))
    parts = broken.chat("m", [MESSAGE], stream=True)
    assert [next(parts).message.thinking, next(parts).message.content] == ["Hm", "Let me\x85 "]
    with pytest.raises(ollama.ResponseError, match="the model server\u2028 is gone: start it"):
        next(parts)


# -- the small endpoints -----------------------------------------------------------------------------------------------


def shown(answer: dict[str, Any]) -> ollama.Client:
    return ollama.Client("http://proxy", transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer)))


def test_the_client_lists_models() -> None:
    listed = shown(tags(["local", "Größe:4b"])).list().models
    assert [model.model for model in listed] == ["local", "Größe:4b"]
    assert all(model.modified_at and model.modified_at.tzinfo for model in listed)
    assert len({model.digest for model in listed}) == 2
    assert {len(model.digest or "") for model in listed} == {64}
    assert shown(tags([])).list().models == []


def test_the_client_sees_what_runs() -> None:
    (model,) = shown(running({"local": 8192})).ps().models
    assert (model.model, model.name, model.context_length) == ("local", "local", 8192)
    assert model.expires_at is not None
    assert model.expires_at > datetime.now(UTC)
    assert running({"local": None})["models"][0]["context_length"] == 0


def test_the_client_is_shown_a_model_with_tools() -> None:
    answer = shown(show("local", 8192)).show("local")
    assert answer.capabilities == ["completion", "tools"]
    assert (answer.template, answer.parameters, answer.license) == ("", "", "")
    assert answer.modified_at is not None
    assert answer.details is not None
    assert answer.details.families == ["xmlcall"]
    assert context_length_of(answer.modelinfo or {}) == 8192
    assert context_length_of(show("local", None)["model_info"]) is None


def test_clients_find_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


@pytest.mark.parametrize(
    ("told", "capabilities"),
    [
        ({"capabilities": ["completion", "vision"]}, ["completion", "vision", "tools"]),
        ({"capabilities": ["completion", "tools"]}, ["completion", "tools"]),
        ({"capabilities": ["embedding"]}, ["embedding"]),
        ({"capabilities": []}, []),
        ({"capabilities": None}, ["completion", "tools"]),
        ({}, ["completion", "tools"]),
    ],
)
def test_a_model_of_a_real_ollama_gets_tools(told: dict[str, Any], capabilities: list[str]) -> None:
    before = {"template": "{{ .Prompt }}"} | told
    copy = json.loads(json.dumps(before))
    assert with_tools(before) == before | {"capabilities": capabilities}
    assert before == copy
