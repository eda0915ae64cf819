"""The end of answers when a server is stopped, at moments that a process does not meet twice: on the exchange itself.

An app that sends something after its last message is an error to every server: of uvicorn's it is a traceback in the log.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from xmlcall.errors import BackendProtocolError
from xmlcall.proxy.formats.contract import Asked, ChatRequest, ResponseEnded, ResponseEvent, TextPiece
from xmlcall.proxy.formats.openai_chat import CHAT
from xmlcall.proxy.http.exchange import Ending, Exchange
from xmlcall.types.completion import Usage

ASKED = Asked(request=ChatRequest(messages=()), model="tiny", stream=True, shape={"include_usage": False})


class Server:
    """ASGI's side of a caller that stays, as strict as a real one."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.body = b""
        self.is_complete = False

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        if self.is_complete:
            raise RuntimeError(f"{message['type']} after the last message")
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])
            return
        self.body += message["body"]
        self.is_complete = not message["more_body"]


async def at_once() -> AsyncGenerator[ResponseEvent]:
    """Answer without ever waiting."""
    yield TextPiece(text="Hello")
    yield ResponseEnded(finish_reason="stop", usage=Usage())


async def breaks_when_cut() -> AsyncGenerator[ResponseEvent]:
    """Break when it is cancelled, as an HTTP client may whose connection is closed under it."""
    yield TextPiece(text="Hello")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise BackendProtocolError("the connection was closed", backend="scripted") from None


async def stays() -> AsyncGenerator[ResponseEvent]:
    """Say one word and then nothing."""
    yield TextPiece(text="Hello")
    await asyncio.Event().wait()


# What is answered, when the end begins, and what the caller is told last.
CASES = {
    "whole before the cut took": (at_once, 0.0, "[DONE]"),
    "broken by the cut": (breaks_when_cut, 0.05, "the connection was closed"),
    "cut": (stays, 0.05, "the server was stopped"),
}


@pytest.mark.parametrize("name", CASES)
async def test_nothing_is_sent_after_the_end(name: str) -> None:
    events, seconds, told = CASES[name]
    server, ending = Server(), Ending()
    exchange = Exchange(server.receive, server.send, CHAT, ending=ending)
    if seconds:
        asyncio.get_running_loop().call_later(seconds, ending.begin)
    else:
        ending.begin()
    await asyncio.wait_for(exchange.stream(events(), ASKED), 5)
    assert server.is_complete
    assert server.statuses == [200]
    assert told in server.body.decode().strip().rpartition("\n\n")[2]


async def test_a_whole_answer_is_not_followed_by_another() -> None:
    server, ending = Server(), Ending()
    ending.begin()
    await asyncio.wait_for(Exchange(server.receive, server.send, CHAT, ending=ending).whole(at_once(), ASKED), 5)
    assert server.statuses == [200]
    assert json.loads(server.body)["choices"][0]["message"]["content"] == "Hello"
