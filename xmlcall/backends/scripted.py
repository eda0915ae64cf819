"""Plays scripted replies, to test everything above backends without a model."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Self

from ..errors import UsageError
from ..types.completion import Capabilities, Chunk, CompletionRequest
from ..wire.openai import finish_reason_of

Piece = str | Chunk | Exception
Cutter = Callable[[str], Iterable[str]]


class ScriptedBackend:
    """Plays replies, one per request.

    Args:
        replies: each a text, an exception to raise, or a sequence of texts, chunks and exceptions in order.
        chunk_size: characters of a chunk, or a function that cuts a text; None leaves texts whole.
        finish_reasons: for the replies that do not give their own, in any server's wording; `stop` once they are exhausted.

    Attributes:
        model: always "scripted".
        capabilities: those that were given.
        requests: the requests, in order.
        closed_early: for each request, whether its stream was closed before its end.
    """

    def __init__(
        self,
        replies: Iterable[Piece | Sequence[Piece]],
        *,
        chunk_size: int | Cutter | None = None,
        finish_reasons: Sequence[str] = (),
        capabilities: Capabilities | None = None,
    ) -> None:
        self.requests: list[CompletionRequest] = []
        self.closed_early: list[bool] = []
        self._replies = [[reply] if isinstance(reply, Piece) else list(reply) for reply in replies]
        self._cut = _cutter(chunk_size)
        self._finish_reasons = finish_reasons
        self.model = "scripted"
        self.capabilities = capabilities or Capabilities(server="scripted")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Play the next reply (see `Backend.stream`)."""
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._replies):
            raise UsageError(f"the script has {len(self._replies)} replies, reply {number + 1} was asked for")
        self.closed_early.append(True)
        for chunk in self._chunks(number):
            if isinstance(chunk, Exception):
                self.closed_early[number] = False
                raise chunk
            yield chunk
        self.closed_early[number] = False

    def _chunks(self, number: int) -> Iterator[Chunk | Exception]:
        finish_reason = None
        for piece in self._replies[number]:
            if isinstance(piece, str):
                yield from (Chunk(text=text) for text in self._cut(piece))
                continue
            finish_reason = piece.finish_reason if isinstance(piece, Chunk) and piece.finish_reason else finish_reason
            yield piece
        if finish_reason is None:
            word = self._finish_reasons[number] if number < len(self._finish_reasons) else ""
            yield Chunk(finish_reason=finish_reason_of(word))


def _cutter(chunk_size: int | Cutter | None) -> Cutter:
    if callable(chunk_size):
        return chunk_size
    if chunk_size is None:
        return lambda text: [text]
    if chunk_size < 1:
        raise UsageError(f"expected a chunk size of at least 1 character, got {chunk_size}")
    return lambda text: [text[start : start + chunk_size] for start in range(0, len(text), chunk_size)]
