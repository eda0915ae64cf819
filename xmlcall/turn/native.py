"""Generates one reply with a feature of the server: its own function calling, or a constraint to one call.

The text is parsed as well, because servers leak calls as text if a model does not write them as its template says (Qwen2.5-Coder
writes them in a fence). Such a call counts, with the repair `leaked-call`.

Constraining the reply to one call of one tool is the last resort for a model that cannot get the form of a call right, if the
server can constrain a reply to a JSON Schema. The reply is then the call as a JSON object with a fixed name and arguments by the
tool's own schema. It is read like any other reply. The conversation keeps it in the format of the prompt, so that the model does
not learn a second format.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import BackendStatusError, UsageError
from ..parsing.parser import Parser
from ..parsing.reply import render, reply_of
from ..prompting.leaks import Leaks
from ..schema.references import Places
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, RawCall, Repair, Reply, Tool, ToolCall
from ..types.completion import Capabilities, CompletionRequest, Usage
from ..types.events import Event, Markup, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart
from .generate import Binder, Generated, NotTaken, ReplyOptions, generate, lost_call
from .machine import Ask, Ended, Script
from .reply_end import Watch, text_until

__all__ = ["call_schema", "generate_call", "generate_native"]

# llama.cpp (common/chat.cpp, b11549) reports this at the end of a reply that it has already streamed.
_REJECTED = re.compile(r"does not match the expected \S+ format|Failed to parse input")
_OPENING = frozenset({"fence", "block_open", "space"})  # markup that may precede a call

_ARGUMENTS: Final = "#/$defs/arguments"  # new place of a schema with references, because `$ref` resolves from the document's root


def generate_native(
    request: CompletionRequest, binder: Binder, server: Capabilities, *, read_text: bool = True, is_for_caller: bool = False
) -> Script[Generated]:
    """Generate a reply with the server's own function calling.

    Args:
        read_text: whether calls that the server left in the text count, if the server found none itself.
        is_for_caller: whether the caller keeps the conversation. Calls then keep the ids that the server gave them, because the
            caller's next request may need them; and an invalid call in the text stays text, because it may be meant for the user.

    Yields:
        The progress of the prompt, if the server reports it; text and reasoning as they come; each call once.
    """
    catalog, kept, reasoning, has_text = binder.catalog, list[Event](), "", False
    leaks = _LeakedCalls(catalog, server, reads=read_text and len(catalog) > 0)
    ask, last = Ask(request=request), Ended()
    try:
        while not isinstance(came := (yield ask), Ended):
            last = Ended(finish_reason=came.finish_reason or last.finish_reason, usage=came.usage or last.usage)
            has_text, reasoning = has_text or bool(came.text.strip()), reasoning + came.reasoning
            if came.progress:
                yield came.progress
            if came.reasoning:
                yield ReasoningDelta(text=came.reasoning, span=(len(leaks.text), len(leaks.text)))
            native = binder.bound(_native_events(came.tool_calls))
            events = binder.bound(leaks.feed(came.text, reasoned=bool(reasoning)))
            events += _with_ids(native, came.call_ids) if is_for_caller else native
            kept += events
            yield from events
        last = Ended(finish_reason=last.finish_reason or came.finish_reason, usage=last.usage or came.usage)
    except BackendStatusError as error:
        if not has_text or not _REJECTED.search(error.body or str(error)):
            raise
    finish_reason = last.finish_reason or "stop"
    left = binder.bound(leaks.close(finish_reason, found=any(isinstance(event, ToolCallEnd) for event in kept)))
    left = list(_only_valid(left)) if is_for_caller else left
    yield from left
    reply = reply_of([*kept, *left], catalog, finish_reason=finish_reason)
    if lost := lost_call(reply, reasoning, catalog, len(leaks.text)):
        yield lost
    reply, (text, in_text) = replace(reply, reasoning=reasoning + reply.reasoning), leaks.said(reply)
    usage = last.usage or Usage()
    return Generated(reply=reply, text=text, usage=usage, raw=leaks.text, server_reasoning=reasoning, calls_in_text=in_text)


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

    def said(self, reply: Reply) -> tuple[str, bool]:
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
        """Where the last call ends."""
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
    """Mark a call as leaked."""
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
