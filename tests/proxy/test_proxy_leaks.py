"""Calls that a server with function calling leaves in the text: fakes of vLLM, llama.cpp and Ollama, in each family's form."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from profiles import covering
from servers import fake_ollama, fake_openai
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, chunk, llama_props
from servers.run_server import Stage, run_server

from xmlcall import Catalog
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.proxy import create_app

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
ARGUMENTS = {"city": "Z\u00fcrich", "days": 3}
HI = [{"role": "user", "content": "How is the weather?"}]
CATALOG = Catalog([TOOL])
VLLM, LLAMA, OLLAMA = Stage(), Stage(), Stage()
SAYS = {"vllm": fake_openai.reply, "llama": fake_openai.reply, "ollama": fake_ollama.reply}
STAGES = {"vllm": VLLM, "llama": LLAMA, "ollama": OLLAMA}
HTTP = httpx.Client(timeout=10.0)


def fake_of(server: str, steps: list[Any]) -> Any:
    if server == "ollama":
        return FakeOllama(steps=steps, capabilities=("completion", "tools"))
    return FakeOpenAI(steps=steps, props=llama_props(tools=True) if server == "llama" else None)


@pytest.fixture(scope="module")
def proxies() -> Iterator[dict[str, str]]:
    """A proxy in native mode in front of each server."""
    for server, stage in STAGES.items():
        stage.app = fake_of(server, []).app
    with contextlib.ExitStack() as stack:
        urls = {server: stack.enter_context(run_server(stage)) for server, stage in STAGES.items()}
        backends: dict[str, Any] = {server: f"{url}/v1" for server, url in urls.items()}
        backends["ollama"] = OllamaBackend("tiny", host=urls["ollama"])
        yield {
            server: stack.enter_context(run_server(create_app(backend, mode="native"), lifespan="on"))
            for server, backend in backends.items()
        }
    HTTP.close()


def asked(url: str, messages: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """Ask for a chat completion; return the message."""
    body = {"model": "tiny", "messages": messages or HI, "tools": [TOOL], **more}
    response = HTTP.post(f"{url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json()["choices"][0])


def calls_of(choice: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = choice["message"].get("tool_calls") or []
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


@pytest.mark.sweep
@pytest.mark.parametrize(("dialect", "server"), covering(DIALECTS, STAGES))
def test_a_leaked_call_is_a_call(dialect: str, server: str, proxies: dict[str, str]) -> None:
    leaked = write([("get_weather", ARGUMENTS)], CATALOG, DIALECTS[dialect])
    STAGES[server].app = fake_of(server, SAYS[server](*f"I look.\n{leaked}")).app
    choice = asked(proxies[server])
    assert calls_of(choice) == [("get_weather", ARGUMENTS)]
    assert choice["finish_reason"] == "tool_calls"
    assert (choice["message"]["content"] or "").strip() == "I look."


@pytest.mark.parametrize(("said", "is_read"), [("does not match the expected peg-native format", True), ("out of memory", False)])
def test_a_reply_that_its_server_cannot_read_is_read(said: str, is_read: bool, proxies: dict[str, str]) -> None:
    """llama.cpp, common/chat.cpp, b11549: it says so after the text that it has streamed."""
    leaked = write([("get_weather", ARGUMENTS)], CATALOG, DIALECTS["pythonic"])
    error = {"error": {"code": 500, "type": "server_error", "message": f"The model produced output that {said}"}}
    LLAMA.app = fake_of("llama", [chunk({"content": leaked}), fake_openai.event(error)]).app
    response = HTTP.post(f"{proxies['llama']}/v1/chat/completions", json={"model": "tiny", "messages": HI, "tools": [TOOL]})
    assert (response.status_code == 200) is is_read
    assert not is_read or calls_of(response.json()["choices"][0]) == [("get_weather", ARGUMENTS)]


def test_a_call_that_the_server_reports_as_well_counts_once(proxies: dict[str, str]) -> None:
    leaked = write([("get_weather", ARGUMENTS)], CATALOG, DIALECTS["hermes"])
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}}
    steps = [chunk({"content": leaked}), chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), fake_openai.DONE]
    VLLM.app = fake_of("vllm", steps).app
    assert calls_of(asked(proxies["vllm"])) == [("get_weather", ARGUMENTS)]


def test_what_the_caller_says_reaches_the_server_whole(proxies: dict[str, str]) -> None:
    fake = FakeOpenAI(steps=fake_openai.reply("Yes."))
    VLLM.app = fake.app
    said = [{"role": "user", "content": "Hi", "name": "ann"}]
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    asked(proxies["vllm"], said, tools=[strict], top_k=5, unknown={"a": 1})
    body = fake.bodies[-1]
    assert (body["messages"], body["tools"], body["top_k"], body["unknown"]) == (said, [strict], 5, {"a": 1})


def test_a_call_of_the_server_keeps_its_id(proxies: dict[str, str]) -> None:
    call = {
        "index": 0,
        "id": "functions.f:7",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "x"}'},
    }
    VLLM.app = fake_of("vllm", [chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), fake_openai.DONE]).app
    assert [each["id"] for each in asked(proxies["vllm"])["message"]["tool_calls"]] == ["functions.f:7"]


BROKEN = [
    "{'city': 'Z\u00fcrich', 'days': 3}",
    '{"city": "Z\u00fcrich", "days": 3,}',
    '{"city": "Z\u00fcrich", "days": "3"}',
    '```json\n{"city": "Z\u00fcrich", "days": 3}\n```',
    '"{\\"city\\": \\"Z\u00fcrich\\", \\"days\\": 3}"',
]


@pytest.mark.parametrize("arguments", BROKEN)
def test_broken_arguments_of_the_server_are_mended(arguments: str, proxies: dict[str, str]) -> None:
    pieces = [{"index": 0, "id": "c", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]
    pieces += [{"index": 0, "function": {"arguments": character}} for character in arguments]
    steps = [*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "tool_calls"), fake_openai.DONE]
    VLLM.app = fake_of("vllm", steps).app
    assert calls_of(asked(proxies["vllm"])) == [("get_weather", ARGUMENTS)]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("{'city': 'Bern',}", {"city": "Bern"}),
        ('{"city": "Bern"', {"city": "Bern"}),
        ('{"city": ', {"arguments": '{"city": '}),
        ("", {}),
    ],
)
def test_broken_arguments_in_a_history_do_not_end_the_conversation(given: str, sent: Any, proxies: dict[str, str]) -> None:
    """llama.cpp answers 500 to a history with broken JSON, and the client cannot take it back."""
    fake = FakeOpenAI(steps=fake_openai.reply("It is 20 degrees."), props=llama_props(tools=True))
    LLAMA.app = fake.app
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": given}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Bern?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "error"},
    ]
    assert asked(proxies["llama"], history)["message"]["content"] == "It is 20 degrees."
    written = next(message for message in fake.bodies[-1]["messages"] if message.get("tool_calls"))
    assert json.loads(written["tool_calls"][0]["function"]["arguments"]) == sent
