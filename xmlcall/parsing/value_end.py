"""Decides where a parameter's value ends, and holds the tokens that wait for that decision.

Values are raw text and may contain markup themselves. The rules (docs/design.md, section 4) depend on the next token, ignoring
white space:

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

import enum
from collections import Counter
from dataclasses import replace

import regex

from ..dialects.tag_patterns import is_escaped
from ..tools.names import match_name
from ..types.events import Markup
from .scanner import TURN_END, Token
from .states import CallPlace, CallState, Fork
from .value_text import Value

_CLOSER_NAMES = frozenset({"param", "parameter", "parameters", "params"})  # in lower case; models write all of them
_TURN_ENDS = regex.compile(rf"(?:\s*(?:{TURN_END}))+\s*")
_AFTER_CALL = frozenset({"call_open", "block_open", "block_close"})
_STARTS_LINE = regex.compile(r"\n[ \t]*\Z")


# A value begins and ends.


def open_value(call: CallState, token: Token) -> None:
    """Read a parameter's opener."""
    open_body(call, token)
    call.draft.check_style(token)
    call.dropped.open = False
    if token.text.endswith("/>"):
        store(call)


def open_body(call: CallState, token: Token) -> None:
    """Read the opener of a value: a parameter's, or that of a body with all arguments."""
    call.value = Value(index=call.draft.index, opener=token, dialect=call.draft.dialect, emit=call.draft.emit)
    call.place = CallPlace.VALUE


def store(call: CallState, *, has_closer: bool = True) -> None:
    """Store the value, which has ended."""
    argument = call.value.close(has_closer=has_closer)
    if (mark := call.draft.dialect.before_tags) and not call.value.verbatim:
        # The mark of an element's tag, or of a closer that was lost.
        argument = replace(argument, text=regex.sub(rf"{regex.escape(mark)}(?=<|\s*\Z)", "", argument.text))
    if call.draft.dialect.open_entities and not call.value.verbatim and is_escaped(argument.text):
        call.draft.doubt_entities(call.value)
    if call.value.is_body:
        call.draft.keep_body(argument)
    else:
        call.draft.keep(argument)
    call.place = CallPlace.CALL


def _store_unclosed(call: CallState, offset: int) -> None:
    if call.value.opener.text:
        call.draft.repair("unclosed-parameter", (offset, offset))
        if call.value.tags:
            call.draft.doubt_end(call.value)
    store(call, has_closer=False)


# Tokens in a value.


def text(call: CallState, token: Token) -> None:
    """Read a token as text of the value."""
    call.value.add(token)


def count(call: CallState, token: Token) -> None:
    """Read a tag as text of the value, and remember that it is open."""
    call.value.count(token)


def _balances(call: CallState, token: Token) -> bool:
    """Read a closer as text if an inner opener of its kind is open."""
    if not call.value.open[token.pair]:
        return False
    call.value.count(token)
    return True


def other_tag_in_value(call: CallState, token: Token) -> None:
    """Hold `</content>` in the parameter `content`, in any letter case, and misspelt `</parameter>`; others are text."""
    name = token.text.strip("</> \t\r\n").lower()
    is_closer = name in _CLOSER_NAMES or token.kind == "list_close"
    if name == call.value.name.lower() or (is_closer and not call.value.is_body):
        _hold(call, token, CallPlace.WRONG_CLOSER)
    else:
        call.value.add(token)


def opener_in_value(call: CallState, token: Token) -> None:
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
        open_value(call, token)
    else:
        value.count(token)


def _is_new_sibling(call: CallState, name: str) -> bool:
    declared = call.draft.declared is None or name in call.draft.declared
    return declared and name not in call.draft.names and name != call.value.name


def closer_in_value(call: CallState, token: Token) -> None:
    """Read a parameter's closer: the value's own closer waits for what follows."""
    own = call.value.opener.pair
    if _balances(call, token):
        return
    if token.pair == own:
        _hold(call, token, CallPlace.CLOSER)
    elif own:
        other_tag_in_value(call, token)
    else:
        call.value.add(token)


def call_close_in_value(call: CallState, token: Token) -> None:
    """Read a call's closer: the call's own closer may end it."""
    if _balances(call, token):
        return
    if token.pair == call.draft.opener.pair:
        hold_call_close(call, token)
    else:
        call.value.add(token)


def block_close_in_value(call: CallState, token: Token) -> None:
    """Read a wrapper's closer."""
    if not _balances(call, token):
        _hold(call, token, CallPlace.BLOCK_CLOSE)


def cdata_in_value(call: CallState, token: Token) -> None:
    """Read the opening of a CDATA section: markup at a value's start or after a section, else text."""
    if call.place is CallPlace.CDATA_END or call.value.blank:
        call.value.begin_cdata(token)
        call.place = CallPlace.CDATA
    else:
        call.value.add(token)


def end_cdata(call: CallState, token: Token) -> None:
    """Read the end of a CDATA section."""
    call.value.end_cdata(token)
    call.place = CallPlace.CDATA_END


def after_cdata(call: CallState, token: Token) -> None:
    """Read text after a CDATA section: white space is markup."""
    blank = len(token.text) - len(token.text.lstrip())
    call.value.skip(blank)
    if blank < len(token.text):
        text_after_cdata(call, Token("text", token.text[blank:], token.start + blank))


def text_after_cdata(call: CallState, token: Token) -> None:
    """Doubt a CDATA section that more text follows: it may be markup or part of the value."""
    call.draft.doubt(call.value, "the value is the CDATA section alone", "the section's markup is part of a longer value")
    call.place = CallPlace.VALUE
    call.queue.appendleft(token)


# Tokens that wait for what follows.


def _hold(call: CallState, token: Token, place: CallPlace) -> None:
    call.pending.append(token)
    call.place = place


def hold_closer(call: CallState, token: Token) -> None:
    """Hold a closer that may end the value."""
    _hold(call, token, CallPlace.CLOSER)


def hold_after_wrong_closer(call: CallState, token: Token) -> None:
    """Hold a tag between parameters after a tag that may replace the closer: the next token decides."""
    _hold(call, token, CallPlace.WRONG_CLOSER)


def hold_call_close(call: CallState, token: Token) -> None:
    """Hold a `</invoke>` that may end the call; without a wrapper it does."""
    _hold(call, token, CallPlace.CALL_CLOSE)
    if not call.wrapped:
        end_pending(call)


def text_after_call_close(call: CallState, token: Token) -> None:
    """Hold text after the closers of value and call: it may belong to the value or be between the call and the wrapper's end."""
    closer = call.pending[0]
    if closer.kind == "parameter_close" and closer.pair == call.value.opener.pair:
        _hold(call, token, CallPlace.AFTER_CALL)
    else:
        pending_is_text(call, token)


def hold_after_call(call: CallState, token: Token) -> None:
    """Hold a token between a call and the end of the reply."""
    call.pending.append(token)


def end_after_call(call: CallState, token: Token) -> None:
    """End the call before the text if the wrapper or the turn ended after it; else the value has no end."""
    at = _call_close_at(call)
    after = call.pending[at + 1 :]
    is_ended = any(held.kind == "block_close" for held in after) or _TURN_ENDS.fullmatch("".join(held.text for held in after))
    (end_pending if is_ended and not call.cut else pending_is_text)(call, token)


def opener_after_closer(call: CallState, token: Token) -> None:
    """Read an opener after `</parameter>`: an element counts only as a parameter not given yet, else it may be the value's."""
    element = _is_element(token) and not _is_element(call.value.opener)
    if element and not _is_new_sibling(call, token.attributes["name"]):
        pending_is_text(call, token)
    else:
        close_value(call, token)


def opener_after_wrong_closer(call: CallState, token: Token) -> None:
    """Read an opener after a tag that may replace `</parameter>`: only a parameter that can follow counts."""
    name, closer = token.attributes["name"], call.pending[0]
    is_again = name == call.value.name and closer.text.startswith("</")  # given twice, which binding reports
    if (is_again or _is_new_sibling(call, name)) and (not _is_element(token) or _is_element(call.value.opener)):
        close_value(call, token)
    else:
        pending_is_text(call, token)


def pending_is_text(call: CallState, token: Token) -> None:
    """Read the waiting tokens as text of the value, then read the token after them again."""
    if call.value.verbatim:
        call.draft.doubt(call.value, "the value is the CDATA section alone", "the section is part of a longer value")
    for held in call.pending:
        (call.value.count if held.kind == "parameter_open" else call.value.add)(held)
    if any(held.start in call.outer_closers for held in call.pending):
        call.draft.doubt(call.value, "the first closing tag ends the value", "the value goes on after its closing tags")
    call.pending = []
    call.place = CallPlace.VALUE
    call.queue.appendleft(token)


def close_value(call: CallState, token: Token) -> None:
    """End the value with the waiting closer, because the token after it is not part of the value."""
    _release_closer(call)
    call.queue.appendleft(token)
    name = token.attributes.get("name") if token.kind == "parameter_open" else None
    if name is None or call.draft.declared is None or name in call.draft.declared:
        return
    if match_name(name, call.draft.declared, call.draft.names) is None:
        call.draft.doubt_name(call.value, name)


def _release_closer(call: CallState) -> None:
    closer, *after = call.pending
    if closer.kind != "parameter_close" or closer.pair != call.value.opener.pair:
        call.draft.wrong_closer(call.value, closer)
    else:
        call.draft.check_closer(closer)
    store(call)
    call.draft.emit(Markup(kind="parameter_close", span=closer.span))
    for held in after:
        call.draft.emit(Markup(kind="space" if held.kind == "text" else "stray", span=held.span))
        if held.start in call.outer_closers:
            call.draft.repair("stray-tag", held.span)
    if any(held.kind == "parameter_close" and held.start not in call.outer_closers for held in after):
        call.draft.doubt(call.value, "the value ends at the first closing tag", "the value holds the first closing tag")
    call.pending = []


def _call_close_at(call: CallState) -> int:
    return next(place for place, held in enumerate(call.pending) if held.kind == "call_close")


def end_pending(call: CallState, *following: Token) -> None:
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


class _Verdict(enum.Enum):
    """What the opener was."""

    TEXT = "text of the value"
    SIBLING = "the next parameter"


def in_fork(call: CallState, token: Token) -> None:
    """Read a token after a doubtful opener."""
    verdict = _verdict(call, token)
    if verdict is _Verdict.TEXT:
        _end_fork_as_text(call)
    elif verdict is _Verdict.SIBLING:
        call.unclosed = {*_unclosed(call.fork.held), call.value.opener.start}
        call.queue.extendleft(reversed([*call.fork.held, token]))
        call.place = CallPlace.VALUE


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
        call.draft.doubt_swallowed(call.value, inner[0].attributes["name"])
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


def _verdict(call: CallState, token: Token) -> _Verdict | None:
    """Read a token in a fork.

    Returns:
        TEXT: the token, which is the last one held, is the value's own closer. SIBLING: the token ended the call and is not held,
        although a `</invoke>` before it may be. None: not decided yet, and the token is held.
    """
    fork = call.fork
    if token.kind == "end" or (fork.call_may_have_ended and token.kind in _AFTER_CALL):
        return _Verdict.SIBLING
    if token.text.strip():
        fork.call_may_have_ended = False
    if token.pair and token.kind.endswith("_close"):
        return _close_in_fork(call, token)
    if token.pair:
        fork.open[token.pair] += 1
    fork.held.append(token)
    return None


def _close_in_fork(call: CallState, token: Token) -> _Verdict | None:
    fork = call.fork
    if fork.open[token.pair]:
        fork.open[token.pair] -= 1
        fork.held.append(token)
        return None
    ends_call = token.pair == call.draft.opener.pair
    if token.pair == "block" or (ends_call and not call.wrapped):
        return _Verdict.SIBLING
    fork.held.append(token)
    fork.call_may_have_ended = ends_call
    return _Verdict.TEXT if token.pair == call.value.opener.pair else None


def _unclosed(held: list[Token]) -> set[int]:
    """Return the offsets of the parameter openers that no closer balances."""
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
