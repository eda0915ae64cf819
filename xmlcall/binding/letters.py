"""A call and a text as letters and digits alone: what a model repeats may have been given to it in any dress.

Beyond the ways to write that `skeleton.py` undoes, a copy may lack what stood between its parts in the text: numbers, names or
marks before lines (a listing, a search, a comment, a difference), keys of JSON, tags of HTML for letters, colours of a terminal.
So a text has several readings, and a call is compared with each as letters and digits, in small ones, with look-alikes as the
letters that they look like. What a person asks for in plain words must not look like a call: its own notation must have words
enough (`invoke`, `parameter`, `arguments`), or its brackets count, too (`[add(a=1)]`).

Cost: linear in the text.
"""

import functools
from typing import Final

import regex

from .skeleton import plain

__all__ = ["READINGS", "letters", "of_keys", "readings"]

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
    r"(?:[ ][^<>\n]{0,200})?/?>|=(?:3D)*(?:[23][A-F]|[57][B-F])"  # the last: punctuation in a mail
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
"""How many a text has."""


def letters(text: str, signs: str = "") -> str:
    """Return the letters and digits of a text."""
    return _bare(plain(text), signs)


def readings(text: str, signs: str = "") -> tuple[str, ...]:
    """Return the letters of a text as it stands; without what stands before its lines or within words; without keys of JSON."""
    undone = plain(text)
    as_it_is, tidy = _bare(undone, signs), _bare(_INSIDE.sub("", _LINE_START.sub("", undone)), signs)
    keyless = [letters(_without_keys(text, quote), signs) if _has_keys(text, quote) else as_it_is for quote in _STRINGS]
    # Of a call in JSON, its first half may stand in a text and its second half in a value.
    return as_it_is, tidy, *keyless, *(keyless if _is_json(text) else [as_it_is] * len(keyless))


@functools.lru_cache(maxsize=2)
def of_keys(texts: tuple[str, ...], signs: str = "") -> tuple[str, ...]:
    """Return the letters of all strings that stand under one key of JSON, or under none, joined, for each key."""
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
