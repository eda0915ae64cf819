"""Observe requests to the model server for metrics and traces: their outcome, their time and their tokens.

A request through the engine is a stream of chunks. A request that is passed on is a stream of bytes. These are searched for the
first token while they pass, and the last of them are kept, because they contain the token counts.
"""

import json
import re
import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...backends.base import Around, Backend, KeptOpen, Relayed, Tries, tries_of
from ...backends.http import TRACEPARENT
from ...errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow
from ...types.completion import Chunk, CompletionRequest, Usage
from ...wire.openai import count, mapping, usage_of

if TYPE_CHECKING:
    from .observer import ModelSpan, Observing

__all__ = ["ModelRequest", "ObservedBackend", "relaying"]

TAIL: Final = 65_536  # bytes that are kept of a passed-on answer: the counts are in the last event, or at the end of the object
_STREAMS: Final = ("text/event-stream", "application/x-ndjson")
# A piece of text or thinking that is not empty, in any of the formats.
_FIRST: Final = re.compile(rb'"(?:content|reasoning_content|reasoning|thinking|response|text)" ?: ?"[^"]')
_COUNTS: Final = re.compile(rb'"(?:usage|timings|prompt_eval_count)"')

_RESULTS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ContextOverflow, "context_overflow"),
    (BackendUnavailable, "unavailable"),
    (BackendStatusError, "refused"),
    (BackendProtocolError, "protocol_error"),
    (GeneratorExit, "closed"),
    (CancelledError, "closed"),
)


def result_of(error: BaseException) -> str:
    """Return how a request failed, as a word for a label."""
    return next((word for kind, word in _RESULTS if isinstance(error, kind)), "failed")


class ModelRequest:
    """A request to the model server, from its beginning to its end."""

    def __init__(self, observing: "Observing", span: "ModelSpan") -> None:
        self._observing, self._span = observing, span
        self._started = time.monotonic()
        self._has_begun = False
        self.usage: Usage | None = None
        self.finish_reason = ""
        self._pieces = 0
        if span.traceparent:
            TRACEPARENT.set(span.traceparent)

    def begun(self, *, is_reply: bool = True) -> None:
        """Note the first piece that the model writes; later calls have no effect.

        Args:
            is_reply: whether the piece belongs to the answer, not to a preliminary decision about it.
        """
        if self._has_begun:
            return
        self._has_begun = True
        self._span.first_chunk(time.monotonic() - self._started)
        if is_reply:
            self._observing.token()

    def take(self, chunk: Chunk) -> None:
        """Note a chunk of a reply."""
        if chunk.text or chunk.reasoning:
            self._pieces += 1
        self.usage = chunk.usage or self.usage
        self.finish_reason = chunk.finish_reason or self.finish_reason

    def over(self, result: str = "ok") -> None:
        """Note the end."""
        usage = self.usage
        if self._pieces and (usage is None or usage.completion_tokens is None):  # most servers send one token per piece
            usage = replace(usage or Usage(), completion_tokens=self._pieces, is_estimated=True)
        failure = "" if result in ("ok", "closed") else result
        self._span.over(usage=usage, finish_reason=self.finish_reason, failure=failure)
        self._observing.model_answered(result, usage)
        if self._span.traceparent:
            TRACEPARENT.set("")


class ObservedBackend(Around, KeptOpen):
    """A backend whose requests are observed."""

    def __init__(self, backend: Backend, observing: "Observing") -> None:
        super().__init__(backend)
        self._observing = observing

    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts at a request."""
        return _Observed(self._backend, request, self._observing)


class _Observed(Tries):
    """An observed request; all its attempts count as one."""

    def __init__(self, backend: Backend, request: CompletionRequest, observing: "Observing") -> None:
        super().__init__(backend, request)
        self._tries, self._observing = tries_of(backend, request), observing
        self._asked: ModelRequest | None = None
        self._has_begun = False
        self._result = "closed"  # unless it is read to its end

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Note the request's beginning, and its end unless another attempt may follow."""
        asked = self._asked = self._asked or self._observing.model_asked(self._backend.capabilities.server)
        try:
            async with self._tries.opened() as chunks:
                self.hears = (*self._tries.hears, self._hear)
                yield chunks
        except BackendError:
            raise
        except BaseException as error:
            asked.over(result_of(error))
            raise
        asked.over(self._result)

    def _hear(self, chunk: Chunk) -> None:
        if chunk.progress is None and self._asked is not None:
            if not self._has_begun:
                self._has_begun = True
                self._asked.begun(is_reply=not self._request.top_logprobs)
            self._asked.take(chunk)

    def ended(self) -> None:
        """Note that the reply was read to its end."""
        self._result = "ok"
        self._tries.ended()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Note the request's end, if no attempt follows."""
        failed: BaseException | None = error
        try:
            failed = final = await self._tries.again(error, begun=begun)
        except BaseException as left:
            failed = left
            raise
        finally:
            if failed is not None and self._asked is not None:
                self._asked.over(result_of(failed))
        return final


# -- answers that are passed on ----------------------------------------------------------------------------------------


@asynccontextmanager
async def relaying(opened: AbstractAsyncContextManager[Relayed], observing: "Observing", provider: str) -> AsyncIterator[Relayed]:
    """Observe a request to the model server whose answer is passed on byte for byte."""
    asked, result = observing.model_asked(provider), "ok"
    tail = _Tail()
    try:
        async with opened as relayed:
            result = "refused" if relayed.status >= 400 else "ok"
            tail.is_stream = relayed.media_type.startswith(_STREAMS)
            yield replace(relayed, chunks=_watched(relayed.chunks, tail, asked))
    except BaseException as error:
        result = result if result == "refused" else result_of(error)
        raise
    finally:
        if result != "refused":
            asked.usage = tail.usage()
        asked.over(result)


async def _watched(chunks: AsyncIterator[bytes], tail: "_Tail", asked: ModelRequest) -> AsyncIterator[bytes]:
    is_awaited = tail.is_stream
    async for chunk in chunks:
        if is_awaited and _FIRST.search(chunk):
            asked.begun()
            is_awaited = False
        tail.keep(chunk)
        yield chunk


class _Tail:
    """The last bytes of an answer.

    Attributes:
        is_stream: whether the answer arrives as several JSON objects instead of one.
    """

    def __init__(self) -> None:
        self.is_stream = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_whole = True

    def keep(self, piece: bytes) -> None:
        """Keep a piece, and drop bytes that are too far from the end."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * TAIL:  # seldom, so that each byte is copied once or twice
            kept = b"".join(self._pieces)[-TAIL:]
            self._pieces, self._size, self._is_whole = [kept], len(kept), False

    def usage(self) -> Usage | None:
        """Read the token counts; None if the server reported none, or reported them too far from the end."""
        data = b"".join(self._pieces)
        if not self.is_stream:
            return _counts(data) if self._is_whole else None
        lines = (line for line in reversed(data.splitlines()) if _COUNTS.search(line))
        return next((usage for line in lines if (usage := _counts(line.removeprefix(b"data:"))) is not None), None)


def _counts(text: bytes) -> Usage | None:
    try:
        data: Mapping[str, Any] = mapping(json.loads(text))
    except (ValueError, RecursionError):  # the answer is passed on even if it is not JSON
        return None
    if usage := usage_of(data):
        return usage
    prompt, completion = count(data.get("prompt_eval_count")), count(data.get("eval_count"))
    return None if prompt is None and completion is None else Usage(prompt_tokens=prompt, completion_tokens=completion)
