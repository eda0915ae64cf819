"""One call written in tags: the tokens after its opening tag -> events and, at its end, a RawCall.

`CALL_TABLE` selects the function that reads a token. The functions for values are in `value_end.py`; those for what is between
parameters and at the call's end are here. Between parameters only white space, their tags, or one JSON object with all arguments
may occur; anything else is dropped and reported as an issue.
"""

from collections.abc import Callable

from ..types.events import Markup
from . import value_end
from .call_builder import CallDraft
from .scanner import ScanMode, Token
from .states import CallPlace, CallState, table


class TagCall:
    """Reads one call."""

    def __init__(self, draft: CallDraft, *, wrapped: bool) -> None:
        self.mode = ScanMode.VALUE
        self.call = CallState(draft, wrapped)

    def take(self, token: Token) -> list[Token] | None:
        """Read a token; return None while the call continues, else the tokens after the call, which are still to be read."""
        call = self.call
        call.source.append(token.text)
        call.queue.append(token)
        while call.queue and not call.done:
            each = call.queue.popleft()
            if call.place in _WAITING and each.kind == "text" and not each.text.strip():
                call.pending.append(each)  # white space waits together with the tokens before it
            else:
                (CALL_TABLE.get((call.place, each.kind)) or CALL_OTHERWISE[call.place])(call, each)
        if call.done:
            return list(call.queue)
        call.unclosed = None
        self.mode = ScanMode.CDATA if call.place is CallPlace.CDATA else ScanMode.VALUE
        return None

    def finish(self, offset: int, *, cut: bool) -> list[Token]:
        """End the call at the end of the reply; return the tokens that are still to be read."""
        self.call.cut = cut
        rest = self.take(Token("end", "", offset)) or []
        return [token for token in rest if token.kind != "end"]


def self_closing(reader: TagCall) -> bool:
    """End a call at once if its opening tag ends in `/>`; return whether it has ended."""
    opener = reader.call.draft.opener
    if opener.text.endswith("/>"):
        _finish(reader.call, opener.end, opener.end)
    return reader.call.done


# Between parameters.


def _between(call: CallState, token: Token) -> None:
    blank = 0 if call.dropped.open else len(token.text) - len(token.text.lstrip())
    middle = token.start + blank
    if blank:
        call.draft.emit(Markup(kind="space", span=(token.start, middle)))
    if token.text.startswith("{", blank) and not call.dropped.open and not call.draft.given:
        value_end.open_body(call, Token("body_open", "", middle))
        value_end.text(call, Token("text", token.text[blank:], middle))
    elif middle < token.end:
        call.dropped.open = True
        call.dropped.texts.append(token.text[blank:])
        call.draft.emit(Markup(kind="dropped", span=(middle, token.end)))


def _stray(call: CallState, token: Token) -> None:
    call.draft.emit(Markup(kind="stray", span=token.span))
    call.draft.repair("stray-tag", token.span)


def _list_close(call: CallState, token: Token) -> None:
    call.draft.emit(Markup(kind="list_close", span=token.span))


def _repeated_block(call: CallState, token: Token) -> None:
    call.draft.emit(Markup(kind="block_open", span=token.span))
    call.draft.repair("repeated-block", token.span)


# Ends.


def _truncate(call: CallState, token: Token) -> None:
    """End a call whose reply ends in a value; a body may still be complete."""
    value = call.value
    whole = not call.pending and not call.cut
    for held in call.pending:
        value.add(held)
    call.pending = []
    if not value.is_body:
        value_end.store(call)
        call.draft.truncated(f"the value of {value.name!r} has no end")
    else:
        body = value.close()
        if whole and call.draft.keep_body(body, closed=False):
            call.draft.repair("unclosed-call", token.span)
        else:
            call.draft.truncated("the arguments have no end")
    _finish(call, token.start, token.start)


def _end_here(call: CallState, token: Token) -> None:
    if token.pair != call.draft.opener.pair:
        call.draft.repair("wrong-closer", token.span)
    _finish(call, token.start, token.end)


def _end_unclosed(call: CallState, token: Token) -> None:
    if call.draft.given and not (call.cut and token.kind == "end"):
        call.draft.repair("unclosed-call", (token.start, token.start))
    else:
        call.draft.truncated("the call has no end")
    if token.kind != "end":
        call.queue.appendleft(token)
    _finish(call, token.start, token.start)


def _finish(call: CallState, start: int, end: int) -> None:
    call.draft.end(call.source, "".join(call.dropped.texts).strip(), (start, end))
    call.done = True


_WAITING = frozenset({CallPlace.CLOSER, CallPlace.WRONG_CLOSER, CallPlace.CALL_CLOSE, CallPlace.BLOCK_CLOSE})

# Place, token kinds -> the function that reads such a token there. Kinds are those of the scanner and the dialects, and `end`.
CALL_TABLE: dict[tuple[CallPlace, str], Callable[[CallState, Token], None]] = table(
    (CallPlace.CALL, "text", _between),
    (CallPlace.CALL, "parameter_open", value_end.open_value),
    (CallPlace.CALL, "body_open", value_end.open_body),
    (CallPlace.CALL, "parameter_close", _stray),
    (CallPlace.CALL, "list_close name_end", _list_close),
    (CallPlace.CALL, "call_close", _end_here),
    (CallPlace.CALL, "block_open", _repeated_block),
    (CallPlace.CALL, "call_open block_close end", _end_unclosed),
    (CallPlace.VALUE, "parameter_open", value_end.opener_in_value),
    (CallPlace.VALUE, "parameter_close", value_end.closer_in_value),
    (CallPlace.VALUE, "call_open block_open", value_end.count),
    (CallPlace.VALUE, "call_close", value_end.call_close_in_value),
    (CallPlace.VALUE, "block_close", value_end.block_close_in_value),
    (CallPlace.VALUE, "cdata_open", value_end.cdata_in_value),
    (CallPlace.VALUE, "list_close other_tag", value_end.other_tag_in_value),
    (CallPlace.VALUE, "end", _truncate),
    (CallPlace.CDATA, "cdata_close", value_end.end_cdata),
    (CallPlace.CDATA, "end", _truncate),
    (CallPlace.CDATA_END, "text", value_end.after_cdata),
    (CallPlace.CDATA_END, "cdata_open", value_end.cdata_in_value),
    (CallPlace.CDATA_END, "parameter_close", value_end.hold_closer),
    (CallPlace.CDATA_END, "end", _truncate),
    (CallPlace.CLOSER, "parameter_open", value_end.opener_after_closer),
    (CallPlace.CLOSER, "parameter_close", value_end.hold_closer),
    (CallPlace.CLOSER, "call_close", value_end.hold_call_close),
    (CallPlace.CLOSER, "list_close call_open block_close end", value_end.close_value),
    (CallPlace.WRONG_CLOSER, "parameter_open", value_end.opener_after_wrong_closer),
    (CallPlace.WRONG_CLOSER, "call_close", value_end.hold_call_close),
    (CallPlace.WRONG_CLOSER, "list_close", value_end.hold_after_wrong_closer),
    (CallPlace.WRONG_CLOSER, "call_open block_close", value_end.close_value),
    (CallPlace.WRONG_CLOSER, "end", _truncate),
    (CallPlace.CALL_CLOSE, "call_open block_open block_close end", value_end.end_pending),
    (CallPlace.CALL_CLOSE, "text call_close", value_end.text_after_call_close),
    (CallPlace.AFTER_CALL, "parameter_open parameter_close call_open call_close block_open", value_end.pending_is_text),
    (CallPlace.AFTER_CALL, "end", value_end.end_after_call),
    (CallPlace.BLOCK_CLOSE, "end", _truncate),
)
# Where the table has no row, the token is text of its place.
CALL_OTHERWISE: dict[CallPlace, Callable[[CallState, Token], None]] = {
    CallPlace.CALL: _between,
    CallPlace.VALUE: value_end.text,
    CallPlace.CDATA: value_end.text,
    CallPlace.CDATA_END: value_end.text_after_cdata,
    CallPlace.CLOSER: value_end.pending_is_text,
    CallPlace.WRONG_CLOSER: value_end.pending_is_text,
    CallPlace.CALL_CLOSE: value_end.pending_is_text,
    CallPlace.AFTER_CALL: value_end.hold_after_call,
    CallPlace.BLOCK_CLOSE: value_end.pending_is_text,
    CallPlace.FORK: value_end.in_fork,
}
