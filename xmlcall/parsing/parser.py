"""Model text in pieces -> events. There is one parser: a whole text takes one `feed` and one `close`.

`Parser` pulls tokens from the scanner. Outside a call, `REPLY_TABLE` selects the function that reads a token: prose, reasoning
and quotation are in `prose.py`, the opening of a call in `call_start.py`, and what is between the calls of a wrapper here. Inside
a call, the call's reader takes each token (`tag_call.py`, `body_call.py`). These parts share one `ReplyState`.

Each decision uses only the text so far and the next token, so the coalesced events do not depend on how the text was cut. No text
raises. Time is linear; prose is held back only while it can still become a tag or the opening of a call.

A call that the model meant but that cannot be read is reported, so that it does not get lost silently. Models damage their own
formats after a mark that certainly means a call: `<tool_call>f<arg_key>a</arg_value>`. If no reading of that is certain, the text
stays text, and the parser also emits a call that cannot run. So the model can write it again, and people see what happened.

Such a call ends the reply's text, is outside code, and has three signs:

| sign | why |
|---|---|
| a mark of a format, or a word with which formats name a call (`function=`, `call:`) | prose has none |
| the name of an offered tool shortly after it, in its sentence, or alone before it | a mark alone may be mentioned |
| only white space after what closes a call: `>`, `]`, `}`, a bracket of `call:f(...)` | an explanation would continue |

Cost: linear in the last characters of the text, and only where they end in a closing sign and hold a tool's name.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import regex

from ..binding.bind import bind
from ..dialects import Dialect, select
from ..dialects.call_signs import call_marks
from ..dialects.dialect import with_tools
from ..dialects.write import write
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..types.calls import Issue, RawCall, Repair, Reply, ToolCall
from ..types.completion import UNCUT
from ..types.events import CallInReasoning, Event, ReasoningDelta, Repaired, TextDelta, ToolCallEnd, ToolCallStart
from . import call_start, prose
from .body_call import BareCall, BodyCall
from .scanner import ScanMode, Scanner, Token
from .states import BREAK, Place, ReplyState, table

_BLANK_END: Final = f" \t\r\n{BREAK}"
_NEAR: Final = 120  # characters between a mark and the name
_CLOSERS: Final = (">", "]", "}", ")", '}"', "}'")
# Words that introduce a call's name, and special tokens (words between bars), known or not.
_NAMED: Final = (
    r"<[\uff5c|\u2016]{1,2}\w{1,32}[\uff5c|\u2016]{1,2} ?(?=\w)|(?<![\w.])(?:function=|functions[._](?=\w)|call:(?=\w))"
    r"|(?m:^)(?:\*\*)?Action:(?=[ \t`\x22*]{0,4}[\w.\-]{1,128}[ \t`\x22*]{0,4}\n(?:\*\*)?Action Input:)"
    # What other clients ask for: elements of these names, objects with these keys, a name alone.
    r"|<(?:function_call|tool|tool_code|use_mcp_tool|action)(?=[\s>])|<[\uff5c|]?DSML(?=[\uff5c| ])"
    r"|(?m:^)\{\s{0,8}[\x22'](?:function_call|function_name|tool|tool_calls?|tool_name|action)[\x22']\s{0,4}:"
    r"|(?m:^)>>>(?=\w)|\A(?=[\w.\-]{1,128}\s{0,2}\{)"
)
# Any text of an input, and a name with its number before a closer that was left out.
_OTHER_END: Final = regex.compile(
    rf"\n(?:\*\*)?Action Input:[^\n]*[\s{BREAK}]*\Z|functions\.[\w.\-]{{1,128}}:\d{{1,4}}\s*{BREAK}[\s{BREAK}]*\Z"
)
_INERT: Final = regex.compile(r"&(?:lt|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")  # an escaped call that the model repeats
_SENTENCE: Final = regex.compile(r"[.!?。！？]\s|\n\s*\n")
_MESSAGE: Final = (
    "This is written like a call of {name!r}, in a form that cannot be read with certainty, so nothing ran. Write the call again."
)


@functools.lru_cache(maxsize=64)  # a conversation has the same tools in each reply
def _named(rows: tuple[Dialect, ...], tools: tuple[str, ...]) -> Mapping[str, Dialect]:
    return {row.name: with_tools(row, tools) for row in rows}


class Parser:
    """A streaming reader of tool calls in model text.

    Args:
        tools: the tools that were offered; if empty, every name counts as declared.
        dialect: a name of `DIALECTS`, `auto` for all, or a Dialect.
        reasoning_open: whether the prompt ended in an open `<think>`.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools.
    """

    def __init__(self, tools: Tools = (), *, dialect: str | Dialect = "auto", reasoning_open: bool = False) -> None:
        catalog = Catalog.of(tools)
        dialects = _named(select(dialect), catalog.names())
        self._scanner = Scanner(dialects.values())
        place = Place.REASONING if reasoning_open else Place.PROSE
        self._reply = ReplyState(catalog, dialects, self._scanner, place, depth=int(reasoning_open))
        self._length = 0
        self._closed = False

    @property
    def in_call(self) -> bool:
        """Whether the text so far ends inside a call, or in text that may still become one."""
        return self._reply.reader is not None

    def feed(self, chunk: str) -> list[Event]:
        """Read more text.

        Args:
            chunk: any piece of the reply.

        Returns:
            The events that are certain by now.

        Raises:
            UsageError: not a `str`, or the parser is closed.
        """
        if not isinstance(chunk, str):
            raise UsageError(f"Parser.feed takes str, got {type(chunk).__name__}")
        if self._closed:
            raise UsageError("this parser is closed; use a new one for each reply")
        self._length += len(chunk)
        return self._read(chunk)

    def close(self, finish_reason: str = "stop") -> list[Event]:
        """Read the end of the reply.

        Args:
            finish_reason: the server's; any other than `stop` and `tool_calls` means that the reply was cut.

        Returns:
            The last events.

        Raises:
            UsageError: the parser is closed already.
        """
        if self._closed:
            raise UsageError("this parser is closed; use a new one for each reply")
        reply, cut = self._reply, finish_reason not in UNCUT
        self._scanner.close()
        events = self._read()
        while reply.reader is not None:  # the tokens that it returns may open another call
            _end_call(reply, reply.reader.finish(self._length, cut=cut))
            events += self._read()
        if reply.place is Place.OPENING:
            call_start.release_at_end(reply)
        looks_into_thoughts = reply.place is Place.REASONING and reply.looks_into_thoughts
        if looks_into_thoughts and (name := call_meant("".join(reply.thoughts), reply.catalog)):
            reply.events.append(CallInReasoning(name=name, span=(self._length, self._length)))
        prose.end_in_sentence(reply)
        prose.release_left_over(reply, is_end=True)
        if reply.wrapper:
            reply.repair("unclosed-block", (self._length, self._length))
        self._closed = True
        events += self._read()
        if call := _unread_call(reply, self._length):
            events += [ToolCallStart(index=call.index, name=call.name, span=call.span), ToolCallEnd(raw=call, span=call.span)]
        return events

    def _read(self, chunk: str = "") -> list[Event]:
        reply, queue = self._reply, self._reply.queue
        self._scanner.feed(chunk)
        while True:
            reader = reply.reader
            mode = reader.mode if reader is not None else _MODES[reply.place]
            token = queue.popleft() if queue else self._scanner.next(mode)
            if token is None:
                break
            if reader is None:
                _outside_call(reply, token)
            elif (rest := reader.take(token)) is not None:
                _end_call(reply, rest)
        events = reply.events[: reply.doubt_from]
        del reply.events[: len(events)]  # keep the same list: readers of calls append to it
        reply.doubt_from = None if reply.doubt_from is None else 0
        return events


def call_meant(reasoning: str, tools: Tools) -> str:
    """Return the name of the last offered tool that reasoning calls, where calls do not count; "" if it calls none."""
    catalog = Catalog.of(tools)
    parser = Parser(catalog)
    parser._reply.looks_into_thoughts = False  # else nested thoughts would be read again and again
    events = [*parser.feed(reasoning[-prose.LAST :]), *parser.close()]
    names = [event.raw.name for event in events if isinstance(event, ToolCallEnd) and event.raw.complete]
    return next((name for name in reversed(names) if len(catalog) and catalog.meant_by(name)), "")


def _outside_call(reply: ReplyState, token: Token) -> None:
    kind, place = token.kind, reply.place
    if reply.doubt_from is not None:
        prose.decide_mention(reply, token)
    if reply.left_over and prose.wait_for_end(reply, token):
        return
    if reply.prose.fence and place in _OPEN_TO_REASONING and (kind in _MARKS or kind.startswith("reasoning")):
        kind = "text"
    elif place is Place.OPENING and kind != "ticks" and call_start.is_fence_line(reply.held):
        kind, token = "text", Token("text", token.text, token.start)  # what follows a fence on its line names a language
    (REPLY_TABLE.get((place, kind)) or REPLY_OTHERWISE[place])(reply, token)


def _end_call(reply: ReplyState, rest: list[Token]) -> None:
    reader, found = reply.reader, True
    if isinstance(reader, BodyCall):
        found = _settle_body(reply, reader)
    elif isinstance(reader, BareCall):
        found = _settle_bare(reply, reader)
        rest = reader.rest(found)
    elif isinstance(reply.events[-1], ToolCallEnd):
        prose.end_call(reply, len(reply.events) - 1)
    reply.leave_call(rest, found=found)


def _settle_body(reply: ReplyState, reader: BodyCall) -> bool:
    """Settle a body that has ended: now its names are known, and so is whether they are calls."""
    reply.plain_closers = reply.plain_closers or reader.fell_back
    calls, first = reader.calls(), len(reply.events)
    if reader.opener is None:
        if (reply.prose.fence or call_start.fence_of(reply.held)) and not reply.declares(calls[0].name):
            call_start.release_as_text(reply)
            for part in reader.tokens():
                prose.text_outside(reply, part)
            return False
        call_start.note_held(reply, reader.row)
        for kind, part in call_start.held_markup(reply.held):
            reply.markup(kind, part)
        reply.wrapper = "" if reader.closer or "block_close" not in reader.row.tags else reader.row.name
    reply.calls += len(calls)
    reply.events += reader.events(calls)
    prose.end_call(reply, first)
    return True


def _settle_bare(reply: ReplyState, reader: BareCall) -> bool:
    """Settle a call without any mark, now that its end and the text after it are known."""
    calls = reader.calls()
    if not calls:
        call_start.release_as_text(reply)
        reply.no_json_before = reader.end
        return False
    call_start.note_held(reply)
    for kind, part in call_start.held_markup(reply.held[:-1]):
        reply.markup(kind, part)
    reply.wrapper = call_start.wrapper_of(reply.held) or reply.wrapper
    reply.calls += len(calls)
    for tag in reader.before():
        reply.markup("block_open", tag)
    reply.events += reader.events(calls)
    for kind, tag in reader.after():
        reply.markup(kind, tag)
        if tag.text.strip(" \t,;").startswith(("]", "}")):
            reply.repair("json-extra-closer", tag.span)
    return True


def _call_in_block(reply: ReplyState, token: Token) -> None:
    known = not reply.prose.fence or reply.declares(token.attributes["name"])
    (call_start.begin_call if known else prose.text_in_block)(reply, token)


def _closer_in_block(reply: ReplyState, token: Token) -> None:
    (prose.text_in_block if reply.prose.fence and not reply.prose.after_call else prose.stray_tag)(reply, token)


def _ticks_in_block(reply: ReplyState, token: Token) -> None:
    """Read back-ticks between calls: they quote there, too."""
    count = len(token.text)
    if reply.prose.line_blank and count >= 3:
        if reply.prose.fence and count >= reply.prose.fence:
            prose.end_fence(reply, token)
            return
        reply.prose.fence = reply.prose.fence or count
    elif not reply.prose.fence:
        reply.place, reply.prose.code_ticks = Place.CODE, count
    prose.text_in_block(reply, token)


def _block_in_block(reply: ReplyState, token: Token) -> None:
    if token.dialect != reply.wrapper and call_start.opens_inner(reply, token, ""):
        call_start.hold(reply, token)
        return
    reply.markup("block_open", token)
    reply.repair("repeated-block", token.span)


def _end_block(reply: ReplyState, token: Token) -> None:
    reply.markup("block_close", token)
    reply.place, reply.wrapper = Place.PROSE, ""
    reply.prose.after_call, reply.prose.line_blank = True, True


# What the scanner looks for outside a call.
_MODES = {**dict.fromkeys(Place, ScanMode.PROSE), Place.CODE: ScanMode.CODE}
_MARKS = frozenset({"mark", "special", "text_open", "message_close"})
_OPEN_TO_REASONING = frozenset({Place.PROSE, Place.BLOCK})  # but not in a fence

# Place, token kinds -> the function that reads such a token there. Kinds are those of the scanner and of the dialects.
REPLY_TABLE: dict[tuple[Place, str], Callable[[ReplyState, Token], None]] = table(
    (Place.PROSE, "ticks", call_start.ticks),
    (Place.PROSE, "block_open call_open", call_start.hold),
    (Place.PROSE, "json_open lost_open", call_start.bare_call),
    (Place.PROSE, "reasoning_open", prose.reasoning_open),
    (Place.PROSE, "reasoning_close", prose.stray_tag),
    (Place.PROSE, "block_close call_close parameter_close turn_end", prose.stray),
    (Place.PROSE, "mark text_open message_close", prose.mark),
    (Place.PROSE, "special", prose.special),
    (Place.CODE, "ticks blank_line", prose.end_code),
    (Place.REASONING, "reasoning_open", prose.reasoning_nested),
    (Place.REASONING, "reasoning_close text_open message_close", prose.reasoning_close),
    (Place.OPENING, "text", call_start.text_after_opening),
    (Place.OPENING, "ticks", call_start.ticks_after_opening),
    (Place.OPENING, "block_open", call_start.block_after_opening),
    (Place.OPENING, "call_open", call_start.call_after_opening),
    (Place.OPENING, "json_open lost_open", call_start.bare_after_opening),
    (Place.OPENING, "parameter_open body_open name_end parameter_close list_close", call_start.body_after_opening),
    (Place.OPENING, "call_close message_close block_close", call_start.body_after_opening),
    (Place.BLOCK, "text", prose.text_in_block),
    (Place.BLOCK, "ticks", _ticks_in_block),
    (Place.BLOCK, "block_open", _block_in_block),
    (Place.BLOCK, "block_close", _end_block),
    (Place.BLOCK, "call_open", _call_in_block),
    (Place.BLOCK, "json_open lost_open", call_start.bare_call),
    (Place.BLOCK, "call_close parameter_close", _closer_in_block),
    (Place.BLOCK, "reasoning_open", prose.reasoning_open),
    (Place.BLOCK, "reasoning_close", prose.stray_tag),
    (Place.BLOCK, "turn_end", prose.stray),
    (Place.BLOCK, "mark text_open message_close", prose.mark),
    (Place.BLOCK, "special", prose.special),
)
# Where the table has no row, the token is text of its place.
REPLY_OTHERWISE: dict[Place, Callable[[ReplyState, Token], None]] = {
    Place.PROSE: prose.text,
    Place.CODE: prose.text,
    Place.REASONING: prose.reasoning_text,
    Place.OPENING: call_start.opening_is_text,
    Place.BLOCK: prose.text_in_block,
}


def _unread_call(reply: ReplyState, end: int) -> RawCall | None:
    said, offered = "".join(reply.prose.last)[-prose.LAST :], reply.catalog.names()
    body = said.rstrip(_BLANK_END)
    rows = reply.dialects.values()
    has_end = body.endswith(_CLOSERS) or _OTHER_END.search(said)
    if not has_end or _INERT.search(body) or not any(name in body for name in offered):
        return None
    names = "|".join(map(regex.escape, sorted(offered, key=len, reverse=True)))
    named, before = regex.compile(rf"(?<!\w)(?:{names})"), regex.compile(rf"(?m:^)(?:{names})(?=\s{{0,4}}\Z)")
    for mark in regex.finditer(f"{call_marks(rows, offered)}|{_NAMED}", body):
        name = before.search(body, max(0, mark.start() - _NEAR), mark.start())
        name = name or named.search(body, mark.start(), min(mark.end() + _NEAR, len(body)))
        if name is None or not (mark[0] or name.start() == mark.end()):
            continue
        is_called = mark[0] == "call:" or (body.startswith("(", name.end()) and name.start() - mark.end() < 4)
        if _SENTENCE.search(body, mark.end(), max(name.start(), mark.end())) or not (is_called or body[-1] != ")"):
            continue
        issue = Issue(code="unread-call", message=_MESSAGE.format(name=name[0]))
        marks = ((row.name, call_marks([row], offered)) for row in rows)
        having = (dialect for dialect, marks_of in marks if marks_of and regex.compile(marks_of).match(body, mark.start()))
        written = body[max(mark.start(), body.rfind(BREAK) + 1) :]
        dialect, span = next(having, "function_calls"), (end, end)
        return RawCall(index=reply.calls, name=name[0], dialect=dialect, text=written, span=span, issues=(issue,))
    return None


# -- whole texts -------------------------------------------------------------------------------------------------------
# The entry points of the core: text -> Reply, calls -> text.
#
# `parse` runs the parser and the binding, nothing more. `render` is its inverse: it parses its own output again and raises if
# names or arguments differ.


def parse(
    text: str, tools: Tools = (), *, dialect: str | Dialect = "auto", finish_reason: str = "stop", reasoning_open: bool = False
) -> Reply:
    """Read a model's whole reply.

    Args:
        text: what the model wrote.
        tools: the tools that were offered; without any, arguments stay the strings that the model wrote.
        dialect: a wire format, or `auto` for all.
        finish_reason: the server's; any other than `stop` and `tool_calls` means that the reply was cut.
        reasoning_open: whether the prompt ended in an open `<think>`.

    Returns:
        Visible text, reasoning, calls and repairs.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools; never because of the text.
    """
    catalog = Catalog.of(tools)
    parser = Parser(catalog, dialect=dialect, reasoning_open=reasoning_open)
    return reply_of([*parser.feed(text), *parser.close(finish_reason)], catalog, finish_reason=finish_reason)


def reply_of(events: Iterable[Event], tools: Tools = (), *, finish_reason: str = "stop") -> Reply:
    """Gather a parser's events into a Reply, and bind the calls that are not bound yet."""
    catalog = Catalog.of(tools)
    events = list(events)
    calls = tuple(event.call or bind(event.raw, catalog) for event in events if isinstance(event, ToolCallEnd))
    conversions = [repair for call in calls if isinstance(call, ToolCall) for repair in call.repairs[len(call.raw.repairs) :]]
    return Reply(
        text="".join(event.text for event in events if isinstance(event, TextDelta)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        calls=calls,
        repairs=(*(Repair(code=event.code, span=event.span) for event in events if isinstance(event, Repaired)), *conversions),
        finish_reason=finish_reason,
    )


def render(calls: Iterable[ToolCall | Mapping[str, Any]], tools: Tools = (), *, dialect: str | Dialect = "function_calls") -> str:
    """Write calls as a model should.

    Args:
        calls: ToolCalls, or `{"name": ..., "arguments": {...}}` as in MCP's `call`.
        tools: the tools that are called; their schemas decide which values need `type="json"`.
        dialect: the wire format.

    Returns:
        Text for which `parse(text, tools)` gives equal names and arguments.

    Raises:
        UsageError: the dialect cannot carry a call, for example a name with `<` in it.
    """
    chosen = select(dialect)[0]
    catalog = Catalog.of(tools)
    wanted = [
        (call.name, call.arguments) if isinstance(call, ToolCall) else (call["name"], dict(call.get("arguments") or {}))
        for call in calls
    ]
    text = write(wanted, catalog, chosen)
    reply = parse(text, catalog, dialect=dialect)
    got = [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)]
    if got != wanted or len(got) != len(reply.calls):
        reason = next((issue.message for call in reply.calls if not isinstance(call, ToolCall) for issue in call.issues), "")
        raise UsageError(f"these calls cannot be written so that they read back the same: {wanted!r:.200} {reason}".rstrip())
    return text
