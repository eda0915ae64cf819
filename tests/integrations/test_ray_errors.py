"""What Ray's own proxy says, put into the caller's format; Ray is played by a few lines, so nothing of it is needed."""

import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from xmlcall.integrations.ray_errors import InCallersFormat, middleware

CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
LOST = "the replica ended before the answer was whole: ask again"
EVENTS, LINES = "text/event-stream", "application/x-ndjson"


def start(status: int, media_type: str) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", media_type.encode())]}


def body(text: str, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


async def answered(path: str, *said: Message) -> list[Message]:
    """Give what goes out for a request when Ray's proxy says some messages and then returns."""
    sent: list[Message] = []

    async def ray(scope: Scope, receive: Receive, send: Send) -> None:
        for message in said:
            await send(message)

    async def receive() -> Message:
        raise AssertionError("nothing of the request is read")

    async def send(message: Message) -> None:
        sent.append(message)

    await InCallersFormat(ray)({"type": "http", "path": path, "method": "POST", "headers": []}, receive, send)
    return sent


REFUSED = "Request dropped due to backpressure"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (CHAT, {"error": {"type": "server_error", "code": "overloaded", "param": None}}),
        (f"/prefix{MESSAGES}", {"type": "error", "error": {"type": "overloaded_error"}}),
        (OLLAMA, {"error": f"Ray Serve: {REFUSED}"}),
    ],
)
async def test_a_refusal_is_written_in_the_callers_format(path: str, error: dict[str, Any]) -> None:
    begun, rest = await answered(path, start(503, "text/plain; charset=utf-8"), body(REFUSED))
    headers = dict(begun["headers"])
    assert (begun["status"], headers[b"content-type"], headers[b"retry-after"]) == (503, b"application/json", b"5")
    told = json.loads(rest["body"])
    assert REFUSED in str(told)
    if isinstance(error["error"], dict):
        assert error["error"].items() <= told["error"].items()
    else:
        assert told == error


async def test_no_answer_at_all_is_a_refusal() -> None:
    begun, rest = await answered(CHAT)
    assert (begun["status"], json.loads(rest["body"])["error"]["message"]) == (503, LOST)


@pytest.mark.parametrize(
    ("path", "media_type", "event", "end"),
    [
        (CHAT, EVENTS, "data: {}\n\n", "data: {"),
        (MESSAGES, EVENTS, "event: ping\ndata: {}\n\n", "event: error\ndata: {"),
        (RESPONSES, EVENTS, "event: x\ndata: {}\n\n", "event: error\ndata: {"),
        (OLLAMA, LINES, "{}\n", '{"error"'),
        ("/api/generate", LINES, "{}\n", '{"error"'),
    ],
)
async def test_a_stream_without_its_end_ends_with_an_error(path: str, media_type: str, event: str, end: str) -> None:
    *passed, last = await answered(path, start(200, media_type), body(event, more=True))
    assert passed == [start(200, media_type), body(event, more=True)]
    assert last["body"].decode().startswith(end)
    assert LOST in last["body"].decode()
    assert not last["more_body"]


WHOLE = (start(200, EVENTS), body("data: {}\n\n", more=True), body(""))
HALF = (start(200, EVENTS), body("data: {}\n\nda", more=True))
NOT_STREAMED = (start(200, "application/json"), body("{", more=True))
OURS = (start(503, "application/json"), body('{"error": {}}'))
TEXT = (start(503, "text/plain"), body("busy"))


@pytest.mark.parametrize(
    ("path", "said"), [(CHAT, WHOLE), (CHAT, HALF), (CHAT, NOT_STREAMED), (CHAT, OURS), ("/other", TEXT), ("/-/healthz", TEXT)]
)
async def test_everything_else_passes_as_it_is(path: str, said: tuple[Message, ...]) -> None:
    assert await answered(path, *said) == list(said)


async def test_ray_is_given_a_list_of_middleware() -> None:
    (only,) = middleware()

    async def ray(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("not called")

    assert isinstance(only.cls(ray, *only.args, **only.kwargs), InCallersFormat)
