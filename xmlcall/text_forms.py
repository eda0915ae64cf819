"""Python's functions for the forms of a text, made fit for texts of others: some of these make them raise, or take minutes.

Cost: linear in the text.
"""

import html
import unicodedata
from typing import Final, Literal

import regex

__all__ = ["normalized", "unescaped"]

_NUMBER: Final = regex.compile(r"&#0*([0-9]{1,8})[0-9]*")
_MARK: Final = r"[\P{ccc=0}\u0f73\u0f75\u0f81\uff9e\uff9f]"  # over or under a letter, or what is taken apart into such marks
_MARKS: Final = regex.compile(f"({_MARK}{{30}}){_MARK}++")


def unescaped(text: str) -> str:
    """Return a text with the characters that its entities of HTML stand for."""
    # Python reads no number of more than 4,300 digits. One of 8 digits stands for no character, and for U+FFFD in HTML.
    return html.unescape(_NUMBER.sub(r"&#\1", text)) if "&" in text else text


def normalized(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Bring a text into a form of Unicode; of marks in a row the first 30 are kept.

    No language has more of them on a letter (UAX #15, Stream-Safe Text Format). Python sorts them in time that grows with the
    square of their number.
    """
    return text if text.isascii() else unicodedata.normalize(form, _MARKS.sub(r"\1", text))
