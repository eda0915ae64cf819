"""A server that refuses names of tools in other scripts is asked with plain ones, and its calls have the tools' own names."""

import json
from typing import Any

import httpx2
import pytest

from xmlcall import Message, Tool
from xmlcall.backends.openai import OpenAIBackend, plain_names
from xmlcall.errors import BackendStatusError
from xmlcall.types.calls import RawCall, ToolCall
from xmlcall.types.completion import CompletionRequest

PATTERN = "Invalid 'tools[0].function.name': string does not match pattern. Expected the pattern '^[a-zA-Z0-9_-]+$'."
TOOLS = tuple(Tool(name=name) for name in ("查询天气", "天气__seen", "files.read", "plain"))
EARLIER = ToolCall(id="c0", name="查询天气", arguments={}, raw=RawCall(index=0, name="查询天气"))
REQUEST = CompletionRequest(
    messages=(
        Message(role="user", content="Hi"),
        Message(role="assistant", content="", tool_calls=(EARLIER,)),
        Message(role="tool", content="Rain", tool_call_id="c0", name="查询天气"),
    ),
    tools=TOOLS,
    extra={"tool_choice": {"type": "function", "function": {"name": "查询天气"}}},
)


class Server:
    """A server that calls the first tool, and may be particular about names."""

    def __init__(self, refusal: str) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._refusal = refusal

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200 if "models" in request.url.path else 404, json={"data": [{"id": "m"}]})
        body = json.loads(request.content)
        self.bodies.append(body)
        name = body["tools"][0]["function"]["name"]
        if self._refusal and not name.isascii():
            return httpx2.Response(400, json={"error": {"message": self._refusal}})
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
        lines = [{"delta": {"tool_calls": [call]}, "index": 0}, {"delta": {}, "index": 0, "finish_reason": "tool_calls"}]
        text = "".join(f"data: {json.dumps({'choices': [line]})}\n\n" for line in lines)
        return httpx2.Response(200, content=f"{text}data: [DONE]\n\n", headers={"content-type": "text/event-stream"})


async def called(server: Server, times: int = 1) -> list[str]:
    names = []
    async with OpenAIBackend("http://127.0.0.1:1/v1", transport=httpx2.MockTransport(server.answer)) as backend:
        for _ in range(times):
            names += [call.name async for chunk in backend.stream(REQUEST) for call in chunk.tool_calls]
    return names


async def test_names_go_as_they_are() -> None:
    server = Server("")
    assert await called(server) == ["查询天气"]
    assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == [tool.name for tool in TOOLS]


async def test_a_server_that_refuses_them_gets_plain_ones() -> None:
    server = Server(PATTERN)
    assert await called(server, times=2) == ["查询天气", "查询天气"]
    assert len(server.bodies) == 3  # it is known from then on
    for body in server.bodies[1:]:
        text = json.dumps(body, ensure_ascii=False)
        assert "查询天气" not in text
        assert body["tool_choice"]["function"]["name"] == body["tools"][0]["function"]["name"]
        assert body["messages"][1]["tool_calls"][0]["function"]["name"] == body["tools"][0]["function"]["name"]


async def test_another_refusal_is_told() -> None:
    with pytest.raises(BackendStatusError, match="out of credit"):
        await called(Server("out of credit"))


def test_plain_names_are_unique_and_short() -> None:
    names = ["查询", "天气", "tool_1", "a" * 70, "a" * 71, "re\u0301", "a b"]
    chosen = plain_names(CompletionRequest(messages=(), tools=tuple(Tool(name=name) for name in names)))
    assert chosen.keys() == set(names) - {"tool_1"}
    assert len({*chosen.values(), "tool_1"}) == len(names)
    assert all(name.isascii() and len(name) <= 64 for name in chosen.values())
