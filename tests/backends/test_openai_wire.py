"""The readers and writers of OpenAI's and Ollama's wire formats, without a server."""

import json
from pathlib import Path
from typing import Any

import pytest

from xmlcall.errors import BackendProtocolError
from xmlcall.types.calls import MISSING, Message, RawArgument, RawCall, Tool, ToolCall
from xmlcall.types.completion import UNCUT, Chunk, CompletionRequest, PromptProgress, Usage
from xmlcall.wire import ollama, openai, sse
from xmlcall.wire.openai import finish_reason_of

CALL = ToolCall(id="call_1", name="get_weather", arguments={"city": "Zürich"}, raw=RawCall(index=0, name="get_weather"))
HISTORY = (
    Message(role="system", content="Be brief."),
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="rain", tool_call_id="call_1", name="get_weather"),
)
WEATHER = Tool(name="get_weather", description="Weather.", input_schema={"type": "object", "properties": {"city": {}}})
WEATHER_DICT = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {"city": {}}}},
}

# -- requests ----------------------------------------------------------------------------------------------------------


def test_openai_history_has_calls_with_json_strings() -> None:
    assert [openai.message_dict(message) for message in HISTORY] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
    ]


def test_ollama_history_has_calls_with_objects() -> None:
    assert [ollama.message_dict(message) for message in HISTORY] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1", "tool_name": "get_weather"},
    ]


def test_openai_body_holds_what_was_asked_and_nothing_else() -> None:
    request = CompletionRequest(messages=HISTORY[:1])
    assert openai.request_body(request, "m") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_openai_body_with_everything() -> None:
    request = CompletionRequest(
        messages=HISTORY[:1],
        tools=(WEATHER,),
        max_tokens=5,
        temperature=0.0,
        seed=0,
        stop=("</x>",),
        extra={"grammar": "root ::= x", "max_tokens": 6, "stream": False},
    )
    body = openai.request_body(request, "m")
    assert body["tools"] == [WEATHER_DICT]
    assert (body["temperature"], body["seed"], body["stop"]) == (0.0, 0, ["</x>"])
    assert "response_format" not in body
    assert (body["grammar"], body["max_tokens"]) == ("root ::= x", 6)
    assert body["stream"] is True


def test_ollama_body_never_lets_the_server_cut() -> None:
    request = CompletionRequest(
        messages=HISTORY[:1], tools=(WEATHER,), max_tokens=5, extra={"think": False, "options": {"top_k": 1}}
    )
    assert ollama.chat_body(request, "m", num_ctx=8192) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}],
        "tools": [WEATHER_DICT],
        "options": {"num_ctx": 8192, "num_predict": 5, "top_k": 1},
        "think": False,
        "truncate": False,
        "shift": False,
        "stream": True,
    }


# -- calls that the server parsed itself -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"city": "Paris"}', [("city", "Paris", "Paris")]),
        ('{"n": 1.50, "on": null}', [("n", "1.5", 1.5), ("on", "null", None)]),
        ('{"o": {"é": [1, {"a": 2}]}}', [("o", '{"é": [1, {"a": 2}]}', {"é": [1, {"a": 2}]})]),
        ('{"a": {"x": 1}, "a": 2}', [("a", '{"x": 1}', {"x": 1}), ("a", "2", 2)]),
        ("{}", []),
        ("", []),
        (" \n", []),
    ],
)
def test_a_native_call_has_one_argument_a_key(text: str, arguments: list[tuple[str, str, Any]]) -> None:
    call = openai.native_call(2, "f", text)
    assert call.arguments == tuple(RawArgument(name=name, text=shown, value=value) for name, shown, value in arguments)
    assert (call.index, call.name, call.dialect, call.complete) == (2, "f", "native", True)


@pytest.mark.parametrize("text", ['{"city": "Pa', "[1]", '"x"', "null", "3", '{"n": NaN}', "{'a': 1}", "[" * 100_000, "1" * 5000])
def test_a_native_call_without_a_json_object_keeps_its_text(text: str) -> None:
    whole, cut = openai.native_call(0, "f", text), openai.native_call(0, "f", text, cut=True)
    assert whole.arguments == cut.arguments == (RawArgument(name="", text=text, value=MISSING),)
    assert whole.complete
    assert not cut.complete


def test_a_cut_call_without_arguments_is_not_complete_and_a_whole_object_is() -> None:
    assert not openai.native_call(0, "f", "", cut=True).complete
    assert openai.native_call(0, "f", '{"a": 1}', cut=True).complete


# -- server-sent events ------------------------------------------------------------------------------------------------

STREAM = (
    b'\xef\xbb\xbf: ping\r\n\r\ndata: {"a": "\xc3\xa9"}\r\n\r\n'
    b"event: x\nid: 1\ndata:1\ndata: 2\n\ndata\n\n\rdata: mac\r\rdata: last"
)
EVENTS = ['{"a": "é"}', "1\n2", "mac", "last"]


def decode(pieces: list[bytes]) -> list[str]:
    decoder = sse.EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + list(decoder.close())


def test_events_are_the_same_however_the_stream_is_cut() -> None:
    assert decode([STREAM]) == EVENTS
    assert decode([bytes([byte]) for byte in STREAM]) == EVENTS
    for first in range(len(STREAM)):
        for second in range(first, len(STREAM), 7):
            assert decode([STREAM[:first], STREAM[first:second], b"", STREAM[second:]]) == EVENTS


def test_an_event_without_end_is_refused() -> None:
    decoder = sse.EventDecoder()
    for _ in range(16):
        assert list(decoder.feed(b"x" * 2**20)) == []
    with pytest.raises(BackendProtocolError, match="more than 16777216 bytes"):
        list(decoder.feed(b"x"))


def test_many_events_may_be_larger_than_one() -> None:
    decoder = sse.EventDecoder()
    event = b"data: " + b"x" * 2**20 + b"\n\n"
    assert sum(len(list(decoder.feed(event))) for _ in range(20)) == 20


@pytest.mark.parametrize("payload", ["", "{", "[1]", '"x"', "null", "[" * 100_000])
def test_a_payload_that_is_no_object_is_refused(payload: str) -> None:
    with pytest.raises(BackendProtocolError, match="in the stream, got"):
        openai.read_json(payload)


# -- chunks ------------------------------------------------------------------------------------------------------------


def read(*deltas: dict[str, Any], finish_reason: str | None = "stop", echo: str = "") -> list[Chunk]:
    reader = openai.StreamReader(echo=echo)
    chunks = [reader.feed({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    reader.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
    return [chunk for chunk in chunks if chunk] + [reader.close()]


def fragment(index: int | None, arguments: Any, name: str | None = None, identity: str | None = None) -> dict[str, Any]:
    part: dict[str, Any] = {"index": index, "id": identity, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [part]}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_text_and_reasoning(field: str) -> None:
    assert read({"role": "assistant", "content": None}, {field: "hm"}, {"content": "Hi"}, {"content": ""}) == [
        Chunk(reasoning="hm"),
        Chunk(text="Hi"),
        Chunk(finish_reason="stop"),
    ]


def test_fragments_of_two_calls_are_joined() -> None:
    *_, last = read(
        fragment(0, "", "get_weather", "call_1"),
        fragment(0, '{"city": "Pa'),
        fragment(1, "", "get_time", "call_2"),
        fragment(0, 'ris"}'),
        fragment(1, "{}"),
        finish_reason="tool_calls",
    )
    first, second = last.tool_calls
    assert (first.name, first.index, first.arguments) == (
        "get_weather",
        0,
        (RawArgument(name="city", text="Paris", value="Paris"),),
    )
    assert first.text == '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    assert (second.name, second.index, second.arguments) == ("get_time", 1, ())
    assert last.finish_reason == "tool_calls"


@pytest.mark.parametrize("index", [0, None])
def test_whole_calls_that_share_an_index_are_told_apart_by_their_ids(index: int | None) -> None:
    *_, last = read(fragment(index, '{"a": 1}', "f", "x"), fragment(index, {"a": 2}, "g", "y"))
    assert [(call.name, call.arguments[0].value) for call in last.tool_calls] == [("f", 1), ("g", 2)]


@pytest.mark.parametrize(
    ("fragments", "found"),
    [
        # LocalAI reports one call at several indices, with one id
        ([(0, "", "f", "x"), (1, '{"a": 1}', "f", "x"), (2, "", "f", "x")], [("f", '{"a": 1}')]),
        # a call that is reported whole at its end again
        ([(0, '{"a"', "f", "x"), (0, ": 1}"), (0, '{"a": 1}', "f", "x")], [("f", '{"a": 1}')]),
        # two calls with one index and one id
        ([(0, '{"a": 1}', "f", "x"), (0, '{"b": 2}', "g", "x")], [("f", '{"a": 1}'), ("g", '{"b": 2}')]),
        ([(0, '{"a": 1}', "f"), (0, '{"b": 2}', "g")], [("f", '{"a": 1}'), ("g", '{"b": 2}')]),
        # a name in pieces, and one that grows
        ([(0, "", "get_", "x"), (0, "", "time"), (0, "{}")], [("get_time", "{}")]),
        ([(0, "", "get", "x"), (0, "", "get_time", "x"), (0, "{}")], [("get_time", "{}")]),
        # the same call twice, as a model may want it
        ([(0, "{}", "f", "x"), (1, "{}", "f", "y")], [("f", "{}"), ("f", "{}")]),
        # nothing
        ([(0, "", "", "x")], []),
    ],
)
def test_a_call_is_told_from_its_repetition(fragments: list[tuple[Any, ...]], found: list[tuple[str, str]]) -> None:
    *_, last = read(*(fragment(*each) for each in fragments), finish_reason="tool_calls")
    texts = [(call.name, call.text.partition(', "arguments": ')[2][:-1]) for call in last.tool_calls]
    assert texts == found
    ids = [each for each in last.call_ids if each]
    assert len(ids) == len(set(ids))


# What servers say, and what it means here: one word of each, and what is no word of any.
FINISH_REASONS = {
    "stop": ["", "stop", "STOP", " stop ", "eos", "eos_token", "end_turn", "stop_sequence", "word", "COMPLETE", "load", "unload"],
    "tool_calls": ["tool_calls", "function_call", "tool_use", "TOOL_CALL"],
    "length": ["length", "max_tokens", "MAX_TOKENS", "model_length", "limit", "model_context_window_exceeded"],
    "content_filter": ["content_filter", "refusal", "SAFETY"],
    "other": ["abort", "error", "pause_turn", "stop it", "x" * 100_000, "stop" + " " * 100 + "x", "停"],
}
WORDS = [(word, reason) for reason, words in FINISH_REASONS.items() for word in words]


@pytest.mark.parametrize(("word", "reason"), WORDS, ids=[word[:40] for word, _ in WORDS])
def test_a_finish_reason_is_one_of_few_words(word: str, reason: str) -> None:
    assert finish_reason_of(word) == reason
    call = fragment(0, '{"a": 1', "f", "x")
    *_, last = read(call, finish_reason=word)
    assert last.finish_reason == reason
    assert last.tool_calls[0].complete == (reason in UNCUT)
    line = ollama.stream_chunk({"done": True, "done_reason": word}, calls_before=0)
    assert line is not None
    assert line.finish_reason == reason


def test_a_call_cut_by_the_length_is_not_complete() -> None:
    *_, last = read(fragment(0, '{"a": 1}', "f", "x"), fragment(1, '{"a": ', "g", "y"), finish_reason="length")
    assert [call.complete for call in last.tool_calls] == [True, False]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"choices": None},
        {"choices": {}},
        {"choices": [None, 3]},
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"delta": None, "finish_reason": 7}], "usage": 5, "timings": []},
        {"choices": [{"delta": {"content": 5, "reasoning": {}, "tool_calls": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": [None, "x"]}}], "usage": {"prompt_tokens": -1, "completion_tokens": True}},
    ],
)
def test_fields_of_unexpected_types_count_as_absent(data: dict[str, Any]) -> None:
    reader = openai.StreamReader()
    assert reader.feed(data) is None
    assert reader.close() == Chunk(finish_reason="stop")


def test_hostile_fragments_make_a_call_that_cannot_run() -> None:
    *_, last = read({"tool_calls": [{"index": [1], "id": {}, "function": {"name": [], "arguments": [1, 2]}}]})
    (call,) = last.tool_calls
    assert (call.name, call.arguments) == ("", (RawArgument(name="", text="[1, 2]"),))


def test_half_a_surrogate_pair_does_not_get_through() -> None:
    chunk, _ = read(json.loads('{"content": "a\\ud83d"}'))
    assert chunk.text == "a?"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["<think>\n", "so"], "so"),
        (["<th", "ink", ">", "\nso"], "so"),
        (["<think>\n\nso"], "\nso"),
        (["so ", "<think>\n"], "so <think>\n"),
        (["<thin", "g>"], "<thing>"),
        (["<thin"], "<thin"),
        (["", "<think>\n", "<think>\n"], "<think>\n"),
    ],
)
def test_the_prompts_own_end_is_dropped_once(texts: list[str], expected: str) -> None:
    chunks = read(*({"content": text} for text in texts), echo="<think>\n")
    assert "".join(chunk.text for chunk in chunks) == expected


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2}}, Usage(prompt_tokens=5, completion_tokens=2)),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}, Usage(prompt_tokens=5, cached_tokens=4)),
        ({"usage": {"prompt_tokens": 5}, "timings": {"cache_n": 3, "prompt_n": 2}}, Usage(prompt_tokens=5, cached_tokens=3)),
        (
            {"timings": {"cache_n": 3, "prompt_n": 2, "predicted_n": 7}},
            Usage(prompt_tokens=5, cached_tokens=3, completion_tokens=7),
        ),
        ({"usage": None}, None),
        ({}, None),
    ],
)
def test_usage(data: dict[str, Any], usage: Usage | None) -> None:
    assert openai.usage_of(data) == usage


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "overflow"),
    [
        ('{"error": {"message": "bad  grammar\\n", "type": "invalid_request_error"}}', "bad grammar", False),
        ('{"error": "no such file"}', "no such file", False),
        ('{"detail": "Not Found"}', "Not Found", False),
        ('{"object": "error", "message": "no", "code": 400}', "no", False),
        ("<html>Bad Gateway</html>", "<html>Bad Gateway</html>", False),
        ("", "", False),
        ('{"error": {"message": "too long", "code": "context_length_exceeded"}}', "too long", True),
        ('{"error": {"message": "too long", "type": "exceed_context_size_error"}}', "too long", True),
        ("This model's maximum context length is 4096 tokens.", "This model's maximum context length is 4096 tokens.", True),
        ("[" * 100_000, "[" * 2000, False),
        ("model " * 100_000, ("model " * 334)[:2000], False),
    ],
)
def test_errors_in_every_form(body: str, message: str, overflow: bool) -> None:
    error = openai.read_error(body)
    assert (error.message, error.overflow) == (message, overflow)


@pytest.mark.parametrize(
    ("body", "prompt_tokens", "context_length"),
    [
        ({"error": {"type": "exceed_context_size_error", "message": "no", "n_prompt_tokens": 5, "n_ctx": 4}}, 5, 4),
        ({"error": "exceed_context_size_error: request (99 tokens) exceeds the available context size (64 tokens)"}, 99, 64),
        ("This model's maximum context length is 4096 tokens. However, your request has 4500 input tokens.", 4500, 4096),
        ("maximum context length", None, None),
        ("The input (5000 tokens) is bad, the context length (4096 tokens) is fine.", None, None),
        (f"maximum context length is {'9' * 5000} tokens", None, None),
    ],
)
def test_the_figures_of_a_prompt_that_is_too_long(body: Any, prompt_tokens: int | None, context_length: int | None) -> None:
    error = openai.read_error(body)
    assert (error.prompt_tokens, error.context_length) == (prompt_tokens, context_length)


# -- Ollama ------------------------------------------------------------------------------------------------------------


def test_an_ollama_line_with_calls_and_thinking() -> None:
    calls = [{"function": {"index": 0, "name": "f", "arguments": {"a": [1]}}}, {"function": {"name": "g", "arguments": {}}}]
    chunk = ollama.stream_chunk(
        {"message": {"content": "x", "thinking": "hm", "tool_calls": calls}, "done": False}, calls_before=1
    )
    assert chunk is not None
    assert (chunk.text, chunk.reasoning, chunk.finish_reason) == ("x", "hm", None)
    assert [(call.index, call.name) for call in chunk.tool_calls] == [(1, "f"), (2, "g")]
    assert chunk.tool_calls[0].arguments == (RawArgument(name="a", text="[1]", value=[1]),)


@pytest.mark.parametrize("data", [{}, {"message": None}, {"message": {"content": 5, "tool_calls": "x"}}, {"done": "yes"}])
def test_an_ollama_line_that_shows_nothing(data: dict[str, Any]) -> None:
    assert ollama.stream_chunk(data, calls_before=0) is None


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("", 0),
        ("the quick brown fox", 3),
        (" \n" * 5000 + "x" + "=" * 5000, 0),  # runs of one character can be single tokens
        ("今天天气怎么样" * 4, 7),
        ("हिन्दी में लिखा हुआ", 3),
    ],
)
def test_the_estimate_of_tokens_stays_below(text: str, least: int) -> None:
    assert ollama.least_tokens([Message(role="user", content=text), Message(role="assistant", content="a b c d e f")]) == least


@pytest.mark.parametrize(
    ("capabilities", "template", "expected"),
    [
        (["completion", "tools"], '{{- else if eq .Role "tool" }}', True),
        (["completion", "tools"], "{{ .Prompt }}", False),
        (["completion"], '{{- else if eq .Role "tool" }}', False),
    ],
)
def test_the_role_tool_needs_a_template_that_asks_for_it(capabilities: list[str], template: str, expected: bool) -> None:
    assert ollama.tool_role_of(capabilities, template) is expected


def test_a_schema_for_the_reply() -> None:
    request = CompletionRequest(messages=HISTORY[:1], json_schema={"type": "object"})
    form = openai.request_body(request, "m")["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}}
    assert ollama.chat_body(request, "m", num_ctx=1)["format"] == {"type": "object"}


# llama.cpp b11549, tools/server/server-task.cpp, `result_prompt_progress::to_json` in `to_json_oaicompat_chat`.
PROGRESS = {"total": 3000, "cache": 24, "processed": 1240, "time_ms": 5123}
PROGRESSES: list[tuple[Any, PromptProgress | None]] = [
    (PROGRESS, PromptProgress(read=1240, total=3000)),
    (PROGRESS | {"processed": 4000}, PromptProgress(read=3000, total=3000)),
    (PROGRESS | {"processed": -1}, None),
    ({"total": 3000}, None),
    ("half", None),
    (None, None),
]


@pytest.mark.parametrize(("told", "read"), PROGRESSES)
def test_how_far_the_prompt_is_read(told: Any, read: PromptProgress | None) -> None:
    delta = {"role": "assistant", "content": None}
    got = openai.StreamReader().feed({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "prompt_progress": told})
    assert got == (None if read is None else Chunk(progress=read))


# What servers say: that a prompt is too long, with its tokens and those of the context; what they could not read of their model,
# with the output (of none where it is no such message, or one about the history); and what is neither.
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
REJECTED: list[tuple[str, str | None]] = [
    *REFUSALS["unread output"],
    ("Failed to parse input at pos 0: " + "x" * 1_000_001, ""),
    ("x" * 5000 + "Failed to parse input at pos 0: <tool_call>", None),
]


@pytest.mark.parametrize(("message", "output"), REJECTED, ids=[message[:50] for message, _ in REJECTED])
def test_what_a_server_could_not_read_of_its_model(message: str, output: str | None) -> None:
    for body in ({"error": {"message": message, "code": 500}}, {"error": message}):
        error = openai.read_error(body)
        assert (error.output, error.overflow) == (output, False)


@pytest.mark.parametrize("output", ["<function=f>{}</function>", "", "x" * 1_000_001, 5, None])
def test_groq_has_the_output_in_a_field(output: Any) -> None:
    fields = {"type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": output}
    error = openai.read_error({"error": {"message": "Failed to call a function. Please adjust your prompt.", **fields}})
    assert error.output == (output if isinstance(output, str) and len(output) < 100 else "")


@pytest.mark.parametrize(("message", "prompt", "context"), REFUSALS["too long"])
def test_a_prompt_that_is_too_long_in_the_words_of_many_servers(message: str, prompt: int | None, context: int | None) -> None:
    error = openai.read_error({"error": {"message": message, "code": 400}})
    assert (error.overflow, error.prompt_tokens, error.context_length) == (True, prompt, context)


@pytest.mark.parametrize("message", REFUSALS["others"])
def test_other_refusals_are_no_overflow(message: str) -> None:
    assert not openai.read_error({"error": {"message": message}}).overflow
