"""Tools whose names a model cannot write: what it is offered, and what the caller hears, in every wire format."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_harness import ask, block, body, client_of, function

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.engine.filters import offered_names
from xmlcall.types.calls import Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
GIVEN = {"path": "a.txt"}

# the caller's name -> the model's
NAMES = {
    "read file": "read_file",
    "获取天气": "获取天气",
    "x" * 80: "x" * 80,
    "x" * 300: "x" * 100,
    "files.read/all": "files.read/all",
    "mcp:files/read-all": "mcp:files/read-all",
    "<b>": "b",
    'say "hi"': "say_hi",
    "x\n## Rules": "x_##_Rules",
    "<>": "tool",
    "a&b": "a&b",
    "weather?": "weather?",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=[name[:20] for name in NAMES])
def test_the_name_that_is_offered(name: str, expected: str) -> None:
    assert offered_names([Tool(name=name)]).get(name, name) == expected


def test_no_two_tools_get_one_name() -> None:
    tools = [Tool(name=name) for name in ("read file", "read_file", "read\tfile", "read_file_2", "read\nfile")]
    chosen = offered_names(tools, {"read_file_3"})
    assert chosen == {"read file": "read_file_4", "read\tfile": "read_file_5", "read\nfile": "read_file_6"}


@given(st.lists(st.text(" _<ab\n", min_size=1, max_size=4), unique=True, max_size=8))
def test_names_stay_different_and_the_same_each_time(names: list[str]) -> None:
    tools = [Tool(name=name) for name in names]
    chosen = offered_names(tools)
    offered = [chosen.get(name, name) for name in names]
    assert len(set(offered)) == len(names)
    assert not [name for name in offered if set(name) & set(" <\n") or not name]
    assert offered_names(tools) == chosen
    assert offered_names([Tool(name=name) for name in offered]) == {}


def chat(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    tool = {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool], **fields}


def responses(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"input": "Hi", "tools": [{"type": "function", "name": name, "parameters": SCHEMA}], **fields}


def messages(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    tool = {"name": name, "input_schema": SCHEMA}
    return "/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "tools": [tool], **fields}


def ollama(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/api/chat", chat(name, **fields)[1]


FORMATS = [chat, responses, messages, ollama]
CHOICES: list[Any] = [
    {"type": "function", "function": {"name": "@"}},
    {"type": "function", "name": "@"},
    {"type": "tool", "name": "@"},
    {"type": "function", "function": {"name": "@"}},
]


def named(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace('"@"', json.dumps(name)))


def names_in(data: Any) -> set[str]:
    """Return all that is called `name` in an answer, but what repeats the request."""
    if isinstance(data, list):
        return {name for each in data for name in names_in(each)}
    if not isinstance(data, dict):
        return set()
    own = {data["name"]} if isinstance(data.get("name"), str) else set()
    return own | {name for key, each in data.items() if key not in ("tools", "tool_choice") for name in names_in(each)}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES, ids=[name[:20] for name in NAMES])
@pytest.mark.parametrize("number", range(4), ids=[form.__name__ for form in FORMATS])
async def test_a_call_comes_back_under_the_callers_name(number: int, name: str, stream: bool) -> None:
    backend = ScriptedBackend([block((NAMES[name], GIVEN))] * 2, chunk_size=7)
    async with client_of(backend) as client:
        for fields in ({}, {"tool_choice": named(CHOICES[number], name)}):
            path, asked = FORMATS[number](name, stream=stream, **fields)
            answer = await client.post(path, json={"model": "m", **asked})
            assert answer.status_code == 200, answer.text
            lines = answer.text.splitlines() if stream else [answer.text]
            data = [line.removeprefix("data: ") for line in lines if line.lstrip("dat: ").startswith("{")]
            assert names_in([json.loads(each) for each in data]) == {name}
    assert NAMES[name] in backend.requests[0].messages[0].content


async def test_the_history_is_in_the_models_names_and_as_it_wrote_them() -> None:
    said = f"Well.\n{block(('read_file', GIVEN))}"
    backend = ScriptedBackend([said, "Done."])
    async with client_of(backend) as client:
        path, asked = chat("read file")
        message = (await client.post(path, json={"model": "m", **asked})).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "abc"}
        asked["messages"] += [message, result]
        await client.post(path, json={"model": "m", **asked})
    first, second = [request.messages for request in backend.requests]
    assert second[: len(first)] == first
    assert second[2].content == said
    assert '<result name="read_file">' in second[3].content


async def test_a_history_of_another_server_is_in_the_models_names() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read file", "arguments": json.dumps(GIVEN)}}
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "abc"},
    ]
    backend = ScriptedBackend(["Done."])
    await ask(backend, body({"role": "user", "content": "Hi"}, *said, tools=[function("read file", path={"type": "string"})]))
    written = [message.content for message in backend.requests[0].messages]
    assert '<invoke name="read_file">' in written[2]
    assert '<result name="read_file">' in written[3]
