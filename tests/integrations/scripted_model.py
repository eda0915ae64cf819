"""A model server on loopback that says what a test gave it for a question, and records what it was asked.

A question is known by a word in the person's messages, so that many callers may ask at the same time.
"""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servers.fake_openai import CUT, DONE, Step, chunk, final
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["ANY", "ScriptedModel"]

Piece = str | Mapping[str, Any]

ANY = "any"
"""The word of a question without one."""

USAGE = {"prompt_tokens": 32, "completion_tokens": 4, "total_tokens": 36}
_WORD = re.compile(r"\bQ\d+\b")


@dataclass
class ScriptedModel:
    """The server's state.

    Attributes:
        replies: word -> pieces of each reply: text, deltas, or `CUT`, which breaks the connection off. The last is said again.
        asked: word -> the bodies of the requests with it.
    """

    replies: dict[str, list[Sequence[Piece]]] = field(default_factory=dict)
    asked: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        """The ASGI app."""
        chat = Route("/v1/chat/completions", self._chat, methods=["POST"])
        return Starlette(routes=[chat, Route("/v1/models", self._models)])

    def says(self, *pieces: Piece, then: Sequence[str] = (), word: str = "") -> str:
        """Prepare a reply, and others for when it is asked again; give the word to ask with."""
        word = word or f"Q{len(self.replies)}"
        self.replies[word] = [pieces, *([each] for each in then)]
        self.asked.pop(word, None)
        return word

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if body.get("logprobs"):  # `xmlcall serve` tries whether the server tells them
            return StreamingResponse(_stream(["Hello"]), media_type="text/event-stream")
        word = _word_in(body["messages"]) or ANY
        asked, replies = self.asked.setdefault(word, []), self.replies[word]
        asked.append(body)
        reply = replies[min(len(asked), len(replies)) - 1]
        if body.get("stream"):
            return StreamingResponse(_stream(reply), media_type="text/event-stream")
        return JSONResponse(_whole(reply))


def _word_in(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the word of the question that was asked last; "" if none has one."""
    words = _WORD.findall(json.dumps([message["content"] for message in messages if message["role"] == "user"]))
    return words[-1] if words else ""


def _whole(pieces: Sequence[Piece]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(each for each in pieces if isinstance(each, str))}
    for delta in (each for each in pieces if not isinstance(each, str)):
        message |= delta
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "chatcmpl-x", "object": "chat.completion", "created": 1795240876, "model": "tiny"}
    return {**head, "choices": [choice], "usage": USAGE}


async def _stream(pieces: Sequence[Piece]) -> AsyncIterator[bytes]:
    for step in _steps(pieces):
        if not isinstance(step, bytes):
            raise ConnectionAbortedError(step)  # uvicorn drops the connection without the last HTTP chunk
        yield step


def _steps(pieces: Sequence[Piece]) -> Iterable[Step]:
    yield chunk({"role": "assistant", "content": None})
    for piece in pieces:
        yield CUT if piece == CUT else chunk({"content": piece} if isinstance(piece, str) else piece)
    yield from (chunk({}, "stop"), final(**USAGE), DONE)
