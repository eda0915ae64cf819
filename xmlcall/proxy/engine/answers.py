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

import json
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ...agent.drive import drive
from ...backends.base import Backend
from ...binding.bind import as_written
from ...binding.echo import Sources, words_of
from ...errors import BackendError
from ...parsing.repetition import identity
from ...prompting import system as prompt
from ...prompting.format import PromptFormat
from ...prompting.results import result_text
from ...prompting.system import Budget, ToolPrompt, native_tools_within, tool_prompt_within
from ...prompting.writer import OwnRounds
from ...tools.catalog import Catalog
from ...tools.outline import parameters_of
from ...turn.events import AskedAgain, CallHeld, LoopEvent, ReplyEnded, ReplyStarted
from ...turn.generate import REPETITION, Binder, Generated, is_refused_beginning
from ...turn.machine import Machine
from ...turn.native import NativeOptions, generate_native
from ...turn.turn import Turn
from ...types.calls import InvalidCall, Message, Reply, TextContent, Tool, ToolCall, ToolResult
from ...types.completion import UNCUT, CompletionRequest, Usage
from ...types.events import CallInReasoning, ReasoningDelta, TextDelta, ToolCallEnd, ToolCallStart
from ..formats.contract import ApiError, CallPiece, ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece
from .filters import Filter

if TYPE_CHECKING:
    from ..observed.observer import Observing

# -- each caller's tool list, compiled and rendered once, because a caller sends the same list with every request ------


LIMIT: Final = 32  # tool lists to keep; the least recently used is dropped first


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTools:
    tools: tuple[Tool, ...]
    catalog: Catalog
    words: list[str]
    prompt: ToolPrompt
    reminder: str

    def sources(self, messages: Sequence[Message], results: Iterable[str] = (), described: Iterable[str] = ()) -> Sources:
        """Return the texts, not written by the model, from which a call must not be copied."""
        system = [message.content for message in messages if message.role == "system"]
        said = [message.content for message in messages if message.role in ("user", "tool")]
        return Sources(said=[*said, *results], described=[*self.words, *described], instructions=system)


class Catalogs:
    """A cache of catalogs and their prompts, by tool list."""

    def __init__(self, say: Callable[[str], None], *, reminder: bool) -> None:
        self._say = say
        self._reminder = reminder
        self._known: OrderedDict[str, tuple[Catalog, list[str]]] = OrderedDict()
        self._shown, self.natively = lru_cache(LIMIT)(self._in_prompt), lru_cache(LIMIT)(self._natively)

    def of(self, tools: tuple[Tool, ...]) -> Catalog:
        """Return the catalog of a tool list; the same list gives the same catalog."""
        found = self._found(tools, key := key_of(tools))
        self._keep(key, found)
        return found[0]

    def _found(self, tools: tuple[Tool, ...], key: str) -> tuple[Catalog, list[str]]:
        return self._known.get(key) or (Catalog(tools), [words_of(tool) for tool in tools])

    def _keep(self, key: str, found: tuple[Catalog, list[str]]) -> None:
        self._known.setdefault(key, found)
        self._known.move_to_end(key)
        if len(self._known) > LIMIT:
            self._known.popitem(last=False)
        for notice in found[0].notices:
            self._say(notice)

    def knows(self, key: str) -> bool:
        return key in self._known

    def offered(
        self, tools: tuple[Tool, ...], key: str, format: PromptFormat, instructions: tuple[tuple[str, str], ...], budget: Budget
    ) -> OfferedTools:
        """Return how a tool list is shown to the model; without tools, the prompt and the reminder are empty."""
        catalog, words = found = self._found(tools, key)
        shown, reminder = self._shown(catalog, format, instructions, budget)
        self._keep(key, found)  # only now: a request that meets it in between would render the prompt in the event loop
        return OfferedTools(tools=tools, catalog=catalog, words=words, prompt=shown, reminder=reminder)

    def _natively(self, catalog: Catalog, format: PromptFormat, budget: Budget) -> ToolPrompt:
        found = native_tools_within(budget, catalog, format)
        if found.own:
            self._say(f"{len(catalog)} tools: those that fit are sent to the model server (see --ask tool_tokens)")
        return found

    def _in_prompt(
        self, catalog: Catalog, format: PromptFormat, instructions: tuple[tuple[str, str], ...], budget: Budget
    ) -> tuple[ToolPrompt, str]:
        if not len(catalog):
            return ToolPrompt(catalog=catalog, grade="whole", system="", format=format), ""
        offered = tool_prompt_within(budget, catalog, format, instructions)
        if offered.own:
            self._say(f"{len(catalog)} tools are shown to the model as {offered.grade} (see --ask tool_tokens)")
        for tool in catalog:
            if catalog.parameters(tool.name) and not parameters_of(tool):
                self._say(f"The tool {tool.name[:80]!r} is shown with its name and description only: its schema is too large.")
        return offered, prompt.reminder(catalog, format) if self._reminder else ""


def key_of(tools: tuple[Tool, ...]) -> str:
    """Return the cache key of a tool list; compute it once per request, because it is as long as the tools."""
    return json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=dict)


# -- answers -----------------------------------------------------------------------------------------------------------


log = logging.getLogger("xmlcall.proxy")

# The error message for each reason why a turn ends without an answer; `{why}` describes what is wrong with the calls.
FAILURES: Final[Mapping[str, str]] = {
    "invented_results": "no answer: the model wrote results that no tool gave, however often it was told",
    "own_words": "no answer: the model only repeated its instructions, however often it was told",
    "no_tool_call": "tool_choice: a call was required, and the model answered without one, also when it was told to call",
    "invalid_calls": "the model's calls cannot run, however often it was told why: {why}",
    "tool_errors": "the model's calls of the proxy's own tools failed one after the other",
    "repeated_call": "the model made the same call again and again, although its result was the same each time",
    "max_turns": "no answer after {count} replies: the model kept calling tools",
}
# What the caller's person reads if the model insists on such a call of the caller's tools.
_STUCK: Final[Mapping[str, str]] = {
    "en": "(The model made the same call of {name} again and again, although its result was the same each time. It was stopped.)",
    "zh": "（模型一再以相同的参数调用 {name}，而结果每次都一样，因此已停止。）",
}
_BEGINNING: Final = 1000  # characters by which an answer that may be refused is judged: all of them would take quadratic time
_REASONS: Final[Mapping[str, str]] = {"end": "stop", REPETITION: "length"}  # wire formats have no word for a repetition


class AnswerPart(ABC):
    """An answer, or one of several consecutive parts of it; `recording` receives each event."""

    def __init__(self, recording: "Observing | None" = None, *, otherwise: "Callable[[], AnswerPart] | None" = None) -> None:
        self.filters: list[Filter] = []  # applied in this order to everything that goes out
        self.again: Callable[[], AnswerPart | None] = lambda: None  # makes the answer that follows this one, if any
        self._recording = recording
        self._otherwise = otherwise  # replaces this one if the server refuses to continue a beginning before anything was sent
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

    def instead(self, error: BackendError) -> "AnswerPart | None":
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


class PlainAnswer(AnswerPart):
    """An answer without tools; `number` says which reply of the whole answer it is, counted from 1."""

    def __init__(
        self,
        backend: Backend,
        completion: CompletionRequest,
        recording: "Observing | None" = None,
        *,
        number: int = 1,
        otherwise: Callable[[], AnswerPart] | None = None,
    ) -> None:
        super().__init__(recording, otherwise=otherwise)
        if backend.capabilities.reasoning_open:  # the text would begin inside the thinking, so the server has to split them
            completion = replace(completion, extra={"reasoning_format": "auto", **completion.extra})
        self._backend, self._number = backend, number
        how = NativeOptions(server=backend.capabilities)
        self._machine = Machine(generate_native(completion, Binder(catalog=Catalog()), how))

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[AsyncGenerator[Any]]:
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


def _record(recording: "Observing", generated: Generated, number: int) -> None:
    reply, message = generated.reply, Message(role="assistant", content=generated.text)
    recording.note(ReplyEnded(number=number, reply=reply, usage=generated.usage, raw=generated.raw, message=message))
    recording.answered("end" if reply.finish_reason in UNCUT else reply.finish_reason, reply.text)


# -- calls on their way to the caller ------------------------------------------------------------------------------------


class Sender:
    def __init__(self) -> None:
        self.sent: list[ToolCall] = []
        self._earlier: list[ToolCall] = []  # calls of earlier replies that this reply has not repeated yet

    def begin(self) -> None:
        self._earlier = [*self.sent]

    def end(self, call: ToolCall, *, is_retry: bool) -> list[ResponseEvent]:
        """Take a valid call and return what goes out."""
        same = next((each for each in self._earlier if (each.name, each.arguments) == (call.name, call.arguments)), None)
        if is_retry and same is not None:
            self._earlier.remove(same)
            return []
        self.sent.append(call)
        return [CallPiece(index=len(self.sent) - 1, call=call)]


# -- a turn whose calls are text -------------------------------------------------------------------------------------------


class PromptedAnswer(AnswerPart):
    """The answer of a turn whose calls are read from text, or come from the server's own function calling."""

    def __init__(
        self,
        turn: Turn,
        driven: AsyncGenerator[LoopEvent],
        format: PromptFormat,
        *,
        is_strict: bool,
        keep: Callable[[OwnRounds], None] | None = None,
        recording: "Observing | None" = None,
    ) -> None:
        super().__init__(recording)
        self._turn, self._driven, self._sender, self._format = turn, driven, Sender(), format
        self._is_strict = is_strict  # calls that cannot run are an error, instead of being left to the caller to check
        self._keep = keep  # receives the rounds of the proxy's own tools, if calls to the caller follow them
        self._shown = ""  # text of the replies before the last one
        self._is_retry = False  # the reply answers the proxy's feedback, not the caller
        self._visible: list[str] = []  # pieces of text: appending each to one string is quadratic in its length
        self._passes = False  # the reply's text is certain to be kept
        self._held: list[str] = []
        self._beginning = ""  # of the reply's text
        self._taken: dict[object, str] = {}  # calls of this reply, each with the id of its first occurrence
        self._left: list[ToolCall] = []  # calls of this reply that repeat an earlier one
        self._doubted: list[ToolCall | InvalidCall] = []  # calls of this reply that may be taken back

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[AsyncGenerator[LoopEvent]]:
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
        if stuck := _stuck(turn, self._format):
            yield TextPiece(text=stuck)
            yield _end(turn, "stop")
            return
        parting = list(_parting(turn, sender)) if turn.stop_reason in FAILURES and not self._is_strict else []
        yield from parting
        if turn.stop_reason in FAILURES and not parting:
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
                self._doubted.append(call)
                return [] if self._turn.may_take_back(call) else [*self._before_call(), *self._calls()]
            case ReplyEnded(reply=reply, message=kept):
                calls = [] if kept is None else self._calls()
                return [*calls, *self._repeated(reply), *([] if reply.calls or kept is None else self._released())]
            case CallHeld(call=call):
                log.info("held back a call of %r, which needs the results of earlier calls", call.name)
            case AskedAgain(why=why, in_text=True):
                log.warning("a reply with the model server's own function calling came to nothing (%s): asked again in text", why)
            case CallInReasoning(name=name):
                log.warning("the model called %r only in its thinking, so nothing was called", name)
            case ToolCallStart(name=name) if name in self._turn.offer.of_caller and not self._taken:  # a later one may be held
                return self._before_call()
        return []

    def _begin(self) -> None:
        self._is_retry = self._turn.is_retry
        self._shown = "".join(self._visible)
        self._passes = False
        self._held.clear()
        self._left, self._doubted, self._beginning = [], [], ""
        self._taken.clear()
        self._sender.begin()

    def _text_of_reply(self, text: str) -> list[ResponseEvent]:
        """Hold back text that is shown only if the reply has no call, or only if the reply is kept."""
        self._held.append(text)
        self._beginning += text[: _BEGINNING - len(self._beginning)]
        if self._is_retry or (not self._passes and self._turn.may_be_refused(self._beginning)):
            return []
        self._passes = True
        return self._pass_on()

    def _pass_on(self) -> list[ResponseEvent]:
        text = "".join(self._held)
        self._held.clear()
        self._visible.append(text)
        return [TextPiece(text=text)] if text else []

    def _before_call(self) -> list[ResponseEvent]:
        """Pass on the text before a call, except in a retry; a reply with a call that stands is not replaced."""
        return [] if self._is_retry else self._pass_on()

    def _calls(self) -> list[ResponseEvent]:
        calls, self._doubted = self._doubted, []
        return [event for call in calls for event in self._call(call)]

    def _call(self, call: ToolCall | InvalidCall) -> list[ResponseEvent]:
        is_first = self._taken.setdefault(identity(call), call.id) == call.id
        if isinstance(call, InvalidCall):
            return []
        if is_first:
            return self._take(call)
        self._left.append(call)  # whether the user asked for repeats is known at the end
        return []

    def _take(self, call: ToolCall) -> list[ResponseEvent]:
        if self._turn.is_repeated(call):
            log.warning(
                "the model repeats a call of %r whose result was the same each time: it is told, and asked for words", call.name
            )
            return []
        return self._sender.end(call, is_retry=self._is_retry) if call.name in self._turn.offer.of_caller else []

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
        if not (turn.has_called or turn.results) or len(valid) != len(turn.answered):
            return None
        calls = tuple((call, result and _as_text(result, self._format)) for call, result in valid)
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


def _stuck(turn: Turn, format: PromptFormat) -> str:
    """Return what to say if a turn ended because the model insists on a call that the caller has run too often; else ""."""
    call = next((call for call, _ in turn.answered if isinstance(call, ToolCall) and call.name in turn.offer.of_caller), None)
    if turn.stop_reason != "repeated_call" or call is None:
        return ""
    return _STUCK[format.lang].format(name=call.name)


def _why(turn: Turn) -> str:
    invalid = [call for call, _ in turn.answered if isinstance(call, InvalidCall)]
    why = " ".join(f"{call.name}: {issue.why}" for call in invalid for issue in call.issues)
    return FAILURES[turn.stop_reason].format(why=why, count=turn.count)


def _as_text(result: ToolResult, format: PromptFormat) -> ToolResult:
    return ToolResult(content=(TextContent(text=result_text(result, format)),), is_error=result.is_error)
