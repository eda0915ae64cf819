"""The backend that plays a script."""

import asyncio
from typing import Any

import pytest

from xmlcall.backends.base import Backend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendUnavailable, UsageError
from xmlcall.types.calls import Message
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

REQUEST = CompletionRequest(messages=(Message(role="user", content="Hi"),))
END = Chunk(finish_reason="stop")


async def play(backend: Backend, request: CompletionRequest = REQUEST) -> list[Chunk]:
    async with backend:
        return [chunk async for chunk in backend.stream(request)]


@pytest.mark.parametrize(
    ("reply", "arguments", "chunks"),
    [
        ("abc", {}, [Chunk(text="abc"), END]),
        ("abc", {"chunk_size": 2}, [Chunk(text="ab"), Chunk(text="c"), END]),
        ("abc", {"chunk_size": list}, [Chunk(text="a"), Chunk(text="b"), Chunk(text="c"), END]),
        ("abc", {"finish_reasons": ["length"]}, [Chunk(text="abc"), Chunk(finish_reason="length")]),
        (["a", Chunk(reasoning="r")], {}, [Chunk(text="a"), Chunk(reasoning="r"), END]),
        ([Chunk(text="a", finish_reason="length")], {}, [Chunk(text="a", finish_reason="length")]),
    ],
)
async def test_replies(reply: Any, arguments: dict[str, Any], chunks: list[Chunk]) -> None:
    assert await play(ScriptedBackend([reply], **arguments)) == chunks


async def test_each_request_gets_the_next_reply_and_is_kept() -> None:
    backend = ScriptedBackend(["a", "b"], finish_reasons=["length"])
    other = CompletionRequest(messages=())
    assert [(await play(backend))[-1].finish_reason, (await play(backend, other))[-1].finish_reason] == ["length", "stop"]
    assert backend.requests == [REQUEST, other]
    assert backend.closed_early == [False, False]
    with pytest.raises(UsageError, match="the script has 2 replies, reply 3 was asked for"):
        await play(backend)


async def test_an_exception_in_mid_stream() -> None:
    backend = ScriptedBackend([["a", BackendUnavailable("gone")], BackendUnavailable("never there")])
    stream = backend.stream(REQUEST)
    assert await anext(stream) == Chunk(text="a")
    for gone in (stream, backend.stream(REQUEST)):
        with pytest.raises(BackendUnavailable):
            await anext(gone)
    assert backend.closed_early == [False, False]


async def test_a_stream_that_is_left_early_or_cancelled() -> None:
    backend = ScriptedBackend(["abc"] * 2, chunk_size=1)
    stream = backend.stream(REQUEST)
    await anext(stream)
    await stream.aclose()
    with pytest.raises(asyncio.CancelledError):
        await backend_cancelled(backend)
    assert backend.closed_early == [True, True]


async def backend_cancelled(backend: ScriptedBackend) -> None:
    async for _ in backend.stream(REQUEST):
        raise asyncio.CancelledError


async def test_it_says_of_itself_what_it_is_told() -> None:
    assert ScriptedBackend([]).capabilities == Capabilities(server="scripted")
    told = Capabilities(server="scripted", reasoning_open=True)
    assert ScriptedBackend([], capabilities=told).capabilities is told


def test_a_chunk_size_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 character, got 0"):
        ScriptedBackend([], chunk_size=0)
