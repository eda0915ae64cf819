"""Turn the events of a machine into what the caller receives.

*An answer without tools* passes events on as they arrive.

*A turn whose calls are text* sends text as it arrives, and calls of the caller's tools once they are bound. Tools of the proxy's
own servers run within the turn, and the caller sees nothing of them. A call that cannot run is answered with feedback to the
model before any of it has gone out. When no retry is left, calls that agents can check themselves go out as they are. Otherwise
the model is asked for plain words, and if it gives none, the answer is an error: half a call, or a call dropped silently, would
be worse. The request was valid, so the error is never the caller's (4xx), with one exception: once tools of the proxy's own have
run, the status is one that clients do not retry.

`Engine.respond` iterates the driver of the machine directly; nothing here wraps it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...agent.drive import drive
from ...backends.base import Around, Backend, KeptOpen, Tries, tries_of
from ...binding.bind import as_written
from ...errors import BackendError
from ...parsing.repetition import identity
from ...prompting.format import PromptFormat
from ...prompting.results import result_text
from ...prompting.writer import OwnRounds
from ...tools.catalog import Catalog
from ...turn.events import CallHeld, LoopEvent, ReplyEnded, ReplyStarted
from ...turn.generate import REPETITION, Binder, Generated, is_refused_beginning
from ...turn.machine import Machine
from ...turn.native import generate_native
from ...turn.turn import Turn
from ...types.calls import InvalidCall, Message, Reply, TextContent, ToolCall, ToolResult
from ...types.completion import UNCUT, CompletionRequest, Usage
from ...types.events import CallInReasoning, Markup, ReasoningDelta, TextDelta, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from ..formats.contract import ApiError, ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece
from .call_stream import Sender, broken_off
from .filters import Filter

if TYPE_CHECKING:
    from ..observed.observer import Hearing

__all__ = ["Answer", "PlainAnswer", "PromptedAnswer", "WithWholeMessages"]

log = logging.getLogger("xmlcall.proxy")

# The error message for each reason why a turn ends without an answer; `{why}` describes what is wrong with the calls.
_FAILURES: Final[Mapping[str, str]] = {
    "invented_results": "no answer: the model wrote results that no tool gave, however often it was told",
    "own_words": "no answer: the model only repeated its instructions, however often it was told",
    "no_tool_call": "tool_choice: a call was required, and the model answered without one, also when it was told to call",
    "invalid_calls": "the model's calls cannot run, however often it was told why: {why}",
    "tool_errors": "the model's calls of the proxy's own tools failed one after the other",
    "repeated_call": "the model called the proxy's own tools in the same way again and again",
    "max_turns": "no answer after {count} replies: the model kept calling tools",
}
_REASONS: Final[Mapping[str, str]] = {"end": "stop", REPETITION: "length"}  # wire formats have no word for a repetition


class Answer(ABC):
    """An answer, or one of several consecutive parts of it.

    Args:
        recording: receives each event.
        otherwise: makes a replacement, if the server refuses to continue a given beginning before anything was sent.

    Attributes:
        filters: applied in this order to everything that goes out.
        again: makes the answer that follows this one, or returns None if there is none.
    """

    def __init__(self, recording: "Hearing | None" = None, *, otherwise: "Callable[[], Answer] | None" = None) -> None:
        self.filters: list[Filter] = []
        self.again: Callable[[], Answer | None] = lambda: None
        self._recording, self._otherwise = recording, otherwise
        self._note = None if recording is None else recording.note
        self._has_said = False

    @abstractmethod
    def driven(self) -> AbstractAsyncContextManager[AsyncGenerator[Any]]:
        """Start the answer and yield its events; pass each event to `pieces`."""

    def pieces(self, event: Any) -> Sequence[ResponseEvent]:
        """Take an event and return what goes out."""
        if self._note is not None:
            self._note(event)
        pieces = self._pieces_of(event)
        return self._filtered(pieces) if pieces else pieces

    def ending(self) -> Iterator[ResponseEvent]:
        """Return what goes out after the last event."""
        return (piece for last in self._last_pieces() for piece in self._filtered([last]))

    def instead(self, error: BackendError) -> "Answer | None":
        """Return the answer that replaces this one after it failed; None if there is none."""
        if self._otherwise is None or self._has_said or not is_refused_beginning(error):
            return None
        return self._otherwise()

    def _filtered(self, pieces: Sequence[ResponseEvent]) -> Sequence[ResponseEvent]:
        for passed in self.filters:
            pieces = [out for piece in pieces for out in passed(piece)]
        self._has_said = self._has_said or bool(pieces)
        return pieces

    @abstractmethod
    def _pieces_of(self, event: Any) -> Sequence[ResponseEvent]: ...

    @abstractmethod
    def _last_pieces(self) -> Iterable[ResponseEvent]: ...


class PlainAnswer(Answer):
    """An answer without tools.

    Args:
        number: which reply of the whole answer this is, counted from 1.
    """

    def __init__(
        self,
        backend: Backend,
        completion: CompletionRequest,
        recording: "Hearing | None" = None,
        *,
        number: int = 1,
        otherwise: Callable[[], Answer] | None = None,
    ) -> None:
        super().__init__(recording, otherwise=otherwise)
        if backend.capabilities.reasoning_open:  # the text would begin inside the thinking, so the server has to split them
            completion = replace(completion, extra={"reasoning_format": "auto", **completion.extra})
        self._backend, self._number = backend, number
        self._machine = Machine(generate_native(completion, Binder(catalog=Catalog()), backend.capabilities))

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[AsyncGenerator[Any]]:
        """Start (see `Answer.driven`)."""
        if self._recording is not None:
            self._recording.note(ReplyStarted(number=self._number))
        async with aclosing(drive(self._machine, self._backend)) as events:
            yield events

    def _pieces_of(self, event: Any) -> Sequence[ResponseEvent]:
        match event:
            case TextDelta(text=text):
                return (TextPiece(text=text),)
            case ReasoningDelta(text=text):
                return (ReasoningPiece(text=text),)
        return ()

    def _last_pieces(self) -> Iterable[ResponseEvent]:
        generated = self._machine.result
        assert generated is not None
        if self._recording is not None:
            _record(self._recording, generated, self._number)
        return (ResponseEnded(finish_reason=generated.reply.finish_reason, usage=generated.usage),)


def _record(recording: "Hearing", generated: Generated, number: int) -> None:
    reply, message = generated.reply, Message(role="assistant", content=generated.text)
    recording.note(ReplyEnded(number=number, reply=reply, usage=generated.usage, raw=generated.raw, message=message))
    recording.answered("end" if reply.finish_reason in UNCUT else reply.finish_reason, reply.text)


class WithWholeMessages(Around, KeptOpen):
    """A backend that sends the caller's messages unchanged, in the server's own format, followed by the added messages."""

    def __init__(self, backend: Backend, count: int, write: Callable[[Message], dict[str, Any]]) -> None:
        super().__init__(backend)
        self._count, self._write = count, write

    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts at a request."""
        whole, added = request.extra.get("messages"), request.messages[self._count :]
        if isinstance(whole, list) and added:
            request = replace(request, extra={**request.extra, "messages": [*whole, *map(self._write, added)]})
        return tries_of(self._backend, request)


class PromptedAnswer(Answer):
    """The answer of a turn whose calls are read from text, or come from the server's own function calling.

    Args:
        driven: the turn's events.
        is_strict: whether calls that cannot run are an error instead of being left to the caller to check.
        keep: receives the rounds of the proxy's own tools, if calls to the caller follow them.
    """

    def __init__(
        self,
        turn: Turn,
        driven: AsyncGenerator[LoopEvent],
        sender: Sender,
        format: PromptFormat,
        *,
        is_strict: bool,
        keep: Callable[[OwnRounds], None] | None = None,
        recording: "Hearing | None" = None,
    ) -> None:
        super().__init__(recording)
        self._turn, self._driven, self._sender, self._format = turn, driven, sender, format
        self._is_strict, self._keep = is_strict, keep
        self._shown = ""  # text of the replies before the last one
        self._sent: dict[str, ToolCall] = {}  # by id; a call that was streamed before it was complete went out under another id
        self._is_retry = False  # the reply answers the proxy's feedback, not the caller
        self._visible: list[str] = []  # pieces of text: appending each to one string is quadratic in its length
        self._holds = False  # the reply's text may have to be discarded
        self._passes = False  # the reply's text is certain to be kept
        self._held: list[str] = []
        self._taken: dict[object, str] = {}  # calls of this reply, each with the id of its first occurrence
        self._left: list[ToolCall] = []  # calls of this reply that repeat an earlier one

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[AsyncGenerator[LoopEvent]]:
        """Begin (see `Answer.driven`)."""
        try:
            async with aclosing(self._driven) as events:
                yield events
        except BackendError as error:
            if not self._turn.has_run:
                raise
            # No client retries a 400. LangChain.js retries every 5xx, and the tools that ran would then run twice.
            raise ApiError(f"{error}; tools had run before", code="failed_after_tools") from None
        finally:
            if self._recording is not None:
                self._recording.answered(self._turn.stop_reason, "".join(self._visible))

    def _last_pieces(self) -> Iterator[ResponseEvent]:
        turn, sender = self._turn, self._sender
        parting = list(_parting(turn, sender)) if turn.stop_reason in _FAILURES and not self._is_strict else []
        yield from parting
        if sender.unfinished:
            raise broken_off(sender.unfinished)
        if turn.stop_reason in _FAILURES and not parting:
            raise ApiError(_why(turn), status=502, kind="server_error", code=turn.stop_reason)
        if self._keep is not None and (rounds := self._own_rounds()):
            self._keep(rounds)
        yield _end(turn, "tool_calls" if parting else _REASONS.get(turn.stop_reason, turn.stop_reason))

    def _pieces_of(self, event: LoopEvent) -> Sequence[ResponseEvent]:
        match event:
            case ReplyStarted():
                self._begin()
            case TextDelta(text=text):
                return self._text_of_reply(text)
            case ReasoningDelta(text=text):
                return [ReasoningPiece(text=text)]
            case ToolCallEnd(call=ToolCall() | InvalidCall() as call):
                return [*self._before_call(), *self._call(call)]
            case ReplyEnded(reply=reply, message=kept):
                return [*self._repeated(reply), *([] if reply.calls or kept is None else self._released())]
            case CallHeld(call=call):
                log.info("held back a call of %r, which needs the results of earlier calls", call.name)
            case CallInReasoning(name=name):
                log.warning("the model called %r in thinking that never ended, so nothing was called", name)
            case _ if not self._is_retry:
                return self._begun(event)
        return []

    def _begin(self) -> None:
        self._is_retry = self._turn.is_retry or bool(self._sender.unfinished)
        self._shown = "".join(self._visible)
        self._holds = self._is_retry or self._turn.may_refuse_answer
        self._passes = False
        self._held.clear()
        self._left = []
        self._taken.clear()
        self._sender.begin()

    def _text_of_reply(self, text: str) -> list[ResponseEvent]:
        """Hold back text that is shown only if the reply has no call, or only if the reply is kept."""
        self._held.append(text)
        if self._holds or (not self._passes and self._turn.may_repeat("".join(self._held))):
            return []
        self._passes = True
        return self._pass_on()

    def _pass_on(self) -> list[ResponseEvent]:
        text = "".join(self._held)
        self._held.clear()
        self._visible.append(text)
        return [TextPiece(text=text)] if text else []

    def _before_call(self) -> list[ResponseEvent]:
        """Pass on the text before a call, except in a retry; this is safe because a reply with a call is not replaced."""
        return [] if self._is_retry else self._pass_on()

    def _begun(self, event: LoopEvent) -> list[ResponseEvent]:
        """Take an event of a call that is not complete yet."""
        match event:
            case ToolCallStart(name=name) if name in self._turn.offer.of_caller and not self._taken:  # a later one may be held
                self._sender.start(event)
                return self._before_call()
            case Markup(kind="parameter_close"):
                return self._sender.end_parameter()
            case ToolArgumentDelta():
                return self._sender.add(event)
        return []

    def _call(self, call: ToolCall | InvalidCall) -> list[ResponseEvent]:
        if self._taken.setdefault(identity(call), call.id) != call.id:  # whether the user asked for repeats is known at the end
            if isinstance(call, ToolCall):
                self._left.append(call)
            return []
        return self._take(call)

    def _take(self, call: ToolCall | InvalidCall) -> list[ResponseEvent]:
        if isinstance(call, InvalidCall):
            self._sender.drop()
        elif call.name in self._turn.offer.of_caller:
            before = len(self._sender.sent)
            events = self._sender.end(call, is_retry=self._is_retry)
            if len(self._sender.sent) > before:
                self._sent[call.id] = self._sender.sent[before]
            return events
        return []

    def _repeated(self, reply: Reply) -> Iterator[ResponseEvent]:
        """Take calls that repeat an earlier one of the reply, if the user asked for that many."""
        wanted = {call.id for call in reply.calls}
        for call in self._left:
            if call.id in wanted:
                yield from self._take(call)
            else:
                log.info("dropped a call of %r that repeats an earlier one in the same reply", call.name)

    def _released(self) -> list[ResponseEvent]:
        generated = self._turn.generated
        is_answer = "".join(self._held).strip() and generated is not None and not generated.refusal
        return self._pass_on() if is_answer else []

    def _own_rounds(self) -> OwnRounds | None:
        """Return what the caller cannot send back; None if no tool of the proxy's ran, or calls came in several replies."""
        turn = self._turn
        valid = [(call, result) for call, result in turn.answered if isinstance(call, ToolCall)]
        if not (turn.has_run or turn.results) or len(valid) != len(turn.answered):
            return None
        calls = tuple((self._sent.get(call.id, call), result and _as_text(result, self._format)) for call, result in valid)
        rounds = OwnRounds(before=tuple(turn.added[:-1]), shown=self._shown, calls=calls, results=tuple(turn.results))
        return rounds if rounds.theirs and rounds.theirs == tuple(self._sender.sent) else None


def _end(turn: Turn, reason: str) -> ResponseEnded:
    """End the answer with its usage; the last prompt's tokens are the size to which the conversation has grown."""
    last, whole = turn.generated.usage if turn.generated else Usage(), turn.usage
    shown = replace(whole, prompt_tokens=last.prompt_tokens, cached_tokens=last.cached_tokens)
    return ResponseEnded(finish_reason=reason, usage=shown, all_usage=whole if whole != shown else None)


def _parting(turn: Turn, sender: Sender) -> Iterator[ResponseEvent]:
    """Send the last invalid calls to the caller as written: agents check arguments themselves and report errors to the model."""
    calls = (as_written(call, turn.offer.catalog) for call, _ in turn.answered if isinstance(call, InvalidCall))
    for call in calls:
        if call is not None and call.name in turn.offer.of_caller:
            yield from sender.end(call, is_retry=True)


def _why(turn: Turn) -> str:
    invalid = [call for call, _ in turn.answered if isinstance(call, InvalidCall)]
    why = " ".join(f"{call.name}: {issue.message}" for call in invalid for issue in call.issues)
    return _FAILURES[turn.stop_reason].format(why=why, count=turn.count)


def _as_text(result: ToolResult, format: PromptFormat) -> ToolResult:
    """Return a result as the text that the model is shown."""
    return ToolResult(content=(TextContent(text=result_text(result, format)),), is_error=result.is_error)
