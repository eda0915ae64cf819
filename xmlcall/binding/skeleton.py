"""Reduces texts to skeletons, so that texts which a reader would treat as the same compare equal, however they are written.

A model that repeats a text may undo entities and the escapes of JSON, Python and URLs, fold white space, join lines or the
strings of a list, omit invisible characters, and replace full-width characters. Both texts are stripped of all that, of quotation
marks, and of marks on letters, because a model may omit a mark, and a mark after a bracket would change that character.

The original may also have been interspersed with text that a copy lacks: numbers, names or marks before lines (a listing, a
search, a comment, a diff), JSON keys, HTML formatting tags, terminal colours. So a text has several readings, and a call is
compared with each of them by its letters and digits, in lower case, with look-alikes replaced by the letters they resemble. A
request in plain words must not look like a call. So the call's notation must contain enough words (`invoke`, `parameter`,
`arguments`), or its brackets are compared, too (`[add(a=1)]`).

Cost: linear in the text.
"""

import functools
from typing import Final
from urllib.parse import unquote

import regex

from ..text_forms import normalized, unescaped

_ROUNDS: Final = 6  # JSON in JSON in an attribute; one pass undoes any number of backslashes, and of `&amp;`
_AMPERSANDS: Final = regex.compile(r"&(?:amp;|#0{0,8}38;|#[xX]0{0,8}26;)+")
_HALVES: Final = regex.compile(r"&#(?:[xX]0{0,8}([dD][89A-Fa-f][0-9A-Fa-f]{2})|0{0,8}(5[5-7][0-9]{3}));?")
_HEX: Final = "[0-9A-Fa-f]"
_ESCAPE: Final = regex.compile(
    rf"\\++(?:u({_HEX}{{4}})|x({_HEX}{{2}})|u\{{0{{0,8}}({_HEX}{{1,5}})\}}|U000({_HEX}{{5}})"
    r"|N\{[A-Z][-A-Z0-9 ]{0,80}\}|([nrtbf])|(0?[4-7][0-7]|1[0-7]{2}))?"
)
_PAIRS: Final = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]")  # JSON may write a character beyond U+FFFF as two halves
_MARKS: Final = regex.compile(r"[\p{M}\p{DI}\p{Cs}]++")  # removed before normalizing: long runs of marks take long to sort
_DROPPED: Final = regex.compile(r"[\s\p{C}\p{M}\p{DI}\"'`\u201c\u201d\u2018\u2019]++")  # invisible, and quotation marks
_QUOTED: Final = regex.compile(r"(?m)^[ \t]{0,8}>(?:[ \t]?>)*+")  # lines of a quotation in Markdown
_BETWEEN: Final = regex.compile(
    r'(?<!\\)\\*+"\s*+,\s*+(?:\\*+"[^"\\\n]{0,200}\\*+"\s*+:\s*+)?\\*+"'
)  # from a string in JSON to the next

_LOOKALIKES: Final = {
    **dict(zip(map(ord, "аеорсухіјѕһԁԛԝοανρικυχ"), "aeopcyxijshdqwoavpikux", strict=True)),
    **{start + at: chr(ord("a") + at) for start in (0x1F150, 0x1F170, 0x1F1E6) for at in range(26)},
}
_LINE_START: Final = regex.compile(
    r"(?m)^[^\p{L}\p{N}\n]{0,40}(?:(?:[\w./-]{1,100}:)?\d{1,6}(?:/\d{1,6})?(?:[:.)|\t\]-]|[ ]{2})|[\w-]{1,40}:[ \t])"
)
_INSIDE: Final = regex.compile(
    r"\x1b\[[0-9;]{0,20}[A-Za-z]|<!--|-->"
    r"|</?(?:a|abbr|b|big|br|cite|code|del|div|em|font|i|ins|kbd|li|mark|p|pre|q|s|samp|small|span|strong|sub|sup|td|tr|tt|u|var|wbr)"
    r"(?:[ ][^<>\n]{0,200})?/?>|=(?:3D)*(?:[23][A-F]|[57][B-F])"  # the last one: punctuation in quoted-printable mail
)
_STRINGS: Final = {
    quote: regex.compile(
        rf"(?s){quote}((?:[^{quote}\\]++|\\.)*+)(?:{quote}|\\?\Z)"
        r"(\s*+:\s*+(?:-?[0-9][0-9.eE+-]{0,30}|true\b|false\b|null\b|True\b|False\b|None\b)?)?"
    )
    for quote in "\"'"
}
_QUOTE: Final = regex.compile(r"\\([\"'\\/])")
_DEPTH: Final = 3  # JSON in a string in JSON

READINGS: Final = 6
"""Number of readings that a text has."""


def skeleton(text: str) -> str:
    """Return a text without its escapes, white space, quotation marks and invisible characters."""
    return _DROPPED.sub("", _plain(text))


def _plain(text: str) -> str:
    """Undo all escapes of a text, and remove marks on letters and invisible characters."""
    for _ in range(_ROUNDS):
        before = text
        if "\\" in text:
            text = _ESCAPE.sub(_unescape, text)
        if "&" in text:
            text = unescaped(_HALVES.sub(_half, _AMPERSANDS.sub("&", text)))
        if "%" in text:
            text = unquote(text)
        if text == before:  # not earlier, because a backslash and a full-width character are no escape
            text = _narrow(text)
        if text == before:
            break
    return _narrow(text)


def _narrow(text: str) -> str:
    if text.isascii():
        return text
    return _MARKS.sub("", normalized("NFKD", _MARKS.sub("", _PAIRS.sub(_join, text))))


def skeletons(text: str) -> tuple[str, ...]:
    """Return the skeletons of a text: unchanged, with adjacent JSON strings joined, and without the marks of quoted lines."""
    return tuple(map(skeleton, dict.fromkeys((text, _BETWEEN.sub("", text), unquoted(text)))))


def unquoted(text: str) -> str:
    """Return a text without the marks of quoted lines, with which prompts show a server's instructions."""
    return _QUOTED.sub("", text)


def _unescape(found: "regex.Match[str]") -> str:
    code = found[1] or found[2] or found[3] or found[4]
    if code:
        return chr(int(code, 16))
    if found[6]:
        return chr(int(found[6], 8))
    return {"": "", "t": "\t"}.get(found[5] or "", "\n")


def _half(found: "regex.Match[str]") -> str:
    code = int(found[1], 16) if found[1] else int(found[2])
    return chr(code) if 0xD800 <= code < 0xE000 else found[0]


def _join(found: "regex.Match[str]") -> str:
    high, low = map(ord, found[0])
    return chr(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)


def letters(text: str, signs: str = "") -> str:
    """Return the letters and digits of a text."""
    return _bare(_plain(text), signs)


def readings(text: str, signs: str = "") -> tuple[str, ...]:
    """Return a text's letters: unchanged; without line prefixes and tags within words; and without JSON keys."""
    undone = _plain(text)
    as_it_is, tidy = _bare(undone, signs), _bare(_INSIDE.sub("", _LINE_START.sub("", undone)), signs)
    keyless = [letters(_without_keys(text, quote), signs) if _has_keys(text, quote) else as_it_is for quote in _STRINGS]
    # The first half of a JSON call may be in a text and its second half in a value.
    return as_it_is, tidy, *keyless, *(keyless if _is_json(text) else [as_it_is] * len(keyless))


@functools.lru_cache(maxsize=2)
def of_keys(texts: tuple[str, ...], signs: str = "") -> tuple[str, ...]:
    """Return, for each JSON key (and for none), the letters of all strings under it, joined."""
    found: dict[tuple[int, str, str], list[str]] = {}
    for text in texts:
        for quote in _STRINGS:
            if _has_keys(text, quote) or f"{quote}," in text:
                _collect(text, quote, found)
    return tuple(letters("".join(strings), signs) for strings in found.values() if len(strings) > 1)


def _bare(text: str, signs: str) -> str:
    text = text.translate(_LOOKALIKES) if not text.isascii() else text
    return _others(signs).sub("", text.casefold())


@functools.cache
def _others(signs: str) -> "regex.Pattern[str]":
    return regex.compile(rf"[^\p{{L}}\p{{N}}{regex.escape(signs)}]++|[\p{{DI}}\U00013441\U00013442]++")


def _has_keys(text: str, quote: str) -> bool:
    return f"{quote}:" in text or f"{quote} :" in text


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")


def _without_keys(text: str, quote: str, depth: int = _DEPTH) -> str:
    def kept(found: "regex.Match[str]") -> str:
        if found[2]:
            return ""
        inside: str = found[1]
        if depth and "\\" + quote in inside and _is_json(inside):
            inside = _without_keys(_QUOTE.sub(r"\1", inside), quote, depth - 1)
        return quote + inside + quote

    return _STRINGS[quote].sub(kept, text)


def _collect(text: str, quote: str, found: dict[tuple[int, str, str], list[str]], depth: int = _DEPTH) -> None:
    key = ""
    for each in _STRINGS[quote].finditer(text):
        if each[2]:
            key = each[1]
        else:
            found.setdefault((depth, quote, key), []).append(each[1])
            if depth and "\\" + quote in each[1]:
                _collect(_QUOTE.sub(r"\1", each[1]), quote, found, depth - 1)
