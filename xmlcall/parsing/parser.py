"""Model text in pieces -> events. The one parser: whole text is `feed` and `close`.

Outside a call the table of `states.py` decides what is prose, reasoning, quotation or the opening of a call; inside one,
`CallReader` does. Decisions come from the characters to the left and the next token, so the events, coalesced, do not depend on
how the text was cut. No text raises. Time is linear; prose is held back only while it can still become a tag or the opening of a
call (a fence line, a wrapper, white space: see `held_opening.py`).

In a fence only calls of declared tools count (any tool when none are given); what else is quotation, `prose.py` says.
"""

from ..dialects import Dialect, select
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..types.events import Event, Markup, TextDelta
from .bare_json import BareJsonReader
from .call_start import OpeningReader
from .json_call import events_of
from .scanner import Mode, Token
from .states import REPLY_OTHERWISE, REPLY_TABLE, ReplyState
from .tag_call import CallReader
from .wrapped_json import JsonReader

__all__ = ["Parser"]

_UNCUT = frozenset({"stop", "tool_calls"})
_PROSE = frozenset({ReplyState.PROSE, ReplyState.BLOCK})
_MODES = {ReplyState.CODE: Mode.CODE}


class Parser(OpeningReader):
    """A streaming reader of tool calls in model text.

    Args:
        tools: what was offered; empty if unknown, then every name counts as declared.
        dialect: a name of `DIALECTS`, `auto` for all, or a Dialect.
        reasoning_open: the prompt ended in an open `<think>`.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools.
    """

    def __init__(self, tools: Tools = (), *, dialect: str | Dialect = "auto", reasoning_open: bool = False) -> None:
        super().__init__(Catalog.of(tools), select(dialect), reasoning_open=reasoning_open)
        self._reader: CallReader | JsonReader | BareJsonReader | None = None
        self._plain_closers = False  # closers in JSON strings count
        self._block_text = False  # text stands between the calls of this wrapper
        self._calls = 0
        self._length = 0
        self._closed = False

    def feed(self, chunk: str) -> list[Event]:
        """Read more text.

        Args:
            chunk: any piece of the reply.

        Returns:
            What is certain by now.

        Raises:
            UsageError: not a `str`, or the parser is closed.
        """
        if not isinstance(chunk, str):
            raise UsageError(f"Parser.feed takes str, got {type(chunk).__name__}")
        if self._closed:
            raise UsageError("this parser is closed; use a new one for each reply")
        self._length += len(chunk)
        self._scanner.feed(chunk)
        return self._drain()

    def close(self, finish_reason: str = "stop") -> list[Event]:
        """Read the end of the reply.

        Args:
            finish_reason: the server's; other than `stop` and `tool_calls` counts as cut.

        Returns:
            The last events.

        Raises:
            UsageError: the parser is closed already.
        """
        if self._closed:
            raise UsageError("this parser is closed; use a new one for each reply")
        cut = finish_reason not in _UNCUT
        self._scanner.close()
        events = self._drain()
        while self._reader is not None:  # what it gives back may open another call
            self._end_call(self._reader.finish(self._length, cut=cut))
            events += self._drain()
        if self._state is ReplyState.OPENING:
            self._release_at_end()
        if self._wrapper:
            self._repair("unclosed-block", (self._length, self._length))
        self._closed = True
        return events + self._take_events()

    def _drain(self) -> list[Event]:
        while (token := self._next()) is not None:
            self._step(token)
        return self._take_events()

    def _next(self) -> Token | None:
        if self._queue:
            return self._queue.popleft()
        mode = self._reader.mode if self._reader else _MODES.get(self._state, Mode.PROSE)
        return self._scanner.next(mode)

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _step(self, token: Token) -> None:
        if self._reader is not None:
            self._call_token(token)
            return
        if self._fence and self._state in _PROSE and token.kind.startswith("reasoning"):
            self._plain(token)
            return
        if self._state is ReplyState.OPENING and token.kind != "ticks" and self._opening.on_fence_line:
            token = Token("text", token.text, token.start)  # what follows a fence on its line names a language
        method = REPLY_TABLE.get((self._state, token.kind)) or REPLY_OTHERWISE[self._state]
        getattr(self, method)(token)

    def _ticks(self, token: Token) -> None:
        count = len(token.text)
        if not (self._line_blank and count >= 3):
            if not self._fence:
                self._state, self._code_ticks = ReplyState.CODE, count
            self._text(token)
        elif self._fence and count >= self._fence:
            self._end_fence(token)
        elif self._fence:
            self._text(token)
        else:
            self._hold(token)

    def _begin_call(self, token: Token) -> None:
        name = token.attributes["name"]
        dialect = self._dialects[token.dialect]
        if not self._wrapper and "block_open" in dialect.written:
            self._repair("missing-block", token.span)
        if self._wrapper and self._dialects[self._wrapper].tags.get("call_open", "") == dialect.tags.get("call_open"):
            dialect = self._dialects[self._wrapper]
        if dialect.tool_elements and self._wrapper:
            self._repair("tool-element", token.span)
        names = {dialect.name: True, **({self._wrapper: True} if self._wrapper else {})}
        self._scanner.only(*names, elements=self._elements(token))
        self._reader = CallReader(
            index=self._calls,
            opener=token,
            dialect=dialect,
            declared=self._catalog.parameters(name),
            wrapped=bool(self._wrapper),
            emit=self._emit,
        )
        self._calls += 1
        self._state = ReplyState.CALL
        self._block_text = False
        if self._reader.self_closing():
            self._end_call([])

    def _call_token(self, token: Token) -> None:
        assert self._reader is not None
        rest = self._reader.take(token)
        if rest is not None:
            self._end_call(rest)

    def _begin_json(self, token: Token, dialect: Dialect) -> None:
        self._scanner.only(dialect.name)
        self._reader = JsonReader(index=self._calls, dialect=dialect, plain_closers=self._plain_closers)
        self._state = ReplyState.CALL
        self._call_token(token)

    def _begin_bare(self, token: Token) -> None:
        self._scanner.only()
        self._reader = BareJsonReader(
            index=self._calls,
            opener=token,
            dialect=self._dialects[token.dialect],
            declared=self._declared,
            unread=self._scanner.unread,
        )
        self._state = ReplyState.CALL

    def _settle_json(self, reader: JsonReader) -> bool:
        """A call as JSON in a wrapper has ended: now its name is known, and with it whether it is one."""
        self._plain_closers = self._plain_closers or reader.fell_back
        calls = reader.calls()
        if (self._fence or self._opening.fence) and not self._declared(calls[0].name):
            self._release_as_text()
            for part in reader.tokens():
                self._text(part)
            return False
        self._note_fence()
        for kind, part in self._opening.parts():
            self._markup(kind, part)
        self._calls += len(calls)
        self._events += events_of(calls)
        for part in reader.space:
            self._markup("space", part)
        if any(part.text.strip() for part in reader.space):
            self._repair("json-extra-closer", (reader.space[0].start, reader.space[-1].end))
        if reader.closer is not None:
            self._markup("block_close", reader.closer)
        self._wrapper = "" if reader.closer else calls[0].dialect
        return True

    def _settle_bare(self, reader: BareJsonReader) -> bool:
        """JSON alone has ended, and what follows is known, too."""
        calls = reader.calls()
        if not calls:
            self._release_as_text()
            self._no_json_before = reader.end
            return False
        self._note_fence()
        for kind, part in self._opening.parts(-1):
            self._markup(kind, part)
        self._wrapper = self._opening.wrapper() or self._wrapper
        self._calls += len(calls)
        for tag in reader.before():
            self._markup("block_open", tag)
        self._events += events_of(calls)
        for kind, tag in reader.after():
            self._markup(kind, tag)
            if tag.text.strip(" \t,;").startswith(("]", "}")):
                self._repair("json-extra-closer", tag.span)
        return True

    def _end_call(self, rest: list[Token]) -> None:
        reader, self._reader = self._reader, None
        found = True
        if isinstance(reader, JsonReader):
            found = self._settle_json(reader)
        elif isinstance(reader, BareJsonReader):
            found = self._settle_bare(reader)
            rest = reader.rest(found)
        self._scanner.only()
        self._scanner.unread("".join(token.text for token in (*rest, *self._queue)))  # to be read as prose, not as a value
        self._queue.clear()
        self._state = self._outside()
        if found:
            self._after_call, self._line_blank = True, True

    def _call_in_block(self, token: Token) -> None:
        if self._fence and not self._declared(token.attributes["name"]):
            self._text_in_block(token)
        else:
            self._begin_call(token)

    def _closer_in_block(self, token: Token) -> None:
        (self._text_in_block if self._fence and not self._after_call else self._stray_tag)(token)

    def _ticks_in_block(self, token: Token) -> None:
        """Quotation between calls is quotation, too."""
        count = len(token.text)
        if self._line_blank and count >= 3:
            if self._fence and count >= self._fence:
                self._end_fence(token)
                return
            self._fence = self._fence or count
        elif not self._fence:
            self._state, self._code_ticks = ReplyState.CODE, count
        self._text_in_block(token)

    def _text_in_block(self, token: Token) -> None:
        self._note(token.text)
        blank = 0 if self._block_text else len(token.text) - len(token.text.lstrip())
        middle = token.start + blank
        if blank:
            self._events.append(Markup(kind="space", span=(token.start, middle)))
        if blank == len(token.text):
            return
        if not self._block_text:
            self._block_text = True
            self._repair("text-in-block", (middle, middle))
        self._events.append(TextDelta(text=token.text[blank:], span=(middle, token.end)))

    def _repeated_block(self, token: Token) -> None:
        self._markup("block_open", token)
        self._repair("repeated-block", token.span)

    def _end_block(self, token: Token) -> None:
        self._markup("block_close", token)
        self._state, self._wrapper = ReplyState.PROSE, ""
        self._after_call, self._line_blank = True, True
