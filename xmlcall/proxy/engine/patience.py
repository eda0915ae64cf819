"""A backend that asks again when the model server failed before it said anything.

A connection that was kept open may be closed just when it is used again, and a server that loads its model answers 503. Nothing
has reached the caller then, so the request is simply made again. After the first piece of a reply nothing is ever asked again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import Final, Self

from ...backends.base import Backend, Capabilities, Relayed, Relaying
from ...backends.http import TIMED_OUT
from ...errors import BackendError, BackendStatusError, BackendUnavailable
from ...types.completion import Chunk, CompletionRequest

__all__ = ["Patient", "may_try_again"]

PAUSES: Final = (0.1, 0.5, 2.0)  # seconds before each further try
_LOADING: Final = (502, 503)


def may_try_again(error: BackendError) -> bool:
    """Say whether the same request may succeed in a moment: not after a silence that lasted as long as was allowed."""
    if isinstance(error, BackendUnavailable):
        return not isinstance(error.__cause__, TIMED_OUT)
    return isinstance(error, BackendStatusError) and error.status_code in _LOADING


class Patient:
    """A backend with second tries.

    Args:
        backend: not yet open.
    """

    def __init__(self, backend: Backend) -> None:
        self.inner = backend

    @property
    def model(self) -> str:
        """The model's name."""
        return self.inner.model

    @property
    def capabilities(self) -> Capabilities:
        """What the server said of itself when it was opened."""
        return self.inner.capabilities

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        for pause in (*PAUSES, None):
            begun = False
            try:
                async with aclosing(self.inner.stream(request)) as chunks:
                    async for chunk in chunks:
                        begun = begun or chunk.progress is None
                        yield chunk
                return
            except BackendError as error:
                if begun or pause is None or not may_try_again(error):
                    raise
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Pass a request on as it is (see `Relaying`); tried again as long as no answer has begun.

        Raises:
            TypeError: the backend relays nothing.
        """
        if not isinstance(self.inner, Relaying):
            raise TypeError(f"{type(self.inner).__name__} relays nothing")
        async with AsyncExitStack() as stack:
            for pause in (*PAUSES, None):
                try:
                    relayed = await stack.enter_async_context(self.inner.relay(method, path, content))
                    break
                except BackendError as error:
                    if pause is None or not may_try_again(error):
                        raise
                    await asyncio.sleep(pause)
            yield relayed
