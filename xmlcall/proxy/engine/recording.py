"""Record one request: the client, the way it was answered, every event of the turn, and how it ended.

A request is one turn of the `Recorder`. Without a recorder there is no `Recording`, and none of this code runs. To keep recording
cheap (`benchmarks/recording.py` measures the cost), it passes events on in batches, keeps no image bytes, and defers all parsing
of bytes.

The name of the client program is the only header that is kept. Keys known to this program are removed from recorded error texts.

While an answer is passed on, its bytes are only copied, because parsing a piece takes longer than passing it on. Each record of
such a turn parses what arrived since the last one and then frees the bytes; no answer waits for that. Unreadable parts are left
out, because the caller received them byte for byte anyway.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ...errors import BackendProtocolError
from ...prompting.format import PromptFormat
from ...tools.catalog import Catalog
from ...turn.events import CallFinished, LoopEvent, ReplyStarted
from ...turn.opening import last_request
from ...turn_records.builder import Recorder, TurnBuilder, new_turn_id
from ...turn_records.record import MessageRecord, ReplyRecord, SpanRecord, TurnRecord
from ...types.calls import Message
from ...types.completion import Chunk, Usage
from ...types.events import Markup, ReasoningDelta, TextDelta, ToolArgumentDelta, ToolCallEnd
from ...wire.ollama import stream_chunk
from ...wire.openai import StreamReader, mapping, mappings, read_error, read_json, text_of
from ...wire.sse import EventDecoder
from ..formats.contract import ApiError, ChatRequest, Format
from ..observed.observer import FIRST_TOKEN

LONGEST_CLIENT: Final = 80  # characters of a program's name
LONGEST_QUESTION: Final = 20_000
LONGEST_ERROR: Final = 4_000
_EVENT: Final = 64  # characters that an event counts for, besides its text
_WRITTEN: Final[frozenset[type]] = frozenset({TextDelta, ToolArgumentDelta})  # their text is already counted with the reply
_FREQUENT: Final[frozenset[type]] = frozenset({TextDelta, ToolArgumentDelta, Markup, ReasoningDelta})
_BATCH: Final = 64  # frequent events that are passed on at once
_LONG: Final = 256  # characters of many tokens that arrived together: a batch of those could exceed a turn's share
_ENDS: Final = ("", "end", "tool_calls")  # how turns end in which nothing went wrong
_TOO_LONG: Final = "the rest of this turn was too long to be recorded"


@lru_cache(maxsize=64)
def client_of(agent: str) -> str:
    """Return the name that a client program gave itself, made safe to display."""
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in agent[: 4 * LONGEST_CLIENT]).split())
    return plain if len(plain) <= LONGEST_CLIENT else f"{plain[: LONGEST_CLIENT - 1]}…"


class Recording:
    def __init__(self, recorder: Recorder, *, client: str, model: str) -> None:
        self._recorder = recorder
        self._facts: dict[str, Any] = {"client": client, "model": model}
        self._turn: TurnBuilder | None = None
        self._passing: RelayedTurn | None = None  # the same turn, if its bytes are passed on
        self._room = recorder.room
        self._events: list[LoopEvent] = []  # events that were not passed to the turn yet
        self._is_first = True
        self._prompt: tuple[Message, ...] = ()  # the last prompt; the next one begins with the same messages
        self._reason, self._shown = "", ""
        self.texts: list[str] = []  # not passed to the turn yet; the observer of the model appends to it
        self.watchers = recorder.watchers

    def is_about(self, model: str) -> None:
        self._facts["model"] = model

    # -- how it is asked -------------------------------------------------------------------------------------------------

    def asked(self, request: ChatRequest) -> None:
        """Note a request that the engine answers."""
        text = sum(len(message.content) for message in request.messages)
        said = _without_pictures(request.messages) if text <= self._room else ()
        question = self._question(last_request(request.messages))
        self._turn = self._recorder.begin(**self._facts, question=question, conversation=said)
        self._recorder.holds_back(self._turn, self._tell)
        self._prompt = request.messages  # the prompt contains their texts, too
        self._count(text if said else len(question))

    def relayed(self, data: Mapping[str, Any], wire: str) -> None:
        """Note a request whose bytes are passed on."""
        prompt = messages_in(data)
        text = sum(len(message.content) for message in prompt)
        question = next((message.content for message in reversed(prompt) if message.role == "user"), "")
        facts = self._facts | {"way": "relayed", "question": self._question(question), "source": "proxy"}
        kept = prompt if text <= self._room else ()
        self._passing = RelayedTurn(prompt=kept, wire=wire, id=new_turn_id(), **facts)
        self._turn = self._recorder.add(self._passing)
        self._recorder.holds_back(self._turn, self.passed)
        self._count(text if kept else 0)

    def _question(self, text: str) -> str:
        return _bounded(text, min(LONGEST_QUESTION, self._recorder.room // 4))

    def goes(self, way: str, tools: Catalog | tuple[()], format: PromptFormat) -> None:
        if self._turn is not None:
            asking = {"dialect": format.dialect, "family": format.family} if way == "xml" else {}
            self._turn.know(way=way, tools=tools, lang=format.lang, **asking)
            self._recorder.changed(self._turn)

    def prompt(self, messages: Sequence[Message]) -> None:
        """Note a prompt that goes to the model; a prompt that is too long is not kept."""
        self._tell()  # events of the previous reply
        if self._turn is None or self._room < 0:
            return
        known = {id(message.content) for message in self._prompt}  # most of a prompt is what was sent before
        self._prompt = tuple(messages)
        text = sum(len(message.content) for message in messages if id(message.content) not in known)
        is_kept = text <= self._room
        self._count(text if is_kept else 0)
        self._turn.prompt(_without_pictures(messages) if is_kept else ())

    # -- what comes ------------------------------------------------------------------------------------------------------

    def note(self, event: LoopEvent) -> None:
        """Note an event of the turn.

        Events that arrive with every token are batched while there are no watchers. Passed on singly, each would cost several
        times as much, because all other code runs between two of them.
        """
        self._events.append(event)
        is_long = len(getattr(event, "text", "")) > _LONG
        if self.watchers or self._is_first or is_long or type(event) not in _FREQUENT or len(self._events) >= _BATCH:
            self._is_first = isinstance(event, ReplyStarted)  # the turn records when the first piece after it came
            self._tell()

    def _tell(self) -> None:
        """Pass on to the turn what was held back."""
        events, text = self._events, "".join(self.texts)
        self._events = []
        self.texts.clear()
        turn = self._turn
        if turn is None or self._room < 0:
            return
        if text:
            turn.wrote(text)
        for event in events:
            turn.note(event)
        self._count(len(text) + sum(_size(event) for event in events if type(event) not in _WRITTEN))
        if self.watchers:
            self._recorder.changed(turn)

    def headed(self, status: int, media_type: str) -> None:
        if self._passing is not None:
            self._passing.answered(status, media_type)

    def passed(self) -> bool:
        """Take in the pieces passed on since the last call; return whether the first token has arrived."""
        turn = self._passing
        if turn is None:
            return True
        self._count(turn.take())
        turn.is_cut = turn.is_cut or self._room < 0
        if self.watchers:
            self._recorder.changed(turn)
        return turn.token_at is not None

    @property
    def pieces(self) -> list[bytes]:
        """The list to which the pieces of a passed-on answer are appended."""
        return [] if self._passing is None else self._passing.pieces

    def _count(self, text: int) -> None:
        if self._turn is not None:
            self._room = self._recorder.grew(self._turn, text)

    # -- how it ends -----------------------------------------------------------------------------------------------------

    def answered(self, reason: str, text: str) -> None:
        """Note how the turn ended, before the caller has received all of it; a later call replaces this."""
        self._reason, self._shown = reason, text

    def over(self, *, error: ApiError | None, form: Format, status: int, has_left: bool) -> None:
        """Note that the caller has received everything, or has disconnected."""
        if self._turn is None:
            if error is None and not has_left:
                return
            self._turn = self._recorder.begin(**self._facts)
        self._tell()
        if self._passing is not None:
            self.passed()
        error_text = self._error_text(error, form, status) if error else self._refused(status)
        self._count(len(error_text))
        if self._room < 0:
            error_text = f"{error_text}\n{_TOO_LONG}".strip()
        self._turn.end(
            self._outcome(error_text if error or status >= 400 else "", has_left), answer=self._shown, error=error_text
        )
        self._recorder.done(self._turn)

    def _outcome(self, error_text: str, has_left: bool) -> str:
        if has_left:
            return "left"
        if error_text:
            return "error" if self._reason in _ENDS else self._reason
        return self._reason or "end"

    def _error_text(self, error: ApiError, form: Format, status: int) -> str:
        """Return what went wrong and, on the next line, the error that the caller received."""
        message = self._recorder.hide(_bounded(error.message, LONGEST_ERROR))
        sent = self._recorder.hide(_bounded(json.dumps(form.error(error), ensure_ascii=False), LONGEST_ERROR))
        return f"{message}\nsent to the caller with status {status}: {sent}"

    def _refused(self, status: int) -> str:
        """Return the model server's error for a passed-on request that it refused or broke off; else ""."""
        if status < 400 or self._passing is None:
            return ""
        said = _bounded(self._passing.failure(), LONGEST_ERROR)
        return self._recorder.hide(f"the model server said, with status {status}: {said}")


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _without_pictures(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(replace(message, images=()) if message.images else message for message in messages)


def _size(event: LoopEvent) -> int:
    """Estimate the characters that an event keeps in memory."""
    if isinstance(event, ToolCallEnd):
        return _EVENT + 3 * len(event.raw.text)  # the call as written, its arguments, and the bound arguments
    if isinstance(event, ReasoningDelta):
        return len(event.text)
    if isinstance(event, CallFinished):
        return _EVENT + sum(len(getattr(block, "text", None) or "") for block in event.result.content)
    return _EVENT


# -- a turn whose bytes are passed on -------------------------------------------------------------------------------------


def messages_in(data: Mapping[str, Any]) -> tuple[MessageRecord, ...]:
    """Return the text messages in an unchecked body of OpenAI's or Ollama's format."""
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
    """A turn that is parsed when a record is requested."""

    def __init__(self, *, prompt: tuple[MessageRecord, ...], wire: str, **facts: Any) -> None:
        super().__init__(**facts)
        self.pieces: list[bytes] = []  # of the answer since the last `take`; the code that passes them on appends to it
        self._unread = bytearray()  # one growing buffer costs less than many small objects
        self.token_at: float | None = None  # when the first token arrived, by `time.monotonic`
        self.is_cut = False  # whether the rest of the answer is not kept
        self._asked, self._wire = prompt, wire
        self._asked_at = time.monotonic()
        self._over_at: float | None = None
        self._reading: _Reading | None = None

    def answered(self, status: int, media_type: str) -> None:
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
        self._over_at = time.monotonic()
        super().end(outcome, answer=answer, error=error)

    def record(self) -> TurnRecord:
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
    """The parser of one answer, which arrives as server-sent events, by lines, or as a whole."""

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
