"""The part of a reply that holds no calls: text for the person, inline code, fences, reasoning, left-over tags.

Only the text so far decides what is quotation: inline code ends at as many back-ticks as opened it or at a blank line, a fence at
a line of at least as many (CommonMark 0.31, 4.5 and 6.1). Reasoning nests, and a call in it never counts.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import replace

from ..types.calls import Issue
from ..types.events import Markup, ReasoningDelta, TextDelta, ToolCallEnd
from .scanner import Token
from .states import BREAK, Place, ReplyState

_LEFT_OVER = frozenset({"turn_end", "block_close", "call_close", "parameter_close"})
_OF_CALLS = frozenset({"block_open", "call_open", "block_close", "call_close", "parameter_close"})
_MENTIONED = "The call stands in a sentence, where it may only be mentioned. Write a call on a line of its own."
_INVENTED = "You wrote a result before this call, but only a tool gives results. Write the call alone, then wait for its result."
_TAIL = 20  # characters that show whether a sentence continues
_OPEN = re.compile(rf"[\w,;(][ \t]{{1,8}}{BREAK}?\Z")
_QUOTED = re.compile(
    rf"(?:<!--|<(?:pre|code|example|blockquote)>)[\s{BREAK}]{{0,16}}\Z|(?<![^\s(])[\"'\u201c\u2018\u00ab\u300c]{BREAK}?\Z"
    rf"|(?:\A|\n)[ \t]{{0,3}}>[ \t]{{0,4}}{BREAK}?\Z|\|[^|\n]{{0,12}}\|[ \t]{{0,4}}{BREAK}?\Z"  # quoted lines, cells of a table
)
_INDENTED = re.compile(rf"\n[ \t]{{0,8}}\n(?: {{4}}|\t)[ \t]{{0,12}}{BREAK}?\Z")  # code of Markdown: CommonMark 0.31, 4.4
_GOES_ON = re.compile(r"[ \t]{0,8}[,;.:!?)]|[ \t]{1,8}[a-z]|[，。；：！？）]")
_WORD = re.compile(r"\w+")
LAST = 8192  # characters at the end of a text or of open reasoning that are searched for an unread call
_PIECES = 32  # kept separately before they are joined, because a join for each piece would copy all of them
_BYTE_ORDER_MARK = "\ufeff"


def text(reply: ReplyState, token: Token) -> None:
    if token.start == 0 and token.text.startswith(_BYTE_ORDER_MARK):
        reply.events.append(Markup(kind="space", span=(0, 1)))
        reply.repair("byte-order-mark", (0, 1))
        token = Token("text", token.text[1:], 1)
        if not token.text:
            return
    reply.events.append(TextDelta(text=token.text, span=token.span))
    reply.prose.has_text = reply.prose.has_text or bool(token.text.strip())
    note(reply, token.text)
    _remember(reply, token.text)


def text_in_block(reply: ReplyState, token: Token) -> None:
    """Read a token between the calls of a wrapper as text; white space before the first text is markup."""
    note(reply, token.text)
    blank = 0 if reply.block_text else len(token.text) - len(token.text.lstrip())
    middle = token.start + blank
    if blank:
        reply.events.append(Markup(kind="space", span=(token.start, middle)))
    if blank == len(token.text):
        return
    if not reply.block_text:
        reply.block_text = True
        reply.repair("text-in-block", (middle, middle))
    reply.events.append(TextDelta(text=token.text[blank:], span=(middle, token.end)))
    _remember(reply, token.text)


def _remember(reply: ReplyState, written: str) -> None:
    """Keep the end of the text until code or a call follows."""
    if reply.place is not Place.CODE and not reply.prose.fence:
        _keep_end(reply.prose.last, written)
    elif written.strip():
        reply.prose.last.clear()


def _keep_end(pieces: list[str], written: str) -> None:
    """Add to the kept end of a text. It has few pieces, which hold the last characters however the text was cut."""
    pieces.append(written[-LAST:])
    if len(pieces) >= _PIECES:
        pieces[:] = ["".join(pieces)[-LAST:]]


def text_outside(reply: ReplyState, token: Token) -> None:
    """Read a token as text outside calls: text for the person, or text in a wrapper."""
    (text_in_block if reply.wrapper else text)(reply, token)


def note(reply: ReplyState, written: str) -> None:
    """Keep track of where a line begins."""
    _, newline, last = written.rpartition("\n")
    reply.prose.line_blank = not last.strip() and (bool(newline) or reply.prose.line_blank)
    reply.prose.after_call = reply.prose.after_call and not written.strip()


def end_fence(reply: ReplyState, token: Token) -> None:
    """Read the back-ticks that end the open fence."""
    if reply.prose.fence_dropped:
        reply.markup("fence", token)
    else:
        text(reply, token)
    reply.prose.fence, reply.prose.fence_dropped = 0, False


def end_code(reply: ReplyState, token: Token) -> None:
    """Read what may end inline code: as many back-ticks as opened it, or a blank line."""
    if token.kind == "blank_line" or len(token.text) == reply.prose.code_ticks:
        reply.place = reply.outside
    text(reply, token)


def mark(reply: ReplyState, token: Token) -> None:
    """Leave out a mark if it begins the reply or if markup of its format was read before; elsewhere it is text."""
    if token.dialect in reply.seen or (reply.prose.line_blank and not reply.prose.has_text):
        special(reply, token)
    else:
        text(reply, token)


def special(reply: ReplyState, token: Token) -> None:
    """Leave out a mark that never occurs in text; `result` if it begins a result, which only the server writes."""
    is_result = any(row.results.opener.startswith(token.text) for row in reply.dialects.values())
    reply.markup("result" if is_result else "mark", token)
    reply.prose.has_result |= is_result


def stray_tag(reply: ReplyState, token: Token) -> None:
    """Leave out a tag that means nothing here."""
    reply.markup("stray", token)
    reply.repair("stray-tag", token.span)


def stray(reply: ReplyState, token: Token) -> None:
    """Read a closer without its opener, or a turn's end: drop it after a call or at the reply's end; elsewhere it is text."""
    if reply.prose.after_call:
        _drop(reply, token)
    elif reply.prose.fence:
        text(reply, token)
    else:
        reply.left_over.append(token)


def _drop(reply: ReplyState, token: Token) -> None:
    (special if token.kind == "turn_end" else stray_tag)(reply, token)


def wait_for_end(reply: ReplyState, token: Token) -> bool:
    """Hold white space after marks that may end the reply; other tokens turn the marks into text. Return whether it was held."""
    if token.kind == "text" and not token.text.strip():
        reply.left_over.append(token)
        return True
    if token.kind not in _LEFT_OVER:
        release_left_over(reply)
    return False


def release_left_over(reply: ReplyState, *, is_end: bool = False) -> None:
    """Read the tokens that were held: as text, or as markup at the end of the reply.

    At the end they stay text if the text is about them: a single closer, or closers whose openers are text.
    """
    kept, reply.left_over = reply.left_over, []
    is_text = not is_end or _is_talked_of(reply, kept)
    for token in kept:
        if is_text:
            text_outside(reply, token)
        elif token.kind == "text":
            reply.events.append(Markup(kind="space", span=token.span))
        else:
            _drop(reply, token)


def _is_talked_of(reply: ReplyState, kept: list[Token]) -> bool:
    """Say whether the text is about the marks at its end: there is only one closer, or the text contains one of their openers."""
    said, marks = "".join(reply.prose.last), {token.text for token in kept}
    closers = [token.text for token in kept if token.kind.endswith("_close")]
    is_opened = any(word in said for closer in set(closers) for word in _WORD.findall(closer))
    return len(closers) == 1 or is_opened or ("</s>" in marks and "<s>" in said)


def decide_mention(reply: ReplyState, token: Token) -> None:
    """Read the token after a call in a sentence: if the sentence continues on the same line, the call is a mention."""
    if reply.wrapper or reply.place is Place.OPENING or token.kind in _OF_CALLS:
        return
    line, newline, _ = token.text.partition("\n")
    if token.kind == "text" and not newline and not line.strip():
        reply.after_doubt += line[:_TAIL]
        return
    end_in_sentence(reply, is_mention=token.kind == "text" and _GOES_ON.match(reply.after_doubt + line) is not None)


def is_open_sentence(reply: ReplyState) -> bool:
    """Say whether the text so far ends in an unfinished sentence: "Never write" is one, "Let me see:" is not."""
    return not reply.prose.line_blank and _OPEN.search("".join(reply.prose.last[-_TAIL:])[-_TAIL:]) is not None


def end_call(reply: ReplyState, first: int) -> None:
    """Handle the end of calls: quoted ones, and those after an invented result, do not count; those in a sentence may not."""
    before = "".join(reply.prose.last[-_PIECES:])[-_TAIL:]
    openers = tuple(dict.fromkeys(row.results.opener for row in reply.dialects.values()))
    reply.prose.has_result |= _results(openers)("".join(reply.prose.last)) is not None
    if before.strip(f"{BREAK} \t\r\n"):
        reply.prose.quoted = any(pattern.search(before) for pattern in (_QUOTED, _INDENTED))
    elif not reply.prose.after_call and not reply.wrapper:
        reply.prose.quoted = False
    if reply.prose.quoted or reply.prose.has_result:
        _mention(reply, first)
    elif reply.in_sentence and reply.doubt_from is None:
        reply.doubt_from = first
    reply.in_sentence = False


@functools.lru_cache(maxsize=4)
def _results(openers: tuple[str, ...]) -> Callable[[str], object]:
    """Return the search for a line that begins a result."""
    others = r"<\|(?:observation|START_TOOL_RESULT)\|>|<\|im_start\|>tool|<\|start\|>functions\.|<tool_(?:result|output)>"
    return re.compile(rf"(?:\A|[\n{BREAK}])[ \t]{{0,8}}(?:{'|'.join(map(re.escape, openers))}|{others})").search


def _mention(reply: ReplyState, first: int) -> None:
    """Mark calls that must not run, because they may only be mentioned."""
    issue = Issue(code="mentioned-call", message=_INVENTED if reply.prose.has_result else _MENTIONED)
    for place in range(first, len(reply.events)):
        event = reply.events[place]
        if isinstance(event, ToolCallEnd):
            reply.events[place] = replace(event, raw=replace(event.raw, issues=(*event.raw.issues, issue)))


def end_in_sentence(reply: ReplyState, *, is_mention: bool = False) -> None:
    """Release calls that waited. If the sentence continues after them, the model may only mention them, so they must not run."""
    if reply.doubt_from is None:
        return
    if is_mention:
        _mention(reply, reply.doubt_from)
    reply.doubt_from, reply.after_doubt = None, ""


def reasoning_open(reply: ReplyState, token: Token) -> None:
    """Read the tag that begins reasoning."""
    reply.markup("reasoning", token)
    reply.place, reply.depth, reply.thinks_in, reply.thinks_tag = Place.REASONING, 1, token.dialect, token.text
    reply.thoughts.clear()


def reasoning_nested(reply: ReplyState, token: Token) -> None:
    """Read an opening tag in reasoning: tags of the same name nest; a format's own marks do not, so its first closer ends it.

    An opener does not nest if it only doubles the first one, nor if it is the mention of another tag.
    """
    is_of_reasoning = _is_of_reasoning(reply, token)
    if token.dialect and is_of_reasoning:
        reply.markup("mark", token)
        return
    has_begun = any(part.strip() for part in reply.thoughts)
    reply.depth += is_of_reasoning and has_begun and reply.thinks_tag in ("", token.text)
    reasoning_text(reply, token)


def reasoning_close(reply: ReplyState, token: Token) -> None:
    is_of_reasoning = _is_of_reasoning(reply, token)
    if is_of_reasoning:
        reply.depth = 0 if token.dialect else reply.depth - 1
    if reply.depth or not is_of_reasoning:
        reasoning_text(reply, token)
        return
    reply.markup("reasoning", token)
    reply.place = reply.outside


def _is_of_reasoning(reply: ReplyState, token: Token) -> bool:
    """Say whether a mark belongs to the format that opened the reasoning; any mark may if the template opened it."""
    return reply.thinks_in in (None, token.dialect)


def reasoning_text(reply: ReplyState, token: Token) -> None:
    _keep_end(reply.thoughts, token.text)
    reply.events.append(ReasoningDelta(text=token.text, span=token.span))
