"""What is left of a text where the ways to write it do not count: two texts that a reader takes for the same have one skeleton.

Who repeats a text may undo entities, the escapes of JSON, of Python and of addresses, fold white space, join lines or the strings
of a list, leave out what nobody sees, and write characters of full width narrow. Both texts are stripped of all that, of
quotation marks, and of marks on letters: a model may leave one out, and one behind a bracket would make another character of it.

Cost: linear in the text.
"""

from typing import Final
from urllib.parse import unquote

import regex

from ..text_forms import normalized, unescaped

__all__ = ["plain", "skeleton", "skeletons", "unquoted"]

_ROUNDS: Final = 6  # JSON in JSON in an attribute; one pass undoes any number of backslashes, and of `&amp;`
_AMPERSANDS: Final = regex.compile(r"&(?:amp;|#0{0,8}38;|#[xX]0{0,8}26;)+")
_HALVES: Final = regex.compile(r"&#(?:[xX]0{0,8}([dD][89A-Fa-f][0-9A-Fa-f]{2})|0{0,8}(5[5-7][0-9]{3}));?")
_HEX: Final = "[0-9A-Fa-f]"
_ESCAPE: Final = regex.compile(
    rf"\\++(?:u({_HEX}{{4}})|x({_HEX}{{2}})|u\{{0{{0,8}}({_HEX}{{1,5}})\}}|U000({_HEX}{{5}})"
    r"|N\{[A-Z][-A-Z0-9 ]{0,80}\}|([nrtbf])|(0?[4-7][0-7]|1[0-7]{2}))?"
)
_PAIRS: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]")  # JSON may write a character beyond U+FFFF as two halves
_MARKS: Final = regex.compile(r"[\p{M}\p{DI}\p{Cs}]++")  # before anything is composed: long runs of marks take long to sort
_DROPPED: Final = regex.compile(r"[\s\p{C}\p{M}\p{DI}\"'`\u201c\u201d\u2018\u2019]++")  # what nobody sees, and quotation marks
_QUOTED: Final = regex.compile(r"(?m)^[ \t]{0,8}>(?:[ \t]?>)*+")  # lines of a quotation in Markdown
_BETWEEN: Final = regex.compile(
    r'(?<!\\)\\*+"\s*+,\s*+(?:\\*+"[^"\\\n]{0,200}\\*+"\s*+:\s*+)?\\*+"'
)  # from a string in JSON to the next


def skeleton(text: str) -> str:
    """Strip a text of the ways in which it is written."""
    return _DROPPED.sub("", plain(text))


def plain(text: str) -> str:
    """Undo all escapes of a text, and leave out marks on letters and what nobody sees."""
    for _ in range(_ROUNDS):
        before = text
        if "\\" in text:
            text = _ESCAPE.sub(_unescaped, text)
        if "&" in text:
            text = unescaped(_HALVES.sub(_half, _AMPERSANDS.sub("&", text)))
        if "%" in text:
            text = unquote(text)
        if text == before:  # not before, because a backslash and a character of full width are no escape
            text = _narrow(text)
        if text == before:
            break
    return _narrow(text)


def _narrow(text: str) -> str:
    if text.isascii():
        return text
    return _MARKS.sub("", normalized("NFKD", _MARKS.sub("", _PAIRS.sub(_joined, text))))


def skeletons(text: str) -> tuple[str, ...]:
    """Return the skeletons of a text, of its strings in JSON, put together, and of what it quotes."""
    return tuple(map(skeleton, dict.fromkeys((text, _BETWEEN.sub("", text), unquoted(text)))))


def unquoted(text: str) -> str:
    """Return a text without the marks of quoted lines, which stand before a server's instructions."""
    return _QUOTED.sub("", text)


def _unescaped(found: "regex.Match[str]") -> str:
    code = found[1] or found[2] or found[3] or found[4]
    if code:
        return chr(int(code, 16))
    if found[6]:
        return chr(int(found[6], 8))
    return {"": "", "t": "\t"}.get(found[5] or "", "\n")


def _half(found: "regex.Match[str]") -> str:
    code = int(found[1], 16) if found[1] else int(found[2])
    return chr(code) if 0xD800 <= code < 0xE000 else found[0]


def _joined(found: "regex.Match[str]") -> str:
    high, low = map(ord, found[0])
    return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
