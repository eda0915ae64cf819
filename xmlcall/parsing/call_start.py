"""What may be the opening of a call, from its first token until the call is certain or the text is text.

A call is certain when a tag of its body follows its opener, or a wrapper stands before it; a call as JSON is certain when it has
ended, and which reader reads it is decided here. In a fence only calls of declared tools count (any tool when none are given). A
name counts as declared if it means one tool: `files.read_file`, as some clients have it written in a fence, is `read_file`.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable

import regex

from ..dialects import Dialect, with_tools
from ..tools.catalog import Catalog
from .held_opening import Opening
from .json_call import name_in
from .prose import ProseReader
from .scanner import Scanner, Token
from .states import ReplyState

__all__ = ["OpeningReader"]


class OpeningReader(ProseReader):
    """The methods of the state OPENING in `REPLY_TABLE`.

    Args:
        catalog: the tools that were offered.
        dialects: the formats that are read.
        reasoning_open: the prompt ended in an open `<think>`.
    """

    def __init__(self, catalog: Catalog, dialects: tuple[Dialect, ...], *, reasoning_open: bool) -> None:
        super().__init__(reasoning_open=reasoning_open)
        self._catalog = catalog
        self._dialects = {dialect.name: with_tools(dialect, catalog.names()) for dialect in dialects}
        self._scanner = Scanner(self._dialects.values())
        self._queue: deque[Token] = deque()
        self._opening: Opening  # set in state OPENING and while a call as JSON is read
        self._wrapper = ""  # dialect of the open wrapper
        self._no_json_before = 0  # JSON that starts before this offset was read once and is text

    def _hold(self, token: Token) -> None:
        self._opening = Opening(token)
        self._state = ReplyState.OPENING
        if token.kind == "call_open":
            self._await_body(token)

    def _await_body(self, call: Token) -> None:
        """A call without wrapper is certain once its body begins, or ends if it has none."""
        if call.text.endswith("/>") or self._opening.holds("block_open"):
            self._call_is_certain()
        else:
            self._scanner.only(*self._dialects, elements=self._elements(call))

    def _elements(self, call: Token) -> frozenset[str]:
        """Return the parameters that may be elements of their names in a call: the declared ones."""
        dialect = self._dialects[call.dialect]
        fixed = dialect.json_body or dialect.entities
        return frozenset() if fixed else self._catalog.parameters(call.attributes["name"]) or frozenset()

    def _text_after_opening(self, token: Token) -> None:
        blank = len(token.text) - len(token.text.lstrip())
        if self._opening.begins_json(token) and (dialect := self._json_dialect()):
            if blank:
                self._opening.held.append(Token("text", token.text[:blank], token.start))
            self._begin_json(Token("text", token.text[blank:], token.start + blank), dialect)
        elif self._is_body(token):
            self._queue.appendleft(token)
            self._call_is_certain()
        elif (named := self._name_dialect()) and self._opening.takes_name_line(token, self._declared):
            self._queue.appendleft(self._opening.name_call(named.name, token))
            self._call_is_certain()
        elif not self._opening.accept(token, name=named is not None):
            self._opening_is_text(token)

    def _is_body(self, token: Token) -> bool:
        """Say whether a JSON object with the arguments begins after a call's opener."""
        if not self._opening.holds("call_open") or not self._opening.begins_object(token):
            return False
        call = self._opening.call()
        return not self._dialects[call.dialect].parameter_elements and self._declared(call.attributes["name"])

    def _json_after_opening(self, token: Token) -> None:
        json = Token("text", token.text, token.start)
        if not self._opening.holds("block_open", "call_open"):
            self._bare_json(token)
        elif self._opening.holds("call_open") or self._opening.after_block().strip():
            self._text_after_opening(json)
        elif dialect := self._json_dialect():
            self._begin_json(json, dialect)
        else:
            self._bare_json(token)

    def _bare_json(self, token: Token) -> None:
        """Begin a call as JSON alone, if it stands at the start of a line, or after a call, and its name is declared."""
        name = name_in(token.text)
        opening = self._state is ReplyState.OPENING
        starts = opening or self._line_blank or self._after_call
        if not starts or token.start < self._no_json_before or (name and not self._declared(name)):
            self._scanner.unread(token.text[1:])
            bracket = Token("text", token.text[0], token.start)
            (self._opening_is_text if opening else self._plain)(bracket)
            return
        if opening:
            self._opening.held.append(token)
        else:
            self._opening = Opening(token)
        self._begin_bare(token)

    def _outside(self) -> ReplyState:
        return ReplyState.BLOCK if self._wrapper else ReplyState.PROSE

    def _plain(self, token: Token) -> None:
        (self._text_in_block if self._state is ReplyState.BLOCK else self._text)(token)

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
        self._await_body(token)

    def _body_after_opening(self, token: Token) -> None:
        named = self._name_dialect()
        if named and self._opening.name() and self._is_named_call(token, named):
            self._opening.name_call(named.name)
            token = Token("call_close", token.text, token.start, pair="call") if token.kind == "block_close" else token
        if not self._opening.holds("call_open") or not self._belongs(token, self._opening.call()):
            self._opening_is_text(token)
            return
        self._queue.appendleft(token)
        self._call_is_certain()

    def _belongs(self, token: Token, call: Token) -> bool:
        """Whether a tag, which may be the same in several dialects, is one of the call's."""
        if " " in token.pair:
            return token.kind == "parameter_open" or token.pair == call.pair
        return regex.fullmatch(self._dialects[call.dialect].tags.get(token.kind, ""), token.text) is not None

    def _name_dialect(self) -> Dialect | None:
        """Return the dialect in which a tool's name follows the wrapper's opener that is held."""
        rows = (dialect for dialect in self._dialects.values() if dialect.name_after)
        return None if self._opening.holds("call_open") else self._held_by(rows, "name_after")

    def _json_dialect(self) -> Dialect | None:
        """Return the JSON dialect whose wrapper is held."""
        rows = (dialect for dialect in self._dialects.values() if dialect.is_json)
        return self._held_by(rows, "block_open")

    def _held_by(self, rows: Iterable[Dialect], kind: str) -> Dialect | None:
        opener = next((part.text for part in self._opening.held if part.kind == "block_open"), "")
        for dialect in rows:
            pattern = dialect.name_after if kind == "name_after" else dialect.tags.get(kind, "")
            if opener and regex.fullmatch(pattern, opener):
                return dialect
        return None

    def _is_named_call(self, token: Token, dialect: Dialect) -> bool:
        """A key makes it a call; without any, only a declared name does."""
        if token.kind in ("block_close", "call_close"):
            return self._declared(self._opening.name())
        return regex.fullmatch(dialect.tags.get(token.kind, ""), token.text) is not None

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

    def _note_fence(self) -> None:
        if self._opening.fence:
            self._fence, self._fence_dropped = self._opening.fence, True
            self._repair("code-fence", self._opening.held[0].span)

    def _declared(self, name: str) -> bool:
        """Say whether a name means exactly one of the tools, in whatever spelling; any name does when none are given."""
        return not len(self._catalog) or self._catalog.meant_by(name) is not None

    def _opening_is_text(self, token: Token) -> None:
        self._release_as_text()
        self._queue.appendleft(token)

    def _release_as_text(self) -> None:
        self._state = ReplyState.PROSE
        self._fence = self._opening.fence or self._fence
        self._scanner.only()
        for part in self._opening.held:
            self._text(part)

    def _release_at_end(self) -> None:
        """A wrapper at the very end of the reply is a left-over, not text for the person."""
        last = max((place for place, part in enumerate(self._opening.held) if part.text.strip()), default=0)
        self._state = ReplyState.PROSE
        for place, part in enumerate(self._opening.held):
            if place == last and part.kind == "block_open":
                self._stray_tag(part)
            else:
                self._text(part)

    # What the Parser does with a call.

    @abstractmethod
    def _begin_call(self, token: Token) -> None:
        """Begin a call as tags."""

    @abstractmethod
    def _begin_json(self, token: Token, dialect: Dialect) -> None:
        """Begin a call as JSON in a wrapper."""

    @abstractmethod
    def _begin_bare(self, token: Token) -> None:
        """Begin what may be a call as JSON alone."""

    @abstractmethod
    def _text_in_block(self, token: Token) -> None:
        """Read text between the calls of a wrapper."""
