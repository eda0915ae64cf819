"""A turn whose bytes were passed on: the question and the answer, parsed from the bytes when a record is requested.

While the answer passes through, its bytes are only copied, because parsing a piece takes longer than passing it on. Each record
parses what arrived since the last one and then frees the bytes; no answer waits for that. Unreadable parts are left out, because
the caller received them byte for byte anyway.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...errors import BackendProtocolError
from ...turns.builder import TurnBuilder
from ...turns.model import MessageRecord, ReplyRecord, SpanRecord, TurnRecord
from ...types.completion import Chunk, Usage
from ...wire.ollama import stream_chunk
from ...wire.openai import StreamReader, mapping, mappings, read_error, read_json, text_of
from ...wire.sse import EventDecoder
from ..observed.observer import FIRST_TOKEN

__all__ = ["RelayedTurn", "messages_in"]


def messages_in(data: Mapping[str, Any]) -> tuple[MessageRecord, ...]:
    """Return the text messages in a request.

    Args:
        data: an unchecked body in OpenAI's or Ollama's format.
    """
    said = [(text_of(each.get("role")) or "user", _text(each.get("content"))) for each in mappings(data.get("messages"))]
    if not said:
        said = [("system", _text(data.get("system")))] if data.get("system") else []
        said.append(("user", _text(data.get("prompt"))))
    return tuple(MessageRecord(role=role, content=text) for role, text in said)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (text_of(part.get("text")) for part in mappings(content))))


class RelayedTurn(TurnBuilder):
    """A turn that is parsed when a record is requested.

    Attributes:
        pieces: pieces of the answer since the last `take`; the code that passes them on appends to it.
        token_at: when the first token arrived, by `time.monotonic`; None before.
        is_cut: whether the rest of the answer is not kept.
    """

    def __init__(self, *, prompt: tuple[MessageRecord, ...], wire: str, **facts: Any) -> None:
        super().__init__(**facts)
        self.pieces: list[bytes] = []
        self._unread = bytearray()  # one growing buffer costs less than many small objects
        self.token_at: float | None = None
        self.is_cut = False
        self._asked, self._wire = prompt, wire
        self._asked_at = time.monotonic()
        self._over_at: float | None = None
        self._reading: _Reading | None = None

    def answered(self, status: int, media_type: str) -> None:
        """Note the status and the media type of the answer."""
        self._reading = _Reading(self._wire, is_stream=media_type.startswith("text/event-stream"), is_error=status >= 400)
        self.version += 1

    def take(self) -> int:
        """Move the pieces that arrived since the last call to the unread bytes; return their number of bytes."""
        piece = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        if self.token_at is None and FIRST_TOKEN.search(piece):
            self.token_at = time.monotonic()
        if self.is_cut:
            return 0
        self._unread += piece
        self.version += 1
        return len(piece)

    def failure(self) -> str:
        """Return the model server's error message; "" if there is none. Call this at the end."""
        return self._read(is_over=True).failure

    def end(self, outcome: str, *, answer: str = "", error: str = "") -> None:
        """End the turn (see `TurnBuilder.end`)."""
        self._over_at = time.monotonic()
        super().end(outcome, answer=answer, error=error)

    def record(self) -> TurnRecord:
        """Make the record of what has arrived so far."""
        record = super().record()
        if self._reading is None:
            return record
        first, last = (None if at is None else at - self._asked_at for at in (self.token_at, self._over_at))
        reply = self._read(is_over=self.is_over).reply(is_over=self.is_over)
        reply = replace(reply, prompt=self._asked, first_token_seconds=first, seconds=last)
        answer = record.answer or (reply.raw if self.is_over else "")
        return replace(record, replies=(reply,), answer=answer, first_token_seconds=first)

    def _read(self, *, is_over: bool) -> "_Reading":
        """Parse what arrived since the last call, and free the bytes."""
        reading = self._reading or _Reading(self._wire, is_stream=False, is_error=False)
        data = bytes(self._unread)
        self._unread.clear()
        reading.feed(data)
        if is_over:
            reading.close()
        return reading


class _Reading:
    """The parser of one answer.

    Args:
        is_stream: whether it arrives as server-sent events; otherwise it is parsed by lines, or as a whole.
    """

    def __init__(self, wire: str, *, is_stream: bool, is_error: bool) -> None:
        self.text, self.reasoning, self.failure = "", "", ""
        self._is_ollama, self._is_error = wire == "ollama", is_error
        self._events = EventDecoder() if is_stream else None
        self._reader = StreamReader()
        self._rest = b""  # the incomplete last line, or so far all of an answer that is one object
        self._ending, self._usage = "", Usage()

    def feed(self, data: bytes) -> None:
        """Parse more bytes; what is not in the format is left out."""
        if self._events is not None:
            self._take_all(self._events.feed(data))
            return
        *lines, self._rest = (self._rest + data).split(b"\n") if self._is_ollama else [self._rest + data]
        self._take_all(line.decode("utf-8", "replace") for line in lines)

    def close(self) -> None:
        """Parse the end of a stream, or an answer that is one object."""
        rest, self._rest = self._rest, b""
        self._take_all(self._events.close() if self._events is not None else iter([rest.decode("utf-8", "replace")]))

    def _take_all(self, payloads: Iterator[str]) -> None:
        with suppress(BackendProtocolError):  # an event that is too long
            for payload in payloads:
                with suppress(BackendProtocolError):
                    self._take(read_json(payload))

    def _take(self, data: dict[str, Any]) -> None:
        if self._is_error or "error" in data:
            self.failure = read_error(data).message
            return
        chunk = self._ollama(data) if self._is_ollama else self._openai(data)
        if chunk is not None:
            self.text += chunk.text
            self.reasoning += chunk.reasoning
            self._usage = chunk.usage or self._usage
            self._ending = chunk.finish_reason or self._ending

    def _openai(self, data: dict[str, Any]) -> Chunk | None:
        """Read a chunk of a chat or of a completion, or a whole answer, as if it were a chunk of a chat."""
        choice = next((each for each in mappings(data.get("choices")) if each.get("index", 0) == 0), {})
        delta = mapping(choice.get("delta") or choice.get("message")) or {"content": choice.get("text")}
        return self._reader.feed({**data, "choices": [{**choice, "delta": delta}]})

    def _ollama(self, data: dict[str, Any]) -> Chunk | None:
        given = {"content": data.get("response"), "thinking": data.get("thinking")}
        return stream_chunk({**data, "message": data.get("message") or given}, calls_before=0)

    def reply(self, *, is_over: bool) -> ReplyRecord:
        """Return what was read."""
        last = self._reader.close()
        usage = last.usage or self._usage
        return ReplyRecord(
            number=1,
            raw=self.text,
            spans=(SpanRecord(start=0, end=len(self.text), kind="text"),) if self.text else (),
            reasoning=self.reasoning,
            finish_reason=(self._ending or last.finish_reason or "") if is_over else "",
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
        )
