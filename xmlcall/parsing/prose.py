"""The part of a reply that holds no calls: text for the person, inline code, fences, reasoning, tags left over.

What is quotation is decided from the left alone: inline code ends at as many back-ticks as opened it or at a blank line, a fence
at a line of at least as many (CommonMark 0.31, 4.5 and 6.1). Reasoning nests, and what stands in it is never a call.
"""

from abc import ABC, abstractmethod

from ..types.events import Event, Markup, ReasoningDelta, Repaired, TextDelta
from .scanner import Token
from .states import ReplyState

__all__ = ["ProseReader"]

_BYTE_ORDER_MARK = "\ufeff"


class ProseReader(ABC):
    """The state of the prose, and the methods of its rows in `REPLY_TABLE`; the Parser adds those of calls.

    Args:
        reasoning_open: the prompt ended in an open `<think>`.
    """

    def __init__(self, *, reasoning_open: bool) -> None:
        self._events: list[Event] = []
        self._state = ReplyState.REASONING if reasoning_open else ReplyState.PROSE
        self._depth = 1 if reasoning_open else 0  # of reasoning
        self._after_call = False  # only white space since a call or its wrapper ended
        self._line_blank = True  # only white space since the last newline
        self._code_ticks = 0
        self._fence = 0  # back-ticks of the open fence
        self._fence_dropped = False  # the open fence is around calls and left out of the text

    def _text(self, token: Token) -> None:
        if token.start == 0 and token.text.startswith(_BYTE_ORDER_MARK):
            self._events.append(Markup(kind="space", span=(0, 1)))
            self._repair("byte-order-mark", (0, 1))
            token = Token("text", token.text[1:], 1)
            if not token.text:
                return
        self._events.append(TextDelta(text=token.text, span=token.span))
        self._note(token.text)

    def _note(self, text: str) -> None:
        """Keep track of where a line begins."""
        _, newline, last = text.rpartition("\n")
        self._line_blank = not last.strip() and (bool(newline) or self._line_blank)
        self._after_call = self._after_call and not text.strip()

    @abstractmethod
    def _outside(self) -> ReplyState:
        """Return the state after quotation and reasoning: where it began."""

    def _end_fence(self, token: Token) -> None:
        if self._fence_dropped:
            self._markup("fence", token)
        else:
            self._text(token)
        self._fence, self._fence_dropped = 0, False

    def _end_code(self, token: Token) -> None:
        if len(token.text) == self._code_ticks:
            self._state = self._outside()
        self._text(token)

    def _end_code_at_blank_line(self, token: Token) -> None:
        self._state = self._outside()
        self._text(token)

    def _stray_tag(self, token: Token) -> None:
        self._markup("stray", token)
        self._repair("stray-tag", token.span)

    def _stray(self, token: Token) -> None:
        """A closer without its opener: a left-over after a call, text anywhere else."""
        if not self._after_call:
            self._text(token)
        else:
            self._stray_tag(token)

    # Reasoning.

    def _reasoning_open(self, token: Token) -> None:
        self._markup("reasoning", token)
        self._state, self._depth = ReplyState.REASONING, 1

    def _reasoning_nested(self, token: Token) -> None:
        self._depth += 1
        self._reasoning_text(token)

    def _reasoning_close(self, token: Token) -> None:
        self._depth -= 1
        if self._depth:
            self._reasoning_text(token)
            return
        self._markup("reasoning", token)
        self._state = self._outside()

    def _reasoning_text(self, token: Token) -> None:
        self._events.append(ReasoningDelta(text=token.text, span=token.span))

    def _emit(self, event: Event) -> None:
        self._events.append(event)

    def _markup(self, kind: str, token: Token) -> None:
        self._events.append(Markup(kind=kind, span=token.span))

    def _repair(self, code: str, span: tuple[int, int]) -> None:
        self._events.append(Repaired(code=code, span=span))
