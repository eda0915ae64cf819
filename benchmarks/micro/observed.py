"""What it costs the proxy to be seen from outside: processor time of one request, and of one piece of its answer.

    python benchmarks/micro/observed.py

Requests are told to the observer as the proxy tells them, without network and model: begun, one request to the model server, its
token counts, the end. Pieces are those of a reply through the engine, and of an answer that is passed on; the same stream
without the observer is taken off. The best of five runs counts. Traces go to a processor that drops them: what a collector costs
runs in a thread of its own, and depends on the collector.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from starlette.requests import Request

from xmlcall.backends.base import Backend, Relayed
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.observed.observer import ObservedBackend, Observer, relaying
from xmlcall.proxy.observed.traces import Traces
from xmlcall.types.completion import Chunk, CompletionRequest, Usage

RUNS: Final = 5
REQUESTS: Final = 3000
PIECES: Final = 200_000
USAGE: Final = Usage(prompt_tokens=2000, completion_tokens=70, cached_tokens=1900)
ASKED: Final = Request({"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]})
PATH: Final = "/v1/chat/completions"
BYTES: Final = b'data: {"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'


async def requests(observer: Observer) -> None:
    """Tell of many requests."""
    for _ in range(REQUESTS):
        observing = observer.begin(ASKED, PATH)
        observing.model = "model"
        observing.stream_began()
        asked = observing.model_asked("llama.cpp")
        asked.begun()
        asked.take(Chunk(text="Hello", usage=USAGE))
        asked.over()
        observing.over(status=200, error=None, has_left=False)


class Pieces(ScriptedBackend):
    """A reply of many pieces."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate the same piece again and again."""
        piece = Chunk(text=" token")
        for _ in range(PIECES):
            yield piece


async def reply(backend: Backend) -> None:
    """Hear a reply to its end."""
    async for _ in backend.stream(CompletionRequest(messages=())):
        pass


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Relayed]:
    """Give an answer of many pieces."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(PIECES):
            yield BYTES

    yield Relayed(status=200, media_type="text/event-stream", chunks=chunks())


async def passed_on(answer: contextlib.AbstractAsyncContextManager[Relayed]) -> None:
    """Pass an answer on to nobody."""
    async with answer as relayed:
        async for _ in relayed.chunks:
            pass


async def best(work: Callable[[], Awaitable[None]], count: int) -> float:
    """Return the processor time of one of many, in µs."""
    found = []
    for _ in range(RUNS):
        started = time.process_time()
        await work()
        found.append((time.process_time() - started) / count * 1e6)
    return min(found)


async def measure() -> None:
    """Print the table."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    observer, traced = Observer(), Observer(tracing=Traces(provider))
    bare = Pieces([])
    rows = {
        "a request": await best(lambda: requests(observer), REQUESTS),
        "a request, with traces": await best(lambda: requests(traced), REQUESTS),
        "a piece of a reply": await best(lambda: reply(ObservedBackend(bare, observer.begin(ASKED, PATH))), PIECES)
        - await best(lambda: reply(bare), PIECES),
        "a piece that is passed on": await best(
            lambda: passed_on(relaying(opened(), observer.begin(ASKED, PATH), "llama.cpp")), PIECES
        )
        - await best(lambda: passed_on(opened()), PIECES),
    }
    print("| what | µs |\n|---|---:|")
    for what, microseconds in rows.items():
        print(f"| {what} | {microseconds:.2f} |")


if __name__ == "__main__":
    asyncio.run(measure())
