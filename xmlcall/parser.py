"""Model text in pieces -> events. The one parser: whole text is `feed` and `close`.

Outside a call the table of `states.py` decides what is prose, reasoning, quotation or the opening of a call; inside one,
`CallReader` does. Decisions come from the characters to the left and the next token, so the events, coalesced, do not depend on
how the text was cut. No text raises. Time is linear; prose is held back only while it can still become a tag or the opening of a
call (a fence line, a wrapper, white space: see `opening.py`).

In a fence only calls of declared tools count (any tool when none are given); what else is quotation, `prose.py` says.
"""

from collections import deque

import regex

from .callreader import CallReader
from .catalog import Catalog, Tools
from .dialects import Dialect, select
from .errors import UsageError
from .events import Event, Markup, TextDelta
from .jsonbody import JsonReader
from .opening import Opening
from .prose import ProseReader
from .scanner import Mode, Scanner, Token
from .states import REPLY_OTHERWISE, REPLY_TABLE, ReplyState

__all__ = ["Parser"]

_UNCUT = frozenset({"stop", "tool_calls"})


_MODES = {ReplyState.CODE: Mode.CODE}


class Parser(ProseReader):
    """A streaming reader of tool calls in model text.

    Args:
        tools: what was offered; empty if unknown, then every name counts as declared.
        dialect: a name of `DIALECTS`, `auto` for all, or a Dialect.
        reasoning_open: the prompt ended in an open `<think>`.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools.
    """

    def __init__(self, tools: Tools = (), *, dialect: str | Dialect = "auto", reasoning_open: bool = False) -> None:
        super().__init__(reasoning_open=reasoning_open)
        self._catalog = Catalog.of(tools)
        self._dialects = {chosen.name: chosen for chosen in select(dialect)}
        self._scanner = Scanner(self._dialects.values())
        self._queue: deque[Token] = deque()
        self._opening: Opening  # set in state OPENING
        self._reader: CallReader | JsonReader | None = None
        self._plain_closers = False  # closers in JSON strings count
        self._wrapper = ""  # dialect of the open wrapper
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
        self._scanner.close()
        events = self._drain()
        while self._reader is not None:  # what it gives back may open another call
            self._end_call(self._reader.finish(self._length, cut=finish_reason not in _UNCUT))
            events += self._drain()
        if self._state is ReplyState.OPENING:
            self._release_as_text()
        if self._state is ReplyState.BLOCK:
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
        if self._fence and self._state is ReplyState.PROSE and token.kind.startswith("reasoning"):
            self._text(token)
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

    # The opening of calls: held until a call's name is certain.

    def _hold(self, token: Token) -> None:
        self._opening = Opening(token)
        self._state = ReplyState.OPENING
        if token.kind == "call_open" and token.text.endswith("/>"):
            self._call_is_certain()

    def _text_after_opening(self, token: Token) -> None:
        blank = len(token.text) - len(token.text.lstrip())
        if self._opening.begins_json(token) and (dialect := self._json_dialect()):
            if blank:
                self._opening.held.append(Token("text", token.text[:blank], token.start))
            self._begin_json(Token("text", token.text[blank:], token.start + blank), dialect)
        elif not self._opening.accept(token, name=self._name_dialect() is not None):
            self._opening_is_text(token)

    def _ticks_after_opening(self, token: Token) -> None:
        """Back-ticks on a fence's own line: it was inline code (CommonMark 0.31, 4.5)."""
        inline, count = self._opening.on_fence_line, self._opening.fence
        self._opening_is_text(token)
        if inline:
            self._fence, self._state, self._code_ticks = 0, ReplyState.CODE, count

    def _block_after_opening(self, token: Token) -> None:
        if self._opening.holds("block_open", "call_open"):
            self._opening_is_text(token)
        else:
            self._opening.held.append(token)

    def _call_after_opening(self, token: Token) -> None:
        if self._opening.holds("call_open"):
            self._opening_is_text(token)
            return
        self._opening.held.append(token)
        if token.text.endswith("/>") or self._opening.holds("block_open"):
            self._call_is_certain()

    def _body_after_opening(self, token: Token) -> None:
        """A call without wrapper is certain once its body begins, or ends if it has none."""
        named = self._name_dialect()
        if named and self._opening.after_block().strip() and self._is_named_call(token, named):
            self._opening.name_call(named.name)
            token = Token("call_close", token.text, token.start) if token.kind == "block_close" else token
        if not self._opening.holds("call_open") or not self._belongs(token, self._opening.call()):
            self._opening_is_text(token)
            return
        self._queue.appendleft(token)
        self._call_is_certain()

    def _belongs(self, token: Token, call: Token) -> bool:
        """Whether a tag, which may be the same in several dialects, is one of the call's."""
        return regex.fullmatch(self._dialects[call.dialect].tags.get(token.kind, ""), token.text) is not None

    def _name_dialect(self) -> Dialect | None:
        """Return the dialect in which a tool's name follows the wrapper's opener that is held."""
        opener = next((part for part in self._opening.held if part.kind == "block_open"), None)
        if opener is None or self._opening.holds("call_open"):
            return None
        rows = (dialect for dialect in self._dialects.values() if dialect.name_after)
        return next((dialect for dialect in rows if regex.fullmatch(dialect.name_after, opener.text)), None)

    def _is_named_call(self, token: Token, dialect: Dialect) -> bool:
        """A key makes it a call; without any, only a declared name does."""
        if token.kind in ("block_close", "call_close"):
            return self._opening.after_block().strip() in self._catalog
        return regex.fullmatch(dialect.tags["parameter_open"], token.text) is not None

    def _call_is_certain(self) -> None:
        call, fence = self._opening.call(), self._opening.fence
        if (self._fence or fence) and not self._declared(call.attributes["name"]):
            self._release_as_text()
            return
        self._note_fence()
        for kind, part in self._opening.before_call():
            self._markup(kind, part)
        self._wrapper = self._opening.wrapper()
        self._queue.extendleft(reversed(self._opening.after_call()))
        self._begin_call(call)

    def _declared(self, name: str) -> bool:
        return not len(self._catalog) or name in self._catalog

    def _opening_is_text(self, token: Token) -> None:
        self._release_as_text()
        self._queue.appendleft(token)

    def _release_as_text(self) -> None:
        self._state = ReplyState.PROSE
        self._fence = self._opening.fence or self._fence
        for part in self._opening.held:
            self._text(part)

    # Calls.

    def _begin_call(self, token: Token) -> None:
        name = token.attributes["name"]
        dialect = self._dialects[token.dialect]
        if not self._wrapper and "block_open" in dialect.written:
            self._repair("missing-block", token.span)
        if self._wrapper and self._dialects[self._wrapper].tags.get("call_open", "") == dialect.tags.get("call_open"):
            dialect = self._dialects[self._wrapper]
        self._scanner.only(*{dialect.name: True, **({self._wrapper: True} if self._wrapper else {})})
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

    def _json_dialect(self) -> Dialect | None:
        """Return the JSON dialect whose wrapper is held."""
        opener = next(part for part in self._opening.held if part.kind == "block_open")
        rows = (dialect for dialect in self._dialects.values() if dialect.is_json)
        return next((dialect for dialect in rows if regex.fullmatch(dialect.tags["block_open"], opener.text)), None)

    def _begin_json(self, token: Token, dialect: Dialect) -> None:
        self._scanner.only(dialect.name)
        self._reader = JsonReader(index=self._calls, held=self._opening.held, dialect=dialect, plain_closers=self._plain_closers)
        self._state = ReplyState.CALL
        self._call_token(token)

    def _settle_json(self, reader: JsonReader) -> None:
        """A call as JSON has ended: now its name is known, and with it whether it is one."""
        self._plain_closers = self._plain_closers or reader.fell_back
        raw, fence = reader.raw_call(), self._opening.fence
        if (self._fence or fence) and not self._declared(raw.name):
            self._release_as_text()
            for part in reader.tokens():
                self._text(part)
            return
        self._note_fence()
        self._calls += 1
        self._events += reader.events(raw, self._opening.parts)
        self._wrapper = "" if reader.closer else raw.dialect

    def _note_fence(self) -> None:
        if self._opening.fence:
            self._fence, self._fence_dropped = self._opening.fence, True
            self._repair("code-fence", self._opening.held[0].span)

    def _end_call(self, rest: list[Token]) -> None:
        if isinstance(self._reader, JsonReader):
            self._settle_json(self._reader)
        self._reader = None
        self._queue.extendleft(reversed(rest))
        self._scanner.only()
        self._state = ReplyState.BLOCK if self._wrapper else ReplyState.PROSE
        self._after_call, self._line_blank = True, True

    def _text_in_block(self, token: Token) -> None:
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
