"""Generates one reply with a feature of the server: its own function calling, or a constraint to one call.

The text is parsed as well, because servers leak calls as text if a model does not write them as its template says (Qwen2.5-Coder
writes them in a fence). Such a call counts, with the repair `leaked-call`. Some servers report an error instead and quote what
the model wrote; the quotation is read like leaked text. A reply that comes to nothing all the same is asked for again with the
tools in the prompt (`turn`), unless the caller wants native calls alone.

Constraining the reply to one call of one tool is the last resort for a model that cannot get the form of a call right, if the
server can constrain a reply to a JSON Schema. The reply is then the call as a JSON object with a fixed name and arguments by the
tool's own schema. It is read like any other reply. The conversation keeps it in the format of the prompt, so that the model does
not learn a second format.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..binding.bind import bind
from ..errors import BackendError, BackendProtocolError, BackendStatusError, ContextOverflow, OutputRejected, UsageError
from ..parsing.parser import Parser, render, reply_of
from ..prompting.leaks import Leaks
from ..schema.references import Places
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, RawCall, Repair, Reply, Tool, ToolCall
from ..types.completion import UNCUT, Capabilities, Chunk, CompletionRequest, FinishReason, PromptProgress, Usage, UsageCount
from ..types.events import CallInReasoning, Event, Markup, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart
from .generate import Binder, Generated, Lost, NotTaken, ReplyOptions, Watch, generate, lost_call, text_until
from .machine import Ask, Ended, Script

# Statuses of servers that do not take tools, or fail because of them; 200 is an error inside a stream.
REFUSALS: Final = frozenset({200, 400, 422, 500, 501})
_OPENING = frozenset({"fence", "block_open", "space"})  # markup that may precede a call

_MARKS: Final = frozenset("<[{`")  # a call begins with one of these

_ARGUMENTS: Final = "#/$defs/arguments"  # new place of a schema with references, because `$ref` resolves from the document's root


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """How a reply with the server's own function calling is read."""

    server: Capabilities
    reads_text: bool = True  # whether calls that the server left in the text count, if the server found none itself
    reads_reasoning: bool = False  # whether calls at the end of the reasoning count, if there is nothing else in the reply
    # Whether the caller keeps the conversation. Calls then keep the ids that the server gave them, because the caller's next
    # request may need them; and an invalid call in the text stays text, because it may be meant for the user.
    is_for_caller: bool = False
    is_asked_again: bool = False  # whether a reply that came to nothing is asked for in another way, so that it is not an error


def generate_native(request: CompletionRequest, binder: Binder, how: NativeOptions) -> Script[Generated]:
    """Generate a reply with the server's own function calling; each call is yielded once."""
    reply, ask, end = _NativeReply(binder, how), Ask(request=request), Ended()
    try:
        while not isinstance(came := (yield ask), Ended):
            yield from reply.feed(came)
        end = came
    except BackendError as error:
        if not reply.survives(error):
            raise
        yield from reply.fail(error)
    yield from reply.close(end)
    if lost := reply.call_in_reasoning():
        yield lost
    if reply.error is not None and not reply.stands:
        raise reply.error
    return reply.generated()


class _NativeReply:
    """A reply while it arrives; `error` is the failure that ended it, if one did."""

    def __init__(self, binder: Binder, how: NativeOptions) -> None:
        self.error: BackendError | None = None
        self._binder, self._how = binder, how
        self._kept: list[Event] = []
        self._reasoning: list[str] = []
        self._ended_by: FinishReason | None = None
        self._used = UsageCount()
        self._quoted: list[Any] = []  # the calls in the output that the server could not read
        self._leaks = _LeakedCalls(binder.catalog, how.server, reads=how.reads_text and len(binder.catalog) > 0)

    @property
    def _has_calls(self) -> bool:
        return any(isinstance(event, ToolCallEnd) for event in self._kept)

    @property
    def _has_text(self) -> bool:
        return bool(self._leaks.text.strip())

    def feed(self, came: Chunk) -> Iterator[Event | PromptProgress]:
        """Read a piece; yield what can be shown."""
        self._ended_by = came.finish_reason or self._ended_by
        self._used.take(came)
        if came.progress:
            yield came.progress
        if came.reasoning:
            self._reasoning.append(came.reasoning)
            yield ReasoningDelta(text=came.reasoning, span=(len(self._leaks.text), len(self._leaks.text)))
        native = self._binder.bound(_native_events(came.tool_calls))
        events = self._binder.bound(self._leaks.feed(came.text, reasoned=bool(self._reasoning)))
        events += _with_ids(native, came.call_ids) if self._how.is_for_caller else native
        self._kept += events
        yield from events

    def survives(self, error: BackendError) -> bool:
        """Say whether the reply is useful despite a failure, or is asked for in another way."""
        if isinstance(error, OutputRejected):
            return True
        is_asked = self._how.is_asked_again and not self._has_calls
        if isinstance(error, ContextOverflow) or not is_asked:
            return False
        if isinstance(error, BackendStatusError):
            return error.status_code in REFUSALS and not self._has_text
        return isinstance(error, BackendProtocolError)  # mlx-lm ends the stream if it cannot read a call

    def fail(self, error: BackendError) -> list[Event]:
        """Read what the model had written, if the server could not read it but quotes it."""
        self.error = error
        output = error.output if isinstance(error, OutputRejected) and self._how.reads_text else ""
        self._quoted = [] if self._has_calls else _calls_in(output, self._binder.catalog)
        if not self._quoted:
            return []
        events = self._binder.bound(self._leaks.feed(_continuing(self._leaks.text, output), reasoned=bool(self._reasoning)))
        self._kept += events
        return events

    def close(self, end: Ended) -> list[Event]:
        """Read the end; return what is left to show."""
        self._ended_by = self._ended_by or end.finish_reason
        self._used.take(Chunk(usage=end.usage))
        is_cut = self.error is not None and not self._quoted  # the server may hold back what it could not read
        left = self._binder.bound(self._leaks.close("other" if is_cut else self._finish_reason, found=self._has_calls))
        raws = [_name_and_texts(event.raw) for event in left if isinstance(event, ToolCallEnd)]
        if self._quoted and raws[-len(self._quoted) :] != self._quoted:  # what was streamed and what is quoted do not fit
            left = []
        left = list(_only_valid(left)) if self._how.is_for_caller else left
        if self._how.reads_reasoning and not self._has_text and not self._has_calls:
            left += self._binder.bound(_calls_ending(self._thoughts, self._binder.catalog))
        self._kept += left
        return left

    def call_in_reasoning(self) -> CallInReasoning | None:
        """Return an event if a call was made in the reasoning alone, and does not count."""
        return lost_call(self._reply, self._thoughts, self._binder.catalog, len(self._leaks.text))

    @property
    def stands(self) -> bool:
        """Whether a reply that ended in a failure is useful: it has calls, or text, or is asked for in another way."""
        return self._has_calls or self._how.is_asked_again or (self._has_text and isinstance(self.error, OutputRejected))

    def generated(self) -> Generated:
        reply = self._reply
        text, in_text = self._leaks.for_history(reply)
        return Generated(
            reply=replace(reply, reasoning=self._thoughts + reply.reasoning),
            text=text,
            usage=self._used.usage or Usage(),
            raw=self._leaks.text,
            server_reasoning=self._thoughts,
            calls_in_text=in_text,
            lost=self._lost(reply),
        )

    def _lost(self, reply: Reply) -> Lost:
        may_run = self._quoted or self.error is None or any(isinstance(call, ToolCall) for call in reply.calls)
        if not self._how.is_asked_again or (reply.calls and may_run):
            return ""
        if self.error is not None:
            return "unread" if isinstance(self.error, OutputRejected) else "failed"
        if reply.finish_reason == "tool_calls":  # LM Studio leaves a call out that it cannot read
            return "unread"
        return "" if reply.text.strip() or reply.finish_reason not in UNCUT else "empty"

    @property
    def _reply(self) -> Reply:
        return reply_of(self._kept, self._binder.catalog, finish_reason=self._finish_reason)

    @property
    def _thoughts(self) -> str:
        return "".join(self._reasoning)

    @property
    def _finish_reason(self) -> FinishReason:
        return self._ended_by or "stop"


def _continuing(said: str, output: str) -> str:
    """Return the part of a model's output that follows what it had said already: the server may quote what it has streamed."""
    if output.strip() in said:
        return ""
    length = _overlap(said, output)
    begins_inside = not length and said and not said[-1].isspace() and output[0] in _MARKS  # a call begins on its own line
    return f"\n{output}" if begins_inside else output[length:]


def _overlap(said: str, output: str) -> int:
    """Return how many characters at the end of a text begin another one, in linear time (Knuth, Morris and Pratt)."""
    if not output:
        return 0
    borders = [0]
    for character in output[1:]:
        borders.append(_next_border(output, borders, borders[-1], character))
    length = 0
    for character in said[-len(output) :]:
        length = _next_border(output, borders, borders[length - 1] if length == len(output) else length, character)
    return length


def _next_border(text: str, borders: list[int], length: int, character: str) -> int:
    while length and text[length] != character:
        length = borders[length - 1]
    return length + (text[length] == character)


def _calls_in(output: str, catalog: Catalog) -> list[Any]:
    parser = Parser(catalog)
    raws = [event.raw for event in (*parser.feed(output), *parser.close()) if isinstance(event, ToolCallEnd)]
    return [*map(_name_and_texts, raws)] if any(catalog.meant_by(raw.name) for raw in raws) else []


def _name_and_texts(raw: RawCall) -> tuple[Any, ...]:
    return raw.name, *((argument.name, argument.text) for argument in raw.arguments)


def _calls_ending(reasoning: str, catalog: Catalog) -> list[Event]:
    """Return the calls with which a model's reasoning ends; none if one of them cannot be read."""
    parser = Parser(catalog)
    events = [*parser.feed(reasoning), *parser.close()]
    told = [place for place, event in enumerate(events) if isinstance(event, TextDelta) and event.text.strip()]
    raws = [event.raw for event in events[told[-1] + 1 if told else 0 :] if isinstance(event, ToolCallEnd)]
    if not all(isinstance(bind(raw, catalog), ToolCall) for raw in raws):
        return []
    moved = (replace(raw, span=(0, 0), repairs=(*raw.repairs, Repair(code="call-in-reasoning", span=(0, 0)))) for raw in raws)
    return [*_native_events(moved)]


def _native_events(raws: Iterable[RawCall]) -> Iterator[Event]:
    for raw in raws:
        yield ToolCallStart(index=raw.index, name=raw.name, span=raw.span, dialect=raw.dialect)
        yield ToolCallEnd(raw=raw, span=raw.span)


def _with_ids(events: list[Event], ids: Sequence[str]) -> list[Event]:
    """Give calls the ids that the server sent; calls without one keep ours."""
    left = iter(ids)
    return [
        replace(event, call=replace(event.call, id=next(left, "") or event.call.id))
        if isinstance(event, ToolCallEnd) and event.call
        else event
        for event in events
    ]


def _only_valid(events: Iterable[Event]) -> Iterator[Event]:
    """Pass events on; replace each invalid call by its text."""
    for event in events:
        if isinstance(event, ToolCallEnd) and isinstance(event.call, InvalidCall):
            yield TextDelta(text=event.raw.text, span=event.span)
        else:
            yield event


class _LeakedCalls:
    """Finds calls that a server with function calling left in the text of a reply.

    From the first call on, all events are held until the reply has ended: a server sends its own calls last, and if it sends any,
    only they count. If no call in the text names a declared tool, the text is passed on as the model wrote it.
    """

    def __init__(self, catalog: Catalog, capabilities: Capabilities, *, reads: bool) -> None:
        self.text = ""
        self._catalog = catalog
        self._capabilities = capabilities
        self._reads = reads
        self._parser = Parser(catalog)
        self._watch = Watch(parallel=True, leaks=Leaks(()))
        self._held: list[Event] = []
        self._found = False

    def feed(self, text: str, *, reasoned: bool) -> list[Event]:
        """Read more text; return what can be shown."""
        if not text:
            return []
        if not self.text and self._capabilities.reasoning_open and not reasoned:
            self._reads = False  # the text may begin inside the reasoning, where nothing is a call
        start, self.text = len(self.text), self.text + text
        if not self._reads:
            return [TextDelta(text=text, span=(start, len(self.text)))]
        return self._released(self._parser.feed(text))

    def close(self, finish_reason: str, *, found: bool) -> list[Event]:
        """Read the end of the reply; return what was held."""
        released = self._released(self._parser.close(finish_reason))
        names = [event.name for event in self._held if isinstance(event, ToolCallStart)]
        self._found = not found and any(self._catalog.meant_by(name) for name in names)
        if self._found:
            return [marked for event in text_until(self._held, self._end) for marked in _marked(event)]
        if self._held:
            start = self._held[0].span[0]
            released.append(TextDelta(text=self.text[start:], span=(start, len(self.text))))
        return released

    def for_history(self, reply: Reply) -> tuple[str, bool]:
        """Return the text for the history, and whether it contains the calls as text.

        It does if the template drops calls and their results, or if a call cannot run, so that the model sees what it wrote.
        """
        if not self._found:
            return self.text, False
        if self._capabilities.tool_role is False or any(isinstance(call, InvalidCall) for call in reply.calls):
            return self.text[: self._end], True
        return reply.text.strip(), False

    @property
    def _end(self) -> int:
        return len(self.text) if self._watch.end is None else self._watch.end

    def _released(self, events: list[Event]) -> list[Event]:
        events = self._watch.pass_on(events)
        at = 0 if self._held else _first_call(events)
        self._held += events[at:]
        return events[:at]


def _first_call(events: list[Event]) -> int:
    """Return the index of the first call, or of the wrapper and fence that open it; the number of events if there is none."""
    at = next((place for place, event in enumerate(events) if isinstance(event, ToolCallStart)), None)
    if at is None:
        return len(events)
    while at and (isinstance(event := events[at - 1], Repaired) or (isinstance(event, Markup) and event.kind in _OPENING)):
        at -= 1
    return at


def _marked(event: Event) -> list[Event]:
    if not isinstance(event, ToolCallEnd):
        return [event]
    leaked = Repair(code="leaked-call", span=event.raw.span)
    raw = replace(event.raw, repairs=(*event.raw.repairs, leaked))
    return [Repaired(code=leaked.code, span=leaked.span), replace(event, raw=raw)]


def generate_call(request: CompletionRequest, binder: Binder, tool: Tool, how: ReplyOptions, dialect: str) -> Script[Generated]:
    """Generate a call of a tool; without the constraint if the server refuses the tool's schema."""
    try:
        constrained = replace(request, json_schema=call_schema(tool))
        generated = yield from generate(constrained, binder, replace(how, kind="forced", falls_back=True))
    except NotTaken:
        return (yield from generate(request, binder, how))
    return replace(generated, text=_as_taught(generated, binder.catalog, dialect))


def _as_taught(generated: Generated, catalog: Catalog, dialect: str) -> str:
    """Return the text for the history: the call in the format of the prompt."""
    calls = [call for call in generated.reply.calls if isinstance(call, ToolCall)]
    try:
        return render(calls, catalog, dialect=dialect) if calls else generated.text
    except UsageError:  # a name that the format cannot carry
        return generated.text


def call_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a call, `{"name": ..., "arguments": {...}}`; a schema with references moves to the root."""
    arguments: Any = tool.input_schema
    definitions: dict[str, Any] = {}
    referring = {id(node) for node in Places(tool.input_schema).schemas if isinstance(node.get("$ref"), str)}
    if referring:
        definitions = {"$defs": {"arguments": _moved(tool.input_schema, referring)}}
        arguments = {"$ref": _ARGUMENTS}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        **definitions,
    }


def _moved(node: Any, referring: set[int]) -> Any:
    """Move a schema: rewrite its references to where its parts are now."""
    if isinstance(node, list):
        return [_moved(each, referring) for each in node]
    if not isinstance(node, Mapping):
        return node
    moved = {key: _moved(each, referring) for key, each in node.items()}
    if id(node) in referring and (node["$ref"] == "#" or node["$ref"].startswith("#/")):
        moved["$ref"] = _ARGUMENTS + node["$ref"][1:]
    return moved
