"""Tools for a model that another gateway asks: put the tools into the request's prompt, and read the calls from the reply.

The gateway itself sends requests and receives replies, so there is no engine here: a request is rewritten once, before it is
sent, and a reply is read once, with the proxy's own code. What needs a second request (as in `xmlcall serve`) is missing: the
model gets no feedback on a bad call, nor on a missing one. So this module decides what happens to an unusable reply:

| the reply has | the caller gets |
|---|---|
| a call that does not fit its tool's schema | the call, its arguments as written: agents check them and inform the model |
| any other call that cannot run: of an unknown tool, cut off, ambiguous, copied | its text |
| results that no tool gave, or only words of our prompt | an error |
| no call, although one was asked for | its text |

Each of these is logged, with nothing from the reply but tool names.

A streamed reply is written as lists of choices (`ChoiceWriter`), because gateways have their own chunk objects. The proxy's own
chunk writer produces the choices, so a gateway's stream has the same content as ours.
"""

import json
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ..agent.drive import new_call_id
from ..binding.bind import as_written
from ..binding.echo import Sources
from ..errors import UsageError
from ..parsing.repetition import identity, once
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.system import Budget
from ..prompting.writer import PromptWriter, callers_in_text, with_words
from ..proxy.engine.answers import Catalogs, OfferedTools, Sender, key_of
from ..proxy.engine.filters import offered_names, own_names, renamed
from ..proxy.engine.model_server import SaidOnce
from ..proxy.formats.contract import ApiError, Asked, ChatRequest, ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece
from ..proxy.formats.openai_chat import CHAT, ChatBody, mentions_tools
from ..proxy.formats.tolerance import mended
from ..tools.catalog import Catalog
from ..turn.asking import Asking
from ..turn.generate import REPETITION, Binder, Generated, ReplyReader
from ..turn.opening import last_request
from ..types.calls import InvalidCall, Message, ToolCall
from ..types.completion import Capabilities, CompletionRequest, Usage
from ..types.events import Event, ReasoningDelta, TextDelta, ToolCallEnd
from ..wire.openai import message_dict

log = logging.getLogger("xmlcall.integrations")

_TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
_READ: Final = (*ChatBody.model_fields, "logprobs")  # a gateway adds fields of its own
_WHOLE: Final = Budget(whole=1 << 30, parts=1 << 30)  # tools shown in part would need a tool of ours to describe the rest
_NO_ANSWER: Final[Mapping[str, str]] = {
    "invented_results": "no answer: the model wrote results that no tool gave",
    "own_words": "no answer: the model only repeated its instructions",
}
SETTINGS: Final[Mapping[Any, type]] = {"dialect": str, "lang": str, "family": str, "reminder": bool}
"""Fields of `Asking` that a configuration may set, and their types."""

Choices = list[dict[str, Any]]


def read_asking(given: Any) -> Asking | None:
    """Read from a configuration how a model is asked: true, or a table of `SETTINGS`; otherwise the model is left alone."""
    if given is None or given is False:
        return None
    table = {} if given is True else given
    if not isinstance(table, Mapping) or any(SETTINGS.get(name) is not type(value) for name, value in table.items()):
        known = ", ".join(f"{name} ({kind.__name__})" for name, kind in SETTINGS.items())
        raise UsageError(f"xmlcall: expected true, false or a table of {known}, got {given!r:.200}")
    return Asking(**table)


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    asked: Asked  # as the caller sent it
    messages: list[dict[str, Any]]  # in place of the caller's
    reading: "Callable[[], StreamedReply] | None"  # makes the reader of the reply; None if the reply passes unchanged

    def over(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a body with this request in it."""
        # A reply that is constrained to a schema could not contain a call, so the prompt asks for the form in words.
        gone = (*_TOOL_FIELDS, "response_format") if self.reading else _TOOL_FIELDS
        return {**{name: value for name, value in data.items() if name not in gone}, "messages": self.messages}


class Rewriter:
    """Rewrites requests for models without tools. It keeps compiled tools, but no state of a request."""

    def __init__(self) -> None:
        self._say_once = SaidOnce().note
        self._catalogs = Catalogs(self._say_once, reminder=True)

    def rewritten(self, data: Mapping[str, Any], asking: Asking) -> Rewritten | None:
        """Write a chat completion request for the model; None if it has no tools, neither on offer nor in the history."""
        body, notes = mended({name: data[name] for name in _READ if name in data}, CHAT.name)
        if not mentions_tools(body):
            return None
        for note in notes:
            self._say_once(note)
        asked = CHAT.read(body)
        names = offered_names(asked.request.tools)
        request = renamed(asked.request, names)
        tools = request.tools if request.choice.mode != "none" else ()
        form = replace(asking.format, parallel=request.parallel)
        shown = self._catalogs.offered(tools, key_of(tools), form, (), _WHOLE)
        messages = _messages(request, asking, shown)
        written = [message_dict(message) for message in messages]
        if not tools:
            return Rewritten(asked=asked, messages=written, reading=None)
        chosen = tuple(tool for tool in tools if request.choice.allows(tool.name))
        allowed = shown.catalog if len(chosen) == len(tools) else self._catalogs.of(chosen)
        sources = replace(shown.sources(request.messages), offered=shown.catalog)
        reading = partial(StreamedReply, request, asking, allowed, sources, messages, names)
        return Rewritten(asked=asked, messages=written, reading=reading)


def _messages(request: ChatRequest, asking: Asking, shown: OfferedTools) -> tuple[Message, ...]:
    """Write the conversation, with the caller's demands in words at its end."""
    catalog, form = shown.catalog, shown.prompt.format
    writer = PromptWriter(
        offered=shown.prompt,
        reminder=shown.reminder if asking.reminder else "",
        stands="each",
        in_text=partial(callers_in_text, catalog=catalog, format=form),
    )
    messages = writer.messages(request.messages)
    for words in _demands(request, catalog, form):
        messages = with_words(words, messages)
    return messages


def _demands(request: ChatRequest, catalog: Catalog, form: PromptFormat) -> Iterator[str]:
    """Yield the caller's demands in words; if the model server enforced them, the model could no longer call a tool."""
    if len(catalog) and request.choice.mode == "required":
        yield prompt.demand(form, request.choice.name)
    elif len(catalog) and request.sampling.json_schema is not None:
        yield prompt.json_answer(request.sampling.json_schema, form)


# -- replies -----------------------------------------------------------------------------------------------------------


class StreamedReply:
    """One reply, read while it arrives. Text goes out as it arrives, a call when it is complete.

    No call may be copied from `sources`. `names` are those under which tools were offered, by the caller's names.
    """

    def __init__(
        self,
        request: ChatRequest,
        asking: Asking,
        catalog: Catalog,
        sources: Sources,
        messages: tuple[Message, ...],
        names: Mapping[str, str],
    ) -> None:
        unsaid = asking.format.shows.unsaid
        sent = CompletionRequest(messages=messages, stop=request.sampling.stop)
        server = Capabilities(server="a gateway's")
        binder = Binder(catalog=catalog, sources=sources, unsaid=unsaid, new_id=new_call_id)
        self._reader = ReplyReader(binder, sent, server, parallel=request.parallel)
        self._sender = Sender()
        self._request, self._catalog, self._own_names = request, catalog, own_names(names)
        self._reasoning = ""
        self._taken: set[Hashable] = set()  # calls that went out
        self._again: list[ToolCall | InvalidCall] = []  # repeats; whether the user asked for them is known at the end

    def feed(self, text: str, reasoning: str = "") -> list[ResponseEvent]:
        """Take a piece of the reply, and of the reasoning that the server sent separately; return what goes out."""
        self._reasoning += reasoning
        thought: list[ResponseEvent] = [ReasoningPiece(text=reasoning)] if reasoning else []
        return thought + self._pieces(self._reader.feed(text, reasoning))

    def end(self, finish_reason: str) -> list[ResponseEvent]:
        """Take the end of the reply and return what goes out, a ResponseEnded last; ApiError if the reply is not an answer."""
        pieces = self._pieces(self._reader.close(finish_reason))
        lost, generated = self._reader.finished(self._reasoning, Usage())
        if lost:
            log.warning("the model called %r only in its thinking, so nothing was called", lost.name)
        pieces += self._wanted_repeats(generated)
        reason = "length" if generated.reply.finish_reason == REPETITION else finish_reason
        self._check(generated)
        ended = ResponseEnded(finish_reason="tool_calls" if self._sender.sent else reason, usage=Usage())
        return [*pieces, ended]

    def _check(self, generated: Generated) -> None:
        if generated.refusal:
            log.warning("%s", _NO_ANSWER[generated.refusal])
            raise ApiError(_NO_ANSWER[generated.refusal], status=502, kind="server_error", code=generated.refusal)
        if self._request.choice.mode == "required" and not self._sender.sent:
            log.warning("tool_choice: a call was required, but the model made none")

    def _pieces(self, events: Sequence[Event]) -> list[ResponseEvent]:
        return self._named(piece for event in events for piece in self._piece(event))

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
            log.warning("a call of %.100r cannot run (%s): the caller receives its text", call.name, codes)
            return [TextPiece(text=call.raw.text)] if call.raw.text else []
        log.warning("a call of %r does not fit its schema (%s): the caller receives it as written", written.name, codes)
        return self._sender.end(written, is_retry=False)

    def _wanted_repeats(self, generated: Generated) -> list[ResponseEvent]:
        """Send calls that repeat an earlier one of the reply, if the user asked for that many."""
        wanted = {call.id for call in once(generated.reply, last_request(self._request.messages))[0].calls}
        for call in self._again:
            if call.id not in wanted:
                log.info("dropped a call of %.100r that repeats an earlier one in the same reply", call.name)
        return self._named(piece for call in self._again if call.id in wanted for piece in self._sent(call))

    def _named(self, pieces: Iterable[ResponseEvent]) -> list[ResponseEvent]:
        return [out for piece in pieces for out in self._own_names(piece)]


class ChoiceWriter:
    def __init__(self, asked: Asked) -> None:
        self._writer = CHAT.writer(asked)

    def begin(self) -> Choices:
        return next(_choices(self._writer.begin()))

    def write(self, event: ResponseEvent) -> Iterator[Choices]:
        """Yield the choices of an event's chunks; the end gives the chunk with the reason."""
        return _choices(self._writer.write(event))


def _choices(written: bytes) -> Iterator[Choices]:
    for line in written.split(b"\n\n"):
        if line.startswith(b"data: {") and (choices := json.loads(line.removeprefix(b"data: "))["choices"]):
            yield choices
