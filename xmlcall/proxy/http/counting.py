"""How many tokens an answer was, for the limits that its request was taken from (`limits.py`)."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio

from ...backends.base import Relayed
from ..formats.contract import ResponseEnded, ResponseEvent
from .limits import BYTES_A_TOKEN, Taken

__all__ = ["counted", "counted_bytes", "refunded", "tokens_told"]

SETTLE_SECONDS: Final = 1.0
TAIL: Final = 4096  # bytes at the end of an answer, where its usage stands
_TOTAL: Final = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_OLLAMA: Final = re.compile(rb'"(?:prompt_eval_count|eval_count)"\s*:\s*(\d{1,12})')


async def _settle(taken: Taken, tokens: int) -> None:
    """Put right what was taken, also for a caller that has left: its task is cancelled."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(SETTLE_SECONDS):
        await taken.settle(tokens)


@asynccontextmanager
async def refunded(taken: Taken | None, status: Callable[[], int]) -> AsyncIterator[None]:
    """Give the tokens of a request back that got an error in place of an answer; the request itself counts.

    Args:
        taken: for it; None where nothing limits it.
        status: tells which the caller got; 0 for none.
    """
    try:
        yield
    except Exception:
        if taken is not None:
            await _settle(taken, 0)
        raise
    if taken is not None and status() >= 400:
        await _settle(taken, 0)


def counted(events: AsyncGenerator[ResponseEvent], taken: Taken | None) -> AsyncGenerator[ResponseEvent]:
    """Pass the events of an answer on, and count its tokens.

    Args:
        events: of the answer.
        taken: for its request; None where nothing limits it.
    """
    return events if taken is None else _counted(events, taken)


async def _counted(events: AsyncGenerator[ResponseEvent], taken: Taken) -> AsyncGenerator[ResponseEvent]:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, ResponseEnded):
                usage = event.all_usage or event.usage
                await _settle(taken, (usage.prompt_tokens or 0) + (usage.completion_tokens or 0))
            yield event


def counted_bytes(
    opened: AbstractAsyncContextManager[Relayed], taken: Taken | None, asked: int
) -> AbstractAsyncContextManager[Relayed]:
    """Pass an answer on byte for byte, and count its tokens: those that it tells, else one for each event of its stream.

    Args:
        opened: the answer.
        taken: for its request; None where nothing limits it.
        asked: bytes of the request's body.
    """
    return opened if taken is None else _counted_bytes(opened, taken, asked // BYTES_A_TOKEN)


@asynccontextmanager
async def _counted_bytes(
    opened: AbstractAsyncContextManager[Relayed], taken: Taken, prompt_tokens: int
) -> AsyncIterator[Relayed]:
    tail, lines = b"", 0

    async def chunks(relayed: Relayed) -> AsyncIterator[bytes]:
        nonlocal tail, lines
        async for chunk in relayed.chunks:
            tail, lines = (tail + chunk)[-TAIL:], lines + chunk.count(b"\n")
            yield chunk

    async with opened as relayed:
        try:
            yield replace(relayed, chunks=chunks(relayed))
        finally:
            told = tokens_told(tail)
            await _settle(taken, prompt_tokens + lines // 2 if told is None else told)


def tokens_told(tail: bytes) -> int | None:
    """Return how many tokens an answer says that it took, prompt and reply; None if it does not say.

    Args:
        tail: of the answer, as OpenAI's API or Ollama's writes it.
    """
    if found := _TOTAL.findall(tail):
        return int(found[-1])
    counts = _OLLAMA.findall(tail)
    return sum(map(int, counts)) if counts else None
