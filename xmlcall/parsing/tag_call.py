"""One call written in tags: the tokens after its opening tag -> events and, at its end, a RawCall.

`CALL_TABLE` selects the function that reads a token. Between parameters only white space, their tags, or one JSON object with all
arguments may occur; anything else is dropped and reported as an issue.

Values are raw text and may contain markup themselves. Where one ends (docs/design.md, section 4) depends on the next token,
ignoring white space:

* `</parameter>` ends the value before a parameter's opener, the call's end or the reply's end; else it is text.
* `</invoke>` ends the call before another call, the wrapper's end or the reply's end, or if no wrapper was opened; else it is
  text. After `</parameter></invoke>`, text or the mark of a turn's end may precede the wrapper's end. The reply's end decides
  that: the call has ended if neither closer occurred again.
* Balanced inner pairs are text. The opener of a declared sibling that was not given yet is held (FORK) until it is known whether
  reading it as text would leave the parameter unclosed; if so, it begins that sibling.
* Two readings differ if a value contains structural tags but lacks its closing tag, if a closer is doubled, or if an undeclared
  opener follows a closer: the call gets the issue `ambiguous` and never runs.
* A parameter's opener may also be an element with its name (`<content>`). In a value that `<parameter>` began, such elements are
  text; a value that an element began ends only at a closer of the same name.

Tokens whose meaning is open wait in `call.pending` or in a Fork; everything else is emitted at once. When a fork is decided, its
tokens are read again, now knowing which openers have closers. So no token is held twice, and the cost is linear.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import regex

from ..dialects.dialect import is_escaped
from ..tools.catalog import match_name
from ..types.events import Markup
from .damaged_tags import damaged_tag
from .scanner import TURN_END, ScanMode, Token
from .states import CallDraft, CallPlace, CallState, Fork, Value, table

_CLOSER_NAMES = frozenset({"param", "parameter", "parameters", "params"})  # in lower case; models write all of them
_TURN_ENDS = regex.compile(rf"(?:\s*(?:{TURN_END}))+\s*")
_AFTER_CALL = frozenset({"call_open", "block_open", "block_close"})
_STARTS_LINE = regex.compile(r"\n[ \t]*\Z")


class TagCall:
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
        return [token for token in self.take(Token("end", "", offset)) or [] if token.kind != "end"]


def self_closing(reader: TagCall) -> bool:
    """End a call at once if its opening tag ends in `/>`; return whether it has ended."""
    opener = reader.call.draft.opener
    if opener.text.endswith("/>"):
        _finish(reader.call, opener.end, opener.end)
    return reader.call.done


def _between(call: CallState, token: Token) -> None:
    blank = 0 if call.dropping else len(token.text) - len(token.text.lstrip())
    middle = token.start + blank
    if blank:
        call.draft.emit(Markup(kind="space", span=(token.start, middle)))
    if token.text.startswith("{", blank) and not call.dropping and not call.draft.given:
        _open_body(call, Token("body_open", "", middle))
        _text(call, Token("text", token.text[blank:], middle))
    elif middle < token.end:
        call.dropping = True
        call.dropped.append(token.text[blank:])
        call.draft.emit(Markup(kind="dropped", span=(middle, token.end)))


def _leave_out(call: CallState, token: Token, kind: str, code: str = "") -> None:
    call.draft.emit(Markup(kind=kind, span=token.span))
    if code:
        call.draft.repair(code, token.span)


def _open_value(call: CallState, token: Token) -> None:
    _open_body(call, token)
    call.draft.check_style(token)
    call.dropping = False
    if token.text.endswith("/>"):
        _store(call)


def _open_body(call: CallState, token: Token) -> None:
    """Read the opener of a value: a parameter's, or that of a body with all arguments."""
    call.value = Value(index=call.draft.index, opener=token, dialect=call.draft.dialect, emit=call.draft.emit)
    call.place = CallPlace.VALUE


def _store(call: CallState, *, has_closer: bool = True) -> None:
    argument = call.value.close(has_closer=has_closer)
    if (mark := call.draft.dialect.before_tags) and not call.value.verbatim:
        # The mark of an element's tag, or of a closer that was lost.
        argument = replace(argument, text=regex.sub(rf"{regex.escape(mark)}(?=<|\s*\Z)", "", argument.text))
    if call.draft.dialect.open_entities and not call.value.verbatim and is_escaped(argument.text):
        call.draft.doubt_entities(call.value.name)
    if call.value.is_body:
        call.draft.keep_body(argument)
    else:
        call.draft.keep(argument)
    call.place = CallPlace.CALL


def _doubt_damaged_tag(call: CallState, *, has_closer: bool = True) -> None:
    value, draft, text = call.value, call.draft, call.value.text
    is_plain = has_closer and "<" not in text and not value.opener.text.endswith("=")
    if is_plain or value.is_body or value.verbatim:
        return
    missing = (draft.declared or frozenset()) - draft.names
    element = value.name if _is_element(value.opener) else ""
    if piece := damaged_tag(text, value.opener.text, draft.dialect, missing, element, has_closer=has_closer):
        shown = repr(piece.strip()[:120])
        draft.doubt(value.name, f"{shown} is a damaged tag", f"{shown} is part of the value of {value.name!r}")


def _store_unclosed(call: CallState, offset: int) -> None:
    if call.value.opener.text:
        call.draft.repair("unclosed-parameter", (offset, offset))
        if call.value.tags:
            call.draft.doubt_end(call.value)
    _store(call, has_closer=False)
    if not call.value.tags:
        _doubt_damaged_tag(call, has_closer=False)


def _text(call: CallState, token: Token) -> None:
    call.value.add(token)


def _count(call: CallState, token: Token) -> None:
    """Read a tag as text of the value, and remember that it is open."""
    call.value.count(token)


def _balances(call: CallState, token: Token) -> bool:
    """Read a closer as text if an inner opener of its kind is open."""
    if not call.value.open[token.pair]:
        return False
    call.value.count(token)
    return True


def _other_tag_in_value(call: CallState, token: Token) -> None:
    """Hold `</content>` in the parameter `content`, in any letter case, and misspelt `</parameter>`; others are text."""
    name = token.text.strip("</> \t\r\n").lower()
    is_closer = name in _CLOSER_NAMES or token.kind == "list_close"
    if name == call.value.name.lower() or (is_closer and not call.value.is_body):
        _hold(call, token, CallPlace.WRONG_CLOSER)
    else:
        call.value.add(token)


def _opener_in_value(call: CallState, token: Token) -> None:
    """Read a parameter's opener in a value: text, the same parameter again, or a sibling if this value lost its closer."""
    value = call.value
    if value.is_body or (_is_element(token) and not _is_element(value.opener)):
        value.add(Token("text", token.text, token.start))
    elif token.attributes["name"] == value.name and not value.open_parameters:
        _hold(call, token, CallPlace.WRONG_CLOSER)
    elif not _is_new_sibling(call, token.attributes["name"]) or value.open_parameters:
        value.count(token)
    elif call.unclosed is None:
        call.fork = Fork([token], Counter({token.pair: 1}))
        call.place = CallPlace.FORK
    elif value.opener.start in call.unclosed:
        _store_unclosed(call, token.start)
        _open_value(call, token)
    else:
        value.count(token)


def _is_new_sibling(call: CallState, name: str) -> bool:
    declared = call.draft.declared is None or name in call.draft.declared
    return declared and name not in call.draft.names and name != call.value.name


def _closer_in_value(call: CallState, token: Token) -> None:
    """Read a parameter's closer: the value's own closer waits for what follows."""
    own = call.value.opener.pair
    if _balances(call, token):
        return
    if token.pair == own:
        _hold(call, token, CallPlace.CLOSER)
    elif own:
        _other_tag_in_value(call, token)
    else:
        call.value.add(token)


def _call_close_in_value(call: CallState, token: Token) -> None:
    """Read a call's closer: the call's own closer may end it."""
    if _balances(call, token):
        return
    if token.pair == call.draft.opener.pair:
        _hold_call_close(call, token)
    else:
        call.value.add(token)


def _block_close_in_value(call: CallState, token: Token) -> None:
    if not _balances(call, token):
        _hold(call, token, CallPlace.BLOCK_CLOSE)


def _cdata_in_value(call: CallState, token: Token) -> None:
    """Read the opening of a CDATA section: markup at a value's start or after a section, else text."""
    if call.place is CallPlace.CDATA_END or call.value.blank:
        call.value.begin_cdata(token)
        call.place = CallPlace.CDATA
    else:
        call.value.add(token)


def _end_cdata(call: CallState, token: Token) -> None:
    call.value.end_cdata(token)
    call.place = CallPlace.CDATA_END


def _after_cdata(call: CallState, token: Token) -> None:
    """Read text after a CDATA section: white space is markup."""
    blank = len(token.text) - len(token.text.lstrip())
    call.value.skip(blank)
    if blank < len(token.text):
        _text_after_cdata(call, Token("text", token.text[blank:], token.start + blank))


def _text_after_cdata(call: CallState, token: Token) -> None:
    """Doubt a CDATA section that more text follows: it may be markup or part of the value."""
    call.draft.doubt(call.value.name, "the value is the CDATA section alone", "the section's markup is part of a longer value")
    call.place = CallPlace.VALUE
    call.queue.appendleft(token)


def _hold(call: CallState, token: Token, place: CallPlace) -> None:
    call.pending.append(token)
    call.place = place


def _hold_call_close(call: CallState, token: Token) -> None:
    """Hold a `</invoke>` that may end the call; without a wrapper it does."""
    _hold(call, token, CallPlace.CALL_CLOSE)
    if not call.wrapped:
        _end_pending(call)


def _text_after_call_close(call: CallState, token: Token) -> None:
    """Hold text after the closers of value and call: it may belong to the value or be between the call and the wrapper's end."""
    closer = call.pending[0]
    if closer.kind == "parameter_close" and closer.pair == call.value.opener.pair:
        _hold(call, token, CallPlace.AFTER_CALL)
    else:
        _pending_is_text(call, token)


def _end_after_call(call: CallState, token: Token) -> None:
    """End the call before the text if the wrapper or the turn ended after it; else the value has no end."""
    at = _call_close_at(call)
    after = call.pending[at + 1 :]
    is_ended = any(held.kind == "block_close" for held in after) or _TURN_ENDS.fullmatch("".join(held.text for held in after))
    (_end_pending if is_ended and not call.cut else _pending_is_text)(call, token)


def _opener_after_closer(call: CallState, token: Token) -> None:
    """Read an opener after `</parameter>`: an element counts only as a parameter not given yet, else it may be the value's."""
    element = _is_element(token) and not _is_element(call.value.opener)
    is_text = element and not _is_new_sibling(call, token.attributes["name"])
    (_pending_is_text if is_text else _close_value)(call, token)


def _opener_after_wrong_closer(call: CallState, token: Token) -> None:
    """Read an opener after a tag that may replace `</parameter>`: only a parameter that can follow counts."""
    name, closer = token.attributes["name"], call.pending[0]
    is_again = name == call.value.name and closer.text.startswith("</")  # given twice, which binding reports
    follows = (is_again or _is_new_sibling(call, name)) and (not _is_element(token) or _is_element(call.value.opener))
    (_close_value if follows else _pending_is_text)(call, token)


def _pending_is_text(call: CallState, token: Token) -> None:
    """Read the waiting tokens as text of the value, then read the token after them again."""
    if call.value.verbatim:
        call.draft.doubt(call.value.name, "the value is the CDATA section alone", "the section is part of a longer value")
    for held in call.pending:
        (call.value.count if held.kind == "parameter_open" else call.value.add)(held)
    if any(held.start in call.outer_closers for held in call.pending):
        call.draft.doubt(call.value.name, "the first closing tag ends the value", "the value goes on after its closing tags")
    call.pending = []
    call.place = CallPlace.VALUE
    call.queue.appendleft(token)


def _close_value(call: CallState, token: Token) -> None:
    """End the value with the waiting closer, because the token after it is not part of the value."""
    _release_closer(call)
    call.queue.appendleft(token)
    name = token.attributes.get("name") if token.kind == "parameter_open" else None
    if name is None or call.draft.declared is None or name in call.draft.declared:
        return
    if match_name(name, call.draft.declared, call.draft.names) is None:
        call.draft.doubt_parameter(call.value, name, is_declared=False)


def _release_closer(call: CallState) -> None:
    closer, *after = call.pending
    if closer.kind != "parameter_close" or closer.pair != call.value.opener.pair:
        call.draft.wrong_closer(call.value, closer)
    else:
        call.draft.check_closer(closer)
    _store(call)
    _doubt_damaged_tag(call)
    call.draft.emit(Markup(kind="parameter_close", span=closer.span))
    for held in after:
        is_outer = held.start in call.outer_closers
        _leave_out(call, held, "space" if held.kind == "text" else "stray", "stray-tag" if is_outer else "")
    if any(held.kind == "parameter_close" and held.start not in call.outer_closers for held in after):
        call.draft.doubt(call.value.name, "the value ends at the first closing tag", "the value holds the first closing tag")
    call.pending = []


def _call_close_at(call: CallState) -> int:
    return next(place for place, held in enumerate(call.pending) if held.kind == "call_close")


def _end_pending(call: CallState, *following: Token) -> None:
    """End the value and the call: the waiting `</invoke>` was structural, so what follows it is not part of the call."""
    at = _call_close_at(call)
    after = call.pending[at:]
    call.pending = call.pending[:at]
    if call.pending:
        _release_closer(call)
    else:
        _store_unclosed(call, after[0].start)
    call.queue.extendleft(reversed([*after, *following]))  # `</invoke>` comes first: between parameters it ends the call


# A sibling's opener that may be text. Everything after it is held until there is one closer more than openers (then the pairs
# balance, the opener was text and that closer is the value's own), or until the call ends (then reading it as text would leave
# the value unclosed, so it begins the sibling). Cost: one step for each token, and one pass over the held tokens.


def _in_fork(call: CallState, token: Token) -> None:
    """Hold a token after a doubtful opener, unless it decides what the opener was."""
    fork, pair = call.fork, token.pair
    is_closer = bool(pair) and token.kind.endswith("_close")
    is_outer = is_closer and not fork.open[pair]
    ends_call = is_outer and pair == call.draft.opener.pair
    has_ended = token.kind == "end" or (fork.call_may_have_ended and token.kind in _AFTER_CALL)
    if has_ended or (is_outer and pair == "block") or (ends_call and not call.wrapped):
        call.unclosed = {*_unclosed(fork.held), call.value.opener.start}
        call.queue.extendleft(reversed([*fork.held, token]))
        call.place = CallPlace.VALUE
        return
    fork.held.append(token)
    if token.text.strip():
        fork.call_may_have_ended = ends_call
    if is_outer and pair == call.value.opener.pair:
        _end_fork_as_text(call)
    elif pair and not is_outer:
        fork.open[pair] += -1 if is_closer else 1


def _end_fork_as_text(call: CallState) -> None:
    """Read the held tokens as text, unless they are only siblings that follow the value's own text.

    A model that closes a parameter too late writes the next ones into it. If these begin on a line of their own, nothing else can
    be meant; after text on the same line, they may be what the text is about.
    """
    *inner, closer = call.fork.held
    before = call.value.last_said
    if call.draft.declared is not None and before and _are_siblings(call, inner):
        if _STARTS_LINE.search(before):
            call.outer_closers.add(closer.start)
            call.unclosed = {call.value.opener.start}
            call.queue.extendleft(reversed(call.fork.held))
            call.place = CallPlace.VALUE
            return
        call.draft.doubt_parameter(call.value, inner[0].attributes["name"], is_declared=True)
    for held in inner:
        call.value.add(held)
    _hold(call, closer, CallPlace.CLOSER)


def _are_siblings(call: CallState, held: list[Token]) -> bool:
    """Say whether the held tokens are only parameters that were not given yet, each with its closer."""
    depth = 0
    for token in held:
        if token.kind == "parameter_open":
            if not depth and not _is_new_sibling(call, token.attributes["name"]):
                return False
            depth += 1
        elif token.kind == "parameter_close":
            depth -= 1
        elif not depth and token.text.strip():
            return False
    return depth == 0


def _unclosed(held: list[Token]) -> set[int]:
    openers: dict[str, list[int]] = {}
    for token in held:
        if token.kind == "parameter_open":
            openers.setdefault(token.pair, []).append(token.start)
        elif token.kind == "parameter_close" and openers.get(token.pair):
            openers[token.pair].pop()
    return {offset for offsets in openers.values() for offset in offsets}


def _is_element(token: Token) -> bool:
    """Say whether a tag's own name is that of a parameter: `<content>`."""
    return " " in token.pair


def _truncate(call: CallState, token: Token) -> None:
    """End a call whose reply ends in a value; a body may still be complete."""
    value = call.value
    whole = not call.pending and not call.cut
    for held in call.pending:
        value.add(held)
    call.pending = []
    if not value.is_body:
        _store(call)
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


def _opener_in_call(call: CallState, token: Token) -> None:
    """Leave out an opener that only repeats the call's own; another ends the call."""
    is_empty = not (call.draft.given or call.dropped)
    if is_empty and (token.pair, token.attributes) == (call.draft.opener.pair, call.draft.opener.attributes):
        _leave_out(call, token, "stray", "stray-tag")
    else:
        _end_unclosed(call, token)


def _end_unclosed(call: CallState, token: Token) -> None:
    is_whole = call.draft.given or token.kind == "block_close"
    if is_whole and not (call.cut and token.kind == "end"):
        call.draft.repair("unclosed-call", (token.start, token.start))
    else:
        call.draft.truncated("the call has no end")
    if token.kind != "end":
        call.queue.appendleft(token)
    _finish(call, token.start, token.start)


def _finish(call: CallState, start: int, end: int) -> None:
    call.draft.end(call.source, "".join(call.dropped).strip(), (start, end))
    call.done = True


_WAITING = frozenset({CallPlace.CLOSER, CallPlace.WRONG_CLOSER, CallPlace.CALL_CLOSE, CallPlace.BLOCK_CLOSE})

# Place, token kinds -> the function that reads such a token there. Kinds are those of the scanner and the dialects, and `end`.
CALL_TABLE: dict[tuple[CallPlace, str], Callable[[CallState, Token], None]] = table(
    (CallPlace.CALL, "text", _between),
    (CallPlace.CALL, "parameter_open", _open_value),
    (CallPlace.CALL, "body_open", _open_body),
    (CallPlace.CALL, "parameter_close", partial(_leave_out, kind="stray", code="stray-tag")),
    (CallPlace.CALL, "list_close name_end", partial(_leave_out, kind="list_close")),
    (CallPlace.CALL, "call_close", _end_here),
    (CallPlace.CALL, "block_open", partial(_leave_out, kind="block_open", code="repeated-block")),
    (CallPlace.CALL, "call_open", _opener_in_call),
    (CallPlace.CALL, "block_close end", _end_unclosed),
    (CallPlace.VALUE, "parameter_open", _opener_in_value),
    (CallPlace.VALUE, "parameter_close", _closer_in_value),
    (CallPlace.VALUE, "call_open block_open", _count),
    (CallPlace.VALUE, "call_close", _call_close_in_value),
    (CallPlace.VALUE, "block_close", _block_close_in_value),
    (CallPlace.VALUE, "cdata_open", _cdata_in_value),
    (CallPlace.VALUE, "list_close other_tag", _other_tag_in_value),
    (CallPlace.VALUE, "end", _truncate),
    (CallPlace.CDATA, "cdata_close", _end_cdata),
    (CallPlace.CDATA, "end", _truncate),
    (CallPlace.CDATA_END, "text", _after_cdata),
    (CallPlace.CDATA_END, "cdata_open", _cdata_in_value),
    (CallPlace.CDATA_END, "parameter_close", partial(_hold, place=CallPlace.CLOSER)),
    (CallPlace.CDATA_END, "end", _truncate),
    (CallPlace.CLOSER, "parameter_open", _opener_after_closer),
    (CallPlace.CLOSER, "parameter_close", partial(_hold, place=CallPlace.CLOSER)),
    (CallPlace.CLOSER, "call_close", _hold_call_close),
    (CallPlace.CLOSER, "list_close call_open block_close end", _close_value),
    (CallPlace.WRONG_CLOSER, "parameter_open", _opener_after_wrong_closer),
    (CallPlace.WRONG_CLOSER, "call_close", _hold_call_close),
    (CallPlace.WRONG_CLOSER, "list_close", partial(_hold, place=CallPlace.WRONG_CLOSER)),
    (CallPlace.WRONG_CLOSER, "call_open block_close", _close_value),
    (CallPlace.WRONG_CLOSER, "end", _truncate),
    (CallPlace.CALL_CLOSE, "call_open block_open block_close end", _end_pending),
    (CallPlace.CALL_CLOSE, "text call_close", _text_after_call_close),
    (CallPlace.AFTER_CALL, "parameter_open parameter_close call_open call_close block_open", _pending_is_text),
    (CallPlace.AFTER_CALL, "end", _end_after_call),
    (CallPlace.BLOCK_CLOSE, "end", _truncate),
)
# Where the table has no row, the token is text of its place.
CALL_OTHERWISE: dict[CallPlace, Callable[[CallState, Token], None]] = {
    CallPlace.CALL: _between,
    CallPlace.VALUE: _text,
    CallPlace.CDATA: _text,
    CallPlace.CDATA_END: _text_after_cdata,
    CallPlace.CLOSER: _pending_is_text,
    CallPlace.WRONG_CLOSER: _pending_is_text,
    CallPlace.CALL_CLOSE: _pending_is_text,
    CallPlace.AFTER_CALL: partial(_hold, place=CallPlace.AFTER_CALL),
    CallPlace.BLOCK_CLOSE: _pending_is_text,
    CallPlace.FORK: _in_fork,
}
