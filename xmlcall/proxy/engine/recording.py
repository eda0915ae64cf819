"""Record one request: the client, the way it was answered, every event of the turn, and how it ended.

A request is one turn of the `Recorder`. Without a recorder there is no `Recording`, and none of this code runs. To keep recording
cheap (`benchmarks/recording.py` measures the cost), it counts text in steps, keeps no image bytes, and defers all parsing.

The name of the client program is the only header that is kept. Keys known to this program are removed from recorded error texts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ...prompting.format import PromptFormat
from ...tools.catalog import Catalog
from ...turn.events import CallFinished, LoopEvent, ReplyStarted
from ...turn.opening import last_request
from ...turns.builder import TurnBuilder
from ...turns.recorder import Recorder, new_id
from ...types.calls import Message
from ...types.events import Markup, ReasoningDelta, TextDelta, ToolArgumentDelta, ToolCallEnd
from ..formats.contract import ApiError, ChatRequest, Format
from .relayed_turn import RelayedTurn, messages_in

__all__ = ["Recording", "client_of"]

LONGEST_CLIENT: Final = 80  # characters of a program's name
LONGEST_QUESTION: Final = 20_000
LONGEST_ERROR: Final = 4_000
_STEP: Final = 8_192  # text is counted after every so many characters
_EVENT: Final = 64  # characters that an event counts for, besides its text
_WRITTEN: Final[frozenset[type]] = frozenset({TextDelta, ToolArgumentDelta})  # their text is already counted with the reply
_FREQUENT: Final[frozenset[type]] = frozenset({TextDelta, ToolArgumentDelta, Markup, ReasoningDelta})
_BATCH: Final = 64  # frequent events that are passed on at once
_ENDS: Final = ("", "end", "tool_calls")  # of turns in which nothing went wrong
_TOO_LONG: Final = "the rest of this turn was too long to be recorded"


@lru_cache(maxsize=64)
def client_of(agent: str) -> str:
    """Return the name that a client program gave itself, made safe to display."""
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in agent[: 4 * LONGEST_CLIENT]).split())
    return plain if len(plain) <= LONGEST_CLIENT else f"{plain[: LONGEST_CLIENT - 1]}…"


class Recording:
    """The recording of one request.

    Attributes:
        texts: model output that was not passed to the turn yet; the observer of the model appends to it.
        watchers: the recorder's watchers.
    """

    def __init__(self, recorder: Recorder, *, client: str, model: str) -> None:
        self._recorder = recorder
        self._facts: dict[str, Any] = {"client": client, "model": model}
        self._turn: TurnBuilder | None = None
        self._passing: RelayedTurn | None = None  # the same turn, if its bytes are passed on
        self._room = recorder.room
        self._uncounted = 0
        self._events: list[LoopEvent] = []  # events that were not passed to the turn yet
        self._is_first = True
        self._prompt: tuple[Message, ...] = ()  # the last prompt; the next one begins with the same messages
        self._reason, self._shown = "", ""
        self.texts: list[str] = []
        self.watchers = recorder.watchers

    def is_about(self, model: str) -> None:
        """Note which model is asked, before anything else about the request."""
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
        self._passing = RelayedTurn(prompt=kept, wire=wire, id=new_id(), **facts)
        self._turn = self._recorder.add(self._passing)
        self._recorder.holds_back(self._turn, self.passed)
        self._count(text if kept else 0)

    def _question(self, text: str) -> str:
        return _bounded(text, min(LONGEST_QUESTION, self._recorder.room // 4))

    def goes(self, way: str, tools: Catalog | tuple[()], format: PromptFormat) -> None:
        """Note in which way a request is answered."""
        if self._turn is not None:
            self._turn.know(way=way, tools=tools, lang=format.lang, **_asking(format) if way == "xml" else {})
            self._recorder.changed(self._turn)

    def prompt(self, messages: Sequence[Message]) -> None:
        """Note a prompt that goes to the model; a prompt that is too long is not kept."""
        self._tell()  # of the reply before
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
        if self.watchers or self._is_first or type(event) not in _FREQUENT or len(self._events) >= _BATCH:
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
        for event in _joined(events) if len(events) > 1 else events:
            turn.note(event)
            if type(event) not in _WRITTEN:
                self._uncounted += _size(event)
        self._uncounted += len(text)
        if self._uncounted >= _STEP:
            self._count(0)
        if self.watchers:
            self._recorder.changed(turn)

    def headed(self, status: int, media_type: str) -> None:
        """Note the status and the media type of an answer whose bytes are passed on."""
        if self._passing is not None:
            self._passing.answered(status, media_type)

    def passed(self) -> bool:
        """Take in the pieces of an answer that were passed on since the last call.

        Returns:
            Whether the first token has arrived. Until then, and while there are watchers, call this after each piece.
        """
        turn = self._passing
        if turn is None:
            return True
        self._uncounted += turn.take()
        if self._uncounted >= _STEP:
            self._count(0)
            turn.is_cut = self._room < 0
        if self.watchers:
            self._recorder.changed(turn)
        return turn.token_at is not None

    @property
    def pieces(self) -> list[bytes]:
        """The list to which the pieces of a passed-on answer are appended."""
        return [] if self._passing is None else self._passing.pieces

    def _count(self, text: int) -> None:
        if self._turn is not None:
            self._room = self._recorder.grew(self._turn, self._uncounted + text)
            self._uncounted = 0

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
        told = self._told(error, form, status) if error else self._refused(status)
        self._count(len(told))
        if self._room < 0:
            told = f"{told}\n{_TOO_LONG}".strip()
        self._turn.end(self._outcome(told if error or status >= 400 else "", has_left), answer=self._shown, error=told)
        self._recorder.done(self._turn)

    def _outcome(self, told: str, has_left: bool) -> str:
        if has_left:
            return "left"
        if told:
            return "error" if self._reason in _ENDS else self._reason
        return self._reason or "end"

    def _told(self, error: ApiError, form: Format, status: int) -> str:
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


def _asking(format: PromptFormat) -> dict[str, str]:
    return {"dialect": format.dialect, "family": format.family}


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _without_pictures(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(replace(message, images=()) if message.images else message for message in messages)


def _joined(events: Iterable[LoopEvent]) -> Iterator[LoopEvent]:
    """Join consecutive pieces of one text or of one argument."""
    run: TextDelta | ToolArgumentDelta | None = None  # the first of several pieces
    texts: list[str] = []
    end = 0
    for event in events:
        if run is not None:
            if isinstance(event, TextDelta | ToolArgumentDelta) and event.span[0] == end and _is_same(run, event):
                texts.append(event.text)
                end = event.span[1]
                continue
            yield replace(run, text="".join(texts), span=(run.span[0], end)) if len(texts) > 1 else run
            run = None
        if isinstance(event, TextDelta | ToolArgumentDelta):
            run, texts, end = event, [event.text], event.span[1]
        else:
            yield event
    if run is not None:
        yield replace(run, text="".join(texts), span=(run.span[0], end)) if len(texts) > 1 else run


def _is_same(run: TextDelta | ToolArgumentDelta, event: TextDelta | ToolArgumentDelta) -> bool:
    if isinstance(run, TextDelta) or isinstance(event, TextDelta):
        return type(run) is type(event)
    return (run.index, run.parameter) == (event.index, event.parameter)


def _size(event: LoopEvent) -> int:
    """Estimate the characters that an event keeps in memory."""
    if isinstance(event, ToolCallEnd):
        return _EVENT + 3 * len(event.raw.text)  # the call as written, its arguments, and the bound arguments
    if isinstance(event, ReasoningDelta):
        return len(event.text)
    if isinstance(event, CallFinished):
        return _EVENT + sum(len(getattr(block, "text", None) or "") for block in event.result.content)
    return _EVENT
