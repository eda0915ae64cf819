"""Tools for a model that another gateway asks: the request with its tools in the prompt, the reply with its calls read.

A gateway sends requests and gets replies itself, so this is no engine: a request is written once, before it is sent, and a reply
is read once. The parts are those of the proxy. What needs a second request (`xmlcall serve` has it) is missing: nobody tells the
model what is wrong with a call, nor that it had to call a tool. So what becomes of a reply that is no good is decided here:

| the reply has | the caller gets |
|---|---|
| a call that does not fit its tool's schema | the call, its arguments as written: agents check them, and tell the model |
| any other call that cannot run: of an unknown tool, cut off, ambiguous, copied | its text |
| results that no tool gave, or only words of our prompt | an error |
| no call, although one was asked for | its text |

The log tells each of these, in words of ours and names of tools alone.

A streamed reply is given as lists of choices (`ChoiceWriter`), for gateways that have objects of their own for chunks. The
proxy's own writer of chunks says what is in them, so that a gateway's stream and ours say the same.
"""

import json
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self

from ..agent.drive import new_id
from ..backends.base import Capabilities
from ..binding.bind import as_written
from ..binding.echo import Sources
from ..errors import UsageError
from ..parsing.repetition import identity, once
from ..prompting import system as prompt
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.grades import Budget
from ..prompting.writer import PromptWriter, callers_in_text, with_words
from ..proxy.engine.call_stream import Sender
from ..proxy.engine.catalogs import Catalogs, OfferedTools, key_of
from ..proxy.engine.filters import offered_names, renamed
from ..proxy.engine.fitting import SaidOnce
from ..proxy.formats.contract import (
    ApiError,
    Asked,
    CallClosed,
    CallOpened,
    ChatRequest,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    TextPiece,
)
from ..proxy.formats.openai_chat import CHAT, ChatBody
from ..proxy.formats.tolerance import mended
from ..tools.catalog import Catalog
from ..turn.generate import REPETITION, Binder, Generated, ReplyReader
from ..turn.opening import last_request
from ..types.calls import InvalidCall, Message, ToolCall
from ..types.completion import CompletionRequest, Usage
from ..types.events import Event, ReasoningDelta, TextDelta, ToolCallEnd
from ..wire.openai import message_dict

__all__ = ["ChoiceWriter", "PromptSettings", "Rewriter", "Rewritten", "StreamedReply"]

log = logging.getLogger("xmlcall.integrations")

_TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
_READ: Final = (*ChatBody.model_fields, "logprobs")  # a gateway keeps things of its own beside them
_WHOLE: Final = Budget(whole=1 << 30, parts=1 << 30)  # where tools are shown in part, a tool of ours would have to answer
_NO_ANSWER: Final[Mapping[str, str]] = {
    "invented_results": "no answer: the model wrote results that no tool gave",
    "own_words": "no answer: the model only repeated its instructions",
}
_TYPES: Final[Mapping[Any, type]] = {"dialect": str, "lang": str, "family": str, "reminder": bool}
Choices = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """How a model is asked.

    Args:
        format: of the prompt and of the calls.
        reminder: whether the person's messages end in a reminder of the tools.
    """

    format: PromptFormat = ENGLISH
    reminder: bool = True

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """Read what a configuration says about a model.

        Args:
            given: a table with `dialect`, `lang`, `family` or `reminder`; true is one without any. None or false leaves the
                model alone.

        Raises:
            UsageError: it is something else, or a value is not known.
        """
        if given is None or given is False:
            return None
        table = {} if given is True else given
        if not isinstance(table, Mapping) or any(_TYPES.get(name) is not type(value) for name, value in table.items()):
            known = ", ".join(f"{name} ({kind.__name__})" for name, kind in _TYPES.items())
            raise UsageError(f"xmlcall: expected true, false or a table of {known}, got {given!r:.200}")
        words = {name: value for name, value in table.items() if name != "reminder"}
        return cls(format=PromptFormat(**words), reminder=table.get("reminder", True))


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A request as the model gets it.

    Args:
        asked: as the caller sent it.
        messages: in the place of the caller's, in OpenAI's form.
        reading: makes what reads the reply; None if nothing is to be read out of it.
    """

    asked: Asked
    messages: list[dict[str, Any]]
    reading: "Callable[[], StreamedReply] | None"

    def over(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body with this request in it.

        Args:
            data: the body as it came; it stays as it is.
        """
        # A reply that is held to a schema could not hold a call: the form is asked for in words.
        gone = (*_TOOL_FIELDS, "response_format") if self.reading else _TOOL_FIELDS
        return {**{name: value for name, value in data.items() if name not in gone}, "messages": self.messages}


class Rewriter:
    """Writes requests for models that know nothing of tools. It keeps compiled tools, and nothing of a request."""

    def __init__(self) -> None:
        self._say_once = SaidOnce().note
        self._catalogs = Catalogs(self._say_once, reminder=True)

    def rewritten(self, data: Mapping[str, Any], settings: PromptSettings) -> Rewritten | None:
        """Write a request for the model.

        Args:
            data: a chat completion body; other fields may stand beside.
            settings: of the model.

        Returns:
            None if there are no tools in it, neither on offer nor in the history: it goes as it is.

        Raises:
            ApiError: the body is not one, or asks for what cannot be done here.
        """
        body, notes = mended({name: data[name] for name in _READ if name in data}, CHAT.name)
        if not any(body.get(name) for name in ("tools", "functions")) and not _has_calls(body.get("messages")):
            return None
        for note in notes:
            self._say_once(note)
        asked = CHAT.read(body)
        names = offered_names(asked.request.tools)
        request = renamed(asked.request, names)
        tools = request.tools if request.choice.mode != "none" else ()
        form = replace(settings.format, parallel=request.parallel)
        shown = self._catalogs.offered(tools, key_of(tools), form, {}, _WHOLE)
        messages = _messages(request, settings, shown)
        if not tools:
            return Rewritten(asked=asked, messages=_dicts(messages), reading=None)
        chosen = tuple(tool for tool in tools if request.choice.allows(tool.name))
        allowed = shown.catalog if len(chosen) == len(tools) else self._catalogs.of(chosen)
        own = {offered: name for name, offered in names.items()}
        sources = replace(shown.sources(request.messages), offered=shown.catalog)
        reading = partial(StreamedReply, request, settings, allowed, sources, messages, own)
        return Rewritten(asked=asked, messages=_dicts(messages), reading=reading)


def _messages(request: ChatRequest, settings: PromptSettings, shown: OfferedTools) -> tuple[Message, ...]:
    """Write the conversation, what is asked for in words at its end."""
    catalog, form = shown.catalog, shown.prompt.format
    writer = PromptWriter(
        offered=shown.prompt,
        reminder=shown.reminder if settings.reminder else "",
        stands="each",
        in_text=partial(callers_in_text, catalog=catalog, format=form),
    )
    messages = writer.messages(request.messages)
    for words in _demands(request, catalog, form):
        messages = with_words(words, messages)
    return messages


def _demands(request: ChatRequest, catalog: Catalog, form: PromptFormat) -> Iterator[str]:
    """Yield what else the caller wants: no model server is made to obey it, or it could not call a tool any more."""
    if len(catalog) and request.choice.mode == "required":
        yield prompt.demand(form, request.choice.name)
    elif len(catalog) and request.sampling.json_schema is not None:
        yield prompt.json_answer(request.sampling.json_schema, form)


def _has_calls(messages: Any) -> bool:
    """Say whether a history has calls or results in it."""
    listed = [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []
    calls = any(message.get("tool_calls") or message.get("function_call") for message in listed)
    return calls or any(message.get("role") in ("tool", "function") for message in listed)


def _dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message_dict(message) for message in messages]


# -- replies -----------------------------------------------------------------------------------------------------------


class StreamedReply:
    """One reply, read while it comes. Text goes out as it comes, a call when it is whole.

    Args:
        request: that it answers.
        settings: of the model.
        catalog: what may be called.
        sources: from which no call may be copied.
        messages: that the model was sent.
        names: of tools that were offered under another name -> the caller's.
    """

    def __init__(
        self,
        request: ChatRequest,
        settings: PromptSettings,
        catalog: Catalog,
        sources: Sources,
        messages: tuple[Message, ...],
        names: Mapping[str, str],
    ) -> None:
        unsaid = settings.format.shows.unsaid
        sent = CompletionRequest(messages=messages, stop=request.sampling.stop)
        server = Capabilities(server="a gateway's")
        binder = Binder(catalog=catalog, sources=sources, unsaid=unsaid, new_id=new_id)
        self._reader = ReplyReader(binder, sent, server, parallel=request.parallel)
        self._sender = Sender(catalog, stream_arguments=False, unsaid=unsaid)
        self._request, self._catalog, self._names = request, catalog, names
        self._reasoning = ""
        self._taken: set[Hashable] = set()  # calls that went out
        self._again: list[ToolCall | InvalidCall] = []  # the same once more: known at the end whether that was asked for

    def feed(self, text: str, reasoning: str = "") -> list[ResponseEvent]:
        """Take a piece of the reply; return what goes out.

        Args:
            text: of any length.
            reasoning: that the model server told apart from it.
        """
        self._reasoning += reasoning
        thought: list[ResponseEvent] = [ReasoningPiece(text=reasoning)] if reasoning else []
        return thought + self._pieces(self._reader.feed(text, reasoning))

    def end(self, finish_reason: str) -> list[ResponseEvent]:
        """Take the end of the reply; return what goes out, a ResponseEnded last.

        Args:
            finish_reason: the model server's.

        Raises:
            ApiError: the reply is no answer.
        """
        pieces, reason = self._pieces(self._reader.close(finish_reason)), finish_reason
        lost, generated = self._reader.finished(self._reasoning, Usage())
        if lost:
            log.warning("the model called %r in thinking that never ended, so nothing was called", lost.name)
        pieces += self._asked_for_again(generated)
        reason = "length" if generated.reply.finish_reason == REPETITION else reason
        self._check(generated)
        ended = ResponseEnded(finish_reason="tool_calls" if self._sender.sent else reason, usage=Usage())
        return [*pieces, ended]

    def _check(self, generated: Generated) -> None:
        """Refuse what is no answer."""
        if generated.refusal:
            log.warning("%s", _NO_ANSWER[generated.refusal])
            raise ApiError(_NO_ANSWER[generated.refusal], status=502, kind="server_error", code=generated.refusal)
        if self._request.choice.mode == "required" and not self._sender.sent:
            log.warning("tool_choice: a call was asked for, and the model made none")

    def _pieces(self, events: Sequence[Event]) -> list[ResponseEvent]:
        return [self._named(piece) for event in events for piece in self._piece(event)]

    def _piece(self, event: Event) -> list[ResponseEvent]:
        match event:
            case TextDelta(text=text):
                return [TextPiece(text=text)]
            case ReasoningDelta(text=text):
                return [ReasoningPiece(text=text)]
            case ToolCallEnd(call=ToolCall() | InvalidCall() as call):
                return self._call(call)
        return []

    def _call(self, call: ToolCall | InvalidCall) -> list[ResponseEvent]:
        same = identity(call)
        if same in self._taken:
            self._again.append(call)
            return []
        self._taken.add(same)
        return self._sent(call)

    def _sent(self, call: ToolCall | InvalidCall) -> list[ResponseEvent]:
        if isinstance(call, ToolCall):
            return self._sender.end(call, is_retry=False)
        codes = ", ".join(sorted({issue.code for issue in call.issues}))
        written = as_written(call, self._catalog)
        if written is None:
            log.warning("a call of %.100r cannot run (%s): the caller gets its text", call.name, codes)
            return [TextPiece(text=call.raw.text)] if call.raw.text else []
        log.warning("a call of %r does not fit its schema (%s): the caller gets it as it is written", written.name, codes)
        return self._sender.end(written, is_retry=False)

    def _asked_for_again(self, generated: Generated) -> list[ResponseEvent]:
        """Give out calls that the reply had before, if the person asked for so many."""
        wanted = {call.id for call in once(generated.reply, last_request(self._request.messages))[0].calls}
        for call in self._again:
            if call.id not in wanted:
                log.info("left out a call of %.100r that stood in the same reply before", call.name)
        return [self._named(piece) for call in self._again if call.id in wanted for piece in self._sent(call)]

    def _named(self, piece: ResponseEvent) -> ResponseEvent:
        """Give a call the name that the caller knows."""
        match piece:
            case CallOpened(name=name):
                return replace(piece, name=self._names.get(name, name))
            case CallClosed(call=call):
                return replace(piece, call=replace(call, name=self._names.get(call.name, call.name)))
        return piece


class ChoiceWriter:
    """Writes one streamed answer.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Asked) -> None:
        self._writer = CHAT.writer(asked)

    def begin(self) -> Choices:
        """Return the choices of the first chunk."""
        return _choices(self._writer.begin())

    def write(self, event: ResponseEvent) -> Choices:
        """Return the choices of an event's chunk; none if it is not shown.

        Args:
            event: of the answer; of its end this is the chunk with the reason.
        """
        return _choices(self._writer.write(event))


def _choices(written: bytes) -> Choices:
    line = written.partition(b"\n\n")[0]
    choices: Choices = json.loads(line.removeprefix(b"data: "))["choices"] if line else []
    return choices
