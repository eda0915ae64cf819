"""Reads what may open a call, from its first token until it is certain whether it is a call or text.

`reply.held` holds the line of a fence, the openers of a wrapper and of a call, and the white space between them. Its size is
bounded. If it turns out not to open a call, it is released unchanged as text. A call is certain when a tag of its body follows
its opener or a wrapper precedes it; a call in JSON is certain when it has ended. This module also chooses the call's reader. In a
fence, only calls of declared tools count (of any tool if none are given). A name counts as declared if it means exactly one tool:
`files.read_file`, which some clients ask models to write in a fence, means `read_file`.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import regex

from ..dialects import Body, Dialect
from . import prose
from .body_call import BareCall, BodyCall
from .json_call import name_in
from .scanner import Token
from .states import CallDraft, Place, ReplyState
from .tag_call import TagCall, self_closing

_MAX_HELD = 256
# How a body that names its tools begins: an object or a Python call; several are in a list.
_PYTHON_NAME = r"[^\W\d][\w.\-]{0,127}"
_BODY = regex.compile(rf"\s*(?:\[\s*)?(?:\{{|(?P<python>#|(?:{_PYTHON_NAME}\s{{0,4}}=\s{{0,4}})?{_PYTHON_NAME}\())")
# A tool's name: as gpt-oss writes it, in an element, or plain; on a line of its own.
_NAME = regex.compile(
    r"\s*(?:<function>\s*)?(?:(?:[a-z]{1,16} to=functions\.)?(?P<name>[^\W\d][\w.\-]{0,127})"
    r"\s*(?:</function>\s*)?(?:json\s*)?(?:>\s*)?)?"
)
_ELEMENT = regex.compile(r"\s*<function>\s*[\w.\-]{1,128}\s*")


def ticks(reply: ReplyState, token: Token) -> None:
    """Read back-ticks in prose: inline code, or the line of a fence, which may open a call."""
    count = len(token.text)
    if not (reply.prose.line_blank and count >= 3):
        if not reply.prose.fence:
            reply.place, reply.prose.code_ticks = Place.CODE, count
        prose.text(reply, token)
    elif reply.prose.fence and count >= reply.prose.fence:
        prose.end_fence(reply, token)
    elif reply.prose.fence:
        prose.text(reply, token)
    else:
        hold(reply, token)


def hold(reply: ReplyState, token: Token) -> None:
    reply.held, reply.place = [token], Place.OPENING
    if token.kind == "call_open":
        _await_body(reply, token)


def _await_body(reply: ReplyState, call: Token) -> None:
    """Wait for a call's body: without a wrapper, the call is certain once its body begins, or the call ends without one."""
    if call.text.endswith("/>") or _holds(reply.held, "block_open"):
        _call_is_certain(reply)
    else:
        _recognize(reply, reply.dialects, call, own=call.dialect)


def _recognize(reply: ReplyState, rows: Iterable[str], call: Token, own: str = "") -> None:
    """Recognize only the tags of some rows, and those of the declared parameters, which may be elements of their own names."""
    dialect = reply.dialects[call.dialect]
    declared = reply.catalog.parameters(call.attributes["name"]) or frozenset()
    has_elements = not (dialect.json_body or dialect.entities or dialect.has_object)
    reply.scanner.only(*rows, elements=declared if has_elements else (), names=declared, own=own)


def text_after_opening(reply: ReplyState, token: Token) -> None:
    """Read text: the body of a wrapper or of a call, a tool's name, or white space; anything else means that no call opened."""
    held = reply.held
    if is_fence_line(held) and 0 < (end := token.text.find("\n") + 1) < len(token.text):
        reply.queue.appendleft(Token("text", token.text[end:], token.start + end))
        token = Token("text", token.text[:end], token.start)
    if (row := _body_row(reply)) and _begins_body(held, token, row):
        _begin_body(reply, token, row)
    elif _is_body(reply, token):
        reply.queue.appendleft(token)
        _call_is_certain(reply)
    elif (named := _name_dialect(reply)) and _takes_name_line(reply, token):
        reply.queue.appendleft(_name_call(held, named.name, token))
        _call_is_certain(reply)
    elif _is_accepted(held, token, row, name=named is not None):
        held.append(token)
        if named and (names := reply.catalog.parameters(_name_in(held))):
            reply.scanner.only(*reply.dialects, names=names, own=named.name)
    else:
        opening_is_text(reply, token)


def _is_body(reply: ReplyState, token: Token) -> bool:
    """Say whether a JSON object with the arguments begins after a call's opener, before too much is held."""
    if not _holds(reply.held, "call_open"):
        return False
    call = _call_in(reply.held)
    row = reply.dialects[call.dialect]
    begins = token.text.lstrip().startswith(("{", "(") if row.body is Body.GEMMA else "{") and _fits(reply.held, token)
    return begins and (row.has_object or reply.declares(call.attributes["name"]))


def bare_after_opening(reply: ReplyState, token: Token) -> None:
    """Read the beginning of a call without a mark: alone in a fence, or of JSON in a wrapper; elsewhere it is text."""
    held, text = reply.held, Token("text", token.text, token.start)
    is_opened, row = _holds(held, "block_open", "call_open"), _body_row(reply)
    if token.kind == "lost_open":
        is_text, row = is_opened, None
    else:
        is_text = _holds(held, "call_open") or (bool(row or is_opened) and bool(_after_block(held).strip()))
    if is_text:
        text_after_opening(reply, text)
    elif row and _begins_body(held, text, row):
        _begin_body(reply, text, row)
    else:
        bare_call(reply, token)


def ticks_after_opening(reply: ReplyState, token: Token) -> None:
    """Read back-ticks; on a fence's own line they mean that it is inline code (CommonMark 0.31, 4.5)."""
    inline, count = is_fence_line(reply.held), fence_of(reply.held)
    opening_is_text(reply, token)
    if inline:
        reply.prose.fence, reply.place, reply.prose.code_ticks = 0, Place.CODE, count


def block_after_opening(reply: ReplyState, token: Token) -> None:
    """Read a wrapper's opener; directly after another, it opens an inner one or is the same again."""
    outer = reply.held[_block_at(reply.held)].text if _holds(reply.held, "block_open") else ""
    is_again = outer == token.text and not _after_block(reply.held).strip() and _length(reply.held) + len(outer) <= _MAX_HELD
    if (outer and not (is_again or opens_inner(reply, token, outer))) or _holds(reply.held, "call_open"):
        opening_is_text(reply, token)
    else:
        reply.held.append(token)


def opens_inner(reply: ReplyState, token: Token, outer: str) -> bool:
    """Say whether a wrapper may open inside another one: `<tool_call>` in `<tool_calls>`, as Hunyuan writes it."""
    names = (row.name_after for row in reply.dialects.values() if row.name_after)
    return token.text != outer and any(regex.fullmatch(pattern, token.text) for pattern in names)


def call_after_opening(reply: ReplyState, token: Token) -> None:
    if _holds(reply.held, "call_open"):
        opening_is_text(reply, token)
        return
    reply.held.append(token)
    _await_body(reply, token)


def body_after_opening(reply: ReplyState, token: Token) -> None:
    """Read a tag of a call's body, or its end; after a wrapper, a name may replace the call's opener."""
    if token.text == "</function>" and _ELEMENT.fullmatch(_after_block(reply.held)):
        text_after_opening(reply, Token("text", token.text, token.start))
        return
    named = _name_dialect(reply, token)
    if named and _name_in(reply.held) and _is_named_call(reply, token, named):
        _name_call(reply.held, named.name)
        token = Token("call_close", token.text, token.start, pair="call") if token.kind == "block_close" else token
    if not _holds(reply.held, "call_open") or not _belongs(reply, token, _call_in(reply.held)):
        opening_is_text(reply, token)
        return
    reply.queue.appendleft(token)
    _call_is_certain(reply)


def _belongs(reply: ReplyState, token: Token, call: Token) -> bool:
    """Say whether a tag, which several dialects may share, belongs to the call."""
    if " " in token.pair:
        return token.kind == "parameter_open" or token.pair == call.pair
    return _is_tag_of(reply.dialects[call.dialect], token)


def _is_tag_of(dialect: Dialect, token: Token) -> bool:
    """Say whether a format has a tag; a partial match is enough, because the pattern may look ahead into the next token."""
    return (
        token.dialect == dialect.name or regex.fullmatch(dialect.tags.get(token.kind, ""), token.text, partial=True) is not None
    )


def _name_dialect(reply: ReplyState, following: Token | None = None) -> Dialect | None:
    """Return the dialect in which a name follows the held wrapper; the tag after it distinguishes formats with one wrapper."""
    if _holds(reply.held, "call_open"):
        return None
    rows = [row for row in reply.dialects.values() if row.name_after]
    rows = [row for row in rows if following is None or _is_tag_of(row, following)] or rows
    return _opened_by(reply.held, ((row.name_after, row) for row in rows))


def _body_row(reply: ReplyState) -> Dialect | None:
    """Return the dialect whose wrapper is held, if its body names the tools."""
    if _holds(reply.held, "call_open"):
        return None
    rows = [row for row in reply.dialects.values() if row.names_in_body]
    if language := _language(reply.held):
        return next((row for row in rows if row.fence == language), None)
    return _opened_by(reply.held, ((row.tags.get("block_open", ""), row) for row in rows))


def _opened_by(held: list[Token], patterns: Iterable[tuple[str, Dialect]]) -> Dialect | None:
    """Return the first dialect that has the held wrapper, which several dialects may share."""
    if not _holds(held, "block_open"):
        return None
    opener = held[_block_at(held)]
    return next((row for pattern, row in patterns if opener.dialect == row.name or regex.fullmatch(pattern, opener.text)), None)


def _is_named_call(reply: ReplyState, token: Token, dialect: Dialect) -> bool:
    """Say whether a name after a wrapper is a call: with a key it is; without one, only if the name is declared."""
    if token.kind in ("block_close", "call_close", "parameter_close", "list_close"):
        return reply.declares(_name_in(reply.held))
    return _is_tag_of(dialect, token)


def _call_is_certain(reply: ReplyState) -> None:
    held = reply.held
    call = _call_in(held)
    if (reply.prose.fence or fence_of(held)) and not reply.declares(call.attributes["name"]):
        release_as_text(reply)
        return
    note_held(reply)
    at = held.index(call)
    for kind, part in held_markup(held[:at]):
        reply.markup(kind, part)
    reply.wrapper = wrapper_of(held) or reply.wrapper
    reply.queue.extendleft(reversed(held[at + 1 :]))
    begin_call(reply, call)


def begin_call(reply: ReplyState, token: Token) -> None:
    wrapper, dialect = reply.wrapper, reply.dialects[token.dialect]
    if not wrapper and "block_open" in dialect.written:
        reply.repair("missing-block", token.span)
    if wrapper and reply.dialects[wrapper].tags.get("call_open", "") == dialect.tags.get("call_open"):
        dialect = reply.dialects[wrapper]
    if dialect.tool_elements and wrapper:
        reply.repair("tool-element", token.span)
    _recognize(reply, dict.fromkeys([dialect.name, *([wrapper] if wrapper else [])]), token)
    reply.block_text, reply.place = False, Place.CALL
    reply.in_sentence = prose.is_open_sentence(reply)
    if dialect.has_object:
        reply.reader = BodyCall(reply, dialect, opener=token)
        return
    draft = CallDraft(reply.calls, token, dialect, reply.catalog.parameters(token.attributes["name"]), reply.events.append)
    reader = TagCall(draft, wrapped=bool(wrapper))
    reply.calls += 1
    reply.reader = reader
    if self_closing(reader):
        prose.end_call(reply, len(reply.events) - 1)
        reply.leave_call([])


def _begin_body(reply: ReplyState, token: Token, row: Dialect) -> None:
    text = _after_block(reply.held) + token.text
    begins = _BODY.match(text)
    start = token.end - len(text)
    blank = len(text) - len(text.lstrip())
    kept = [
        Token(part.kind, part.text[: max(0, start - part.start)], part.start, part.attributes, part.dialect)
        for part in reply.held
    ]
    reply.held = [part for part in [*kept, Token("text", text[:blank], start)] if part.text]
    reply.scanner.only(row.name)
    reply.in_sentence = prose.is_open_sentence(reply)
    body = row.body  # its beginning counts more than its format
    if bool(begins and begins["python"]) != row.is_python:
        body = Body.JSON if row.is_python else Body.PYTHON
    reply.reader = BodyCall(reply, row, body=body)
    reply.place = Place.CALL
    reply.queue.appendleft(Token("text", text[blank:], start + blank))


def bare_call(reply: ReplyState, token: Token) -> None:
    """Begin a call without any mark, if it is at the start of a line or after a call and its name is declared."""
    name = token.attributes.get("name") or name_in(token.text)
    opening = reply.place is Place.OPENING
    # A role's word follows text without a space if a server removed the mark between them.
    last = "".join(reply.prose.last[-1:])[-1:]
    is_glued = token.kind == "lost_open" and token.text.startswith("assistant") and bool(last.strip())
    starts = opening or reply.prose.line_blank or reply.prose.after_call or is_glued
    starts = starts and (token.kind != "lost_open" or len(reply.catalog) > 0)
    if not starts or token.start < reply.no_json_before or (name and not reply.declares(name)):
        reply.scanner.unread(token.text[1:])
        reply.queue.appendleft(Token("text", token.text[0], token.start))
        if opening:
            release_as_text(reply)
        return
    reply.held = [*reply.held, token] if opening else [token]
    reply.scanner.only(*([token.dialect] if token.kind == "lost_open" else []))
    reply.reader = BareCall(reply, token)
    reply.place = Place.CALL


def note_held(reply: ReplyState, row: Dialect | None = None) -> None:
    """Note a wrapper's opener that is held twice, and leave out the held fence: a repair, unless it is the format's wrapper."""
    if fence := fence_of(reply.held):
        reply.prose.fence, reply.prose.fence_dropped = fence, True
        if row is None or not row.fence:
            reply.repair("code-fence", reply.held[0].span)
    for before, part in pairwise(part for part in reply.held if part.kind == "block_open"):
        if before.text == part.text:
            reply.repair("repeated-block", part.span)


def opening_is_text(reply: ReplyState, token: Token) -> None:
    """Read the held tokens as text, then read the token after them again."""
    release_as_text(reply)
    reply.queue.appendleft(token)


def release_as_text(reply: ReplyState) -> None:
    """Read the held tokens as text."""
    reply.place = reply.outside
    reply.prose.fence = fence_of(reply.held) or reply.prose.fence
    reply.scanner.only()
    for part in reply.held:
        prose.text_outside(reply, part)


def release_at_end(reply: ReplyState) -> None:
    """Release the held tokens; a wrapper's opener at the very end of the reply is a left-over, not text for the person."""
    last = max((place for place, part in enumerate(reply.held) if part.text.strip()), default=0)
    reply.place = Place.PROSE
    for place, part in enumerate(reply.held):
        (prose.stray_tag if place == last and part.kind == "block_open" else prose.text_outside)(reply, part)


def fence_of(held: list[Token]) -> int:
    """Return the number of back-ticks if the held tokens begin with a fence, else 0."""
    return len(held[0].text) if held[0].kind == "ticks" else 0


def is_fence_line(held: list[Token]) -> bool:
    """Say whether the fence's own line continues: text there names a language."""
    return bool(fence_of(held)) and not any("\n" in part.text for part in held)


def wrapper_of(held: list[Token]) -> str:
    return next((part.dialect for part in held if part.kind == "block_open"), "")


def held_markup(held: list[Token]) -> Iterator[tuple[str, Token]]:
    """Yield each held token with its kind of markup before a call."""
    text = "fence" if held and fence_of(held) else "space"
    for part in held:
        if part.kind == "block_open":
            text = "space"
        yield {"ticks": "fence", "block_open": "block_open"}.get(part.kind, text), part


def _holds(held: list[Token], *kinds: str) -> bool:
    return any(part.kind in kinds for part in held)


def _call_in(held: list[Token]) -> Token:
    return next(part for part in held if part.kind == "call_open")


def _length(held: list[Token]) -> int:
    return sum(len(part.text) for part in held)


def _is_accepted(held: list[Token], text: Token, row: Dialect | None, *, name: bool) -> bool:
    """Say whether a call may follow a text: a body's beginning, white space, a fence's line, or, if `name`, a name."""
    if _length(held) + len(text.text) > _MAX_HELD:
        return False
    if row and _BODY.fullmatch(_after_block(held) + text.text, partial=True):
        return True
    openers = [place for place, part in enumerate(held) if part.kind in ("block_open", "call_open")]
    if openers and name:
        return _NAME.fullmatch(_after_block(held) + text.text, partial=True) is not None
    if openers:
        # A part of a name may be held; white space after it, such as U+001F, does not turn it into white space.
        return not any(part.text.strip() for part in [*held[openers[-1] + 1 :], text])
    _, newline, rest = "".join(part.text for part in [*held[1:], text]).partition("\n")
    return not newline or not rest.strip()


def _block_at(held: list[Token]) -> int:
    return max((place for place, part in enumerate(held) if part.kind == "block_open"), default=len(held))


def _after_block(held: list[Token]) -> str:
    """Return the held text after the wrapper's opener, or after the line of a fence that is the wrapper."""
    if _language(held):
        return "".join(part.text for part in held[1:]).partition("\n")[2]
    return "".join(part.text for part in held[_block_at(held) + 1 :])


def _language(held: list[Token]) -> str:
    """Return the language of a fence whose line has ended and after which no wrapper opened; "" if there is none."""
    if not fence_of(held) or is_fence_line(held) or _holds(held, "block_open", "call_open"):
        return ""
    return "".join(part.text for part in held[1:]).partition("\n")[0].strip()


def _name_in(held: list[Token]) -> str:
    match = _NAME.fullmatch(_after_block(held))
    return (match["name"] or "") if match else ""


def _takes_name_line(reply: ReplyState, text: Token) -> bool:
    """Say whether a declared name is complete and a JSON object follows it in this text."""
    head, brace, _ = text.text.partition("{")
    match = _NAME.fullmatch(_after_block(reply.held) + head)
    fits = _length(reply.held) + len(head) <= _MAX_HELD
    return bool(brace and match and match["name"] and fits and reply.declares(match["name"]))


def _name_call(held: list[Token], dialect: str, text: Token | None = None) -> Token:
    """Turn the wrapper's opener and the name after it, of which `text` may have the rest, into the opener of a call."""
    head, brace, tail = text.text.partition("{") if text else ("", "", "")
    at = _block_at(held)
    first = held[at]
    whole = first.text + _after_block(held) + head
    match = _NAME.fullmatch(_after_block(held) + head)
    name = {"name": match["name"] if match else ""}
    held[at:] = [Token("call_open", whole, first.start, name, dialect, "call")]
    return Token("text", brace + tail, first.start + len(whole))


def _begins_body(held: list[Token], text: Token, row: Dialect) -> bool:
    """Say whether the held text and this text begin a body; formats of Python lines share their wrapper, so JSON is not one."""
    begins = _BODY.match(_after_block(held) + text.text)
    return begins is not None and (row.body is not Body.LINES or bool(begins["python"])) and _fits(held, text)


def _fits(held: list[Token], text: Token) -> bool:
    """Say whether the held tokens and the white space before a text are within the limit, as if it had come in pieces."""
    return _length(held) + len(text.text) - len(text.text.lstrip()) <= _MAX_HELD
