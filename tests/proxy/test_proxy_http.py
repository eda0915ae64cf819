"""The proxy as a real server on loopback, between real callers and fake model servers."""

import asyncio
import contextlib
import itertools
import json
import random
import re
import socket
import string
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import ollama
import openai
import pytest
from profiles import covering
from proxy_harness import ADD, block, double
from servers import fake_ollama, fake_openai
from servers.fake_ollama import FakeOllama
from servers.fake_openai import CUT, FakeOpenAI, Step, chunk, llama_props
from servers.raw_http import raw_answer
from servers.run_server import Stage, run_server, wait_until
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from xmlcall import LocalHost
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy import Guard, create_app
from xmlcall.proxy.http import exchange
from xmlcall.proxy.http.routes import ENDPOINTS
from xmlcall.types.completion import Chunk, Usage

pytestmark = pytest.mark.usefixtures("no_pauses")

CHAT, RESPONSES, MESSAGES, OLLAMA_CHAT = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
SECONDS = 10.0
LEAVE_SECONDS = 1.0  # until the model server knows that the caller has left
HTTP = httpx.Client(timeout=SECONDS)  # one for all: each makes a context of TLS anew


class Upstream:
    """A model server: keeps what comes byte for byte, answers some paths itself and leaves the others to a fake."""

    def __init__(self, fake: Any, answers: Mapping[str, tuple[int, str, list[bytes]]] | None = None) -> None:
        self.fake, self.answers = fake, dict(answers or {})
        self.seen: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        content = await request.body()
        self.seen.append((request.method, request.url.path, content))
        self.headers.append(dict(request.headers))
        if answer := self.answers.get(request.url.path):
            status, media_type, pieces = answer
            headers = {"content-type": media_type}
            whole = Response(pieces[0], status, headers) if len(pieces) == 1 else StreamingResponse(iter(pieces), status, headers)
            await whole(scope, receive, send)
            return
        unread = [{"type": "http.request", "body": content, "more_body": False}]

        async def replayed() -> Any:
            return unread.pop() if unread else await receive()

        await self.fake.app(scope, replayed, send)


OPENAI, OLLAMA, LLAMA = Stage(), Stage(), Stage()


@pytest.fixture(scope="session", autouse=True)  # a process may come back to this module after others
def closed() -> Iterator[None]:
    yield
    HTTP.close()


@pytest.fixture(scope="module")
def proxies() -> Iterator[dict[str, str]]:
    """Proxies in front of the stages, by name."""
    OPENAI.app, OLLAMA.app, LLAMA.app = FakeOpenAI().app, FakeOllama().app, FakeOpenAI(props=llama_props()).app
    with contextlib.ExitStack() as stack:

        def proxy(app: Any) -> str:
            return stack.enter_context(run_server(app, lifespan="on"))

        openai, ollama, llama = (stack.enter_context(run_server(stage)) for stage in (OPENAI, OLLAMA, LLAMA))
        yield {
            "openai": proxy(create_app(f"{openai}/v1", mode="xml")),
            "native": proxy(create_app(f"{openai}/v1", mode="native")),
            "strict": proxy(create_app(f"{openai}/v1", mode="xml", strict=True)),
            "own": proxy(create_app(f"{openai}/v1", [LocalHost([double], name="own")], mode="xml", allowed=["*"])),
            "ollama": proxy(create_app(OllamaBackend("tiny", host=ollama), mode="xml")),
            "llama": proxy(create_app(f"{llama}/v1", mode="auto")),
            "greedy": proxy(create_app(f"{openai}/v1", mode="xml", sampling="greedy")),
            "greedy ollama": proxy(create_app(OllamaBackend("tiny", host=ollama), mode="xml", sampling="greedy")),
        }


def play(stage: Stage, fake: Any, **answers: tuple[int, str, list[bytes]]) -> Upstream:
    """Put a model server on a stage; `v1_completions` answers `/v1/completions`."""
    upstream = Upstream(fake, {f"/{path.replace('_', '/')}": answer for path, answer in answers.items()})
    stage.app = upstream
    return upstream


# -- relayed requests --------------------------------------------------------------------------------------------------

JSON, SSE, LINES = "application/json; charset=utf-8", "text/event-stream", "application/x-ndjson"
SPOKEN = b'{"role":"user","content":"\\u00e4\xc3\xa4 <function_calls>"}'
STRANGE = b' {"model" :"tiny",\r\n\t"messages":[' + SPOKEN + b'] , "n":2,"x": 1.50,"stream":%s}\n'
PROMPT = b'{"prompt": "Hi",   "model":"tiny", "raw": true, "suffix":"x","stream":%s}'
# Neither JSON nor UTF-8: nobody looks at an answer that is passed on.
SAID = [b'{"choices": [] }\r\n', b"\xff\xfe", b"data: {\n\n", b": x\n\nevent: y\n", b"\n"]

RELAYED = [
    ("openai", OPENAI, "/v1/chat/completions", "/v1/chat/completions", STRANGE),
    ("native", OPENAI, "/v1/chat/completions", "/v1/chat/completions", STRANGE),
    ("openai", OPENAI, "/v1/completions", "/v1/completions", PROMPT),
    ("openai", OPENAI, "/v1/embeddings", "/v1/embeddings", b'{"input":[[1,2]],"model":"tiny","stream":%s}'),
    ("openai", OPENAI, "/v1/rerank", "/v1/rerank", b'{"query":"x","documents":["y"],"model":"tiny","stream":%s}'),
    ("ollama", OLLAMA, "/api/chat", "/api/chat", STRANGE),
    ("ollama", OLLAMA, "/api/generate", "/api/generate", PROMPT),
    ("ollama", OLLAMA, "/api/embed", "/api/embed", b'{"input": "x","model":"tiny", "stream":%s}'),
    ("ollama", OLLAMA, "/api/embeddings", "/api/embeddings", b'{"prompt": "x","model":"tiny", "stream":%s}'),
]


@pytest.mark.parametrize(("proxy", "stage", "path", "upstream_path", "content"), RELAYED, ids=[f"{r[0]} {r[2]}" for r in RELAYED])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [200, 418])
def test_an_answer_that_needs_nothing_passes_byte_for_byte(
    proxy: str, stage: Stage, path: str, upstream_path: str, content: bytes, stream: bool, status: int, proxies: dict[str, str]
) -> None:
    content = content.replace(b"%s", b"true" if stream else b"false")
    said = SAID if stream else [b"".join(SAID)]
    media_type = (LINES if stage is OLLAMA else SSE) if stream else JSON
    upstream = play(stage, FakeOpenAI())
    upstream.answers[upstream_path] = (status, media_type, said)
    response = HTTP.post(proxies[proxy] + path, content=content, headers={"authorization": "Bearer mine", "cookie": "a=b"})
    assert [(method, path, json.loads(sent)) for method, path, sent in upstream.seen] == [
        ("POST", upstream_path, json.loads(content))
    ]
    assert (response.status_code, response.headers["content-type"], response.content) == (status, media_type, b"".join(SAID))
    assert not {"authorization", "cookie"} & upstream.headers[0].keys()


@pytest.mark.parametrize(("proxy", "stage", "path", "upstream_path", "content"), RELAYED, ids=[f"{r[0]} {r[2]}" for r in RELAYED])
@pytest.mark.parametrize("model", ["gpt-5", "", None])
def test_of_another_models_name_only_that_changes(
    proxy: str, stage: Stage, path: str, upstream_path: str, content: bytes, model: str | None, proxies: dict[str, str]
) -> None:
    asked = json.loads(content.replace(b"%s", b"true")) | {"model": model}
    if model is None:
        del asked["model"]
    upstream = play(stage, FakeOpenAI())
    upstream.answers[upstream_path] = (200, SSE, SAID)
    response = HTTP.post(proxies[proxy] + path, json=asked)
    assert json.loads(upstream.seen[0][2]) == asked | {"model": "tiny"}
    assert response.content == b"".join(SAID)


@pytest.mark.parametrize(
    ("proxy", "stage", "path", "asked", "sent"),
    [
        ("greedy", OPENAI, "/v1/chat/completions", {"n": 2}, {"n": 2, "temperature": 0.0}),
        ("greedy", OPENAI, "/v1/chat/completions", {"temperature": 1}, {"temperature": 1}),
        ("greedy", OPENAI, "/v1/completions", {"prompt": "Hi"}, {"prompt": "Hi"}),
        ("greedy ollama", OLLAMA, "/api/chat", {}, {"options": {"temperature": 0.0}}),
        ("greedy ollama", OLLAMA, "/api/chat", {"options": {"temperature": 1}}, {"options": {"temperature": 1}}),
        ("greedy ollama", OLLAMA, "/api/chat", {"options": {"top_k": 1}}, {"options": {"temperature": 0.0, "top_k": 1}}),
    ],
)
def test_what_the_proxy_is_told_of_sampling_is_added(
    proxy: str, stage: Stage, path: str, asked: dict[str, Any], sent: dict[str, Any], proxies: dict[str, str]
) -> None:
    upstream = play(stage, FakeOpenAI())
    upstream.answers[path] = (200, JSON, [b"{}"])
    common = {"messages": messages(), "model": "tiny", "stream": False}
    HTTP.post(proxies[proxy] + path, json={**common, **asked})
    assert json.loads(upstream.seen[0][2]) == {**common, **sent}


# What other readers of JSON take for the model's name, or for where it is: Go folds names, and of two takes the last.
OTHER_NAMES = [
    '"Model": "other"',
    '"MODEL": "other", "mOdel": ["other"]',
    '"model": "other"',
    '"\\u006dodel": "other"',
    '"\\u004dodel": "other"',
    '"models": ["other"], "Fallbacks": ["other"], "API_BASE": "http://other"',
]


@pytest.mark.parametrize(("proxy", "stage", "path", "upstream_path", "content"), RELAYED, ids=[f"{r[0]} {r[2]}" for r in RELAYED])
@pytest.mark.parametrize("other", OTHER_NAMES)
def test_no_second_name_of_a_model_reaches_the_model_server(
    proxy: str, stage: Stage, path: str, upstream_path: str, content: bytes, other: str, proxies: dict[str, str]
) -> None:
    upstream = play(stage, FakeOpenAI())
    upstream.answers[upstream_path] = (200, JSON, [b"{}"])
    asked = content.replace(b"%s", b"false").rstrip()
    for sent in (asked[:-1] + f", {other}}}".encode(), asked.replace(b"{", f"{{{other},".encode(), 1)):
        assert HTTP.post(proxies[proxy] + path, content=sent).status_code == 200
        names = json.loads(upstream.seen[-1][2], object_pairs_hook=lambda pairs: pairs)
        assert [value for name, value in names if name.casefold() == "model"] == ["tiny"]
        assert b"other" not in upstream.seen[-1][2]


@pytest.mark.parametrize("proxy", ["openai", "native", "ollama"])
def test_no_second_name_of_a_model_goes_where_tools_are_offered(proxy: str, proxies: dict[str, str]) -> None:
    path, stage = (OLLAMA_CHAT, OLLAMA) if proxy == "ollama" else (CHAT, OPENAI)
    upstream = play(stage, FakeOllama() if proxy == "ollama" else FakeOpenAI())
    asked = {"model": "tiny", "Model": "qwen:72b", "models": ["qwen:72b"], "messages": messages(), "stream": False}
    for tools in ({"tools": [ADD]}, {"Tools": [ADD]}, {"tool\u017f": [ADD]}):
        HTTP.post(proxies[proxy] + path, json=asked | tools)
        assert [b"72b" in sent for _, asked_path, sent in upstream.seen if asked_path == path] == [False]
        upstream.seen.clear()


ELSEWHERE = (
    "user_config preset lora lora_path lora_name adapter_id adapters bootstrap_host bootstrap_port kv_transfer_params "
    "draft_model  model_id reasoning_model fallback_models custom_llm_provider provider api_key extra_headers extra_body "
    "headers deployment_id  azure_endpoint aws_region_name vertex_project langfuse_host url webhook proxy endpoint "
    "grammar_file session_file  slot_save_path chat_template chat_template_file logits_processors custom_logit_processor "
    "mcp_servers data_sources plugins  router_settings_override success_callback litellm_metadata mock_response draftModel "
    "API-Base Lora_Path baseurl engine"
)
OF_SERVERS = (
    "top_a typical_p mirostat mirostat_tau dry_multiplier xtc_threshold grammar json_schema guided_json guided_regex regex "
    "ebnf  structured_outputs cache_prompt id_slot n_probs n_keep samplers logit_bias repetition_penalty length_penalty "
    "best_of  min_tokens stop_token_ids ignore_eos skip_special_tokens spaces_between_special_tokens prompt_logprobs "
    "priority  include_stop_str_in_output chat_template_kwargs mm_processor_kwargs add_generation_prompt "
    "continue_final_message  truncate_prompt_tokens separate_reasoning reasoning_format reasoning_effort thinking_budget "
    "thinking_forced_open service_tier  prompt_cache_key safety_identifier verbosity modalities prediction "
    "timings_per_token return_tokens t_max_predict_ms ttl  encoding_format dimensions documents top_n echo num_gpu "
    "keep_alive request_id cache_salt new_field"
)


@pytest.mark.parametrize(("path", "stage"), [(CHAT, OPENAI), (OLLAMA_CHAT, OLLAMA), (f"{CHAT}#tools", OPENAI)])
def test_fields_that_choose_models_addresses_or_files_are_left_out(
    path: str, stage: Stage, proxies: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "xmlcall.proxy")
    upstream = play(stage, FakeOllama() if stage is OLLAMA else FakeOpenAI())
    tools = {"tools": [ADD]} if path.endswith("#tools") else {}
    asked = {"model": "tiny", "messages": messages(), "stream": False, **tools}
    usual = dict.fromkeys(OF_SERVERS.split(), 1) | {"logit_bias": {}, "reasoning_effort": "low"}
    HTTP.post(
        proxies["ollama" if stage is OLLAMA else "openai"] + path, json=asked | dict.fromkeys(ELSEWHERE.split(), "evil") | usual
    )
    sent = json.loads(next(body for _, at, body in upstream.seen if at == path.partition("#")[0]))
    assert not sent.keys() & {*ELSEWHERE.split()}
    assert {*OF_SERVERS.split()} <= sent.keys()
    assert len([each for each in caplog.records if "'lora' in their names are left out" in each.getMessage()]) <= 1
    assert "evil" not in caplog.text


READ_ONCE = [
    ({"Stream": False}, {"stream": False}),
    ({"STREAM": True, "stream": False}, {"stream": False}),
    ({"optionſ": {"NUM_CTX": 1, "Num_Predict": 2, "mine": 3}}, {"options": {"num_ctx": 1, "num_predict": 2, "mine": 3}}),
    ({"options": {"num_ctx": 1, "Num_ctx": 2}, "Options": {"num_ctx": 3}}, {"options": {"num_ctx": 1}}),
    ({"messages": [{"Role": "user", "CONTENT": "Hi"}]}, {"messages": [{"role": "user", "content": "Hi"}]}),
    ({"OfSomebodyElse": {"Model": 1}}, {"OfSomebodyElse": {"Model": 1}}),
]


@pytest.mark.parametrize(("given", "read"), READ_ONCE)
def test_a_field_in_other_letters_is_the_field(given: dict[str, Any], read: dict[str, Any], proxies: dict[str, str]) -> None:
    upstream = play(OLLAMA, FakeOllama(), api_chat=(200, JSON, [b"{}"]))
    asked = {"model": "tiny", "messages": messages()}
    assert HTTP.post(proxies["ollama"] + OLLAMA_CHAT, json=asked | given if "messages" not in given else given).status_code == 200
    expected = {"model": "tiny"} | read if "messages" in given else asked | read
    assert json.loads(upstream.seen[-1][2]) == expected


def messages(*said: Mapping[str, Any] | str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": each} if isinstance(each, str) else dict(each) for each in said or ("Hi",)]


CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]}
NOT_RELAYED = {
    "tools": {"messages": messages(), "tools": [ADD]},
    "functions": {"messages": messages(), "functions": [ADD["function"]]},
    "a call in the history": {"messages": messages("Hi", CALLED)},
    "a result in the history": {"messages": messages("Hi", {"role": "tool", "tool_call_id": "c", "content": "9"})},
}


@pytest.mark.parametrize("asked", NOT_RELAYED.values(), ids=NOT_RELAYED.keys())
def test_what_has_tools_in_it_is_written_as_text(asked: dict[str, Any], proxies: dict[str, str]) -> None:
    upstream = play(OPENAI, FakeOpenAI())
    response = HTTP.post(f"{proxies['openai']}/v1/chat/completions", json={"model": "tiny", **asked})
    assert response.json()["choices"][0]["message"]["content"] == "Hello world"
    body = json.loads(upstream.seen[0][2])
    assert body["stream"] is True
    assert not body.keys() & {"tools", "functions"}
    assert {message["role"] for message in body["messages"]} <= {"system", "user", "assistant"}


MULTIPLY = {"index": 0, "id": "c", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 1234, "b": 5678}'}}
# What a server says that gives one answer only: llama.cpp with one slot (b11549), and others in their own words.
SLOTS = "n_cmpl cannot be greater than the number of slots, please increase -np"
ONE_ONLY = [(400, SLOTS), (422, "n: input should be 1"), (501, "not implemented")]


@pytest.mark.parametrize(("status", "said"), ONE_ONLY, ids=[str(status) for status, _ in ONE_ONLY])
@pytest.mark.parametrize(("proxy", "stage"), [("openai", OPENAI), ("llama", LLAMA)])
def test_several_answers_are_refused_in_our_words(
    proxy: str, stage: Stage, status: int, said: str, proxies: dict[str, str]
) -> None:
    play(stage, FakeOpenAI(refusal=(status, {"error": {"code": status, "message": said}})))
    response = HTTP.post(proxies[proxy] + CHAT, json={"model": "tiny", "messages": messages(), "n": 2})
    kind, _, message = error_of(CHAT, response)
    assert (response.status_code, kind, response.json()["error"]["param"]) == (400, "invalid_request_error", "n")
    assert message == f"n: expected 1, got 2, which the model server refuses (it said {said!r}): ask once for each answer"
    alone = HTTP.post(proxies[proxy] + CHAT, json={"model": "tiny", "messages": messages(), "n": 1})
    assert (alone.status_code, alone.json()["error"]["message"]) == (status, said)


@pytest.mark.parametrize("proxy", ["openai", "strict"])
def test_several_answers_with_calls_are_refused(proxy: str, proxies: dict[str, str]) -> None:
    fake = FakeOpenAI()
    play(OPENAI, fake)
    response = HTTP.post(proxies[proxy] + CHAT, json={"model": "tiny", "messages": messages(), "tools": [ADD], "n": 2})
    assert (response.status_code, error_of(CHAT, response)[2]) == (400, "n: expected 1, got 2: ask once for each answer")
    assert not fake.bodies


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_closed_after_its_call_is_counted(stream: bool, proxies: dict[str, str]) -> None:
    """The model goes on with a result of its own: its stream is closed, and the server never tells its count."""
    texts = [block(("add", {"a": 1, "b": 2})), "\n\nIt", " is", " 3."]
    timings = [{"cache_n": 30, "prompt_n": 2, "predicted_n": number} for number in range(1, 5)]
    fake = FakeOpenAI(
        steps=[chunk({"content": text}, timings=told) for text, told in zip(texts, timings, strict=True)]
        + [chunk({}, "stop"), fake_openai.final(prompt_tokens=32, completion_tokens=9), fake_openai.DONE],
        props=llama_props(),
    )
    play(LLAMA, fake)
    asked = {"model": "tiny", "messages": messages(), "tools": [ADD], "stream": stream}
    response = HTTP.post(proxies["llama"] + CHAT, json=asked | {"stream_options": {"include_usage": True}} if stream else asked)
    usage = events_of(CHAT, response.content)[-2]["usage"] if stream else response.json()["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]) == (32, {"cached_tokens": 30})
    assert 1 <= usage["completion_tokens"] <= 4


# Words of servers for the same; in Anthropic's format a wrong one lets clients drop the call.
CALLED_WORDS = ["tool_calls", "function_call", "tool_use", "stop"]


@pytest.mark.parametrize("word", CALLED_WORDS)
def test_an_answer_with_a_call_says_so_whatever_the_server_calls_it(word: str, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(steps=[chunk({"tool_calls": [MULTIPLY]}), chunk({}, word), fake_openai.DONE]))
    tool = {"name": "multiply", "input_schema": {"type": "object"}}
    asked = {"model": "tiny", "max_tokens": 99, "messages": messages(), "tools": [tool]}
    answer = HTTP.post(f"{proxies['native']}/v1/messages", json=asked).json()
    assert ([block["type"] for block in answer["content"]], answer["stop_reason"]) == (["tool_use"], "tool_use")


TRIALS = {
    "it works": ([chunk({"tool_calls": [MULTIPLY]}), chunk({}, "tool_calls")], True),
    "it does not": (fake_openai.reply("It is 7006652."), False),
}


@pytest.mark.parametrize(("steps", "is_native"), TRIALS.values(), ids=TRIALS.keys())
def test_tools_go_to_the_server_where_a_trial_call_works(steps: list[Step], is_native: bool) -> None:
    upstream = Upstream(FakeOpenAI(steps=steps))
    offered = {"type": "function", "function": {"name": "multiply", "parameters": {"type": "object"}}}
    content = json.dumps({"model": "tiny", "messages": messages(), "tools": [offered]}, indent=3).encode()
    with run_server(upstream) as model, run_server(create_app(f"{model}/v1"), lifespan="on") as url:
        upstream.seen.clear()
        for _ in range(2):
            HTTP.post(url + CHAT, content=content)
    (_, _, trial), *asked = upstream.seen
    assert json.loads(trial)["tools"][0]["function"]["name"] == "multiply"
    assert ["tools" in json.loads(each) for _, _, each in asked] == [is_native] * 2


def test_nothing_is_relayed_where_the_proxy_has_tools_of_its_own(proxies: dict[str, str]) -> None:
    upstream = play(OPENAI, FakeOpenAI())
    asked = {"model": "tiny", "messages": messages(), "unknown": 1}
    response = HTTP.post(f"{proxies['own']}/v1/chat/completions", json=asked)
    assert response.json()["choices"][0]["message"]["content"] == "Hello world"
    assert "double" in json.loads(upstream.seen[0][2])["messages"][0]["content"]


OTHERS = [
    ("openai", "/api/embed"),
    ("openai", "/api/embeddings"),
    ("ollama", "/v1/completions"),
    ("ollama", "/v1/embeddings"),
    ("ollama", "/v1/rerank"),
]


@pytest.mark.parametrize(("proxy", "path"), OTHERS)
def test_what_can_only_be_passed_on_needs_a_model_server_that_has_it(proxy: str, path: str, proxies: dict[str, str]) -> None:
    response = HTTP.post(proxies[proxy] + path, json={"model": "tiny", "input": "x"})
    assert response.status_code == 404
    assert f"the model server has no {path}" in response.text


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/v1/completions", "/api/embed"])
def test_a_path_that_the_model_server_does_not_know(path: str, status: int, proxies: dict[str, str]) -> None:
    said = {path.strip("/").replace("/", "_"): (status, "text/plain", [b"not started for this"])}
    is_ollama = path.startswith("/api/")
    play(OLLAMA if is_ollama else OPENAI, FakeOllama() if is_ollama else FakeOpenAI(), **said)
    response = HTTP.post(proxies["ollama" if is_ollama else "openai"] + path, json={"model": "tiny", "input": "x"})
    assert response.status_code == 404
    error = response.json()["error"]
    message = error if is_ollama else error["message"]
    assert f"the model server has no {path}" in message
    assert "not started for this" in message


def test_a_model_server_that_breaks_off_breaks_off_here_too(proxies: dict[str, str]) -> None:
    half = chunk({"content": "Hel"})[:-10]
    play(OPENAI, FakeOpenAI(steps=[half, CUT]))
    asked = {"model": "tiny", "messages": messages(), "stream": True}
    with HTTP.stream("POST", f"{proxies['openai']}/v1/chat/completions", json=asked) as response:
        pieces = response.iter_bytes()
        assert next(pieces) == half
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_a_relayed_stream_that_breaks_off_between_events_ends_with_an_error(proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(steps=[chunk({"content": "Hel"}), CUT]))
    with openai.OpenAI(base_url=f"{proxies['openai']}/v1", api_key="none", max_retries=0) as client:
        events = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], stream=True)
        with events:
            assert next(events).choices[0].delta.content == "Hel"
            with pytest.raises(openai.APIError, match="connection"):
                list(events)


def test_a_relayed_stream_of_lines_that_breaks_off_ends_with_an_error(proxies: dict[str, str]) -> None:
    play(OLLAMA, FakeOllama(steps=[fake_ollama.part("Hel"), fake_ollama.CUT]))
    with ollama.Client(proxies["ollama"]) as client:
        parts = client.chat("tiny", [{"role": "user", "content": "Hi"}], stream=True)
        assert next(parts).message.content == "Hel"
        with pytest.raises(ollama.ResponseError, match="connection"):
            list(parts)


@pytest.mark.parametrize(("told", "status"), [(999, 502), (599, 599), (204, 204)])
async def test_a_status_that_is_none_is_a_bad_gateway(told: int, status: int) -> None:
    async with raw_answer(f"HTTP/1.1 {told} X\r\ncontent-length: 0\r\n\r\n".encode()) as upstream:
        with run_server(create_app(ScriptedRelay(upstream), mode="xml"), lifespan="on") as url:
            response = await asyncio.to_thread(HTTP.post, f"{url}/v1/embeddings", json={"input": "x"})
    assert response.status_code == status


class ScriptedRelay(ScriptedBackend):
    """A scripted backend that relays to an address."""

    def __init__(self, url: str) -> None:
        super().__init__([])
        self._url = url

    @contextlib.asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> Any:
        from xmlcall.backends.base import Relayed

        async with httpx.AsyncClient() as client, client.stream(method, self._url + path, content=content) as response:
            yield Relayed(status=response.status_code, media_type="application/json", chunks=response.aiter_bytes())


# -- the four formats --------------------------------------------------------------------------------------------------

PATHS = (CHAT, RESPONSES, MESSAGES, OLLAMA_CHAT)
FORM = {CHAT: "openai", RESPONSES: "openai", MESSAGES: "anthropic", OLLAMA_CHAT: "ollama"}


def asking(path: str, *, stream: bool = False, tools: bool = True, text: str = "1 + 2?") -> dict[str, Any]:
    """Write a question in the format of a path."""
    function = ADD["function"]
    body: dict[str, Any] = {"model": "any", "stream": stream}
    body |= {"input": text} if path == RESPONSES else {"messages": messages(text)}
    body |= {"max_tokens": 99} if path == MESSAGES else {}
    if not tools:
        return body
    if path == MESSAGES:
        tool = {"name": function["name"], "input_schema": function["parameters"]}
    else:
        tool = {"type": "function", **function} if path == RESPONSES else ADD
    return body | {"tools": [tool]}


def error_of(path: str, response: httpx.Response) -> tuple[str, str | None, str]:
    """Return type, code and message of an error, whose form has to be the path's."""
    assert response.headers["content-type"] == "application/json"
    data = response.json()
    if FORM[path] == "ollama":
        assert data.keys() == {"error"}
        return "", None, data["error"]
    inner = data["error"]
    if FORM[path] == "anthropic":
        assert (data["type"], inner.keys()) == ("error", {"type", "message"})
        return inner["type"], None, inner["message"]
    assert (data.keys(), inner.keys()) == ({"error"}, {"message", "type", "param", "code"})
    return inner["type"], inner["code"], inner["message"]


def events_of(path: str, content: bytes) -> list[Any]:
    """Return what a stream says, without comments."""
    if path == OLLAMA_CHAT:
        return [json.loads(line) for line in content.splitlines()]
    return [json.loads(each) if each != b"[DONE]" else "[DONE]" for each in re.findall(rb"^data: (.*)$", content, re.MULTILINE)]


def text_of(path: str, content: bytes) -> str:
    """Return the text of a streamed answer."""
    found = ""
    for event in events_of(path, content):
        if path == CHAT and event != "[DONE]" and event.get("choices"):
            found += event["choices"][0]["delta"].get("content") or ""
        elif path == RESPONSES and event["type"] == "response.output_text.delta":
            found += event["delta"]
        elif path == MESSAGES and event["type"] == "content_block_delta":
            found += event["delta"]["text"]
        elif path == OLLAMA_CHAT:
            found += event.get("message", {}).get("content", "")
    return found


# -- errors ------------------------------------------------------------------------------------------------------------

DEEP = b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}"
REFUSALS: dict[str, tuple[bytes, dict[str, str], int, str, str]] = {
    # body, headers, status, type in Anthropic's format, words
    "bad JSON": (b'{"model": ', {}, 400, "invalid_request_error", "expected a JSON body"),
    "not an object": (b"[1]", {}, 400, "invalid_request_error", "expected a JSON object as the body, got [1]"),
    "too deep": (DEEP, {}, 400, "invalid_request_error", "at most 100 levels"),
    "a field of another type": (b'{"model": 1, "tools": [{}]}', {}, 400, "invalid_request_error", "got 1"),
    "a page": (b"{}", {"origin": "http://evil.example"}, 403, "permission_error", "'http://evil.example' may not"),
    "another name": (b"{}", {"host": "evil.example"}, 403, "permission_error", "got 'evil.example'"),
    "large headers": (b"{}", {"x": "a" * 33000}, 431, "invalid_request_error", "at most 32768 bytes of headers"),
    "a large body": (b" " * (32 * 1024 * 1024 + 1), {}, 413, "request_too_large", "at most 33554432 bytes"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name: str, path: str, proxies: dict[str, str]) -> None:
    content, headers, status, kind, words = REFUSALS[name]
    response = HTTP.post(proxies["openai"] + path, content=content, headers=headers)
    assert response.status_code == status
    told, _, message = error_of(path, response)
    assert words in message
    assert FORM[path] != "anthropic" or told == kind


@pytest.mark.parametrize("path", PATHS)
def test_paths_and_methods_that_are_not_there(path: str, proxies: dict[str, str]) -> None:
    unknown = HTTP.post(f"{proxies['openai']}{path}/unknown", json={})
    assert unknown.status_code == 404
    assert "questions go to: /v1/chat/completions, " in error_of(path, unknown)[2]
    wrong = HTTP.get(proxies["openai"] + path)
    assert (wrong.status_code, sorted(wrong.headers["allow"].split(", "))) == (405, ["OPTIONS", "POST"])
    assert f"GET {path}" in error_of(path, wrong)[2]


def test_a_path_that_is_not_there_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="xmlcall.proxy")
    with run_server(create_app(ScriptedBackend([])), lifespan="on") as url:
        for _ in range(3):
            HTTP.post(f"{url}/v1/chats", json={})
            HTTP.get(f"{url}/v1/x%0Ay%1b%5b31m" + "z" * 5000)
    told = [record.getMessage() for record in caplog.records if "404" in record.getMessage()]
    assert told[0] == "POST /v1/chats: 404 Not Found (said once); questions go to /v1/chat/completions and others"
    assert (len(told), all(each.isprintable() and len(each) < 500 for each in told)) == (2, True)


def overflow() -> tuple[int, Any]:
    said = {"type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 9000, "n_ctx": 4096}
    return 400, {"error": said}


# The model server's refusal; status, OpenAI's type and code, Anthropic's type, words.
TROUBLES: dict[str, tuple[tuple[int, Any], int, str, str | None, str, str]] = {
    "bad request": ((400, {"error": {"message": "no"}}), 400, "invalid_request_error", None, "invalid_request_error", "400: no"),
    "no such model": ((404, {"error": {"message": "gone"}}), 404, "invalid_request_error", None, "not_found_error", "404: gone"),
    "too many": ((429, {"error": {"message": "slower"}}), 429, "invalid_request_error", None, "rate_limit_error", "slower"),
    "broken": ((500, "Oops"), 502, "server_error", "model_server_error", "api_error", "500: Oops"),
    "loading": ((503, {"error": "loading"}), 502, "server_error", "model_server_error", "api_error", "503: loading"),
    "prompt too long": (
        overflow(),
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "invalid_request_error",
        "about 9,000 tokens, ",
    ),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", TROUBLES)
def test_what_the_model_server_refuses(name: str, stream: bool, path: str, proxies: dict[str, str]) -> None:
    refusal, status, kind, code, anthropic_kind, words = TROUBLES[name]
    play(OPENAI, FakeOpenAI(refusal=refusal))
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=stream))
    assert response.status_code == status
    told = error_of(path, response)
    assert words in told[2]
    expected = {"openai": (kind, code), "anthropic": (anthropic_kind, None), "ollama": ("", None)}
    assert told[:2] == expected[FORM[path]]


def test_a_model_server_that_is_gone() -> None:
    with contextlib.ExitStack() as stack:
        with run_server(FakeOpenAI().app) as upstream:
            url = stack.enter_context(run_server(create_app(f"{upstream}/v1", mode="xml"), lifespan="on"))
        for path, stream, tools in itertools.product(PATHS, (True, False), (True, False)):  # without tools, chats are relayed
            response = HTTP.post(url + path, json=asking(path, stream=stream, tools=tools))
            assert response.status_code == 503
            kind, code, message = error_of(path, response)
            assert "cannot connect to http://127.0.0.1:" in message
            assert kind == {"openai": "server_error", "anthropic": "overloaded_error", "ollama": ""}[FORM[path]]
            assert code == ("model_server_unavailable" if FORM[path] == "openai" else None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
def test_calls_that_never_can_run(path: str, stream: bool, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(steps=fake_openai.reply(block(("nothing_like_it", {"a": "x"})))))
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=stream))
    assert (response.status_code, response.headers["x-should-retry"]) == (502, "false")
    assert "however often it was told why: nothing_like_it: " in error_of(path, response)[2]


FINISHES = {
    CHAT: ('"finish_reason": "', "[DONE]"),
    RESPONSES: ("response.completed", "response.incomplete"),
    MESSAGES: ("message_stop", '"stop_reason": "'),
    OLLAMA_CHAT: ('"done": true', '"done_reason"'),
}
BREAKS: dict[str, list[bytes | float | str]] = {
    "cut": [chunk({"content": "Hello"}), CUT],
    "no end": [chunk({"content": "Hello"})],
}
BREAKS["an error"] = [chunk({"content": "Hello"}), fake_openai.event({"error": {"message": "out of memory"}})]
BREAKS["nonsense"] = [chunk({"content": "Hello"}), b"data: <html>\n\n"]


def failure_of(path: str, content: bytes) -> str:
    """Return the message of the error in which a stream ends; it may have no other end."""
    assert not [finish for finish in FINISHES[path] if finish in content.decode()]
    last = events_of(path, content)[-1]
    error = last["response"]["error"] if path == RESPONSES else last["error"]
    return str(error if FORM[path] == "ollama" else error["message"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BREAKS)
def test_a_model_server_that_fails_in_mid_stream(name: str, path: str, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(steps=BREAKS[name]))
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=True))
    assert response.status_code == 200
    assert text_of(path, response.content) == "Hello"
    assert failure_of(path, response.content)
    whole = HTTP.post(proxies["openai"] + path, json=asking(path))
    assert whole.status_code in (502, 503)
    assert error_of(path, whole)[2]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_tools_that_do_not_fit_are_told_with_figures(path: str, stream: bool, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(n_ctx=300))
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=stream))
    assert response.status_code == 400
    message = error_of(path, response)[2]
    figures = re.search(
        r"the context holds 300\b.*the (\d+) tools take about ([\d,]+) tokens: fewer tools, or a larger context", message
    )
    assert figures, message
    assert int(figures[1]) >= 1
    assert int(figures[2].replace(",", "")) > 100
    assert "-c N" in message  # how this server's context is made larger


# -- streams -----------------------------------------------------------------------------------------------------------

RELAYS = (CHAT,)  # without tools: passed on as it is
HOWS = [*((path, True) for path in PATHS), (CHAT, False), (MESSAGES, False)]


@pytest.mark.parametrize(("path", "tools"), HOWS)
def test_the_first_words_come_before_the_model_has_ended(path: str, tools: bool, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(steps=[chunk({"content": "Hello"}), SECONDS, *fake_openai.reply("never")]))
    begun, received = time.monotonic(), b""
    with HTTP.stream("POST", proxies["openai"] + path, json=asking(path, stream=True, tools=tools)) as response:
        for piece in response.iter_bytes():
            received += piece
            if text_of(path, received) == "Hello":
                break
    assert time.monotonic() - begun < SECONDS / 2


@contextlib.contextmanager
def asked(url: str, body: Mapping[str, Any]) -> Iterator[socket.socket]:
    """Send a question; the connection is closed at the end, whatever has come by then."""
    parsed, content = httpx.URL(url), json.dumps(body).encode()
    head = f"POST {parsed.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((parsed.host, parsed.port or 0), timeout=SECONDS) as connection:
        connection.sendall(head.encode() + content)
        yield connection


MOMENTS: dict[str, tuple[bool, list[Any]]] = {
    # whether it streams; what the model says before it is silent
    "before the first word": (True, []),
    "in the middle": (True, [chunk({"content": "Hello"})]),
    "of a whole answer": (False, [chunk({"content": "Hello"})]),
}


@pytest.mark.parametrize(("path", "tools"), HOWS)
@pytest.mark.parametrize("name", MOMENTS)
def test_a_caller_that_leaves_ends_the_generation(name: str, path: str, tools: bool, proxies: dict[str, str]) -> None:
    stream, said = MOMENTS[name]
    fake = FakeOpenAI(steps=[*said, 60.0])
    upstream = play(OPENAI, fake)
    with asked(proxies["openai"] + path, asking(path, stream=stream, tools=tools)) as connection:
        wait_until(lambda: bool(upstream.seen))
        received = b""
        while stream and said and b"Hello" not in received:
            received += connection.recv(65536)
    assert fake.left.wait(LEAVE_SECONDS), "the generation goes on at the server"


@pytest.mark.parametrize("tools", [True, False])
def test_a_caller_of_ollama_that_leaves_ends_the_generation(tools: bool, proxies: dict[str, str]) -> None:
    fake = FakeOllama(steps=[fake_ollama.part("Hello"), 60.0])
    upstream = play(OLLAMA, fake)
    with asked(proxies["ollama"] + OLLAMA_CHAT, asking(OLLAMA_CHAT, stream=True, tools=tools)):
        wait_until(lambda: bool(upstream.seen))
    assert fake.left.wait(LEAVE_SECONDS), "the generation goes on at the server"


def test_a_caller_that_leaves_ends_the_proxys_own_tools() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "never"

    backend = ScriptedBackend([block(("wait", {}))])
    with run_server(create_app(backend, [LocalHost([wait])], mode="xml", allowed=["*"]), lifespan="on") as url:
        with asked(url + MESSAGES, asking(MESSAGES)):
            assert begun.wait(SECONDS)
        assert ended.wait(LEAVE_SECONDS), "the tool goes on"


class Endless:
    """Steps without end; how many were taken is counted."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[Step]:
        piece = chunk({"content": "".join(random.Random(1).choices(string.ascii_letters, k=65_000))})  # what repeats is cut
        while True:
            self.taken += 1
            yield piece
            yield 0.0  # the server has to hear that the proxy has left


@pytest.mark.parametrize(("path", "tools"), [(CHAT, False), (CHAT, True), pytest.param(MESSAGES, True, marks=pytest.mark.full)])
def test_a_slow_reader_slows_the_model_server(path: str, tools: bool, proxies: dict[str, str]) -> None:
    steps: Any = Endless()
    fake = FakeOpenAI(steps=steps)
    play(OPENAI, fake)
    with asked(proxies["openai"] + path, asking(path, stream=True, tools=tools)) as connection:
        taken = wait_until_still(lambda: steps.taken)
        assert 0 < taken < 1000, "64 MB are more than all buffers hold"
        while steps.taken < taken + 20:  # whoever reads on gets more
            assert connection.recv(1 << 20)
    assert fake.left.wait(LEAVE_SECONDS)


def wait_until_still(count: Callable[[], int], seconds: float = 0.3) -> int:
    """Wait until a number has begun to grow and then stopped for a while."""
    deadline, last, since = time.monotonic() + SECONDS, 0, time.monotonic()
    while not last or time.monotonic() - since < seconds:
        assert time.monotonic() < deadline, f"it never stops: {count()}"
        time.sleep(0.02)
        if count() != last:
            last, since = count(), time.monotonic()
    return last


PINGS = {CHAT: b"\n: the model", RESPONSES: b"\n: the model", MESSAGES: b"event: ping\n", OLLAMA_CHAT: b""}


class Silence:
    """Steps of a model that says nothing until the head of its answer has come, and for a while after that."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.head_has_come = seconds, threading.Event()

    def __iter__(self) -> Iterator[Step]:
        while not self.head_has_come.is_set():
            yield 0.01
        yield self._seconds
        yield from fake_openai.reply("Hello")
        yield 0.1


@pytest.mark.parametrize("path", PATHS)
def test_a_silent_model_is_waited_for(path: str, proxies: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BEGIN_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.1)
    silence: Any = Silence(0.45)
    play(OPENAI, FakeOpenAI(steps=silence))
    begun = time.monotonic()
    with HTTP.stream("POST", proxies["openai"] + path, json=asking(path, stream=True)) as response:
        silence.head_has_come.set()
        content = b"".join(response.iter_bytes())
    most = 1 + (time.monotonic() - begun) / 0.1
    assert 2 <= content.count(PINGS[path]) <= most if PINGS[path] else b"\n\n" not in content
    assert text_of(path, content) == "Hello"
    assert [finish for finish in FINISHES[path] if finish in content.decode()]


@pytest.mark.parametrize("path", PATHS)
def test_an_error_after_the_beginning_is_an_event(path: str, proxies: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BEGIN_SECONDS", 0.02)
    play(OPENAI, FakeOpenAI(steps=[0.05, CUT]))
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=True))
    assert response.status_code == 200
    assert "broke off" in failure_of(path, response.content)


@pytest.mark.parametrize("path", PATHS)
def test_streams_are_not_kept_by_anybody_between(path: str, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI())
    response = HTTP.post(proxies["openai"] + path, json=asking(path, stream=True))
    assert response.headers["content-type"] == (LINES if path == OLLAMA_CHAT else SSE)
    assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-store", "no")
    assert text_of(path, response.content) == "Hello world"


# -- what is known of the model ----------------------------------------------------------------------------------------


def test_the_model_is_listed(proxies: dict[str, str]) -> None:
    with httpx.Client(base_url=proxies["openai"]) as client:
        listed = client.get("/v1/models").json()
        assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["tiny"])
        assert listed["data"][0] == client.get("/v1/models/tiny").json()
        assert client.get("/v1/models/org/any:7b").json()["id"] == "org/any:7b"  # whatever is asked for is served
        assert client.get("/v1/models/").json() == listed
        assert client.get("/").json() == {"status": "ok", "model": "tiny"}
        head = client.head("/")
        assert (head.status_code, head.content) == (200, b"")


def test_the_model_is_listed_as_ollama_does(proxies: dict[str, str]) -> None:
    with httpx.Client(base_url=proxies["openai"]) as client:
        [listed] = client.get("/api/tags").json()["models"]
        [running] = client.get("/api/ps").json()["models"]
        shown = client.post("/api/show", json={"model": "any"}).json()
        version = client.get("/api/version").json()["version"]
    assert (listed["name"], running["model"], shown["capabilities"]) == ("tiny", "tiny", ["completion", "tools"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_ollama_itself_lists_its_models(proxies: dict[str, str]) -> None:
    said = b'{"models" : [ ]}'
    upstream = play(OLLAMA, FakeOllama(), api_version=(200, JSON, [b'{"version":"9"}']), api_tags=(200, JSON, [said]))
    with httpx.Client(base_url=proxies["ollama"]) as client:
        assert client.get("/api/tags").json() == json.loads(said)
        assert client.get("/api/version").json() == {"version": "9"}
        assert client.get("/api/ps").json() == {"models": []}
        shown = client.post("/api/show", json={"model": "any"}).json()
    assert shown["capabilities"] == ["completion", "tools"]
    assert shown["model_info"]["gemma3.context_length"] == 131072
    assert json.loads(upstream.seen[-1][2]) == {"model": "tiny"}


SMUGGLED = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
UNCLEAR = {
    "both": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, the other way round": b"transfer-encoding: Chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "two lengths in one": b"Content-Length: 5, 0\r\n\r\n",
    "no number": b"Content-Length: +0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("headers", "path", "version"), covering(UNCLEAR.values(), [CHAT, "/health", "/nowhere"], [b"1.1", b"1.0"])
)
def test_a_request_without_one_end_is_refused_and_nothing_behind_it_is_read(
    headers: bytes, path: str, version: bytes, proxies: dict[str, str]
) -> None:
    said = raw(
        proxies["openai"], b"POST " + path.encode() + b" HTTP/" + version + b"\r\nHost: 127.0.0.1\r\n" + headers + SMUGGLED
    )
    assert re.match(rb"HTTP/1.1 (400|501) ", said)
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in said.lower()


def test_a_body_in_chunks_is_no_body_of_http_1_0(proxies: dict[str, str]) -> None:
    chunks = b"POST /health HTTP/1.0\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n"
    said = raw(proxies["openai"], chunks + SMUGGLED)
    assert (said[:13], said.count(b"HTTP/1.1 ")) == (b"HTTP/1.1 400 ", 1)


def raw(url: str, sent: bytes) -> bytes:
    """Send bytes, and read what is answered until the connection ends."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=SECONDS) as connection:
        connection.sendall(sent)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                said += piece
        return said


SCRIPT = b"<html><script>alert(1)</script>"
HTML = "text/html; charset=utf-8"
ABOUT = ["/api/version", "/api/tags", "/api/ps", "/api/show"]


NO_ANSWERS = [SCRIPT, b"[]", b'"9"', b'{"version": 9, "models": {}, "x": NaN}', b"\xff", b"[" * 5000, b""]


@pytest.mark.sweep
@pytest.mark.parametrize(("path", "media_type", "said"), covering(ABOUT, [HTML, JSON, "image/svg+xml", ""], NO_ANSWERS))
def test_what_ollama_says_of_itself_and_is_no_json_is_no_answer(
    path: str, media_type: str, said: bytes, proxies: dict[str, str]
) -> None:
    upstream = play(OLLAMA, FakeOllama())
    upstream.answers[path] = (200, media_type, [said])
    response = HTTP.request("POST" if path == "/api/show" else "GET", proxies["ollama"] + path, content=b"")
    assert (response.status_code, response.headers["content-type"]) == (502, "application/json")
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ABOUT)
@pytest.mark.parametrize(("status", "answers"), [(404, 200), (401, 200), (302, 502), (500, 502)])
def test_what_ollama_does_not_say_of_itself_is_said_here(path: str, status: int, answers: int, proxies: dict[str, str]) -> None:
    upstream = play(OLLAMA, FakeOllama())
    upstream.answers[path] = (status, HTML, [SCRIPT])
    response = HTTP.request("POST" if path == "/api/show" else "GET", proxies["ollama"] + path, content=b"")
    assert (response.status_code, response.headers["content-type"]) == (answers, "application/json")
    assert b"<script" not in response.content


@pytest.mark.parametrize("path", ABOUT)
def test_what_ollama_says_of_itself_has_our_content_type(path: str, proxies: dict[str, str]) -> None:
    said = {"version": "9", "models": [{"name": "<script>"}], "capabilities": ["completion", "tools"]}
    upstream = play(OLLAMA, FakeOllama())
    upstream.answers[path] = (200, HTML, [json.dumps(said).encode()])
    response = HTTP.request("POST" if path == "/api/show" else "GET", proxies["ollama"] + path, content=b"")
    assert (response.status_code, response.json()) == (200, said)
    assert (response.headers["content-type"], response.headers["x-content-type-options"]) == ("application/json", "nosniff")


@pytest.mark.parametrize("media_type", [HTML, "image/svg+xml", "text/event-stream, text/html", "application/xhtml+xml", "x"])
@pytest.mark.parametrize("status", [200, 404])
def test_no_answer_that_is_passed_on_is_a_page(media_type: str, status: int, proxies: dict[str, str]) -> None:
    play(OPENAI, FakeOpenAI(), v1_chat_completions=(status, media_type, [SCRIPT]))
    response = HTTP.post(proxies["openai"] + CHAT, json={"model": "tiny", "messages": messages()})
    assert (response.status_code, response.content) == (status, SCRIPT)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("proxy", ["openai", "ollama"])
@pytest.mark.parametrize("name", ["tiny", "tiny:latest"])
def test_the_model_that_is_served_is_there_already(name: str, proxy: str, proxies: dict[str, str]) -> None:
    upstream = play(OLLAMA, FakeOllama())
    with ollama.Client(proxies[proxy]) as client:
        states = [each.status for each in client.pull(name, stream=True)]
        assert client.pull(name).status == "success"
    assert (states[0], states[-1]) == ("pulling manifest", "success")
    assert upstream.seen == []


CHANGES: dict[str, Callable[[ollama.Client], Any]] = {
    "another model": lambda client: client.pull("llama3"),
    "another model, streamed": lambda client: list(client.pull("tiny:4b", stream=True)),
    "delete": lambda client: client.delete("tiny"),
    "copy": lambda client: client.copy("tiny", "mine"),
    "create": lambda client: client.create("mine", from_="tiny"),
    "push": lambda client: client.push("tiny"),
}


@pytest.mark.parametrize("proxy", ["openai", "ollama"])
@pytest.mark.parametrize("name", CHANGES)
def test_nobody_changes_the_servers_models(name: str, proxy: str, proxies: dict[str, str]) -> None:
    upstream = play(OLLAMA, FakeOllama())
    with ollama.Client(proxies[proxy]) as client, pytest.raises(ollama.ResponseError, match="the model server itself") as caught:
        CHANGES[name](client)
    assert caught.value.status_code == (404 if "another" in name else 403)
    assert upstream.seen == []


@pytest.mark.parametrize("said", [b"<html>", b"[]", b'{"capabilities": 1}'])
def test_an_ollama_that_shows_nonsense(said: bytes, proxies: dict[str, str]) -> None:
    play(OLLAMA, FakeOllama(), api_show=(200, JSON, [said]))
    response = HTTP.post(f"{proxies['ollama']}/api/show", json={"model": "any"})
    assert response.status_code == (200 if said.startswith(b"{") else 502)


def count(url: str, **body: Any) -> httpx.Response:
    return HTTP.post(f"{url}/v1/messages/count_tokens", json={"model": "any", "messages": messages("1 + 2?"), **body})


def test_tokens_are_counted_by_the_model_server_that_can(proxies: dict[str, str]) -> None:
    path = "/v1/chat/completions/input_tokens"
    upstream = play(LLAMA, FakeOpenAI(props=llama_props()))
    upstream.answers[path] = (200, JSON, [b'{"input_tokens": 1234}'])
    tool = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    assert count(proxies["llama"], tools=[tool]).json() == {"input_tokens": 1234}
    [(_, asked, content)] = upstream.seen
    assert asked == path
    assert "add" in json.loads(content)["messages"][0]["content"]  # the prompt with its tools


@pytest.mark.parametrize("answer", [(404, JSON, [b"{}"]), (200, JSON, [b'{"input_tokens": null}'])])
def test_tokens_are_estimated_where_nobody_counts(answer: Any, proxies: dict[str, str]) -> None:
    play(LLAMA, FakeOpenAI(props=llama_props())).answers["/v1/chat/completions/input_tokens"] = answer
    short, long = (count(proxies["llama"], messages=messages(text)).json() for text in ("Hi", "word " * 1000))
    assert 1 <= short["input_tokens"] < 20
    assert 1000 <= long["input_tokens"] < 2000
    assert count(proxies["openai"]).status_code == 200
    refused = count(proxies["openai"], messages=1)
    assert (refused.status_code, error_of(MESSAGES, refused)[0]) == (400, "invalid_request_error")


# -- who may call ------------------------------------------------------------------------------------------------------

KEY = "schlüssel-5"
PAGE = "http://localhost:3000"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    hello = (Chunk(text="Hello."), Chunk(finish_reason="stop", usage=Usage()))
    app = create_app(ScriptedBackend([hello] * 99), mode="xml", api_key=KEY, guard=Guard(origins=(f"{PAGE}/",)))
    with run_server(app, lifespan="on") as url:
        yield url


async def test_old_names_of_a_guard_are_taken_for_one_release() -> None:
    backend = ScriptedBackend([(Chunk(text="Hello."), Chunk(finish_reason="stop", usage=Usage()))])
    with pytest.warns(DeprecationWarning, match=r"create_app\(guard=Guard\(origins=\.\.\., hosts=\.\.\.\)\)"):
        app = create_app(backend, mode="xml", origins=[PAGE], allowed_hosts=["box.lan"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://box.lan") as client:
        allowed = await client.options("/v1/models", headers={"origin": PAGE, "access-control-request-method": "GET"})
        other = await client.get("/v1/models", headers={"host": "elsewhere.lan"})
    assert (allowed.headers["access-control-allow-origin"], other.status_code) == (PAGE, 403)


KEYS: list[tuple[dict[str, str | bytes], int]] = [
    ({"authorization": f"Bearer {KEY}".encode()}, 200),
    ({"authorization": f"bearer  {KEY}".encode()}, 200),
    ({"x-api-key": KEY.encode()}, 200),
    ({"x-api-key": "none", "authorization": f"Bearer {KEY}".encode()}, 200),
    ({"x-api-key": KEY.encode(), "authorization": "Bearer none"}, 200),
    ({}, 401),
    ({"authorization": KEY.encode()}, 401),
    ({"authorization": "Bearer"}, 401),
    ({"x-api-key": ""}, 401),
    ({"x-api-key": KEY[:-1].encode()}, 401),
    ({"x-api-key": f"{KEY}5".encode()}, 401),
    ({"x-api-key": KEY.encode("latin-1")}, 401),
    ({"cookie": f"key={KEY}".encode()}, 401),
]


@pytest.mark.parametrize(("headers", "status"), KEYS)
def test_keys(headers: dict[str, Any], status: int, guarded: str) -> None:
    for path in PATHS:
        response = HTTP.post(guarded + path, json=asking(path), headers=headers)
        assert response.status_code == status
        if status == 401:
            kind, code, message = error_of(path, response)
            assert "Authorization: Bearer KEY" in message
            assert kind == ("" if FORM[path] == "ollama" else "authentication_error")
            assert code == ("invalid_api_key" if FORM[path] == "openai" else None)


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, None], ids=lambda endpoint: endpoint.path if endpoint else "unknown")
def test_without_the_key_nothing_is_told(endpoint: Any, guarded: str) -> None:
    method, path = (endpoint.method, endpoint.path.replace("{name:path}", "x")) if endpoint else ("GET", "/unknown")
    assert HTTP.request(method, guarded + path).status_code == 401


def test_a_page_that_may_call(guarded: str) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
    asked = HTTP.options(guarded + CHAT, headers={"origin": PAGE, **wanted})  # browsers send no key with that
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert asked.headers["access-control-allow-headers"] == "*, authorization"
    assert "POST" in asked.headers["access-control-allow-methods"]
    for keys, status in (({b"x-api-key": KEY.encode()}, 200), ({}, 401)):
        answer = HTTP.post(guarded + CHAT, json=asking(CHAT), headers={b"origin": PAGE.encode(), **keys})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["http://localhost:3001", "https://localhost:3000", "http://localhost:3000.evil.example", "null"]
)
def test_other_pages_may_not(origin: str, guarded: str) -> None:
    for method in ("POST", "OPTIONS"):
        response = HTTP.request(method, guarded + CHAT, headers={b"origin": origin.encode(), b"x-api-key": KEY.encode()})
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origin", [None, "app://obsidian.md", "vscode-webview://1a2b", "tauri://localhost"])
def test_no_page_may_call_unless_allowed(origin: str | None, proxies: dict[str, str]) -> None:
    headers = {} if origin is None else {"origin": origin}
    response = HTTP.get(f"{proxies['openai']}/v1/models", headers=headers)
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert HTTP.options(proxies["openai"] + CHAT, headers={"origin": PAGE}).status_code == 403
